"""Choose where to clip, from a noisy number of people in each bucket of lengths: bias against noise.

How many people are longer than x is modelled, from a bucket on that is well above the noise, as
people * 2^(-slope * d - bend * d^2), where d is the number of doublings. People, slope and bend have a prior and a
likelihood, and the clip minimises the posterior mean of the logarithm of the squared error: bias squared, if all that
is clipped points the same way, plus the variance of the noise. The model only serves the choice: no guarantee rests
on it.
"""

from collections.abc import Sequence
from math import log

import numpy as np
import numpy.typing as npt

__all__ = ["best_clip"]

Floats = npt.NDArray[np.float64]

_SURE = 3.0  # standard errors
_TOP = 0.2  # the model begins where at most this share of the people is longer
_SLOPE, _SLOPE_SPREAD = 1.5 / log(2), 0.6 / log(2)
_LEAST_BEND = 0.02
_NOBODY = 0.5  # fewer people than this are none
_FINE = 8  # clips tried for each doubling
_LIKELY = 400


def best_clip(counts: Sequence[float], edges: Sequence[float], standard_error: float, noise: float) -> float | None:
    """The clip with the least expected squared error, by the model above.

    Args:
        counts: noisy, of people in each bucket of lengths.
        edges: of the buckets, increasing, each a fixed power of two above the one before.
        standard_error: of each count.
        noise: standard deviation of the answer's noise, all its numbers together, for a clip of 1.

    Returns:
        None where the counts are all within their noise.
    """
    people, doublings = np.asarray(counts, float), np.log2(np.asarray(edges, float))
    longer = np.cumsum(people[::-1])[::-1]
    unsure = standard_error * np.sqrt(np.arange(len(people), 0, -1))
    sure = np.flatnonzero(longer > _SURE * unsure)
    if not len(sure):
        return None
    tops = sure[longer[sure] >= _TOP * longer[sure[0]]]
    start = int(min(tops[-1] if len(tops) else sure[-1], len(people) - 4))
    clips = 2.0 ** np.arange(doublings[start], doublings[-1] + 1e-9, 1 / _FINE)
    tails, weights = _tails(people[start:], doublings[start:], standard_error, float(longer[start]), np.log2(clips))
    areas = (tails[:, :-1] + tails[:, 1:]) / 2 * np.diff(clips)
    bias = np.hstack([np.cumsum(areas[:, ::-1], axis=1)[:, ::-1], np.zeros((len(tails), 1))])
    errors = np.log(bias**2 + (noise * clips) ** 2)
    return float(clips[np.argmin(weights @ errors)])


def _tails(
    counts: Floats, doublings: Floats, standard_error: float, longest: float, at: Floats
) -> tuple[Floats, Floats]:
    """(How many people are longer than each length ``at``, by each likely model; the models' weights)."""
    slopes, bends = (
        each.ravel() for each in np.meshgrid(np.linspace(0.4, 6, 22), np.geomspace(_LEAST_BEND, 40, 20), indexing="ij")
    )
    reach = 0.3 if longest > 20 * standard_error else 0.7
    sizes = max(longest, 1.0) * np.exp(np.linspace(-reach, reach, 11))

    def shape(lengths: Floats) -> Floats:
        away = lengths - doublings[0]
        return np.asarray(2.0 ** -(slopes[:, None] * away + bends[:, None] * away**2))

    shares = -np.diff(shape(doublings), axis=1)
    prior = -(((slopes - _SLOPE) / _SLOPE_SPREAD) ** 2) / 2
    likelihoods = np.empty((len(sizes), len(slopes)))
    for place, size in enumerate(sizes):
        mean = size * shares
        variance = standard_error**2 + mean + (0.05 * mean) ** 2
        likelihoods[place] = prior - ((counts - mean) ** 2 / variance + np.log(variance)).sum(axis=1) / 2
    likely = np.argsort(-likelihoods, axis=None)[:_LIKELY]
    size, model = np.unravel_index(likely, likelihoods.shape)
    weights = np.exp(likelihoods[size, model] - likelihoods.max())
    tails = sizes[size][:, None] * shape(at)[model]
    return np.where(tails < _NOBODY, 0.0, tails), weights / weights.sum()
