"""The two sums of Rogers et al.: exact squares, drift rounded up."""

import mpmath
import pytest

from almoner import mechanisms as m
from almoner._units import MEASURE
from almoner.curves import approximate


@pytest.mark.parametrize("epsilon", [1e-6, 0.1, 1.0, 30.0])
def test_pure_rounds_in_many_digits(epsilon):
    """The square exactly, the drift at or above its value and within a few units in the last place of a float."""
    square, drift = approximate.square_and_drift(m.Pure(epsilon))
    with mpmath.workdps(50):
        e = mpmath.mpf(repr(epsilon))
        assert square == int(mpmath.ceil(e**2 * MEASURE))
        truth = e * mpmath.expm1(e) / 2 * MEASURE
        assert truth <= drift <= truth * (1 + mpmath.mpf("1e-14") * (2 + e)) + 2


def test_zcdp_rounds_cost_twice_rho_and_rho():
    """By the definition of zCDP."""
    assert approximate.square_and_drift(m.Zcdp(0.25)) == (MEASURE // 2, MEASURE // 4)


def test_hopeless_rounds_are_infinite():
    """Where the drift has no float."""
    assert approximate.square_and_drift(m.Pure(1e4))[1] == float("inf")
