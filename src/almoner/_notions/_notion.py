"""Price mechanisms in a notion of privacy, say what a budget promises, and keep accounts, for filters and odometers."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property, lru_cache
from math import inf
from numbers import Real
from operator import add
from threading import Lock
from typing import Any, ClassVar, Generic, Self, TypeVar

import numpy as np
from numpy.typing import NDArray

from almoner import _check, mechanisms
from almoner._arrays import Array, Library, Mask
from almoner._uncopyable import OwnProcess, Uncopyable
from almoner._units import MEASURE, RANGE, Units, times, whole
from almoner.curves import _residue, renyi, tradeoff
from almoner.curves.planned import _table as planned_table
from almoner.errors import ArgumentError, Unsupported

Totals = tuple[Units, ...]  # whole units, one amount for each total of a notion
Measure = TypeVar("Measure", covariant=True)

READ = 160  # at how many deltas a promise is read that is known as an epsilon for each delta


@dataclass(frozen=True, slots=True)
class Promise:
    """Promise of a budget: (epsilon, delta)-DP for adding or removing one person. Every field is public."""

    epsilon: float
    delta: float
    theorem: str


class Notion(ABC):
    """A frozen value that prices mechanisms as totals that add up, in whole units; what was spent is with accounts."""

    person_powers: ClassVar[dict[type[mechanisms.Mechanism], int]] = {
        mechanisms.Gaussian: 2,
        mechanisms.DiscreteGaussian: 2,
    }
    """For accounts per person: the power of the norm that a round's price is a constant times of, where it is one."""

    @property
    @abstractmethod
    def columns(self) -> int:
        """Number of totals."""

    @abstractmethod
    def price_of_round(self, leaf: mechanisms.Mechanism) -> Totals:
        """Price a single round: its part of each total, in units, rounded up."""

    def price(self, mechanism: mechanisms.Mechanism) -> Totals:
        """Price a mechanism: its part of each total, in units, rounded up; Unsupported where no theorem has a price."""
        if not isinstance(mechanism, mechanisms.Mechanism):
            mechanisms.repeated(mechanism)  # refuses it
        return self._prices(mechanism)

    def after(self, totals: Totals, mechanism: mechanisms.Mechanism) -> Totals:
        """The totals once a mechanism is charged as well."""
        return tuple(map(add, totals, self.price(mechanism)))

    def settle(self, mechanism: mechanisms.Mechanism, after: Totals) -> tuple[Self, Totals]:  # noqa: ARG002 - others use it
        """The notion and the totals of an account after its first charge, which fixes what was left open until then."""
        return self, after

    def chosen(self) -> dict[str, float | None]:
        """The parameters that the first charge may fix."""
        return {}

    def person_price(self, leaf: mechanisms.Mechanism, count: int = 1) -> Totals:
        """For accounts per person: what so many rounds add to each total that such an account holds, rounded up."""
        return tuple([times(count, units) for units in self.price(leaf)])

    def person_round(self, leaf: mechanisms.Mechanism) -> mechanisms.Mechanism:
        """For accounts per person: the round in the form in which they price it."""
        return leaf

    def person_table(self, leaf: mechanisms.Mechanism) -> _residue.Table | planned_table.Table | None:  # noqa: ARG002 - others use it
        """For accounts per person: charges by what is left; None where they do not depend on it."""
        return None

    @cached_property
    def _prices(self) -> Callable[[mechanisms.Mechanism], Totals]:
        return lru_cache(maxsize=256)(self._sum_of_rounds)

    def _sum_of_rounds(self, mechanism: mechanisms.Mechanism) -> Totals:
        totals: Totals = (0,) * self.columns
        for leaf, count in mechanisms.leaves(mechanism).items():
            price = self.price_of_round(leaf)
            totals = tuple([total + times(count, units) for total, units in zip(totals, price, strict=True)])
        return totals


class ByRemainder(Notion):
    """Prices that depend on what is left: of a fresh account here; ``after`` has what is added to other totals."""

    def price_of_round(self, leaf: mechanisms.Mechanism) -> Totals:
        return self.after((0,) * self.columns, leaf)

    def price(self, mechanism: mechanisms.Mechanism) -> Totals:
        return self.price_of_round(mechanism)


@dataclass(frozen=True, kw_only=True)
class Budget(Notion, Generic[Measure]):
    """A notion with a budget: epsilon and delta of its promise, None where it was given in the notion's measure."""

    epsilon: float | None = None
    delta: float | None = None
    measure: ClassVar[str] = "epsilon"  # the amount that adds up
    theorem: ClassVar[str]  # why the promise holds, for cards and statements

    @abstractmethod
    def holds(self, totals: Totals) -> bool:
        """True if these totals still imply the promise."""

    @abstractmethod
    def spent(self, totals: Totals) -> Measure:
        """Totals in the notion's measure, rounded up."""

    @abstractmethod
    def left(self, totals: Totals) -> Measure:
        """Remainder beside these totals in the notion's measure, rounded down."""

    def asked(self, totals: Totals, mechanism: mechanisms.Mechanism) -> Measure:  # noqa: ARG002 - others use it
        """Price of a mechanism beside these totals, in the notion's measure, rounded up."""
        return self.spent(self.price(mechanism))

    def refusal(self, totals: Totals, mechanism: mechanisms.Mechanism) -> str:
        """Why a mechanism does not fit beside these totals."""
        asked, spent, left = self.asked(totals, mechanism), self.spent(totals), self.left(totals)
        parts = asked if isinstance(asked, tuple) else (asked,)
        name = "epsilon and delta" if len(parts) == 2 and self.measure == "epsilon" else self.measure
        if any(isinstance(part, float) and part == inf for part in parts):
            return f"no budget in {name} pays for it"
        return f"it costs {asked!r} in {name}; {spent!r} was spent, and {left!r} is left"

    def statement(self, delta: float | None = None) -> Promise:
        """Promise of the whole budget at delta, by default its own; epsilon in nats, rounded up.

        Raises ArgumentError where there is no delta, and Unsupported where the budget promises nothing at it.

        Guarantee: whatever the budget admits is (epsilon, delta)-DP.
        Source: the theorem of the notion.
        """
        if delta is None:
            if self.delta is None:
                raise ArgumentError("delta=None: the budget has no delta of its own, so give one")
            delta = self.delta
        elif delta != self.delta:
            _check.between(0, 1, delta=delta)
        own = inf if self.epsilon is None or self.delta is None or delta < self.delta else self.epsilon
        if delta == self.delta and own < inf:
            return Promise(float(own), float(delta), self.theorem)
        epsilon = min(own, self._converted(delta))
        if epsilon == inf:
            raise Unsupported(f"delta={delta!r}: the budget promises nothing below its own delta={self.delta!r}")
        return Promise(float(epsilon), float(delta), self.theorem)

    def _converted(self, delta: float) -> float:  # noqa: ARG002 - others use it
        """The epsilon that the limits of the totals imply at delta, rounded up; inf where no conversion is known."""
        return inf

    def curve(self) -> tradeoff.Curve:
        """The trade-off function and the hockey-stick curve of the whole budget.

        Guarantee: whatever the budget admits is (epsilon, delta)-DP at every point.
        Source: the theorem of the notion; theory 8.3 for zCDP and Rényi totals.
        """
        return self._with_own(self._curve())

    def _curve(self) -> tradeoff.Curve:
        """The curve that the budget implies, beside its own epsilon and delta."""
        return tradeoff.from_epsilons(lambda delta: self.statement(delta).epsilon, points=READ)

    def _with_own(self, curve: tradeoff.Curve) -> tradeoff.Curve:
        if self.epsilon is None or self.delta is None:
            return curve
        return tradeoff.least(curve, tradeoff.Curve((self.epsilon,), (self.delta,)))

    def after_in_units(self, totals: Totals, mechanism: mechanisms.Mechanism) -> Totals:
        """The totals once each round of a mechanism is charged as in accounts per person: in whole units of theirs."""
        return self.after(totals, mechanism)

    @abstractmethod
    def person_limits(self) -> tuple[int, ...]:
        """For accounts per person: the units that each total may reach."""

    def person_over(self, leaf: mechanisms.Mechanism, count: int) -> int:  # noqa: ARG002 - others use it
        """For accounts per person: the fine units by which their price of so many rounds is rounded up, if known."""
        return 0

    def person_spare(self) -> int:
        """For accounts per person: the fine units by which their limit is rounded down, if known."""
        return 0

    def person_opening(self, shares: NDArray[np.float64]) -> NDArray[np.int64]:
        """For accounts per person: what counts as spent from the start, so that each may spend a share of the budget.

        Shares are (n,) in (0, 1]; gives (n, m) int64 units, both private. What is left is at most the share of each
        total's limit, rounded down. Raises Unsupported where the totals have no shares.
        """
        limits = np.asarray(self.person_limits(), np.int64)
        below = np.floor(shares[:, None] * limits.astype(np.float64) * (1 - 2.0**-50)).astype(np.int64)
        return limits - np.where(shares[:, None] == 1, limits, np.minimum(below, limits))

    def person_epsilon(self, opening: tuple[int, ...], delta: float, *, at_most: float | None = None) -> float:  # noqa: ARG002 - others use it
        """For accounts per person: the epsilon at delta of an account in which so much was spent at the start.

        ``opening`` are m units, private. With ``at_most`` any number not above it is as good an answer as the least.

        Guarantee: whatever the account admits is (epsilon, delta)-DP; rounded up.
        Source: the theorem of the notion; theory 5.10.
        """
        if not any(opening):
            return self.statement(delta).epsilon
        left = self._beside(opening)
        own = inf if self.epsilon is None or self.delta is None or delta < self.delta else self.epsilon
        return min(own, self._left_converted(left, delta)) if any(left) else 0.0

    def _beside(self, opening: tuple[int, ...]) -> tuple[int, ...]:
        return tuple(most - spent for most, spent in zip(self.person_limits(), opening, strict=True))

    def _left_converted(self, left: tuple[int, ...], delta: float) -> float:  # noqa: ARG002 - others use it
        """The epsilon at delta that smaller limits imply, rounded up; inf where no conversion is known."""
        return inf

    def person_curve(self, opening: tuple[int, ...]) -> tradeoff.Curve:
        """For accounts per person: the curve of an account in which so much, m units, was spent at the start.

        Guarantee: whatever the account admits is (epsilon, delta)-DP at every point.
        Source: the theorem of the notion; theory 5.10, and 8.3 for zCDP and Rényi totals.
        """
        left = self._beside(opening)
        return self._with_own(self._left_curve(left)) if any(left) else tradeoff.Curve((0.0,), (0.0,))

    def _left_curve(self, left: tuple[int, ...]) -> tradeoff.Curve:  # noqa: ARG002 - others use it
        """The curve that smaller limits imply, beside the budget's own epsilon and delta."""
        return self._curve()

    def person_nothing_left(self) -> tuple[int, ...]:
        """For accounts per person: totals of a person who can contribute nothing any more."""
        limits = self.person_limits()
        return limits if len(limits) == 1 else (RANGE // 2,) * len(limits)

    def person_holds(self, spent: NDArray[np.int64]) -> bool:
        """For accounts per person: whether saved totals, (n, m) int64, can be those of accounts with this budget."""
        limits = self.person_limits()
        return bool(np.all(spent >= 0) and np.all(spent <= (limits[0] if len(limits) == 1 else RANGE // 2)))

    def person_units(self) -> dict[str, float] | None:
        """For saved accounts per person: what their totals are counted in, where it depends on more than the budget."""
        return None

    def person_left(self, spent: Array, xp: Library) -> Array:
        """For accounts per person: what is left, (n,) or (n, m) float64, private, in the notion's measure."""
        limits = xp.asarray(self.person_limits(), dtype=xp.int64, device=spent.device)
        left: Array = xp.astype(limits - spent, xp.float64) / MEASURE
        return left[:, 0] if left.shape[1] == 1 else left

    def person_spent(self, spent: Array, opening: Array, xp: Library) -> Array:
        """For accounts per person: what was spent since the opening, (n,) or (n, m) float64, private."""
        shown: Array = xp.astype(spent - opening, xp.float64) / MEASURE
        return shown[:, 0] if shown.shape[1] == 1 else shown

    def person_fits(self, spent: Array, cost: Array, xp: Library) -> tuple[Array, Mask]:
        """For accounts per person: the totals afterwards, (n, m), as before of who cannot pay; and who can, (n,) bool.

        ``spent`` and ``cost`` are (n, m) int64 units, >= 0; a cost of RANGE or more is infinite. All is private.

        Guarantee: the totals of each person imply the promise, afterwards as before.
        Source: theory 5.1.
        """
        limits = xp.asarray(self.person_limits(), dtype=xp.int64, device=spent.device)
        fits = xp.all(cost <= limits - spent, axis=1)
        return spent + xp.where(fits[:, None], cost, 0), fits

    def person_rounds(self, spent: Array, cost: Array, asked: Array, xp: Library) -> tuple[Array, Array]:
        """The totals after as many rounds as fit, of (n,) in turn, and their number: as ``person_fits`` one by one."""
        limits = xp.asarray(self.person_limits(), dtype=xp.int64, device=spent.device)
        some = cost > 0
        room = xp.where(some, (limits - spent) // xp.where(some, cost, 1), asked[:, None])
        done = xp.minimum(asked, xp.min(xp.where(spent <= limits, room, 0), axis=1))
        return spent + done[:, None] * cost, done


def no_failures(leaf: mechanisms.Mechanism, name: str) -> None:
    """Reject a round that may fail, for budgets with no share of delta for that."""
    if renyi.failure(leaf):
        told = f"{type(leaf).__name__} may fail with probability delta, for which {name} has no budget"
        raise Unsupported(f"{told}; use filters.Renyi or filters.Approximate")


N = TypeVar("N", bound=Notion)

State = dict[str, Any]  # plain numbers, texts and lists: JSON-able


class Account(Uncopyable, Generic[N]):
    """An account that holds whole units, so its sums are exact and a charge costs the same however many there were."""

    KIND: ClassVar[str]  # the name of the account's class in a saved state

    def __init__(self, notion: N, **parameters: object) -> None:
        self._notion = notion
        self._parameters = {name: _plain(value) for name, value in parameters.items()}
        self._totals: Totals = (0,) * notion.columns
        self._count = 0
        self._lock, self._process = Lock(), OwnProcess()

    @property
    def notion(self) -> N:
        """Prices of mechanisms in this account, and the meaning of its totals: a frozen value. Public."""
        return self._notion

    @property
    def count(self) -> int:
        """Number of rounds charged. Public."""
        return self._count

    def fresh(self) -> Self:
        """An account with the same parameters and nothing spent: another budget, for another interaction."""
        make: Callable[..., Self] = type(self)
        return make(**self._parameters)

    def state(self) -> State:
        """Everything needed to go on later, as plain numbers and lists (JSON-able). Restore it once only."""
        with self._lock:
            stated = self._stated()
            parameters = stated | ({"plan": _described(stated["plan"])} if "plan" in stated else {})
            named = {self.KIND: type(self).__name__, "parameters": parameters}
            units = {"units": self._units(None)} if self._OTHER_UNITS else {}
            return {**named, **self._saved(), "count": self._count, **units}

    @classmethod
    def from_state(cls, state: State) -> Self:
        """The account that ``state()`` described, to the last unit."""
        _check.saved(state, cls.KIND, "parameters", *cls._SAVED, "count", *(["units"] if cls._OTHER_UNITS else []))
        if state[cls.KIND] != cls.__name__:
            raise ArgumentError(f"state={state[cls.KIND]!r} must be the state of {cls.KIND}s.{cls.__name__}")
        try:
            given = {**state["parameters"]}
            account = cls(**given | ({"plan": _as_given(given["plan"])} if "plan" in given else {}))
        except TypeError as wrong:  # a parameter is missing, or unknown
            raise ArgumentError(f"state: its parameters are not those of {cls.KIND}s.{cls.__name__}") from wrong
        _check.whole(0, count=state["count"])
        account._restore(*(_units(name, state[name]) for name in cls._SAVED))
        account._count = int(state["count"])
        if cls._OTHER_UNITS and account._units(state["units"]) != state["units"]:
            raise ArgumentError(f"state: {cls._OTHER_UNITS}: go on where the state was saved")
        return account

    def __repr__(self) -> str:
        named = ", ".join(f"{name}={value!r}" for name, value in self._stated().items() if value is not None)
        return f"{type(self).__name__}({named})"

    def _stated(self) -> dict[str, object]:
        """The parameters, with those that the first charge fixed."""
        return {**self._parameters, **self._notion.chosen()}

    _SAVED: ClassVar[tuple[str, ...]]  # the parts of the totals in a saved state
    _OTHER_UNITS: ClassVar[str] = ""  # told where ``_units`` differ from a saved state's; empty where there are none

    def _units(self, saved: Mapping[str, float] | None) -> dict[str, float]:
        """Units in which totals are counted: those that were saved, or all in use."""
        raise NotImplementedError

    def _saved(self) -> dict[str, Any]:
        """The totals, part by part, and what they are counted in where it is not said elsewhere."""
        raise NotImplementedError

    def _restore(self, *parts: Totals) -> None:
        raise NotImplementedError


def _units(name: str, values: object) -> Totals:
    if not isinstance(values, Iterable) or isinstance(values, str | bytes):
        raise ArgumentError(f"state: {name} must be a list of whole units")
    units = list(values)
    for value in units:
        if value != inf:
            _check.whole(0, **{name: value})
    return whole(units)


def _described(value: Any) -> Any:
    """A plan as a state has it: its mechanisms, alone or with counts, as plain values."""
    if isinstance(value, mechanisms.Mechanism):
        return mechanisms.to_fields(value)
    return [_described(each) for each in value] if isinstance(value, list | tuple) else value


def _as_given(value: Any) -> Any:
    """The plan that ``_described`` described."""
    if isinstance(value, Mapping):
        return mechanisms.from_fields(value)
    return [_as_given(each) for each in value] if isinstance(value, list | tuple) else value


def _plain(value: object) -> object:
    """NumPy's numbers as Python's, so that a state is plain."""
    return float(value) if isinstance(value, Real) and not isinstance(value, int) else value
