"""Names of columns and tables, and the public keys that a question groups by."""

import re
from collections.abc import Mapping
from datetime import date
from typing import Any

from almoner._check import quoted, told
from almoner.errors import ArgumentError
from almoner.queries._language.ranges import Range, as_range, plain_time

__all__ = ["LONGEST_KEY", "Key", "check_column", "check_table", "checked_keys", "keys_by_column"]

LONGEST_KEY = 1000

Key = str | int | bool | Range


def check_column(column: object) -> None:
    if not isinstance(column, str) or not 1 <= len(column) <= 1000:
        raise ArgumentError("column must be a name")


def check_table(**tables: object) -> None:
    """Refuse a name of a table that could not stand in an expression; the keyword is the argument's name."""
    for argument, name in tables.items():
        if not isinstance(name, str) or not re.fullmatch(r"[^\W\d]\w{0,99}", name):
            raise ArgumentError(
                f"{told(**{argument: name})} must be a name of letters, digits and _, of at most 100 characters"
            )


def keys_by_column(by: object) -> tuple[tuple[str, tuple[Key, ...]], ...]:
    """{column: keys} as tuples; dates as text; each key once.

    No keys, as in ``by="country"``, ``by=["country"]`` and ``by={"country": None}``, stand for those that the data set
    declares: none are returned.
    """
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
        raise ArgumentError(f"{name}: column {quoted(column, 'of it')} needs keys, each of them once")
    if len({isinstance(key, tuple) for key in checked}) > 1:
        raise ArgumentError(f"{name}: column {quoted(column, 'of it')} needs either keys or ranges")
    return checked


def _key(name: str, value: Any) -> Key:
    if hasattr(value, "as_py"):
        value = value.as_py()  # of Arrow
    if isinstance(value, date):
        return plain_time(value)
    if name == "by" and isinstance(value, tuple | list):
        return as_range(value)
    if hasattr(value, "item"):
        value = value.item()  # a number of NumPy
    if not isinstance(value, str | int | bool):
        raise ArgumentError(f"{name}: {told(key=value)} must be text, a whole number, a truth value or a date")
    if isinstance(value, str) and len(value) > LONGEST_KEY:  # the record keeps it for ever
        raise ArgumentError(f"{name}: {told(key=value[:20])} must be at most {LONGEST_KEY} characters")
    return value
