"""zCDP: conversions round up, costs are exact."""

from fractions import Fraction
from math import inf

import mpmath as mp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from almoner import mechanisms as m
from almoner.curves import gaussian, renyi, zcdp

DELTAS = (1e-18, 1e-10, 1e-5, 1e-2, 0.5)


@given(st.floats(1e-12, 100), st.sampled_from(DELTAS))
def test_zcdp_bounds_lie_above_the_gaussian_truth(rho, delta):
    """A Gaussian mechanism of that rho is a member of the class, so no zCDP bound may be below its exact epsilon."""
    exact = gaussian.Gaussian((2 * rho) ** 0.5 * (1 - 1e-12)).epsilon(delta=delta)
    epsilon = zcdp.Zcdp(rho).epsilon(delta=delta)
    assert epsilon >= exact * (1 - 1e-9)
    assert zcdp.Zcdp(rho).delta(epsilon=epsilon) <= delta * (1 + 1e-9)


@pytest.mark.slow
@given(st.floats(1e-3, 30), st.sampled_from(DELTAS))
def test_zcdp_rho_inverts_epsilon(epsilon, delta):
    """The largest rho for a budget converts back to it."""
    rho = zcdp.rho(epsilon=epsilon, delta=delta)
    assert zcdp.Zcdp(rho).epsilon(delta=delta) <= epsilon
    assert zcdp.Zcdp(rho * (1 + 1e-9)).epsilon(delta=delta) > epsilon


@pytest.mark.parametrize(
    ("rho", "delta"),
    [
        (488.9429972820484, 0.9999836886137694),
        (101.47185088572255, 0.9999979884064704),
        (15.0688, 0.999990148765268),
        (1e3, 5e-324),
    ],
)
def test_zcdp_conversion_is_never_below_the_best_order(rho, delta):
    """With delta near one so is the best order times delta, which for the least floats is none; judged by 40 digits."""
    with mp.workdps(40):

        def bound(x):
            lam = mp.exp(x)
            return (1 + lam) * mp.mpf(rho) - mp.log1p(1 / lam) - mp.log((1 + lam) * mp.mpf(delta)) / lam

        best = mp.findroot(lambda x: mp.diff(bound, x), np.log(zcdp.best_order(rho, delta=delta) - 1))
        assert zcdp.epsilon(rho, delta=delta) >= bound(best)


@pytest.mark.parametrize("rho", [5e-324, 1e-310, 1e-200, 1e-30, 1e20, 1e34, 1e100, 1e300])
def test_zcdp_epsilon_is_a_number_at_both_ends(rho):
    """No rho is so small or so large that its epsilon is NaN or below the loss that 3.2 allows at large rho."""
    epsilon = float(zcdp.epsilon(rho, delta=1e-5))
    assert 0 <= epsilon < inf
    assert epsilon >= rho if rho > 1 else epsilon < 1e-10


def test_costs_of_several_mechanisms_are_added_exactly():
    """Sums of computed costs lose nothing: a million of them cost a million times one."""
    one = m.Pure(0.1)
    single = renyi.cost(one, 3.0)
    assert renyi.cost(m.Repeated(one, 10**6 + 1), 3.0) == (10**6 + 1) * Fraction(single)
    assert renyi.cost(m.Composed((one, m.Gaussian(3.0), one)), 3.0) == 2 * Fraction(single) + Fraction(3, 18)


@pytest.mark.parametrize(("rho", "epsilon"), [(1e-4, 1.0), (1e-9, 0.01), (1e-300, 1e-3)])
def test_a_delta_that_no_float_holds_is_not_zero(rho, epsilon):
    """Zero would promise pure differential privacy."""
    assert zcdp.delta(rho, epsilon=epsilon) > 0
    assert zcdp.Zcdp(rho).delta(epsilon=epsilon) > 0
    assert zcdp.delta(0.0, epsilon=epsilon) == 0
