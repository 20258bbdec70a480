"""Pairs of mixtures of Gaussians, and what else has a known pair, as probabilities of finitely many outcomes.

Names and symbols
    moves     means of a mixture's parts, in standard deviations of the noise: >= 0 under P, <= 0 under Q
    N, D      densities of P and Q over that of standard noise
    end       an edge of a cell; the share of each outcome that goes to one end is what N/D has moved since the other

N/D increases with the outcome, so cells are cut and masses moved to their ends as in ``connect_the_dots``. With the
parts' weights at one end, the share is a ratio of sums of positive terms abs(expm1(move * distance)): nothing cancels.

Source: docs/proofs/further-pairs.md; docs/proofs/losses.md, sections 1 and 2
"""

from collections.abc import Iterator, Sequence
from math import pi, sqrt

import numpy as np
from scipy.special import betainc, betaln, logsumexp, ndtr, xlog1py, xlogy

from almoner import mechanisms
from almoner.curves._grid.connect_the_dots import NODES, ULP, WEIGHTS, Floats
from almoner.errors import Unsupported

Mixture = tuple[Floats, Floats]  # weights and moves
Outcomes = tuple[Floats, Floats, float]  # probabilities under P and Q, and a bound on their relative errors

REACH = 11.9  # deviations of the noise on either side of all means
CELLS = 3000  # least cells
MOST_CELLS = 90_000  # a pair that needs more counts as revealing everything
MOST_PARTS = 4096  # most parts of a mixture
RARE = 1e-33  # parts that are rarer together count as infinite losses
UP = 1 + 1e-8  # allowance for the error of binomial probabilities

still: Mixture = np.ones(1), np.zeros(1)
reveals_all: Outcomes = np.array([1.0, 0.0]), np.array([0.0, 1.0]), ULP


def outcomes(mechanism: mechanisms.Mechanism, *, lower: bool) -> Outcomes:
    """The pair of a mechanism whose pair is of mixtures of Gaussians, put on finitely many outcomes.

    Guarantee: as of ``known_pairs.outcomes``.
    Source: docs/proofs/further-pairs.md, sections 1 to 3, 6 and 8.
    """
    if lower and not isinstance(mechanism, mechanisms.MixtureOfGaussians | mechanisms.ReplacedGaussian):
        raise Unsupported(f"no lower bound is known for {type(mechanism).__name__}")
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
            logs = xlogy(count, rate) + xlog1py(records - count, -rate) - betaln(records - count + 1, count + 1)
            chances = np.where(count, np.exp(logs) / (records + 1) * UP, 1.0)
            if records > MOST_PARTS:
                chances[-1] = betainc(MOST_PARTS, records - MOST_PARTS + 1, rate) * UP
                count[-1] = np.inf
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
        least, most = np.exp(over - under)[[0, -1]]
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
        share /= _moved(up, at, sign * 2 * half) + _moved(down, at, sign * 2 * half)
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
    for weight, move, log in zip(weights, moves, logs.T, strict=True):
        total += weight * np.exp(log)[:, None] * np.abs(np.expm1(move * distance))
    return total
