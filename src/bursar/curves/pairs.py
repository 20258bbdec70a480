"""Dominating pairs: the worst that one round of a mechanism can do, as a few points of privacy loss.

Names and symbols
    P, Q      laws of the output with and without one person (or the other way round)
    loss      log P/Q of an output, nats
    mass      probability of the loss under P
    leak      mass under P of a loss of plus infinity
    r         likelihood ratio of N(1, z^2) against N(0, z^2)

Where a loss is continuous, it is put on points pessimistically: the mass of each cell goes to the two ends of the
cell so that the masses under P and under Q both stay what they were ("connect the dots"). That makes the curve of
hockey-stick divergences larger everywhere, never smaller.

Source: docs/proofs/residue-filter.md, section 4; theory.md statements 2.3 to 2.6 and 7.2; Zhu, Dong & Wang (2022),
https://arxiv.org/abs/2106.08567; Doroshenko et al. (2022), https://arxiv.org/abs/2207.04380
"""

from dataclasses import dataclass
from itertools import pairwise
from math import exp, expm1, inf, tanh

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtr

from bursar import mechanisms
from bursar.errors import Unsupported

__all__ = ["Pair", "exponential", "laplace", "of", "randomized_response", "sampled_gaussian"]

Floats = NDArray[np.float64]

GUARD = 2.0**-48
"""Relative error allowed to the normal distribution function at z, over 1 + z**2; tests measure it."""

ROUND_UP = 1.0 + 2.0**-48
"""Factor that covers the rounding of a few operations."""

_HOPELESS = 100.0  # from this epsilon on a mechanism counts as revealing everything
_QUIETEST = 1e6  # more relative noise counts as this much
_LOUDEST = 0.05  # from this relative noise down a sampled Gaussian counts as revealing everybody in the sample
"""Factor that covers the rounding of a few operations."""


@dataclass(frozen=True, slots=True, eq=False)
class Pair:
    """One ordered dominating pair. Every field is public and rounded up, so the masses may add up to just above one.

    Attributes:
        losses: (k,) float64, public, nats.
        masses: (k,) float64, public, under P.
        leak: public; mass under P of an infinite loss.
    """

    losses: Floats
    masses: Floats
    leak: float = 0.0

    def delta(self, *, epsilon: float) -> float:
        """The hockey-stick divergence at e^epsilon of this pair.

        Guarantee: at least the divergence of the mechanism that the pair was made for, up to rounding.
        Source: docs/proofs/residue-filter.md, section 4.
        """
        return float(np.sum(self.masses * np.maximum(0.0, -np.expm1(epsilon - self.losses)))) + self.leak


_NOTHING_HIDDEN = Pair(np.zeros(1), np.zeros(1), 1.0)


def of(mechanism: mechanisms.Mechanism, *, cut: float) -> tuple[Pair, ...]:
    """Pairs of which one dominates, for every data set and both directions. Add the mechanism's own delta yourself.

    Args:
        mechanism: randomised response, pure or approximate DP (its delta left out), Laplace, exponential, sampled
            Gaussian.
        cut: public, > 0; the largest leak that cutting off a tail may make.

    Guarantee: for every two neighbouring data sets, in either order, some pair's curve is at or above the
    mechanism's (for an approximate mechanism: above the curve less its delta).
    Source: docs/proofs/residue-filter.md, section 4.
    """
    match mechanism:
        case mechanisms.RandomizedResponse(epsilon) | mechanisms.Pure(epsilon) | mechanisms.Approximate(epsilon, _):
            return randomized_response(epsilon)
        case mechanisms.Laplace(scale, sensitivity):
            return laplace(sensitivity / scale * ROUND_UP)
        case mechanisms.Exponential(eta):
            return exponential(eta)
        case mechanisms.SampledGaussian(sigma, sensitivity, sample_rate):
            return sampled_gaussian(sample_rate, sigma / sensitivity / ROUND_UP, cut=cut)
    raise Unsupported(f"no dominating pair is known for {type(mechanism).__name__}")


def randomized_response(epsilon: float) -> tuple[Pair, ...]:
    """Every epsilon-DP mechanism.

    Guarantee: dominates every epsilon-DP mechanism in both directions.
    Source: theory.md statement 2.3; Kairouz, Oh & Viswanath (2015), Theorem 3.
    """
    return (_two_points(-epsilon, epsilon),) if epsilon < _HOPELESS else (_NOTHING_HIDDEN,)


def _two_points(low: float, high: float) -> Pair:
    """Losses low < 0 < high: their masses follow from both laws having mass one."""
    truth = -expm1(low) / -expm1(low - high)  # P(high); E[e^-loss] = 1
    lie = expm1(high) / expm1(high - low)
    return _rounded(np.array([low, high]), np.array([lie, truth]))


def _rounded(losses: Floats, masses: Floats, leak: float = 0.0) -> Pair:
    """A pair with all its numbers rounded up: that raises its curve."""
    return Pair(losses + np.abs(losses) * 2.0**-49, masses * ROUND_UP, leak * ROUND_UP)


def laplace(epsilon: float, *, cells: int = 32) -> tuple[Pair, ...]:
    """Laplace noise on a vector sum whose L1 sensitivity is epsilon times the scale.

    Guarantee: dominates the mechanism in both directions (the pair is its own mirror image).
    Source: docs/proofs/residue-filter.md, section 4.3; theory.md statement 2.2.
    """
    if epsilon > _HOPELESS:
        return (_NOTHING_HIDDEN,)
    losses = np.linspace(-epsilon, epsilon, cells + 1)
    masses = np.exp((losses - epsilon) / 2) * tanh(epsilon / (2 * cells))
    masses[0] = masses[0] / 2 + exp(-epsilon) / 2
    masses[-1] = masses[-1] / 2 + 0.5
    return (_rounded(losses, masses),)


def exponential(eta: float) -> tuple[Pair, ...]:
    """Every mechanism of bounded range eta: its losses lie in [t - eta, t] for some t in [0, eta].

    The t's are cut into cells, narrow in the middle, where the variance is largest: 2 % above eta**2 / 4 at most.

    Guarantee: for every two neighbouring data sets one of the pairs dominates; the mirror images are among them.
    Source: docs/proofs/residue-filter.md, section 4.4; Dong, Durfee & Rogers (2020), https://arxiv.org/abs/1909.13830
    """
    if eta > _HOPELESS:
        return (_NOTHING_HIDDEN,)
    ends = [0.0]
    while ends[-1] < 0.5:
        ends.append(ends[-1] + 0.01 + 0.08 * (0.5 - ends[-1]))
    cells = list(pairwise(ends))
    lower = [_two_points(eta * (low - 1), eta * high) for low, high in cells]
    return (*lower, *(_two_points(-eta * high, eta * (1 - low)) for low, high in cells))


def sampled_gaussian(sample_rate: float, noise: float, *, cut: float) -> tuple[Pair, ...]:
    """The Poisson-sampled Gaussian sum: (1-q) N(0, z^2) + q N(1, z^2) against N(0, z^2), and the other way round.

    Guarantee: the first pair dominates when the person's data are in P, the second when they are in Q.
    Source: docs/proofs/residue-filter.md, section 4.5; theory.md statement 2.6.
    """
    if noise < _LOUDEST:
        lost = np.log1p(np.array([-sample_rate]))
        return _rounded(lost, np.array([1 - sample_rate]), sample_rate), _rounded(-lost, np.array([1.0]))
    ratios, masses, leak = _gaussian_dots(noise, cut=cut / sample_rate)
    losses = np.log1p(sample_rate * (ratios - 1))
    weights = masses * (1 - sample_rate + sample_rate * ratios)
    return _rounded(losses, weights, leak * sample_rate), _rounded(-losses[::-1], masses[::-1])


def _gaussian_dots(noise: float, *, cut: float) -> tuple[Floats, Floats, float]:
    """N(1, z^2) against N(0, z^2) on points r: masses under N(0, z^2), rounded up, and the leak under N(1, z^2)."""
    shift = 1 / noise
    step = 0.1 * min(1.0, max(noise, 0.25))
    top = shift
    while ndtr(shift - top) > cut:
        top += step
    edges = np.linspace(-6.0, top, round((top + 6.0) / step) + 1)
    ratios = np.exp(shift * (edges - shift / 2))
    q_cells, q_doubts = _normal_cells(edges)
    p_cells, p_doubts = _normal_cells(edges - shift)
    points = np.append(0.0, ratios)  # the lowest cell starts at r = 0
    gaps = np.diff(points)
    upper = (p_cells[:-1] - points[:-1] * q_cells[:-1]) / gaps
    lower = (points[1:] * q_cells[:-1] - p_cells[:-1]) / gaps
    doubt = (p_doubts[:-1] + points[1:] * q_doubts[:-1]) / gaps
    masses = np.zeros_like(points)
    masses[1:] += np.maximum(upper, 0.0) + doubt
    masses[:-1] += np.maximum(lower, 0.0) + doubt
    masses[-1] += q_cells[-1] + q_doubts[-1]
    return points, masses, float(p_cells[-1] + p_doubts[-1])


def _normal_cells(edges: Floats) -> tuple[Floats, Floats]:
    """Masses of the cells between -inf, the edges and inf, and bounds on their rounding errors."""
    ends = np.concatenate(([-inf], edges, [inf]))
    low, high = ends[:-1], ends[1:]
    right = low >= 0
    sizes = np.where(right, ndtr(-low), ndtr(high))  # the larger of the two numbers that are subtracted
    cells = sizes - np.where(right, ndtr(-high), ndtr(low))
    return cells, GUARD * (1 + np.where(right, low, high) ** 2) * sizes
