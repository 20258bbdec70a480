"""Filters as papers state them, to compare with; none is recommended."""

from dataclasses import dataclass
from fractions import Fraction
from math import e, log, log1p, sqrt
from typing import ClassVar

from almoner import _check, _notions, mechanisms
from almoner._units import FAILURE, FINE, budget, to_float, up
from almoner.curves import approximate, renyi, zcdp
from almoner.filters._filter import Filter

__all__ = ["Pure", "Rogers"]


@dataclass(frozen=True, kw_only=True)
class Squares(_notions.Scalar):
    """Half the sum of epsilon squared, of pure mechanisms."""

    epsilon: float
    delta: float
    measure: ClassVar[str] = "rho"
    theorem: ClassVar[str] = "theory 4.7; Feldman & Zrnic (2021), Thm 4.7"

    def total(self, limits: tuple[int, ...]) -> approximate.Approximate:  # noqa: ARG002 - Scalar has it
        """As printed: the budget's own epsilon and delta, and nothing at other deltas."""
        return approximate.Approximate(self.epsilon, self.delta)

    def price_of_round(self, leaf: mechanisms.Mechanism) -> _notions.Totals:
        _notions.no_failures(leaf, "Pure")
        return (up(approximate.cost(leaf)[0] ** 2 / 2, per=FINE),)


class Pure(Filter):
    """Pure mechanisms only, by Feldman & Zrnic's theorem as printed: half the sum of epsilon squared fits rho.

    ``Zcdp`` admits more of the same mechanisms; this one is for comparison with the paper. The measure of ``spent`` and
    ``left`` is rho = epsilon squared / 2.

    Args:
        epsilon, delta: public: > 0, and in (0, 1).

    Guarantee: the whole adaptive interaction is (epsilon, delta)-DP.
    Source: theory 4.7; Feldman & Zrnic (2021), Thm 4.7.
    """

    def __init__(self, *, epsilon: float, delta: float) -> None:
        _check.positive(epsilon=epsilon)
        _check.between(0, 1, delta=delta)
        limit = budget(Fraction(zcdp.mironov(epsilon=epsilon, delta=delta)), per=FINE)
        super().__init__(Squares(limit=limit, epsilon=epsilon, delta=delta), epsilon=epsilon, delta=delta)


@dataclass(frozen=True, kw_only=True)
class SquareAndDrift(_notions.WithFailures[tuple[float, float]]):
    """The sum of epsilon squared, V, and the drift of the loss. Totals: V, drift, failures."""

    measure: ClassVar[str] = "V and drift"
    theorem: ClassVar[str] = "theory 6.7; Rogers, Roth, Ullman & Vadhan (2016), Theorem 5.1"

    @property
    def columns(self) -> int:
        return 3

    def price_of_round(self, leaf: mechanisms.Mechanism) -> _notions.Totals:
        return *approximate.square_and_drift(leaf), up(renyi.failure(leaf), per=FAILURE)

    def holds_for(self, totals: _notions.Totals, delta: Fraction) -> bool:  # noqa: ARG002 - WithFailures has it
        return self.boundary(totals) <= self.epsilon  # the formula is written for the whole delta

    def spent(self, totals: _notions.Totals) -> tuple[float, float]:
        return to_float(totals[0]), to_float(totals[1])

    def left(self, totals: _notions.Totals) -> float:  # type: ignore[override]
        return max(0.0, self.epsilon - self.boundary(totals))

    def boundary(self, totals: _notions.Totals) -> float:
        """The epsilon that these totals amount to, rounded up."""
        square, drift = self.spent(totals)
        floor = self.epsilon**2 / (28.04 * -log(self.delta))
        root = sqrt(2 * (square + floor) * (1 + log1p(square / floor) / 2) * (log(2) - log(self.delta)))
        return (drift + root) * (1 + 1e-14)


class Rogers(Filter):
    """Pure, approximate and zCDP mechanisms by the filter of Rogers et al., whose constants we quote second-hand.

    Admit while the deltas add up to at most sum_delta and, with V the sum of epsilon squared and c = 28.04
    log(1/delta), drift + sqrt(2 (V + epsilon^2/c) (1 + log(c V / epsilon^2 + 1) / 2) log(2/delta)) <= epsilon, the
    next one included. For comparison: ``Zcdp`` and ``Renyi`` admit far more.

    ``spent`` is the pair (V, drift); ``left`` is epsilon less the boundary at what was spent, nats, at least 0.

    Args:
        epsilon, delta: public: > 0, and in (0, 1/e), the theorem's range.
        sum_delta: public: the part of delta for mechanisms that may fail; half of it, if it is not given.

    Guarantee: the whole adaptive interaction is (epsilon, delta)-DP, according to its authors.
    Source: theory 6.7; Rogers, Roth, Ullman & Vadhan (2016), Theorem 5.1.
    """

    def __init__(self, *, epsilon: float, delta: float, sum_delta: float | None = None) -> None:
        _check.between(0, 1 / e, delta=delta)
        share = delta / 2 if sum_delta is None else sum_delta
        notion = SquareAndDrift(epsilon=epsilon, delta=delta, sum_delta=share)
        super().__init__(notion, epsilon=epsilon, delta=delta, sum_delta=share)
