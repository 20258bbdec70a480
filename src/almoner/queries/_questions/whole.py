"""Estimate the unclipped total of a group from an answer and its report; ``truth_intervals`` are read off it.

The report is one more number for each number of an answer: the sum over people of what the clip, and a pace, took away
from it. It is released in one vector with the answer, at the same noise, at a scale at which it has its share of the
price. Answer and report together are what was there before.
"""

from dataclasses import dataclass, replace
from math import hypot

from almoner.queries._questions.noise_bands import Interval, NoiseBand

__all__ = ["Whole", "between_odds"]


@dataclass(frozen=True, slots=True)
class Whole:
    """Unclipped total of one group, but for noise and for what a pace took away. Public.

    Fields:
        parts: the noisy coordinates of the answer plus those of the report, in units of the largest entry in a row.
        noise: on each of them.
        answered: the noisy coordinates of the answer alone.
        answered_noise: on each of them.
        least: in (0, 1]. Without noise, ``parts`` is the sum over people of their whole contribution, each times a
            factor of its own between ``least`` and 1.
    """

    parts: list[float]
    noise: NoiseBand
    answered: list[float]
    answered_noise: NoiseBand
    least: float = 1.0

    def times(self, sign: float) -> "Whole":
        """Total where all entries are multiplied by 1 or -1."""
        parts, answered = ([sign * each for each in listed] for listed in (self.parts, self.answered))
        return replace(self, parts=parts, answered=answered)

    def with_added(self, ratio: float) -> "Whole":
        """The first number plus so many times the second one, in place of both; the rest of the fields accordingly."""
        parts, answered = ([first + ratio * second] for first, second in (self.parts, self.answered))
        noise, own = (
            NoiseBand(each.standard_error * hypot(1, ratio), each.pure) for each in (self.noise, self.answered_noise)
        )
        return Whole(parts, noise, answered, own, self.least)


def between_odds(interval: Interval, low: float, high: float, least: float) -> Interval:
    """Where the mean of entries in [low, high] is, if one with weights in [least, 1] for them is in an interval.

    Source: docs/proofs/truth-intervals.md, Lemma 2: the odds (mean - low) / (high - mean) change by a factor of at most
        ``least``, or one over it.
    """
    if least == 1:
        return interval
    first, last = (min(max(end, low), high) for end in interval)
    below, above = least * (first - low), (last - low) / least
    left, right = high - first, high - last
    lowest = low if below + left <= 0 else low + (high - low) * (below / (below + left))
    highest = high if above + right <= 0 else low + (high - low) * (above / (above + right))
    return min(lowest, first), max(highest, last)
