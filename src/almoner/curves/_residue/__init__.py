"""Price of one round for an account that has a Gaussian with parameter b left, its residue; see README.md.

Names and symbols
    square    b squared, what is left; it is what adds up
    cost      c, what a round takes off b squared
    slack     by how much the bound may fail on the way; it is paid from delta
    level     a point of the grid on which b squared is looked up
    H(e; b)   hockey-stick divergence at exp(e) of N(b, 1) against N(0, 1)
    F(e)      the same of one round followed by N(b', 1) against N(0, 1), with b'**2 = b**2 - cost
    D         H + slack - F, the gap, which must not be negative: a certificate proves it, errors included
    fall      minus a slope

A cost is valid at b if the round followed by N(sqrt(b**2 - c), 1) against N(0, 1) is no easier to tell apart than
N(b, 1) against N(0, 1), up to the slack, at every epsilon. Then it is valid at every larger b too: costs are computed
on a grid of b squared, once, and looked up at the next grid point below.

What is certified    by                                                                              in
    e above the end  F decreases, and is at most the slack at the end                                _end
    ends of a cell   D there, less its rounding error                                                _lower_bounds
    inside a cell    least Bernstein coefficient of the cubic with D's values and slopes at both     _lower_bounds
                     ends, less width**4 / 384 max |D''''|, less rounding errors
    b and b'         roots moved by four floats to the safe side                                     _root
    e < 0            the pair of the other direction (section 3 of the proof)                        the caller

Source: theory.md statement 4.8; docs/proofs/residue-filter.md
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import lru_cache
from math import floor, inf, log2, nextafter, pi, sqrt
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import erfcx, ndtr

from almoner import _check, mechanisms
from almoner._units import FAILURE, MEASURE, RANGE, Units, up
from almoner.curves import _pairs, gaussian
from almoner.curves._grid.connect_the_dots import ULP, Floats
from almoner.curves._pairs import Pair

PER_OCTAVE = 8  # grid points of b squared between one power of two and the next
HIGHEST_SQUARE = MEASURE << 12  # units of b squared; with more left, the costs at this point are valid
SEARCH_PRECISION = 1e-4  # relative: how near to the least cost a search comes
TABLE_OCTAVES = 7  # octaves of b squared in a table for people; the last part in 128 stays unspent
TABLE_WASTE = 0.005  # largest overpayment between two levels of a table, relative to the budget
LEAST_NORM = 1e-60  # least norm of a table: mechanisms refuse smaller sensitivities
LEAST_SLACK = FAILURE // 10**20  # of a round, where there is that much: with less, rounding is dear
LARGEST_SHARE = 63 / 64  # one round may take at most this part of b squared: b' stays away from 0
FIRST_CELLS = 64  # cells into which [0, end] is cut first
CUTS = 4  # parts into which a doubtful cell is cut
MAX_CUTS = 7  # rounds of cutting; then the certificate gives up
MAX_DOUBTFUL = 800  # doubtful cells at once; with more the certificate gives up


def grid(level: int) -> int:
    """Units of b squared at a point of the grid: 2**(level / 8), rounded down."""
    power: float = 2.0 ** (level / PER_OCTAVE)
    return floor(MEASURE * power)


def level(square: int) -> int:
    """The largest grid point that is at most ``square`` units (> 0)."""
    point = floor(PER_OCTAVE * (log2(square) - log2(MEASURE))) + 1
    while grid(point) > square:
        point -= 1
    return point


def cost(mechanism: mechanisms.Mechanism, *, square: int, slack: int) -> Units:
    """Price one round for an account with ``square`` left, in units of b squared, rounded up; inf if it does not fit.

    Its own failure probability (theory 2.4) is not in the cost. The slack, in units of FAILURE, is paid from delta.

    Guarantee: the cost is valid at this b, for every neighbouring pair of data sets in both directions.
    Source: theory.md statement 4.8; docs/proofs/residue-filter.md, sections 2 to 6.

    >>> cost(mechanisms.RandomizedResponse(0.01), square=MEASURE // 20, slack=10**16) / MEASURE
    0.000100...
    """
    _check.whole(0, square=square)
    _check.whole(1, slack=slack)
    units = needs_no_slack(mechanism)
    if units is None:
        units = cost_at(mechanism, level(min(square, HIGHEST_SQUARE)), slack) if square else inf
    return units if units <= square else inf


def needs_no_slack(mechanism: mechanisms.Mechanism) -> Units | None:
    """The cost of a round that is Gaussian, or that is nothing at all; None for all others.

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
def cost_at(mechanism: mechanisms.Mechanism, level: int, slack: int) -> Units:
    """The cost at one grid point; computed once and then remembered.

    Guarantee: valid at every b with b squared at least ``grid(level)`` units.
    Source: docs/proofs/residue-filter.md, sections 3 to 6.
    """
    _check.whole(1, slack=slack)
    square, slack_below = grid(level) / MEASURE, slack / FAILURE * (1 - 2.0**-50)
    units = up(_least_certified(_pairs_of(mechanism, slack_below), square, slack_below))
    if isinstance(mechanism, mechanisms.SampledGaussian):  # sampling makes nothing worse
        units = min(units, up(gaussian.cost(mechanisms.Gaussian(mechanism.sigma, mechanism.sensitivity))))
    return units if units <= grid(level) else inf


@lru_cache(maxsize=2**10)
def size(mechanism: mechanisms.Mechanism) -> float:
    """The mean square of the privacy loss of one round: about what it costs while much is left. No bound."""
    return max(float(pair.masses @ pair.losses**2) for pair in _pairs_of(mechanism, 1e-12))


def ladder(slack: int) -> int:
    """The largest of 1, 2 or 5 times a power of ten that is at most the slack, at least 1: few slacks, few tables."""
    units = max(1, slack)
    ten: int = 10 ** (len(str(units)) - 1)
    return ten if units < 2 * ten else 2 * ten if units < 5 * ten else 5 * ten


@lru_cache(maxsize=64)
def _pairs_of(mechanism: mechanisms.Mechanism, slack: float) -> tuple[Pair, ...]:
    return _pairs.of(mechanism, cut=slack / 20)


def _least_certified(rounds: tuple[Pair, ...], square: float, slack: float) -> float:
    """A cost that is certified, near the least one; inf if none is."""
    most, cost = square * LARGEST_SHARE, 0.0
    for pair in sorted(rounds, key=lambda pair: -float(pair.masses @ pair.losses**2)):
        guess = cost or max(float(pair.masses @ pair.losses**2), 1 / MEASURE)  # nothing costs less than a unit
        cost = _least(gaps(pair, square=square, slack=slack), guess, cost, most)
        if cost == inf:
            return inf
    step = SEARCH_PRECISION
    while True:
        raised = min(cost * (1 + step), most)
        if all(certified(pair, square=square, cost=raised, slack=slack) for pair in rounds):
            return raised
        if raised == most:
            return inf
        step *= 2


def _least(gaps_at: Callable[[float], Floats], guess: float, least: float, most: float) -> float:
    """About the least cost in [least, most] with no negative gap, by secants at all points; inf if there is none."""
    low, high, cost = least, inf, min(guess or most, most)
    gap = gaps_at(cost)
    if cost == least and gap.min() >= 0:
        return least
    before, at_before = cost, gap
    for turn in range(200):
        right = gap.min() >= 0
        low, high = (low, cost) if right else (cost, high)
        if cost == most and not right:
            return inf
        if high <= low * (1 + SEARCH_PRECISION / 4):
            return high
        wanted = secant(before, at_before, cost, gap) if before != cost else cost * (0.97 if right else 1.03)
        if not low < wanted < min(high, most * 2) or (turn > 6 and high == inf and wanted < 2 * low):
            wanted = 2 * low if high == inf else (max(low, high / 4) * high) ** 0.5
        if abs(wanted - cost) <= SEARCH_PRECISION / 8 * cost and high < inf:
            return wanted
        before, at_before, cost = cost, gap, min(wanted, most)
        gap = gaps_at(cost)
    return high


def secant(before: float, at_before: Floats, after: float, at_after: Floats) -> float:
    """The least number at which no gap is negative, were they affine in it; inf where that is nowhere."""
    slope = (at_after - at_before) / (after - before)
    with np.errstate(divide="ignore", invalid="ignore"):
        wanted = np.where(slope > 0, after - at_after / slope, np.where(at_after < 0, inf, 0.0))
    return float(wanted.max())


@dataclass(frozen=True, slots=True, eq=False)
class Table:
    """Costs for many people at once, each with a norm and a b squared of their own. Every field is public.

    A norm is rounded up to the next; one above the last does not fit. Without a sensitivity: 0 and 1, for taking part.
    """

    norms: Floats  # (k,) increasing, the first is 0
    squares: NDArray[np.int64]  # (j,) increasing; what is left of b squared is rounded down to the next below
    units: NDArray[np.int64]  # (k, j) the cost, at most the column's b squared, or RANGE where the round does not fit
    slacks: tuple[int, ...]  # (k,) units of FAILURE that a round takes from delta at each norm


def table(mechanism: mechanisms.Mechanism, *, most: int, slack: int) -> Table:
    """Costs of one mechanism for people who contribute less than its sensitivity: theory 2.2 and 2.6 with the norm.

    Every norm has a slack of its own, fixed here, and costs at least the part of ``most`` that its slack is of
    ``slack``: an account that stays within ``most`` stays within ``slack``, so it holds b squared alone.

    The mechanism is sampled Gaussian or Laplace; or pure and of bounded range, for taking part or not. There are 64
    norms down to 1/32 of the sensitivity, 4 % apart where they are above a quarter of it, and 9 % apart below.

    Guarantee: every entry is a valid cost, with the slack of its row, for each person whose norm is at most the row's
    and whose b squared is at least the column's; costs that add up to at most ``most`` have slacks that add up to at
    most ``slack``.
    Source: docs/proofs/residue-filter.md, sections 2 and 6.
    """
    _check.whole(1, most=most, slack=slack)
    norms = norms_of(mechanism)
    levels = range(level(most) - TABLE_OCTAVES * PER_OCTAVE, level(most) + 1)
    squares = np.array([grid(at) for at in levels], np.int64)
    rows, slacks = [[0] * len(levels)], [0]
    for norm in norms:
        round_ = replace(mechanism, sensitivity=norm) if len(norms) > 1 else mechanism  # type: ignore[type-var]
        share = Fraction(size(round_)) * MEASURE / most  # of what people start with, that a round takes
        row_slack = max(floor(slack * min(share, Fraction(1))), min(LEAST_SLACK, slack))
        least = -(-most * row_slack // slack)
        rows.append([int(min(max(units, least), RANGE)) for units in _row(round_, levels, most, row_slack)])
        slacks.append(row_slack)
    units = np.maximum.accumulate(np.minimum.accumulate(np.array(rows, np.int64), axis=1), axis=0)
    return Table(np.array([0.0, *norms]), squares, np.where(units <= squares, units, RANGE), tuple(slacks))


def norms_of(mechanism: mechanisms.Mechanism) -> list[float]:
    """Norms of a table, increasing, down to 1/32 of the sensitivity, or it alone; 1 for taking part without one."""
    if not isinstance(mechanism, mechanisms.SampledGaussian | mechanisms.Gaussian | mechanisms.Laplace):
        return [float(getattr(mechanism, "sensitivity", 1.0))]
    parts = np.concatenate([np.geomspace(1 / 32, 0.24, 24), np.geomspace(0.25, 1.0, 40)])
    norms = np.append(mechanism.sensitivity * parts[:-1], mechanism.sensitivity)
    return np.unique(np.maximum(norms, min(LEAST_NORM, mechanism.sensitivity))).tolist()  # type: ignore[no-any-return]


def _row(mechanism: mechanisms.Mechanism, levels: range, most: int, slack: int) -> list[Units]:
    """Costs at every level, computed only where the next level below would cost a noticeable part of ``most`` more."""
    known = {at: cost_at(mechanism, at, slack) for at in (levels[0], levels[-1])}
    intervals = [(levels[0], levels[-1])]
    while intervals:
        low, high = intervals.pop()
        extra = known[low] / known[high] - 1 if known[high] < inf else 0.0
        if high - low > 1 and min(extra, 1.0) * (grid(high) - grid(low)) > TABLE_WASTE * most:
            middle = (low + high) // 2
            known[middle] = cost_at(mechanism, middle, slack)
            intervals += [(low, middle), (middle, high)]
    row = [known[levels[0]]]
    for at in levels[1:]:
        row.append(known.get(at, row[-1]))
    return row


class Evaluated(NamedTuple):
    """A curve at some points e."""

    value: Floats
    fall: Floats
    error: Floats  # bound on the rounding error of value and of fall


def certified(pair: Pair, *, square: float, cost: float, slack: float) -> bool:
    """True if F(e) <= H(e; b) + slack is proven for all e >= 0, for one ordered pair.

    The square is b squared; the cost, in [0, 63/64 of it], is what is taken off.

    Guarantee: True only if the inequality holds for every real e >= 0.
    Source: docs/proofs/residue-filter.md, section 5.
    """
    _check.positive(square=square, slack=slack)
    _check.within(0, square * LARGEST_SHARE, cost=cost)
    b, rest = _root(square, 0.0), _root(square - cost + 2 * ULP * square, inf)
    end = _end(pair, b, rest, slack)
    if end == inf:
        return False
    edges: Floats = (end / FIRST_CELLS * np.arange(FIRST_CELLS + 1, dtype=np.float64))[None, :]
    edges[0, -1] = end
    for _ in range(MAX_CUTS):
        cells, ends = _lower_bounds(pair, edges, b, rest, slack)
        if not ends.min() >= 0:
            return False
        doubtful = ~(cells >= 0)
        left, right = edges[:, :-1][doubtful], edges[:, 1:][doubtful]
        if not len(left):
            return True
        if len(left) > MAX_DOUBTFUL:
            return False
        edges = left[:, None] + ((right - left) / CUTS)[:, None] * np.arange(CUTS + 1)
        edges[:, -1] = right
    return False


def gaps(pair: Pair, *, square: float, slack: float, points: int = 100) -> Callable[[float], Floats]:
    """For a cost, D at some points only: a quick look that proves nothing. D increases in the cost at every point."""
    b = sqrt(square)
    e = np.linspace(0.0, 12 * b + square, points)
    before = _gaussian(e, b).value + slack
    return lambda cost: before - _after(pair, e, sqrt(square - cost)).value


def _root(square: float, towards: float) -> float:
    root = sqrt(square)
    for _ in range(4):
        root = nextafter(root, towards)
    return root


def _gaussian(e: Floats, b: float) -> Evaluated:
    """H(e; b): with v = e/b - b/2, H = ndtr(-v) - A and H' = -A with A = exp(e) ndtr(-v - b)."""
    v = e / b - b / 2
    w = v + b
    tail = ndtr(-v)
    right = np.exp(-v * v / 2) * erfcx(np.maximum(w, 0.0) * sqrt(0.5)) / 2
    fall = np.where(w > 0, right, np.exp(np.minimum(e, 0.0)) * ndtr(-w))
    error = ULP * (16 + 4 * v * v + 2 * np.abs(e)) * (tail + fall)
    return Evaluated(tail - fall, fall, error)


def _bend(e: Floats, b: float, width: Floats) -> Floats:
    """A bound on the size of H + A over [e, e + width]: H = g'' + g' + g - A, g the density of N(b**2/2, b**2)."""
    v = e / b - b / 2
    span = width / b
    near = np.maximum(0.0, np.maximum(v, -v - span))
    far = np.abs(v) + span
    density = np.exp(-near * near / 2) / (sqrt(2 * pi) * b)
    return np.asarray(density * ((far * far + 1) / (b * b) + far / b + 1) * (1 + 1e-9))


def _after(pair: Pair, e: Floats, b: float) -> Evaluated:
    """F(e): the pair followed by the Gaussian with parameter b."""
    value, fall, error = _gaussian(e[:, None] - pair.losses, b)
    error = error + len(pair.losses) * ULP * (value + fall)
    masses = pair.masses
    return Evaluated(value @ masses + pair.leak, fall @ masses, error @ masses + 2 * ULP * pair.leak)


def _end(pair: Pair, b: float, rest: float, slack: float) -> float:
    """A point from which on F <= slack (F is decreasing), or inf if none is near."""
    end = b * b / 2 + b
    while end <= b * b + 80 * b:
        after = _after(pair, np.array([end]), rest)
        if after.value[0] + after.error[0] <= slack * (1 - ULP):
            return end
        end += b / 2
    return inf


def _lower_bounds(pair: Pair, edges: Floats, b: float, rest: float, slack: float) -> tuple[Floats, Floats]:
    """Lower bounds on D: over the cells between neighbours of each row of edges, and at the edges."""
    before, after = (
        Evaluated(*(part.reshape(edges.shape) for part in each))
        for each in (_gaussian(edges.ravel(), b), _after(pair, edges.ravel(), rest))
    )
    error = before.error + after.error
    ends = before.value + slack * (1 - ULP) - after.value - error
    rise = after.fall - before.fall  # the slope of D
    left, width = edges[:, :-1], np.diff(edges)
    inner_left = ends[:, :-1] + width / 3 * rise[:, :-1]
    inner_right = ends[:, 1:] - width / 3 * rise[:, 1:]
    bernstein = np.minimum(np.minimum(ends[:, :-1], ends[:, 1:]), np.minimum(inner_left, inner_right))
    grown = np.exp(width) * (1 + 1e-9)  # A grows no faster
    fourth = _bend(left, b, width) + grown * (before.fall[:, :-1] + after.fall[:, :-1])
    spread = left.ravel()[:, None] - pair.losses
    fourth = fourth + (_bend(spread, rest, width.ravel()[:, None]) @ pair.masses).reshape(left.shape)
    return bernstein - fourth * width**4 / 384 - width * (error[:, :-1] + error[:, 1:]), ends
