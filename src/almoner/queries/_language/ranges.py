"""Ranges as groups: the entries from one end, up to and without the other."""

from collections.abc import Iterable
from datetime import date, datetime, time
from itertools import pairwise
from math import isfinite
from typing import Any, TypeGuard

from almoner._check import quoted
from almoner.errors import ArgumentError

__all__ = ["End", "Range", "are_ranges", "as_range", "plain_time", "ranges"]

End = int | float | str | None
Range = tuple[End, End]
"""(Low, high): low <= entry < high; None for no end. Dates and times are texts."""


def ranges(edges: Iterable[Any]) -> list[Range]:
    """The ranges between neighbouring edges, as keys for ``by``; an entry at an edge is in the range that begins there.

    Args:
        edges: increasing numbers, dates or times, public. None first or last for no end.

    >>> ranges([0, 2, 8, None])
    [(0, 2), (2, 8), (8, None)]
    """
    listed = [as_range((low, high)) for low, high in pairwise(edges)]
    if not listed:
        raise ArgumentError("edges must be two or more")
    return listed


def are_ranges(keys: tuple[object, ...]) -> TypeGuard[tuple[Range, ...]]:
    """True if the keys of a column are ranges."""
    return isinstance(keys[0], tuple)


def as_range(value: Any) -> Range:
    """Two ends as plain values; refuses what is no range."""
    ends = tuple(value)
    if len(ends) != 2 or ends == (None, None):
        raise ArgumentError(f"by: {quoted(value, 'one')} is no range: give (low, high), with None for no end")
    low, high = (_end(each) for each in ends)
    return low, high


def _end(value: Any) -> End:
    if value is None:
        return None
    if isinstance(value, date):
        return plain_time(value)
    if hasattr(value, "item"):
        value = value.item()  # a number of NumPy
    number = isinstance(value, int | float) and not isinstance(value, bool) and isfinite(value)
    if not number and not (isinstance(value, str) and len(value) <= 40):
        raise ArgumentError(f"by: {quoted(str(value), 'one')} is no end of a range: give numbers, dates or times")
    return value  # type: ignore[no-any-return]


def plain_time(value: date) -> str:
    """A date, or a time, as text; midnight is a date."""
    if isinstance(value, datetime) and value.tzinfo is None and value.time() == time():
        return value.date().isoformat()
    return value.isoformat()
