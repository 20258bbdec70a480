"""Where the rows come from: files and tables become the view ``data`` in DuckDB's memory, beside the ledger."""

import re
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bursar import _extras
from bursar._workspace import duckdb, quoted, text
from bursar.errors import ArgumentError, DataError
from bursar.queries._engines.columns import kind_of_type

__all__ = ["Reading", "as_arrow", "attach", "names_of_people"]

_FILES = {
    ".parquet": "read_parquet",
    ".pq": "read_parquet",
    ".csv": "read_csv",
    ".tsv": "read_csv",
}
_DATE, _TIME = "'%Y-%m-%d'", "'%Y-%m-%d %H:%M:%S'"
# What DuckDB would else guess from all rows of a CSV file, so that one person's row changes how everybody's are read.
# Types are guessed, and fit all entries: they are public, as those of other files are. But each has one spelling.
_FORM = (
    ", sample_size = -1, header = true, skip = 0, quote = '\"', escape = '\"', comment = '', "
    f"dateformat = {_DATE}, timestampformat = {_TIME}, "
    "auto_type_candidates = ['NULL', 'BOOLEAN', 'BIGINT', 'DOUBLE', 'TIME', 'DATE', 'TIMESTAMP', 'VARCHAR']"
)
_DELIMITERS = ",;|\t"
_IN_QUOTES = r'(^|[,;|\t])"(?:[^"]|"")*"'
_FIRST_LINE = (
    "SELECT line FROM read_csv({0}, auto_detect = false, header = false, columns = {{'line': 'VARCHAR'}}, "
    "delim = '\x01', quote = '', escape = '', comment = '', strict_mode = false) LIMIT 1"
)
_ONE_LINE = "CASE WHEN regexp_matches({0}, '[\\r\\n]') THEN error('') ELSE {0} END"
# Entries of CSV files as SQL of one type; those that are spelled otherwise are missing.
_TYPES = {
    "text": "{0}",
    "whole": "CASE WHEN regexp_full_match(trim({0}), '[+-]?[0-9]+') THEN TRY_CAST(trim({0}) AS BIGINT) END",
    "number": "TRY_CAST(trim({0}) AS DOUBLE)",
    "bool": "TRY_CAST(trim({0}) AS BOOLEAN)",
    "date": f"CAST(try_strptime(trim({{0}}), {_DATE}) AS DATE)",
    "time": f"try_strptime(trim({{0}}), {_TIME})",
}


@dataclass(frozen=True, slots=True)
class Reading:
    """How a table is read. Every field is public.

    Fields:
        table: the table or view to use in a DuckDB file.
        view: SQL over ``data``, by the data holder, that gives the rows that questions see.
        types: of the columns of CSV files, where nothing is to be guessed; those that are not named are text.
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
    connection: Any, data: Any, reading: Reading, *, person: str | None = None, load: bool = False
) -> Mapping[str, str]:
    """Make the view ``data`` and return the kind of each of its columns.

    Args:
        connection: to DuckDB.
        data: a path, or what ``as_arrow`` returned.
        reading: how the holder wants it read.
        person: a column that all files of a folder must have, or none of them; a view says itself whose rows are.
        load: whether CSV files are read now, once; else at every question, like all others.
    """
    table, view = reading.table, reading.view
    name = "data" if view is None else "source"
    described, given, reason, lines = None, "data", "", ""
    try:
        if isinstance(data, str | Path):
            path = Path(data).absolute()  # a view is read again after changes of folder
            rows = _from_path(connection, path, table, person if view is None else None)
            csv = "read_csv(" in rows
            if csv:
                lines = ": each line must be a row, with an entry for every column"
                rows = _by_line(connection, rows, reading.types)
            elif reading.types is not None:
                raise ArgumentError("types= is for CSV files: other columns have types of their own")
            kind = "TABLE" if load and csv else "VIEW"
            connection.execute(f"CREATE OR REPLACE TEMP {kind} {name} AS {rows}")
        else:
            if table is not None or reading.types is not None:
                raise ArgumentError("table= is for DuckDB files, types= for CSV files")
            connection.register("rows_in_memory", data)
            connection.execute(f"CREATE OR REPLACE TEMP VIEW {name} AS SELECT * FROM rows_in_memory")
        if view is not None:
            given = "view"
            connection.execute(f"CREATE OR REPLACE TEMP VIEW data AS SELECT * FROM ({_over(view)})")
        described = connection.execute("DESCRIBE data").fetchall()
    except (duckdb().BinderException, duckdb().CatalogException):
        reason = ": are the columns there that it names? The table that was given is called data"
    except duckdb().ParserException as error:  # it quotes the view
        reason = f": {str(error).splitlines()[0]}"
    except duckdb().Error:  # its message may quote entries: not even a context of ours
        reason = ""
    if described is None:
        raise DataError(f"{given}: cannot be read as a table{reason if given == 'view' else lines}")
    return {name: "other" if "\0" in name else kind_of_type(kind) for name, kind, *_ in described}


def names_of_people(kinds: Mapping[str, str], person: str) -> str:
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


def _by_line(connection: Any, rows: str, types: Mapping[str, str] | None) -> str:
    """The rows of CSV files, with the types that the holder chose, if any; then nothing is guessed from any entry.

    An entry with a line break is refused: a quote that one line leaves open takes in other people's lines.
    """
    if types is not None:
        rows = rows.removesuffix(")") + ", all_varchar = true, hive_types_autocast = false)"
    kinds = {name: kind for name, kind, *_ in connection.execute(f"DESCRIBE {rows}").fetchall()}
    entries = {name: "{0}" if kind != "VARCHAR" else _ONE_LINE for name, kind in kinds.items()}
    rows = _selected(entries, rows)
    if types is None:
        return rows
    unknown = ", ".join(repr(name) for name in types if name not in kinds)
    if unknown:
        raise ArgumentError(f"types: {unknown}: no such column in the data")
    return _selected({name: _TYPES[types.get(name, "text")] for name in kinds}, rows)


def _selected(entries: Mapping[str, str], rows: str) -> str:
    """Columns of rows, each with {0} for what it was."""
    listed = ", ".join(f"{entry.format(quoted(name))} AS {quoted(name)}" for name, entry in entries.items())
    return f"SELECT {listed} FROM ({rows})"


def _over(view: str) -> str:
    """The data holder's SQL, in which ``data`` is what was given."""
    return f"WITH data AS (SELECT * FROM source) SELECT * FROM ({view.strip().rstrip(';')}\n)"


def _from_path(connection: Any, path: Path, table: str | None, person: str | None) -> str:
    if path.is_dir():
        return _from_folder(connection, path, person)
    if not path.is_file():
        raise DataError(f"{path} is not there")
    suffix = (path.with_suffix("") if path.suffix in (".gz", ".zst") else path).suffix.lower()
    if suffix in _FILES:
        if table is not None:
            raise ArgumentError("table= is for DuckDB files")
        read = _FILES[suffix]
        return f"SELECT * FROM {read}({text(_literally(path))}, {_split(False)}{_form(connection, read, [path])})"
    if suffix in (".duckdb", ".db"):
        if table is None:
            raise ArgumentError(f"table= is missing: which table or view of {path}?")
        connection.execute(f"ATTACH {text(str(path))} AS source_file (TYPE duckdb, READ_ONLY)")
        return f"SELECT * FROM source_file.{'.'.join(quoted(part) for part in table.split('.'))}"
    raise DataError(f"{path} must end in .parquet, .csv, .csv.gz or .duckdb, or be a folder of such files")


def _names(connection: Any, rows: str, person: str) -> bool:
    """Whether there is a column of this name."""
    names = connection.execute(f"DESCRIBE SELECT * FROM {rows}").fetchall()
    return any(name.casefold() == person.casefold() for name, *_ in names)


def _from_folder(connection: Any, path: Path, person: str | None) -> str:
    inside = list(path.rglob("*"))
    if any(each.is_symlink() and not each.is_file() for each in inside):
        raise DataError(f"{path} holds a link to a folder, or to nothing, which would not be read: put the rows there")
    found = [each.relative_to(path) for each in inside if each.is_file()]
    hidden = {each for each in found if any(part.startswith((".", "_")) for part in each.parts)}
    # letter by letter, as the pattern below has it: a file that it does not match must not be left out silently
    kinds = {each.suffix for each in found if each not in hidden}
    if len(kinds) != 1 or not kinds <= set(_FILES):
        raise DataError(f"{path} must hold files of one kind, .parquet or .csv, and no others")
    (kind,) = kinds
    if any(each.suffix == kind for each in hidden):  # half-written or deleted rows of programs that keep such files
        raise DataError(f"{path} holds hidden {kind} files, in it or in folders whose names begin with . or _")
    split = any("=" in part for each in found for part in each.parts[:-1])
    if split and any("=" in part for part in path.parts):
        raise DataError(f"{path} is a part of a folder that is split by names with =; give the whole of it")
    read, pattern = _FILES[kind], text(f"{_literally(path)}/**/*{kind}")
    files = [path / each for each in found if each.suffix == kind]
    form = _form(connection, read, files)
    if person is not None:
        some = [each for each in files if each.stat().st_size]
        has = {_names(connection, f"{read}({text(_literally(each))}, {_split(False)}{form})", person) for each in some}
        if len(has) > 1:
            raise DataError(f"{path}: column {person!r} must be in all files: rows of nobody would be left out")
    return f"SELECT * FROM {read}({pattern}, union_by_name = true, {_split(split)}{form})"


def _form(connection: Any, read: str, paths: Iterable[Path]) -> str:
    """How files are read: what separates the fields of CSV files is said by their lines of names, which are public."""
    if read != "read_csv":
        return ""
    found = {_delimiter(connection, path) for path in paths} - {None}
    if len(found) > 1:
        raise DataError("data: what separates the names of columns must be the same in all files")
    (delimiter,) = found or {","}
    return f"{_FORM}, delim = {text(str(delimiter))}"


def _delimiter(connection: Any, path: Path) -> str | None:
    """What separates the names in a file's first line; None where there is one name at most."""
    first = connection.execute(_FIRST_LINE.format(text(_literally(path)))).fetchone()
    names = re.sub(_IN_QUOTES, r"\1", "" if first is None else first[0] or "")
    found = {each: names.count(each) for each in _DELIMITERS}
    most = max(found.values())
    best = [each for each, times in found.items() if 0 < times == most]
    if len(best) > 1:
        raise DataError(f"data: {' or '.join(map(repr, best))} between the columns? Put their names into double quotes")
    return best[0] if best else None


def _split(split: bool) -> str:
    """Whether names of folders, like day=2011-12-09, are columns; a name above the data must not become one."""
    return f"hive_partitioning = {str(split).lower()}"


def _literally(path: Path) -> str:
    """A path in which nothing is a wildcard."""
    return "".join(f"[{letter}]" if letter in "*?[" else letter for letter in str(path))


def as_arrow(data: Any) -> Any:
    """A table in memory as an Arrow table; a stream of rows is read once, here."""
    with _extras.need("pyarrow", extra="queries"):
        import pyarrow
    kinds = (pyarrow.Table, "to_arrow", "iloc", "__arrow_c_stream__")
    if not any(hasattr(data, kind) if isinstance(kind, str) else isinstance(data, kind) for kind in kinds):
        raise ArgumentError("data must be a path, or a table of pandas, Polars or Arrow")
    with suppress(pyarrow.ArrowException, ValueError, TypeError):  # its message may quote entries
        if isinstance(data, pyarrow.Table):
            found = data
        elif hasattr(data, "to_arrow"):  # Polars
            found = data.to_arrow()
        elif hasattr(data, "iloc"):  # pandas
            found = pyarrow.Table.from_pandas(data, preserve_index=False)
        else:
            found = pyarrow.table(data)
        found.validate(full=True)  # bytes that are no text would fail the questions that meet them, and no others
        return found
    raise DataError("data: each column must hold entries of one type")
