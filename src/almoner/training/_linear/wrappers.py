"""Tells once what wrappers of scikit-learn do around a private estimator, and what it costs.

An estimator can't see what stands before it: a ``Pipeline`` hands it numbers that were transformed already. So ``fit``
looks for a pipeline that ends in this very estimator among the callers, and at its steps: one that must be fitted has
read the data, which nobody has paid for. Copies are counted: ``clone`` asks the estimator for its copy, and each copy
that is fitted, here or where it is sent to, spends a budget.
"""

import inspect
import warnings
from collections.abc import Iterator, Mapping
from typing import Any

from sklearn.frozen import FrozenEstimator
from sklearn.pipeline import Pipeline
from sklearn.utils import get_tags

from almoner.errors import PrivacyWarning

__all__ = ["Copied"]

PRIVATE = ("holder_report_", "accounts_", "odometer_", "_stream", "_copies")
"""Attributes that do not travel with the model."""


class Copies:
    """Number of copies of one estimator were fitted, or sent elsewhere to be fitted. Public."""

    def __init__(self) -> None:
        self.fitted = 0

    def add(self, epsilon: object) -> None:
        """Count one more, and tell of the second."""
        self.fitted += 1
        if self.fitted == 2:
            _tell(
                "a second copy of this estimator is fitted, as cross_val_score, GridSearchCV and BaggingClassifier fit "
                f"many: each fit spends a budget of its own (epsilon={epsilon!r}), and they add up for people who are "
                f"in several. To choose settings within one budget: PrivateSearch(estimator, grid, epsilon={epsilon!r})"
                ".fit(X, y); to judge a model by other people: model.fit(X, y).score(X_others, y_others)",
                level=5,
            )


class Copied:
    """An estimator that knows of its copies, and of the pipeline that it stands in."""

    _copies: Copies | None = None

    def __sklearn_clone__(self) -> Any:
        """A copy with the same parameters, counted with all others when it is fitted."""
        copy = super().__sklearn_clone__()  # type: ignore[misc]
        if self._copies is None:
            self._copies = Copies()
        copy._copies = self._copies
        return copy

    def __getstate__(self) -> dict[str, Any]:
        """State that travels with the model: nothing that is private."""
        if self._copies is not None and not hasattr(self, "card_"):
            self._copies.add(self._price())  # a copy that another process fits
        state: Any = super().__getstate__()
        return {name: value for name, value in state.items() if name not in PRIVATE}

    def _tell_of_wrappers(self) -> None:
        """Warn of a pipeline whose steps before this one read the data, and of a second copy that is fitted."""
        for pipeline in _pipelines(self):
            fitted = [name for name, step in pipeline.steps[:-1] if _reads_data(step)]
            if fitted:
                name = fitted[0]
                _tell(
                    f"{', '.join(map(repr, fitted))} before this estimator in a Pipeline read people's data, and "
                    "nobody pays for that: the guarantee does not cover it. Fit it on public data, or use public "
                    "numbers: "
                    f"make_pipeline(FrozenEstimator({type(dict(pipeline.steps)[name]).__name__}().fit(X_public)), "
                    "model), or make_pipeline(FunctionTransformer(lambda x: (x - low) / (high - low)), model)",
                    level=4,
                )
        if self._copies is not None:
            self._copies.add(self._price())

    def _price(self) -> object:
        return getattr(self, "epsilon", None)


def _pipelines(estimator: object) -> Iterator[Pipeline]:
    """Pipelines that call, and end in this estimator."""
    frame = inspect.currentframe()
    found: list[Pipeline] = []
    while frame is not None:
        caller = frame.f_locals.get("self")
        if isinstance(caller, Pipeline) and caller.steps and not any(caller is each for each in found):
            last = found[-1] if found else estimator
            if caller.steps[-1][1] is last:
                found.append(caller)
        frame = frame.f_back
    yield from found


def _reads_data(step: Any) -> bool:
    """Tell whether a step must be fitted, and is not frozen, nor made of steps that need not be."""
    if isinstance(step, str) or step is None or isinstance(step, FrozenEstimator):
        return False
    if isinstance(step, Pipeline):
        return any(_reads_data(each) for _, each in step.steps)
    parts = getattr(step, "transformers", None) or getattr(step, "transformer_list", None)
    if parts:
        return any(_reads_data(part[1]) for part in parts) or _reads_data(getattr(step, "remainder", None))
    if _has_public_categories(step):
        return False
    return not hasattr(step, "__sklearn_tags__") or bool(get_tags(step).requires_fit)


def _has_public_categories(step: Any) -> bool:
    """Tell whether a step encodes categories that were all given."""
    parameters: Mapping[str, Any] = step.get_params(deep=False) if hasattr(step, "get_params") else {}
    given = parameters.get("categories", "auto")
    counted = any(parameters.get(name) is not None for name in ("min_frequency", "max_categories"))
    return not (isinstance(given, str) and given == "auto") and not counted


def _tell(words: str, *, level: int) -> None:
    warnings.warn(words, PrivacyWarning, stacklevel=level)
