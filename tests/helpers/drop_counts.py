"""What tests of noisy counts share: both counters, their matrices, a budget, a generator without noise."""

import numpy as np
import pytest
from scipy import linalg, special

from almoner import filters, mechanisms
from almoner.training.stopping import SquareRoot, Tree

__all__ = ["COUNTERS", "STEP", "Silent", "both", "budget", "decoder_and_encoder"]

COUNTERS = (Tree, SquareRoot)

both = pytest.mark.parametrize("kind", COUNTERS)

STEP = mechanisms.Gaussian(sigma=10.0, sensitivity=1.0)


def decoder_and_encoder(kind, steps):
    """(L, R) with L R = running sums, written out naively."""
    sums = np.tril(np.ones((steps, steps)))
    if kind is SquareRoot:
        c = special.binom(2 * np.arange(steps), np.arange(steps)) / 4.0 ** np.arange(steps)
        root = linalg.toeplitz(c, np.zeros(steps))
        return root, root
    left, right = np.zeros((steps, steps)), np.zeros((steps, steps))
    for t in range(1, steps + 1):
        right[t - 1, t - (t & -t) : t] = 1  # the node that ends at t
        end = t
        while end:
            left[t - 1, end - 1] = 1
            end -= end & -end
    np.testing.assert_array_equal(left @ right, sums)
    return left, right


def budget(mu=1.0):
    return filters.Gaussian(mu=mu)


class Silent:
    """A generator without noise."""

    def normal(self, mean, sigma, size=None):
        return 0.0 if size is None else np.zeros(size)

    def laplace(self, mean, scale):
        return 0.0
