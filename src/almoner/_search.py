"""Searching for the edge of a condition, on the side where it holds."""

from collections.abc import Callable
from math import inf, sqrt

from almoner.errors import CalibrationFailed


def last_true(holds: Callable[[float], bool], *, start: float) -> float:
    """The largest float x >= 0, to rounding, at which a condition holds that holds at 0 and fails from some point on.

    The condition was evaluated, and held, at the result; where it is not quite monotone the result is still safe.
    """
    low, high = 0.0, start
    while holds(high):
        low, high = high, high * 2
        if high == inf:
            raise CalibrationFailed("the condition holds for every value: there is no largest one")
    return edge(holds, low, high)


def first_true(holds: Callable[[float], bool], *, start: float) -> float:
    """The smallest float x > 0, to rounding, at which a condition holds that fails at 0 and holds from then on."""
    low, high = 0.0, start
    while not holds(high):
        low, high = high, high * 2
        if high == inf:
            raise CalibrationFailed("no value meets the target")
    return edge(holds, high, low)


def least(
    holds: Callable[[float], bool], *, near: float, tolerance: float, low: float = 1e-9, high: float = 1e6
) -> float:
    """About the smallest float in [low, high] at which a condition holds; inf where it does not hold below high.

    The search begins near a guess: few questions are asked if that is good. The condition was evaluated, and held, at
    the result, which is at most 1 + tolerance times a value at which it was evaluated and failed, or about low.
    """
    factor = 1 + tolerance
    good = bad = min(max(near, low), high) * factor
    if holds(good):
        while holds(bad := good / factor):
            good, factor = bad, factor**4
            if good <= low:
                return good
    else:
        while not holds(good := bad * factor):
            bad, factor = good, factor**4
            if good > high:
                return inf
    while good > (1 + tolerance) * bad:
        middle = sqrt(good * bad)
        good, bad = (middle, bad) if holds(middle) else (good, middle)
    return good


def last_whole(holds: Callable[[int], bool], low: int, most: int, *, relative: float = 0.0) -> int:
    """The largest whole number up to ``most`` at which a condition holds that holds at low and fails from a point on.

    Few questions are asked if it is near low. With a relative distance it may be smaller by so much.
    """
    few, step = low, 1
    while few < most and holds(many := min(few + step, most)):
        few, step = many, 2 * step
    while few < most and many - few > max(1, relative * few):
        middle = (few + many) // 2
        few, many = (middle, many) if holds(middle) else (few, middle)
    return few


def edge(
    holds: Callable[[float], bool], good: float, bad: float, *, relative: float = 0.0, absolute: float = 0.0
) -> float:
    """A float where a condition holds, next to one where it does not, or nearer to it than one of two distances.

    Args: good, where it holds, and bad, where it does not; either may be the larger one.
    """
    while abs(good - bad) > max(relative * abs(good), absolute):
        middle = (good * bad) ** 0.5 if good > 0 and bad > 0 and not 0.5 < good / bad < 2 else (good + bad) / 2
        if middle in (good, bad) or not min(good, bad) < middle < max(good, bad):
            return good
        good, bad = (middle, bad) if holds(middle) else (good, middle)
    return good
