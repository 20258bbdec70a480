"""Prices of a round for people, in units, from what each contributes.

Costs take a block of private contributions (n,), with what each person has spent (n, m), and give (cost, known): (n, m)
int64 units, rounded up, and (n,) whether the contribution is known. NaN, negative contributions and those above the
promise are not known: such a person is out, as if the cost were infinite. Nothing contributed costs nothing.

Source: theory 2.1 (a person's own norm in place of the sensitivity), 2.8, 4.8, 5.1; docs/proofs/residue-filter.md
"""

from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from fractions import Fraction
from math import inf, nextafter, sqrt
from typing import Protocol, cast

import numpy as np
from numpy.typing import NDArray

from almoner import mechanisms
from almoner._arrays import Array, Library, Mask
from almoner._notions import Notion, Planned
from almoner._units import RANGE, Units
from almoner.curves.planned import _table as planned_table
from almoner.errors import ArgumentError, Unsupported
from almoner.individual._planned_costs import FromPlan

__all__ = ["Costs", "Power", "TakingPart", "at_least", "costs_of", "search_allowance"]

_GRID = 512  # norms in a table; each rounded up to the next: at most 1.1 % in the norm
_SPAN = 256.0  # from sensitivity / _SPAN to sensitivity
_LEAST = 1e-60  # of a norm in a table: mechanisms refuse smaller sensitivities
_MOST = 10**180  # units at the sensitivity, which is 1e-60 or more: the factor still fits a float
TINY = 1e-150  # no square that a cost is made of is below the square of this: it would vanish


def at_least(smallest: float, norms: Array, xp: Library) -> Array:
    """Contributions between 0 and the smallest that is told apart as that one; 0 stays 0, and NaN stays NaN."""
    return xp.where((norms > 0) & (norms < smallest), smallest, norms)


class Costs(Protocol):
    """Prices of one step for people."""

    @property
    def sensitivity(self) -> float | None:
        """The largest contribution; None where contributions are bools, who takes part."""

    @property
    def full(self) -> tuple[int, ...] | None:
        """The exact cost of the largest contribution; None where it is not one number."""

    @property
    def grid(self) -> NDArray[np.float64]:
        """(k,) increasing contributions, the first is 0, among which an allowance is looked for."""

    def __call__(self, given: Array, spent: Array, xp: Library) -> tuple[Array, Mask]:
        """(cost, known) of contributions."""

    def allowance(self, left: Array, xp: Library) -> Array | None:
        """The largest contribution that costs at most what is left (n,) of one total; None: no formula gives it."""


@dataclass(frozen=True, slots=True)
class Power:
    """cost = factor * norm**power, exactly ``full`` at the sensitivity; the norm itself for Laplace in pure budgets.

    A full price of RANGE stands for all that are larger; the factor is that of the price itself.
    """

    full: tuple[int, ...]
    factor: tuple[float, ...]
    sensitivity: float
    power: int = 2

    @property
    def smallest(self) -> float:
        """Smaller contributions, but for 0, are rounded up to this, lest their costs vanish."""
        least = min(self.factor)
        return min(max(TINY, TINY / (sqrt(least) if self.power == 2 else least)), self.sensitivity)

    @property
    def grid(self) -> NDArray[np.float64]:
        """1,025 contributions up to the sensitivity."""
        return np.linspace(0.0, self.sensitivity, 1025)

    def __call__(self, given: Array, spent: Array, xp: Library) -> tuple[Array, Mask]:  # noqa: ARG002 - Costs has it
        known = (given >= 0) & (given <= self.sensitivity)
        safe = at_least(self.smallest, xp.where(known, given, self.sensitivity), xp)
        factor = xp.asarray(self.factor, dtype=xp.float64, device=given.device)
        full = xp.asarray(self.full, dtype=xp.int64, device=given.device)
        top = xp.astype(full, xp.float64)
        # rounded up three times over; never above the full price, which is a bound for all
        powers = safe * safe if self.power == 2 else safe
        cost = xp.minimum(xp.ceil(powers[:, None] * factor), top)
        return xp.where(cost >= top, full, xp.astype(cost, xp.int64)), known

    def allowance(self, left: Array, xp: Library) -> Array | None:
        power = xp.astype(left, xp.float64) / self.factor[0]
        root = (xp.sqrt(power) if self.power == 2 else power) * (1 - 1e-15)
        return xp.where(left >= self.full[0], self.sensitivity, xp.where(root < self.sensitivity, root, 0.0))


@dataclass(frozen=True, slots=True, eq=False)
class Table:
    """Costs at a grid of norms; a norm is rounded up to the next on the grid."""

    grid: NDArray[np.float64]  # (k,) increasing, the first is 0
    units: NDArray[np.int64]  # (k, m)
    sensitivity: float
    full: None = None

    def __call__(self, given: Array, spent: Array, xp: Library) -> tuple[Array, Mask]:  # noqa: ARG002 - Costs has it
        known = (given >= 0) & (given <= self.sensitivity)
        grid = xp.asarray(self.grid, device=given.device)
        place = xp.searchsorted(grid, xp.where(known, given, 0.0))
        return xp.take(xp.asarray(self.units, device=given.device), place, axis=0), known

    def allowance(self, left: Array, xp: Library) -> Array | None:
        costs = xp.asarray(np.ascontiguousarray(self.units[:, 0]), device=left.device)
        place = xp.searchsorted(costs, left, side="right") - 1
        return xp.asarray(self.grid, device=left.device)[place]


@dataclass(frozen=True, slots=True)
class TakingPart:
    """The full price for each person who takes part: mechanisms without a sensitivity."""

    full: tuple[int, ...]
    sensitivity: None = None

    @property
    def grid(self) -> NDArray[np.float64]:
        return np.array([0.0, 1.0])

    def __call__(self, given: Array, spent: Array, xp: Library) -> tuple[Array, Mask]:  # noqa: ARG002 - Costs has it
        full = xp.asarray(self.full, dtype=xp.int64, device=given.device)
        return xp.where(given[:, None], full, xp.zeros_like(full)), cast(Mask, xp.ones_like(given))

    def allowance(self, left: Array, xp: Library) -> Array | None:  # noqa: ARG002 - Costs has it
        return None


def search_allowance(costs: Costs, fits: Callable[[Array], Mask], people: int, xp: Library, device: object) -> Array:
    """(people,) the largest contribution on the grid that fits, by bisection: where no formula gives the allowance."""
    values = xp.asarray(costs.grid, device=device)
    low = xp.zeros(people, dtype=xp.int64, device=device)
    high = low + len(costs.grid)
    while int(xp.max(high - low)) > 1 if people else False:
        middle = (low + high) // 2
        fitting = fits(values[middle])
        low, high = xp.where(fitting, middle, low), xp.where(fitting, high, middle)
    return values[low]


def costs_of(notion: Notion, step: mechanisms.Mechanism, most: int = 0) -> Costs:
    """Return the prices of a step; ``most``: units that each starts with, where costs depend on what is left."""
    if not isinstance(step, mechanisms.Mechanism):
        raise ArgumentError(f"step={step!r} must be a mechanism")
    leaf, count = mechanisms.repeated(step)
    if isinstance(leaf, mechanisms.Composed):
        raise Unsupported("charge the parts of a Composed one by one: each has its own norms")
    leaf = notion.person_round(leaf)
    contributes = "sensitivity" in {field.name for field in fields(leaf)}  # type: ignore[arg-type]
    sensitivity = float(leaf.sensitivity) if contributes else None  # type: ignore[attr-defined]
    table = notion.person_table(leaf)
    if table is not None:
        if count >= RANGE:
            raise ArgumentError("a Repeated stands for too many rounds")
        if isinstance(table, planned_table.Table):
            planned = cast(Planned, notion)
            tables = (lambda: table, *planned.person_other_tables(leaf))
            return FromPlan(tables, planned.person_limits()[:-1], count, sensitivity)
        levels = planned_table.of_one_kind(table.norms, table.squares, table.units, most)
        return FromPlan((lambda: levels,), (most, 0), count, sensitivity)
    prices = notion.person_price(leaf, count)
    full = _capped(prices)
    if sensitivity is None:
        return TakingPart(full)
    power = notion.person_powers.get(type(leaf))
    if power is not None:
        if not max(prices) < _MOST:
            raise ArgumentError(f"step={step!r} stands for too many rounds, or has too little noise")
        largest = Fraction(sensitivity) ** power  # of the price itself: small contributions cost less than RANGE
        # so far above that norm * norm * factor, rounded twice, is not below the exact product
        factors = tuple(nextafter(float(Fraction(units) / largest) * (1 + 2**-50), inf) for units in prices)
        return Power(full, factors, sensitivity, power)
    return _table(notion, leaf, count, sensitivity)


def _table(notion: Notion, leaf: mechanisms.Mechanism, count: int, sensitivity: float) -> Table:
    least = min(max(sensitivity / _SPAN, _LEAST), sensitivity)
    grid = np.concatenate([[0.0], np.geomspace(least, sensitivity, _GRID)])
    grid[-1] = sensitivity
    each = (replace(leaf, sensitivity=float(norm)) for norm in grid[1:])  # type: ignore[type-var]
    rows = [_capped(notion.person_price(one, count)) for one in each]
    units = np.array([(0,) * len(rows[0]), *rows], np.int64)
    return Table(grid, np.maximum.accumulate(units, axis=0), sensitivity)


def _capped(prices: tuple[Units, ...]) -> tuple[int, ...]:
    return tuple(RANGE if units >= RANGE else int(units) for units in prices)
