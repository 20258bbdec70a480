"""Dominating pairs: above the exact curves, close to them, and rounded up."""

from itertools import pairwise

import numpy as np
import pytest
from mpmath import mp, mpf

from almoner import mechanisms as m
from almoner.curves import _pairs
from hockey_sticks import CONTINUOUS, curve_of, two_points


@pytest.mark.parametrize(
    "mechanism", [*CONTINUOUS, m.SampledGaussian(0.4, 1.0, 0.02), m.SampledGaussian(30.0, 1.0, 0.5)]
)
def test_pairs_dominate_and_are_close(mechanism):
    """The points' curve is above the exact one at 40 epsilons in both directions, and at most 1 % of its peak above."""
    rng = np.random.default_rng(3)
    for pair, (curve, _) in zip(_pairs.of(mechanism, cut=1e-14), curve_of(mechanism), strict=True):
        top = float(curve(mpf(0)))
        for e in rng.choice(pair.losses, 20).tolist() + rng.uniform(*pair.losses[[0, -1]], 20).tolist():
            assert pair.delta(epsilon=e) >= float(curve(mpf(e))) - 1e-15
            assert pair.delta(epsilon=e) <= float(curve(mpf(e))) + 0.01 * top


@pytest.mark.slow
@pytest.mark.parametrize("eta", [0.01, 0.5, 4.0])
def test_some_pair_dominates_every_bounded_range_round(eta):
    """For 60 places t of the range one pair is above the two-point curve at all of 200 epsilons; reversed, too."""
    rounds, epsilons = _pairs.exponential(eta), np.linspace(-eta, eta, 200)
    curves = np.array([[pair.delta(epsilon=e) for e in epsilons] for pair in rounds])
    for t in np.random.default_rng(6).uniform(0, eta, 60):
        (high, p), (low, rest) = two_points(mpf(t) - mpf(eta), mpf(t))
        for ends in (((high, p), (low, rest)), ((-high, p * mp.exp(-high)), (-low, rest * mp.exp(-low)))):
            exact = [float(mp.fsum(w * max(0, 1 - mp.exp(e - loss)) for loss, w in ends)) for e in epsilons]
            assert (curves >= np.array(exact) - 1e-15).all(axis=1).any()


@pytest.mark.parametrize("noise", [0.1, 0.6, 2.0, 50.0])
def test_masses_are_rounded_up(noise):
    """Every mass of the Gaussian's points, under both laws, is at least the exact one (50 digits), and they exceed it
    by 1e-10 in all."""
    pair, leak_ = _pairs._gaussian(noise, cut=1e-14)
    shift, log_ratios = mpf(1 / noise), [mpf(float(r)) for r in pair.log_ratios]
    x = [mp.exp(r) for r in log_ratios]
    ends = [mpf("-inf"), *(r / shift + shift / 2 for r in log_ratios[1:]), mpf("inf")]
    cells = [_cell(low, high) for low, high in pairwise(ends)]
    shifted = [_cell(low - shift, high - shift) for low, high in pairwise(ends)]
    exact = [mpf(0)] * len(x)
    for j in range(len(x) - 1):
        gap = x[j + 1] - x[j]
        exact[j] += (x[j + 1] * cells[j] - shifted[j]) / gap
        exact[j + 1] += (shifted[j] - x[j] * cells[j]) / gap
    exact_p = [ratio * mass for ratio, mass in zip(x, exact, strict=True)]  # the upper tail of P is the leak
    exact[-1] += cells[-1]
    for masses, true_masses in ((pair.q, exact), (pair.p, exact_p)):
        rounded = masses * (1 + pair.error)
        over = [float(mass) - true for mass, true in zip(rounded, true_masses, strict=True)]
        assert min(over) >= 0
        assert sum(over) < 1e-10
    assert shifted[-1] <= leak_ * (1 + pair.error) <= 1e-14


def _cell(low, high):
    return mp.ncdf(-low) - mp.ncdf(-high) if low > 0 else mp.ncdf(high) - mp.ncdf(low)
