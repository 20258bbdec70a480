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

from functools import lru_cache
from math import floor, inf, log2

from bursar import _check, mechanisms
from bursar._units import FAILURE, MEASURE, Units, up
from bursar.curves import gaussian, pairs
from bursar.curves._certificate import KEEP, certified, spare

__all__ = ["PER_OCTAVE", "charge", "charge_at", "grid", "ladder", "level", "needs_no_slack", "size"]

PER_OCTAVE = 8
"""Grid points of b squared between one power of two and the next."""

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
    cost = charge_at(mechanism, level(square), slack) if square else inf
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
