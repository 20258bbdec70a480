"""Between scikit-learn and a private estimator: what stands around it, what it is given, and what that costs.

An estimator can't see what stands before it: a ``Pipeline`` hands it numbers that were transformed already. So ``fit``
looks for a pipeline that ends in this very estimator among the callers, and at its steps: one that must be fitted has
read the data, which nobody has paid for. Copies are counted: ``clone`` asks the estimator for its copy, and each copy
that is fitted, here or where it is sent to, spends a budget.
"""

import inspect
import logging
import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.compose import TransformedTargetRegressor
from sklearn.frozen import FrozenEstimator
from sklearn.pipeline import Pipeline
from sklearn.preprocessing import OneHotEncoder, OrdinalEncoder
from sklearn.utils import get_tags
from sklearn.utils.validation import column_or_1d, validate_data

from almoner.errors import ArgumentError, DataError, PrivacyWarning
from almoner.training._card import Card

LOG = logging.getLogger("almoner.training")

_INSTEAD = {
    "could not convert": "X must hold numbers: make categories columns of 0 and 1, from a public list of them",
    "Expected 2D array": "X: Expected 2D array, got another instead. Reshape your data: a row for each record",
    "inconsistent numbers": "X and y have inconsistent numbers of rows",
    "inhomogeneous": "X must have rows of one length, and y one entry for each",
    "Complex data": "Complex data not supported: X and y must hold real numbers",
    "should be a 1d array": "y must have one entry for each row of X",
}  # of messages that quote records or their number, and what is said instead
_COLUMNS = 100  # a table as people have it has no more; what has more was made by a program, such as features
PRIVATE = ("holder_report_", "accounts_", "odometer_", "_stream", "_copies")  # do not travel with the model


class Copied:
    """An estimator that knows of its copies, and of the pipeline that it stands in."""

    epsilon: Any
    card_: Card
    _copies: list[object] | None = None
    """Budgets of the copies that were fitted, or sent elsewhere to be fitted; one list for all. Public."""

    def __sklearn_clone__(self) -> Any:
        """A copy with the same parameters, counted with all others when it is fitted."""
        copy = super().__sklearn_clone__()  # type: ignore[misc]
        self._copies = copy._copies = [] if self._copies is None else self._copies
        return copy

    def __getstate__(self) -> dict[str, Any]:
        """State that travels with the model: nothing that is private."""
        if not hasattr(self, "card_"):
            self._count_copy()  # which another process fits
        state: Any = super().__getstate__()
        return {name: value for name, value in state.items() if name not in PRIVATE}

    def _tell_of_wrappers(self) -> None:
        """Warn of a pipeline whose steps before this one read the data, and of a second copy that is fitted."""
        for steps in _steps_around(self):
            if fitted := [name for name, step in steps.items() if reads_data(step)]:
                warnings.warn(
                    f"{', '.join(map(repr, fitted))} around this estimator read people's data, and nobody pays for "
                    "that: the guarantee does not cover it. Fit it on public data, or use public numbers: "
                    f"make_pipeline(FrozenEstimator({type(steps[fitted[0]]).__name__}().fit(X_public)), model), or "
                    "make_pipeline(FunctionTransformer(lambda x: (x - low) / (high - low)), model)",
                    PrivacyWarning,
                    stacklevel=3,
                )
        self._count_copy()

    def _count_copy(self) -> None:
        if self._copies is None:
            return
        self._copies.append(self.epsilon)
        if len(self._copies) == 2:
            warnings.warn(
                "a second copy of this estimator is fitted, as cross_val_score, GridSearchCV and BaggingClassifier fit "
                f"many: each fit spends a budget of its own (epsilon={self.epsilon!r}), and they add up for people who "
                "are in several. To choose settings within one budget: "
                f"PrivateSearch(estimator, grid, epsilon={self.epsilon!r}).fit(X, y); to judge a model by other "
                "people: model.fit(X, y).score(X_others, y_others)",
                PrivacyWarning,
                stacklevel=4,
            )


def _steps_around(last: object) -> Iterator[dict[str, Any]]:
    """Steps, by name, of pipelines that call and end in this estimator, and of what transforms its targets."""
    frame = inspect.currentframe()
    while frame is not None:
        caller = frame.f_locals.get("self")
        if isinstance(caller, Pipeline) and caller.steps and caller.steps[-1][1] is last:
            yield dict(caller.steps[:-1])
            last = caller  # which may be the end of another one
        if isinstance(caller, TransformedTargetRegressor) and getattr(caller, "regressor_", None) is last:
            yield {"transformer": caller.transformer}
            last = caller
        frame = frame.f_back


def reads_data(step: Any) -> bool:
    if isinstance(step, str) or step is None or isinstance(step, FrozenEstimator):
        return False
    if isinstance(step, Pipeline):
        return any(reads_data(each) for _, each in step.steps)
    if parts := getattr(step, "transformers", None) or getattr(step, "transformer_list", None):
        return any(reads_data(part[1]) for part in parts) or reads_data(getattr(step, "remainder", None))
    parameters: Mapping[str, Any] = step.get_params(deep=False) if hasattr(step, "get_params") else {}
    listed = isinstance(step, OneHotEncoder | OrdinalEncoder)
    categories = parameters.get("categories", "auto") if listed else "auto"
    counted = any(parameters.get(name) is not None for name in ("min_frequency", "max_categories"))
    if not (isinstance(categories, str) and categories == "auto") and not counted:
        return False  # they are public
    return not hasattr(step, "__sklearn_tags__") or bool(get_tags(step).requires_fit)


def validated(model: Any, X: Any, *y: Any, reset: bool = True, least_rows: int = 1) -> Any:
    """scikit-learn's checks, without those of its messages that quote data; tells once that nothing is scaled."""
    try:
        how = {"accept_sparse": "csr", "dtype": np.float64, "ensure_min_samples": least_rows}
        valid = validate_data(model, X, *y, reset=reset, **how)
        if reset and model.bounds_X is None and not hasattr(X, "tocsr") and model.n_features_in_ <= _COLUMNS:
            _tell_of_scales()
        return valid
    except ValueError as error:
        instead = next((told for part, told in _INSTEAD.items() if part in str(error)), None)
        if instead is None:
            raise
    raise DataError(instead)


@cache
def _tell_of_scales() -> None:
    """Tell, once in a process, what columns of other sizes come to: by the number of columns alone, which is public."""
    LOG.warning(
        "X is taken as it is, whatever it holds: of columns as people have them (an age, an income) "
        "nearly all is clipped, and the model can be no better than chance. Give public bounds of each column: "
        "bounds_X=(low, high) scales rows to a norm of about 1. It is said once, of scaled columns too"
    )


@dataclass(frozen=True)
class Bounds:
    """Public bounds of features: records are moved into them, and scaled to a norm of at most 2; most have about 1."""

    low: NDArray[np.float64]
    high: NDArray[np.float64]

    @classmethod
    def of(cls, given: Any, features: int) -> "Bounds":
        """From ``bounds_X``; ArgumentError: they are not bounds of so many features."""
        try:
            low, high = (np.broadcast_to(np.asarray(each, dtype=np.float64), features) for each in given)
        except (TypeError, ValueError):
            raise ArgumentError(
                f"bounds_X must be (low, high), numbers or one for each of {features} features: bounds_X=(0, [99, 1])"
            ) from None
        if not (np.isfinite(low).all() and np.isfinite(high).all() and (low < high).all()):
            raise ArgumentError("bounds_X: each low must be below its high, and all must be finite")
        return cls(low, high)

    @property
    def _half(self) -> NDArray[np.float64]:
        return np.asarray((self.high / 2 - self.low / 2) * np.sqrt(len(self.low)) / 2)

    @property
    def _middle(self) -> NDArray[np.float64]:
        return self.low / 2 + self.high / 2

    def scaled(self, X: Any) -> NDArray[np.float64]:
        """Records (rows, features) within the bounds, scaled."""
        if hasattr(X, "tocsr"):
            raise ArgumentError("bounds_X: X is sparse and would not stay so. Scale it yourself and leave bounds_X out")
        return np.asarray((np.clip(X, self.low, self.high) - self._middle) / self._half)

    def unscaled(self, weights: Any, constants: Any) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Coefficients (features, columns) and constants (columns,) for records that are not scaled."""
        own = weights / self._half[:, None]
        return own, constants - self._middle @ own


def labels_of(y: ArrayLike, declared: Sequence[Any] | NDArray[Any] | None) -> tuple[NDArray[Any], NDArray[np.intp]]:
    """The classes, which are those of the rows where none are declared, and the number of each row's class."""
    classes = np.unique(np.asarray(y if declared is None else declared))
    if len(classes) < 2:
        raise ArgumentError(f"classes must name at least two labels, not {len(classes)} class")
    if declared is not None and len(classes) != len(declared):
        raise ArgumentError("classes must name each label once")
    codes = np.minimum(np.searchsorted(classes, y), len(classes) - 1)
    if not np.array_equal(classes[codes], y):
        raise DataError(f"y must hold none but the {len(classes)} labels that classes names")
    return classes, codes


def numbers_of(groups: Any, rows: int) -> tuple[list[Any], NDArray[np.intp]]:
    """The people, sorted, and the number of the one to whom each row belongs; a row of nobody could not be charged."""
    own: Any = groups if isinstance(groups, list | tuple) else column_or_1d(groups).tolist()
    owners = [each.item() if isinstance(each, np.generic) else each for each in own]  # NumPy makes "nan" of NaN
    if len(owners) != rows:
        raise ArgumentError("groups must have one entry for each row of X")
    try:
        if any(owner is None or owner != owner for owner in owners):
            raise DataError("groups must say of every row whose it is: None and NaN are nobody")
        names = sorted(set(owners))
    except TypeError as mixed:
        raise ArgumentError("groups must be all of one kind: all numbers, or all text") from mixed
    numbers = {name: number for number, name in enumerate(names)}
    return names, np.array([numbers[owner] for owner in owners], dtype=np.intp)


def floats_of(values: ArrayLike) -> NDArray[np.float64]:
    """A number for each row; one NaN where they are no numbers, of which scikit-learn's message would quote one."""
    try:
        return np.asarray(column_or_1d(values, dtype=np.float64))
    except (TypeError, ValueError):
        return np.array([np.nan])
