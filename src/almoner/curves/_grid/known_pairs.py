"""Mechanisms whose dominating pair is known, as probabilities of finitely many outcomes under P and under Q.

Names and symbols
    p, q      probabilities of the outcomes under the first and the second law
    moves     means of a mixture's parts, in standard deviations of the noise: >= 0 under P, <= 0 under Q
    N, D      densities of P and Q over that of standard noise
    end       an edge of a cell; the share of each outcome that goes to one end is what N/D has moved since the other
    ratio     p/q of an outcome; of an epoch, the mean over its batches of one ratio each
    error     bound on the relative error of every probability

For mixtures N/D increases with the outcome, so cells are cut and masses moved to their ends as in ``connect_the_dots``.
With the parts' weights at one end, the share is a ratio of sums of positive terms abs(expm1(move * distance)): nothing
cancels.

Source: docs/proofs/further-pairs.md; docs/proofs/losses.md, sections 1 and 2
"""

from collections.abc import Iterator, Sequence
from fractions import Fraction
from math import asinh, ceil, exp, expm1, floor, log, pi, sqrt

import numpy as np
from scipy.special import betainc, logsumexp, ndtr

from almoner import mechanisms
from almoner.curves._grid.connect_the_dots import NODES, ULP, WEIGHTS, Floats
from almoner.errors import Unsupported

Mixture = tuple[Floats, Floats]  # weights and moves
Outcomes = tuple[Floats, Floats, float]  # probabilities under P and Q, and a bound on their relative errors
Ratios = tuple[Floats, Floats, float]  # ratios, their masses under Q, and a bound on the errors of both

REACH = 11.9  # deviations of the noise on either side of all means
CELLS = 3000  # least cells
MOST_CELLS = 90_000  # a pair that needs more counts as revealing everything
MOST_PARTS = 4096  # most parts of a mixture
RARE = 1e-33  # parts that are rarer together count as infinite losses
UP = 1 + 1e-7  # allowance for the error of binomial probabilities
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

still: Mixture = np.ones(1), np.zeros(1)
reveals_all: Outcomes = np.array([1.0, 0.0]), np.array([0.0, 1.0]), ULP


def outcomes(mechanism: mechanisms.Mechanism, *, lower: bool) -> Outcomes:
    """The pair of a mechanism that is no list of outcomes itself; Unsupported where none is known, or no better one.

    Guarantee: the pair, within the relative error returned, dominates the mechanism (with lower, the pair of the proof
        dominates it) at every real epsilon, in both orders.
    Source: docs/proofs/further-pairs.md.
    """
    sharp = mechanisms.DiscreteGaussian | mechanisms.MixtureOfGaussians | mechanisms.ReplacedGaussian
    if lower and not isinstance(mechanism, sharp):
        raise Unsupported(f"no lower bound is known for {type(mechanism).__name__}")
    match mechanism:
        case mechanisms.DiscreteGaussian():
            return _discrete_gaussian(mechanism)
        case mechanisms.RandomAllocation(sigma, sensitivity, batches):
            return _epoch(sensitivity / sigma * (1 + 4 * ULP), batches)
        case mechanisms.Shuffled(epsilon, people):
            return _shuffled(epsilon, min(people, MOST_PEOPLE))
    parts = [(share, *cells(*pair, lower=lower)) for share, *pair in _parts(mechanism) if share]
    p, q = (np.concatenate([part[0] * part[law] for part in parts]) for law in (1, 2))
    return p, q, max(part[3] for part in parts) + ULP


def _parts(mechanism: mechanisms.Mechanism) -> Iterator[tuple[float, Mixture, Mixture]]:
    """The pairs of which one is drawn, by a draw that is told: how often, and the mixtures of P and Q."""
    match mechanism:
        case mechanisms.MixtureOfGaussians(sigma, sensitivities, probabilities):
            yield 1.0, _mixture(probabilities, np.asarray(sensitivities) / sigma), still
        case mechanisms.SampledRecords(sigma, sensitivity, rate, records):
            count = np.arange(min(records, MOST_PARTS) + 1.0)
            reached = np.append(1.0, betainc(count[1:], records - count[1:] + 1, rate)) * UP
            chances = np.maximum(-np.diff(reached, append=0.0), 0.0)
            count[MOST_PARTS:] = np.inf
            yield 1.0, _mixture(chances, count * (sensitivity / sigma)), still
        case mechanisms.ReplacedGaussian(sigma, sensitivity, rate):
            weights, moves = _mixture([rate, 1.0], np.array([sensitivity / sigma, 0.0]))
            yield 1.0, (weights, moves), (weights, -moves)
        case mechanisms.TruncatedGaussian(sigma, sensitivity, rate, size, people):
            move, (fewer, more, taken) = sensitivity / sigma, _met(rate, size, people)
            yield 1 - more, _mixture([rate, 1.0], np.array([move, 0.0])), still
            yield fewer, _mixture([taken, 1.0], np.array([2 * move, 0.0])), still
            yield more - fewer, _mixture([taken, rate, 1.0], np.array([2 * move, move, 0.0])), still
        case _:
            raise Unsupported(f"{type(mechanism).__name__} has no dominating pair here")


def _met(rate: float, size: int, people: int) -> tuple[float, float, float]:
    """Probabilities that others fill a batch: one fewer than so many, rounded down, and all of them, rounded up.

    And that of a further person's place in it, given that; at most the rate, rounded up.
    """
    if size > people:
        return 0.0, 0.0, rate
    more = min(1.0, float(betainc(size, people - size + 1, rate)) * UP)
    fewer = float(betainc(size, people - size, rate)) / UP if size < people else 0.0
    if fewer < 1e-280:
        return 0.0, more, rate
    beyond = float(betainc(size + 1, people - size, rate)) * UP
    return min(fewer, more), more, min(rate, size / people * beyond / fewer)


def _mixture(chances: Floats | Sequence[float], moves: Floats) -> Mixture:
    """The mixture with at least these chances of moving further than any bound, as long as the sum is one."""
    order = np.argsort(-moves, kind="stable")
    chances, moves = np.asarray(chances)[order], moves[order] * (1 + 4 * ULP)
    reached = np.cumsum(chances) * (1 + 4 * len(moves) * ULP)
    reached = np.minimum(reached + max(0.0, 1 - float(reached[-1])), 1.0)
    return np.diff(reached, prepend=0.0), moves


def cells(up: Mixture, down: Mixture, *, lower: bool) -> Outcomes:
    """The mixture of N(move, 1) over ``up`` against that over ``down``."""
    (weights, moves), leak = up, 0.0
    rare = np.flatnonzero((np.cumsum(weights) < RARE) | (moves == np.inf))
    if rare.size:
        leak, weights, moves = float(weights[: rare[-1] + 1].sum()), weights[rare[-1] + 1 :], moves[rare[-1] + 1 :]
    up, down = ((w[w > 0], m[w > 0]) for w, m in ((weights, moves), down))
    far = max(up[1].max(initial=0.0), -down[1].min())
    width, low, high = min(0.05, 0.5 / max(far, 1.0)), down[1].min() - REACH, up[1].max(initial=0.0) + REACH
    count = max(CELLS, int(np.ceil(min((high - low) / width, 1e9))))
    if not far:
        return np.array([1 - leak, leak]), np.array([1.0, 0.0]), ULP
    if count > MOST_CELLS:
        return reveals_all
    edges = irregular(low, high, count)
    over, under = _density(up, edges), _density(down, edges)
    p, q = _masses(up, down, edges, (over, under))
    (p_below, q_below), (p_above, q_above) = (
        [float(w @ ndtr(sign * (m - edge))) for w, m in (up, down)] for edge, sign in ((edges[0], -1), (edges[-1], 1))
    )
    if lower:
        p, q = np.append(p.sum(axis=1), [p_below, p_above]), np.append(q.sum(axis=1), [q_below, q_above])
    else:  # P's mass above and Q's below have infinite losses; what the other law has there moves to the edge
        p, q = (np.append(a[:, 0], 0.0) + np.append(0.0, a[:, 1]) for a in (p, q))
        least, most = np.exp(np.clip((over - under)[[0, -1]], -700.0, 700.0))  # beyond, losses count as infinite
        p[[0, -1]] += p_below, q_above * most
        q[[0, -1]] += p_below / least, q_above
        p, q = np.append(p, [p_above + leak, 0.0]), np.append(q, [0.0, q_below])
    error = (64 + 8 * float(np.abs(edges).max() + far) ** 2 + 4 * len(up[0]) + 4 * len(down[0])) * ULP
    return p, q, error


def _masses(up: Mixture, down: Mixture, edges: Floats, densities: tuple[Floats, Floats]) -> Floats:
    """(2, cells, 2): under P and Q, what each cell gives to its lower and to its upper end; logarithms of densities."""
    half, found = np.diff(edges)[:, None] / 2, np.zeros((2, len(edges) - 1, 2))
    x = edges[:-1, None] + half * (1 + NODES)
    for end, sign in ((1, 1.0), (0, -1.0)):  # what moved away from the other end
        at, distance = edges[1 - end : len(edges) - end], sign * half * (1 + sign * NODES)
        share = _moved(up, at, distance) + _moved(down, at, distance)
        whole = _moved(up, at, sign * 2 * half) + _moved(down, at, sign * 2 * half)
        share = np.where(whole > 1e-280, share / np.maximum(whole, 1e-280), (1 + sign * NODES) / 2)  # N/D is even there
        for masses, density in zip(found, densities, strict=True):
            logs = density[end : len(edges) - 1 + end, None] - x * x / 2
            masses[:, end] = (half * share * np.exp(logs)) @ WEIGHTS / sqrt(2 * pi)
    return found


def irregular(low: float, high: float, count: int) -> Floats:
    """Edges of so many cells; regular ones would make losses nearly those of a lattice, which repeat."""
    edges = np.linspace(low, high, count + 1)
    inner = np.arange(1, count)
    edges[1:-1] += 0.8 * (edges[1] - edges[0]) * (inner * inner * (5**0.5 - 1) / 2 % 1 - 0.5)
    return edges


def _density(mixture: Mixture, x: Floats) -> Floats:
    """The logarithm of a mixture's density over that of N(0, 1)."""
    weights, moves = mixture
    return np.asarray(logsumexp(moves * (x[:, None] - moves / 2), b=weights, axis=1))


def _moved(mixture: Mixture, at: Floats, distance: Floats) -> Floats:
    """The change of the density over that of N(0, 1) within a distance, as a part of what it is at these places."""
    weights, moves = mixture
    logs = moves * (at[:, None] - moves / 2) - _density(mixture, at)[:, None]
    total = np.zeros_like(distance)
    for weight, move, size in zip(weights, moves, np.exp(logs).T, strict=True):
        total += weight * size[:, None] * np.abs(np.expm1(move * distance))
    return total


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
    clones = np.unique(np.clip(np.round(mean + sqrt(mean) * np.linspace(-CLONE_REACH, 6, LEVELS)), 0, others))
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
        told, lied = 1 / (1 + exp(-epsilon)), 1 / (1 + exp(epsilon))
        p, q = told * one + lied * other, lied * one + told * other
        found.append((p, q))
    outside = 2 * exp(-2 * (CLONE_REACH / 2) ** 2)
    p, q = (np.concatenate(each) for each in zip(*found, strict=True))
    return np.append(p, [outside, 0.0]), np.append(q, [0.0, outside]), (64 + 200 * len(kinds)) * ULP


def _epoch(move: float, batches: int) -> Outcomes:
    """Each person in one of the batches: the mean of so many independent ratios N(move, 1) to N(0, 1)."""
    if move > MOST_MOVE:
        return reveals_all
    p, q, error = cells((np.ones(1), np.array([max(move, LEAST_MOVE)])), still, lower=False)
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
