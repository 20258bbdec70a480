"""Choose where to clip, from a noisy number of people in each bucket of lengths: bias against noise.

How many people are longer than x is modelled, from a bucket on that is well above the noise, as
people * 2^(-slope * d - bend * d^2), where d is the number of doublings. People, slope and bend have a prior and a
likelihood, and the clip minimises the posterior mean of the logarithm of the squared error: bias squared, if all that
is clipped points the same way, plus the variance of the noise. The model only serves the choice: no guarantee rests
on it.
"""

from collections.abc import Sequence
from functools import cache
from math import comb, log, sqrt
from statistics import NormalDist

import numpy as np
import numpy.typing as npt
from scipy.special import gammaincc

__all__ = ["best_clip"]

Floats = npt.NDArray[np.float64]

_SURE = 0.85  # of what noise alone hardly reaches, once some people stand out
_NOISE_ALONE = 1e-3
"""The probability with which noise alone passes for people: of all buckets and widths of neighbours together."""
_TOP = 0.2  # the model begins where at most this share of the people is longer
_SLOPE, _SLOPE_SPREAD = 1.5 / log(2), 0.6 / log(2)
_LEAST_BEND = 0.02
_NOBODY = 0.5  # fewer people than this count as none
_FINE = 8  # so many clips are tried for each doubling
_LIKELY = 400


def best_clip(
    counts: Sequence[float], edges: Sequence[float], standard_error: float, noise: float, *, pure: bool
) -> float | None:
    """The clip with the least expected squared error, by the model above.

    Args:
        counts: noisy, of people in each bucket of lengths.
        edges: of the buckets, increasing, each a fixed power of two above the one before.
        standard_error: of each count.
        noise: standard deviation of the answer's noise, all its numbers together, for a clip of 1.
        pure: whether the counts have Laplace noise, and not Gaussian noise.

    Returns:
        None where the counts are all within their noise: no bucket, and no 2, 4, 8, ... neighbours, stand out. If
        nobody is in any bucket, another answer has a probability of at most 0.001.
    """
    people, doublings = np.asarray(counts, float), np.log2(np.asarray(edges, float))
    top = _last_with_people(people / standard_error, pure)
    if top is None:
        return None
    longer = np.cumsum(people[top::-1])[::-1]
    least = np.array([_least_sum(terms, _NOISE_ALONE / len(people), pure) for terms in range(top + 1, 0, -1)])
    sure = np.flatnonzero(longer > _SURE * standard_error * least)
    tops = sure[longer[sure] >= _TOP * longer[sure[0]]] if len(sure) else [top]
    start = int(min(tops[-1] if len(tops) else sure[-1], len(people) - 4))
    clips = 2.0 ** np.arange(doublings[start], doublings[-1] + 1e-9, 1 / _FINE)
    left = float(people[start:].sum())
    tails, weights = _tails(people[start:], doublings[start:], standard_error, left, np.log2(clips))
    areas = (tails[:, :-1] + tails[:, 1:]) / 2 * np.diff(clips)
    bias = np.hstack([np.cumsum(areas[:, ::-1], axis=1)[:, ::-1], np.zeros((len(tails), 1))])
    errors = np.log(bias**2 + (noise * clips) ** 2)
    return float(clips[np.argmin(weights @ errors)])


def _last_with_people(counts: Floats, pure: bool) -> int | None:
    """The last bucket of those neighbours that stand out of the noise; None if none do.

    Args:
        counts: in standard errors.
        pure: whether their noise is Laplace.
    """
    widths = [2**power for power in range(len(counts).bit_length())]
    level = _NOISE_ALONE / sum(len(counts) - width + 1 for width in widths)
    sums = np.concatenate([[0.0], np.cumsum(counts)])
    last: int | None = None
    for width in widths:
        places = np.flatnonzero(sums[width:] - sums[:-width] > _least_sum(width, level, pure))
        if len(places):
            last = max(last or 0, int(places[-1]) + width - 1)
    return last


@cache
def _least_sum(terms: int, level: float, pure: bool) -> float:
    """Value that the sum of so many noises of standard deviation 1 exceeds with this probability."""
    if not pure:
        return -NormalDist().inv_cdf(level) * sqrt(terms)
    # A sum of Laplace variables of scale 1 has, above 0, the density of a mixture of Gamma(1) to Gamma(terms).
    more = np.arange(terms)
    weights = [comb(terms - 1 + each, each) * 0.5 ** (terms + each) for each in more.tolist()]
    low, high = 0.0, 100.0 * sqrt(terms)
    for _ in range(60):
        middle = (low + high) / 2
        above = float(np.dot(weights, gammaincc(terms - more, middle * sqrt(2))))
        low, high = (low, middle) if above <= level else (middle, high)
    return high


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
