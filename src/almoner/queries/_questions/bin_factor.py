"""Mix the counts of bins before noise is added, so that their running counts have little noise.

Names and symbols
    b             how many bins there are
    h             (b,) counts of the bins
    W             (b, b) lower triangular and Toeplitz, not negative; what is released is W h plus independent noise
    A             (b, b) ones on and below the diagonal: A h are the running counts

W is the square root of A, divided by the norm of its first column, in whole numbers of 2^-16, rounded down. So no
column of W is longer than 1, and what one person adds to W h is no longer than the sum of that person's weights.

Source: docs/proofs/running-counts.md; Fichtenberger, Henzinger & Upadhyay (2023), https://arxiv.org/abs/2202.11205
"""

from collections.abc import Sequence
from functools import lru_cache
from math import hypot, isqrt, sqrt

import numpy as np
from numpy.typing import NDArray

from almoner.mechanisms import Gaussian
from almoner.queries._questions.noise import noisy

__all__ = ["FACTOR_BITS", "BinFactor", "bin_factor", "noisy_mixed", "separate_error", "winning_factor"]

FACTOR_BITS = 16
_BITS = 128
_LIMB = 30
_LARGEST = 2**61


class BinFactor:
    """W for a number of bins. Everything in it is public.

    Fields:
        column: (b,) the first column of W, whole numbers of 2^-16.
    """

    def __init__(self, bins: int) -> None:
        series, value = [], 1 << _BITS
        for k in range(bins):  # binomial(2k, k) / 4^k
            series.append(value)
            value = value * (2 * k + 1) // (2 * k + 2)
        norm = isqrt(sum(each**2 for each in series)) + 1
        self.bins = bins
        self.column = tuple((each << FACTOR_BITS) // norm for each in series)
        entries = np.array(self.column) / 2**FACTOR_BITS
        inverse = np.zeros(bins)
        inverse[0] = 1 / entries[0]
        for k in range(1, bins):
            inverse[k] = -(entries[1 : k + 1] @ inverse[:k][::-1]) / entries[0]
        self._running: NDArray[np.float64] = np.cumsum(inverse)  # the first column of A W^-1
        squares = self._running**2
        self._own = np.cumsum(squares)  # square of the noise of the first running counts
        self._shared = [float(self._running[:edge] @ self._running[bins - edge :]) for edge in range(bins + 1)]

    def mixed(self, counts: Sequence[int]) -> list[int]:
        """W h in whole numbers of 2^-16 of a step, exactly.

        Args:
            counts: (b,) private, in whole steps; beyond 2^61 they are cut off: neighbours get no further apart.

        Guarantee: where one person adds x to the counts, no entry below 0, it moves the result by at most
            2^16 (sum of x) in L2 norm.
        Source: docs/proofs/running-counts.md, Theorem 1.
        """
        if not any(counts):
            return [0] * self.bins
        exact = np.array([max(-_LARGEST, min(_LARGEST, int(each))) for each in counts], np.int64)
        column, low = np.array(self.column, np.int64), exact & ((1 << _LIMB) - 1)
        high, low = (np.convolve(column, limb)[: self.bins].tolist() for limb in (exact >> _LIMB, low))
        return [(first << _LIMB) + second for first, second in zip(high, low, strict=True)]

    def running(self, parts: Sequence[float]) -> list[float]:
        """The noisy running counts, one for each upper edge, from the noisy W h."""
        found: list[float] = np.convolve(self._running, np.array(parts, np.float64))[: self.bins].tolist()
        return found

    def error(self, level: float, edge: int) -> float:
        """Standard error of (the count below an edge) - level * (all), in that of a released number.

        Args:
            level: in [0, 1].
            edge: how many bins are below it, 1 to b.

        Source: docs/proofs/running-counts.md, Theorem 2.
        """
        own, whole = float(self._own[edge - 1]), float(self._own[-1])
        return sqrt(max(0.0, own - 2 * level * self._shared[edge] + level**2 * whole)) * (1 + 1e-9)

    def wins(self, levels: Sequence[float]) -> bool:
        """True if the noise is no more than on separate counts, at every inner edge and for each of these levels."""
        edges = range(1, self.bins)
        return self.bins > 1 and all(
            self.error(level, edge) <= separate_error(self.bins, level, edge) for level in levels for edge in edges
        )


def separate_error(bins: int, level: float, edge: int) -> float:
    """Standard error of a running count where each bin has noise of its own."""
    return hypot((1 - level) * sqrt(edge), level * sqrt(bins - edge))


@lru_cache(maxsize=16)
def bin_factor(bins: int) -> BinFactor:
    """W for so many bins."""
    return BinFactor(bins)


@lru_cache(maxsize=64)
def winning_factor(bins: int, levels: tuple[float, ...]) -> BinFactor | None:
    """W for so many bins; None where noise of their own is less, for a level at an edge."""
    factor = bin_factor(bins)
    return factor if factor.wins(levels) else None


def noisy_mixed(sums: Sequence[int], factor: BinFactor, mechanism: Gaussian) -> list[int]:
    """W h plus noise for each b sums, in whole steps.

    Args:
        sums: private; b of them for each group, and then for each group of a report, in whole steps.
        factor: W.
        mechanism: public, in whole steps; the noise on each number.

    Guarantee: (sensitivity / sigma)-GDP, and so sensitivity**2 / (2 sigma**2)-zCDP, where one person adds numbers that
        are not negative, and the L2 norm over blocks of b, of the sums in each, is at most the sensitivity.
    Source: docs/proofs/running-counts.md, Theorem 1; docs/proofs/noise.md, Theorem 2.
    """
    mixed = [
        each for start in range(0, len(sums), factor.bins) for each in factor.mixed(sums[start : start + factor.bins])
    ]
    unit = 2**FACTOR_BITS
    fine = Gaussian(sigma=mechanism.sigma * unit, sensitivity=mechanism.sensitivity * unit)
    noise = noisy([0] * len(mixed), fine)  # added to whole numbers of any size
    return [(value + drawn + unit // 2) >> FACTOR_BITS for value, drawn in zip(mixed, noise, strict=True)]
