"""Intervals of 95 % around released numbers, from the noise on them, also where a clip or a pace took something away.

``NoiseBand`` is the noise on each number of an answer; intervals about the noise alone follow from it.
``truth_intervals`` are read off ``Whole``, an estimate of the unclipped total of a group from an answer and its report.
The report is one more number for each number of an answer: the sum over people of what the clip, and a pace, took away
from it. It is released in one vector with the answer, at the same noise, at a scale at which it has its share of the
price. Answer and report together are what was there before.

Intervals of quotients and variances are in units of the largest entry in a row: entries are in [-1, 1], unless said
otherwise.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from math import hypot, inf, log, sqrt
from operator import mul
from statistics import NormalDist
from typing import Any

CONFIDENCE = 0.95
_TAIL = (1 - CONFIDENCE) / 2
_SMALL = 0.1  # part of the error probability that goes to what is of second order
_HALVINGS = 44
_GRID = 16

Interval = tuple[float, float]
Basis = Sequence[Sequence[int]]
"""A line for each released number: what it adds to the count, to the sum and to the sum of squares."""
OWN: Basis = (1, 0, 0), (0, 1, 0), (0, 0, 1)


@dataclass(frozen=True, slots=True)
class NoiseBand:
    """The noise on each number, in full rows of one coordinate; ``pure``: discrete Laplace, not Gaussian. Public."""

    standard_error: float
    pure: bool
    left: float = 1.0  # share of the standard error, where tables were made to agree

    def of_group(self, left: float) -> "NoiseBand":
        return replace(self, standard_error=self.standard_error / self.left * left, left=left)

    def margin(self, intervals: int) -> float:
        """Half the width at which this many intervals of 95 % hold together."""
        return self.standard_error * self.z(intervals)

    def quantile(self, tail: float, *errors: float) -> float:
        """Value that a sum of numbers of these standard errors exceeds with at most this probability, up to 0.025."""
        return _tail_of_noise(self.pure, tail) * hypot(*errors)

    def z(self, intervals: int) -> float:
        """Standard errors to each side at which this many intervals hold together."""
        return _tail_of_noise(self.pure, (1 - CONFIDENCE) / (2 * intervals))


@lru_cache(maxsize=64)
def _tail_of_noise(pure: bool, tail: float) -> float:
    """Standard errors to one side. A sum of Laplace numbers has tails between those of one and of a Gaussian number."""
    gaussian = NormalDist().inv_cdf(1 - tail)
    return max(gaussian, log(1 / (2 * tail)) / sqrt(2)) if pure else gaussian


def around(value: float, margin: float) -> Interval:
    return value - margin, value + margin


@dataclass(frozen=True, slots=True)
class Whole:
    """Unclipped total of one group, but for noise and for what a pace took away. Public.

    ``parts`` are the noisy coordinates of answer plus report, in units of the largest entry in a row, ``answered``
    those of the answer: over people, their contributions times factors between ``least``, in (0, 1], and 1.
    """

    parts: list[float]
    noise: NoiseBand
    answered: list[float]
    answered_noise: NoiseBand
    least: float = 1.0


def total_interval(whole: Whole, place: int) -> Interval:
    """Of a sum of what is at least 0: of the number at this place of what all people have.

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
    parts: Sequence[float], noise: NoiseBand, tail: float = _TAIL, *, least: float = 1.0, basis: Basis = OWN
) -> Interval:
    """Of a total of entries over their count: the means that a test at the total minus mean times count leaves.

    Both are read off the noisy parts. Entries have weights of at least ``least`` in all of them; each end has this
    tail's probability, at most 0.025.

    Guarantee: each end is on the wrong side with a probability of at most the tail.
    Source: Fieller (1954); docs/proofs/truth-intervals.md, Theorem 3.
    """
    first, last = -1.0, 1.0

    def beyond(mean: float, sign: float = 1.0) -> float:
        return _above(parts, noise, tail, basis, sign, -mean, 1.0)

    low, high = _edge(beyond, first, last), _edge(partial(beyond, sign=-1.0), last, first)
    return between_odds((min(low, high), max(low, high)), first, last, least)


def variance_interval(parts: Sequence[float], noise: NoiseBand, *, least: float = 1.0, basis: Basis = OWN) -> Interval:
    """Of a variance: at each mean of an interval of 99.5 %, the variances that a test at the squares leaves.

    Count, total and squares are read off the noisy parts, in which entries have weights of at least ``least``.

    Guarantee: each end is on the wrong side with a probability of at most 2.5 %.
    Source: docs/proofs/truth-intervals.md, Theorem 4.
    """
    first, last = mean_interval(parts, noise, _SMALL * _TAIL, least=least, basis=basis)
    tail = (1 - 2 * _SMALL) * _TAIL
    lows, highs = [], []
    for place in range(_GRID + 1):
        mean = first + (last - first) * place / _GRID
        top = 1.0 if least == 1 else (1 + abs(mean)) ** 2  # of squares of differences from the mean

        def beyond(variance: float, sign: float, mean: float = mean) -> float:
            return _above(parts, noise, tail, basis, sign, mean**2 - variance, -2 * mean, 1.0)

        low, high = _edge(partial(beyond, sign=1.0), 0.0, top), _edge(partial(beyond, sign=-1.0), top, 0.0)
        ends = between_odds((min(low, high), max(low, high)), 0.0, top, least)
        lows.append(ends[0])
        highs.append(ends[1])
    return max(0.0, min(lows)), min(1.0, max(highs))


def share_interval(
    part: float, total: float, noise: NoiseBand, size: int, *, positive: bool
) -> tuple[float | None, Interval]:
    """(Share, interval) of one of ``size`` numbers in their total; each has this noise, ``positive``: none is below 0.

    Shares p are left at which part - p * total, whose noise is 1 - p times one and p times the others, is within the
    margin.

    Guarantee: it misses the share with a probability of at most 5 %.
    Source: docs/proofs/truth-intervals.md, Theorem 7; Fieller (1954).
    """
    least, most = (0.0, 1.0) if positive else (-inf, inf)
    value = None if total <= 0 and (positive or not total) else min(max(part / total, least), most)
    margin = noise.margin(1) ** 2
    leading, middle = total**2 - margin * size, part * total - margin
    if leading <= 0:
        return value, (least, most)
    root = sqrt(margin * max(0.0, (total - part) ** 2 + (size - 1) * part**2 - margin * (size - 1)))
    low, high = (middle - root) / leading, (middle + root) / leading
    return value, (min(max(low, least), most), max(min(high, most), least))


def _above(parts: Sequence[float], noise: NoiseBand, tail: float, basis: Basis, sign: float, *weights: float) -> float:
    """A weighted sum of count, sum and sum of squares, times a sign, less what its noise exceeds with this tail."""
    each = [sum(map(mul, line, weights)) for line in basis[: len(parts)]]
    value: float = sum(map(mul, parts, each))
    return sign * value - noise.quantile(tail, *(noise.standard_error * one for one in each))


def _edge(rejects: Callable[[float], float], inside: float, outside: float) -> float:
    """Where a test that rejects (> 0) from the first point on stops to; the second point if it never does."""
    if rejects(inside) <= 0:
        return inside
    if rejects(outside) > 0:
        return outside
    for _ in range(_HALVINGS):
        middle = (inside + outside) / 2
        if rejects(middle) > 0:
            inside = middle
        else:
            outside = middle
    return outside


def between_odds(interval: Interval, low: float, high: float, least: float) -> Interval:
    """Where the mean of entries in [low, high] is, if one with weights in [least, 1] for them is in an interval.

    Source: docs/proofs/truth-intervals.md, Lemma 2: odds change by a factor of at most ``least``, or one over it.
    """
    if least == 1:
        return interval
    first, last = (min(max(end, low), high) for end in interval)
    below, above = least * (first - low), (last - low) / least
    left, right = high - first, high - last
    lowest = low if below + left <= 0 else low + (high - low) * (below / (below + left))
    highest = high if above + right <= 0 else low + (high - low) * (above / (above + right))
    return min(lowest, first), max(highest, last)


def less(first: Any, second: Any) -> Any:
    """The difference of two numbers, of two intervals, or of the parts of two lists; None where one is not known."""
    if first is None or second is None:
        return None
    if isinstance(first, list):
        return list(map(less, first, second))
    return (first[0] - second[1], first[1] - second[0]) if isinstance(first, tuple) else first - second


def roots(listed: Iterable[Any]) -> list[Any]:
    """The square root of each number, or of both ends of each interval."""
    return [
        None if each is None else tuple(roots(each)) if isinstance(each, tuple) else sqrt(max(0.0, each))
        for each in listed
    ]
