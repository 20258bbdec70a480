"""Prices of a dominating pair of one's own: its losses in both orders, made into laws, and what follows from them.

Names and symbols
    p, q      probabilities of the outcomes under the first and the second law of an ordered pair
    loss      log p/q of an outcome, nats
    leak      probability under the first law of an infinite loss
    error     bound on the relative error of every mass, and on the error of every loss
    lam       order minus 1

One ordered pair is described as "with probability leak reveal all, else losses with masses that add up to one": its
privacy curve is nowhere below that of the pair. The curve of the pair is leak + sum of p_i (1 - e^(e - l_i))_+ over the
finite losses. With s and t the sums of their p_i and q_i, the masses are p_i / s, and the losses are raised by
log(t/s) where that is positive, so that they are losses of two laws again. Both only raise the curve.

Source: docs/proofs/dominating-pairs.md; theory 2.10
"""

from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from math import asinh, fsum, inf, log, nextafter

import numpy as np
from scipy.special import logsumexp, ndtri

from almoner.curves._grid import known_pairs
from almoner.curves._grid.connect_the_dots import ULP, Floats
from almoner.mechanisms import DominatingPair, Mechanism, Paired

SMALLEST = 1e-290  # a smaller probability counts as none
LARGEST_LOSS = 500.0  # a larger loss counts as infinite
ROUNDING = 1e-12  # up to here probabilities that miss one are rounding
_RATIO = 1.01  # ratio of neighbouring orders at which rho is bounded


@dataclass(frozen=True, slots=True, eq=False)
class Direction:
    """One ordered pair; symbols as in the module's table. (k,) arrays, losses increasing; k = 0 if leak is 1."""

    losses: Floats
    masses: Floats
    leak: float
    error: float
    raised: float = 0.0  # by how much the losses are raised


@lru_cache(maxsize=256)
def directions(mechanism: Mechanism, *, lower: bool = False) -> tuple[Direction, Direction]:
    """The laws in the orders "remove" (the person in the first law) and "add"; lower: of a better pair, if computed."""
    if not isinstance(mechanism, DominatingPair):
        p, q, error = known_pairs.outcomes(mechanism, lower=lower)
        return _direction(p, q, error), _direction(q, p, error)
    p, q = np.asarray(mechanism.p), np.asarray(mechanism.q)
    if mechanism.p_add is None or mechanism.q_add is None:
        return _direction(p, q), _direction(q, p)
    return _direction(p, q), _direction(np.asarray(mechanism.p_add), np.asarray(mechanism.q_add))


def _direction(p: Floats, q: Floats, computed: float = 0.0) -> Direction:
    """One order of a list, or of probabilities that were computed with relative errors: these miss one by rounding."""
    q = q / max(1.0, fsum(q.tolist()))
    missing = 0.0 if computed else -fsum([*p.tolist(), -1.0])
    p, q = p[p >= SMALLEST], q[p >= SMALLEST]
    finite = (q >= SMALLEST) & (_losses(p, q) <= LARGEST_LOSS)
    leak = fsum(p[~finite].tolist())
    p, q = p[finite], q[finite]
    order = np.argsort(_losses(p, q), kind="stable")
    p, q = p[order], q[order]
    if missing > ROUNDING or leak or not len(p):
        leak += max(missing, 0.0)
    else:
        p[-1] += max(missing, 0.0)
    _take(p, max(-missing, 0.0))
    leak = min(1.0, leak * (1 + 4 * ULP + computed))
    if leak == 1 or not p.any():
        return Direction(np.zeros(0), np.zeros(0), 1.0, ULP)
    p, q = p[p > 0], q[p > 0]
    losses, total = _losses(p, q), fsum(p.tolist())
    error = 8 * ULP * (1 + float(np.abs(losses).max())) + 3 * computed
    order, raised = np.argsort(losses, kind="stable"), max(0.0, log(fsum(q.tolist()) / total))
    return Direction(losses[order] + raised, p[order] / total, leak, error, raised)


def _losses(p: Floats, q: Floats) -> Floats:
    with np.errstate(divide="ignore", over="ignore"):
        near = np.log1p(np.clip((p - q) / np.where(q > 0, q, 1.0), -0.9, None))
        return np.asarray(np.where(np.abs(p - q) < q / 2, near, np.log(p / q)))


def _take(masses: Floats, surplus: float) -> None:
    """Take what is too much from the least losses, which come first."""
    for place in range(len(masses)):
        taken = min(surplus, float(masses[place]))
        masses[place] -= taken
        surplus -= taken
        if surplus <= 0:
            return


def failure(mechanism: Paired) -> Fraction:
    """The probability of an infinite loss, the larger of both orders, rounded up."""
    return max(Fraction(each.leak) for each in directions(mechanism))


@lru_cache(maxsize=256)
def without_failures(mechanism: Paired) -> Paired:
    """The pair in which no loss is infinite: what is left of it where it does not fail."""
    if not failure(mechanism):
        return mechanism
    laws = []
    for each in directions(mechanism):
        if not len(each.losses):
            each = Direction(np.zeros(1), np.ones(1), 0.0, 0.0)
        losses = each.losses + each.error
        masses = np.maximum(each.masses * (1 + 4 * ULP), 4 * SMALLEST * np.exp(np.maximum(losses, 0.0)))
        q = masses * np.exp(-losses)
        rest = max(0.0, 1 - fsum(q.tolist()))
        laws += [(*masses.tolist(), 0.0), (*q.tolist(), rest)]
    return DominatingPair(*laws)


def largest_loss(mechanism: Paired) -> Fraction:
    """The largest finite loss in either order, rounded up; at least 0."""
    tops = [float(each.losses[-1]) + 2 * each.error for each in directions(mechanism) if len(each.losses)]
    return max(Fraction(0), *map(Fraction, tops)) if tops else Fraction(0)


def renyi(mechanism: Paired, orders: Floats) -> Floats:
    """The Rényi divergence where the mechanism does not fail, the larger of both orders, rounded up.

    log1p of the mean of expm1(lam * loss), over lam. Relative errors of the masses and errors of the losses add the
    error once each: times the mean of abs(expm1(lam * loss)) over lam and the mean of exp(lam * loss), and times one.
    """
    both = [_renyi(each, orders - 1) for each in directions(mechanism) if len(each.losses)]
    return np.asarray(np.max(both, axis=0)) if both else np.zeros_like(orders)


def _renyi(one: Direction, lam: Floats) -> Floats:
    values = np.empty_like(lam)
    for start in range(0, len(lam), step := max(1, 2**20 // len(one.losses))):
        some = lam[start : start + step]
        exponents = some[:, None] * one.losses
        far = exponents.max(axis=1) > 500
        terms = one.masses * np.expm1(np.where(far[:, None], 0.0, exponents))
        mean = np.maximum(terms.sum(axis=1), 0.0)
        near, spread = np.log1p(mean) / some, np.abs(terms).sum(axis=1) / (1 + mean) / some
        high = logsumexp(exponents + np.log(one.masses), axis=1) / some
        value = np.where(far, high, near)
        values[start : start + step] = value + 2 * one.error * (1 + np.where(far, 2 / some, spread) + value)
    return np.asarray(np.minimum(values, one.losses[-1] + 2 * one.error))


@lru_cache(maxsize=256)
def rho(mechanism: Paired) -> Fraction:
    """The largest ratio of the Rényi divergence to its order, rounded up by at most 1 %; it must not fail.

    Between two orders a < b it is at most D(b) / a, and above the last one at most the largest loss over it.
    """
    top = largest_loss(mechanism)
    half_square = top * top / 2
    if not top:
        return Fraction(0)
    best, low = 0.0, 1.0
    while True:
        orders = low * _RATIO ** np.arange(65.0)
        curve = renyi(mechanism, orders[1:])
        best = max(best, float((curve / orders[:-1]).max()))
        low = float(orders[-1])
        if float(top) / low <= best:
            break
    return min(half_square, Fraction(best * (1 + 1e-12)))


@lru_cache(maxsize=256)
def mu(mechanism: Paired) -> float:
    """The least mu at which the trade-off function of mu-GDP is nowhere above the pair's, rounded up.

    The pair's is linear between finitely many points (Q above a loss, P up to it); that of mu-GDP is convex, and they
    agree at both ends. So it is enough to look at these points. Infinite if the mechanism may fail.
    """
    if failure(mechanism):
        return inf
    return max(_mu(each) for each in directions(mechanism))


def _mu(one: Direction) -> float:
    p, q = one.masses, one.masses * np.exp(-one.losses)
    missing = 1 - fsum(q.tolist())
    if missing > 2 * ROUNDING + 2 * one.error:  # Q has an outcome that P does not have
        return inf
    (low_p, low_q), (high_p, high_q) = (
        [np.cumsum(each)[:-1] for each in (p, q)],  # sums of the first 1, 2, ..., k - 1 masses, and of the others
        [np.cumsum(each[::-1])[::-1][1:] for each in (p, q)],
    )
    low_q = low_q + max(missing, 0.0)
    if not len(low_p):
        return 1e-12
    shrink = 1 - (len(p) + 64) * ULP - one.error
    # the probabilities of both errors, made smaller; beyond one half their complements, made larger
    one_way = np.where(high_q < 0.5, -ndtri(high_q * shrink), ndtri(np.minimum(low_q / shrink, 1.0)))
    other = np.where(low_p < 0.5, -ndtri(low_p * shrink), ndtri(np.minimum(high_p / shrink, 1.0)))
    return nextafter(max(0.0, float((one_way + other + 1e-12 * (1 + np.abs(one_way) + np.abs(other))).max())), inf)


def coarse(one: Direction, most: int) -> Direction:
    """Put a law on at most so many points, denser in the middle, pessimistically: a mass between two goes to both."""
    if len(one.losses) <= most or one.losses[0] == one.losses[-1]:
        return one
    mean = float(one.masses @ one.losses)
    scale = max(float(one.masses @ (one.losses - mean) ** 2) ** 0.5, 1e-12 * float(one.losses[-1] - one.losses[0]))
    low, high = (asinh((float(end) - mean) / scale) for end in one.losses[[0, -1]])
    points = mean + scale * np.sinh(np.linspace(low, high, most))
    points[[0, -1]] = one.losses[[0, -1]]
    points = np.unique(points)
    place = np.clip(np.searchsorted(points, one.losses, side="right") - 1, 0, len(points) - 2)
    below, width = one.losses - points[place], np.diff(points)[place]
    upper = np.expm1(-np.clip(below, 0.0, width)) / np.expm1(-width)
    lower = np.exp(-below) * np.expm1(-np.clip(width - below, 0.0, width)) / np.expm1(-width)
    masses = np.zeros(len(points))
    np.add.at(masses, place, one.masses * lower)
    np.add.at(masses, place + 1, one.masses * upper)
    return Direction(points, masses, one.leak, one.error + (64 + len(one.losses)) * ULP)
