"""Which entries of CSV files don't fit the type that was given for their column, and so count as missing? PRIVATE.

Nobody is told while questions are answered, because how many entries fit is a fact about people. So a wrong type, or
dates of another format, would be noticed after the budget was spent on answers about nothing.
"""

from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

from bursar._workspace import duckdb, quoted
from bursar.errors import DataError
from bursar.queries._engines import sources

__all__ = ["Misfit", "misfits"]


class Misfit(NamedTuple):
    """A column of a CSV file with a type. PRIVATE: the numbers are exact."""

    table: str | None
    """The table's name; None for the only one."""
    column: str
    kind: str
    """The type that was given: whole, number, bool, date or time."""
    entries: int
    """How many entries are not empty."""
    unfit: int
    """How many of them are spelled otherwise, and count as missing."""

    def words(self) -> str:
        """A sentence for the data holder."""
        where = f"column {self.column!r}" + ("" if self.table is None else f" of table {self.table!r}")
        return f"{where}: {self.unfit} of {self.entries} entries are no {self.kind!r}, and count as missing"


def misfits(tables: Iterable[tuple[str | None, object, sources.ReadOptions]]) -> list[Misfit]:
    """The columns of CSV files for which a type was given, with how many entries don't fit it. PRIVATE.

    Args:
        tables: name, data and how they are read, as sessions take them. Other files, and CSV files whose types are
            guessed so that all entries fit, have no such columns.

    Raises:
        DataError: a file cannot be read.
    """
    found = []
    for name, data, reading in tables:
        kinds = {column: kind for column, kind in (reading.types or {}).items() if kind != "text"}
        if kinds and isinstance(data, str | Path | list | tuple) and sources.is_short_csv(data):
            found += _of_table(name, data, kinds)
    return found


def _of_table(
    name: str | None, data: "str | Path | list[str] | tuple[str, ...]", kinds: dict[str, str]
) -> list[Misfit]:
    """The same of one table, whose columns of other types are left out."""
    with duckdb().connect() as connection:
        for place, types in enumerate(({}, kinds)):
            columns = sources.attach(connection, data, sources.ReadOptions(types=types), load=True, place=place)
        given = {column: kind for column, kind in kinds.items() if column in columns}
        counts = None
        try:
            counts = [
                connection.execute(f"SELECT count({sql}) FROM {sources.view_name(place)}").fetchall()[0][0]
                for column in given
                for place, sql in enumerate((f"nullif(trim({quoted(column)}), '')", quoted(column)))
            ]
        except duckdb().Error:  # its message may quote entries
            pass
    if counts is None:
        raise DataError("data: cannot be read as a table")
    return [
        Misfit(name, column, kind, int(entries), max(0, int(entries) - int(fit)))
        for (column, kind), entries, fit in zip(given.items(), counts[::2], counts[1::2], strict=True)
    ]
