"""Columns of text that are read as another type: by a declaration, or by the casts of a view. PRIVATE counts of both.

A column of text in Parquet, in memory or in a DuckDB file is read by its declared type as one of a CSV file is. So is,
in a view, a column of text that has another type under the same name there.
"""

from collections.abc import Mapping
from typing import Any

from almoner._misfits import FIRST, Misfit
from almoner._workspace import quoted
from almoner.errors import ArgumentError
from almoner.queries._sources.csv_files import TYPES
from almoner.queries._sql.columns import kind_of_type

__all__ = ["typed", "unread_by_view"]


def typed(connection: Any, rows: str, types: Mapping[str, str] | None, misfits: list[Misfit] | None) -> str:
    """Rows as SQL whose columns of text are read as these types; entries that are spelled otherwise are missing.

    Args:
        connection: to DuckDB.
        rows: as SQL.
        types: by column; others stay as they are.
        misfits: gets what the entries of these columns come to, PRIVATE; None where nobody counts them.

    Raises:
        ArgumentError: a column is not there, or has a type of its own that is another one.
    """
    kinds = _kinds(connection, rows) if types else {}
    read = {}
    for name, kind in (types or {}).items():
        if name not in kinds:
            raise ArgumentError(f"types: {name!r}: no such column in the data")
        if kinds[name] == "text" != kind:
            read[name] = TYPES[kind].format(f"nullif({_text(name)}, '')")
        elif kinds[name] not in (kind, "whole" if kind == "number" else kind):
            raise ArgumentError(
                f"types: {name!r} is of kind {kinds[name]} already, and is not read as {kind!r}: "
                f"leave it out of types=, or cast it in a view"
            )
    if not read:
        return rows
    if misfits is not None:
        misfits += _counted(connection, rows, read, dict(types or {}))
    listed = ", ".join(f"{sql} AS {quoted(name)}" for name, sql in read.items())
    return f"SELECT * REPLACE ({listed}) FROM ({rows})"


def unread_by_view(connection: Any, source: str, whole: str) -> list[Misfit]:
    """The columns of text that a view reads as another type under their name, where that can be told. PRIVATE.

    How many entries cannot be read is told where the view keeps the number of rows; else that none can, where it has
    rows.

    Args:
        connection: to DuckDB.
        source: the name of the table that the view is over.
        whole: the name of the view.
    """
    before, after = _kinds(connection, f"FROM {source}"), _kinds(connection, f"FROM {whole}")
    cast = [name for name, kind in before.items() if kind == "text" != after.get(name, "text")]
    if not cast:
        return []
    entries = ", ".join(f"count(nullif(trim({_text(name)}), ''))" for name in cast)
    (rows, *there), (kept, *fit) = (
        connection.execute(f"SELECT count(*), {counts} FROM {table}").fetchall()[0]
        for counts, table in ((entries, source), (", ".join(f"count({quoted(name)})" for name in cast), whole))
    )
    found = []
    for name, given, read in zip(cast, there, fit, strict=True):
        unfit = max(0, given - read) if kept == rows else given if kept and not read else 0
        found.append(Misfit(None, name, after[name], given, unfit))
    return found


def _kinds(connection: Any, rows: str) -> dict[str, str]:
    return {name: kind_of_type(kind) for name, kind, *_ in connection.execute(f"DESCRIBE {rows}").fetchall()}


def _text(name: str) -> str:
    """A column of text, or of another type that is read as text, as SQL."""
    return f"CAST({quoted(name)} AS VARCHAR)"


def _counted(connection: Any, rows: str, read: Mapping[str, str], types: Mapping[str, str]) -> list[Misfit]:
    """Count the entries of these columns, and those that don't fit, and find the rows of the first."""
    there = {name: f"nullif(trim({_text(name)}), '')" for name in read}
    counts = ", ".join(f"count({there[name]}), count({sql})" for name, sql in read.items())
    counted = iter(connection.execute(f"SELECT {counts} FROM ({rows})").fetchall()[0])
    found = []
    for name, sql in read.items():
        entries, fit = next(counted), next(counted)
        first: list[tuple[int]] = []
        if fit < entries:
            numbered = f"SELECT row_number() OVER () AS place, {there[name]} AS given, {sql} AS fit FROM ({rows})"
            first = connection.execute(
                f"SELECT place FROM ({numbered}) WHERE given IS NOT NULL AND fit IS NULL ORDER BY place LIMIT {FIRST:d}"
            ).fetchall()
        places = tuple(f"row {place}" for (place,) in first)
        found.append(Misfit(None, name, types[name], entries, entries - fit, places))
    return found
