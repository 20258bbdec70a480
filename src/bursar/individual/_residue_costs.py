"""What a round costs single people under a residue budget: it depends on the norm, and on what each has left.

Source: theory 4.8, 5.1; docs/proofs/residue-filter.md
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bursar import filters, mechanisms
from bursar._units import RANGE
from bursar.curves import residue
from bursar.errors import ArgumentError
from bursar.individual._costs import Tariff, Whole, tariff

__all__ = ["Residual", "residual", "takes_bools"]

Array = Any


@dataclass(frozen=True, slots=True, eq=False)
class Residual:
    """Charges on a grid of norms and of what is left; norms are rounded up, what is left is rounded down."""

    norms: NDArray[np.float64]  # (k,) increasing, the first is 0
    squares: NDArray[np.int64]  # (j,) increasing
    units: NDArray[np.int64]  # (k, j); RANGE where a round does not fit
    whole: bool  # norms are bools: who takes part
    times: int  # rounds one after the other

    @property
    def sensitivity(self) -> float:
        """The largest contribution."""
        return float(self.norms[-1])

    def __call__(self, given: Array, left: Array, xp: Any) -> tuple[Array, Array]:
        """(cost, known) for contributions and units left, both (n,); RANGE for whoever cannot pay.

        Rounds with the same charge are taken in one go, as far as to the next level of what is left.
        """
        device, columns = given.device, len(self.squares)
        norms = xp.astype(given, xp.float64, copy=False)
        known = (norms >= 0) & (norms <= float(self.norms[-1]))
        row = xp.searchsorted(xp.asarray(self.norms, device=device), xp.where(known, norms, 0.0))
        squares = xp.asarray(self.squares, device=device)
        units = xp.asarray(self.units.ravel(), device=device)
        rest, todo = left, xp.where(known & (row > 0), self.times, 0)
        lost = xp.zeros_like(known)
        while bool(xp.any(todo > 0)):
            column = xp.searchsorted(squares, rest, side="right") - 1
            place = xp.where(column >= 0, column, 0)
            cost = xp.take(units, row * columns + place)
            fits = (column >= 0) & (cost < RANGE)  # then the cost is at most the level, and so at most what is left
            lost = lost | ((todo > 0) & ~fits)
            price = xp.where(fits & (cost > 0), cost, 1)
            run = (rest - xp.take(squares, place)) // price + 1
            run = xp.where(fits, xp.where(run < todo, run, todo), 0)
            rest, todo = rest - run * price, xp.where(fits, todo - run, 0)
        return xp.where(lost, RANGE, left - rest), known


def takes_bools(price: Residual | Tariff) -> bool:
    """Whether contributions are bools, who takes part, because the mechanism has no sensitivity."""
    return isinstance(price, Whole) or (isinstance(price, Residual) and price.whole)


def residual(budget: filters.Residue, mechanism: mechanisms.Mechanism) -> Residual | Tariff:
    """The charges of a mechanism under a residue budget; Gaussian rounds cost mu squared whatever is left."""
    times, leaf = 1, mechanism
    while isinstance(leaf, mechanisms.Repeated):
        times, leaf = times * leaf.count, leaf.mechanism
    if isinstance(leaf, mechanisms.Composed | mechanisms.Gaussian) or not isinstance(leaf, mechanisms.Mechanism):
        return tariff(budget, mechanism)
    if isinstance(leaf, mechanisms.SampledGaussian) and leaf.sample_rate == 1:
        same = mechanisms.Gaussian(leaf.sigma, leaf.sensitivity)
        return tariff(budget, mechanisms.Repeated(same, times))
    if residue.needs_no_slack(leaf) == 0:
        return Whole((0,))
    if times >= RANGE:
        raise ArgumentError("a Repeated stands for too many rounds")
    table = budget.person_table(leaf)
    whole = not isinstance(leaf, mechanisms.SampledGaussian | mechanisms.Laplace)
    return Residual(table.norms, table.squares, table.units, whole, times)
