"""Where the rows come from: files and tables become the view ``data`` in DuckDB's memory, beside the ledger."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

from bursar import _csv, _extras
from bursar._workspace import duckdb, quoted, text
from bursar.errors import ArgumentError, DataError
from bursar.queries._engines.columns import kind_of_type

if TYPE_CHECKING:
    from pyarrow import RecordBatch, Table

__all__ = ["ReadOptions", "as_arrow", "attach", "person_type"]

_PARQUET, _CSV = (".parquet", ".pq"), (".csv", ".tsv")
_DATE, _TIME = "'%Y-%m-%d'", "'%Y-%m-%d %H:%M:%S'"
# Entries of CSV files as SQL of one type; entries that are spelled otherwise are missing.
_TYPES = {
    "text": "{0}",
    "whole": "CASE WHEN regexp_full_match(trim({0}), '[+-]?[0-9]+') THEN TRY_CAST(trim({0}) AS BIGINT) END",
    "number": "TRY_CAST(trim({0}) AS DOUBLE)",
    "bool": "TRY_CAST(trim({0}) AS BOOLEAN)",
    "date": f"CAST(try_strptime(trim({{0}}), {_DATE}) AS DATE)",
    "time": f"try_strptime(trim({{0}}), {_TIME})",
}
# The types that are guessed where the data holder names none, the first that all of a column's entries fit: 007, +5 and
# 1_000 are text, which some databases would take for numbers.
_NUMBER = r"'(?i)\s*-?(((0|[1-9][0-9]*)(\.[0-9]*)?|\.[0-9]+)(e[+-]?[0-9]+)?|inf|infinity|nan)'"
_CLOCK = r"'\s*[0-9][0-9]?:[0-9][0-9](:[0-9][0-9](\.[0-9]+)?)?\s*'"
_GUESSED = (
    "CASE WHEN {0} NOT IN ('0', '1', 'y', 'n', 'Y', 'N') AND {0} = trim({0}) THEN TRY_CAST({0} AS BOOLEAN) END",
    "CASE WHEN CAST(TRY_CAST({0} AS BIGINT) AS VARCHAR) = trim({0}) THEN TRY_CAST({0} AS BIGINT) END",
    f"CASE WHEN regexp_full_match({{0}}, {_NUMBER}) THEN TRY_CAST({{0}} AS DOUBLE) END",
    f"CASE WHEN regexp_full_match({{0}}, {_CLOCK}) THEN TRY_CAST(trim({{0}}) AS TIME) END",
    _TYPES["date"],
    _TYPES["time"],
)


@dataclass(frozen=True, slots=True)
class ReadOptions:
    """How a table is read. Every field is public.

    Fields:
        table: the table or view to use in a DuckDB file.
        view: SQL over ``data``, by the data holder, that gives the rows that questions see.
        types: of the columns of CSV files, where nothing is to be guessed; columns that are not named are text.
    """

    table: str | None = None
    view: str | None = None
    types: Mapping[str, str] | None = None

    def __post_init__(self) -> None:
        if self.types is None:
            return
        if not isinstance(self.types, Mapping):
            raise ArgumentError(f"types={self.types!r} must name columns: {{'hours': 'number'}}")
        for name, kind in self.types.items():
            if not isinstance(kind, str) or kind not in _TYPES:
                raise ArgumentError(f"types: {name!r}: {kind!r} must be one of {', '.join(_TYPES)}")


def attach(
    connection: Any, data: "str | Path | Table", options: ReadOptions, *, person: str | None = None, load: bool = False
) -> dict[str, str]:
    """Make the view ``data`` and return the kind of each of its columns.

    Args:
        connection: to DuckDB.
        data: a path, or what ``as_arrow`` returned.
        options: how the data holder wants it read.
        person: a column that all files of a folder must have, or none of them; a view says itself whose rows are.
        load: whether the rows of CSV files are wanted, or only their columns, of which that of ``person`` has the type
            that all of its entries fit. Other files are read at every question.
    """
    view, described, problem = options.view, None, "data: cannot be read as a table"
    try:
        connection.execute("SET python_enable_replacements = false")  # a view means tables, not variables of ours
        rows = _rows(connection, data, options, None if view is not None else person, load)
        connection.execute(f"CREATE OR REPLACE TEMP VIEW {'data' if view is None else 'source'} AS {rows}")
        if view is not None:
            problem = "view: cannot be read as a table"
            connection.execute(f"CREATE OR REPLACE TEMP VIEW data AS SELECT * FROM ({_over_source(view)})")
        described = connection.execute("DESCRIBE data").fetchall()
    except (duckdb().BinderException, duckdb().CatalogException):
        if view is not None:
            problem += ": are the columns there that it names? The table that was given is called data"
    except duckdb().ParserException as error:  # it quotes the view
        if view is not None:
            problem += f": {str(error).splitlines()[0]}"
    except duckdb().Error:  # its message may quote entries, so it is not passed on, not even as a context
        pass
    if described is None:
        raise DataError(problem)
    return {name: "other" if "\0" in name else kind_of_type(kind) for name, kind, *_ in described}


def person_type(kinds: Mapping[str, str], person: str) -> str:
    """BIGINT or VARCHAR, by the kind of the person's column."""
    if person not in kinds:
        raise ArgumentError(f"person={person!r} is no column of the data")
    if kinds[person] == "whole":
        return "BIGINT"
    if kinds[person] == "text":
        return "VARCHAR"
    raise ArgumentError(
        f"person={person!r} must hold whole numbers or text; cast it in a view, so that each person has one spelling"
    )


def as_arrow(data: object) -> "Table":
    """A table in memory as an Arrow table; a stream of rows is read once, here."""
    with _extras.need("pyarrow", extra="queries"):
        import pyarrow
    kinds = (pyarrow.Table, "to_arrow", "iloc", "__arrow_c_stream__")
    if not any(hasattr(data, kind) if isinstance(kind, str) else isinstance(data, kind) for kind in kinds):
        raise ArgumentError("data must be a path, or a table of pandas, Polars or Arrow")
    with suppress(pyarrow.ArrowException, ValueError, TypeError):  # its message may quote entries
        if isinstance(data, pyarrow.Table):
            table = data
        elif hasattr(data, "to_arrow"):  # Polars
            table = data.to_arrow()
        elif hasattr(data, "iloc"):  # pandas
            table = pyarrow.Table.from_pandas(data, preserve_index=False)
        else:
            table = pyarrow.table(data)
        table.validate(full=True)  # bytes that are no text would fail the questions that meet them, and no others
        return table
    raise DataError("data: each column must hold entries of one type")


def _over_source(view: str) -> str:
    """The data holder's SQL, in which ``data`` is what was given."""
    return f"WITH data AS (SELECT * FROM source) SELECT * FROM ({view.strip().rstrip(';')}\n)"


def _rows(connection: Any, data: "str | Path | Table", options: ReadOptions, person: str | None, load: bool) -> str:
    """SQL for the rows."""
    if not isinstance(data, str | Path):
        if options.table is not None or options.types is not None:
            raise ArgumentError("table= is for DuckDB files, types= for CSV files")
        connection.register("rows_in_memory", data)
        return "SELECT * FROM rows_in_memory"
    path = Path(data).absolute()  # a view is read again after changes of folder
    if not (path.is_file() or path.is_dir()):
        raise DataError(f"{path} is not there")
    files = _files_in(path) if path.is_dir() else [path]
    suffix = (path.with_suffix("") if path.suffix in (".gz", ".zst") else path).suffix.lower()
    kind = files[0].suffix if path.is_dir() else suffix
    if kind not in _CSV and options.types is not None:
        raise ArgumentError("types= is for CSV files: other columns have types of their own")
    if kind in (".duckdb", ".db"):
        return _from_database(connection, path, options.table)
    if options.table is not None:
        raise ArgumentError("table= is for DuckDB files")
    if kind in _PARQUET:
        return _from_parquet(connection, path, files, person)
    if kind not in _CSV:
        raise DataError(f"{path} must end in .parquet, .csv, .csv.gz or .duckdb, or be a folder of such files")
    _load(connection, _CsvFiles(path, files, person), options.types, person, load=load)
    return "SELECT * FROM csv_rows"


def _from_database(connection: Any, path: Path, table: str | None) -> str:
    if table is None:
        raise ArgumentError(f"table= is missing: which table or view of {path}?")
    connection.execute(f"ATTACH {text(str(path))} AS source_file (TYPE duckdb, READ_ONLY)")
    return f"SELECT * FROM source_file.{'.'.join(quoted(part) for part in table.split('.'))}"


def _from_parquet(connection: Any, path: Path, files: Sequence[Path], person: str | None) -> str:
    if files == [path]:
        return f"SELECT * FROM read_parquet({text(_literally(path))}, hive_partitioning = false)"
    if person is not None:
        describe = "DESCRIBE SELECT * FROM read_parquet({}, hive_partitioning = false)"
        names = [connection.execute(describe.format(text(_literally(file)))).fetchall() for file in files]
        _check_person(path, person, ((name for name, *_ in listed) for listed in names))
    split = str(_is_split(path, files)).lower()
    pattern = text(f"{_literally(path)}/**/*{files[0].suffix}")
    return f"SELECT * FROM read_parquet({pattern}, union_by_name = true, hive_partitioning = {split})"


def _literally(path: Path) -> str:
    """A path in which nothing is a wildcard."""
    return "".join(f"[{letter}]" if letter in "*?[" else letter for letter in str(path))


def _check_person(path: Path, person: str, listed: Iterable[Iterable[str]]) -> None:
    """Refuse a folder in which some files have the person's column and some have not."""
    if len({person.casefold() in map(str.casefold, names) for names in listed}) > 1:
        raise DataError(f"{path}: column {person!r} must be in all files: rows without it would be left out")


def _files_in(path: Path) -> list[Path]:
    """The files of a folder, all of one kind; refuses what a reader would leave out without a word."""
    inside = sorted(path.rglob("*"))
    if any(each.is_symlink() and not each.is_file() for each in inside):
        raise DataError(f"{path} holds a link to a folder, or to nothing, which would not be read: put the rows there")
    files = [each for each in inside if each.is_file()]
    hidden = {file for file in files if any(part.startswith((".", "_")) for part in file.relative_to(path).parts)}
    kinds = {file.suffix for file in files if file not in hidden}  # letter by letter: .CSV is another kind
    if len(kinds) != 1 or not kinds <= {*_PARQUET, *_CSV}:
        raise DataError(f"{path} must hold files of one kind, .parquet or .csv, and no others")
    (kind,) = kinds
    if any(file.suffix == kind for file in hidden):  # half-written or deleted rows of programs that keep such files
        raise DataError(f"{path} holds hidden {kind} files, in it or in folders whose names begin with . or _")
    files = [file for file in files if file.suffix == kind]
    if _is_split(path, files) and any("=" in part for part in path.parts):
        raise DataError(f"{path} is a part of a folder that is split by names with =; give the whole of it")
    return files


def _is_split(path: Path, files: Iterable[Path]) -> bool:
    """Whether names of folders, like day=2011-12-09, are columns; a name above the data must not become one."""
    return any("=" in part for file in files for part in file.relative_to(path).parts[:-1])


class _CsvFiles:
    """The rows of one CSV file, or of all in a folder, as text under the names that any of them has."""

    def __init__(self, path: Path, files: Sequence[Path], person: str | None) -> None:
        forms = [_csv.form(file) for file in files if files == [path] or file.stat().st_size]
        if person is not None:
            _check_person(path, person, (form.names for form in forms))
        if len({form.delimiter for form in forms} - {None}) > 1:
            raise DataError(f"{path}: what separates the names of columns must be the same in all files")
        parts = [{} if files == [path] else _parts(path, form.path) for form in forms]
        if len({tuple(sorted(each)) for each in parts}) > 1:
            raise DataError(f"{path}: folders must be split by the same names everywhere")
        self._files = list(zip(forms, parts, strict=True))
        self.names: dict[str, str] = {}
        for form, folders in self._files:
            listed = [*form.names, *folders]
            if len({name.casefold() for name in listed}) < len(listed):
                raise DataError(f"{form.path} has two columns of the same name")
            self.names.update({name.casefold(): name for name in listed if name.casefold() not in self.names})

    def batches(self) -> Iterator["RecordBatch"]:
        """All rows; an entry that a file has not is empty."""
        import pyarrow

        for form, folders in self._files:
            constant = {name.casefold(): value for name, value in folders.items()}
            for batch in _csv.batches(form):
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


def _load(
    connection: Any, files: _CsvFiles, types: Mapping[str, str] | None, person: str | None, *, load: bool
) -> None:
    """Make the table ``csv_rows``. Without ``load`` it has no rows, and only the type of ``person`` is certain."""
    if types is None:
        _load_guessing(connection, files, person, load=load)
        return
    unknown = ", ".join(repr(name) for name in types if name not in files.names.values())
    if unknown:
        raise ArgumentError(f"types: {unknown}: no such column in the data")
    entries = {name: _TYPES[types.get(name, "text")].format(_entry(name)) for name in files.names.values()}
    _create(connection, files, entries, load=load)


def _load_guessing(connection: Any, files: _CsvFiles, person: str | None, *, load: bool) -> None:
    """The same, each column of the first type that all of its entries fit; text, where none does or none is there.

    The first rows say what is likely. Where a later entry does not fit, all rows are read once more to find what does.
    """
    names = files.names.values()
    first = (batch.slice(0, 2000) for batch, _ in zip(files.batches(), range(1), strict=False))
    likely = _fitting(connection, files, first, dict.fromkeys(names, _GUESSED))
    if None not in likely.values():
        with suppress(_Unfit):
            entries = {
                name: _strictly(name, fit[0]) if fit else _entry(name)
                for name, fit in likely.items()
                if fit is not None
            }
            if not load:
                tested = [entries[person]] if person in entries else entries.values()
                sql = f"SELECT {', '.join(f'count({entry})' for entry in tested)} FROM batches"
                _over_batches(connection, sql, files, files.batches())
            _create(connection, files, entries, load=load)
            return
    possible = {name: _GUESSED if fit is None else fit for name, fit in likely.items()}
    certain = _fitting(connection, files, files.batches(), possible)
    entries = {name: fit[0].format(_entry(name)) if fit else _entry(name) for name, fit in certain.items()}
    _create(connection, files, entries, load=load)


def _strictly(name: str, type_: str) -> str:
    """An entry as SQL that fails where it does not fit the type."""
    return f"CASE WHEN {_entry(name)} IS NOT NULL THEN coalesce({type_.format(_entry(name))}, error('')) END"


def _fitting(
    connection: Any, files: _CsvFiles, batches: Iterator["RecordBatch"], types: Mapping[str, tuple[str, ...]]
) -> dict[str, tuple[str, ...] | None]:
    """Those of the types, as SQL, that all of a column's entries in these rows fit; None for a column without any."""
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


def _create(connection: Any, files: _CsvFiles, entries: Mapping[str, str], *, load: bool) -> None:
    """Make the table out of an SQL expression for each column."""
    listed = ", ".join(f"{entry} AS {quoted(name)}" for name, entry in entries.items())
    sql = f"CREATE OR REPLACE TEMP TABLE csv_rows AS SELECT {listed} FROM batches"
    _over_batches(connection, sql, files, files.batches() if load else iter(()))


def _entry(name: str) -> str:
    """A column's entry as SQL; an empty one is missing."""
    return f"nullif({quoted(name)}, '')"


def _over_batches(connection: Any, sql: str, files: _CsvFiles, batches: Iterator["RecordBatch"]) -> list[Any]:
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
