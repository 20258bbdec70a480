"""What a mechanism costs single people, in units, from what each contributes.

A tariff takes a block of private contributions and gives (cost, known): int64 units, rounded up, and who is charged
at all. NaN, negative contributions and those above the promise are not known: such a person is out (as if the cost
were infinite). Nothing contributed costs nothing.

Source: theory 2.1 (a person's own norm in place of the sensitivity), 2.8, 5.1
"""

from dataclasses import dataclass, fields, replace
from fractions import Fraction
from math import inf, nextafter
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from bursar import mechanisms
from bursar._units import RANGE, Units
from bursar.errors import ArgumentError, Unsupported

__all__ = ["TINY", "Quadratic", "Table", "Tariff", "Whole", "at_least_tiny", "tariff"]

Array = Any

_GRID = 512  # norms in a table; each rounded up to the next: at most 1.1 % in the norm
_SPAN = 256.0  # from sensitivity / _SPAN to sensitivity
_EXACT = 2**53
_MOST = 10**180  # units at the sensitivity, which is 1e-60 or more: the factor still fits a float
TINY = 1e-150  # smaller contributions are rounded up to this, lest their squares vanish


def at_least_tiny(norms: Array, xp: Any) -> Array:
    """Contributions between 0 and TINY as TINY; 0 stays 0, and NaN stays NaN."""
    return xp.where((norms > 0) & (norms < TINY), TINY, norms)


class Priced(Protocol):
    """A filter or an odometer: what accounts per person need of it here."""

    def person_price(self, leaf: mechanisms.Mechanism) -> tuple[Units, ...]:
        """The units that one round adds to each total."""


@dataclass(frozen=True, slots=True)
class Quadratic:
    """cost = factor * norm**2, exactly ``full`` at the sensitivity: Gaussian noise in every notion.

    A full price of RANGE stands for all that are larger; the factor is that of the price itself.
    """

    full: tuple[int, ...]
    factor: tuple[float, ...]
    sensitivity: float

    def __call__(self, norms: Array, xp: Any, column: int = 0) -> tuple[Array, Array]:
        full = self.full[column]
        known = (norms >= 0) & (norms <= self.sensitivity)
        safe = at_least_tiny(xp.where(known, norms, self.sensitivity), xp)
        # rounded up three times over; never above the full price, which is a bound for everybody
        cost = xp.minimum(xp.ceil(safe * safe * self.factor[column]), xp.asarray(float(full), dtype=xp.float64))
        units = xp.astype(cost, xp.int64)
        if full >= _EXACT:
            units = xp.where(cost >= float(full), full, units)
        return units, known

    def allowance(self, left: Array, xp: Any) -> Array:
        """The largest norm whose cost is at most what is left (int64)."""
        root = xp.sqrt(xp.astype(left, xp.float64) / self.factor[0]) * (1 - 1e-15)
        return xp.where(left >= self.full[0], self.sensitivity, xp.where(root < self.sensitivity, root, 0.0))


@dataclass(frozen=True, slots=True)
class Table:
    """Costs at a grid of norms; a norm is rounded up to the next on the grid."""

    norms: NDArray[np.float64]  # (k,) increasing, the first is 0
    units: NDArray[np.int64]  # (k, m)
    sensitivity: float

    def place(self, norms: Array, xp: Any) -> tuple[Array, Array]:
        """(index on the grid, known)."""
        known = (norms >= 0) & (norms <= self.sensitivity)
        grid = xp.asarray(self.norms, device=norms.device)
        return xp.searchsorted(grid, xp.where(known, norms, 0.0)), known

    def __call__(self, norms: Array, xp: Any, column: int = 0) -> tuple[Array, Array]:
        index, known = self.place(norms, xp)
        return xp.asarray(np.ascontiguousarray(self.units[:, column]), device=norms.device)[index], known

    def allowance(self, left: Array, xp: Any) -> Array:
        """The largest norm on the grid whose cost is at most what is left (int64)."""
        costs = xp.asarray(np.ascontiguousarray(self.units[:, 0]), device=left.device)
        index = xp.searchsorted(costs, left, side="right") - 1
        return xp.asarray(self.norms, device=left.device)[index]


@dataclass(frozen=True, slots=True)
class Whole:
    """The full price for everybody who takes part: mechanisms without a sensitivity."""

    full: tuple[int, ...]

    def __call__(self, taking_part: Array, xp: Any, column: int = 0) -> tuple[Array, Array]:
        price = xp.asarray(self.full[column], dtype=xp.int64, device=taking_part.device)
        return xp.where(taking_part, price, xp.zeros_like(price)), xp.ones_like(taking_part)


Tariff = Quadratic | Table | Whole


def tariff(budget: Priced, mechanism: mechanisms.Mechanism) -> Tariff:
    """The tariff of a mechanism in the measure of a budget."""
    if not isinstance(mechanism, mechanisms.Mechanism):
        raise ArgumentError(f"step={mechanism!r} must be a mechanism")
    times, leaf = 1, mechanism
    while isinstance(leaf, mechanisms.Repeated):
        times, leaf = times * leaf.count, leaf.mechanism
    if isinstance(leaf, mechanisms.Composed):
        raise Unsupported("charge the parts of a Composed one by one: each has its own norms")
    prices = _prices(budget, leaf, times)
    full = _capped(prices)
    if "sensitivity" not in {field.name for field in fields(leaf)}:  # type: ignore[arg-type]
        return Whole(full)
    sensitivity = float(leaf.sensitivity)  # type: ignore[attr-defined]
    if isinstance(leaf, mechanisms.Gaussian | mechanisms.DiscreteGaussian):
        if not max(prices) < _MOST:
            raise ArgumentError(f"step={mechanism!r} stands for too many rounds, or has too little noise")
        square = Fraction(sensitivity) ** 2  # of the price itself: small contributions cost less than RANGE
        return Quadratic(full, tuple(_above(Fraction(units) / square) for units in prices), sensitivity)
    grid = np.concatenate([[0.0], np.geomspace(sensitivity / _SPAN, sensitivity, _GRID)])
    grid[-1] = sensitivity
    rows = (
        [(0,) * len(full)]
        + [
            _capped(_prices(budget, replace(leaf, sensitivity=float(norm)), times))  # type: ignore[type-var]
            for norm in grid[1:]
        ]
    )
    return Table(grid, np.maximum.accumulate(np.array(rows, np.int64), axis=0), sensitivity)


def _prices(budget: Priced, leaf: mechanisms.Mechanism, times: int) -> tuple[Units, ...]:
    return tuple(times * units if times else 0 for units in budget.person_price(leaf))


def _capped(prices: tuple[Units, ...]) -> tuple[int, ...]:
    return tuple(RANGE if units >= RANGE else int(units) for units in prices)


def _above(factor: Fraction) -> float:
    """A float so far above the factor that norm * norm * factor, rounded twice, is not below the exact product."""
    value = float(factor) * (1 + 2**-50)
    return nextafter(value, inf)
