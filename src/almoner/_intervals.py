"""Show a value and its interval with the digits that the interval allows; steps of scales."""

from decimal import ROUND_CEILING, ROUND_FLOOR, ROUND_HALF_EVEN, Decimal
from math import floor, inf, isfinite, log10


def value_shown(value: float | None, low: float, high: float, *, thousands: str = "") -> str:
    """A value, rounded to the first two digits of half the width of its interval; all digits before the point."""
    return "-" if value is None else _rounded(value, low, high, ROUND_HALF_EVEN, thousands)


def interval_shown(low: float | None, high: float | None, *, thousands: str = "") -> str:
    """Both ends of an interval, rounded outwards, in the same way."""
    if low is None or high is None:
        return "-"
    ends = (_rounded(low, low, high, ROUND_FLOOR, thousands), _rounded(high, low, high, ROUND_CEILING, thousands))
    return " to ".join(ends)


def _rounded(number: float, low: float, high: float, rounding: str, thousands: str) -> str:
    half = (high - low) / 2
    if not isfinite(number):
        return str(number)
    if not 0 < half < inf or abs(number) >= 1e15 or half < 1e-9:
        exact = Decimal(number)
        return f"{float(exact.quantize(Decimal(1).scaleb(exact.adjusted() - 5), rounding)):{thousands}.6g}"
    rounded = Decimal(number).quantize(Decimal(1).scaleb(-max(0, 1 - floor(log10(half)))), rounding)
    return f"{rounded + 0:{thousands}f}"  # adding 0 takes the sign from a zero


def round_step(about: float) -> float:
    """The number of 1, 2 and 5 times a power of ten that is the next above."""
    power = 10.0 ** floor(log10(about))
    return next(times * power for times in (1, 2, 5, 10) if times * power >= about * (1 - 1e-9))
