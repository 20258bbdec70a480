"""``LogisticRegression.partial_fit``: a linear model that is released again and again, while people come."""

from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import sparse
from sklearn.utils.multiclass import check_classification_targets

from bursar import _check, individual
from bursar._private import MARK
from bursar._uncopyable import OwnProcess
from bursar.errors import ArgumentError, Unsupported
from bursar.individual import BudgetStatement
from bursar.training._card import Card, build_card
from bursar.training._logistic import descent
from bursar.training._logistic.gradients import LogisticGradients
from bursar.training._logistic.inputs import labels_of, validated
from bursar.training._logistic.noise_plan import Plan, plan
from bursar.training._logistic.personal_accounts import PersonalAccounts, named_accounts
from bursar.training._people_there import ids_and_rows, join_new

__all__ = ["PartialFit", "StreamedAccounts"]

Floats = NDArray[np.float64]
Features: TypeAlias = "ArrayLike | sparse.csr_matrix"

FIXED = ("epsilon", "delta", "accounting", "max_grad_norm", "noise_multiplier", "steps", "fit_intercept", "seed")
"""Settings that the first call decides; the others may change between calls, as long as they follow from no data."""

UNUSED = {"individual": True, "extra_steps": 0, "momentum": 0.0, "decay": 0.0, "stop_when_inactive": None}
"""Settings that must be as they are by default: a stream has an account for each person, and no last step."""


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class StreamedAccounts:
    """The accounts of everybody who ever came. PRIVATE: for the data holder.

    Attributes: people, the accounts, by id. Public: delta, at which the budgets are stated.
    """

    people: individual.Filter
    delta: float

    def __repr__(self) -> str:
        return f"StreamedAccounts({MARK})"

    def statement(self, person: Hashable) -> BudgetStatement:
        """What one person may be told, and nobody else."""
        return self.people.statement(person, delta=self.delta)

    def save(self, path: Path) -> Path:
        """Write what ``SavedAccounts`` reads: a file that its owner alone can read; PRIVATE."""
        return self._named().save(path)

    def _named(self) -> PersonalAccounts:
        return named_accounts(self.people, self.people.state()["ids"], self.delta)


@dataclass(slots=True, eq=False, repr=False)
class _Stream:
    """What goes on from one call to the next. Private."""

    settings: dict[str, Any]
    classes: NDArray[Any]
    planned: Plan
    accounts: individual.Filter
    noise: np.random.Generator
    parameters: Floats
    updates: int = 0
    process: OwnProcess = field(default_factory=OwnProcess)


class PartialFit:
    """The method ``partial_fit`` of an estimator whose settings are those of ``LogisticRegression``."""

    classes_: NDArray[Any]
    coef_: Floats
    intercept_: Floats
    n_iter_: int
    card_: Card
    accounts_: Any
    counting_: Any
    holder_report_: Any
    odometer_: Any
    _stream: _Stream | None

    def partial_fit(
        self,
        X: Features,
        y: ArrayLike,
        people: Sequence[Hashable] | ArrayLike | None = None,
        *,
        classes: Sequence[Any] | NDArray[Any] | None = None,
        divisor: float | None = None,
    ) -> Self:
        """Take one step on the people who are there, charge them alone, and release the model.

        Each call is one update of a stream, as of ``training.Stream``: a person who is in three of two hundred calls
        pays for three. ``steps`` is in how many calls a person can contribute a gradient of norm ``max_grad_norm``; the
        noise follows from it, and the stream itself never ends. The model is the last iterate; ``average`` and ``pace``
        are not used. ``learning_rate`` and ``n_people`` may change between calls.

        Args:
            X: (rows, features) array or CSR matrix, private, finite; there may be no rows, and the model is released
                all the same.
            y: (rows,) labels, private.
            people: (rows,) private: an id for each row, which stays with its person in all calls: whole numbers,
                texts, or anything hashable. All rows of a person in a call are one contribution.
            classes: public. The labels; at the first call, here or as a parameter of the estimator.
            divisor: public. How many people are expected in this call; None: ``n_people``.

        Raises:
            ArgumentError, DataError, Unsupported: before anybody is charged.

        Guarantee: the model after every call is together as private as the budget says, for adding or removing any one
            person with all of that person's rows in all calls. Who comes, and with which rows, may depend on earlier
            models, if each person's rows depend on nothing of anybody else's but these.
        Source: theory 5.1 to 5.3, 5.7; Feldman & Zrnic (2021), Theorem 4.5.
        """
        stream: _Stream | None = getattr(self, "_stream", None)
        if stream is None and hasattr(self, "coef_"):
            raise ArgumentError(
                "partial_fit: this model was made by fit, or is a copy: it has no accounts to go on with. Go on with "
                "the model itself, or begin another"
            )
        if stream is not None:
            stream.process.check("this model")
        _check.positive(learning_rate=self._own("learning_rate"))
        expected = self._divisor(divisor)
        declared = self._declared(classes, None if stream is None else stream.classes)
        if people is None:
            raise ArgumentError("people must be given, an id for each row: who comes again must be known")
        planned = self._planned_stream() if stream is None else stream.planned
        self._refuse_changes(stream)
        X, y = validated(self, X, y, reset=stream is None, least_rows=0)
        labels = np.asarray(y)
        if len(labels):
            check_classification_targets(labels)
        found, codes = labels_of(labels, declared)
        ids, rows = ids_and_rows(people, len(codes))
        intercept = bool(self._own("fit_intercept"))
        gradients = LogisticGradients(
            X, codes, len(found), intercept=intercept, people=np.asarray(rows, dtype=np.int64)
        )
        if stream is None:
            stream = self._stream = self._begun(planned, found, gradients.start)
        accounts = join_new(stream.accounts, ids)
        noisy = descent.release(gradients, stream.parameters, accounts, planned.step, stream.noise)
        stream.parameters = stream.parameters - self._own("learning_rate") / expected * noisy
        stream.updates += 1
        self._set_released(stream, expected, intercept=intercept)
        return self

    def _own(self, name: str) -> Any:
        return getattr(self, name)

    def _divisor(self, divisor: float | None) -> float:
        """How many people are expected."""
        expected = self._own("n_people") if divisor is None else divisor
        if expected is None:
            raise ArgumentError("n_people or divisor must be given: how many people are expected in a call")
        _check.positive(divisor=expected)
        return float(expected)

    def _declared(self, classes: Sequence[Any] | NDArray[Any] | None, before: NDArray[Any] | None) -> NDArray[Any]:
        """The labels: given here or as a parameter, and the same in all calls."""
        known = self._own("classes") if before is None else before
        if known is None and classes is None:
            raise ArgumentError("classes must be given at the first call of partial_fit")
        if known is None or classes is None:
            return np.asarray(known if classes is None else classes)
        if not np.array_equal(np.unique(np.asarray(known)), np.unique(np.asarray(classes))):
            raise ArgumentError(f"classes={classes!r} must be those of before: {list(np.unique(np.asarray(known)))}")
        return np.asarray(known)

    def _planned_stream(self) -> Plan:
        """The noise and the budget; before the data are looked at."""
        for name, default in UNUSED.items():
            if self._own(name) != default:
                raise Unsupported(f"partial_fit: {name}={self._own(name)!r} is not done in a stream: leave {default!r}")
        if self._own("seed") is not None:
            _check.whole(0, seed=self._own("seed"))
        names = ("epsilon", "delta", "noise_multiplier", "max_grad_norm", "steps")
        settings = {name: self._own(name) for name in names}
        return plan(self._own("accounting"), **settings, counted=False)

    def _refuse_changes(self, stream: _Stream | None) -> None:
        for name, value in ({} if stream is None else stream.settings).items():
            if self._own(name) != value:
                raise ArgumentError(f"{name}={self._own(name)!r} must be as at the first call: {value!r}")

    def _begun(self, planned: Plan, classes: NDArray[Any], start: Floats) -> _Stream:
        seed = self._own("seed")
        return _Stream(
            settings={name: self._own(name) for name in (*FIXED, *UNUSED)},
            classes=classes,
            planned=planned,
            accounts=individual.Filter([], planned.budget.fresh()),
            noise=np.random.default_rng(None if seed is None else [seed, 1]),
            parameters=start,
        )

    def _set_released(self, stream: _Stream, divisor: float, *, intercept: bool) -> None:
        """The public attributes of the model, and its accounts."""
        weights = stream.parameters[:-1] if intercept else stream.parameters
        columns = stream.parameters.shape[1]
        self.classes_, self.n_iter_, self.counting_ = stream.classes, stream.updates, None
        self.coef_ = np.ascontiguousarray(weights.T)
        self.intercept_ = stream.parameters[-1].copy() if intercept else np.zeros(columns)
        self.accounts_ = StreamedAccounts(stream.accounts, stream.planned.delta)
        self.holder_report_ = self.odometer_ = None
        step = stream.planned.step
        self.card_ = build_card(
            stream.planned.budget.fresh(),
            delta=stream.planned.delta,
            why=stream.planned.why,
            individual=True,
            spend_remainder=True,
            sample_rate=None,
            streamed=True,
            sigma=step.sigma,
            noise_multiplier=step.sigma / step.sensitivity,
            max_grad_norm=step.sensitivity,
            steps=stream.updates,
            extra_steps=0,
            learning_rate=float(self._own("learning_rate")),
            average=0.0,
            divisor=divisor,
            count_sigma=None,
            people_from="group",
            classes_from="caller",
            reproducible=self._own("seed") is not None,
            released=((step, stream.updates),),
        )
