"""Put continuous privacy losses on finitely many points, pessimistically or optimistically.

Names and symbols
    P, Q         two laws of an outcome x, whose log likelihood ratio log P/Q is linear in x
    slope        of log P/Q in x: 1/z² for N(1, z²) against N(0, z²), 1 for Laplace (x is the loss itself)
    edges, cell  increasing outcomes x, and what lies between two neighbouring ones
    z, eps       noise of the Gaussian pair; shift of the Laplace pair in units of its scale
    error        bound on the relative error of every mass, and on the error of every log ratio l (absolute; relative
                 too where the pair is Gaussian, or has two points)

*Pessimistic* ("connect the dots"): the mass of a cell is moved to its two ends so that its P-mass and its Q-mass both
stay what they were. P/Q is linear in exp(slope x), so the share of each x that goes to the upper end is
expm1(slope (x - a)) / expm1(slope (b - a)) under Q, and the same with -slope under P. *Optimistic*: a cell becomes one
point. Integrals over Gaussian cells are sums of eight Gauss-Legendre terms, all positive: nothing cancels. P-masses are
sums of their own: far out, Q-masses underflow.

Source: docs/proofs/losses.md, section 1; docs/proofs/residue-filter.md, section 4; Doroshenko, Ghazi, Kamath, Kumar &
Manurangsi (2022), https://arxiv.org/abs/2207.04380, Theorem 3.1
"""

from dataclasses import dataclass
from math import exp, expm1, log, pi, sqrt, tanh

import numpy as np
from numpy.polynomial.legendre import leggauss
from numpy.typing import NDArray

Floats = NDArray[np.float64]

ULP = 2.0**-52
NODES, WEIGHTS = (np.asarray(a) for a in leggauss(8))
_LARGEST_EXPONENT = 700.0  # largest exponent of which exp is a float


@dataclass(frozen=True, slots=True, eq=False)
class Dots:
    """Points of log ratio log P/Q, with their masses under P and under Q; ``error`` as in the module's table."""

    log_ratios: Floats
    p: Floats
    q: Floats
    error: float


def sampled_losses(log_ratios: Floats, rate: float) -> Floats:
    """log(1 - rate + rate P/Q): the loss of a sampled round, to full accuracy near zero and far out."""
    if rate == 1:
        return log_ratios
    with np.errstate(divide="ignore"):
        excess = rate * np.expm1(np.minimum(log_ratios, _LARGEST_EXPONENT))
        low = np.log((1 - rate) + rate * np.exp(np.minimum(log_ratios, 0.0)))
    above = np.maximum(log_ratios, _LARGEST_EXPONENT)
    high = log(rate) + above + np.log1p((1 - rate) / rate * np.exp(-above))
    middle = np.log1p(np.maximum(excess, -0.5))
    return np.where(excess < -0.5, low, np.where(log_ratios > _LARGEST_EXPONENT, high, middle))


def gaussian(edges: Floats, z: float) -> Dots:
    """N(1, z²) against N(0, z²) between the edges, on the edges; pessimistic. The caller adds the two tails."""
    half, _, p, q = _gaussian_cells(edges, z)
    from_below, from_above, slope = half * (1 + NODES), half * (1 - NODES), 1 / z**2
    p, q = (
        _to_ends(
            masses * np.expm1(up * from_below) / np.expm1(up * 2 * half),
            masses * np.expm1(-up * from_above) / np.expm1(-up * 2 * half),
        )
        for masses, up in ((p, -slope), (q, slope))
    )
    return Dots((2 * edges - 1) / (2 * z * z), p, q, _gaussian_error(edges, z))


def gaussian_merged(edges: Floats, z: float) -> Dots:
    """N(1, z²) against N(0, z²) between the edges, one point for each cell; optimistic where the tails are left out."""
    half, points, p, q = _gaussian_cells(edges, z)
    middle = (edges[:-1] + half[:, 0])[:, None]
    # densities relative to those at the middle of the cell: neither sum underflows
    p_shape, q_shape = (
        np.exp(-(points - middle) * (points + middle - 2 * mean) / (2 * z * z)) @ WEIGHTS for mean in (1, 0)
    )
    log_ratios = (2 * middle[:, 0] - 1) / (2 * z * z) + np.log(p_shape / q_shape)
    return Dots(log_ratios, p.sum(axis=1), q.sum(axis=1), _gaussian_error(edges, z))


def _gaussian_cells(edges: Floats, z: float) -> tuple[Floats, Floats, Floats, Floats]:
    """Half the cells' widths (cells, 1); Gauss-Legendre points and their masses under P and Q (cells, 8)."""
    half = np.diff(edges)[:, None] / 2
    points = edges[:-1, None] + half * (1 + NODES)
    p, q = (half * WEIGHTS * np.exp(-(((points - mean) / z) ** 2) / 2) / (z * sqrt(2 * pi)) for mean in (1, 0))
    return half, points, p, q


def _gaussian_error(edges: Floats, z: float) -> float:
    reach = max(-float(edges[0]), float(edges[-1]) - 1) / z
    return 64 * ULP * (1 + (1 + 2 * reach * z) / z**2) + 32 * ULP * reach**2


def _to_ends(upper: Floats, lower: Floats) -> Floats:
    """Masses of the edges, given what each point of each cell sends to the cell's upper and lower end."""
    masses = np.zeros(len(upper) + 1)
    masses[1:] += upper.sum(axis=1)
    masses[:-1] += lower.sum(axis=1)
    return masses


def laplace(eps: float, cells: int) -> Dots:
    """Laplace noise against itself moved by eps scales (theory 2.2): two atoms and a density between; pessimistic.

    A cell of width h gives to an end l the P-mass exp((l - eps) / 2) tanh(h / 4) / 2. Q is the mirror image of P.
    """
    losses = np.linspace(-eps, eps, cells + 1)
    p = np.exp((losses - eps) / 2) * tanh(eps / (2 * cells))
    p[0] = p[0] / 2 + exp(-eps) / 2
    p[-1] = p[-1] / 2 + 0.5
    return Dots(losses, p, p[::-1], 64 * ULP * (1 + eps))


def laplace_merged(eps: float, cells: int) -> Dots:
    """Optimistic twin of ``laplace``: the log ratio of a whole cell is the one in its middle."""
    edges = np.linspace(-eps, eps, cells + 1)
    p = np.exp((edges[1:] - eps) / 2) * -expm1(-eps / cells) / 2
    p = np.concatenate([[exp(-eps) / 2], p, [0.5]])
    losses = np.concatenate([[-eps], (edges[1:] + edges[:-1]) / 2, [eps]])
    return Dots(losses, p, p[::-1], 64 * ULP * (1 + eps))


def two_points(low: float, high: float) -> Dots:
    """All losses in [low, high], low <= 0 <= high: the two ends' masses follow from both laws having mass one."""
    if low == high:
        return Dots(np.zeros(1), np.ones(1), np.ones(1), 16 * ULP)
    up, down = expm1(low) / expm1(low - high), expm1(-high) / expm1(low - high)  # P(high) and Q(low)
    return Dots(np.array([low, high]), np.array([exp(low) * down, up]), np.array([down, exp(-high) * up]), 16 * ULP)
