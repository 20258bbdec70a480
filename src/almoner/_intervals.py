"""Show a value and its interval with the digits that the interval allows."""

from decimal import ROUND_CEILING, ROUND_FLOOR, ROUND_HALF_EVEN, Decimal
from math import floor, inf, log10


def value_shown(value: float, low: float, high: float, *, thousands: str = "") -> str:
    """A value, rounded to the first two digits of half the width of its interval; all digits before the point."""
    return _rounded(value, low, high, ROUND_HALF_EVEN, thousands)


def interval_shown(low: float, high: float, *, thousands: str = "") -> str:
    """Both ends of an interval, rounded outwards, in the same way."""
    ends = (_rounded(low, low, high, ROUND_FLOOR, thousands), _rounded(high, low, high, ROUND_CEILING, thousands))
    return " to ".join(ends)


def _rounded(number: float, low: float, high: float, rounding: str, thousands: str) -> str:
    half = (high - low) / 2
    if not 0 < half < inf or abs(number) >= 1e15 or half < 1e-9:
        return f"{number:{thousands}.6g}"
    rounded = Decimal(number).quantize(Decimal(1).scaleb(-max(0, 1 - floor(log10(half)))), rounding)
    return f"{rounded + 0:{thousands}f}"  # adding 0 takes the sign from a zero
