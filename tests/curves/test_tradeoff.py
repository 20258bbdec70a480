"""Trade-off functions and hockey-stick curves: on the right side of the exact ones, and close to them."""

from fractions import Fraction
from itertools import product
from math import exp, inf, nan

import numpy as np
import pytest
from scipy.stats import norm

from almoner import filters, odometers
from almoner import mechanisms as m
from almoner.curves import approximate, gaussian, renyi, tradeoff, zcdp
from almoner.errors import ArgumentError, Unsupported

ALPHA = np.linspace(0.0, 1.0, 401)
EPSILON = np.linspace(0.0, 4.0, 161)


def exact_delta(p, q, epsilon):
    """The larger of both orders."""
    return max(sum(max(0.0, a - exp(epsilon) * b) for a, b in zip(*way, strict=True)) for way in ((p, q), (q, p)))


def exact_beta(p, q, alpha):
    """By Neyman and Pearson: reject the outcomes with the largest ratio first, the last one in part."""
    best = 1.0
    for there, back in ((p, q), (q, p)):
        order = np.argsort([-inf if b == 0 else -a / b for a, b in zip(there, back, strict=True)])
        rejected, power = 0.0, 0.0
        for place in order:
            part = 1.0 if back[place] == 0 else min(1.0, max(0.0, (alpha - rejected) / back[place]))
            rejected, power = rejected + part * back[place], power + part * there[place]
        best = min(best, 1 - power)
    return best


def composed(pair, rounds):
    """The laws of all outcomes of several rounds."""
    return tuple([float(np.prod(each)) for each in product(law, repeat=rounds)] for law in (pair.p, pair.q))


@pytest.mark.quick(8)
@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize("rounds", [1, 4])
def test_pairs_and_their_compositions_against_neyman_and_pearson(seed, rounds):
    """Random pairs of four outcomes: delta is never below the exact one and beta never above the best test's, at 161
    epsilons and 401 rates; both are within 0.005."""
    rng = np.random.default_rng(seed)
    p = rng.dirichlet(np.ones(4))
    q = p * np.exp(0.6 * rng.normal(size=4))
    pair = m.DominatingPair(p, q / q.sum())
    curve = tradeoff.of(m.Repeated(pair, rounds))
    there, back = composed(pair, rounds)
    deltas = np.array([exact_delta(there, back, e) for e in EPSILON])
    betas = np.array([exact_beta(there, back, a) for a in ALPHA])
    assert (curve.delta(EPSILON) >= deltas - 1e-15).all()
    assert (curve.delta(EPSILON) <= deltas + 0.005).all()
    assert (curve.beta(ALPHA) <= betas + 1e-13).all()
    symmetric = np.array([min(1.0, 1.0 - a) for a in ALPHA])
    assert (curve.beta(ALPHA) <= symmetric).all()


@pytest.mark.parametrize("mu", [0.1, 1.0, 3.0])
def test_gaussian_noise_against_its_trade_off_function(mu):
    """G_mu(alpha) = Phi(quantile(1 - alpha) - mu): never above it, and within 0.002; also from its Zcdp, below it."""
    exact = norm.cdf(norm.isf(ALPHA) - mu)
    curve = tradeoff.of(m.Gaussian(1 / mu))
    assert (curve.beta(ALPHA) <= exact + 1e-15).all()
    assert (curve.beta(ALPHA) >= exact - 0.002).all()
    assert (curve.delta(EPSILON) >= gaussian.delta(mu, epsilon=EPSILON) * (1 - 1e-9)).all()
    assert (tradeoff.of(zcdp.Zcdp(mu**2 / 2)).beta(ALPHA) <= exact + 1e-15).all()
    assert tradeoff.of(gaussian.Gaussian(mu)).beta(ALPHA) == pytest.approx(curve.beta(ALPHA), abs=1e-9)


@pytest.mark.parametrize(
    "mechanism",
    [
        m.Repeated(m.SampledGaussian(1.0, 1.0, 0.01), 500),
        m.Exponential(0.5),
        m.Repeated(m.Exponential(0.5), 3),
        m.Laplace(2.0),
        m.DiscreteGaussian(3.0),
        m.Composed((m.Zcdp(0.01), m.Approximate(0.1, 1e-7))),
        m.Renyi((2.0, 8.0, 32.0), (0.01, 0.04, 0.2)),
        m.Composed(()),
    ],
)
def test_every_kind_of_mechanism_has_a_curve(mechanism):
    """A curve that falls with epsilon, at most 1 and at least what is known at one delta from Rényi DP or losses."""
    curve = tradeoff.of(mechanism, points=32)
    deltas, betas = curve.delta(EPSILON), curve.beta(ALPHA)
    assert (np.diff(deltas) <= 1e-15).all()
    assert deltas[0] <= 1
    assert (np.diff(betas) <= 1e-15).all()
    assert (betas <= 1 - ALPHA + 1e-15).all()
    with_failures = float(renyi.failure(mechanism))
    epsilon = float(renyi.epsilon(renyi.values(mechanism, renyi.ORDERS), renyi.ORDERS, delta=1e-3))
    assert float(curve.delta(epsilon)) <= 1.5e-3 + with_failures


def test_delta_is_interpolated_where_it_is_convex():
    """In exp(epsilon): the chord in epsilon itself would be below the delta of randomised response."""
    p = 1 / (1 + exp(-2.0))
    curve = tradeoff.Curve((0.0, 2.0), (2 * p - 1, 0.0))
    between = np.linspace(0.0, 2.0, 21)
    exact = np.array([exact_delta((p, 1 - p), (1 - p, p), e) for e in between])
    wrong = (2 * p - 1) * (1 - between / 2)
    assert (curve.delta(between) >= exact - 1e-16).all()
    assert curve.delta(between) == pytest.approx(exact, abs=1e-12)
    assert (wrong[1:-1] < exact[1:-1]).all()


@pytest.mark.parametrize("fails", [0.0, 0.1])
def test_below_the_first_point_delta_is_that_of_randomised_response(fails):
    """Known at epsilon = 1 alone: the worst that there is reveals all with probability delta, else is randomised
    response, and delta is the exact one of that; the chord to delta = 1 at exp(epsilon) = 0 would be looser."""
    curve = tradeoff.Curve((1.0,), (fails,))
    p = (1 - fails) / (1 + exp(-1.0))
    laws = (fails, p, 1 - fails - p, 0.0), (0.0, 1 - fails - p, p, fails)
    for epsilon in (0.0, 0.3, 0.99):
        exact = exact_delta(*laws, epsilon)
        assert exact <= float(curve.delta(epsilon)) <= exact + 1e-12
        assert float(curve.delta(epsilon)) <= 1 - (1 - fails) * exp(epsilon - 1.0)
    assert curve.delta([1.0, 5.0, inf]).tolist() == [fails] * 3


def test_a_curve_beyond_its_last_point():
    """Beyond its last point a curve has the delta of that point."""
    curve = tradeoff.Curve((1.0,), (0.0,))
    assert curve.delta([1.0, 5.0, inf]).tolist() == [0.0, 0.0, 0.0]


@pytest.mark.parametrize(
    "make",
    [filters.Gaussian, filters.Zcdp, filters.Renyi, filters.Residue, filters.Approximate, filters.Basic],
)
def test_budgets_have_curves(make):
    """At the budget's own epsilon its own delta, and the trade-off function of that point at least."""
    account = make(epsilon=1.0, delta=1e-5)
    curve = account.tradeoff()
    assert float(curve.delta(1.0)) <= 1e-5 * (1 + 1e-9)
    assert (curve.beta(ALPHA) >= tradeoff.Curve((1.0,), (1e-5,)).beta(ALPHA)).all()
    assert (curve.beta(ALPHA) <= 1 - ALPHA).all()
    before = account.state()
    account.tradeoff(deltas=[1e-5])
    assert account.state() == before


def test_a_gaussian_budget_has_the_gaussian_curve():
    """Given as mu: within 0.01 of its trade-off function, from below."""
    exact = norm.cdf(norm.isf(ALPHA) - 1.0)
    betas = filters.Gaussian(mu=1.0).tradeoff().beta(ALPHA)
    assert (betas <= exact + 1e-15).all()
    assert (betas >= exact - 0.01).all()


def test_what_has_no_curve_is_refused():
    """Odometers, whose bound is no (epsilon, delta)-DP at a moment chosen from results; and mechanisms unknown."""
    for promise in (odometers.Renyi(delta=1e-5), 1.0, None):
        with pytest.raises(Unsupported, match="no curve"):
            tradeoff.of(promise)
    assert tradeoff.of(m.Pure(inf)).deltas == (1.0,)
    with pytest.raises(Unsupported):
        tradeoff.from_epsilons(lambda delta: inf)
    assert tradeoff.of(approximate.Approximate(0.5, 1e-3)).deltas == (1e-3,)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: tradeoff.Curve((), ()), "epsilons and deltas must be equally long"),
        (lambda: tradeoff.Curve((1.0, 0.5), (0.1, 0.0)), "epsilons must increase"),
        (lambda: tradeoff.Curve((0.5, 1.0), (0.1, 0.2)), "deltas must not increase"),
        (lambda: tradeoff.Curve((-0.5,), (0.1,)), "epsilon=-0.5"),
        (lambda: tradeoff.Curve((0.5,), (nan,)), "delta=nan"),
        (lambda: tradeoff.Curve((0.5,), (0.1,)).delta([0.1, nan]), "epsilon must be numbers >= 0"),
        (lambda: tradeoff.Curve((0.5,), (0.1,)).beta(1.5), r"alpha must be numbers in \[0, 1\]"),
        (lambda: tradeoff.of(m.Pure(0.1), points=1), "points=1"),
        (lambda: tradeoff.from_epsilons(lambda delta: 1.0, deltas=[1.5]), "delta=1.5"),
    ],
)
def test_bad_arguments_are_named(make, message):
    """Points that are no curve, and rates that are none."""
    with pytest.raises(ArgumentError, match=message):
        make()


def test_failures_alone_have_a_closed_form():
    """Ten thousand rounds that tell nothing unless they fail: at epsilon 0 the chance that one fails, exactly."""
    rounds = m.Composed((m.Repeated(m.Approximate(0.0, 1e-7), 10_000), m.Repeated(m.Approximate(0.0, 0.125), 3)))
    exact = 1 - (1 - Fraction(1, 10**7)) ** 10_000 * Fraction(7, 8) ** 3
    curve = tradeoff.of(rounds)
    assert curve.epsilons == (0.0,)
    assert exact <= Fraction(curve.deltas[0]) <= exact * (1 + Fraction(1, 10**12))
    assert tradeoff.of(m.Repeated(m.Approximate(0.0, 1.0), 2)).deltas == (1.0,)
    assert tradeoff.of(m.Repeated(m.Approximate(0.0, 0.0), 2)).deltas == (0.0,)
