"""Expected width of an answer's intervals, from public facts alone.

The width of a count's or a sum's interval is known before anything is asked. That of a mean depends on how many rows
there are: it is computed from what was released for the same question earlier.
"""

from collections.abc import Mapping, Sequence
from math import isfinite
from typing import Any

from almoner.queries._questions.intervals import NoiseBand
from almoner.queries._questions.prices import STEPS
from almoner.queries._questions.question import Question

__all__ = ["NOT_THE_QUESTION", "expected_half_width", "same_question"]

NOT_THE_QUESTION = frozenset(
    {"sigma", "rho", "epsilon", "error", "level", "clip", "at_most", "report", "pace", "anyway"}
)
_MOST_GROUPS = 1000


def same_question(first: Mapping[str, Any], second: Mapping[str, Any]) -> bool:
    """True if two questions, as plain values, ask for the same, with whatever clip and noise."""
    return all(first.get(name) == second.get(name) for name in {*first, *second} - NOT_THE_QUESTION)


def expected_half_width(question: Question, released: Sequence[int] | None, noise: float | None = None) -> float | None:
    """Half the width of a 95 % interval, in the units of the answer: the mean over its numbers.

    Args:
        question: what is to be asked.
        released: the noisy sums, in whole steps, of an earlier answer to the same question, if there is one.
        noise: standard deviation of the noise, in full rows; None for the question's own.

    Returns:
        None where it depends on sums that are not known.
    """
    if question.values() is not None or (question.width_depends_on_data() and released is None):
        return None
    width = question.coordinates
    sums = [0] * width if released is None else list(released[: min(_MOST_GROUPS, question.groups) * width])
    band = NoiseBand((question.spread if noise is None else noise) * STEPS / question.steps, question.pure)
    halves: list[float] = []
    for start in range(0, len(sums), width):
        _, interval = question.read([part / question.steps for part in sums[start : start + width]], band)
        halves += _halves(interval)
    mean = sum(half / len(halves) for half in halves)
    return mean if isfinite(mean) else None


def _halves(interval: Any) -> list[float]:
    """Half the width of each interval, in however many lists."""
    if isinstance(interval, list):
        return [half for each in interval for half in _halves(each)]
    low, high = interval
    return [high / 2 - low / 2]
