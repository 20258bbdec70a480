"""CSV files as a table of DuckDB: read in one pass where the first rows say which types fit."""

from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from itertools import chain, islice
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

from almoner import _csv
from almoner._misfits import DECIMALS, FIRST, Misfit
from almoner._workspace import duckdb, quoted, text
from almoner.errors import ArgumentError, DataError
from almoner.queries._sources.files import Files

if TYPE_CHECKING:
    from pyarrow import RecordBatch

__all__ = ["TYPES", "CsvFiles", "check_person", "load_csv"]

_DATE, _TIME = "'%Y-%m-%d'", "'%Y-%m-%d %H:%M:%S'"
_AS_WRITTEN = {point: text(spelled).replace("{", "{{").replace("}", "}}") for point, spelled in DECIMALS.items()}
# Entries of CSV files as SQL of one type; entries that are spelled otherwise are missing.
TYPES = {
    "text": "{0}",
    "whole": "CASE WHEN regexp_full_match(trim({0}), '[+-]?[0-9]+') THEN TRY_CAST(trim({0}) AS BIGINT) END",
    "number": "TRY_CAST(trim({0}) AS DOUBLE)",
    "decimal comma": f"CASE WHEN regexp_matches({{0}}, {_AS_WRITTEN[',']}) THEN "
    "TRY_CAST(replace(regexp_replace({0}, '[^0-9,-]', '', 'g'), ',', '.') AS DOUBLE) END",
    "decimal point": f"CASE WHEN regexp_matches({{0}}, {_AS_WRITTEN['.']}) THEN "
    "TRY_CAST(regexp_replace({0}, '[^0-9.-]', '', 'g') AS DOUBLE) END",
    "bool": "TRY_CAST(trim({0}) AS BOOLEAN)",
    "date": f"CAST(coalesce(try_strptime({{0}}, {_DATE}), try_strptime(trim({{0}}), {_DATE})) AS DATE)",
    "time": f"coalesce(try_strptime({{0}}, {_TIME}), try_strptime(trim({{0}}), {_TIME}))",
}
# The types that are guessed where the data holder names none, the first that all of a column's entries fit: 007, +5 and
# 1_000 are text, which some databases would take for numbers.
_NUMBER = r"'(?i)\s*-?(((0|[1-9][0-9]*)(\.[0-9]*)?|\.[0-9]+)(e[+-]?[0-9]+)?|inf|infinity|nan)'"
_CLOCK = r"'\s*[0-9][0-9]?:[0-9][0-9](:[0-9][0-9](\.[0-9]+)?)?\s*'"
_GUESSED = (
    "CASE WHEN {0} NOT IN ('0', '1', 'y', 'n', 'Y', 'N') AND {0} = trim({0}) THEN TRY_CAST({0} AS BOOLEAN) END",
    "CASE WHEN CAST(TRY_CAST({0} AS BIGINT) AS VARCHAR) = {0} THEN TRY_CAST({0} AS BIGINT) "  # most need no trim
    "WHEN CAST(TRY_CAST({0} AS BIGINT) AS VARCHAR) = trim({0}) THEN TRY_CAST({0} AS BIGINT) END",
    f"CASE WHEN regexp_full_match({{0}}, {_NUMBER}) THEN TRY_CAST({{0}} AS DOUBLE) END",
    f"CASE WHEN regexp_full_match({{0}}, {_CLOCK}) THEN TRY_CAST(trim({{0}}) AS TIME) END",
    TYPES["date"],
    TYPES["time"],
)


def check_person(path: Path, person: str, listed: Iterable[Iterable[str]]) -> None:
    """Refuse a folder in which some files have the person's column and some have not."""
    if len({person.casefold() in map(str.casefold, names) for names in listed}) > 1:
        raise DataError(f"{path}: column {person!r} must be in all files: rows without it would be left out")


class CsvFiles:
    """The rows of one CSV file, or of all in a folder, as text under the names that any of them has."""

    def __init__(self, files: Files, person: str | None) -> None:
        path, alone = files.shown, files.listed == (files.shown,)
        forms = [_csv.form(file) for file in files.listed if alone or file.stat().st_size]
        if person is not None:
            check_person(path, person, (form.names for form in forms))
        if len({form.delimiter for form in forms} - {None}) > 1:
            raise DataError(f"{path}: what separates the names of columns must be the same in all files")
        parts = [{} if files.folder is None else _parts(files.folder, form.path) for form in forms]
        if len({tuple(sorted(each)) for each in parts}) > 1:
            raise DataError(f"{path}: folders must be split by the same names everywhere")
        self._files = list(zip(forms, parts, strict=True))
        self.names: dict[str, str] = {}
        for form, folders in self._files:
            listed = [*form.names, *folders]
            if len({name.casefold() for name in listed}) < len(listed):
                raise DataError(f"{form.path} has two columns of the same name")
            self.names.update({name.casefold(): name for name in listed if name.casefold() not in self.names})
        self._alone, self._rows = alone or len(self._files) == 1, [0] * len(self._files)

    def places(self, rows: Iterable[int]) -> tuple[str, ...]:
        """Places of these rows in the files, numbered from 0 as ``batches`` gave them; for the data holder."""
        found, before = [], 0
        for (form, _), count in zip(self._files, self._rows, strict=True):
            inside = [row - before for row in rows if before <= row < before + count]
            of = "" if self._alone else f" of {form.path.name}"
            found += [f"line {line}{of}" for line in _csv.lines_of(form, inside)]
            before += count
        return tuple(found)

    def batches(self) -> Iterator["RecordBatch"]:
        """All rows; an entry that a file has not is empty."""
        import pyarrow

        for place, (form, folders) in enumerate(self._files):
            self._rows[place] = 0
            constant = {name.casefold(): value for name, value in folders.items()}
            for batch in _csv.batches(form):
                self._rows[place] += len(batch)
                entries = dict(zip(map(str.casefold, batch.schema.names), batch.columns, strict=True))
                yield pyarrow.RecordBatch.from_arrays(
                    [
                        entries[name] if name in entries else pyarrow.repeat(constant.get(name, ""), len(batch))
                        for name in self.names
                    ],
                    names=list(self.names.values()),
                )


def _parts(folder: Path, file: Path) -> dict[str, str]:
    """Columns that names of folders give: {"day": "2011-12-09"} for a file in day=2011-12-09."""
    named = [part.partition("=") for part in file.relative_to(folder).parts[:-1] if "=" in part]
    return {name: "" if value == "__HIVE_DEFAULT_PARTITION__" else unquote(value) for name, _, value in named}


class _Unfit(DataError):
    """DuckDB could not do it: an entry does not fit its type, say."""


def load_csv(
    connection: Any, files: CsvFiles, types: Mapping[str, str] | None, person: str | None, *, load: bool, table: str
) -> list[Misfit]:
    """Make a table of this name. Without ``load`` it has no rows, and only the type of ``person`` is certain.

    Returns:
        The columns with a type and how many of their entries don't fit it; none without ``load``, and none where types
        are guessed so that all entries fit. PRIVATE.
    """
    if types is None:
        _load_guessing(connection, files, person, load=load, table=table)
        return []
    unknown = ", ".join(repr(name) for name in types if name not in files.names.values())
    if unknown:
        raise ArgumentError(f"types: {unknown}: no such column in the data")
    given = {name: kind for name, kind in types.items() if kind != "text"}
    entries = {name: TYPES[given.get(name, "text")].format(_entry(name)) for name in files.names.values()}
    if not load or not given:
        _create(connection, table, files, entries, files.batches() if load else iter(()))
        return []
    flags = _create_flagged(connection, files, entries, given, table)
    return _misfits(connection, files, given, flags, table)


def _create_flagged(
    connection: Any, files: CsvFiles, entries: Mapping[str, str], given: Mapping[str, str], table: str
) -> dict[str, str]:
    """Make the table in one pass, with a column of flags for each with a type: the entry is there and does not fit."""
    taken = {name.casefold() for name in files.names.values()}
    before = next(f"f{place}_" for place in range(len(taken) + 1) if not any(n.startswith(f"f{place}_") for n in taken))
    read = {name: f"{before}r{place}" for place, name in enumerate(entries)}
    flags = {name: f"{before}f{place}" for place, name in enumerate(given)}
    inner = ", ".join(f"{entry} AS {read[name]}" for name, entry in entries.items())
    listed = ", ".join(f"{read[name]} AS {quoted(name)}" for name in entries)
    flagged = ", ".join(
        f"CASE WHEN {read[name]} IS NULL THEN trim({quoted(name)}) <> '' ELSE false END AS {flag}"
        for name, flag in flags.items()
    )
    source = f"(SELECT {', '.join(map(quoted, given))}, {inner} FROM batches)"
    sql = f"CREATE OR REPLACE TEMP TABLE {table} AS SELECT {listed}, {flagged} FROM {source}"
    _over_batches(connection, sql, files, files.batches())
    return flags


def _misfits(
    connection: Any, files: CsvFiles, given: Mapping[str, str], flags: Mapping[str, str], table: str
) -> list[Misfit]:
    """The flags counted, and taken off the table."""
    counts = ", ".join(f"count({quoted(name)}), count_if({flag})" for name, flag in flags.items())
    counted = iter(connection.execute(f"SELECT {counts} FROM {table}").fetchall()[0])
    found = []
    for name, flag in flags.items():
        fit, unfit = next(counted), next(counted)
        sql = f"SELECT rowid FROM {table} WHERE {flag} ORDER BY rowid LIMIT {FIRST:d}"
        rows = [row for (row,) in connection.execute(sql).fetchall()] if unfit else []
        found.append(Misfit(None, name, given[name], fit + unfit, unfit, files.places(rows)))
    for flag in flags.values():
        connection.execute(f"ALTER TABLE {table} DROP COLUMN {flag}")
    return found


def _load_guessing(connection: Any, files: CsvFiles, person: str | None, *, load: bool, table: str) -> None:
    """Load each column with the first type that all of its entries fit; text, where none does or none is there.

    The first rows say what is likely. Where a later entry does not fit, all rows are read once more to find what does.
    """
    names = files.names.values()
    stream = files.batches()
    begin = list(islice(stream, 1))
    likely = _fitting(connection, files, (batch.slice(0, 2000) for batch in begin), dict.fromkeys(names, _GUESSED))
    if None not in likely.values():
        with suppress(_Unfit):
            entries = {
                name: _strictly(name, fit[0]) if fit else _entry(name)
                for name, fit in likely.items()
                if fit is not None
            }
            rows = chain(begin, stream)
            if not load:
                tested = [entries[person]] if person in entries else entries.values()
                sql = f"SELECT {', '.join(f'count({entry})' for entry in tested)} FROM batches"
                _over_batches(connection, sql, files, rows)
            _create(connection, table, files, entries, rows if load else iter(()))
            return
    possible = {name: _GUESSED if fit is None else fit for name, fit in likely.items()}
    certain = _fitting(connection, files, files.batches(), possible)
    entries = {name: fit[0].format(_entry(name)) if fit else _entry(name) for name, fit in certain.items()}
    _create(connection, table, files, entries, files.batches() if load else iter(()))


def _strictly(name: str, type_: str) -> str:
    """An entry as SQL that fails where it does not fit the type; an empty one is missing."""
    entry = quoted(name)
    return f"CASE WHEN {entry} <> '' THEN coalesce({type_.format(entry)}, error('')) END"


def _fitting(
    connection: Any, files: CsvFiles, batches: Iterator["RecordBatch"], types: Mapping[str, tuple[str, ...]]
) -> dict[str, tuple[str, ...] | None]:
    """Types, as SQL, that all of a column's entries in these rows fit; None for a column without any."""
    tests = [(_entry(name), *(each.format(_entry(name)) for each in listed)) for name, listed in types.items()]
    counts = ", ".join(f"count({test})" for listed in tests for test in listed)
    (row,) = _over_batches(connection, f"SELECT {counts} FROM batches", files, batches)
    counted = iter(row)
    fitting: dict[str, tuple[str, ...] | None] = {}
    for name, listed in types.items():
        entries = next(counted)
        fit = tuple(each for each in listed if next(counted) == entries)
        fitting[name] = fit if entries else None
    return fitting


def _create(
    connection: Any, table: str, files: CsvFiles, entries: Mapping[str, str], batches: Iterator["RecordBatch"]
) -> None:
    """Make the table out of an SQL expression for each column."""
    listed = ", ".join(f"{entry} AS {quoted(name)}" for name, entry in entries.items())
    _over_batches(connection, f"CREATE OR REPLACE TEMP TABLE {table} AS SELECT {listed} FROM batches", files, batches)


def _entry(name: str) -> str:
    """A column's entry as SQL; an empty one is missing."""
    return f"nullif({quoted(name)}, '')"


def _over_batches(connection: Any, sql: str, files: CsvFiles, batches: Iterator["RecordBatch"]) -> list[Any]:
    """Run SQL over a stream of rows called ``batches``."""
    import pyarrow

    refused: list[DataError] = []

    def rows() -> "Iterator[RecordBatch]":
        try:
            yield from batches
        except DataError as error:  # DuckDB would put it into words of its own
            refused.append(error)
            raise

    schema = pyarrow.schema([(name, pyarrow.string()) for name in files.names.values()])
    connection.register("batches", pyarrow.RecordBatchReader.from_batches(schema, rows()))
    with suppress(duckdb().Error):
        return list(connection.execute(sql).fetchall())
    raise refused[0] if refused else _Unfit("data: cannot be read as a table")
