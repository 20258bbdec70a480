"""Distances by which noise may have moved a released number."""

from dataclasses import dataclass
from functools import lru_cache
from math import hypot, log, sqrt
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
        """Half the width at which this many intervals of 95 % hold together."""
        return self.standard_error * self.z(intervals)

    def quantile(self, tail: float, *errors: float) -> float:
        """Value that a weighted sum of independent numbers, or minus the sum, exceeds with at most this probability.

        Args:
            tail: at most 0.025.
            errors: the standard error of each, in any unit, which is that of the result.
        """
        return _tail_of_noise(self.pure, tail) * hypot(*errors)

    def z(self, intervals: int) -> float:
        """Standard errors to each side at which this many intervals hold together."""
        return _quantile_of_noise(self.pure, intervals)


@lru_cache(maxsize=64)
def _tail_of_noise(pure: bool, tail: float) -> float:
    """Standard errors to one side. A sum of Laplace numbers has tails between those of one and of a Gaussian number."""
    gaussian = NormalDist().inv_cdf(1 - tail)
    return max(gaussian, log(1 / (2 * tail)) / sqrt(2)) if pure else gaussian


@lru_cache(maxsize=64)
def _quantile_of_noise(pure: bool, intervals: int) -> float:
    if pure:  # of one Laplace number; the tails of a sum of several are lighter
        return log(intervals / (1 - CONFIDENCE)) / sqrt(2)
    return NormalDist().inv_cdf(1 - (1 - CONFIDENCE) / (2 * intervals))


def around(value: float, margin: float) -> Interval:
    """The interval of this half-width."""
    return value - margin, value + margin
