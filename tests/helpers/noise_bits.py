"""Random bits that can be replayed, and what an exact calculation makes of them."""

import random

import mpmath
from mpmath import mp, mpf


class Replayed:
    """Gives bytes of a seeded generator, remembers them, and gives chosen ones first."""

    def __init__(self, seed=0, first=()):
        self.generator, self.first, self.given = random.Random(seed), list(first), []

    def __call__(self, count):
        chosen = self.first.pop(0) if self.first else self.generator.randbytes(count)
        assert len(chosen) == count
        self.given.append(chosen)
        return chosen


def weight(power, parts, cell):
    """exp(-f(cell / parts))."""
    return mp.exp(-((mpf(cell) / parts) ** power) / power)


def thresholds(power, parts, count=1200):
    """C_0 = 0, C_1, C_2, ... as numbers of many digits."""
    weights = [weight(power, parts, cell) for cell in range(count)]
    total, sums = mpmath.fsum(weights), [mpf(0)]
    for each in weights:
        sums.append(sums[-1] + each)
    return [each / total for each in sums]


def rounded_probability(k, sigma):
    """Of the rounded Gaussian, in many digits."""
    low, high = (mpf(abs(k)) - mpf(1) / 2) / sigma, (mpf(abs(k)) + mpf(1) / 2) / sigma
    return (mp.erfc(low / mp.sqrt(2)) - mp.erfc(high / mp.sqrt(2))) / 2


def laplace_probability(k, scale):
    """Of the discrete Laplace distribution, in many digits."""
    q = mp.exp(-1 / mpf(scale))
    return (1 - q) / (1 + q) * q ** abs(k)
