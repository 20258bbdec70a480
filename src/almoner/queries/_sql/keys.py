"""Tables of the keys of a column to group by, and the joins that find a row's key."""

from collections.abc import Mapping
from datetime import date, datetime
from typing import NamedTuple

from almoner._workspace import TempTable
from almoner.errors import ArgumentError
from almoner.queries._sql.columns import cast, kind_of, literal
from almoner.queries._sql.dialects import Dialect

__all__ = ["CELLS", "Keys", "key_kind", "keys_of"]

CELLS = "cells"
"""Name of the table of each person's contribution to each cell, where it is not beside the prices."""

_KEYS = {"whole": "BIGINT", "text": "VARCHAR", "bool": "BOOLEAN", "date": "DATE"}


class Keys(NamedTuple):
    """A table of the keys of one column to group by: its name, the type of the keys, the keys in their order."""

    table: str
    kind: str
    values: tuple[object, ...]

    def to_make(self) -> TempTable:
        """The table in a workspace."""
        sql = f"SELECT unnest(CAST(? AS {self.kind}[])) AS key, unnest(range({len(self.values):d})) AS place"
        return TempTable(self.table, sql, ([_listed(value) for value in self.values],))


def keys_of(
    name: str, column: str, keys: tuple[object, ...], kinds: Mapping[str, str], sql: Dialect
) -> tuple[Keys, str]:
    """A table of keys, and the join that gives it to each row under its name as an alias: key, place.

    Args:
        name: of the table.
        column: whose keys they are.
        keys: in their order.
        kinds: of the columns.
        sql: of the engine.
    """
    kind = key_kind(column, kinds)
    values = tuple(literal(key, kind) for key in keys)
    if len(set(values)) < len(values):
        raise ArgumentError(f"by: two keys of column {column!r} are the same")
    join = f"JOIN {sql.table.format(name)} {name}_k ON {name}_k.key = {cast(column, kind, sql)}"
    return Keys(name, _KEYS[kind], values), join


def key_kind(column: str, kinds: Mapping[str, str]) -> str:
    """The kind of a column whose entries are keys; refuses others."""
    kind = kind_of(column, kinds)
    if kind not in _KEYS:
        raise ArgumentError(
            f"by: column {column!r} is of kind {kind}; group by text, whole numbers, truths, dates, or by ranges"
        )
    return kind


def _listed(key: object) -> object:
    """A key as DuckDB takes it in a list."""
    if isinstance(key, date | datetime):
        return key.isoformat()
    return str(key).lower() if isinstance(key, bool) else key
