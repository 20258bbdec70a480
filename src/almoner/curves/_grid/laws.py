"""One round's privacy loss as a finite law that is provably worse (or better) than the true one.

Names and symbols
    P, Q      the round's output with and without the person
    loss      log(dP/dQ), nats
    z         relative noise, sigma over the person's norm
    q         sampling rate
    ceiling   P-mass (and Q-mass) whose loss we call infinite: added to delta once for each round
    error     ξ of the proof: bound on the relative error of every mass, and on the absolute error of every loss
    tilt      t >= 0; a tilted law holds the masses times exp(tilt * loss - scale), where scale makes them add up to
              one. The upper tail of the loss is in its middle

*Worse* (pessimistic) and *better* (optimistic) laws are the points of ``curves._connect_the_dots``. Both hold for the
two directions at once.

Source: theory 7.2; docs/proofs/losses.md, sections 1, 2 and 7.
"""

from dataclasses import dataclass
from functools import lru_cache
from math import fsum, inf, log

import numpy as np
from scipy.special import ndtr

from almoner import mechanisms
from almoner.curves._grid import connect_the_dots as dots
from almoner.curves._grid import discrete, known_pairs
from almoner.curves._grid.connect_the_dots import ULP, Floats
from almoner.errors import Unsupported

SMALLEST_NOISE = 0.02  # relative noise; the loss of a smaller one counts as infinite
LARGEST_NOISE = 1e100  # a larger one counts as this in a worse law, and has no better law
LARGEST_EPSILON = 500.0  # largest epsilon of a Laplace or pure round; the loss of a larger one counts as infinite
CELL_WIDTH = 0.05  # width of a cell in standard deviations of the noise
FINE_PARTS = 5  # parts of each cell, where few rounds are composed and the shape of each is seen
REACH = 9.6  # standard deviations kept on either side: 5e-22 is left outside
FAR_REACH = 12.5  # the same of a far law: 4e-36 is left outside
MOST_POINTS = 4096  # most points of a dominating pair
COMPUTED_POINTS = 512  # most points of a computed pair, each in parts
SMALLEST_MASS = 1e-290  # smallest mass of a tilted law


@dataclass(frozen=True, slots=True, eq=False)
class Law:
    """A privacy loss with finitely many values, seen in one direction; symbols as in the module's table. Public."""

    losses: Floats
    masses: Floats  # they add up to one; the ceiling comes besides
    ceiling: float
    error: float
    mean: float
    variance: float
    tilt: float = 0.0
    scale: float = 0.0
    loss_errors: Floats | None = None  # bound on the error of each loss, where one below ``error`` is known


@dataclass(frozen=True, slots=True)
class Normal:
    """The loss of a Gaussian mechanism, normal with mean mu²/2 and variance mu²: exact in closed form, also tilted."""

    variance: float
    tilt: float = 0.0

    ceiling = 0.0
    error = 4 * ULP

    @property
    def mean(self) -> float:
        """mu²/2, and what the tilt adds."""
        return self.variance / 2 + self.tilt * self.variance

    @property
    def scale(self) -> float:
        """Logarithm of the moment generating function at the tilt."""
        return self.variance * (self.tilt + self.tilt**2) / 2


def _moments(losses: Floats, masses: Floats) -> tuple[float, float]:
    mean = fsum((masses * losses).tolist())
    return mean, fsum((masses * (losses - mean) ** 2).tolist())


def _normalised(losses: Floats, masses: Floats, ceiling: float, error: float, loss_errors: Floats | None = None) -> Law:
    """A law from raw masses: empty points dropped, masses made to add up to one (section 1 of the proof)."""
    used = masses > 0
    losses, masses = losses[used], masses[used]
    masses = masses / fsum(masses.tolist())
    doubts = None if loss_errors is None else loss_errors[used]
    return Law(losses, masses, ceiling, error + 4 * ULP, *_moments(losses, masses), loss_errors=doubts)


@lru_cache(maxsize=8192)
def tilted(law: Law | Normal, tilt: float, *, lower: bool = False) -> Law | Normal:
    """The law under which a mass counts exp(tilt * loss) times, and the scale that takes it back.

    Guarantee: each mass of the law given is exp(scale - tilt * loss) times that returned, up to the error returned; a
        mass that would be too small for a float is larger (with lower, left out).
    Source: docs/proofs/losses.md, section 7.
    """
    if isinstance(law, Normal):
        return Normal(law.variance, tilt)
    exponents = tilt * (law.losses - law.mean) + np.log(law.masses)
    top = float(exponents.max())
    masses = np.exp(np.maximum(exponents - top, -710.0))
    large = masses > SMALLEST_MASS
    sizes = np.abs(tilt * law.losses[large]) + np.abs(exponents[large]) + 2 * tilt * abs(law.mean) + abs(top)
    masses = np.where(large, masses, 0.0 if lower else SMALLEST_MASS)
    used = masses > 0
    losses, masses = law.losses[used], masses[used]
    total = fsum(masses.tolist())
    masses = masses / total
    scale = top + log(total) + tilt * law.mean
    error = law.error + 4 * ULP * (16 + float(sizes.max()) + abs(scale))
    return Law(losses, masses, law.ceiling, error, *_moments(losses, masses), tilt, scale)


def _both_directions(
    losses: Floats,
    p: Floats,
    q: Floats,
    error: float,
    ceilings: tuple[float, float] = (0.0, 0.0),
    loss_errors: Floats | None = None,
) -> tuple[Law, Law]:
    """Return the pair as seen from "remove" and as seen from "add"."""
    remove = _normalised(losses, p, ceilings[0], error, loss_errors)
    return remove, _normalised(-losses, q, ceilings[1], error, loss_errors)


def _sampled_gaussian(z: float, rate: float, lower: bool, parts: int, reach: float) -> tuple[Law, Law]:
    """(1-q) N(0, z²) + q N(1, z²) against N(0, z²); theory 2.6."""
    width = min(CELL_WIDTH * z, z * z / 2) / parts
    edges = known_pairs.irregular(-reach * z, 1 + reach * z, int(np.ceil((1 + 2 * reach * z) / width)))
    pair = dots.gaussian_merged(edges, z) if lower else dots.gaussian(edges, z)
    losses, p, q, ceilings = dots.sampled_losses(pair.log_ratios, rate), pair.p, pair.q, (0.0, 0.0)
    if not lower:  # both tails stay on the outermost edges; losses beyond these are the ceilings
        low, high = edges[0] / z, edges[-1] / z
        p[0], p[-1] = p[0] + ndtr(low - 1 / z), p[-1] + ndtr(1 / z - high)
        q[0], q[-1] = q[0] + ndtr(low), q[-1] + ndtr(-high)
        beyond = (1 - rate) * ndtr(-high) + rate * ndtr(1 / z - high), ndtr(low)
        ceilings = 1.001 * beyond[0] + 1e-300, 1.001 * beyond[1] + 1e-300  # masses that underflow are among them
    doubts = _sampled_loss_errors(losses, pair.log_ratios, rate, pair.error)
    return _both_directions(losses, (1 - rate) * q + rate * p, q, pair.error, ceilings, doubts)


def _sampled_loss_errors(losses: Floats, log_ratios: Floats, rate: float, error: float) -> Floats:
    """Errors of log(1 - rate + rate exp(r)): that of r, which is relative, times the derivative; and rounding."""
    weight = rate * np.exp(np.minimum(log_ratios - losses, 0.0))  # the derivative in r, at most one
    rounding = np.where((losses < -0.25) | (losses > 1.0), 1 + np.abs(losses) + np.abs(log_ratios), np.abs(losses))
    return np.asarray(1.01 * np.minimum(weight, 1.0) * np.abs(log_ratios) * error + 16 * ULP * rounding)


def _laplace(epsilon: float, lower: bool, parts: int) -> tuple[Law, Law]:
    cells = parts * max(64, int(np.ceil(20 * epsilon)))
    pair = dots.laplace_merged(epsilon, cells) if lower else dots.laplace(epsilon, cells)
    return _both_directions(pair.log_ratios, pair.p, pair.q, pair.error)


def _randomized_response(epsilon: float, delta: float) -> tuple[Law, Law]:
    """Randomised response, which dominates every epsilon-DP mechanism; with probability delta it reveals all."""
    pair = dots.two_points(-epsilon, epsilon)
    return _both_directions(pair.log_ratios, pair.p, pair.q, pair.error, (delta, delta))


def _own_pair(mechanism: mechanisms.Mechanism, lower: bool, parts: int) -> tuple[Law, Law] | None:
    """The pair itself, on fewer points if it has very many; lower: the finite losses alone, as they were given."""
    laws = []
    most = MOST_POINTS if isinstance(mechanism, mechanisms.DominatingPair) else COMPUTED_POINTS * parts
    for one in discrete.directions(mechanism, lower=lower):
        if not len(one.losses):
            return None
        if lower:
            laws.append(_normalised(one.losses - one.raised, one.masses, 0.0, one.error))
        else:
            fewer = discrete.coarse(one, most)
            laws.append(_normalised(fewer.losses, fewer.masses, fewer.leak, fewer.error))
    return laws[0], laws[1]


@lru_cache(maxsize=4096)
def law(
    mechanism: mechanisms.Mechanism, *, lower: bool = False, fine: bool = False, points: bool = False, far: bool = False
) -> tuple[Law | Normal, Law | Normal] | None:
    """The losses of one round in the directions "remove" and "add"; None where the loss counts as infinite.

    A fine law has more values, for few rounds; with points a Gaussian round has some too, and not a normal loss; a far
    law has more of its tails.

    Guarantee: every composition of the pairs returned has, at every epsilon, a delta not below (with lower, not
        above) that of the true rounds, once error and ceiling are charged as in docs/proofs/losses.md, section 1.
    Source: theory 7.2; Doroshenko et al. (2022), Theorem 3.1; Kairouz, Oh & Viswanath (2015) for pure rounds.
    """
    parts = FINE_PARTS if fine else 1
    match mechanism:
        case mechanisms.Gaussian(sigma, sensitivity) | mechanisms.SampledGaussian(sigma, sensitivity, 1) if not points:
            normal = Normal((sensitivity / sigma) ** 2)
            return (normal, normal) if normal.variance < inf else None
        case mechanisms.Gaussian(sigma, sensitivity):
            return law(mechanisms.SampledGaussian(sigma, sensitivity, 1), lower=lower, fine=fine, points=True, far=far)
        case mechanisms.SampledGaussian(sigma, sensitivity, sample_rate):
            z = sigma / sensitivity if lower else min(sigma / sensitivity, LARGEST_NOISE)
            within = SMALLEST_NOISE <= z <= LARGEST_NOISE
            reach = FAR_REACH if far else REACH
            return _sampled_gaussian(z, float(sample_rate), lower, parts, reach) if within else None
        case mechanisms.Laplace(scale, sensitivity):
            return _laplace(sensitivity / scale, lower, parts) if sensitivity / scale <= LARGEST_EPSILON else None
        case mechanisms.RandomizedResponse(epsilon) | mechanisms.Pure(epsilon):
            return _randomized_response(epsilon, 0.0) if epsilon <= LARGEST_EPSILON else None
        case mechanisms.Approximate(epsilon, delta):
            return _randomized_response(epsilon, 0.0 if lower else delta) if epsilon <= LARGEST_EPSILON else None
        case mechanisms.Paired() | mechanisms.DiscreteGaussian():
            return _own_pair(mechanism, lower, parts)
    raise Unsupported(f"{type(mechanism).__name__} has no privacy loss distribution here; use filters.Renyi")
