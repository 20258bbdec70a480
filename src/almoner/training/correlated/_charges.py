"""The price that a contribution commits a person to: its whole column, with overlaps with the person's own.

Names and symbols
    own           squared length of the place's column, rounded up; public
    cross         (m,) sum over earlier places r of the person of |X_rs| n_r, rounded up; private
    n             (m,) the norm of the person's clipped gradient; private
    price         the norm that an account is charged for: price^2 = own n^2 + 2 cross n

After every place the squared prices add up to sum |X_rs| n_r n_s over the places so far: at least what all rows, also
the later ones, tell of the person if nothing more is contributed. So tails are paid in advance.

Source: theory 5.11; docs/proofs/correlated-noise.md
"""

from collections.abc import Sequence
from math import sqrt

import numpy as np

from almoner.training.correlated._factor import Array, Factor, above

__all__ = ["Pattern", "largest_norm", "price"]

SLACK = 2.0**-50


def price(own: float, cross: Array, norms: Array) -> Array:
    """(m,) private: what an account is charged for a contribution, in the unit of norms, rounded up; NaN stays NaN.

    Guarantee: its square is at least own n^2 + 2 cross n.
    Source: docs/proofs/correlated-noise.md
    """
    found: Array = np.sqrt(norms * (own * norms + 2 * cross)) * (1 + SLACK)
    return np.where((norms > 0) & ~(found > 0), np.inf, found)  # a product that vanished is no price


def largest_norm(own: float, cross: Array, allowance: Array) -> Array:
    """(m,) private: the largest contribution whose price is at most the allowance, rounded down."""
    square = allowance * allowance
    divisor = cross + np.sqrt(cross * cross + own * square)
    found: Array = np.divide(square, divisor, out=np.zeros_like(square), where=divisor > 0)
    return found * (1 - 8 * SLACK)


class Pattern:
    """The places of one batch, and what the columns there overlap. Public.

    Args:
        factor: the factor.
        places: the steps in which the batch takes part, in order.
        clip: the largest norm of a contribution.
    """

    def __init__(self, factor: Factor, places: Sequence[int], clip: float) -> None:
        self.places = tuple(places)
        self._products = factor.inner_products(self.places)
        self._clip = clip

    def own(self, turn: int) -> float:
        """The squared length of the column at the batch's place number ``turn``, rounded up."""
        return float(self._products[turn, turn])

    def cross(self, turn: int, past: Array) -> Array:
        """(m,) private: how past contributions overlap with this place, rounded up.

        Args:
            past: (m, turn) the norms at the batch's earlier places, private.
        """
        if not turn or not self._products[turn, :turn].any():
            return np.zeros(past.shape[0])
        return (past @ self._products[turn, :turn]) * (1 + (turn + 4) * 2.0**-52)

    def most(self, turn: int) -> float:
        """The price of a contribution at the clip after contributions at the clip: the sensitivity of the step."""
        cross = self.cross(turn, np.full((1, turn), self._clip))
        return above(float(price(self.own(turn), cross, np.array([self._clip]))[0]), 32)

    def together(self) -> float:
        """The whole charge of a person who contributes the clip at every place, as one norm, rounded up."""
        return above(sqrt(sum(self.most(turn) ** 2 for turn in range(len(self.places)))), len(self.places) + 32)
