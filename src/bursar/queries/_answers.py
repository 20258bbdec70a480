"""WHAT was answered, and how far noise may have moved it. Everything here is public.

Intervals are about the noise alone: not about what was clipped, or people who do not take part any more.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from functools import lru_cache
from itertools import product
from math import inf, log, sqrt
from statistics import NormalDist
from typing import Any

from bursar._units import MEASURE, to_float, up
from bursar.queries._questions import STEPS, Histogram, Key, Mean, Quantiles, Question, Sum, Variance

__all__ = ["Answer", "Quote", "answer", "quote"]

CONFIDENCE = 0.95

Interval = tuple[float, float]


@dataclass(frozen=True, slots=True)
class Quote:
    """What a question would cost at worst, and how large its noise would be."""

    rho: float
    """What it costs a person who contributes the full clip, rounded up; every other person less. In a pure budget it is
    epsilon**2 / 2."""
    of_budget: float
    """The same, as a share of each person's budget."""
    standard_errors: dict[str, float]
    """Of each number that is released, in the units of the answer."""
    margins: dict[str, float]
    """Half the width of a 95 % interval around each."""
    epsilon: float | None = None
    """What it costs in a pure budget; None in others."""


@dataclass(frozen=True, slots=True)
class Answer:
    """A finished answer: one value for each group, or one list of them."""

    key: str
    question: Question
    groups: list[tuple[Key, ...]]
    values: list[Any]
    """None where the noise leaves nothing to say."""
    intervals: list[Any]
    """95 % each, for the noise alone."""
    rho: float
    """What it cost a person who contributed the full clip. In a pure budget it is epsilon**2 / 2."""
    released: list[int] = field(repr=False)
    """The noisy sums, in whole steps, that all of the above comes from."""
    complete: bool | None = None
    """Under a watch, False from the first question on from which too many people were missing; else None."""

    @property
    def value(self) -> Any:
        """The value of a question without groups, or of the first group."""
        return self.values[0]

    @property
    def interval(self) -> Any:
        """The interval of a question without groups, or of the first group."""
        return self.intervals[0]


def quote(question: Question, budget: int) -> Quote:
    """What a question would cost, and its noise: from public facts alone."""
    errors = {name: question.spread * scale for name, scale in _scales(question).items()}
    quantile = _z(question, 1)
    return Quote(
        rho=_rho(question),
        of_budget=question.price / budget,
        standard_errors=errors,
        margins={name: quantile * error for name, error in errors.items()},
        epsilon=to_float(question.price) if question.pure else None,
    )


def answer(question: Question, released: Sequence[int], key: str, complete: bool | None = None) -> Answer:
    """The answer that noisy sums give: the same for the same sums."""
    width = question.coordinates
    values, intervals = [], []
    for start in range(0, len(released), width):
        value, interval = _read(question, released[start : start + width])
        values.append(value)
        intervals.append(interval)
    return Answer(key, question, question.labels, values, intervals, _rho(question), list(released), complete)


def _scales(question: Question) -> dict[str, float]:
    """For each released number, what one full row is in it."""
    full = STEPS / question.steps
    match question:
        case Sum():
            return {"sum": question.full}
        case Mean():
            return {"count": full, "sum of differences from the middle": full * question.half}
        case Variance():
            return {
                "count": full,
                "sum of differences from the middle": full * question.half,
                "sum of their squares": full * question.half**2,
            }
        case Histogram() | Quantiles():
            return {"count in each bin": 1.0}
    return {"count": 1.0}


def _rho(question: Question) -> float:
    """The price in rho, rounded up: what is epsilon-DP is epsilon**2 / 2-zCDP (theory 2.3)."""
    return to_float(up(Fraction(question.price, MEASURE) ** 2 / 2) if question.pure else question.price)


def _z(question: Question, intervals: int) -> float:
    """How many standard errors to each side, so that this many intervals hold together."""
    return _quantile_of_noise(question.pure, intervals)


@lru_cache(maxsize=64)
def _quantile_of_noise(pure: bool, intervals: int) -> float:
    if pure:  # of one Laplace number; the tails of a sum of several are lighter
        return log(intervals / (1 - CONFIDENCE)) / sqrt(2)
    return NormalDist().inv_cdf(1 - (1 - CONFIDENCE) / (2 * intervals))


def _read(question: Question, sums: Sequence[int]) -> tuple[Any, Any]:
    sigma = question.spread * STEPS / question.steps
    parts = [value / question.steps for value in sums]
    match question:
        case Mean():
            return _mean(question, parts, sigma)
        case Variance():
            return _variance(question, parts, sigma)
        case Quantiles():
            quantiles = [_quantile(question, parts, sigma, level) for level in question.levels]
            return [value for value, _ in quantiles], [interval for _, interval in quantiles]
        case Histogram():
            return parts, [_around(value, sigma * _z(question, 1)) for value in parts]
        case Sum():
            return parts[0] * question.full, _around(parts[0] * question.full, sigma * question.full * _z(question, 1))
    return parts[0], _around(parts[0], sigma * _z(question, 1))


def _around(value: float, margin: float) -> Interval:
    return value - margin, value + margin


def _mean(question: Mean, parts: list[float], sigma: float) -> tuple[float | None, Interval]:
    count, total = parts
    if count <= 0:
        return None, (question.low, question.high)
    margin = _z(question, 2) * sigma
    if count - margin <= 0:
        ends = (-1.0, 1.0)
    else:
        corners = [s / n for s, n in product(_around(total, margin), _around(count, margin))]
        ends = _clip(min(corners)), _clip(max(corners))
    middle, half = question.middle, question.half
    return middle + half * _clip(total / count), (middle + half * ends[0], middle + half * ends[1])


def _variance(question: Variance, parts: list[float], sigma: float) -> tuple[float | None, Interval]:
    count, total, squares = parts
    scale = question.half**2
    if count <= 0:
        return None, (0.0, scale)
    value = max(0.0, min(1.0, squares / count - _clip(total / count) ** 2))
    margin = _z(question, 3) * sigma
    if count - margin <= 0:
        return value * scale, (0.0, scale)
    # with t = 1/count: squares t - (total t)^2, monotone in squares, concave in t and in total
    low_t, high_t = 1 / (count + margin), 1 / (count - margin)
    totals = [*_around(total, margin), *([0.0] if abs(total) <= margin else [])]
    corners = []
    for s, q in product(totals, _around(squares, margin)):
        peak = q / (2 * s * s) if s else inf
        corners += [q * t - (s * t) ** 2 for t in (low_t, high_t, min(max(peak, low_t), high_t))]
    return value * scale, (max(0.0, min(corners)) * scale, min(1.0, max(corners)) * scale)


def _clip(value: float) -> float:
    return max(-1.0, min(1.0, value))


def _quantile(question: Quantiles, counts: list[float], sigma: float, level: float) -> tuple[float | None, Interval]:
    """A quantile by interpolation in the bin where it falls, and where it may be."""
    edges, bins = question.edges, len(counts)
    low, high = edges[0], edges[-1]
    below, total, z = 0.0, sum(counts), _z(question, max(1, bins - 1))
    for edge in range(1, bins):
        below += counts[edge - 1]
        # more than the level lies below an edge if this is positive
        excess = below - level * total
        margin = z * sigma * sqrt((1 - level) ** 2 * edge + level**2 * (bins - edge))
        if excess < -margin:
            low = max(low, edges[edge])
        elif excess > margin:
            high = min(high, edges[edge])
    positive = [max(0.0, count) for count in counts]
    if not sum(positive):
        return None, (edges[0], edges[-1])
    wanted, value = level * sum(positive), edges[-1]
    for place, count in enumerate(positive):
        if count and wanted <= count:
            value = edges[place] + (edges[place + 1] - edges[place]) * wanted / count
            break
        wanted -= count
    return value, (low, high) if low < high else (edges[0], edges[-1])
