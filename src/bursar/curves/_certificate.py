"""Proof by computer that one round fits: F(e) <= H(e; b) + slack for all e >= 0, in floating point and with its errors.

Names and symbols
    b         what is left before the round, as a GDP parameter; b'**2 = b**2 - charge is what is left after it
    H(e; b)   hockey-stick divergence at exp(e) of N(b, 1) against N(0, 1)
    F(e)      the same of one round followed by N(b', 1) against N(0, 1)
    D         H + slack - F, which must not be negative
    fall      minus a slope

Source: docs/proofs/residue-filter.md, section 5
"""

from math import inf, nextafter, pi, sqrt

import numpy as np
from numpy.typing import NDArray
from scipy.special import erfcx, ndtr

from bursar import _check
from bursar.curves.pairs import Pair

__all__ = ["KEEP", "certified", "spare"]

Floats = NDArray[np.float64]
Four = tuple[Floats, Floats, Floats, Floats]

KEEP = 63 / 64
"""Of b squared, one round may take at most this part: b' stays away from 0."""

_ULP = 2.0**-52
_CELLS = 64  # into which [0, end] is cut first
_DEPTH = 7  # times that a cell in doubt may be cut into four
_MOST = 800  # cells in doubt at once before giving up


def certified(pair: Pair, *, square: float, charge: float, slack: float) -> bool:
    """Whether F(e) <= H(e; b) + slack is proven for all e >= 0, for one ordered pair.

    Negative e are the business of the pair the other way round (section 3 of the proof).

    Args:
        pair: one ordered dominating pair.
        square: public, > 0; b squared.
        charge: public, in [0, 63/64 of b squared]; what is taken off.
        slack: public, > 0.

    Guarantee: True only if the inequality holds for every real e >= 0.
    Source: docs/proofs/residue-filter.md, section 5.
    """
    _check.positive(square=square, slack=slack)
    _check.within(0, square * KEEP, charge=charge)
    b, rest = _nudged(square, 0.0), _nudged(square - charge + 2 * _ULP * square, inf)
    end = _tail(pair, b, rest, slack)
    if end == inf:
        return False
    width = end / _CELLS
    left: Floats = width * np.arange(_CELLS, dtype=np.float64)
    for _ in range(_DEPTH):
        low, points = _lower_bounds(pair, left, width + 8 * _ULP * end, b, rest, slack)
        if not points.min() >= 0:
            return False
        doubtful = left[~(low >= 0)]
        if not len(doubtful):
            return True
        if len(doubtful) > _MOST:
            return False
        width /= 4
        left = (doubtful[:, None] + width * np.arange(4)).ravel()
    return False


def spare(pair: Pair, *, square: float, charge: float, slack: float, points: int = 100) -> float:
    """The least of D at some points only: a quick look that proves nothing."""
    b = sqrt(square)
    e = np.linspace(0.0, 12 * b + square, points)
    return float(np.min(_gauss(e, b, 0.0)[0] + slack - _after(pair, e, sqrt(square - charge), 0.0)[0]))


def _nudged(square: float, towards: float) -> float:
    """The root of b squared, moved four floats: the truth is on the safe side of it."""
    root = sqrt(square)
    for _ in range(4):
        root = nextafter(root, towards)
    return root


def _gauss(e: Floats, b: float, width: Floats | float) -> Four:
    """H(e; b); its fall; a bound on the rounding error of both; a bound on |H''''| over [e, e + width].

    With v = e/b - b/2 and g the density of N(b**2/2, b**2): H = ndtr(-v) - A and H' = -A with A = exp(e) ndtr(-v - b),
    and H'''' = g'' + g' + g - A.
    """
    v = e / b - b / 2
    w = v + b
    tail = ndtr(-v)
    right = np.exp(-v * v / 2) * erfcx(np.maximum(w, 0.0) * sqrt(0.5)) / 2
    fall = np.where(w > 0, right, np.exp(np.minimum(e, 0.0)) * ndtr(-w))
    doubt = _ULP * (16 + 4 * v * v + 2 * np.abs(e)) * (tail + fall)
    span = width / b
    near = np.maximum(0.0, np.maximum(v, -v - span))
    far = np.abs(v) + span
    height = np.exp(-near * near / 2) / (sqrt(2 * pi) * b)
    fourth = height * ((far * far + 1) / (b * b) + far / b + 1) + np.exp(width) * fall
    return tail - fall, fall, doubt, fourth * (1 + 1e-9)


def _after(pair: Pair, e: Floats, b: float, width: float) -> Four:
    """The same four for F, the pair followed by the Gaussian with parameter b."""
    value, fall, doubt, fourth = _gauss(e[:, None] - pair.losses, b, width)
    doubt = doubt + len(pair.losses) * _ULP * (value + fall)
    masses = pair.masses
    return value @ masses + pair.leak, fall @ masses, doubt @ masses + 2 * _ULP * pair.leak, fourth @ masses


def _tail(pair: Pair, b: float, rest: float, slack: float) -> float:
    """A point from which on F <= slack (F is decreasing), or inf if none is near."""
    end = b * b / 2 + b
    while end <= b * b + 80 * b:
        value, _, doubt, _ = _after(pair, np.array([end]), rest, 0.0)
        if value[0] + doubt[0] <= slack * (1 - _ULP):
            return end
        end += b / 2
    return inf


def _lower_bounds(pair: Pair, left: Floats, width: float, b: float, rest: float, slack: float) -> tuple[Floats, Floats]:
    """Lower bounds on D: over the cells [left, left + width], and at their ends.

    The cubic with the values and slopes of D at both ends is at least the smallest of its Bernstein coefficients, and
    D differs from it by at most width**4/384 max |D''''|.
    """
    right = left + width
    h, h_fall, h_doubt, h_fourth = _gauss(left, b, width)
    f, f_fall, f_doubt, f_fourth = _after(pair, left, rest, width)
    h1, h1_fall, h1_doubt, _ = _gauss(right, b, 0.0)
    f1, f1_fall, f1_doubt, _ = _after(pair, right, rest, 0.0)
    doubt, doubt1 = h_doubt + f_doubt, h1_doubt + f1_doubt
    sure = slack * (1 - _ULP)
    here, there = h + sure - f - doubt, h1 + sure - f1 - doubt1
    points = np.minimum(here, there)
    inner = np.minimum(here + width / 3 * (f_fall - h_fall), there - width / 3 * (f1_fall - h1_fall))
    bent = (h_fourth + f_fourth) * width**4 / 384
    return np.minimum(points, inner) - bent - width * (doubt + doubt1), points
