"""What all filters share: ask, charge, refuse, save and restore."""

from abc import ABC, abstractmethod
from fractions import Fraction
from functools import lru_cache
from math import floor, inf
from numbers import Real
from operator import add, le
from threading import Lock
from typing import Any, Self

from bursar import _check, mechanisms
from bursar._uncopyable import Uncopyable
from bursar._units import FAILURE, Units, exact, to_float, whole
from bursar.errors import ArgumentError, BudgetExceeded, Unsupported

__all__ = ["Filter", "WithFailures", "refuse_failures", "rounds"]


@lru_cache(maxsize=1024)
def rounds(mechanism: mechanisms.Mechanism) -> int:
    """How many rounds a description stands for: 1, or the sum over its parts."""
    match mechanism:
        case mechanisms.Repeated():
            return mechanism.count * rounds(mechanism.mechanism)
        case mechanisms.Composed():
            return sum(rounds(part) for part in mechanism.mechanisms)
    return 1


class Filter(Uncopyable, ABC):
    """An account with a budget. ``charge`` is the only method that changes it.

    The account holds whole units, one total for each of its measures, so its sums are exact and a charge costs the
    same however many there were. The last total counts probabilities of failure (theory 4.5), which have a share of
    delta of their own, set aside before the first charge.
    """

    def __init__(self, budget: tuple[int, ...], **parameters: Any) -> None:
        self._parameters = {name: _plain(value) for name, value in parameters.items()}
        self._budget = budget
        self._spent: tuple[Units, ...] = (0,) * len(budget)
        self._count = 0
        self._lock = Lock()
        self._price = lru_cache(maxsize=256)(self._price_of)

    @property
    def epsilon(self) -> float | None:
        """The epsilon of the promise; None when the budget was given in another measure. Public."""
        return self._parameters.get("epsilon")

    @property
    def delta(self) -> float | None:
        """The delta of the promise; None when the budget was given in another measure. Public."""
        return self._parameters.get("delta")

    @property
    def count(self) -> int:
        """How many rounds were charged. Public."""
        return self._count

    @property
    @abstractmethod
    def spent(self) -> Any:
        """What was spent, in the filter's own measure, rounded up. Public."""

    @property
    @abstractmethod
    def left(self) -> Any:
        """What is left, in the filter's own measure, rounded down. Public."""

    def admits(self, mechanism: mechanisms.Mechanism) -> bool:
        """Whether a mechanism fits into what is left. Asking changes nothing.

        Raises:
            Unsupported: no theorem gives this mechanism a cost here.
        """
        return self._fits(self._after(mechanism))

    def charge(self, mechanism: mechanisms.Mechanism) -> None:
        """Spend what a mechanism costs, before it is run.

        Raises:
            BudgetExceeded: it does not fit. Nothing is spent, and something cheaper may still fit.
            Unsupported: no theorem gives this mechanism a cost here. Nothing is spent.
        """
        with self._lock:
            after = self._after(mechanism)
            if not self._fits(after):
                raise BudgetExceeded(
                    f"{mechanism!r} does not fit: {self._refusal(mechanism)}",
                    asked=self._shown(self._price(mechanism)),
                    spent=self.spent,
                    left=self.left,
                )
            self._commit(after)
            self._count += rounds(mechanism)

    def person_budget(self) -> tuple[int, ...]:
        """For accounts per person: the units that each total may reach."""
        return self._budget

    def person_price(self, leaf: mechanisms.Mechanism) -> tuple[Units, ...]:
        """For accounts per person: the units that one round adds to each total."""
        return self._price(leaf)

    def state(self) -> dict[str, Any]:
        """Everything needed to go on later, as plain numbers and lists (JSON-able). Restore it once only."""
        return {
            "filter": type(self).__name__,
            "parameters": dict(self._parameters),
            "spent": list(self._spent),
            "count": self._count,
        }

    @classmethod
    def from_state(cls, state: dict[str, Any]) -> Self:
        """The filter that ``state()`` described, to the last unit."""
        _check.saved(state, "filter", "parameters", "spent", "count")
        if state.get("filter") != cls.__name__:
            raise ArgumentError(f"state={state.get('filter')!r} must be the state of a {cls.__name__} filter")
        account = cls(**state["parameters"])
        for value in state["spent"]:
            if value != inf:
                _check.whole(0, spent=value)
        spent = whole(state["spent"])
        if len(spent) != len(account._spent) or not account._fits(spent):
            raise ArgumentError("state: spent must fit the budget it came from")
        _check.whole(0, count=state["count"])
        account._spent, account._count = spent, int(state["count"])
        return account

    def __repr__(self) -> str:
        given = ", ".join(f"{name}={value!r}" for name, value in self._parameters.items() if value is not None)
        return f"{type(self).__name__}({given})"

    @abstractmethod
    def _price_of(self, mechanism: mechanisms.Mechanism) -> tuple[Units, ...]:
        """What one leaf mechanism adds to each total, in units, rounded up."""

    def _fits(self, totals: tuple[Units, ...]) -> bool:
        return all(map(le, totals, self._budget))

    def _commit(self, totals: tuple[Units, ...]) -> None:
        self._spent = totals

    def _shown(self, totals: tuple[Units, ...]) -> Any:
        """Totals in the filter's own measure, for errors and properties."""
        return totals

    def _refusal(self, mechanism: mechanisms.Mechanism) -> str:
        return f"it asks {self._shown(self._price(mechanism))!r}, spent {self.spent!r}, left {self.left!r}"

    def _after(self, mechanism: mechanisms.Mechanism) -> tuple[Units, ...]:
        if not isinstance(mechanism, mechanisms.Mechanism):
            raise ArgumentError(f"mechanism={mechanism!r} must be a mechanism")
        return tuple(map(add, self._spent, self._price(mechanism)))

    def _composite(self, mechanism: mechanisms.Mechanism) -> tuple[Units, ...] | None:
        """The price of a repeated or composed mechanism: the sum of its rounds, to the unit; None for a leaf."""
        match mechanism:
            case mechanisms.Repeated():
                price = self._price(mechanism.mechanism)
                return tuple(mechanism.count * units if mechanism.count else 0 for units in price)
            case mechanisms.Composed():
                parts = [self._price(part) for part in mechanism.mechanisms]
                return tuple(map(sum, zip(*parts, strict=True))) if parts else (0,) * len(self._budget)
        return None


class WithFailures(Filter):
    """A filter that also takes mechanisms that may fail; the last total counts their probabilities, in FAILURE units.

    A fixed part of delta is set aside for them. It must be fixed before the first charge: what "delta minus the sum
    of deltas so far" would leave depends on the path, and an adversary can use it twice (theory 4.10; a test shows it).
    """

    def __init__(self, budget: tuple[int, ...], *, delta: float, sum_delta: float | None, **parameters: Any) -> None:
        super().__init__(budget, delta=delta, sum_delta=sum_delta, **parameters)
        if sum_delta is not None:
            _check.number(sum_delta=sum_delta)
            if not 0 <= sum_delta < delta:
                raise ArgumentError(f"sum_delta={sum_delta!r} must be in [0, delta={delta!r})")

    def _set_aside(self, totals: tuple[Units, ...]) -> Fraction:
        """The part of delta for failures: as given, else half if the first charge can fail, and nothing otherwise."""
        given = self._parameters["sum_delta"]
        if given is None:
            given = self._parameters["delta"] / 2 if totals[-1] else 0.0
        return exact(given)

    def _fits(self, totals: tuple[Units, ...]) -> bool:
        aside = self._set_aside(totals)
        return totals[-1] <= floor(aside * FAILURE) and self._holds(totals, exact(self._parameters["delta"]) - aside)

    def _commit(self, totals: tuple[Units, ...]) -> None:
        self._parameters["sum_delta"] = float(self._set_aside(totals))
        super()._commit(totals)

    def _refusal(self, mechanism: mechanisms.Mechanism) -> str:
        asked, aside = self._price(mechanism)[-1], self._set_aside(self._after(mechanism))
        if self._spent[-1] + asked > aside * FAILURE:
            return (
                f"it may fail with probability {to_float(asked, per=FAILURE):g}, failures so far add up to "
                f"{to_float(self._spent[-1], per=FAILURE):g}, and sum_delta={float(aside):g} was set aside for them"
            )
        return self._too_much(mechanism)

    def _too_much(self, mechanism: mechanisms.Mechanism) -> str:
        return super()._refusal(mechanism)

    @abstractmethod
    def _holds(self, totals: tuple[Units, ...], delta: Fraction) -> bool:
        """Whether the totals of the rounds that do not fail imply (epsilon, delta)-DP for this part of delta."""


def _plain(value: Any) -> Any:
    """NumPy's numbers as Python's, so that a state is plain."""
    return float(value) if isinstance(value, Real) and not isinstance(value, int) else value


def refuse_failures(mechanism: mechanisms.Mechanism, failure: object, name: str) -> None:
    """For budgets with no share of delta."""
    if failure:
        raise Unsupported(
            f"{type(mechanism).__name__} may fail with probability delta, for which {name} has no budget; "
            "use filters.Renyi or filters.Approximate"
        )
