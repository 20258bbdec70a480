"""What a dominating pair of one's own costs: never below what it is, and close to it."""

from fractions import Fraction
from math import inf, log

import numpy as np
import pytest
from mpmath import mp, mpf

from almoner import mechanisms as m
from almoner.curves import _pairs, approximate, gaussian, renyi, zcdp
from almoner.curves._grid import discrete
from almoner.curves.losses import deltas
from almoner.errors import Unsupported

mp.dps = 50


def random_pair(seed, outcomes=5, spread=1.0):
    """Two random laws whose masses are floats that add up to one but for rounding."""
    rng = np.random.default_rng(seed)
    p = rng.dirichlet(np.ones(outcomes))
    q = p * np.exp(spread * rng.normal(size=outcomes))
    return m.DominatingPair(p, q / q.sum())


def curve(p, q, e):
    """The exact hockey-stick divergence of two lists of numbers at a real epsilon."""
    return mp.fsum(max(mpf(0), mpf(a) - mp.exp(mpf(e)) * mpf(b)) for a, b in zip(p, q, strict=True))


def curve_of(one, e):
    """The curve that is charged in one order: failures, and losses with their errors."""
    losses, masses = one.losses + one.error, one.masses * (1 + one.error)
    return one.leak + mp.fsum(
        mpf(w) * max(mpf(0), 1 - mp.exp(mpf(e) - mpf(x))) for x, w in zip(losses.tolist(), masses.tolist(), strict=True)
    )


@pytest.mark.quick(19)
@pytest.mark.parametrize("seed", range(20))
def test_both_orders_are_charged_in_full(seed):
    """At 40 real epsilons in both orders the charged curve is not below that of the numbers, nor 1e-12 above it."""
    pair = random_pair(seed, outcomes=2 + seed, spread=10.0 ** (1 - seed % 6))
    for one, (p, q) in zip(discrete.directions(pair), ((pair.p, pair.q), (pair.q, pair.p)), strict=True):
        reach = float(np.abs(one.losses).max())
        for e in np.linspace(-1.2 * reach, 1.2 * reach, 40):
            exact = curve(p, q, e)
            assert exact - mpf(2) ** -50 <= curve_of(one, e) <= exact + mpf(10) ** -12


@pytest.mark.parametrize("seed", range(20))
def test_renyi_costs_against_fifty_digits(seed):
    """The larger order's divergence, never below and at most 2e-13 (1 + itself) above, at orders from 1.01 to 5000."""
    pair = random_pair(seed, outcomes=2 + seed, spread=10.0 ** (1 - seed % 6))
    orders = [1.01, 1.5, 2.0, 7.3, 64.0, 5000.0]
    for order, value in zip(orders, discrete.renyi(pair, np.asarray(orders)).tolist(), strict=True):
        exact = max(_renyi(pair.p, pair.q, order), _renyi(pair.q, pair.p, order))
        assert exact <= value <= exact + 2e-13 * (1 + exact)


def _renyi(p, q, order):
    p, q = ([mpf(each) / mp.fsum(map(mpf, law)) for each in law] for law in (p, q))
    return mp.log(mp.fsum(a ** mpf(order) * b ** (1 - mpf(order)) for a, b in zip(p, q, strict=True))) / (order - 1)


@pytest.mark.parametrize("seed", range(6))
def test_zcdp_costs_bound_every_order(seed):
    """rho is at or above the divergence over the order at 300 orders, at most 1.1 % above the largest of these ratios,
    and at most half of epsilon squared."""
    pair = random_pair(seed, spread=10.0 ** (1 - seed))
    orders = 1 + np.geomspace(1e-3, 1e6, 300)
    ratios = renyi.values(pair, orders) / orders
    rho = float(zcdp.cost(pair))
    assert ratios.max() * (1 - 1e-9) - 3e-15 <= rho <= 1.011 * ratios.max() + 1e-15
    assert rho <= approximate.of(pair).epsilon ** 2 / 2 * (1 + 1e-12)


@pytest.mark.parametrize("seed", range(6))
def test_gaussian_costs_dominate_and_are_the_least(seed):
    """mu-GDP is above the pair at 200 epsilons in both orders; a mu 0.1 % smaller is below it at some epsilon."""
    pair = random_pair(seed, outcomes=3 + seed, spread=10.0 ** (1 - seed / 2))
    mu = float(gaussian.of(pair).mu)
    reach = approximate.of(pair).epsilon
    worst = 0
    for e in np.linspace(0, reach, 200):
        for p, q in ((pair.p, pair.q), (pair.q, pair.p)):
            exact = curve(p, q, e)
            assert exact <= float(gaussian.delta(mu, epsilon=e)) + mpf(2) ** -50
    # a smaller mu fails at a corner of the trade-off function
    losses = np.log(np.asarray(pair.p)) - np.log(np.asarray(pair.q))
    for x in losses:
        alpha = mp.fsum(b for b, loss in zip(pair.q, losses, strict=True) if loss > x)
        beta = mp.fsum(a for a, loss in zip(pair.p, losses, strict=True) if loss <= x)
        if 0 < alpha < 1:
            smaller = mp.ncdf(-mp.sqrt(2) * mp.erfinv(2 * alpha - 1) - mpf(0.999) * mu)
            worst = max(worst, smaller - beta)
    assert worst > 0


def test_randomised_response_costs_what_it_is_known_to_cost():
    """As two lists: epsilon, Rényi and zCDP of theory 2.3, and mu = 2 quantile(e^eps / (1 + e^eps))."""
    epsilon = log(3)
    pair, known = m.DominatingPair((0.75, 0.25), (0.25, 0.75)), m.RandomizedResponse(epsilon)
    assert approximate.of(pair).epsilon == pytest.approx(epsilon, rel=1e-14)
    assert approximate.of(pair).epsilon >= epsilon * (1 - 1e-16)
    orders = [1.3, 2.0, 30.0]
    assert renyi.values(pair, orders) == pytest.approx(renyi.values(known, orders), rel=1e-11)
    assert zcdp.cost(pair) <= zcdp.cost(known)
    assert gaussian.of(pair).mu == pytest.approx(float(2 * mp.sqrt(2) * mp.erfinv(mpf(1) / 2)), rel=1e-10)


def test_infinite_losses_are_failures_and_the_rest_is_a_pair():
    """Each order's own infinite mass; the larger one is the failure; where it does not fail it is as it was, raised by
    so much that its masses under Q do not exceed one."""
    pair = m.DominatingPair((0.001, 0.599, 0.4, 0.0), (0.0, 0.4, 0.598, 0.002))
    remove, add = discrete.directions(pair)
    assert (remove.leak, add.leak) == pytest.approx((0.001, 0.002), rel=1e-14)
    assert Fraction(2, 1000) <= renyi.failure(pair) <= Fraction(2, 1000) + Fraction(1, 10**17)
    rest = renyi.without_failures(pair)
    assert renyi.failure(rest) == 0
    for old, new, (p, q) in zip(
        discrete.directions(pair), discrete.directions(rest), ((pair.p, pair.q), (pair.q, pair.p)), strict=True
    ):
        assert float(new.masses @ np.exp(-new.losses)) <= 1 + 1e-14
        for e in np.linspace(-0.5, 0.6, 23):
            exact = curve(p, q, e)
            assert exact - mpf(2) ** -50 <= old.leak + (1 - old.leak) * curve_of(new, e) <= exact + mpf(0.0015)
    for notion in (zcdp, gaussian):
        with pytest.raises(Unsupported):
            notion.cost(pair)
    assert float(approximate.cost(pair)[1]) == pytest.approx(0.002, rel=1e-14)


def test_an_approximate_round_written_as_a_pair_costs_the_same():
    """Reveal all with probability delta, else randomised response: as Approximate, in Rényi DP and in failures."""
    delta, truth = 1e-3, 0.75
    p = (delta, (1 - delta) * truth, (1 - delta) * (1 - truth), 0.0)
    pair, known = m.DominatingPair(p, p[::-1]), m.Approximate(log(3), delta)
    orders = [1.2, 4.0, 100.0]
    assert renyi.values(pair, orders) == pytest.approx(renyi.values(known, orders), rel=1e-9)
    assert float(renyi.failure(pair)) == pytest.approx(delta, rel=1e-12)
    assert deltas(np.array([[3]]), [pair], epsilon=1.5) == pytest.approx(deltas(np.array([[3]]), [known], epsilon=1.5))


def test_a_mechanism_that_always_reveals_all_is_infinite_everywhere():
    """P and Q without a common outcome: failure one, infinite losses, no finite price anywhere."""
    pair = m.DominatingPair((1.0, 0.0), (0.0, 1.0))
    assert renyi.failure(pair) == 1
    assert deltas(np.array([[1]]), [pair], epsilon=1.0).tolist() == [1.0]
    assert all(each.leak == 1 for each in _pairs.of(pair, cut=1e-9))


@pytest.mark.parametrize("miss", [1e-13, -1e-13, 9e-10, -9e-10])
def test_probabilities_that_miss_one_are_taken_against_the_spender(miss):
    """Wherever the missing (or surplus) probability belongs, the curve charged is above that list's at 30 epsilons."""
    p, q = [0.2, 0.3, 0.5], [0.4, 0.35, 0.25]
    for place in range(3):
        meant = list(p)
        written = list(p)
        written[0 if miss < 0 else place] += -miss if miss < 0 else 0.0
        written[place] -= miss if miss > 0 else 0.0
        pair = m.DominatingPair(written, q)
        for e in np.linspace(-1.0, 1.0, 30):
            assert curve_of(discrete.directions(pair)[0], e) >= curve(meant, q, e) - mpf(10) ** -14


def test_missing_probability_above_rounding_is_a_failure():
    """5e-10 too little: an infinite loss of that probability; 5e-13 too little: none."""
    assert renyi.failure(m.DominatingPair((0.5, 0.5 - 5e-10), (0.5, 0.5))) == pytest.approx(5e-10, rel=1e-6)
    assert renyi.failure(m.DominatingPair((0.5, 0.5 - 5e-13), (0.5, 0.5))) == 0


@pytest.mark.parametrize("most", [20, 256])
def test_fewer_points_dominate(most):
    """A pair of 3,000 outcomes on fewer points is nowhere below it, at 100 real epsilons, and 1 % of its peak above."""
    rng = np.random.default_rng(5)
    losses = np.sort(rng.standard_t(4, size=3000))
    p = np.exp(-((losses - 0.3) ** 2))
    q = p * np.exp(-0.4 * losses)
    one = discrete.directions(m.DominatingPair(p / p.sum(), q / q.sum()))[0]
    fewer = discrete.coarse(one, most)
    assert len(fewer.losses) <= most
    assert fewer.masses.sum() == pytest.approx(1.0, abs=1e-12)

    def floats(law, e):
        return float(np.sum(law.masses * np.maximum(0.0, -np.expm1(e - law.losses))))

    top = floats(one, 0.0)
    for e in np.linspace(1.3 * one.losses[0], 1.3 * one.losses[-1], 100):
        exact = floats(one, e)
        assert exact - 1e-14 <= floats(fewer, e) <= exact + (0.01 if most > 20 else 0.3) * top


@pytest.mark.parametrize("exponent", range(5, 285, 20))
def test_losses_of_tiny_probabilities_are_within_their_error(exponent):
    """Logarithms of both would each be rounded as numbers of hundreds; judged by 40 digits."""
    p = 10.0**-exponent * np.linspace(1.0, 9.0, 200)
    q = p * np.linspace(1.6, 2.9, 200)
    for one, other in ((p, q), (q, p)):
        exact = [mp.log(mpf(a) / mpf(b)) for a, b in zip(one.tolist(), other.tolist(), strict=True)]
        off = max(abs(a - mpf(b)) for a, b in zip(exact, discrete._losses(one, other).tolist(), strict=True))
        assert off <= 8 * 2.0**-52


def test_pairs_of_a_mechanism_with_very_large_losses_stay_finite():
    """Losses above 100 are a leak of the residue's pair, below -100 they are raised; nothing overflows."""
    pair = m.DominatingPair.from_losses([300.0, 0.0, -300.0], [1e-3, 0.999, 1e-200])
    remove, add = _pairs.of(pair, cut=1e-9)
    assert remove.leak == pytest.approx(1e-3, rel=1e-9)
    assert np.isfinite(add.losses).all()
    assert approximate.of(pair).epsilon == pytest.approx(300.0, rel=1e-12)
    assert renyi.values(pair, [1000.0])[0] < inf
    assert _pairs.Pair(np.array([-400.0, 400.0]), np.array([0.5, 0.5])).delta(epsilon=350.0) == 0.5
