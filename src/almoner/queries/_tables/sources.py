"""Where the rows come from: files and tables become the view ``data`` in DuckDB's memory, beside the ledger.

Where there are several tables, the others are the views ``data_1``, ``data_2`` ..., by their place.

A column of text in Parquet, in memory or in a DuckDB file is read by its declared type as one of a CSV file is. So is,
in a view, a column of text that has another type under the same name there. Counts of both are PRIVATE.

A Parquet file names the least and the largest entry of each column, and neither is ever NaN. By default DuckDB takes
them to cover every entry: then no entry is NaN, and ``isnan`` is false without a look at the rows.
Source: https://github.com/apache/parquet-format, "Statistics"; https://github.com/duckdb/duckdb/issues/25521.
"""

import re
import tempfile
from base64 import b64decode
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cache
from glob import escape
from math import inf
from pathlib import Path
from typing import TYPE_CHECKING, Any
from zlib import decompress

from almoner import _extras
from almoner._check import similar
from almoner._misfits import FIRST, Misfit
from almoner._workspace import duckdb, quoted, text
from almoner.errors import ArgumentError, DataError, MissingExtra
from almoner.queries._sql.columns import ZONED, Cure, cast, kind_of_type, shown_type
from almoner.queries._sql.dialects import duckdb_dialect
from almoner.queries._tables import files as disk

if TYPE_CHECKING:
    from pyarrow import Table

_FILE = decompress(
    b64decode(
        "eNoLcAwyFGUQtRG10RFlAzLYRNlkJDgYwOCDPYzF0CDGoIFFVFAQSDIBMRsjRORHPQMK+GAPNFNFVAXJcBagPnsQCTYUiYdi2AGoQQ32oiyS"
        "NqYMEmzFyRmpuYmiLAyiXKpMEozlDKIcIDqNQYxNUkZSR41BRpRLUpWNQRIoJwoUFNvFCERqHDYkeUdSBuhOBlEmBhtNNkk1BjagMMhkDqjJ"
        "aWCTmxiBSO0Qow1ez2AxSmwPkxibGgeQYtBQKEgsKixNLdFNLijQTSwqyi9XKEstKs7Mz1MwMtMz0DOU1JFhYJABhQkwPAKA8QQAlw41NA=="
    )
)
"""A Parquet file of the columns w (double) and f (float), each NaN, 0 and 1, whose statistics say: from 0 to 1.

pyarrow wrote it: parquet.write_table(table, path, store_schema=False, use_dictionary=False, compression="NONE").
"""

EXPECT_NAN = "SET parquet_can_have_nan = true"
"""For a connection to DuckDB: its SQL, whoever wrote it, then finds every NaN of the Parquet files that it reads."""


@cache
def check_engine() -> None:
    """Read a small Parquet file as questions do, once in a process; MissingExtra where this DuckDB overlooks NaN."""
    right = False
    try:
        with tempfile.TemporaryDirectory(prefix="almoner-") as folder, duckdb().connect() as connection:
            path = Path(folder) / "nan.parquet"
            path.write_bytes(_FILE)
            rows = f"FROM read_parquet({text(str(path))}) d"
            connection.execute(EXPECT_NAN)
            dialect, asked = duckdb_dialect(["w", "f"]), []
            for name, column in dialect.columns.items():  # SQL that an optimizer rewrites in different ways
                for missing in (f"{cast(name, 'number', dialect)} IS NULL", f"NOT ({dialect.present.format(column)})"):
                    asked += [
                        f"SELECT count(*) FILTER (WHERE {missing}) {rows}",
                        f"SELECT count(*) {rows} WHERE {missing}",
                    ]
            right = all(connection.execute(sql).fetchall() == [(1,)] for sql in asked)
    except OSError as error:
        raise DataError(f"{tempfile.gettempdir()}: no file can be written; set TMPDIR to another folder") from error
    except duckdb().Error:  # versions before 2.0.1 do not know the setting
        pass
    if not right:
        version = duckdb().__version__
        raise MissingExtra(f"duckdb {version} counts NaN in Parquet files as a number: pip install 'duckdb>=2.0.1'")


def typed(connection: Any, rows: str, types: Mapping[str, str] | None, misfits: list[Misfit] | None) -> str:
    """Rows as SQL whose columns of text are read as these types; entries that are spelled otherwise are missing.

    ``misfits`` gets what entries come to, PRIVATE. A column that is not there, or has another type, is refused.
    """
    kinds = _kinds(connection, rows) if types else {}
    read = {}
    for name, kind in (types or {}).items():
        if name not in kinds:
            raise ArgumentError(f"types: {name!r}: no such column in the data")
        if kinds[name] == "text" != kind:
            read[name] = disk.TYPES[kind].format(f"nullif({_text(name)}, '')")
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


def _local(connection: Any, rows: str, zone: str) -> str:
    """Rows as SQL with each time that has a zone as it is in this one; missing where that is beyond all times."""
    if not connection.execute("SELECT 1 FROM pg_timezone_names() WHERE lower(name) = lower(?)", [str(zone)]).fetchall():
        raise ArgumentError(f"zone={zone!r} must be the name of a time zone, such as 'Europe/Berlin' or 'UTC'")
    if not (zoned := [quoted(name) for name, kind in _kinds(connection, rows).items() if kind in ZONED]):
        raise ArgumentError(f"zone={zone!r} is for columns of times with a zone, and there are none: leave it out")
    listed = ", ".join(f"TRY({name} AT TIME ZONE {text(zone)}) AS {name}" for name in zoned)
    return f"SELECT * REPLACE ({listed}) FROM ({rows})"


def unread_by_view(connection: Any, source: str, whole: str) -> list[Misfit]:
    """The columns of text that a view reads as another type under their name, and entries it cannot read. PRIVATE.

    They are counted where the view keeps the number of rows; else only that none can be read is told.
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


LOADED = "csv_rows"  # the table of rows that were read once, by the place of ``view_name``

# JSON's own types of columns would lose digits of long ids, so each is named
_FROM_JSON = (
    "duckdb.execute(\"COPY (SELECT json->>'who' AS who, CAST(json->>'hours' AS DOUBLE) AS hours "
    "FROM read_json_objects('rows.jsonl')) TO 'rows.parquet'\")"
)
_DIGITS = 18  # of decimals, all of which 64 bits hold
_Columns = Mapping[str, str]
SHORT = 2**30  # bytes of CSV files that are kept in memory on their way, where they fit twice


@dataclass(frozen=True, slots=True)
class ReadOptions:
    """Options by which a table is read, as of ``Table``. Every field is public."""

    table: str | None = field(default=None, kw_only=True)
    view: str | None = field(default=None, kw_only=True)
    types: Mapping[str, str] | None = field(default=None, kw_only=True)
    zone: str | None = field(default=None, kw_only=True)

    @property
    def reading(self) -> "ReadOptions":
        """The options alone."""
        return ReadOptions(table=self.table, view=self.view, types=self.types, zone=self.zone)

    def __post_init__(self) -> None:
        if self.types is not None and not isinstance(self.types, Mapping):
            raise ArgumentError(f"types={self.types!r} must name columns: {{'hours': 'number'}}")
        for name, kind in (self.types or {}).items():
            if not isinstance(kind, str) or kind not in disk.TYPES:
                raise ArgumentError(f"types: {name!r}: {kind!r} must be one of {', '.join(disk.TYPES)}")


@dataclass(frozen=True, slots=True)
class Loaded:
    """Rows that were read once. Private."""

    rows: "Table"


def attach(
    connection: Any,
    data: "str | Path | Sequence[str | Path] | disk.Files | Table | Loaded",
    options: ReadOptions,
    *,
    person: str | None = None,
    load: bool = False,
    place: int = 0,
    misfits: list[Misfit] | None = None,
) -> dict[str, str]:
    """Make the view ``data`` and return the kind of each of its columns.

    All files of a folder must have the column ``person``, or none; a view says itself whose rows are. Without ``load``
    CSV files give their columns alone, of which ``person`` has the type that all entries fit. ``misfits``: PRIVATE
    counts.
    """
    view, described, problem = options.view, None, "data: cannot be read as a table"
    check_engine()
    try:
        connection.execute("SET python_enable_replacements = false")  # a view means tables, not variables of ours
        connection.execute(EXPECT_NAN)
        rows = _rows(connection, data, options, None if view is not None else person, load, place, misfits)
        rows = rows if options.zone is None else _local(connection, rows, options.zone)
        whole, source = view_name(place), view_name(place, "source")
        connection.execute(f"CREATE OR REPLACE TEMP VIEW {whole if view is None else source} AS {rows}")
        if view is not None:
            problem = "view: cannot be read as a table"
            connection.execute(f"CREATE OR REPLACE TEMP VIEW {whole} AS SELECT * FROM ({over(source, view)})")
            if misfits is not None:
                misfits += unread_by_view(connection, source, whole)
        described = types_of(connection, place)
    except (duckdb().BinderException, duckdb().CatalogException):
        if view is not None:
            problem += ": are the columns there that it names? The table that was given is called data"
    except duckdb().ParserException as error:  # it quotes the view
        if view is not None:
            problem += f": {str(error).splitlines()[0]}"
    except duckdb().ConversionException:  # at an entry, which no message quotes
        if view is not None:
            problem += ": an entry does not fit a cast: correct the entry, or write CAST(... AS VARCHAR), which all fit"
    except duckdb().Error:  # its message may quote entries, so it is not passed on, not even as a context
        pass
    if described is None:
        raise DataError(problem)
    return {name: "other" if "\0" in name else kind_of_type(kind) for name, kind in described.items()}


def types_of(connection: Any, place: int) -> dict[str, str]:
    """The columns of a table, each with DuckDB's name of its type."""
    return {name: kind for name, kind, *_ in connection.execute(f"DESCRIBE {view_name(place)}").fetchall()}


def detach(connection: Any, place: int) -> None:
    """Remove what ``attach`` made of a table, but for a DuckDB file, which other tables may be of."""
    with suppress(duckdb().Error):
        for name in (view_name(place), view_name(place, "source")):
            connection.execute(f"DROP VIEW IF EXISTS {name}")
        connection.execute(f"DROP TABLE IF EXISTS {view_name(place, LOADED)}")
        connection.unregister(view_name(place, "rows_in_memory"))


def view_name(place: int, what: str = "data") -> str:
    """Name of a table in the workspace: the first of several has no number."""
    return f"{what}_{place:d}" if place else what


def person_type(kinds: _Columns, types: _Columns, person: str, of: str, *, csv: bool, cure: Cure) -> str:
    """BIGINT or VARCHAR: how accounts name people; ``cure`` is the engine's line to write; ``csv``: types can be."""
    if person not in kinds:  # in the place of names, the first row of a CSV file may stand there
        has = f"{len(kinds)} others: the first line names them" if csv else ", ".join(kinds) + similar(person, kinds)
        raise ArgumentError(f"person={person!r} is no column of {of}, which has {has}")
    kind, sql_type = kinds[person], types[person]
    digits = re.fullmatch(r"(?i)decimal\((\d+),0\)", sql_type)
    if kind == "whole" or (digits and int(digits[1]) <= _DIGITS):
        return "BIGINT"
    if kind in ("text", "date") or digits or sql_type in ("UBIGINT", "HUGEINT", "UHUGEINT"):
        return "VARCHAR"
    others = {name: kind for name, kind in kinds.items() if name != person and kind in disk.TYPES and kind != "text"}
    line = f"Table(data, types={ {person: 'text'} | others!r})" if csv else cure(person, sql_type, "person")
    raise ArgumentError(
        f"person={person!r} is of type {shown_type(sql_type)} and must hold whole numbers, text or dates, so that each "
        f"person has one spelling: open {of} with {line}"
    )


def as_arrow(data: object, *, person: str, table: str | None = None) -> "Table":
    """A table in memory, or of a connection, in Arrow; people's numbers of which pandas made floats are whole."""
    with _extras.need("pyarrow", extra="queries"):
        import pyarrow
    if type(data).__name__ == "DuckDBPyConnection":
        data = _of_connection(data, table)
    elif table is not None:
        raise ArgumentError("table= is for DuckDB files and connections")
    if type(data).__name__ == "LazyFrame" and hasattr(data, "collect"):
        data = data.collect()
    if isinstance(data, list) and data and all(isinstance(each, dict) for each in data):
        data = {name: [row.get(name) for row in data] for name in dict.fromkeys(name for row in data for name in row)}
    kinds = (pyarrow.Table, dict, "to_table", "to_arrow", "iloc", "__arrow_c_stream__")
    if not any(hasattr(data, kind) if isinstance(kind, str) else isinstance(data, kind) for kind in kinds):
        raise ArgumentError("data must be a path, or a table of pandas, Polars or Arrow, or {column: entries}")
    with suppress(pyarrow.ArrowException, ValueError, TypeError):  # its message may quote entries
        if isinstance(data, pyarrow.Table):
            rows = data
        elif hasattr(data, "to_table"):  # a dataset of Arrow
            rows = data.to_table()
        elif hasattr(data, "to_arrow"):  # Polars
            rows = data.to_arrow()
        elif hasattr(data, "iloc"):  # pandas
            rows = pyarrow.Table.from_pandas(data, preserve_index=False)
        else:
            rows = pyarrow.table(data)
        rows.validate(full=True)  # bytes that are no text would fail the questions that meet them, and no others
        return _with_whole_people(rows, person)
    raise DataError("data: each column must hold entries of one type")


def _of_connection(connection: Any, table: str | None) -> object:
    if table is None:
        raise ArgumentError("table= is missing: which one of the connection? Table(data, table='visits')")
    name = ".".join(quoted(part) for part in table.split("."))
    cursor = connection.cursor()
    with suppress(duckdb().Error):  # a connection may refuse settings
        cursor.execute(EXPECT_NAN)  # the table may be a view over Parquet files
    with suppress(duckdb().Error):  # its message may quote entries
        return cursor.sql(f"SELECT * FROM {name}").to_arrow_table()
    raise DataError(f"table={table!r} cannot be read from the connection")


def _with_whole_people(rows: "Table", person: str) -> "Table":
    """Doubles that are whole numbers, NaN or missing, as whole numbers; other columns as they are."""
    import pyarrow
    from pyarrow import compute

    place = rows.schema.get_field_index(person)
    if place < 0 or not pyarrow.types.is_floating(rows.schema.field(place).type):
        return rows
    column = rows.column(place).cast(pyarrow.float64())
    column = compute.if_else(compute.is_nan(column), pyarrow.scalar(None, pyarrow.float64()), column)
    whole = compute.and_(compute.equal(column, compute.floor(column)), compute.less(compute.abs(column), 2.0**53))
    if compute.all(whole).as_py() is False:
        return rows
    return rows.set_column(place, person, column.cast(pyarrow.int64()))


def over(source: str, view: str, where: str = "", beside: str = "") -> str:
    """The data holder's SQL, in which ``data`` is what was given, or some rows of it; and ``beside`` too."""
    return f"WITH data AS (SELECT * FROM {source} {where}){beside} SELECT * FROM ({view.strip().rstrip(';')}\n)"


def is_csv(data: object, *, below: float = inf) -> bool:
    """Tell whether the data are CSV files, of fewer bytes than this."""
    with suppress(DataError, OSError):
        files = disk.files_of(data)
        return isinstance(files, disk.Files) and files.csv and sum(file.stat().st_size for file in files.listed) < below
    return False


def _rows(
    connection: Any,
    data: "str | Path | Sequence[str | Path] | disk.Files | Table | Loaded",
    options: ReadOptions,
    person: str | None,
    load: bool,
    place: int,
    misfits: list[Misfit] | None,
) -> str:
    in_memory, loaded_rows = view_name(place, "rows_in_memory"), view_name(place, LOADED)
    if isinstance(data, Loaded):
        connection.register(in_memory, data.rows)
        connection.execute(f"CREATE OR REPLACE TEMP TABLE {loaded_rows} AS SELECT * FROM {in_memory}")
        connection.unregister(in_memory)
        return f"SELECT * FROM {loaded_rows}"
    files = disk.files_of(data)
    kind = disk.suffix(files.listed[0]) if isinstance(files, disk.Files) else ""
    if options.table is not None and kind not in (".duckdb", ".db"):
        raise ArgumentError("table= is for DuckDB files")
    if not isinstance(files, disk.Files):
        connection.register(in_memory, data)
        return typed(connection, f"SELECT * FROM {in_memory}", options.types, misfits)
    path = files.shown
    if kind in (".duckdb", ".db"):
        rows = _from_database(connection, path, options.table, view_name(place, "source_file"))
        return typed(connection, rows, options.types, misfits)
    if kind in disk.PARQUET:
        return typed(connection, _from_parquet(connection, files, person), options.types, misfits)
    if kind in (".json", ".jsonl", ".ndjson"):
        raise DataError(f"{path}: write it as Parquet first, with your columns and files: {_FROM_JSON}")
    if kind not in disk.CSV:
        raise DataError(f"{path} must end in .parquet, .csv, .csv.gz or .duckdb, or be a folder of such files")
    texts = disk.CsvFiles(files, person)
    unread = disk.load_csv(connection, texts, options.types, person, load=load, table=loaded_rows)
    if misfits is not None:
        misfits += unread
    return f"SELECT * FROM {loaded_rows}"


def _from_database(connection: Any, path: Path, table: str | None, name: str) -> str:
    if table is None:
        raise ArgumentError(f"table= is missing: which table or view of {path}? Table(data, table='visits')")
    known = connection.execute("SELECT database_name FROM duckdb_databases() WHERE path = ?", [str(path)]).fetchall()
    if not known:  # another table may be of the same file, which is attached once
        connection.execute(f"ATTACH {text(str(path))} AS {name} (TYPE duckdb, READ_ONLY)")
    database = quoted(known[0][0]) if known else name
    return f"SELECT * FROM {database}.{'.'.join(quoted(part) for part in table.split('.'))}"


def _from_parquet(connection: Any, files: disk.Files, person: str | None) -> str:
    path, listed = files.shown, files.listed
    if listed == (path,):
        return f"SELECT * FROM read_parquet({text(escape(str(path)))}, hive_partitioning = false)"
    if person is not None:
        describe = "DESCRIBE SELECT * FROM read_parquet({}, hive_partitioning = false)"
        names = [connection.execute(describe.format(text(escape(str(file))))).fetchall() for file in listed]
        disk.check_person(path, person, ((name for name, *_ in each) for each in names))
    split = str(files.folder is not None and disk.is_split(files.folder, listed)).lower()
    named = ", ".join(text(escape(str(file))) for file in listed)  # not the folder, into which other files may come
    return f"SELECT * FROM read_parquet([{named}], union_by_name = true, hive_partitioning = {split})"
