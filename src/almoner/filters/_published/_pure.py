"""The filter of Feldman & Zrnic for pure mechanisms, as printed."""

from dataclasses import dataclass
from fractions import Fraction
from typing import ClassVar

from almoner import _check, _notions, mechanisms
from almoner._units import FINE, budget, up
from almoner.curves import approximate, zcdp
from almoner.filters._filter import Filter


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
