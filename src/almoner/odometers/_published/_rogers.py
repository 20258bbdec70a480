"""The odometer of Rogers, Roth, Ullman & Vadhan: the first one. For comparison only.

Names and symbols
    V        the sum of epsilon squared (for zCDP rounds, twice the sum of rho)
    drift    the sum of epsilon (e^epsilon - 1) / 2 (for zCDP rounds, the sum of rho)
    people   n_d, the number of people in the data set: a public number

The constants are second-hand: we quote them and do not vouch for them.

Source: theory 6.7; Rogers, Roth, Ullman & Vadhan (2016), https://arxiv.org/abs/1605.08294
"""

from dataclasses import dataclass
from fractions import Fraction
from math import e, log, log2

import numpy as np

from almoner import _check, mechanisms
from almoner._arrays import Array
from almoner._notions import Boundary, Totals
from almoner.curves import _rogers
from almoner.odometers import _roots
from almoner.odometers._odometer import Odometer

__all__ = ["Rogers"]


@dataclass(frozen=True, kw_only=True)
class SquareAndDrift(Boundary):
    """Costs: V and the drift."""

    people: int

    @property
    def width(self) -> int:
        return 2

    def costs(self, leaf: mechanisms.Mechanism) -> Totals:
        return _rogers.prices(leaf)

    def rest(self, delta: float, kept: Fraction) -> float:  # noqa: ARG002 - Boundary has it
        return delta  # the authors' formula is written for the whole delta

    def bound(self, costs: Array, /, *, delta: float, **_: object) -> Array:
        totals = np.asarray(costs)
        square, drift = totals[..., 0], totals[..., 1]
        floor = 1.0 / self.people**2
        middle = 2 * np.sqrt(square * (log(110 * e) + 2 * log(log(self.people) / delta)))
        growth = 1 + np.log1p(square / floor) / 2
        outside = np.sqrt(2 * (floor + square) * growth * log(4 * log2(self.people) / delta))
        bound = drift + np.where((square >= floor) & (square <= 1 + 1e-14), middle, outside)
        return np.where(square == 0, 0.0, np.asarray(_roots.raised(bound)))


class Rogers(Odometer):
    """For pure, approximate and zCDP mechanisms; with constants that we quote and do not vouch for. For comparison.

    Promises the same as ``Mixture``, according to its authors.

    Args:
        delta: failure probability, in (0, 1/e), the range of the theorem. Half of it is kept for rounds with a delta of
            their own.
        people: the number of people in the data set, public, >= 3: it sets where the bound starts.

    >>> odometer = Rogers(delta=1e-6, people=10_000)
    >>> odometer.charge(mechanisms.Repeated(mechanisms.Pure(0.1), 100))
    >>> round(odometer.epsilon(), 3)
    12.818

    Guarantee: the pathwise promise of ``Mixture``, second-hand.
    Source: theory 6.7; Rogers et al. (2016), Theorem 6.5.
    """

    def __init__(self, *, delta: float, people: int, sum_delta: float | None = None) -> None:
        _check.whole(3, people=people)
        _check.between(0, 1 / e, delta=delta)
        share = delta / 2 if sum_delta is None else sum_delta
        notion = SquareAndDrift(delta=delta, sum_delta=share, people=int(people))
        super().__init__(notion, delta=delta, sum_delta=share, people=int(people))
