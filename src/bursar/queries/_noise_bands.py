"""How far noise may have moved a released number."""

from dataclasses import dataclass
from functools import lru_cache
from math import log, sqrt
from statistics import NormalDist

__all__ = ["CONFIDENCE", "Interval", "NoiseBand", "around"]

CONFIDENCE = 0.95

Interval = tuple[float, float]


@dataclass(frozen=True, slots=True)
class NoiseBand:
    """The noise on each of an answer's numbers. Public.

    Fields:
        standard_error: of each number, in full rows of one coordinate.
        pure: whether it is discrete Laplace noise instead of Gaussian noise.
    """

    standard_error: float
    pure: bool

    def margin(self, intervals: int) -> float:
        """How far to each side, so that this many intervals of 95 % hold together."""
        return self.standard_error * self.z(intervals)

    def z(self, intervals: int) -> float:
        """How many standard errors to each side, so that this many intervals hold together."""
        return _quantile_of_noise(self.pure, intervals)


@lru_cache(maxsize=64)
def _quantile_of_noise(pure: bool, intervals: int) -> float:
    if pure:  # of one Laplace number; the tails of a sum of several are lighter
        return log(intervals / (1 - CONFIDENCE)) / sqrt(2)
    return NormalDist().inv_cdf(1 - (1 - CONFIDENCE) / (2 * intervals))


def around(value: float, margin: float) -> Interval:
    """The interval of this half-width."""
    return value - margin, value + margin
