"""Rényi curves against definitions, other libraries and many digits."""

from fractions import Fraction
from math import inf, nan

import dp_accounting
import mpmath as mp
import numpy as np
import pytest
from dp_accounting.rdp import rdp_privacy_accountant as oracle
from hypothesis import given
from hypothesis import strategies as st

from almoner import mechanisms as m
from almoner.curves import approximate, gaussian, renyi, zcdp
from almoner.errors import ArgumentError, Unsupported

DELTAS = (1e-18, 1e-10, 1e-5, 1e-2, 0.5)
GRID = [(q, z) for q in (1e-3, 0.01, 0.1, 0.5, 0.9) for z in (0.4, 0.7, 1.0, 2.0, 5.0, 20.0)]


@pytest.fixture
def precise():
    with mp.workdps(60):
        yield


@pytest.mark.usefixtures("precise")
@given(st.floats(0.01, 2), st.floats(1.05, 200))
def test_randomized_response_and_laplace_against_the_definition(epsilon, order):
    """Their Rényi divergences, from the definition in 60 digits."""
    e, a = mp.mpf(epsilon), mp.mpf(order)
    p, lam = mp.exp(e) / (1 + mp.exp(e)), a - 1
    response = mp.log(p**a * (1 - p) ** (1 - a) + (1 - p) ** a * p ** (1 - a)) / lam
    laplace = mp.log(a / (2 * a - 1) * mp.exp(lam * e) + lam / (2 * a - 1) * mp.exp(-a * e)) / lam
    for mechanism, truth in ((m.RandomizedResponse(epsilon), response), (m.Laplace(1.0, epsilon), laplace)):
        assert 0 <= renyi.values(mechanism, [order])[0] / truth - 1 < 1e-11


def test_tiny_pure_mechanisms_do_not_cancel_to_zero():
    """For eps = 1e-9 the curve is alpha eps^2 / 2 to leading order, not rounding noise."""
    values = renyi.values(m.Pure(1e-9), [1.5, 2.0, 100.0])
    assert values == pytest.approx(np.array([1.5, 2.0, 100.0]) * 0.5e-18, rel=1e-6)


@pytest.mark.parametrize(
    "mechanism",
    [m.Pure(1e-200), m.Exponential(1e-200), m.SampledGaussian(1.0, 1.0, 1e-200), m.SampledGaussian(1e60, 1e-60, 1e-30)],
    ids=str,
)
def test_what_costs_something_never_costs_nothing(mechanism):
    """Values that floats cannot hold are rounded up, not to 0; what costs nothing stays at 0."""
    assert np.all(renyi.values(mechanism, [1.05, 2.0, 2.5]) > 0)
    assert renyi.cost(mechanism, 2.0) > 0
    for nothing in (m.Pure(0.0), m.Exponential(0.0), m.Repeated(mechanism, 0)):
        assert np.all(renyi.values(nothing, [1.05, 2.0, 2.5]) == 0)


@pytest.mark.parametrize(("rate", "noise"), GRID)
def test_sampled_gaussian_against_dp_accounting(rate, noise):
    """At whole orders, to 1e-9 relative (and what dp-accounting's own rounding of log A allows)."""
    orders = [2, 3, 4, 8, 16, 32, 64, 128, 256]
    theirs = np.array([oracle._compute_rdp_poisson_subsampled_gaussian(rate, noise, [a])[0] for a in orders])
    rounding = 4e-14 / (np.array(orders) - 1.0)  # of logarithms of numbers near one
    assert np.all(np.abs(renyi.sampled_gaussian(rate, noise, orders) - theirs) <= 1e-9 * theirs + rounding)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(("rate", "noise"), GRID)
def test_fractional_orders_are_below_dp_accountings_series(rate, noise):
    """Their series adds absolute values at fractional orders, an upper bound; ours never exceeds it."""
    for order in (1.05, 1.5, 2.5, 3.7, 10.9):
        theirs = oracle._compute_rdp_poisson_subsampled_gaussian(rate, noise, [order])[0]
        assert renyi.sampled_gaussian(rate, noise, [order])[0] <= theirs * (1 + 1e-9) + 1e-13


@pytest.mark.slow
@pytest.mark.parametrize("order", [1 + 2.0**-40, 1 + 2.0**-20, 1.05, 1.5, 2.0, 2.5, 3.7, 10.9, 32.0, 100.5])
@pytest.mark.parametrize(("rate", "noise"), [(1e-4, 100.0), (1e-3, 20.0), (0.01, 2.0), (0.1, 0.7), (0.9, 0.4)])
def test_sampled_gaussian_both_directions_against_mpmath(rate, noise, order):
    """At whole and fractional orders, to 1e-9 relative and never below the larger direction, removing."""
    with mp.workdps(40):
        q, z, a = mp.mpf(rate), mp.mpf(noise), mp.mpf(order)

        def divergence(power):
            def integrand(x):
                return mp.npdf(x, 0, z) * (1 - q + q * mp.exp((2 * x - 1) / (2 * z * z))) ** power

            return mp.log(mp.quad(integrand, mp.linspace(-30 * z, max(a, 2) + 30 * z, 50))) / (a - 1)

        remove, add = divergence(a), divergence(1 - a)
        assert 0 <= renyi.sampled_gaussian(rate, noise, [order])[0] / remove - 1 < 1e-9
        assert add <= remove


def test_sampled_gaussian_is_vectorised_and_knows_its_limits():
    """Arrays of noise agree with one at a time; rate 1 is the plain Gaussian; no contribution costs nothing."""
    noise = np.array([[0.5, 2.0, 30.0], [inf, nan, -1.0]])
    table = renyi.sampled_gaussian(0.02, noise, [1.5, 2, 40])
    assert table.shape == (2, 3, 3)
    for j in range(3):
        assert np.array_equal(table[0, j], renyi.sampled_gaussian(0.02, noise[0, j], [1.5, 2, 40]))
    assert np.all(table[1, 0] == 0)
    assert np.all(table[1, 1:] == inf)
    plain = renyi.sampled_gaussian(1.0, 3.0, [1.5, 40])
    assert plain == pytest.approx(np.array([1.5, 40]) / 18, rel=1e-9)


@given(st.floats(1e-4, 0.99), st.floats(0.2, 200), st.sampled_from([2.0, 5.5, 64.0, 20000.0, 123456.0]))
def test_sampled_gaussian_stays_below_no_sampling(rate, noise, order):
    """At any order, also those beyond the exact sums: positive, and at most the plain Gaussian's divergence."""
    value = renyi.sampled_gaussian(rate, noise, [order])[0]
    assert 0 < value <= order / (2 * noise**2) * (1 + 1e-10)


def test_a_curve_is_never_interpolated_downwards():
    """Between known orders the next value above is used; beyond the last one nothing is known."""
    curve = m.Renyi((2.0, 8.0), (0.1, 0.3))
    assert renyi.values(curve, [1.5, 2.0, 2.1, 8.0, 8.1]) == pytest.approx([0.1, 0.1, 0.3, 0.3, inf], rel=1e-9)
    assert renyi.cost(curve, 8.0) == Fraction(3, 10)


@given(st.lists(st.floats(0, 20), min_size=3, max_size=3), st.sampled_from(DELTAS))
def test_renyi_conversion_is_the_best_order_rounded_up(values, delta):
    """3.2 at each order in 60 digits; the result is above their minimum by rounding only."""
    orders = [2.0, 10.0, 300.0]
    with mp.workdps(60):
        each = [
            mp.mpf(v) + mp.log(1 - 1 / mp.mpf(a)) - mp.log(mp.mpf(a) * mp.mpf(delta)) / (mp.mpf(a) - 1)
            for v, a in zip(values, orders, strict=True)
        ]
        truth = max(min(each), mp.mpf(0))
        assert truth <= renyi.epsilon(values, orders, delta=delta) <= truth + 1e-12 * (1 + truth)


@pytest.mark.parametrize("order", [1 + 1e-12, 1.00066, 1.0226, 2.0, 540.9, 782719.4])
@pytest.mark.parametrize("move", [-1e-5, -1e-14, 0.0, 1e-14, 3e-13, 1e-5])
@pytest.mark.parametrize("value", [6.7e-8, 5e-3, 47.7, 978.4429450979004])
def test_conversions_round_against_the_person_also_where_logarithms_vanish(order, move, value):
    """Where order * delta is nearly one, the logarithm's argument is what is rounded; judged by 50 digits."""
    delta = min((1 + move) / order, 1 - 2.0**-50)
    with mp.workdps(50):
        alpha, tail = mp.mpf(order), mp.log(mp.mpf(order) * mp.mpf(delta)) / (mp.mpf(order) - 1)
        truth, shift = mp.mpf(value) - tail, mp.log(1 - 1 / alpha)
        assert renyi.epsilon([value], [order], delta=delta) >= truth + shift
        assert renyi.budget(order, epsilon=value, delta=delta) <= mp.mpf(value) - shift + tail
        assert renyi.mironov([value], [order], delta=delta) >= mp.mpf(value) - mp.log(mp.mpf(delta)) / (alpha - 1)


@pytest.mark.parametrize("delta", [5e-324, 1e-323, 1.5e-323, 2.5e-322, 1e-320])
@pytest.mark.parametrize("order", [1.05, 1.5, 1.9, 2.5, 17.3])
def test_conversions_hold_where_a_product_with_delta_has_few_digits(order, delta):
    """Order times one of the least floats is rounded to a whole number of them; judged by 50 digits."""
    with mp.workdps(50):
        alpha = mp.mpf(order)
        move = mp.log(1 - 1 / alpha) - mp.log(alpha * mp.mpf(delta)) / (alpha - 1)
        assert renyi.epsilon([0.5], [order], delta=delta) >= mp.mpf(0.5) + move
        assert renyi.budget(order, epsilon=1e5, delta=delta) <= mp.mpf(1e5) - move


def test_conversions_refuse_nonsense_and_count_unknown_as_infinite():
    """NaN and negative totals are infinite; deltas outside (0, 1) and orders up to 1 are refused."""
    assert renyi.epsilon([nan, -1.0], [2.0, 3.0], delta=1e-5) == inf
    assert np.array_equal(zcdp.epsilon([nan, -1.0, inf, 0.0], delta=1e-5), [inf, inf, inf, 0])
    assert np.array_equal(gaussian.epsilon([nan, -1.0, inf, 0.0], delta=1e-5), [inf, inf, inf, 0])
    assert np.array_equal(gaussian.delta([nan, -1.0, inf, 0.0], epsilon=1.0), [1, 1, 1, 0])
    for delta in (0.0, 1.0, nan, -1e-5):
        for convert in (renyi.Renyi((2.0,), (0.1,)).epsilon, zcdp.Zcdp(0.1).epsilon, gaussian.Gaussian(0.1).epsilon):
            with pytest.raises(ArgumentError, match="delta="):
                convert(delta=delta)
    with pytest.raises(ArgumentError, match="orders="):
        renyi.values(m.Pure(0.1), [1.0])


def test_the_edge_of_the_grid_is_told():
    """A small contribution whose best order is beyond the grid says so."""
    small = m.Gaussian(sigma=1e4)
    assert renyi.of(small, [2, 4, 8]).order(delta=1e-5) == (8.0, True)
    assert not renyi.of(m.Gaussian(5.0)).order(delta=1e-5)[1]


def test_unproven_costs_are_refused():
    """Nothing but Gaussian mechanisms is Gaussian; sampling has no useful zCDP; Gaussians have no own epsilon."""
    for cost, mechanism in (
        (gaussian.cost, m.DiscreteGaussian(1.0)),
        (gaussian.cost, m.Pure(0.1)),
        (gaussian.cost, m.SampledGaussian(1.0, 1.0, 0.1)),
        (zcdp.cost, m.SampledGaussian(1.0, 1.0, 0.1)),
        (zcdp.cost, m.Approximate(0.1, 1e-9)),
        (approximate.cost, m.Gaussian(1.0)),
    ):
        with pytest.raises(Unsupported):
            cost(mechanism)


def test_totals_of_many_rounds_against_dp_accounting():
    """A mixed run priced by renyi.of equals dp-accounting's accountant at the same whole orders."""
    orders = [2.0, 4.0, 16.0, 64.0]
    run = m.Composed(
        (m.Repeated(m.Gaussian(5.0), 10), m.Repeated(m.SampledGaussian(1.5, 1.0, 0.02), 300), m.Laplace(3.0))
    )
    accountant = dp_accounting.rdp.RdpAccountant(orders)
    accountant.compose(dp_accounting.GaussianDpEvent(5.0), 10)
    accountant.compose(dp_accounting.PoissonSampledDpEvent(0.02, dp_accounting.GaussianDpEvent(1.5)), 300)
    accountant.compose(dp_accounting.LaplaceDpEvent(3.0))
    assert renyi.of(run, orders).epsilon(delta=1e-6) == pytest.approx(accountant.get_epsilon(1e-6), rel=1e-9)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("rate", "noise", "order"), [(1e-5, 40.0, 16384), (1e-4, 130.0, 16384), (1e-3, 20.0, 4096), (0.01, 3.0, 512)]
)
def test_sampled_gaussian_at_high_whole_orders_against_fifty_digits(rate, noise, order):
    """Where the logarithms of binomials are large beside what is left of them: never below, and 1e-9 above at most."""
    value = float(renyi.sampled_gaussian(rate, noise, [float(order)])[0])
    with mp.workdps(50):
        q, z = mp.mpf(rate), mp.mpf(noise)
        weight, total = (1 - q) ** order, mp.mpf(0)
        for k in range(order + 1):
            total += weight * mp.expm1(mp.mpf(k * (k - 1)) / (2 * z * z))
            weight *= q / (1 - q) * (order - k) / (k + 1)
        exact = mp.log1p(total) / (order - 1)
    assert exact <= value <= exact * (1 + mp.mpf("1e-9"))


@pytest.mark.slow
@pytest.mark.parametrize(("rate", "noise", "order"), [(1e-4, 30.0, 1000.5), (1e-3, 5.0, 300.25), (0.02, 1.0, 17.3)])
def test_sampled_gaussian_at_high_fractional_orders_against_thirty_digits(rate, noise, order):
    """The integral again, in many digits: never below, and 1e-10 above at most."""
    value = float(renyi.sampled_gaussian(rate, noise, [order])[0])
    with mp.workdps(30):
        q, z, a = mp.mpf(rate), mp.mpf(noise), mp.mpf(order)

        def excess(x):
            u = q * mp.expm1((2 * x - 1) / (2 * z * z))
            return mp.npdf(x, 0, z) * ((1 + u) ** a - 1 - a * u)

        ends = [z * t for t in range(-12, 13, 2)] + [a * t / 8 + 12 * z for t in range(1, 9)]
        exact = mp.log1p(mp.quad(excess, ends)) / (a - 1)
    assert exact <= value <= exact * (1 + mp.mpf("1e-10"))
