"""One round's privacy loss as a finite law that is provably worse (or better) than the true one.

Names and symbols
    P, Q      the round's output with and without the person
    loss      ℓ  log(dP/dQ), nats; at a place where it is below lower or above upper it is moved to the ends of its cell
    z         relative noise, sigma over the person's norm
    q         sampling rate
    ceiling   P-mass (and Q-mass) whose loss we call infinite
    xi        ξ  bound on the relative error of every mass, and on the absolute error of every loss
    tilt      t >= 0; a tilted law holds the masses times exp(tilt * loss - scale), its scale being such that they add
              up to one. What is far in the upper tail is in the middle then

*Worse* (pessimistic): the line of outcomes is cut into cells, and the mass of a cell is moved to the cell's two ends
so that both its P-mass and its Q-mass stay what they were ("connect the dots"). *Better* (optimistic): a cell's
outcomes are told apart no more. Both hold for the two directions at once. Integrals over cells are sums of eight
Gauss-Legendre terms, all positive: nothing cancels.

Source: theory 7.2; Doroshenko, Ghazi, Kamath, Kumar & Manurangsi (2022), https://arxiv.org/abs/2207.04380;
docs/proofs/losses.md, sections 1, 2 and 7.
"""

from dataclasses import dataclass
from functools import lru_cache
from math import exp, fsum, inf, log

import numpy as np
from numpy.polynomial.legendre import leggauss
from numpy.typing import NDArray
from scipy.special import ndtr

from bursar import mechanisms
from bursar.errors import Unsupported

__all__ = ["SMALLEST", "Law", "Normal", "law", "split", "tilted"]

Floats = NDArray[np.float64]

SMALLEST = 0.02
"""The least relative noise that is discretised; a smaller one has infinite loss."""

_CELL = 0.05  # width of a cell, in standard deviations of the noise
_FINER = 5  # how many cells a cell is cut into where few rounds are composed and each one's shape is seen
_LEAST = 1e-290  # no mass of a tilted law is below it
_REACH = 9.6  # standard deviations kept on either side: 4e-22 is left outside
_ULP = 2.0**-52
_POINTS, _WEIGHTS = (np.asarray(a) for a in leggauss(8))


@dataclass(frozen=True, slots=True, eq=False)
class Law:
    """A privacy loss with finitely many values, seen in one direction. Every field is public.

    masses add up to one; ceiling is what was lost to infinity beside them; xi, tilt and scale as in the module's table.
    """

    losses: Floats
    masses: Floats
    ceiling: float
    xi: float
    mean: float
    variance: float
    tilt: float = 0.0
    scale: float = 0.0

    @property
    def size(self) -> int:
        """How many values there are."""
        return len(self.losses)


@dataclass(frozen=True, slots=True)
class Normal:
    """The loss of a Gaussian mechanism, normal with mean mu²/2 and variance mu²: exact in closed form, also tilted."""

    square: float
    tilt: float = 0.0

    ceiling = 0.0
    xi = 4 * _ULP

    @property
    def mean(self) -> float:
        """mu squared over two, and what the tilt adds."""
        return self.square / 2 + self.tilt * self.square

    @property
    def scale(self) -> float:
        """Logarithm of the moment generating function at the tilt."""
        return self.square * (self.tilt + self.tilt**2) / 2

    @property
    def variance(self) -> float:
        """mu squared."""
        return self.square


def _finished(losses: Floats, masses: Floats, ceiling: float, xi: float) -> Law:
    """A law from raw masses: empty places dropped, masses made to add up to one (section 1 of the proof)."""
    kept = masses > 0
    losses, masses = losses[kept], masses[kept]
    masses = masses / fsum(masses.tolist())
    mean = fsum((masses * losses).tolist())
    return Law(losses, masses, ceiling, xi + 4 * _ULP, mean, fsum((masses * (losses - mean) ** 2).tolist()))


@lru_cache(maxsize=8192)
def tilted(law: Law | Normal, tilt: float, *, lower: bool = False) -> Law | Normal:
    """The law under which a mass counts exp(tilt * loss) times, and the scale that takes it back.

    Guarantee: each mass of the law given is exp(scale - tilt * loss) times that returned, up to the xi returned; a
        mass that would be too small for a float is larger (with lower, left out).
    Source: docs/proofs/losses.md, section 7.
    """
    if isinstance(law, Normal):
        return Normal(law.square, tilt)
    exponents = tilt * (law.losses - law.mean) + np.log(law.masses)
    top = float(exponents.max())
    masses = np.exp(np.maximum(exponents - top, -710.0))
    kept = masses > _LEAST
    sizes = np.abs(tilt * law.losses[kept]) + np.abs(exponents[kept]) + 2 * tilt * abs(law.mean) + abs(top)
    masses = np.where(kept, masses, 0.0 if lower else _LEAST)
    there = masses > 0
    losses, masses = law.losses[there], masses[there]
    total = fsum(masses.tolist())
    masses = masses / total
    mean = fsum((masses * losses).tolist())
    variance = fsum((masses * (losses - mean) ** 2).tolist())
    scale = top + log(total) + tilt * law.mean
    xi = law.xi + 4 * _ULP * (16 + float(sizes.max()) + abs(scale))
    return Law(losses, masses, law.ceiling, xi, mean, variance, tilt, scale)


def _two_ways(
    losses: Floats, with_person: Floats, without: Floats, ends: tuple[float, float], xi: float
) -> tuple[Law, Law]:
    """The same pair seen from "remove" and from "add"."""
    return _finished(losses, with_person, ends[0], xi), _finished(-losses, without, ends[1], xi)


def split(edges: Floats, slope: float) -> tuple[Floats, Floats, Floats]:
    """Points and weights in each cell, and the share of each point that goes to the cell's upper end.

    The likelihood ratio inside a cell is affine in exp(slope * x): so the shares that keep P-mass and Q-mass are.

    Returns:
        points (cells, 8); weights (cells, 8); upper (cells, 8), the share of the upper end; in [0, 1].
    """
    half = np.diff(edges)[:, None] / 2
    points = edges[:-1, None] + half * (1 + _POINTS)
    upper = np.expm1(slope * half * (1 + _POINTS)) / np.expm1(slope * 2 * half)
    return points, half * _WEIGHTS, upper


def _to_ends(inside: Floats, upper: Floats, slope: float, edges: Floats) -> Floats:
    """Masses of the edges, given the masses of the points of each cell."""
    half = np.diff(edges)[:, None] / 2
    lower = np.expm1(-slope * half * (1 - _POINTS)) / np.expm1(-slope * 2 * half)  # 1 - upper, without cancellation
    masses = np.zeros(len(edges))
    masses[1:] += (inside * upper).sum(axis=1)
    masses[:-1] += (inside * lower).sum(axis=1)
    return masses


def _sampled_gaussian(z: float, q: float, lower: bool, parts: int) -> tuple[Law, Law]:
    """(1-q) N(0, z²) + q N(1, z²) against N(0, z²); theory 2.6."""
    width = min(_CELL * z, z * z / 2) / parts
    count = int(np.ceil((1 + 2 * _REACH * z) / width))
    edges = np.linspace(-_REACH * z, 1 + _REACH * z, count + 1)
    # irregular cells: regular ones would make the loss nearly a lattice's, whose characteristic function returns to one
    inner = np.arange(1, count)
    edges[1:-1] += 0.8 * (edges[1] - edges[0]) * (inner * inner * (5**0.5 - 1) / 2 % 1 - 0.5)
    slope = 1 / z**2
    points, weights, upper = split(edges, slope)
    without = weights * np.exp(-((points / z) ** 2) / 2) / (z * np.sqrt(2 * np.pi))
    xi = 64 * _ULP * (1 + (1 + 2 * _REACH * z) * slope) + 32 * _ULP * _REACH**2
    if lower:
        return _merged(points, without, slope, q, xi)
    masses = _to_ends(without, upper, slope, edges)
    masses[0] += ndtr(edges[0] / z)  # both tails of Q sit on the last edges; their losses beyond are the ceilings
    masses[-1] += ndtr(-edges[-1] / z)
    losses = _log_ratio(edges, z, q)
    ceilings = (1 - q) * ndtr(-edges[-1] / z) + q * ndtr((1 - edges[-1]) / z), ndtr(edges[0] / z)
    return _two_ways(losses, masses * np.exp(losses), masses, (1.001 * ceilings[0], 1.001 * ceilings[1]), xi)


def _log_ratio(x: Floats, z: float, q: float) -> Floats:
    """log(1 - q + q exp((2x - 1) / (2 z²))), near zero and far out."""
    exponent = (2 * x - 1) / (2 * z * z)
    near = np.log1p(q * np.expm1(np.minimum(exponent, 1.0)))
    far = log(q) + exponent + np.log1p((1 - q) / q * np.exp(-np.maximum(exponent, 1.0)))
    return np.where(exponent <= 1.0, near, far)


def _merged(points: Floats, without: Floats, slope: float, q: float, xi: float) -> tuple[Law, Law]:
    """Cells whose outcomes are told apart no more; the tails are left out (they could only add to delta)."""
    exponent = (2 * points - 1) * slope / 2
    masses = without.sum(axis=1)
    top = exponent.max(axis=1)
    excess = (without * np.expm1(np.minimum(exponent, 1.0))).sum(axis=1) / masses
    scaled = (without * np.exp(exponent - top[:, None])).sum(axis=1) / masses
    far = log(q) + top + np.log(scaled) + np.log1p((1 - q) / q * np.exp(-np.maximum(top, 1.0)) / scaled)
    losses = np.where(top <= 1.0, np.log1p(q * excess), far)
    return _two_ways(losses, masses * np.exp(losses), masses, (0.0, 0.0), xi)


def _laplace(epsilon: float, lower: bool, parts: int) -> tuple[Law, Law]:
    """Laplace noise against itself moved by epsilon scales: two atoms and a density between; theory 2.2."""
    edges = np.linspace(-epsilon, epsilon, parts * max(64, int(np.ceil(20 * epsilon))) + 1)
    points, weights, upper = split(edges, 1.0)
    without = weights * np.exp(-(epsilon + points) / 2) / 4
    xi = 64 * _ULP * (1 + epsilon)
    atoms = np.array([0.5, exp(-epsilon) / 2])  # Q-mass of the losses -epsilon and +epsilon
    if lower:
        masses = without.sum(axis=1)
        losses = np.log((without * np.exp(points - points[:, :1])).sum(axis=1) / masses) + points[:, 0]
        losses = np.concatenate([[-epsilon], losses, [epsilon]])
        masses = np.concatenate([atoms[:1], masses, atoms[1:]])
    else:
        losses, masses = edges, _to_ends(without, upper, 1.0, edges)
        masses[[0, -1]] += atoms
    return _two_ways(losses, masses * np.exp(losses), masses, (0.0, 0.0), xi)


def _two_answers(epsilon: float, delta: float) -> tuple[Law, Law]:
    """Randomised response, which dominates every epsilon-DP mechanism; with probability delta all is told."""
    losses = np.array([-epsilon, epsilon])
    without = np.array([1.0, exp(-epsilon)]) / (1 + exp(-epsilon))
    return _two_ways(losses, without[::-1].copy(), without, (delta, delta), 16 * _ULP)


@lru_cache(maxsize=4096)
def law(
    mechanism: mechanisms.Mechanism, *, lower: bool = False, fine: bool = False
) -> tuple[Law | Normal, Law | Normal] | None:
    """The losses of one round in the directions "remove" and "add"; None where the loss counts as infinite.

    Args:
        mechanism: public.
        lower: a better law instead of a worse one.
        fine: with more values, nearer to the truth: for few rounds.

    Guarantee: every composition of the pairs returned has, at every epsilon, a delta not below (with lower, not
        above) that of the true rounds, once xi and ceiling are charged as in docs/proofs/losses.md, section 1.
    Source: theory 7.2; Doroshenko et al. (2022), Theorem 3.1; Kairouz, Oh & Viswanath (2015) for pure rounds.
    """
    parts = _FINER if fine else 1
    match mechanism:
        case mechanisms.Gaussian(sigma, sensitivity) | mechanisms.SampledGaussian(sigma, sensitivity, 1):
            normal = Normal((sensitivity / sigma) ** 2)
            return (normal, normal) if normal.square < inf else None
        case mechanisms.SampledGaussian(sigma, sensitivity, sample_rate):
            z = sigma / sensitivity
            return _sampled_gaussian(z, float(sample_rate), lower, parts) if SMALLEST <= z < inf else None
        case mechanisms.Laplace(scale, sensitivity):
            return _laplace(sensitivity / scale, lower, parts) if sensitivity / scale <= 500 else None
        case mechanisms.RandomizedResponse(epsilon) | mechanisms.Pure(epsilon):
            return _two_answers(epsilon, 0.0) if epsilon <= 500 else None
        case mechanisms.Approximate(epsilon, delta):
            return _two_answers(epsilon, 0.0 if lower else delta) if epsilon <= 500 else None
    raise Unsupported(f"{type(mechanism).__name__} has no privacy loss distribution here (theory 7.1)")
