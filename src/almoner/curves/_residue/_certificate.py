"""Prove by computation that one round fits at a cost: F(e) <= H(e; b) + slack for all e >= 0, errors included.

Names and symbols
    b         what is left before the round, as a GDP parameter; b'**2 = b**2 - cost is what is left after it
    H(e; b)   hockey-stick divergence at exp(e) of N(b, 1) against N(0, 1)
    F(e)      the same of one round followed by N(b', 1) against N(0, 1)
    D         H + slack - F, the gap, which must not be negative
    fall      minus a slope

What is certified    by                                                                              in
    e above the end  F decreases, and is at most the slack at the end                                _end
    ends of a cell   D there, less its rounding error                                                _lower_bounds
    inside a cell    least Bernstein coefficient of the cubic with D's values and slopes at both     _lower_bounds
                     ends, less width**4 / 384 max |D''''|, less rounding errors
    b and b'         roots moved by four floats to the safe side                                     _root
    e < 0            the pair of the other direction (section 3 of the proof)                        the caller

Source: docs/proofs/residue-filter.md, section 5
"""

from collections.abc import Callable
from math import inf, nextafter, pi, sqrt
from typing import NamedTuple

import numpy as np
from scipy.special import erfcx, ndtr

from almoner import _check
from almoner.curves._grid.connect_the_dots import Floats
from almoner.curves._pairs import Pair

LARGEST_SHARE = 63 / 64  # one round may take at most this part of b squared: b' stays away from 0
ULP = 2.0**-52
FIRST_CELLS = 64  # cells into which [0, end] is cut first
CUTS = 4  # parts into which a doubtful cell is cut
MAX_CUTS = 7  # rounds of cutting; then the certificate gives up
MAX_DOUBTFUL = 800  # doubtful cells at once; with more the certificate gives up


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
