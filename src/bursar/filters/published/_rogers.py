"""The first privacy filter, for comparison."""

from fractions import Fraction
from math import log, log1p, sqrt

from bursar import _check, mechanisms
from bursar._units import FAILURE, Units, to_float, up
from bursar.curves import _rogers, renyi
from bursar.filters._account import WithFailures

__all__ = ["Rogers"]


class Rogers(WithFailures):
    """Pure, approximate and zCDP mechanisms by the filter of Rogers et al., whose constants we quote second-hand.

    Admit while the deltas add up to at most sum_delta and, with V the sum of epsilon squared and c = 28.04
    log(1/delta), drift + sqrt(2 (V + epsilon^2/c) (1 + log(c V / epsilon^2 + 1) / 2) log(2/delta)) <= epsilon, the
    next one included. For comparison: ``Zcdp`` and ``Renyi`` admit far more.

    Args (keyword-only, public): epsilon; delta; sum_delta, the part of delta for mechanisms that may fail (half). The
    measure of ``spent`` is the pair (V, drift).

    Guarantee: the whole adaptive interaction is (epsilon, delta)-DP, according to its authors.
    Source: theory 6.7; Rogers, Roth, Ullman & Vadhan (2016), Theorem 5.1.
    """

    def __init__(self, *, epsilon: float, delta: float, sum_delta: float | None = None) -> None:
        _check.positive(epsilon=epsilon)
        _check.between(0, 1, delta=delta)
        super().__init__(
            (0, 0, 0), epsilon=epsilon, delta=delta, sum_delta=delta / 2 if sum_delta is None else sum_delta
        )

    @property
    def spent(self) -> tuple[float, float]:
        """(V, drift), rounded up. Public."""
        return self._shown(self._spent)

    @property
    def left(self) -> float:
        """Epsilon less the boundary at what was spent, nats, at least 0. Public."""
        target: float = self._parameters["epsilon"]
        return max(0.0, target - self._boundary(self._spent))

    def _shown(self, totals: tuple[Units, ...]) -> tuple[float, float]:
        return to_float(totals[0]), to_float(totals[1])

    def _boundary(self, totals: tuple[Units, ...]) -> float:
        square, drift = self._shown(totals)
        delta: float = self._parameters["delta"]
        floor: float = self._parameters["epsilon"] ** 2 / (28.04 * log(1 / delta))
        return (drift + sqrt(2 * (square + floor) * (1 + log1p(square / floor) / 2) * log(2 / delta))) * (1 + 1e-14)

    def _holds(self, totals: tuple[Units, ...], delta: Fraction) -> bool:
        target: float = self._parameters["epsilon"]
        return self._boundary(totals) <= target  # the formula is written for the whole delta

    def _price_of(self, mechanism: mechanisms.Mechanism) -> tuple[Units, ...]:
        composite = self._composite(mechanism)
        if composite:
            return composite
        return *_rogers.prices(mechanism), up(renyi.failure(mechanism), per=FAILURE)
