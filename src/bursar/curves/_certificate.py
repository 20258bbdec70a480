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

from math import inf, nextafter, pi, sqrt
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import erfcx, ndtr

from bursar import _check
from bursar.curves.pairs import Pair

__all__ = ["LARGEST_SHARE", "certified", "smallest_gap"]

Floats = NDArray[np.float64]

LARGEST_SHARE = 63 / 64
"""One round may take at most this part of b squared: b' stays away from 0."""

ULP = 2.0**-52
FIRST_CELLS = 64  # into which [0, end] is cut first
MAX_CUTS = 7  # times that a doubtful cell may be cut into four
MAX_DOUBTFUL = 800  # cells at once; with more, give up


class Evaluated(NamedTuple):
    """A curve at some points e."""

    value: Floats
    fall: Floats
    error: Floats  # bound on the rounding error of value and of fall
    fourth: Floats  # bound on the fourth derivative's size over [e, e + width]


def certified(pair: Pair, *, square: float, cost: float, slack: float) -> bool:
    """Whether F(e) <= H(e; b) + slack is proven for all e >= 0, for one ordered pair.

    Args:
        pair: one ordered dominating pair.
        square: public, > 0; b squared.
        cost: public, in [0, 63/64 of b squared]; what is taken off.
        slack: public, > 0.

    Guarantee: True only if the inequality holds for every real e >= 0.
    Source: docs/proofs/residue-filter.md, section 5.
    """
    _check.positive(square=square, slack=slack)
    _check.within(0, square * LARGEST_SHARE, cost=cost)
    b, rest = _root(square, 0.0), _root(square - cost + 2 * ULP * square, inf)
    end = _end(pair, b, rest, slack)
    if end == inf:
        return False
    width = end / FIRST_CELLS
    left: Floats = width * np.arange(FIRST_CELLS, dtype=np.float64)
    for _ in range(MAX_CUTS):
        cells, ends = _lower_bounds(pair, left, width + 8 * ULP * end, b, rest, slack)
        if not ends.min() >= 0:
            return False
        doubtful = left[~(cells >= 0)]
        if not len(doubtful):
            return True
        if len(doubtful) > MAX_DOUBTFUL:
            return False
        width /= 4
        left = (doubtful[:, None] + width * np.arange(4)).ravel()
    return False


def smallest_gap(pair: Pair, *, square: float, cost: float, slack: float, points: int = 100) -> float:
    """The least of D at some points only: a quick look that proves nothing."""
    b = sqrt(square)
    e = np.linspace(0.0, 12 * b + square, points)
    return float(np.min(_gaussian(e, b, 0.0).value + slack - _after(pair, e, sqrt(square - cost), 0.0).value))


def _root(square: float, towards: float) -> float:
    root = sqrt(square)
    for _ in range(4):
        root = nextafter(root, towards)
    return root


def _gaussian(e: Floats, b: float, width: Floats | float) -> Evaluated:
    """H(e; b).

    With v = e/b - b/2 and g the density of N(b**2/2, b**2): H = ndtr(-v) - A and H' = -A with A = exp(e) ndtr(-v - b),
    and H'''' = g'' + g' + g - A.
    """
    v = e / b - b / 2
    w = v + b
    tail = ndtr(-v)
    right = np.exp(-v * v / 2) * erfcx(np.maximum(w, 0.0) * sqrt(0.5)) / 2
    fall = np.where(w > 0, right, np.exp(np.minimum(e, 0.0)) * ndtr(-w))
    error = ULP * (16 + 4 * v * v + 2 * np.abs(e)) * (tail + fall)
    span = width / b
    near = np.maximum(0.0, np.maximum(v, -v - span))
    far = np.abs(v) + span
    density = np.exp(-near * near / 2) / (sqrt(2 * pi) * b)
    fourth = density * ((far * far + 1) / (b * b) + far / b + 1) + np.exp(width) * fall
    return Evaluated(tail - fall, fall, error, fourth * (1 + 1e-9))


def _after(pair: Pair, e: Floats, b: float, width: float) -> Evaluated:
    """F(e): the pair followed by the Gaussian with parameter b."""
    value, fall, error, fourth = _gaussian(e[:, None] - pair.losses, b, width)
    error = error + len(pair.losses) * ULP * (value + fall)
    masses = pair.masses
    return Evaluated(value @ masses + pair.leak, fall @ masses, error @ masses + 2 * ULP * pair.leak, fourth @ masses)


def _end(pair: Pair, b: float, rest: float, slack: float) -> float:
    """A point from which on F <= slack (F is decreasing), or inf if none is near."""
    end = b * b / 2 + b
    while end <= b * b + 80 * b:
        after = _after(pair, np.array([end]), rest, 0.0)
        if after.value[0] + after.error[0] <= slack * (1 - ULP):
            return end
        end += b / 2
    return inf


def _lower_bounds(pair: Pair, left: Floats, width: float, b: float, rest: float, slack: float) -> tuple[Floats, Floats]:
    """Lower bounds on D: over the cells [left, left + width], and at their ends."""
    right = left + width
    h_left, f_left = _gaussian(left, b, width), _after(pair, left, rest, width)
    h_right, f_right = _gaussian(right, b, 0.0), _after(pair, right, rest, 0.0)
    error_left, error_right = h_left.error + f_left.error, h_right.error + f_right.error
    slack_below = slack * (1 - ULP)
    at_left = h_left.value + slack_below - f_left.value - error_left
    at_right = h_right.value + slack_below - f_right.value - error_right
    ends = np.minimum(at_left, at_right)
    inner_left = at_left + width / 3 * (f_left.fall - h_left.fall)
    inner_right = at_right - width / 3 * (f_right.fall - h_right.fall)
    bernstein = np.minimum(ends, np.minimum(inner_left, inner_right))
    interpolation = (h_left.fourth + f_left.fourth) * width**4 / 384
    return bernstein - interpolation - width * (error_left + error_right), ends
