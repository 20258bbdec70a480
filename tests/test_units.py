"""Money: decimals are exact, costs round up, budgets round down, nothing unknown is free."""

from fractions import Fraction
from math import inf, nan

import pytest
from hypothesis import given
from hypothesis import strategies as st

from almoner import _check, _units
from almoner.errors import ArgumentError
from written import written


def test_decimals_are_exact():
    """What a person writes as a decimal is that decimal: ten tenths are one."""
    assert 10 * _units.up(0.1) == _units.budget(1.0) == _units.MEASURE


@given(st.floats(0, 9000))
def test_costs_round_up_and_budgets_down(value):
    """A cost is never counted too low, a budget never too high, and both are off by less than a unit."""
    truth = written(value)
    assert truth <= Fraction(_units.up(value), _units.MEASURE) < truth + Fraction(1, _units.MEASURE)
    assert truth - Fraction(1, _units.MEASURE) < Fraction(_units.budget(value), _units.MEASURE) <= truth
    assert abs(truth - Fraction(value)) <= Fraction(value) * Fraction(12, 10**17) + Fraction(1, 10**320)


@pytest.mark.parametrize("cost", [nan, inf, -inf])
def test_what_is_not_a_number_is_infinite(cost):
    """NaN and infinities never count as zero."""
    assert _units.up(cost) == inf


@given(st.integers(0, 2**70))
def test_shown_amounts_round_against_the_spender(units):
    """Spent amounts are shown rounded up, what is left rounded down."""
    assert Fraction(_units.to_float(units)) * _units.MEASURE >= units
    assert Fraction(_units.to_float(units, down=True)) * _units.MEASURE <= units


@pytest.mark.parametrize(
    ("check", "bad"),
    [
        (_check.positive, [0, -1, nan, inf, "1", None, True]),
        (lambda **named: _check.within(0, 1, **named), [-1e-300, 1.0000001, nan, inf, "0"]),
        (lambda **named: _check.between(0, 1, **named), [0, 1, nan, -inf]),
        (lambda **named: _check.whole(1, **named), [0, 1.0, nan, True, "2"]),
        (lambda **named: _check.given(_check.whole, 1, **named), [0, 1.0, nan, True, "2"]),
    ],
)
def test_checks_name_argument_and_value(check, bad):
    """Every refused argument is named with its value and the rule; NaN is always refused."""
    for value in bad:
        with pytest.raises(ArgumentError, match=r"^sigma=.* must be "):
            check(sigma=value)


def test_what_is_left_out_is_not_checked():
    """An argument that is None keeps every rule; all others are checked by it."""
    _check.given(_check.positive, sigma=None, rate=0.5)
    with pytest.raises(ArgumentError, match=r"^rate=0 must be positive"):
        _check.given(_check.positive, sigma=None, rate=0)


@pytest.mark.parametrize("value", [0.0, 1e-320, 0.1, 0.067404, 1.23401, 1.23499, 9.9991, 123456.7, 1e30, inf])
def test_bounds_are_shown_rounded_up_or_down(value):
    """What a person reads is never below an upper bound nor above a lower one, and decimals stay what they are."""
    low, high = _units.shown(value, 4, down=True), _units.shown(value, 4)
    assert float(low) <= value <= float(high)
    assert float(high) <= value * (1 + 1.1e-3)
    assert (_units.shown(0.1, 4), _units.shown(1.23401, 4), _units.shown(9.9991, 4)) == ("0.1", "1.235", "10")
