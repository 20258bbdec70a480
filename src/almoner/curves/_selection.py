"""The number of runs of which the best is released, and what choosing the best adds to the price of one run.

Names and symbols
    f        the generating function of the number of runs K: f(x) = E[x^K]
    shape    η of the truncated negative binomial law: f'(x) is E[K] (γ / (1 - (1 - γ) x))^(1 + η); inf is Poisson
    span     log(1/γ), > 0
    mean     E[K] = f'(1)
    ratio    the largest f'(q) / f'(r) where q and r are the probabilities of one event under two neighbours

Source: Papernot & Steinke (2022), https://arxiv.org/abs/2110.03620; docs/proofs/tuning.md; theory 8.2
"""

from collections.abc import Iterator
from functools import lru_cache
from math import expm1, inf, log

import numpy as np

from almoner._search import edge
from almoner.curves._grid.connect_the_dots import Floats
from almoner.mechanisms import BestOf, Mechanism, repeated

_ROUND_UP = 1 + 1e-9
_TINY = 1e-12
_NO_SHAPE = 1e-15  # times span: the limit at 0 is right to half of it


def only(mechanism: Mechanism) -> BestOf | None:
    """The mechanism, where it is the best of several runs, once; else None."""
    inner, count = repeated(mechanism)
    return inner if isinstance(inner, BestOf) and count == 1 else None


@lru_cache(maxsize=256)
def span(runs: float, shape: float) -> float:
    """log(1/γ) of the truncated negative binomial law with this mean, to 1e-12 of itself."""
    low, high = 1e-9, 1.0
    while _mean(high, shape) < runs:
        high *= 2
    return edge(lambda at: _mean(at, shape) >= runs, high, low)


def _mean(span: float, shape: float) -> float:
    """E[K]: η (1 - γ) / (γ (1 - γ^η)), and its limit (1/γ - 1) / log(1/γ) at 0."""
    if abs(shape * span) < _TINY:
        return expm1(span) / span
    return shape * expm1(span) / -expm1(-shape * span)


def log_mean(best: BestOf) -> float:
    """Log E[K], rounded up."""
    drawn = best.runs if best.shape == inf else _mean(span(best.runs, best.shape), best.shape)
    return log(max(best.runs, drawn)) + _TINY


def probabilities(runs: float, shape: float) -> Iterator[float]:
    """The probabilities of 1, 2, ... runs, while they are above 1e-30.

    That of k runs is right to (k 6.7e-16 + 1e-13) of itself, where k is at most 1e14, and all that are left out add up
    to less than 1e-17, where span is at most 27: docs/proofs/tuning.md, section 5.
    """
    s = span(runs, shape)
    shrink = -expm1(-s)  # 1 - γ
    chance = shrink / s if abs(shape * s) < _NO_SHAPE else shrink * shape / expm1(shape * s)
    number = 1
    while chance > 1e-30 or number < runs:
        yield chance
        chance *= shrink * (number + shape) / (number + 1)
        number += 1


def renyi(best: BestOf, curve: Floats, orders: Floats) -> Floats:
    """The Rényi values of the best run.

    The orders (m,) increase; the curve (m,) is of one run, rounded up, the larger of both directions.

    Guarantee: in both directions, the divergence of the best run at every order is at most the value.
    Source: docs/proofs/tuning.md, Theorem 2; Papernot & Steinke (2022), Theorems 2 and 6 (the second corrected).
    """
    lam, more = orders - 1, log_mean(best)
    with np.errstate(over="ignore", invalid="ignore"):
        if best.shape == inf:
            chosen = more + lam * (curve + best.runs * _hockey_sticks(curve, orders))
            values = np.logaddexp(-best.runs, chosen) / lam
        else:
            s = span(best.runs, best.shape) * _ROUND_UP
            hats = (1 - 1 / orders) * curve + s / orders
            values = curve + (1 + best.shape) * min(s, float(np.min(hats))) + more / lam
    values = np.where(np.isnan(values), inf, values * _ROUND_UP + _TINY)
    return np.asarray(np.minimum.accumulate(values[::-1])[::-1])  # a divergence does not decrease in the order


def _hockey_sticks(curve: Floats, orders: Floats) -> Floats:
    """For each order a a bound on the hockey-stick divergence of one run at e^epsilon = a / (a - 1), by its curve."""
    lam = orders - 1
    epsilons = np.log1p(1 / lam)
    fixed = lam * np.log1p(-1 / orders) - np.log(orders)
    bounds = np.exp(np.minimum(lam * (curve - epsilons[:, None]) + fixed, 0.0)).min(axis=1)
    total = np.sqrt(np.min(curve) / 2)  # Pinsker: the divergence at order 1 is below those at all others
    return np.asarray(np.minimum(np.minimum(bounds, total) * _ROUND_UP, 1.0))


def log_ratio(best: BestOf, epsilons: Floats, deltas: Floats) -> float:
    """The logarithm of the ratio, where one run is (epsilon, delta)-DP at all these points, in order; rounded up.

    With x the probability of an event under one law, and y under the other, y <= e^epsilon x + delta at every point. Of
    two neighbouring points alone, the largest ratio is at a corner; the least of all pairs is a bound.

    Guarantee: f'(q) <= ratio * f'(r) for every event of one run.
    Source: docs/proofs/tuning.md, Theorem 3; Koskela, Redberg & Wang (2024).
    """
    if best.shape == inf:
        at_zero = deltas + (1 - deltas) * np.tanh(epsilons / 2)  # of total variation
        return best.runs * min(1.0, float(np.min(at_zero))) * _ROUND_UP + _TINY
    s = span(best.runs, best.shape) * _ROUND_UP
    steeper, lower = np.append(epsilons[1:], epsilons[-1]), np.append(deltas[1:], deltas[-1])
    with np.errstate(over="ignore", invalid="ignore"):
        crossing = (deltas - lower) * np.exp(-epsilons) / np.expm1(steeper - epsilons)
        corners = [np.zeros_like(crossing), crossing, (1 - deltas) * np.exp(-epsilons), (1 - lower) * np.exp(-steeper)]
        logs = [_log_odds(x, (epsilons, deltas), (steeper, lower), s) for x in corners]
    worst = np.max(logs, axis=0)
    return (1 + best.shape) * min(s, float(np.min(worst))) * _ROUND_UP + _TINY


def _log_odds(x: Floats, one: tuple[Floats, Floats], other: tuple[Floats, Floats], span: float) -> Floats:
    """Log of (γ + (1 - γ) y) / (γ + (1 - γ) x) with the largest y that both points allow."""
    x = np.where((x >= 0) & (x <= 1), x, 0.0)
    more = np.minimum(*[np.expm1(epsilon) * x + delta for epsilon, delta in (one, other)])
    more = np.minimum(more, 1 - x)
    odds = expm1(min(span, 700.0))
    return np.asarray(np.log1p(np.maximum(more, 0.0) * odds / (1 + odds * x)))
