"""Mechanisms whose dominating pair is known, as probabilities of finitely many outcomes under P and under Q.

Names and symbols
    p, q      probabilities of the outcomes under the first and the second law
    ratio     p/q of an outcome; of an epoch, the mean over its batches of one ratio each
    error     bound on the relative error of every probability

Source: docs/proofs/further-pairs.md
"""

from fractions import Fraction
from math import asinh, ceil, exp, expm1, floor, log, sqrt

import numpy as np
from scipy.special import betainc, ndtr

from almoner import mechanisms
from almoner.curves._grid import mixtures
from almoner.curves._grid.connect_the_dots import ULP, Floats
from almoner.curves._grid.mixtures import UP, Outcomes, reveals_all
from almoner.errors import Unsupported

Ratios = tuple[Floats, Floats, float]  # ratios, their masses under Q, and a bound on the errors of both

LATTICE_REACH = 37.0  # deviations of discrete noise on either side: less than 1e-290 is left outside
MOST_SIGMA = 1200.0  # wider discrete noise has no losses of its own here
MOST_LOUD = 300.0  # largest epsilon of a report
MOST_PEOPLE = 10**7  # more people count as so many
LEVELS = 64  # numbers of clones that are told apart
CLONE_REACH = 13.0  # deviations of the clones' kinds on either side: 4e-37 is left outside
RATIOS = 1500  # ratios of a sum of batches
MOST_MOVE = 10.0  # a louder epoch counts as revealing everything
LEAST_MOVE = 1e-7  # a quieter one counts as this
_CLOSE = 1 + 1e-9  # a sensitivity that is so close below a whole number is one


def outcomes(mechanism: mechanisms.Mechanism, *, lower: bool) -> Outcomes:
    """The pair of a mechanism that is no list of outcomes itself; Unsupported where none is known, or no better one.

    Guarantee: the pair, within the relative error returned, dominates the mechanism (with lower, the pair of the proof
        dominates it) at every real epsilon, in both orders.
    Source: docs/proofs/further-pairs.md.
    """
    match mechanism:
        case mechanisms.DiscreteGaussian():
            return _discrete_gaussian(mechanism)
        case mechanisms.RandomAllocation() | mechanisms.Shuffled() if lower:
            raise Unsupported(f"no lower bound is known for {type(mechanism).__name__}")
        case mechanisms.RandomAllocation(sigma, sensitivity, batches):
            return _epoch(sensitivity / sigma * (1 + 4 * ULP), batches)
        case mechanisms.Shuffled(epsilon, people):
            return _shuffled(epsilon, min(people, MOST_PEOPLE))
    return mixtures.outcomes(mechanism, lower=lower)


def _discrete_gaussian(mechanism: mechanisms.DiscreteGaussian) -> Outcomes:
    """Discrete noise against itself, moved by the largest whole step that one number can take."""
    sigma, most = mechanism.sigma, Fraction(mechanism.sensitivity) * Fraction(_CLOSE)
    step = max(1, floor(most)) if mechanism.dimension == 1 else int(most**2 < 2)
    if not step or sigma > MOST_SIGMA or step > MOST_SIGMA:
        raise Unsupported(
            "a DiscreteGaussian has losses of its own if dimension=1, or if its sensitivity is below sqrt(2), "
            f"with sigma and sensitivity at most {MOST_SIGMA:g}; use filters.Zcdp"
        )
    reach = ceil(LATTICE_REACH * sigma) + 1
    k = np.arange(-reach, step + reach + 1.0)
    q, p = (np.exp(-(((k - move) / sigma) ** 2) / 2) for move in (0, step))
    outside = float(ndtr(-LATTICE_REACH))  # the sum of the masses is at least sigma sqrt(2 pi), and the tail at most
    p, q = np.append(p / p.sum(), [outside, 0.0]), np.append(q / q.sum(), [0.0, outside])
    return p, q, (64 + 4 * LATTICE_REACH**2) * ULP


def _shuffled(epsilon: float, people: int) -> Outcomes:
    """Clones of a person among the others, each of one of two kinds, and the person's own report among them."""
    if epsilon > MOST_LOUD:
        return reveals_all
    found, others = [], people - 1
    mean = others * exp(-epsilon)
    spread = sqrt(mean)
    clones = np.unique(np.clip(np.round(mean + spread * np.linspace(-CLONE_REACH, 6, LEVELS)), 0, others))
    clones = np.append(0.0, clones[clones > 0])
    # fewer clones are worse: as many as lie below the next number count as this one
    fewer = betainc(others - clones[1:] + 1, clones[1:], -expm1(-epsilon)) * UP
    chances = np.diff(np.minimum(np.append(fewer, 1.0), 1.0), prepend=0.0)
    for count, chance in zip(clones.tolist(), chances.tolist(), strict=True):
        reach = CLONE_REACH * sqrt(count) / 2 + 1
        a = np.arange(max(0, floor(count / 2 - reach)), min(count, ceil(count / 2 + reach)) + 1.0)
        logs = np.append(0.0, np.cumsum(np.log(count - a[:-1]) - np.log(a[:-1] + 1)))
        kinds = np.exp(logs - logs.max())
        kinds *= chance / kinds.sum()
        one, other = np.append(0.0, kinds), np.append(kinds, 0.0)  # with the own report among the first kind, or not
        told = 1 / (1 + exp(-epsilon))
        p, q = told * one + (1 - told) * other, (1 - told) * one + told * other
        found.append((p, q))
    outside = 2 * exp(-2 * (CLONE_REACH / 2) ** 2)
    p, q = (np.concatenate(each) for each in zip(*found, strict=True))
    return np.append(p, [outside, 0.0]), np.append(q, [0.0, outside]), (64 + 200 * len(kinds)) * ULP


def _epoch(move: float, batches: int) -> Outcomes:
    """Each person in one of the batches: the mean of so many independent ratios N(move, 1) to N(0, 1)."""
    if move > MOST_MOVE:
        return reveals_all
    p, q, error = mixtures.cells((np.ones(1), np.array([max(move, LEAST_MOVE)])), mixtures.still, lower=False)
    leak = float(p[q == 0].sum()) + 1e-200  # with all products that are too small for a float
    one = total = _fewer(p[q > 0] / q[q > 0], q[q > 0], error)
    for digit in f"{batches:b}"[1:]:
        total = _sum(total, total)
        total = _sum(total, one) if digit == "1" else total
    ratios, q, error = total
    return np.append(ratios / batches * q, leak), np.append(q, 0.0), error


def _sum(one: Ratios, other: Ratios) -> Ratios:
    """The law of the sum of two independent ratios, on fewer points."""
    values, masses = np.add.outer(one[0], other[0]).ravel(), np.outer(one[1], other[1]).ravel()
    return _fewer(values, masses, one[2] + other[2])


def _fewer(values: Floats, masses: Floats, error: float) -> Ratios:
    """Divide each mass between two points such that the mean stays, which is worse in both orders."""
    mean = float(masses @ values)
    scale = min(1.0, float(masses @ (values - mean) ** 2) ** 0.5 / mean)
    ends = (float(values[values > 0].min()), float(values.max()))
    low, high = (asinh(log(end / mean) / scale) for end in ends)
    points = np.append(0.0, mean * np.exp(scale * np.sinh(np.linspace(low, high, RATIOS - 1))))
    points[[1, -1]] = ends
    place = np.clip(np.searchsorted(points, values, side="right") - 1, 0, RATIOS - 2)
    upper = np.clip((values - points[place]) / np.diff(points)[place], 0.0, 1.0) * masses
    found = np.asarray(np.bincount(place, masses - upper, RATIOS) + np.bincount(place + 1, upper, RATIOS), np.float64)
    return points, found, error + 2 * (64 + int(np.bincount(place).max())) * ULP
