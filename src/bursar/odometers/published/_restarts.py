"""Odometers made of filters of one size, one after the other.

Names and symbols
    step    Δ    size of every filter, in the measure that adds up
    K            number of filters opened so far

They hold for a *number of filters* fixed in advance: "up to the moment at which filter K is full". They are no bound at
a moment that was chosen from the results, and they need every round to fit into one filter.

Source: theory 6.2; Feldman & Zrnic (2021), https://arxiv.org/abs/2008.11193, Algorithm 5; Koskela, Tobaben & Honkela
(2023), https://arxiv.org/abs/2209.15596, appendix C.5
"""

from abc import abstractmethod
from fractions import Fraction
from math import inf, nextafter, sqrt
from typing import Any

from bursar import _check, mechanisms
from bursar._units import MEASURE, Units, budget, to_float, up
from bursar.curves import gaussian, renyi
from bursar.errors import ArgumentError, BudgetExceeded, Unsupported
from bursar.odometers._account import Odometer

__all__ = ["FeldmanZrnic", "GaussianRestarts"]


class Restarts(Odometer):
    """Filters of one size, opened one after the other. The totals are: filters opened, units held by the last one."""

    def __init__(self, delta: float, step: float, **parameters: Any) -> None:
        _check.positive(step=step)
        self._size = budget(step)
        if not self._size:
            raise ArgumentError(f"step={step!r} must be at least one unit, 1e-15")
        super().__init__(delta, 0.0, 2, step=step, **parameters)

    @property
    def filters(self) -> int:
        """How many filters were opened. Public."""
        return int(self._totals[0])

    @property
    def total(self) -> float:
        """Filters opened times their size, rounded up. Public."""
        return to_float(self.filters * self._size)

    def charge(self, mechanism: mechanisms.Mechanism) -> None:
        """Count a mechanism, before it is run.

        Raises:
            BudgetExceeded: one round costs more than a filter holds. Nothing is counted: do not run it.
            Unsupported: no theorem gives this mechanism a cost here. Nothing is counted: do not run it.
        """
        with self._lock:
            opened, held = self._totals
            opened, held, count = self._after(mechanism, int(opened), int(held))
            self._totals, self._count = (opened, held), self._count + count

    def epsilon(self, *, delta: float | None = None) -> float:
        """The bound at the end of the filter that is open now, for a number of filters fixed in advance."""
        chosen = self._delta if delta is None else delta
        _check.between(0, 1, delta=chosen)
        return float(self._bound(self._totals, delta=chosen))

    def ex_post_epsilon(self, *, delta: float | None = None) -> float:
        """There is none: this odometer promises nothing at moments chosen from the results."""
        raise Unsupported(f"{type(self).__name__} makes no ex-post promise; use odometers.Renyi")

    def _after(self, mechanism: mechanisms.Mechanism, opened: int, held: int) -> tuple[int, int, int]:
        match mechanism:
            case mechanisms.Composed():
                rounds = 0
                for part in mechanism.mechanisms:
                    opened, held, more = self._after(part, opened, held)
                    rounds += more
                return opened, held, rounds
            case mechanisms.Repeated() if isinstance(mechanism.mechanism, mechanisms.Composed | mechanisms.Repeated):
                rounds = 0
                for _ in range(mechanism.count):
                    opened, held, more = self._after(mechanism.mechanism, opened, held)
                    rounds += more
                return opened, held, rounds
            case mechanisms.Repeated():
                return *self._several(mechanism.mechanism, mechanism.count, opened, held), mechanism.count
        return *self._several(mechanism, 1, opened, held), 1

    def _several(self, leaf: mechanisms.Mechanism, count: int, opened: int, held: int) -> tuple[int, int]:
        """The state after count equal rounds: each goes into the open filter if it fits, else into a new one."""
        price, _ = self._checked(leaf)
        cost = price.costs[0]
        if cost > self._size:
            raise BudgetExceeded(
                f"{leaf!r} costs {to_float(cost)!r}, more than a filter of step={to_float(self._size)!r} holds",
                asked=to_float(cost),
                spent=to_float(held),
                left=to_float(self._size - held, down=True),
            )
        units = int(cost)
        if not units or not count:
            return opened, held
        if not opened:
            opened, held = 1, 0
        here = min(count, (self._size - held) // units)
        count, held = count - here, held + here * units
        if count:
            each = self._size // units
            more = -(-count // each)
            opened, held = opened + more, (count - (more - 1) * each) * units
        return opened, held

    @abstractmethod
    def _bound(self, totals: Any, /, *, delta: float) -> Any:
        """What filters of this size are together, at delta."""


class FeldmanZrnic(Restarts):
    """Feldman & Zrnic's Algorithm 5: Rényi filters at one order, of one size. For comparison.

    ``epsilon()`` promises: for a number K fixed in advance, everything up to the moment at which filter K is full is
    (alpha, K step)-Rényi-DP, and so (epsilon, delta)-DP. It promises nothing at a moment chosen from the results, so
    there is no ex-post bound, and it is not a bound on the realised loss at all times.

    Args:
        delta: failure probability, in (0, 1).
        alpha: the order, > 1.
        step: the size of every filter; a round that costs more is refused.

    >>> odometer = FeldmanZrnic(alpha=63.0, step=0.00109, delta=1e-5)
    >>> odometer.charge(mechanisms.Repeated(mechanisms.Gaussian(sigma=170.0), 104))
    >>> odometer.filters, round(odometer.total, 5)
    (104, 0.11336)

    Guarantee: the promise above, for a number of filters fixed in advance.
    Source: theory 6.2; Feldman & Zrnic (2021), Algorithm 5.
    """

    def __init__(self, *, delta: float, alpha: float, step: float, sum_delta: float = 0.0) -> None:
        _check.between(1, inf, alpha=alpha)
        _no_failures(sum_delta)
        self._alpha = alpha
        super().__init__(delta, step, alpha=alpha)

    def _costs(self, mechanism: mechanisms.Mechanism) -> tuple[Units, ...]:
        return up(renyi.cost(mechanism, self._alpha)), 0

    def _bound(self, totals: Any, /, *, delta: float) -> Any:
        total = to_float(int(totals[0]) * self._size)
        return renyi.epsilon([total], [self._alpha], delta=delta) if total else 0.0


class GaussianRestarts(Restarts):
    """Koskela, Tobaben & Honkela's restarts: Gaussian filters of one size. Gaussian mechanisms only. For comparison.

    ``epsilon()`` promises: for a number K fixed in advance, everything up to the moment at which filter K is full is
    sqrt(K step)-GDP, and so (epsilon, delta)-DP. It promises nothing at a moment chosen from the results, so there is
    no ex-post bound, and it is not a bound on the realised loss at all times.

    Args:
        delta: failure probability, in (0, 1).
        step: the size of every filter, in mu squared; a round that costs more is refused.

    >>> odometer = GaussianRestarts(step=0.25, delta=1e-5)
    >>> odometer.charge(mechanisms.Repeated(mechanisms.Gaussian(sigma=20.0), 400))
    >>> odometer.filters, round(odometer.epsilon(), 3)
    (4, 4.377)

    Guarantee: the promise above, for a number of filters fixed in advance.
    Source: theory 6.2; Koskela, Tobaben & Honkela (2023), appendix C.5.
    """

    def __init__(self, *, delta: float, step: float, sum_delta: float = 0.0) -> None:
        _no_failures(sum_delta)
        super().__init__(delta, step)

    def _costs(self, mechanism: mechanisms.Mechanism) -> tuple[Units, ...]:
        return up(gaussian.cost(mechanism)), 0

    def _bound(self, totals: Any, /, *, delta: float) -> Any:
        squared = Fraction(int(totals[0]) * self._size, MEASURE)
        mu = nextafter(nextafter(sqrt(squared), inf), inf) if squared else 0.0
        return gaussian.epsilon(mu, delta=delta)


def _no_failures(sum_delta: float) -> None:
    if sum_delta:
        raise Unsupported("restarts keep no part of delta for rounds that may fail: sum_delta must be 0")
