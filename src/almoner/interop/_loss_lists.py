"""Make a rounded privacy loss distribution one of a pair of laws that dominates it, with few outcomes.

Pessimistic rounding and Fourier transforms leave lists of losses that are nearly, but not quite, those of two laws P
and Q: masses that add up to a little more or less than one, or more than one of mass * exp(-loss), which is what Q has.

Names and symbols
    x             exp(epsilon); the hockey-stick divergence is convex in x, at most 1, and 1 at x = 0
    floor         the least loss; smaller ones are raised to it

Each step keeps the divergence, or makes it larger, wherever it bounds that of a mechanism:

    fewer losses  a mass between two losses that are kept is split over both so that P and Q keep theirs. To merge the
                  two parts again is post-processing, so the split pair dominates (connecting the dots).
    too much P    what masses and infinity have above one is taken from the least losses. From the least loss that is
                  left on, nothing changes. Below, the divergence is now the chord from x = 0, where it is 1 for every
                  mechanism, and a convex function is below its chords.
    too little P  what is missing has an infinite loss.
    too much Q    the floor is raised until Q has at most one. It is never above 0, for there Q has no more than P; so
                  at every epsilon >= 0 nothing changes.

Source: Doroshenko et al. (2022), https://arxiv.org/abs/2207.04380 (connecting the dots); theory 2.10.
"""

from math import fsum

import numpy as np
from numpy.typing import NDArray

_MOST = 100_000 - 2  # most losses of a pair, beside an infinite one and what Q alone has
_UP = 1e-12  # relative widening of a part of a mass: more than rounding moves it

Floats = NDArray[np.float64]
LossList = tuple[Floats, Floats, float]  # losses, increasing; their masses under P; that of an infinite loss


def of_a_pair(losses: Floats, masses: Floats, infinity: float) -> LossList:
    """Losses of a pair of laws that dominates what a list bounds: (n,) losses, increasing, nats, finite, and masses.

    Masses are (n,) probabilities under P, rounded; below zero counts as zero. ``infinity`` is that of an infinite loss.
    """
    masses, infinity = np.maximum(masses, 0.0), min(max(infinity, 0.0), 1.0)
    losses, masses = _fewer(losses[masses > 0], masses[masses > 0])
    masses = _at_most_one(masses, 1 - infinity)
    losses, masses = losses[masses > 0], masses[masses > 0]
    infinity = max(infinity, min(1.0, 1 - fsum(masses)))
    return *_with_floor(losses, masses), infinity


def _fewer(losses: Floats, masses: Floats) -> tuple[Floats, Floats]:
    """At most so many losses as a pair may have: every so many-th is kept, and the last."""
    count = losses.size
    step = -(-count // (_MOST - 1))
    if count <= _MOST:
        return losses, masses
    kept = np.append(np.arange(0, count - 1, step), count - 1)
    place = np.searchsorted(kept, np.arange(count), side="right") - 1
    place = np.minimum(place, kept.size - 2)
    low, high = losses[kept[place]], losses[kept[place + 1]]
    upper = np.minimum(np.expm1(losses - low) / np.expm1(high - low) * np.exp(high - losses) * (1 + _UP), 1.0) * masses
    found = np.bincount(place, masses - upper, kept.size) + np.bincount(place + 1, upper, kept.size)
    return losses[kept], np.maximum(found, 0.0)


def _at_most_one(masses: Floats, most: float) -> Floats:
    """The masses without what they have above ``most``, which is taken from the first ones."""
    excess = fsum(masses) - most
    if excess <= 0:
        return masses
    whole = np.cumsum(masses)
    return np.where(whole <= excess, 0.0, np.minimum(masses, whole - excess))


def _with_floor(losses: Floats, masses: Floats) -> tuple[Floats, Floats]:
    """With the least losses raised to one of them, or to 0, until Q has at most one."""
    if not losses.size:
        return np.zeros(1), np.zeros(1)
    with np.errstate(over="ignore"):
        of_q = masses * np.exp(-losses)
        above = np.append(np.cumsum(of_q[::-1])[::-1], 0.0)  # Q of each loss and of all larger ones
        floors = np.where(losses < 0, losses, 0.0)
        whole = np.cumsum(masses) * np.exp(-floors) + above[1:]  # Q, where all up to one are raised to it
    fitting = np.flatnonzero((whole * (1 + _UP) <= 1) & (losses < 0))
    least = losses[fitting[0]] if fitting.size else 0.0
    distinct, where = np.unique(np.maximum(losses, least), return_inverse=True)
    return distinct, np.bincount(where, masses, distinct.size).astype(np.float64)
