"""A value and its interval with as many digits as the interval allows."""

import pytest

from almoner._intervals import interval_shown, value_shown


@pytest.mark.parametrize(
    ("low", "high", "shown"),
    [
        (594.045, 641.065, "594 to 642"),
        (-0.0432, 0.0568, "-0.044 to 0.057"),
        (1e20, 1e20 + 1e18, "1e+20 to 1.01e+20"),
        (2.0, 2.0, "2 to 2"),
        (float("-inf"), float("inf"), "-inf to inf"),
        (1.0000005e15, 1.0000005e15 + 4, "1e+15 to 1.00001e+15"),
        (123.4567891234, 123.4567891235, "123.456 to 123.457"),
        (None, None, "-"),
    ],
)
def test_intervals_are_rounded_outwards(low, high, shown):
    """To two digits of half the width at least, and never inside of the interval."""
    assert interval_shown(low, high) == shown


def test_values_are_rounded_to_what_the_interval_tells():
    """A value is not shown with digits that are noise, and never with fewer digits than a whole number."""
    assert value_shown(617.555, 594.045, 641.065) == "618"
    assert value_shown(1234567.8, 1230000.0, 1240000.0) == "1234568"
    assert value_shown(0.01234, -0.03766, 0.06234) == "0.012"
    assert value_shown(-0.3, -24.0, 24.0) == "0"
    assert value_shown(1234567.8, 1230000.0, 1240000.0, thousands=",") == "1,234,568"
    assert interval_shown(-1234.5, 9876.5, thousands=",") == "-1,235 to 9,877"
    assert value_shown(2e6, 2e6, 2e6, thousands=",") == "2e+06"
