"""The pattern of places that moves the rows of a matrix mechanism the most: dynamic programs over the places."""

import numpy as np
from numpy.typing import NDArray

__all__ = ["heaviest_places", "largest_pattern"]

Array = NDArray[np.float64]


def largest_pattern(products: Array, separation: int, participations: int) -> float:
    """A bound on the sum of all entries (r, s) of the products over r and s in a pattern, for every pattern.

    Args:
        products: (T, T), symmetric, >= 0.
        separation: the least distance of two places in a pattern.
        participations: the most places in a pattern.

    Guarantee: at least the largest sum; equal to it, but for rounding, where entries at that distance are 0.
    Source: Choquette-Choo et al. (2023), section 4: each row's heaviest pattern, then the heaviest pattern of rows.
    """
    steps = len(products)
    participations = min(participations, -(-steps // separation))
    far = np.abs(np.subtract.outer(np.arange(steps), np.arange(steps))) >= separation
    apart = np.where(far, products, 0.0)
    rows = np.diag(products) + heaviest_places(apart, separation, participations - 1)
    return float(heaviest_places(rows[None, :], separation, participations)[0])


def heaviest_places(weights: Array, separation: int, participations: int) -> Array:
    """(m,) for each row of weights (m, T), >= 0, the largest sum over at most so many places so far apart."""
    best = np.zeros((weights.shape[0], weights.shape[1] + 1))  # column t: of places below t
    for _ in range(participations):
        taken = weights.copy()  # a place, and the best of one place fewer among those far enough below it
        taken[:, separation:] += best[:, 1 : weights.shape[1] - separation + 1]
        best = np.concatenate([np.zeros((weights.shape[0], 1)), np.maximum.accumulate(taken, axis=1)], axis=1)
    return best[:, -1]
