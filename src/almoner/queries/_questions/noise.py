"""Price contributions, and add noise to sums of them: Gaussian noise in units of rho, Laplace noise of epsilon.

Counts of bins are mixed before noise is added where their running counts then have less noise:

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
from fractions import Fraction
from functools import lru_cache
from math import hypot, inf, isqrt, nextafter, sqrt

import numpy as np
from numpy.typing import NDArray

from almoner import _audit_hook, noise
from almoner._units import MEASURE, up
from almoner.mechanisms import Gaussian, Laplace

STEPS = 2**20  # whole steps in one full row: contributions are rounded to them, added up exactly, and given whole noise


def price_of(clip_steps: int, noise: float, *, pure: bool) -> int:
    """The most that a question costs a person, in units of rho, or in a pure budget of epsilon, rounded up.

    The noise is in full rows. In a pure budget it is the scale of the Laplace noise on each coordinate, and the clip is
    of L1 norms.

    Guarantee: a person who contributes at most the clip is charged at most this.
    Source: theory 2.9; docs/proofs/noise.md, Theorem 3.
    """
    ratio = Fraction(clip_steps) / Fraction(noise * STEPS)
    return int(up(ratio if pure else ratio**2 / 2))


def units_per_step(noise: float, *, pure: bool) -> float:
    """Price of a squared step of Gaussian noise (rho), or a step of Laplace noise (epsilon), above one rounded use."""
    steps = Fraction(noise * STEPS)
    return nextafter(nextafter(float(Fraction(MEASURE) / (steps if pure else 2 * steps**2)) * (1 + 1e-15), inf), inf)


_LARGEST = 2**61


def noisy(sums: Sequence[int], mechanism: Gaussian | Laplace) -> list[int]:
    """Whole sums, private, plus rounded Gaussian, or discrete Laplace, noise, independent in every coordinate.

    Sums beyond 2^61 are cut off, which brings neighbouring data sets no further apart; so is what is returned.

    Guarantee: (sensitivity / sigma)-GDP, and so sensitivity**2 / (2 sigma**2)-zCDP, for sums that move by at most the
        sensitivity in L2; (sensitivity / scale)-DP for sums that move by at most the sensitivity in L1.
    Source: theory 2.9; docs/proofs/noise.md, Theorems 2 and 3.
    """
    exact = np.array([max(-_LARGEST, min(_LARGEST, value)) for value in sums], np.int64)

    def release() -> list[int]:
        if isinstance(mechanism, Laplace):
            added = exact + noise.discrete_laplace(mechanism.scale, size=len(exact))
        else:
            added = exact + noise.rounded_gaussian(mechanism.sigma, size=len(exact))
        noisy_sums: list[int] = np.clip(added, -_LARGEST, _LARGEST).tolist()
        return noisy_sums

    return _audit_hook.released(release, exact=exact, mechanism=mechanism)


def laplace(scale: float) -> int:
    """A whole number from the discrete Laplace distribution, from the operating system's randomness."""
    return int(noise.discrete_laplace(scale, size=1)[0])


FACTOR_BITS = 16
_BITS = 128
_LIMB = 30


class BinFactor:
    """W for a number of bins, by its first column: whole numbers of 2^-16. Everything in it is public."""

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
        """W h in whole numbers of 2^-16 of a step, exactly; ``counts`` are (b,) private, in whole steps.

        Beyond 2^61 they are cut off: neighbours get no further apart.

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
        """Noise of (count below an edge) - level * (all), in a number's; docs/proofs/running-counts.md, Theorem 2."""
        own, whole = float(self._own[edge - 1]), float(self._own[-1])
        return sqrt(max(0.0, own - 2 * level * self._shared[edge] + level**2 * whole)) * (1 + 1e-9)


def separate_error(bins: int, level: float, edge: int) -> float:
    """Standard error of a running count where each bin has noise of its own."""
    return hypot((1 - level) * sqrt(edge), level * sqrt(bins - edge))


bin_factor = lru_cache(maxsize=16)(BinFactor)


@lru_cache(maxsize=64)
def winning_factor(bins: int, levels: tuple[float, ...]) -> BinFactor | None:
    """W for so many bins; None where noise of their own is less, for a level at an inner edge."""
    factor = bin_factor(bins)
    tests = [(level, edge) for level in levels for edge in range(1, bins)]
    return factor if tests and all(factor.error(*each) <= separate_error(bins, *each) for each in tests) else None


def noisy_mixed(sums: Sequence[int], factor: BinFactor, mechanism: Gaussian) -> list[int]:
    """W h plus noise for each b sums, private, of each group, then of each group of a report; in whole steps.

    Guarantee: (sensitivity / sigma)-GDP, and so sensitivity**2 / (2 sigma**2)-zCDP, where one person adds numbers that
        are not negative, and the L2 norm over blocks of b, of the sums in each, is at most the sensitivity.
    Source: docs/proofs/running-counts.md, Theorem 1; docs/proofs/noise.md, Theorem 2.
    """
    blocks = (sums[start : start + factor.bins] for start in range(0, len(sums), factor.bins))
    mixed = [each for block in blocks for each in factor.mixed(block)]
    unit = 2**FACTOR_BITS
    fine = Gaussian(sigma=mechanism.sigma * unit, sensitivity=mechanism.sensitivity * unit)
    noise = noisy([0] * len(mixed), fine)  # added to whole numbers of any size
    return [(value + drawn + unit // 2) >> FACTOR_BITS for value, drawn in zip(mixed, noise, strict=True)]
