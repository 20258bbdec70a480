"""Check, for some people, that the data holder's view gives each person rows that follow from their own rows alone."""

from collections.abc import Sequence
from dataclasses import dataclass
from math import isclose, isnan
from threading import Timer
from typing import Any

from almoner._workspace import duckdb, quoted
from almoner.errors import DataError
from almoner.queries._sources.sources import over

__all__ = ["ViewCheck", "check_view"]

_IMPURE = (
    "view: the rows that it gives for a person depend on other people's rows, as an average over all rows, a number of "
    "each row or a join with other people's rows would make them. Each person's rows must follow from that person's "
    "rows alone. (check_view=False leaves this check out)"
)


@dataclass(frozen=True, slots=True)
class ViewCheck:
    """Result of a check of a view. For the data holder.

    Fields:
        people: of how many people the rows were compared.
        skipped: why none, or no more, were; None if all of the sample were.
    """

    people: int
    skipped: str | None = None


def check_view(
    connection: Any,
    view: str,
    person: str,
    *,
    sample: int,
    seconds: float,
    source: str = "source",
    whole: str = "data",
) -> ViewCheck:
    """Run the view over the rows of one person at a time, and compare with that person's rows of the whole view.

    Args:
        connection: to DuckDB.
        view: SQL over ``data``.
        person: the column that says whose row it is.
        sample: of how many people, drawn at random.
        seconds: after which the check stops, and says so.
        source: the name of the rows that were given.
        whole: the name of the view over them.

    Raises:
        DataError: a person's rows differ. Its message holds no entry.
    """
    library = duckdb()
    timer = Timer(seconds, connection.interrupt)
    compared = 0
    timer.start()
    try:
        given = [name for name, *_ in connection.execute(f"DESCRIBE {source}").fetchall()]
        if person not in given:
            return ViewCheck(0, f"column {person!r} is made by the view: whose the rows were is not known")
        who = f'(CAST({quoted(person)} AS VARCHAR) COLLATE "binary")'  # two spellings are two people
        drawn = f"SELECT DISTINCT {who} AS person FROM {source} WHERE {who} IS NOT NULL"
        connection.execute(f"CREATE OR REPLACE TEMP TABLE view_people AS FROM ({drawn}) USING SAMPLE {sample:d} ROWS")
        theirs = f"SELECT * FROM {whole} WHERE {who} IN (SELECT person FROM view_people)"
        connection.execute(f"CREATE OR REPLACE TEMP TABLE view_rows AS {theirs}")
        place = [name for name, *_ in connection.execute(f"DESCRIBE {whole}").fetchall()].index(person)
        for (name,) in connection.execute("FROM view_people").fetchall():
            beside = connection.execute(f"SELECT * FROM view_rows WHERE {who} = ?", [name]).fetchall()
            if not _same(_alone(connection, over(source, view, f"WHERE {who} = ?"), name, place), beside):
                if not _same(*(connection.execute(sql).fetchall() for sql in ("FROM view_rows", theirs))):
                    return ViewCheck(compared, "the view gives other rows each time")
                raise DataError(_IMPURE)
            compared += 1
    except library.InterruptException:
        return ViewCheck(compared, f"it took more than {seconds:g} seconds")
    except library.Error:  # its message may quote entries
        return ViewCheck(compared, "the view fails on an entry")
    finally:
        timer.cancel()
        timer.join()
        _drop(connection)
    return ViewCheck(compared)


def _alone(connection: Any, sql: str, name: str, place: int) -> list[tuple[Any, ...]]:
    """Rows that the view gives for a person from the rows of that person alone."""
    rows = connection.execute(sql, [name]).fetchall()
    return [row for row in rows if row[place] is not None and str(row[place]) == name]


def _drop(connection: Any) -> None:
    for name in ("view_people", "view_rows"):
        connection.execute(f"DROP TABLE IF EXISTS {name}")


def _same(rows: Sequence[tuple[Any, ...]], others: Sequence[tuple[Any, ...]]) -> bool:
    """True for equal rows, in any order; numbers to nine digits, since sums depend on their order."""
    if len(rows) != len(others):
        return False
    pairs = zip(sorted(map(_parts, rows)), sorted(map(_parts, others)), strict=True)
    return all(
        one[0] == other[0]
        and all(isclose(a, b, rel_tol=1e-9, abs_tol=1e-12) for a, b in zip(one[1], other[1], strict=True))
        for one, other in pairs
    )


def _parts(row: tuple[Any, ...]) -> tuple[tuple[str, ...], tuple[float, ...]]:
    """(All entries but numbers, as text; the numbers, of which NaN has a place of its own)."""
    exact = [repr(entry) for entry in row if not isinstance(entry, float) or isnan(entry)]
    return tuple(exact), tuple(entry for entry in row if isinstance(entry, float) and not isnan(entry))
