"""The least noisy count at which a key that nobody listed is told: keys of one person are told with a small chance.

Names and symbols
    delta  δ    the most that the chance may be that one of a person's own keys is told
    sigma  σ    standard deviation of the noise on each count, in whole steps, before it is rounded
"""

from fractions import Fraction
from math import ceil, erfc, sqrt

from almoner import _check

__all__ = ["tail", "threshold"]

_FIRM = 1 + 1e-9  # above every rounding of the tail, of its argument and of the product


def tail(steps: int, sigma: float) -> float:
    """The chance that rounded Gaussian noise is at least so many whole steps, rounded up.

    Guarantee: at least Pr(round(N(0, sigma**2)) >= steps), which is Pr(N(0, 1) >= (steps - 1/2) / sigma).
    Source: docs/proofs/noise.md, Theorem 1.
    """
    return erfc((steps - 0.5) / sigma / sqrt(2)) / 2 * _FIRM


def threshold(*, sigma: float, delta: float, most: int, person: int) -> int:
    """The least noisy count, in whole steps, at which a key is told.

    Args:
        sigma: of the noise, whole steps, > 0.
        delta: the most that the chance may be, in (0, 1).
        most: keys of one person that count, >= 1.
        person: what one person adds to the count of a key, whole steps, >= 1.

    Guarantee: where at most ``most`` keys have a count of ``person`` steps, the chance that the noisy count of one of
        them reaches the threshold is at most delta.
    Source: docs/proofs/unknown-keys.md, Lemma 3.
    """
    _check.positive(sigma=sigma)
    _check.between(0, 1, delta=delta)
    _check.whole(1, most=most, person=person)
    low, high = -1, ceil(40 * Fraction(sigma)) + 2  # of the noise: at 40 sigma the chance is below 1e-300
    while high - low > 1:
        middle = (low + high) // 2
        if most * tail(middle, sigma) <= delta:
            high = middle
        else:
            low = middle
    return person + high
