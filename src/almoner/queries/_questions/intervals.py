"""Intervals of 95 %: of sums, of quotients and of variances of noisy sums, also where a pace took something away.

Everything is in units of the largest entry in a row: entries are in [-1, 1], unless said otherwise.
"""

from collections.abc import Callable

from almoner.queries._questions.noise_bands import CONFIDENCE, Interval, NoiseBand, around
from almoner.queries._questions.whole import Whole, between_odds

__all__ = ["mean_interval", "total_interval", "variance_interval"]

_TAIL = (1 - CONFIDENCE) / 2
_SMALL = 0.1  # of the error, to what is of second order
_HALVINGS = 44
_GRID = 16


def total_interval(whole: Whole, place: int) -> Interval:
    """Of a sum of what is at least 0.

    Args:
        whole: what all people have.
        place: which of its numbers it is.

    Guarantee: each end is on the wrong side with a probability of at most 2.5 %.
    Source: docs/proofs/truth-intervals.md, Theorem 2.
    """
    noise, own = whole.noise, whole.answered_noise
    value, answered = whole.parts[place], whole.answered[place]
    if noise == own:
        low, high = around(value, noise.quantile(_TAIL, noise.standard_error))
    else:  # the lower end from the answer alone, or, where much is in the report, from both; the errors add up
        alone = answered - own.quantile((1 - _SMALL) * _TAIL, own.standard_error)
        low = max(alone, value - noise.quantile(_SMALL * _TAIL, noise.standard_error))
        high = value + noise.quantile(_TAIL, noise.standard_error)
        high = max(high, answered + own.quantile(_TAIL, own.standard_error))
    return low, max(high, high / whole.least)


def mean_interval(
    count: float,
    total: float,
    noise: NoiseBand,
    tail: float = _TAIL,
    *,
    least: float = 1.0,
    reach: float = 1.0,
    ends: Interval = (-1.0, 1.0),
) -> Interval:
    """Of a total of entries over their count: the means that a test at the total minus mean times count leaves.

    Args:
        count, total: noisy.
        noise: on the count.
        tail: the probability for each end, at most 0.025.
        least: of the weights that entries have in both.
        reach: standard error of the total over that of the count.
        ends: between which entries are.

    Guarantee: each end is on the wrong side with a probability of at most the tail.
    Source: Fieller (1954); docs/proofs/truth-intervals.md, Theorem 3.
    """
    error, (first, last) = noise.standard_error, ends

    def too_small(mean: float) -> float:
        return total - mean * count - noise.quantile(tail, reach * error, mean * error)

    def too_large(mean: float) -> float:
        return mean * count - total - noise.quantile(tail, reach * error, mean * error)

    low = first if too_small(first) <= 0 else _edge(too_small, first, last)
    high = last if too_large(last) <= 0 else _edge(too_large, last, first)
    return between_odds((min(low, high), max(low, high)), first, last, least)


def variance_interval(count: float, total: float, squares: float, noise: NoiseBand, *, least: float = 1.0) -> Interval:
    """Of a variance: at each mean of an interval of 99.5 %, the variances that a test at the squares leaves.

    Args:
        count, total, squares: noisy.
        noise: on each.
        least: of the weights that entries have in all of them.

    Guarantee: each end is on the wrong side with a probability of at most 2.5 %.
    Source: docs/proofs/truth-intervals.md, Theorem 4.
    """
    error = noise.standard_error
    first, last = mean_interval(count, total, noise, _SMALL * _TAIL, least=least)
    tail = (1 - 2 * _SMALL) * _TAIL
    lows, highs = [], []
    for place in range(_GRID + 1):
        mean = first + (last - first) * place / _GRID
        top = 1.0 if least == 1 else (1 + abs(mean)) ** 2  # of squares of differences from the mean

        def test(variance: float, mean: float = mean) -> tuple[float, float]:
            moved = mean**2 - variance
            margin = noise.quantile(tail, error, 2 * mean * error, moved * error)
            return squares - 2 * mean * total + moved * count, margin

        def too_small(variance: float, test: Callable[[float], tuple[float, float]] = test) -> float:
            beyond, margin = test(variance)
            return beyond - margin

        def too_large(variance: float, test: Callable[[float], tuple[float, float]] = test) -> float:
            beyond, margin = test(variance)
            return -beyond - margin

        low = 0.0 if too_small(0.0) <= 0 else _edge(too_small, 0.0, top)
        high = top if too_large(top) <= 0 else _edge(too_large, top, 0.0)
        ends = between_odds((min(low, high), max(low, high)), 0.0, top, least)
        lows.append(ends[0])
        highs.append(ends[1])
    return max(0.0, min(lows)), min(1.0, max(highs))


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
