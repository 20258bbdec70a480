"""Dominating pairs: the worst that one round of a mechanism can do, as a few points of privacy loss.

Names and symbols
    P, Q      laws of the output with and without one person (or the other way round)
    loss      log P/Q of an output, nats
    mass      probability of the loss under P
    leak      mass under P of a loss of plus infinity
    z         relative noise of a sampled Gaussian, sigma over sensitivity

A continuous loss is put on points pessimistically (``curves._connect_the_dots``). That makes the curve of hockey-stick
divergences larger everywhere, never smaller.

Source: docs/proofs/residue-filter.md, section 4; theory.md statements 2.3 to 2.6 and 7.2; Zhu, Dong & Wang (2022),
https://arxiv.org/abs/2106.08567; Doroshenko et al. (2022), https://arxiv.org/abs/2207.04380
"""

from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from scipy.special import ndtr

from almoner import mechanisms
from almoner.curves._grid import connect_the_dots as dots
from almoner.curves._grid import discrete
from almoner.curves._grid.connect_the_dots import Floats
from almoner.errors import Unsupported

ROUND_UP = 1.0 + 2.0**-48  # covers the rounding of a few operations
LARGEST_EPSILON = 100.0  # from this epsilon on a mechanism counts as revealing everything
SMALLEST_NOISE = 0.05  # a sampled Gaussian of less relative noise counts as revealing all people in the sample
MOST_POINTS = 256  # of a dominating pair of the user's own
LARGEST_NOISE = 1e6  # more relative noise counts as this much


@dataclass(frozen=True, slots=True, eq=False)
class Pair:
    """One ordered dominating pair. Every field is public and rounded up, so the masses may add up to just above one."""

    losses: Floats  # (k,) nats
    masses: Floats  # (k,) under P
    leak: float = 0.0  # mass under P of an infinite loss

    def delta(self, *, epsilon: float) -> float:
        """The hockey-stick divergence at e^epsilon of this pair.

        Guarantee: at least the divergence of the mechanism that the pair was made for, up to rounding.
        Source: docs/proofs/residue-filter.md, section 4.
        """
        return float(np.sum(self.masses * -np.expm1(np.minimum(epsilon - self.losses, 0.0)))) + self.leak


_REVEALS_ALL = Pair(np.zeros(1), np.zeros(1), 1.0)


def of(mechanism: mechanisms.Mechanism, *, cut: float) -> tuple[Pair, ...]:
    """Pairs of which one dominates, for every data set and both directions. Add the mechanism's own delta yourself.

    Cutting off a tail makes a leak of at most ``cut``.

    Guarantee: for every two neighbouring data sets, in either order, some pair's curve is at or above the
    mechanism's (for an approximate mechanism: above the curve less its delta; for a dominating pair: the curve that
    it has where it does not fail).
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
        case mechanisms.Paired() | mechanisms.DiscreteGaussian():
            remove, add = discrete.directions(mechanism)
            kept = isinstance(mechanism, mechanisms.DiscreteGaussian)  # its failures are in no other price
            return _own(remove, kept * remove.leak), _own(add, kept * add.leak)
    raise Unsupported(f"no dominating pair is known for {type(mechanism).__name__}")


def _own(one: discrete.Direction, leak: float) -> Pair:
    """An ordered pair given as a list, with these failures, on so few points that it is certified quickly."""
    if not len(one.losses):
        return _REVEALS_ALL
    fewer = discrete.coarse(one, MOST_POINTS)
    losses = np.maximum(fewer.losses, -LARGEST_EPSILON) + fewer.error
    masses, large = fewer.masses * (1 + fewer.error), losses > LARGEST_EPSILON
    return Pair(losses[~large], masses[~large], (leak + float(masses[large].sum())) * ROUND_UP)


def randomized_response(epsilon: float) -> tuple[Pair, ...]:
    """Every epsilon-DP mechanism.

    Guarantee: dominates every epsilon-DP mechanism in both directions.
    Source: theory.md statement 2.3; Kairouz, Oh & Viswanath (2015), Theorem 3.
    """
    return (_two_points(-epsilon, epsilon),) if epsilon < LARGEST_EPSILON else (_REVEALS_ALL,)


def _two_points(low: float, high: float) -> Pair:
    pair = dots.two_points(low, high)
    return _rounded(pair.log_ratios, pair.p, pair.error)


def _rounded(losses: Floats, masses: Floats, error: float, leak: float = 0.0) -> Pair:
    """A pair whose numbers are rounded up by their relative error: that raises its curve."""
    return Pair(losses * (1 + error * np.sign(losses)), masses * (1 + error), leak * (1 + error))


def laplace(epsilon: float, *, cells: int = 32) -> tuple[Pair, ...]:
    """Laplace noise on a vector sum whose L1 sensitivity is epsilon times the scale.

    Guarantee: dominates the mechanism in both directions (the pair is its own mirror image).
    Source: docs/proofs/residue-filter.md, section 4.3; theory.md statement 2.2.
    """
    if epsilon > LARGEST_EPSILON:
        return (_REVEALS_ALL,)
    pair = dots.laplace(epsilon, cells)
    return (_rounded(pair.log_ratios, pair.p, pair.error),)


def exponential(eta: float) -> tuple[Pair, ...]:
    """Every mechanism of bounded range eta: its losses lie in [t - eta, t] for some t in [0, eta].

    The t's are cut into cells, narrow in the middle, where the variance is largest: 2 % above eta**2 / 4 at most.

    Guarantee: for every two neighbouring data sets one of the pairs dominates; the mirror images are among them.
    Source: docs/proofs/residue-filter.md, section 4.4; Dong, Durfee & Rogers (2020), https://arxiv.org/abs/1909.13830
    """
    if eta > LARGEST_EPSILON:
        return (_REVEALS_ALL,)
    edges = [0.0]
    while edges[-1] < 0.5:
        edges.append(edges[-1] + 0.01 + 0.08 * (0.5 - edges[-1]))
    cells = list(pairwise(edges))
    below_half = [_two_points(eta * (low - 1), eta * high) for low, high in cells]
    return (*below_half, *(_two_points(-eta * high, eta * (1 - low)) for low, high in cells))


def sampled_gaussian(sample_rate: float, noise: float, *, cut: float) -> tuple[Pair, ...]:
    """The Poisson-sampled Gaussian sum: (1-q) N(0, z^2) + q N(1, z^2) against N(0, z^2), and the other way round.

    Guarantee: the first pair dominates when the person's data are in P, the second when they are in Q.
    Source: docs/proofs/residue-filter.md, section 4.5; theory.md statement 2.6.
    """
    if noise < SMALLEST_NOISE:
        not_sampled = np.log1p(np.array([-sample_rate]))
        removed = _rounded(not_sampled, np.array([1 - sample_rate]), 16 * dots.ULP, sample_rate)
        return removed, _rounded(-not_sampled, np.array([1.0]), 16 * dots.ULP)
    pair, leak = _gaussian(min(noise, LARGEST_NOISE), cut=cut / sample_rate)
    losses = dots.sampled_losses(pair.log_ratios, sample_rate)
    masses = (1 - sample_rate) * pair.q + sample_rate * pair.p
    return _rounded(losses, masses, pair.error, leak * sample_rate), _rounded(-losses[::-1], pair.q[::-1], pair.error)


def _gaussian(noise: float, *, cut: float) -> tuple[dots.Dots, float]:
    """N(1, z^2) against N(0, z^2) on points, and the leak: the mass of N(1, z^2) above the last point.

    The lowest cell reaches down to P/Q = 0. The mass of N(0, z^2) above the last point stays on that point.
    """
    step = 0.1 * min(1.0, max(noise, 0.25))  # in standard deviations
    top = 1 / noise
    while ndtr(1 / noise - top) > cut:
        top += step
    edges = noise * np.linspace(-6.0, top, round((top + 6.0) / step) + 1)
    inner = dots.gaussian(edges, noise)
    low, high = edges[0] / noise, edges[-1] / noise
    p, q = np.append(0.0, inner.p), np.append(0.0, inner.q)
    p[1] += ndtr(low - 1 / noise)
    to_edge = ndtr(low - 1 / noise) * np.exp(-inner.log_ratios[0])
    q[0], q[1] = ndtr(low) * (1 + inner.error) - to_edge * (1 - inner.error), q[1] + to_edge
    q[-1] += ndtr(-high)
    return dots.Dots(np.append(-np.inf, inner.log_ratios), p, q, inner.error), float(ndtr(1 / noise - high))
