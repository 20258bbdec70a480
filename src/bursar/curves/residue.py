"""What one round costs an account that has a Gaussian with parameter b left ("the residue").

Names and symbols
    square    b squared, what is left; it is what adds up
    charge    c, what a round takes off b squared
    slack     by how much the bound may fail on the way; it is paid from delta

A charge is valid at b if the round followed by N(sqrt(b**2 - c), 1) against N(0, 1) is no easier to tell apart than
N(b, 1) against N(0, 1), up to the slack, at every epsilon. Then it is valid at every larger b too: charges are worked
out on a grid of b squared, once, and looked up at the next grid point below.

Source: theory.md statement 4.8; docs/proofs/residue-filter.md
"""

from dataclasses import dataclass, replace
from functools import lru_cache
from math import floor, inf, log2

import numpy as np
from numpy.typing import NDArray

from bursar import _check, mechanisms
from bursar._units import FAILURE, MEASURE, RANGE, Units, up
from bursar.curves import gaussian, pairs
from bursar.curves._certificate import KEEP, certified, spare

__all__ = [
    "PER_OCTAVE",
    "Table",
    "charge",
    "charge_at",
    "grid",
    "ladder",
    "level",
    "needs_no_slack",
    "size",
    "table",
]

PER_OCTAVE = 8
"""Grid points of b squared between one power of two and the next."""

_HIGHEST = MEASURE << 12  # units of b squared; with more left, the charges at this point are valid
_CLOSE = 1e-4  # how near to the least charge a search comes, relative


def grid(level: int) -> int:
    """Units of b squared at a point of the grid: 2**(level / 8), rounded down."""
    power: float = 2.0 ** (level / PER_OCTAVE)
    return floor(MEASURE * power)


def level(square: int) -> int:
    """The largest grid point that is at most ``square`` units (> 0)."""
    found = floor(PER_OCTAVE * (log2(square) - log2(MEASURE))) + 1
    while grid(found) > square:
        found -= 1
    return found


def charge(mechanism: mechanisms.Mechanism, *, square: int, slack: int) -> Units:
    """What one round costs an account with ``square`` left: from the table, built as it is needed.

    Args:
        mechanism: one round (no Repeated, no Composed); its own failure probability (theory 2.4) is not in the charge.
        square: public, >= 0; units of b squared.
        slack: public, > 0; units of FAILURE, paid from delta each round. A Gaussian mechanism needs none.

    Returns:
        Units of b squared, rounded up; inf if the round does not fit.

    Guarantee: the charge is valid at this b, for every neighbouring pair of data sets in both directions.
    Source: theory.md statement 4.8; docs/proofs/residue-filter.md, sections 2 to 6.

    >>> charge(mechanisms.RandomizedResponse(0.01), square=MEASURE // 20, slack=10**16) / MEASURE
    0.000100...
    """
    _check.whole(0, square=square)
    _check.whole(1, slack=slack)
    exact = needs_no_slack(mechanism)
    if exact is not None:
        return exact if exact <= square else inf
    cost = charge_at(mechanism, level(min(square, _HIGHEST)), slack) if square else inf
    return cost if cost <= square else inf


def needs_no_slack(mechanism: mechanisms.Mechanism) -> Units | None:
    """The charge of a round that is Gaussian, or that is nothing at all; None for all others.

    Guarantee: valid at every b with b squared at least this, with slack 0.
    Source: theory.md statement 4.3; docs/proofs/residue-filter.md, section 2.
    """
    match mechanism:
        case mechanisms.Gaussian() | mechanisms.SampledGaussian(sample_rate=1):
            return up(gaussian.cost(mechanism))
        case mechanisms.Pure(epsilon=0) | mechanisms.Approximate(epsilon=0) | mechanisms.Exponential(eta=0):
            return 0
    return None


@lru_cache(maxsize=2**14)
def charge_at(mechanism: mechanisms.Mechanism, level: int, slack: int) -> Units:
    """The charge at one grid point; the same question is answered from memory.

    Guarantee: valid at every b with b squared at least ``grid(level)`` units.
    Source: docs/proofs/residue-filter.md, sections 3 to 6.
    """
    _check.whole(1, slack=slack)
    square, spared = grid(level) / MEASURE, slack / FAILURE * (1 - 2.0**-50)
    found = up(_searched(_pairs(mechanism, spared), square, spared))
    if isinstance(mechanism, mechanisms.SampledGaussian):
        whole = up(gaussian.cost(mechanisms.Gaussian(mechanism.sigma, mechanism.sensitivity)))
        found = min(found, whole)  # sampling makes nothing worse
    return found if found <= grid(level) else inf


@lru_cache(maxsize=2**10)
def size(mechanism: mechanisms.Mechanism) -> float:
    """The mean square of the privacy loss of one round: about what it costs while much is left. No bound."""
    return max(float(pair.masses @ pair.losses**2) for pair in _pairs(mechanism, 1e-12))


def ladder(slack: int) -> int:
    """The largest of 1, 2 or 5 times a power of ten that is at most the slack, and at least 1; units of FAILURE.

    Few different slacks mean few tables.
    """
    units = max(1, slack)
    ten: int = 10 ** (len(str(units)) - 1)
    return ten if units < 2 * ten else 2 * ten if units < 5 * ten else 5 * ten


@lru_cache(maxsize=64)
def _pairs(mechanism: mechanisms.Mechanism, slack: float) -> tuple[pairs.Pair, ...]:
    return pairs.of(mechanism, cut=slack / 20)


def _searched(rounds: tuple[pairs.Pair, ...], square: float, slack: float) -> float:
    """A charge that is certified, near the least one; inf if none is."""

    def looks_right(cost: float) -> bool:
        return all(spare(pair, square=square, charge=cost, slack=slack) >= 0 for pair in rounds)

    most = square * KEEP
    high = min(most, max(float(pair.masses @ pair.losses**2) for pair in rounds)) or most
    low = high / 2
    while not looks_right(high):
        if high == most:
            return inf
        low, high = high, min(most, high * 1.1)
    while high > low * (1 + _CLOSE):
        middle = (low * high) ** 0.5
        low, high = (low, middle) if looks_right(middle) else (middle, high)
    step = _CLOSE
    while (cost := high * (1 + step)) <= most:
        if all(certified(pair, square=square, charge=cost, slack=slack) for pair in rounds):
            return cost
        step *= 2
    return inf


@dataclass(frozen=True, slots=True, eq=False)
class Table:
    """Charges for many people at once, each with a norm and a b squared of their own. Every field is public.

    Attributes:
        norms: (k,) increasing, the first is 0; a norm is rounded up to the next, above the last is unknown.
        squares: (j,) int64, increasing; units of b squared, what is left is rounded down to the next below.
        units: (k, j) int64; the charge, RANGE where the round does not fit.
        slack: units of FAILURE that everybody who is charged anything pays from delta each time.
    """

    norms: NDArray[np.float64]
    squares: NDArray[np.int64]
    units: NDArray[np.int64]
    slack: int

    def __call__(self, norms: NDArray[np.float64], squares: NDArray[np.int64]) -> NDArray[np.int64]:
        """What the round costs each person.

        Args:
            norms: (n,) private, in the unit of the sensitivity; NaN, negative or above the promise does not fit.
            squares: (n,) int64, private; units of b squared that each has left.

        Returns:
            (n,) int64, private; RANGE where the round does not fit.

        Guarantee: the charge is valid for each person's norm and b, in both directions.
        Source: theory.md statements 4.8 and 5.1; docs/proofs/residue-filter.md, sections 2 and 6.
        """
        known = (norms >= 0) & (norms <= self.norms[-1])
        row = np.searchsorted(self.norms, np.where(known, norms, 0.0))
        column = np.searchsorted(self.squares, squares, side="right") - 1
        cost = np.where(column >= 0, self.units[row, np.maximum(column, 0)], np.where(row == 0, 0, RANGE))
        return np.where(known & (cost <= squares), cost, np.int64(RANGE))


def table(
    mechanism: mechanisms.SampledGaussian | mechanisms.Laplace,
    *,
    most: int,
    slack: int,
    norms: int = 48,
    span: int = 32,
) -> Table:
    """Charges of one mechanism for people who contribute less than its sensitivity: theory 2.6 and 2.2 with the norm.

    Args:
        mechanism: a sampled Gaussian or Laplace mechanism; public.
        most: public; units of b squared that people start with.
        slack: public; units of FAILURE paid from delta by everybody who is charged.
        norms: public; how many norms, geometrically from the sensitivity / span to the sensitivity.
        span: public.

    Returns:
        A table, built once: a minute for the defaults. Two grid points of b squared per octave.

    Guarantee: every entry is a valid charge for everybody whose norm is at most the row's and whose b squared is at
    least the column's.
    Source: docs/proofs/residue-filter.md, sections 2 and 6.
    """
    _check.whole(1, most=most, slack=slack, norms=norms, span=span)
    sizes = mechanism.sensitivity * np.geomspace(1 / span, 1, norms)
    sizes[-1] = mechanism.sensitivity
    least = up(size(replace(mechanism, sensitivity=float(sizes[0]))))
    levels = list(range(level(int(least)), level(most) + 1, PER_OCTAVE // 2))
    rows = [[charge_at(replace(mechanism, sensitivity=float(norm)), at, slack) for at in levels] for norm in sizes]
    units = np.array([[0] * len(levels)] + [[min(int(min(c, RANGE)), RANGE) for c in row] for row in rows], np.int64)
    units = np.maximum.accumulate(np.minimum.accumulate(units, axis=1), axis=0)
    return Table(np.append(0.0, sizes), np.array([grid(at) for at in levels], np.int64), units, slack)
