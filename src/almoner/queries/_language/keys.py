"""Names of columns and tables, and the public keys, or ranges of entries, that a question groups by."""

import re
from collections.abc import Iterable, Mapping
from datetime import date, datetime, time
from itertools import pairwise
from math import isfinite
from typing import Any, TypeGuard

from almoner._check import quoted, told
from almoner.errors import ArgumentError

End = int | float | str | None
Range = tuple[End, End]  # (low, high): low <= entry < high; None for no end. Dates and times are texts


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
    return isinstance(keys[0], tuple)


def as_range(value: Any) -> Range:
    """Two ends as plain values; refuses what is no range."""
    ends = tuple(value)
    if len(ends) != 2 or ends == (None, None):
        raise ArgumentError(f"by: {quoted(value, 'one')} is no range: give (low, high), with None for no end")
    low, high = (_end(each) for each in ends)
    return low, high


def _end(value: Any) -> End:
    value = _plain(value)
    if value is None:
        return None
    number = isinstance(value, int | float) and not isinstance(value, bool) and isfinite(value)
    if not number and not (isinstance(value, str) and len(value) <= 40):
        raise ArgumentError(f"by: {quoted(str(value), 'one')} is no end of a range: give numbers, dates or times")
    return value  # type: ignore[no-any-return]


def _plain(value: Any) -> Any:
    """A value of Arrow or NumPy as it is in Python; a date, or a time, as text: midnight is a date."""
    value = value.as_py() if hasattr(value, "as_py") else value.item() if hasattr(value, "item") else value
    if isinstance(value, datetime) and value.tzinfo is None and value.time() == time():
        value = value.date()
    return value.isoformat() if isinstance(value, date) else value


LONGEST_KEY = 1000

Key = str | int | bool | Range


def check_column(column: object) -> None:
    if not isinstance(column, str) or not 1 <= len(column) <= 1000:
        raise ArgumentError("column must be a name")


def check_table(**tables: object) -> None:
    """Refuse a name of a table that could not stand in an expression; the keyword is the argument's name."""
    for argument, name in tables.items():
        if not isinstance(name, str) or not re.fullmatch(r"[^\W\d]\w{0,99}", name):
            raise ArgumentError(f"{told(**{argument: name})} must be a name of at most 100 letters, digits and _")


def keys_by_column(by: object) -> tuple[tuple[str, tuple[Key, ...]], ...]:
    """{column: keys} as tuples, dates as text; None for keys that are left to the data set, as in ``by="country"``."""
    if isinstance(by, str):
        by = {by: None}
    elif isinstance(by, list | tuple) and by and all(isinstance(each, str) for each in by):
        by = [(each, None) for each in by]
    pairs = tuple(by.items()) if isinstance(by, Mapping) else tuple(by)  # type: ignore[arg-type]
    columns = []
    for pair in pairs:
        if not isinstance(pair, tuple | list) or len(pair) != 2:
            raise ArgumentError("by must be {column: keys}")
        check_column(pair[0])
        columns.append((pair[0], () if pair[1] is None else checked_keys("by", pair[0], pair[1])))
    if len({column for column, _ in columns}) < len(columns):
        raise ArgumentError("by: each column once")
    return tuple(columns)


def checked_keys(name: str, column: str, keys: object) -> tuple[Key, ...]:
    """The keys of a column, dates as text; each once. ``name`` is the argument's."""
    if isinstance(keys, str | bytes) or not hasattr(keys, "__iter__"):
        raise ArgumentError(f"{name} must be {'{column: keys}' if name == 'by' else 'a list of keys'}")
    checked = tuple(_key(name, value) for value in keys)
    if not checked or len({(type(key), key) for key in checked}) < len(checked):
        raise ArgumentError(f"{name}: {quoted(column, 'a column')} needs keys, each of them once")
    if len({isinstance(key, tuple) for key in checked}) > 1:
        raise ArgumentError(f"{name}: {quoted(column, 'a column')} needs either keys or ranges")
    return checked


def _key(name: str, value: Any) -> Key:
    value = _plain(value)
    if name == "by" and isinstance(value, tuple | list):
        return as_range(value)
    if not isinstance(value, str | int):
        rule = "must be text, a whole number, a truth value or a date"
        raise ArgumentError(f'{name}: {told(key=value)} {rule}; missing entries: where="{name} is null"')
    if isinstance(value, str) and len(value) > LONGEST_KEY:  # the record keeps it for ever
        raise ArgumentError(f"{name}: {told(key=value[:20])} must be at most {LONGEST_KEY} characters")
    return value
