"""Tuning has a price: what the best of a random number of runs costs, and how many runs to draw.

Names and symbols
    best     a ``mechanisms.BestOf``
    one run  its mechanism: with settings drawn from a public list, and with the score
    ratio    by how much choosing the best can change the odds of an output, beyond what one run does

The Rényi curve of the best run is in ``curves.renyi``, so that every filter and odometer of Rényi curves charges it.
The bounds here start from the curve of hockey-stick divergences of one run, and are smaller for a run fixed in advance.

>>> from almoner.mechanisms import BestOf, Gaussian
>>> best = BestOf(Gaussian(sigma=5.0), runs=10)
>>> round(epsilon(Gaussian(sigma=5.0), delta=1e-5), 2), round(epsilon(best, delta=1e-5), 2)
(0.73, 1.11)

Source: Papernot & Steinke (2022), https://arxiv.org/abs/2110.03620; Koskela, Redberg & Wang (2024),
https://arxiv.org/abs/2402.06701; docs/proofs/tuning.md; theory 8.2
"""

from fractions import Fraction
from itertools import pairwise
from math import exp, inf, ldexp, nextafter
from random import Random, SystemRandom

import numpy as np

from almoner import _check, mechanisms
from almoner._search import edge
from almoner.curves import _selection, gaussian, tradeoff
from almoner.errors import ArgumentError, Unsupported

__all__ = ["MISSED", "draw_runs", "epsilon", "pair"]

MISSED = 1e-12
"""By how much the law of ``draw_runs`` is off at most, in total variation, up to 1,000 expected runs."""

_POINTS = 129
_MOST_DRAWN, _MOST_SPAN = 1000.0, 27.0
_BITS = 192  # of a draw: a probability of 1e-30 is a whole number of 2^-192
_UP = 1 + 1e-9


def epsilon(mechanism: mechanisms.Mechanism, /, *, delta: float) -> float:
    """An epsilon, nats, rounded up, that holds at delta, in (0, 1), for a BestOf, or for one run, for comparison.

    Inf where nothing finite is known.

    Guarantee: the release of the best run, and of nothing else, fixed in advance, is (epsilon, delta)-DP.
    Source: docs/proofs/tuning.md, Theorem 3; theory 8.2.
    """
    _check.between(0, 1, delta=delta)
    best = _selection.only(mechanism)
    if best is None:
        return _one_run(mechanism, delta)
    more = max(1.0, exp(_selection.log_mean(best)))
    curve = tradeoff.of(best.mechanism, points=_POINTS)
    ratio = _selection.log_ratio(best, np.asarray(curve.epsilons), np.asarray(curve.deltas))
    return float(nextafter(ratio + _one_run(best.mechanism, delta / more / _UP, curve), inf))


def _one_run(mechanism: mechanisms.Mechanism, delta: float, curve: tradeoff.Curve | None = None) -> float:
    """The least known epsilon of one run at delta: exact for Gaussian noise, else from its curve."""
    try:
        return gaussian.of(mechanism).epsilon(delta=delta)
    except Unsupported:
        known = tradeoff.of(mechanism, points=_POINTS) if curve is None else curve
    if known.deltas[-1] > delta:
        return inf
    if float(known.delta(0.0)) <= delta:
        return 0.0
    return edge(lambda at: float(known.delta(at)) <= delta, known.epsilons[-1], 0.0, relative=1e-12)


def pair(best: mechanisms.BestOf, /, *, points: int = 257) -> mechanisms.DominatingPair:
    """A pair that dominates the best of a random number of runs, for every filter that charges such pairs.

    Where there is Gaussian noise the pair costs less than the Rényi curve. It fails with the probability at which the
    curve of one run ends, about 1e-12 times the expected runs, which the filter's ``sum_delta`` pays.

    Raises:
        ArgumentError: the mechanism is no BestOf.

    Guarantee: at every real epsilon, in both directions, the hockey-stick divergence of the best run is at most that of
        the pair.
    Source: docs/proofs/tuning.md, Theorem 4.
    """
    if not isinstance(best, mechanisms.BestOf):
        raise ArgumentError(f"best={best!r} must be a BestOf")
    curve = tradeoff.of(best, points=points)
    known = list(zip(curve.epsilons, curve.deltas, strict=True))
    known = known if known[0][0] == 0 else [(0.0, float(curve.delta(0.0))), *known]
    least = tradeoff.SMALLEST_DELTA * exp(_selection.log_mean(best)) * _UP  # masses beyond cost more than they save
    known = known[: 1 + next((place for place, (_, d) in enumerate(known) if d <= least), len(known))]
    at = [(Fraction(nextafter(exp(e) * (1 + 4e-16), inf)), Fraction(d)) for e, d in known if e < 300]
    mirrored = [(1 / x, 1 - 1 / x + h / x) for x, h in reversed(at) if x > 1]
    hull = _hull([*mirrored, *at])
    up = [place for place, (x, _) in enumerate(hull) if x > 1]
    slopes = [(b[1] - a[1]) / (b[0] - a[0]) for a, b in pairwise(hull)] + [Fraction(0)]
    heavier = [slopes[place] - slopes[place - 1] for place in up]  # mass under the second law, at ratios above one
    q = [float(mass) for mass in heavier]
    p = [float(mass * hull[place][0]) for mass, place in zip(heavier, up, strict=True)]
    leak = min(1.0, float(hull[-1][1]) + 1e-15)
    middle = max(0.0, 1 - float(sum(map(Fraction, (*p, *q, leak)))))
    return mechanisms.DominatingPair((*p, *q, middle, leak, 0.0), (*q, *p, middle, 0.0, leak))


def _hull(points: list[tuple[Fraction, Fraction]]) -> list[tuple[Fraction, Fraction]]:
    """The points of the largest convex function that is nowhere above them, from left to right."""
    hull: list[tuple[Fraction, Fraction]] = []
    for x, y in points:
        while len(hull) > 1 and (hull[-1][1] - hull[-2][1]) * (x - hull[-1][0]) >= (y - hull[-1][1]) * (
            hull[-1][0] - hull[-2][0]
        ):
            hull.pop()
        hull.append((x, y))
    return hull


def draw_runs(best: mechanisms.BestOf, /, *, seed: int | None = None) -> int:
    """Draw the number of runs to make. PRIVATE: the number stays secret, and so does everything that tells it.

    Args:
        best: public; its shape is finite, at most 1,000 runs are expected, and few of them of numbers above 1e12:
            the larger the runs, the larger the shape must be.
        seed: None: bits of the operating system. A number makes the search reproducible and NOT private.

    Returns:
        At least 1.

    Guarantee: its law is that of ``best``, up to MISSED in total variation; an (epsilon, delta) of the best run holds
        with delta + (1 + e^epsilon) MISSED.
    Source: docs/proofs/tuning.md, section 5.
    """
    if best.shape == inf or best.runs > _MOST_DRAWN:
        raise ArgumentError(f"{best!r}: the shape must be finite and runs at most {_MOST_DRAWN:g} to be drawn")
    if _selection.span(best.runs, best.shape) > _MOST_SPAN:
        raise ArgumentError(f"{best!r}: so many runs are expected because of numbers above 1e12: take a larger shape")
    place = (SystemRandom() if seed is None else Random(seed)).getrandbits(_BITS)
    number = 0
    for chance in _selection.probabilities(best.runs, best.shape):
        number += 1
        place -= int(ldexp(chance, _BITS))
        if place < 0:
            break
    return number
