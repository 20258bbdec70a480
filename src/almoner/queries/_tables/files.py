"""Files to be read as one table: which they are, and whether they are still what they were.

CSV files become a table of DuckDB, in one pass where the first rows say which types fit.
"""

import os
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from glob import glob
from itertools import chain, islice
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

from almoner import _csv
from almoner._misfits import DECIMALS, FIRST, Misfit
from almoner._workspace import duckdb, quoted, text
from almoner.errors import ArgumentError, DataError

if TYPE_CHECKING:
    from pyarrow import RecordBatch

PARQUET, CSV = (".parquet", ".pq"), (".csv", ".tsv")

_Identity = tuple[int, int, int, int]
_PACKED = ".gz", ".zst"


@dataclass(frozen=True, slots=True)
class Files:
    """Files to be read as one table, as they are when this is made; no folder where they were named one by one.

    A file is what it was while its device, inode, size and time of change are the same; later files do not belong.
    """

    shown: Path
    listed: tuple[Path, ...]
    folder: Path | None
    _seen: tuple[_Identity, ...] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_seen", tuple(map(_identity, self.listed)))

    @property
    def csv(self) -> bool:
        return suffix(self.listed[0]) in CSV

    def check(self) -> None:
        """Refuse files that are away, or not what they were, by a DataError with the reason "away" or "changed"."""
        for path, seen in zip(self.listed, self._seen, strict=True):
            if _identity(path) != seen:
                raise DataError(
                    f"{path} is another file than when the session was opened, or was written to: open the session "
                    "again, and questions are about the rows as they are then",
                    reason="changed",
                )


def _identity(path: Path) -> _Identity:
    try:
        found = path.stat()
        readable = os.access(path, os.R_OK)
    except OSError:
        raise DataError(f"{path} is not there", reason="away") from None
    if not readable:
        raise DataError(f"{path} may not be read by this user", reason="away")
    return found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns


def is_split(path: Path, files: Iterable[Path]) -> bool:
    """True if names of folders, like day=2011-12-09, are columns; a name above the data must not become one."""
    return any("=" in part for file in files for part in file.relative_to(path).parts[:-1])


def suffix(path: Path) -> str:
    """The ending of a file's name in small letters, without that of its compression."""
    return (path.with_suffix("") if path.suffix in _PACKED else path).suffix.lower()


def _ending(path: Path) -> str:
    return "".join(path.suffixes[-2:]) if path.suffix in _PACKED else path.suffix


def files_of(data: Any) -> Any:
    """The ``Files`` that a path, a pattern or a list stands for; other data as they are."""
    if not isinstance(data, str | Path | list | tuple):
        return data
    if isinstance(data, list | tuple):
        listed = [Path(each).absolute() for each in data]
        shown = listed[0].parent
    else:
        path = Path(str(data)).absolute()  # a view is read again after changes of folder
        if "://" in str(data):
            raise DataError(f"data: {data} is no file here: load it first, or give a DuckDB connection and table=")
        if path.is_dir():
            return Files(path, tuple(_files_in(path)), path)
        if path.is_file():
            return Files(path, (path,), None)
        listed, shown = sorted(map(Path, glob(str(path), recursive=True))), path  # noqa: PTH207 (of any folder)
    missing = next((each for each in listed if not each.is_file()), None if listed else shown)
    if missing is not None:
        raise DataError(f"{missing} is not there", reason="away")
    if len({suffix(each) for each in listed}) > 1 or len(set(listed)) < len(listed):
        raise DataError(f"{shown}: the files must all be of one kind, each given once")
    return Files(shown, tuple(listed), None)


def _files_in(path: Path) -> list[Path]:
    """The files of a folder, all of one kind; refuses what a reader would leave out without a word."""
    inside = sorted(path.rglob("*"))
    if any(each.is_symlink() and not each.is_file() for each in inside):
        raise DataError(f"{path} holds a link to a folder, or to nothing, which would not be read: put the rows there")
    files = [each for each in inside if each.is_file()]
    hidden = {file for file in files if any(part.startswith((".", "_")) for part in file.relative_to(path).parts)}
    kinds = {_ending(file) for file in files if file not in hidden}  # letter by letter: .CSV is another kind
    if len(kinds) != 1 or not kinds <= {*PARQUET, *CSV, *(f"{each}{more}" for each in CSV for more in _PACKED)}:
        raise DataError(f"{path} must hold files of one kind, .parquet or .csv, and no others")
    (kind,) = kinds
    if any(_ending(file) == kind for file in hidden):  # half-written or deleted rows of programs that keep such files
        raise DataError(f"{path} holds hidden {kind} files, in it or in folders whose names begin with . or _")
    files = [file for file in files if _ending(file) == kind]
    if is_split(path, files) and any("=" in part for part in path.parts):
        raise DataError(f"{path} is a part of a folder that is split by names with =; give the whole of it")
    return files


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
    """Make a table, without rows where not ``load``; count what does not fit types that were given, PRIVATE."""
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
    return _create_counted(connection, files, entries, given, table)


def _create_counted(
    connection: Any, files: CsvFiles, entries: Mapping[str, str], given: Mapping[str, str], table: str
) -> list[Misfit]:
    """Make the table in one pass; flags of entries that are there and do not fit are counted, and taken off it."""
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
    """Load each column with the first type that all entries fit: likely by the first rows, certain by all; or text."""
    names = files.names.values()
    stream = files.batches()
    begin = list(islice(stream, 1))
    likely = _fitting(connection, files, (batch.slice(0, 2000) for batch in begin), dict.fromkeys(names, _GUESSED))
    if None not in likely.values():
        with suppress(_Unfit):
            strict = "CASE WHEN {0} <> '' THEN coalesce({1}, error('')) END"  # fails where an entry does not fit
            entries = {
                name: strict.format(quoted(name), fit[0].format(quoted(name))) if fit else _entry(name)
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
