"""What all odometers share: charge, read, save and restore."""

from abc import ABC, abstractmethod
from collections.abc import Callable
from fractions import Fraction
from functools import lru_cache
from math import exp, expm1, inf, log1p
from threading import Lock
from typing import Any, NamedTuple, Self

import numpy as np

from bursar import _check, mechanisms
from bursar._uncopyable import Uncopyable
from bursar._units import FAILURE, MEASURE, Units, budget, exact, up, whole
from bursar.errors import ArgumentError, Unsupported

__all__ = ["Odometer", "Price", "as_floats"]

STRETCH = 0.25
"""How far the epsilon of an approximate round is stretched for the pathwise promise, as a share of it; theory 2.4."""


class Price(NamedTuple):
    """What a mechanism adds to the totals, in units, for the ex-post promise and, in excess of it, the pathwise one."""

    costs: tuple[Units, ...]
    failure: int
    excess: tuple[Units, ...] | None
    failure_excess: int


class Odometer(Uncopyable, ABC):
    """An account with a boundary that is right at every moment at once.

    ``charge`` is the only method that changes it. Totals are whole units, so they are exact, and a charge costs the
    same however many there were. Weights, orders and scales are fixed before the first charge, and so is the part of
    delta that is kept for rounds with a delta of their own (``sum_delta``): a part of delta that is left over on one
    path of the interaction may not be spent on another. By default it is half of delta if the first mechanism charged
    may fail (which is known before there is a result), otherwise nothing.
    """

    def __init__(self, delta: float, sum_delta: float | None, columns: int, **parameters: Any) -> None:
        _check.between(0, 1, delta=delta)
        if sum_delta is not None:
            _check.number(sum_delta=sum_delta)
            if not 0 <= sum_delta < delta:
                raise ArgumentError(f"sum_delta={sum_delta!r} must be in [0, delta={delta!r})")
        self._delta = delta
        self._parameters = {"delta": delta, "sum_delta": sum_delta, **parameters}
        self._totals: tuple[Units, ...] = (0,) * columns
        self._excess: tuple[Units, ...] = (0,) * columns
        self._failures = [0, 0]  # ex-post, and in excess of that pathwise
        self._count = 0
        self._lock = Lock()
        self._price = lru_cache(maxsize=256)(self._price_of)

    @property
    def delta(self) -> float:
        """The failure probability of the promise. Public."""
        return self._delta

    @property
    def count(self) -> int:
        """How many rounds were charged. Public."""
        return self._count

    def charge(self, mechanism: mechanisms.Mechanism) -> None:
        """Count a mechanism, before it is run.

        Raises:
            Unsupported: no theorem gives this mechanism a cost here. Nothing is counted: do not run it.
        """
        price, rounds = self._checked(mechanism)
        with self._lock:
            if self._parameters["sum_delta"] is None:
                self._parameters["sum_delta"] = self._delta / 2 if price.failure else 0.0
            self._totals = _added(self._totals, price.costs)
            if price.excess is not None:
                self._excess = _added(self._excess, price.excess)
                self._failures = [self._failures[0] + price.failure, self._failures[1] + price.failure_excess]
            self._count += rounds

    def person_price(self, leaf: mechanisms.Mechanism) -> tuple[Units, ...]:
        """For accounts per person: the units that one round adds to each total."""
        price, _ = self._checked(leaf)
        if price.failure:
            raise Unsupported(f"{leaf!r} may fail with probability delta, for which accounts per person have no budget")
        return price.costs

    def epsilon(self, *, delta: float | None = None) -> float:
        """The pathwise bound now; see the class for what it promises. Reading changes nothing.

        Args:
            delta: another failure probability, in (0, 1), chosen without looking at the results; public.
        """
        with self._lock:
            totals, excess, failures = self._totals, self._excess, sum(self._failures)
        if failures:
            totals = _added(totals, excess)
        return self._read(self._bound, totals, failures, self._delta if delta is None else delta)

    def ex_post_epsilon(self, *, delta: float | None = None) -> float:
        """The ex-post bound now; see the class for what it promises. Reading changes nothing."""
        return self._ex_post_after(None, self._delta if delta is None else delta)

    def _ex_post_after(self, price: Price | None, delta: float) -> float:
        """The ex-post bound if a mechanism of this price were charged as well."""
        with self._lock:
            totals, failures = self._totals, self._failures[0]
        if price is not None:
            totals, failures = _added(totals, price.costs), failures + price.failure
        return self._read(self._ex_post, totals, failures, delta)

    def _read(self, boundary: Callable[..., Any], totals: tuple[Units, ...], failure: int, delta: float) -> float:
        _check.between(0, 1, delta=delta)
        kept = self._kept(bool(failure))
        if failure > budget(kept * exact(delta), per=FAILURE):
            return inf
        bound = float(boundary(as_floats(totals), delta=self._rest(delta, kept)))
        return bound if bound >= 0 else inf

    def _kept(self, failing: bool) -> Fraction:
        """The share of delta for rounds that may fail."""
        given = self._parameters["sum_delta"]
        if given is None:  # nothing was charged yet
            return Fraction(1, 2) if failing else Fraction(0)
        return exact(given) / exact(self._delta)

    def _rest(self, delta: float, kept: Fraction) -> float:
        """What is left of delta for the losses, rounded down."""
        return delta if not kept else float(np.nextafter(float((1 - kept) * exact(delta)), 0))

    @abstractmethod
    def _bound(self, totals: Any, /, *, delta: float) -> Any:
        """The pathwise boundary at totals (..., columns)."""

    def _ex_post(self, totals: Any, /, *, delta: float) -> Any:
        """The ex-post boundary: the pathwise one, which implies it, unless there is a better one."""
        return self._bound(totals, delta=delta)

    @abstractmethod
    def _costs(self, mechanism: mechanisms.Mechanism) -> tuple[Units, ...]:
        """What one round of a leaf that cannot fail adds to the totals, in units, rounded up."""

    def _checked(self, mechanism: mechanisms.Mechanism) -> tuple[Price, int]:
        if not isinstance(mechanism, mechanisms.Mechanism):
            raise ArgumentError(f"mechanism={mechanism!r} must be a mechanism")
        price, rounds = self._price(mechanism)
        if price.failure and not self._kept(True):
            raise Unsupported(
                f"{mechanism!r} may fail: give sum_delta=, the part of delta kept for such rounds, at the start"
            )
        return price, rounds

    def _price_of(self, mechanism: mechanisms.Mechanism) -> tuple[Price, int]:
        match mechanism:
            case mechanisms.Repeated():
                price, rounds = self._price(mechanism.mechanism)
                return _times(price, mechanism.count, len(self._totals)), mechanism.count * rounds
            case mechanisms.Composed():
                parts = [self._price(part) for part in mechanism.mechanisms]
                return _sum([price for price, _ in parts], len(self._totals)), sum(rounds for _, rounds in parts)
            case mechanisms.Approximate() if mechanism.delta > 0:
                return self._approximate(mechanism), 1
            case mechanisms.Approximate():
                return Price(self._costs(mechanisms.Pure(mechanism.epsilon)), 0, None, 0), 1
        return Price(self._costs(mechanism), 0, None, 0), 1

    def _approximate(self, mechanism: mechanisms.Approximate) -> Price:
        """theory 2.4: ex-post, reveal all with probability delta; pathwise, an event of larger probability to avoid."""
        costs = self._costs(mechanisms.Pure(mechanism.epsilon))
        failure = up(exact(mechanism.delta), per=FAILURE)
        stretched, avoided = _pathwise(mechanism.epsilon, mechanism.delta)
        if stretched is None:
            whole: tuple[Units, ...] = (inf,) * len(costs)
            return Price(costs, int(failure), whole, FAILURE)
        paths = tuple(map(sum, zip(*(self._costs(part) for part in stretched), strict=True)))
        excess = tuple(0 if c == inf else max(0, p - c) for p, c in zip(paths, costs, strict=True))
        return Price(costs, int(failure), excess, max(0, int(up(avoided, per=FAILURE)) - int(failure)))

    def state(self) -> dict[str, Any]:
        """Everything needed to go on later, as plain numbers and lists. Restore it once only."""
        return {
            "odometer": type(self).__name__,
            "parameters": dict(self._parameters),
            "totals": list(self._totals),
            "excess": list(self._excess),
            "failures": list(self._failures),
            "count": self._count,
        }

    @classmethod
    def from_state(cls, state: dict[str, Any]) -> Self:
        """The odometer that ``state()`` described, to the last unit."""
        _check.saved(state, "odometer", "parameters", "totals", "excess", "failures", "count")
        if state.get("odometer") != cls.__name__:
            raise ArgumentError(f"state={state.get('odometer')!r} must be the state of odometers.{cls.__name__}")
        account = cls(**state["parameters"])
        for name in ("totals", "excess", "failures"):
            values = state[name]
            if len(values) != len(getattr(account, f"_{name}")):
                raise ArgumentError(f"state: {name} must have the length that the parameters imply")
            for value in values:
                if value != inf:
                    _check.whole(0, **{name: value})
        _check.whole(0, count=state["count"])
        account._totals, account._excess = (whole(state[name]) for name in ("totals", "excess"))
        account._failures, account._count = list(map(int, state["failures"])), int(state["count"])
        return account

    def __repr__(self) -> str:
        given = ", ".join(f"{name}={value!r}" for name, value in self._parameters.items() if value is not None)
        return f"{type(self).__name__}({given})"


def as_floats(totals: tuple[Units, ...]) -> Any:
    """Units as float64 of the measure, rounded up."""
    floats = np.asarray([float(total) for total in totals])
    return np.where(floats > 0, floats / MEASURE * (1 + 6e-16), 0.0)


def _added(first: tuple[Units, ...], second: tuple[Units, ...]) -> tuple[Units, ...]:
    return tuple([a + b for a, b in zip(first, second, strict=True)])


def _times(price: Price, count: int, columns: int) -> Price:
    if not count:
        return Price((0,) * columns, 0, None, 0)
    excess = None if price.excess is None else tuple(count * units for units in price.excess)
    costs = tuple(count * units for units in price.costs)
    return Price(costs, count * price.failure, excess, count * price.failure_excess)


def _sum(prices: list[Price], columns: int) -> Price:
    costs: tuple[Units, ...] = (0,) * columns
    excess: tuple[Units, ...] | None = None
    failure, failure_excess = 0, 0
    for price in prices:
        costs, failure = _added(costs, price.costs), failure + price.failure
        failure_excess += price.failure_excess
        if price.excess is not None:
            excess = price.excess if excess is None else _added(excess, price.excess)
    return Price(costs, failure, excess, failure_excess)


def _pathwise(epsilon: float, delta: float) -> tuple[tuple[mechanisms.Mechanism, ...] | None, Fraction | float]:
    """What an (epsilon, delta)-DP round costs outside of an event of a probability that is returned as well.

    With e = epsilon + t: the loss is above e with probability <= b = delta / (1 - e^-t), and below -e with
    probability <= b e^-e. Outside of both, with probability >= 1 - d, d = b (1 + e^-e), the round given that event
    is (e + s)-DP, s = -log(1 - d), and the loss is at most s above the loss of that; Zcdp(s) covers the s.
    """
    if epsilon == inf or delta >= 1:
        return None, inf
    t = STRETCH * max(epsilon, 0.1)
    wide = epsilon + t
    avoided = delta / -expm1(-t) * (1 + exp(-wide)) * (1 + 1e-14)
    if avoided >= 0.5:
        return None, inf
    shift = -log1p(-avoided) * (1 + 1e-14)
    return (mechanisms.Pure((wide + shift) * (1 + 1e-15)), mechanisms.Zcdp(shift)), avoided
