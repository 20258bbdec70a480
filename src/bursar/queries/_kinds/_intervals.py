"""Intervals of 95 %: of sums, of quotients and of variances of noisy sums, with what a clip may have taken away.

Everything is in units of the largest entry in a row: entries are in [-1, 1]. What was taken away is a number of rows,
or a sum of sizes, that is at least 0 and is known with noise (``Missing``).
"""

from collections.abc import Callable

from bursar.queries._missing import Missing
from bursar.queries._noise_bands import CONFIDENCE, Interval, NoiseBand, around

__all__ = ["mean_interval", "total_interval", "variance_interval"]

_TAIL = (1 - CONFIDENCE) / 2
_SMALL = 0.1  # of the error, to what is of second order
_HALVINGS = 44
_GRID = 16


def total_interval(
    value: float, noise: NoiseBand, missing: Missing | None, place: int, *, signed: bool = False
) -> Interval:
    """Of a sum, from the sum of what was clipped and the report on what is missing from it.

    Args:
        value: the noisy sum.
        noise: on it.
        missing: the report; None where nothing is missing.
        place: which of the report's numbers is about this sum.
        signed: whether what is missing may be negative; else the sum without a clip is at least the clipped one.

    Guarantee: each end is on the wrong side with a probability of at most 2.5 %.
    Source: docs/proofs/truth-intervals.md, Theorem 1.
    """
    error = noise.standard_error
    own = around(value, noise.quantile(_TAIL, error))
    if missing is None:
        return own
    mass, spread = missing.masses[place], missing.standard_error
    both = noise.quantile(_TAIL, error, spread)
    if signed:
        return min(own[0], value - mass - both), max(own[1], value + mass + both)
    # the lower end from the clipped sum alone, or, where much is missing, from both; the errors add up to the tail
    alone = value - noise.quantile((1 - _SMALL) * _TAIL, error)
    return max(alone, value + mass - noise.quantile(_SMALL * _TAIL, error, spread)), max(own[1], value + mass + both)


def mean_interval(
    count: float, total: float, noise: NoiseBand, missing: Missing | None = None, tail: float = _TAIL
) -> Interval:
    """Of a total of entries over their count: the means that a test at the total minus mean times count leaves.

    Args:
        count, total: noisy.
        noise: on both.
        missing: the report on how many rows are missing; None where none is.
        tail: the probability for each end, at most 0.025.

    Guarantee: each end is on the wrong side with a probability of at most the tail.
    Source: Fieller (1954); docs/proofs/truth-intervals.md, Theorem 2.
    """
    error = noise.standard_error
    mass, spread = (0.0, 0.0) if missing is None else (missing.masses[0], missing.standard_error)

    def too_small(mean: float) -> float:
        margin = noise.quantile(tail, error, mean * error, (1 + mean) * spread)
        return total - mean * count - (1 + mean) * mass - margin

    def too_large(mean: float) -> float:
        margin = noise.quantile(tail, error, mean * error, (1 - mean) * spread)
        return mean * count - total - (1 - mean) * mass - margin

    low = -1.0 if too_small(-1.0) <= 0 else _edge(too_small, -1.0, 1.0)
    high = 1.0 if too_large(1.0) <= 0 else _edge(too_large, 1.0, -1.0)
    return (low, high) if low <= high else (min(low, high), max(low, high))


def variance_interval(
    count: float, total: float, squares: float, noise: NoiseBand, missing: Missing | None = None
) -> Interval:
    """Of a variance: at each mean of an interval of 99.5 %, the variances that a test at the squares leaves.

    Args:
        count, total, squares: noisy.
        noise: on each.
        missing: the report on how many rows are missing; None where none is.

    Guarantee: each end is on the wrong side with a probability of at most 2.5 %.
    Source: docs/proofs/truth-intervals.md, Theorem 3.
    """
    error = noise.standard_error
    mass, spread = (0.0, 0.0) if missing is None else (missing.masses[0], missing.standard_error)
    first, last = mean_interval(count, total, noise, missing, _SMALL * _TAIL)
    tail = (1 - 2 * _SMALL) * _TAIL
    lows, highs = [], []
    for place in range(_GRID + 1):
        mean = first + (last - first) * place / _GRID
        farthest = (1 + abs(mean)) ** 2

        def too_small(variance: float, mean: float = mean) -> float:
            moved = mean**2 - variance
            margin = noise.quantile(tail, error, 2 * mean * error, moved * error, variance * spread)
            return squares - 2 * mean * total + moved * count - variance * mass - margin

        def too_large(variance: float, mean: float = mean, farthest: float = farthest) -> float:
            moved, away = mean**2 - variance, max(0.0, farthest - variance)
            margin = noise.quantile(tail, error, 2 * mean * error, moved * error, away * spread)
            return -(squares - 2 * mean * total + moved * count) - away * mass - margin

        lows.append(0.0 if too_small(0.0) <= 0 else _edge(too_small, 0.0, 1.0))
        highs.append(1.0 if too_large(1.0) <= 0 else _edge(too_large, 1.0, 0.0))
    low, high = min(lows), max(highs)
    return (low, high) if low <= high else (high, low)


def _edge(rejects: Callable[[float], float], inside: float, outside: float) -> float:
    """Where a test that rejects (> 0) at the first point stops to; the second point if it never does."""
    if rejects(outside) > 0:
        return outside
    for _ in range(_HALVINGS):
        middle = (inside + outside) / 2
        if rejects(middle) > 0:
            inside = middle
        else:
            outside = middle
    return outside
