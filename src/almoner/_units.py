"""Count privacy in whole units, as a bank counts cents.

What a person writes in decimals is exact (``0.1`` is one tenth, not the nearest binary fraction); a float of more
digits than anybody writes (``1 / 3``) is itself. What is computed is rounded up when it is spent and down when it is a
budget. Sums of units are exact. There are two units:

    10**-15  of the measure that adds up (rho, mu squared, a Rényi divergence), in accounts of people and in ledgers.
             Arrays of units are int64. Amounts of RANGE or more count as infinite there.
    10**-30  of the measure in filters that add it up, and of a probability of failure: whole numbers without end.

A double of 1/3 has more digits than fit into 10**-15: rounded up there, three thirds are more than one. In units of
10**-30 nothing is lost when equal shares are spent.
"""

from collections.abc import Iterable
from decimal import ROUND_CEILING, ROUND_FLOOR, Context, Decimal
from fractions import Fraction
from math import ceil, floor, inf, nextafter
from sys import float_info
from typing import overload

MEASURE = 10**15  # units in one nat of epsilon, one of rho, mu squared or Rényi divergence, where they are int64
FINE = 10**30  # units in one nat where an account holds Python's whole numbers, which have no end
FAILURE = 10**30  # units in a probability of one
RANGE = 9_200_000_000_000_000_000  # amounts from here on (9200 of the measure) are infinite where they are int64
_DIGITS = 15  # digits up to which every decimal is the one that some float shows
_LONG = Context(prec=20)  # digits of a computed float: from 10**-10 on it is a whole number of fine units
Units = int | float  # a whole number of units; a float only for infinity


def exact(value: float | int | Fraction | Decimal) -> Fraction:
    """The number that was written: decimals as decimals, fractions as they are. The value must be finite.

    A float of at most 15 digits stands for the decimal that it shows, so that ten times ``0.1`` are one. It differs
    from that by at most 1.2e-16 of it: noise has the float, so a cost that is called exact is the float's to 2.4e-16. A
    float of more digits was computed and stands for itself, to 20 digits, so that ``k`` times ``1 / k`` fit into one
    wherever the floats' own sum does.
    """
    if isinstance(value, Fraction):
        return value
    if isinstance(value, int | Decimal):
        return Fraction(value)
    shown = Decimal(repr(float(value)))
    written = len(shown.normalize().as_tuple().digits) <= _DIGITS
    return Fraction(shown if written else _LONG.create_decimal(float(value)))


def up(cost: float | Fraction, *, per: int = MEASURE) -> Units:
    """Round a cost up: the least whole number of units that is not below it; NaN counts as infinite."""
    return inf if isinstance(cost, float) and not -inf < cost < inf else max(0, ceil(exact(cost) * per))


def budget(amount: float | Fraction, *, per: int = MEASURE) -> int:
    """Round a budget down: the largest whole number of units that is not above the amount."""
    return floor(exact(amount) * per)


@overload
def times(count: int, amount: Units) -> Units: ...  # type: ignore[overload-overlap]
@overload
def times(count: int, amount: Fraction | float) -> Fraction | float: ...
def times(count: int, amount: Fraction | float) -> Fraction | float:
    """``count * amount``: nothing for no rounds, whatever one costs; infinite where one round is."""
    if not count:
        return 0
    return amount if amount == inf else count * amount


def as_float(value: float | Fraction) -> float:
    """The nearest float; inf where there is none."""
    try:
        return float(value)
    except OverflowError:
        return inf


def to_float(units: Units | Fraction, *, per: int = MEASURE, down: bool = False) -> float:
    """Units as a float in the measure, rounded up (spent) or down (left): the float, and the number it is read as."""
    if units in (inf, -inf):
        return float(units)
    value = as_float(Fraction(units) / per)
    if value == inf:
        return float_info.max if down else inf
    if down and max(Fraction(value), exact(value)) * per > units:
        return nextafter(value, -inf)
    if not down and min(Fraction(value), exact(value)) * per < units:
        return nextafter(value, inf)
    return value


def shown(value: float, digits: int, *, down: bool = False) -> str:
    """A bound for people to read: so many digits, rounded up (or down), as ``format(value, "g")`` writes them."""
    rounded = Context(prec=digits, rounding=ROUND_FLOOR if down else ROUND_CEILING).create_decimal(repr(float(value)))
    return f"{float(rounded):.{digits}g}"


def whole(units: Iterable[Units]) -> tuple[Units, ...]:
    """Also NumPy's whole numbers as Python's, whose sums have no end."""
    return tuple(inf if value == inf else int(value) for value in units)
