"""Spark as an engine: a plugin that uses public names of this package alone. Session.open takes data frames by it.

A data frame's columns are numbered before any SQL sees them; tables are handed over with each statement, so nothing is
left in the user's catalogue. No text of another author gets into the SQL: literals are spelled out by type, texts as
bytes.

Accounts are generations of Parquet files that only the ledger's transaction puts in force. What a question computes is
written once, and everything that is charged, added up or revealed is read back from those files. So a part of a job
that Spark runs again, even on rows that come out differently, changes nothing any more.
"""

import re
import secrets
import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date, datetime
from functools import partial, wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

import pyarrow as pa
from pyarrow import parquet

from almoner.errors import AlmonerError, ArgumentError, DataError, LedgerError, MissingExtra
from almoner.ledger.interfaces import Extent, Payment, Verdicts
from almoner.queries import engines
from almoner.queries.engines import Compiled, Compiler, Dialect, Engine, Keys, Plugin, Query, double

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

__all__ = ["plugin"]

Arguments = ParamSpec("Arguments")
Result = TypeVar("Result")

_TYPES = {"BIGINT": "BIGINT", "VARCHAR": "STRING"}
_COLUMNS = {
    "accounts": "spent BIGINT, gone BOOLEAN",
    "shares": "spent BIGINT",
    "charges": "question BIGINT, units BIGINT",
    "marks": "gone BOOLEAN",
}
_WRITE = {
    "mapreduce.fileoutputcommitter.marksuccessfuljobs": "true",
    "mapreduce.fileoutputcommitter.algorithm.version": "1",
}
_READ = {"ignoreCorruptFiles": "false", "ignoreMissingFiles": "false", "recursiveFileLookup": "false"}
_NEXT = (
    "SELECT person, sum(spent) AS spent, coalesce(max(mark), max(gone)) AS gone FROM ("
    "SELECT person, spent, gone, CAST(NULL AS BOOLEAN) AS mark FROM {accounts} "
    "UNION ALL SELECT person, units, FALSE, CAST(NULL AS BOOLEAN) FROM {charges} "
    "UNION ALL SELECT person, CAST(0 AS BIGINT), FALSE, gone FROM {marks}) GROUP BY person"
)
_NEXT_SHARE = (
    "SELECT person, sum(spent) AS spent FROM (SELECT person, spent FROM {share} "
    "UNION ALL SELECT person, units FROM {charges}) GROUP BY person"
)


def quiet(work: Callable[Arguments, Result]) -> Callable[Arguments, Result]:
    """Work on the data: Spark's errors may quote entries, so they are not even the context of what is raised."""

    @wraps(work)
    def quietly(*arguments: Arguments.args, **named: Arguments.kwargs) -> Result:
        try:
            return work(*arguments, **named)
        except AlmonerError:
            raise
        except Exception:
            pass
        raise DataError("the data cannot be read, or Spark cannot work; nothing was charged")

    return quietly


@dataclass(frozen=True, slots=True)
class WorkedOut:
    """Each person's price and contribution, and the tables that the sums read besides. Private."""

    charges: "DataFrame"
    tables: "Mapping[str, DataFrame]" = field(default_factory=dict)


class _SparkVerdicts:
    """Charges with a verdict on each, in files."""

    def __init__(
        self, writer: "SparkWriter", judged: "DataFrame", payment: Payment, tables: "Mapping[str, DataFrame]"
    ) -> None:
        self._writer, self._payment = writer, payment
        self._refused = judged.where("paid < wanted")
        self.taken = judged.where("taken").drop("taken", "wanted", "paid")
        self.admitted: object = {**tables, "admitted": self.taken}

    @quiet
    def refused(self) -> int:
        return int(self._refused.count())

    @quiet
    def missing_mass(self, price: int) -> int:
        return int(self._refused.selectExpr(self._payment.mass_sql(price)).collect()[0][0])

    def extent(self) -> Extent:
        return self._writer.extent(self.taken, "units")


class SparkWriter:
    """Writes the accounts of a ledger with a Spark session."""

    _folder: Path

    def __init__(self, spark: "SparkSession") -> None:
        self._spark = spark
        self._person = ""

    def open(self, folder: Path, person: str) -> None:
        """Workers must see the folder under the same path."""
        self._folder, self._person = folder, f"person {_TYPES[person]}"

    def scratch(self) -> Path:
        """A folder, yet to be made, for what the question at hand computes on its way."""
        return self._folder / "work" / secrets.token_hex(12)

    def remove_scratch(self) -> None:
        """The question at hand is over: remove what it computed on its way."""
        for path in (self._folder / "work").iterdir():
            shutil.rmtree(path, ignore_errors=True)

    @quiet
    def prepare(self, charges: object) -> WorkedOut:
        """A data frame with person (each once), units and more; it is computed once, by ``judge``."""
        if not callable(charges):
            raise ArgumentError("the accounts of this ledger are kept by Spark: ask about a Spark DataFrame")
        worked_out: WorkedOut = charges()
        return worked_out

    @quiet
    def judge(
        self,
        prepared: object,
        accounts: Path | None,
        marks: Path,
        shares: Sequence[tuple[Path | None, int]],
        most: int,
        payment: Payment,
    ) -> Verdicts:
        """Write each person's charge, all that came with it, and whether they can pay; the rows are read once."""
        if not isinstance(prepared, WorkedOut):
            raise ArgumentError("prepared: it is not what prepare() returned")
        tables: dict[str, Any] = {
            "charges": prepared.charges,
            "accounts": self._frame("accounts", accounts),
            "marks": self._frame("marks", marks),
        }
        joins, left = "", [f"{most:d} - coalesce(a.spent, 0)"]
        for place, (share, of_scope) in enumerate(shares):
            tables[f"s{place}"] = self._frame("shares", share)
            joins += f" LEFT JOIN {{s{place}}} s{place} ON s{place}.person = c.person"
            left.append(f"{of_scope:d} - coalesce(s{place}.spent, 0)")
        pays = payment.sql(left[0] if len(left) == 1 else f"least({', '.join(left)})", divide="div")
        judged = self._spark.sql(
            f"SELECT c.* EXCEPT (units, factor), {pays.units} AS units, {pays.factor} AS factor, "
            f"{pays.taken} AS taken, c.units AS wanted, CASE WHEN {pays.taken} THEN {pays.part} ELSE 0 END AS paid "
            "FROM {charges} c LEFT JOIN {accounts} a ON a.person = c.person "
            f"LEFT JOIN {{marks}} m ON m.person = c.person{joins} "
            "WHERE c.units > 0 AND NOT coalesce(m.gone, a.gone, FALSE)",
            **tables,
        )
        path = self.scratch() / "judged"
        self.write(judged, path)
        return _SparkVerdicts(self, self.read(path, judged.schema), payment, prepared.tables)

    def write_charges(self, verdicts: Verdicts, question: int, into: Path) -> None:
        """Write what a question charged the people who are taken."""
        if not isinstance(verdicts, _SparkVerdicts):
            raise ArgumentError("verdicts: they are not what judge() returned")
        charged = f"SELECT CAST({question:d} AS BIGINT) AS question, person, units FROM {{admitted}}"
        self.write(self._spark.sql(charged, admitted=verdicts.taken), into)

    def write_accounts(self, charges: Path, accounts: Path | None, marks: Path, into: Path) -> Extent:
        """Write the accounts after these charges, and of whom these marks say that they are gone."""
        tables = {"charges": charges, "accounts": accounts, "marks": marks}
        frames: dict[str, Any] = {name: self._frame(name, path) for name, path in tables.items()}
        self.write(self._spark.sql(_NEXT, **frames), into)
        return self.extent(self._frame("accounts", into), "spent")

    def write_share(self, charges: Path, share: Path | None, into: Path) -> None:
        """Write a scope's sums after these charges."""
        frames: dict[str, Any] = {"charges": self._frame("charges", charges), "share": self._frame("shares", share)}
        self.write(self._spark.sql(_NEXT_SHARE, **frames), into)

    def extent(self, rows: "DataFrame", column: str) -> Extent:
        """Of a column of units, exactly."""
        row = self._spark.sql(
            f"SELECT count(*), coalesce(sum(CAST({column} AS DECIMAL(19, 0))), 0), coalesce(max({column}), 0) "
            "FROM {rows}",
            rows=rows,
        ).collect()[0]
        return Extent(int(row[0]), int(row[1]), int(row[2]))

    def _frame(self, kind: str, path: Path | None) -> "DataFrame":
        """The rows in the files of a folder; none where there is no folder."""
        schema = f"{self._person}, {_COLUMNS[kind]}"
        if path is not None:
            return self.read(path, schema)
        empty = ", ".join(f"CAST(NULL AS {each.split()[1]}) AS {each.split()[0]}" for each in schema.split(", "))
        return self._spark.sql(f"SELECT {empty} WHERE FALSE")

    def read(self, path: Path, schema: "StructType | str") -> "DataFrame":
        """A data frame over files, none of which may be missing."""
        return self._spark.read.schema(schema).options(**_READ).parquet(f"file://{path}")

    def write(self, rows: "DataFrame", path: Path) -> None:
        """Write files; they are complete when this returns."""
        rows.write.options(**_WRITE).parquet(f"file://{path}")
        if not (path / "_SUCCESS").is_file():
            raise LedgerError(f"{self._folder}: Spark's workers do not write into the folder that this program sees")


_KINDS = {
    **dict.fromkeys(("tinyint", "smallint", "int", "bigint"), "whole"),
    **dict.fromkeys(("float", "double"), "number"),
    "string": "text",
    "boolean": "bool",
    "date": "date",
    "timestamp_ntz": "time",
}
_DIGITS = 15  # every decimal of so many digits is one double, the same one on every engine
_CASTS = {
    "timestamp": "CAST({0} AS TIMESTAMP_NTZ)",
    "decimal": "CAST({0} AS DOUBLE)",
    "binary": "hex({0})",
    **dict.fromkeys(("struct", "array", "map"), "to_json({0})"),
}
# NaN is nobody's name, 0 and -0 are one; times do not depend on a setting; numbers keep all their digits
_PEOPLE = {
    **dict.fromkeys(("float", "double"), "CAST(nanvl({0} + 0, NULL) AS STRING)"),
    "timestamp": "unix_micros({0})",
    "decimal": "CAST({0} AS STRING)",
}
# Spark's round goes through decimals; the whole part and what is left of it are exact
_ROUNDED = (
    "(CAST(CAST({0} AS BIGINT) AS DOUBLE) + "
    "CASE WHEN abs({0} - CAST({0} AS BIGINT)) >= 0.5D THEN sign({0}) ELSE 0D END)"
)
_FUNCTIONS = engines.functions(
    string="STRING",
    floor="CAST(floor({0}) AS DOUBLE)",
    rounded=_ROUNDED,
    regex="r'{}'",
    total="aggregate(array_sort(collect_list({0})), CAST(NULL AS DOUBLE), "
    "(a, b) -> coalesce(a, CAST(0 AS DOUBLE)) + b)",
    pair="named_struct('o', {1}, 'x', {0})",
    lower="translate({0}, {1}, {2})",
    upper="translate({0}, {1}, {2})",
    weekday="CAST(weekday({0}) + 1 AS BIGINT)",
    week="trunc({0}, 'week')",
    month="trunc({0}, 'month')",
    quarter="trunc({0}, 'quarter')",
    days="CAST(datediff({1}, {0}) AS BIGINT)",
    like="({0} RLIKE {1})",
)


def spark_dialect(columns: Sequence[str]) -> Dialect:
    """Spark's, over columns that were numbered: their names are in no SQL, and may differ by case alone."""
    return Dialect(
        types={**engines.duckdb_dialect(()).types, "text": "STRING", "time": "TIMESTAMP_NTZ"},
        columns={name: f"d.c{place:d}" for place, name in enumerate(columns)},
        table="{{{0}}}",  # a table is given to spark.sql with the statement
        # bytes that are no text name nobody: accounts are read by programs that take texts only
        person={"BIGINT": "CAST({0} AS BIGINT)", "VARCHAR": "try_validate_utf8(CAST({0} AS STRING))"},
        letters="{0}",  # columns with a collation are refused
        present="({0} IS NOT NULL AND NOT isnan({0}))",  # NULL is not NaN
        rounded=_ROUNDED,
        truncated="CAST(CAST({0} AS BIGINT) AS DOUBLE)",
        quotient="{0} div {1:d}",
        without="* EXCEPT ({0})",
        positive="",  # left to the engine: Spark would write the condition out in terms of the rows, at great length
        total="sum(CAST({0} AS DECIMAL(16, 0)))",  # 26 digits: enough for ten billion people
        literal=_spelled_out,
        functions=_FUNCTIONS,
        bound="transform(array({0}), {1} -> {2})[0]",
        regex=lambda pattern: engines.like_regex(pattern, r"(?>[\s\S]*?{})"),  # no place but the first is tried
        case_tables=engines.case_tables,
    )


def _spelled_out(value: bool | int | float | str | date | datetime, _parameters: list[object]) -> str:
    """There is nothing in it to be escaped."""
    match value:
        case bool():
            return "TRUE" if value else "FALSE"
        case int():
            return f"CAST('{value:d}' AS BIGINT)"
        case float():
            return double(value)
        case str():
            return f"CAST(X'{value.encode().hex()}' AS STRING)"
        case datetime():
            return f"TIMESTAMP_NTZ'{value.isoformat(sep=' ', timespec='microseconds')}'"
        case date():
            return f"DATE'{value.isoformat()}'"


CELLS = "cells"  # the table that `Compiled.cells` fills

_KEYS = {"BIGINT": pa.int64(), "VARCHAR": pa.string(), "BOOLEAN": pa.bool_(), "DATE": pa.date32()}


def _numbered(data: "DataFrame") -> "DataFrame":
    return data.toDF(*(f"c{place}" for place in range(len(data.columns))))


class _SparkPlugin:
    """Data frames of Spark; see ``almoner.queries.Plugin``."""

    name, data = "Spark", "data frames of Spark"

    def takes(self, data: object) -> bool:
        return any(
            kind.__module__.startswith("pyspark.sql.") and kind.__name__ == "DataFrame" for kind in type(data).__mro__
        )

    def types(self, data: "DataFrame") -> Sequence[tuple[str, str]]:
        return [(field.name, field.dataType.simpleString()) for field in data.schema.fields]

    def kind(self, sql_type: str) -> str | None:
        digits = re.fullmatch(r"decimal\((\d+),-?\d+\)", sql_type)
        if digits:
            return "number" if int(digits[1]) <= _DIGITS else None
        return _KINDS.get(sql_type)

    def cure(self, column: str, sql_type: str, wanted: str) -> str:
        known = {"question": _CASTS, "person": _CASTS | _PEOPLE, "text": {}}[wanted]
        name = column if re.fullmatch("[A-Za-z_][A-Za-z0-9_]*", column) else f"`{column.replace('`', '``')}`"
        expression = known.get(re.split("[(<]", sql_type)[0], "CAST({0} AS STRING)").format(name)
        zone = ", which is in the zone of spark.sql.session.timeZone"
        line = f"data.selectExpr({f'* EXCEPT ({name})'!r}, {f'{expression} AS {name}'!r})"
        return line + zone if (wanted, sql_type) == ("question", "timestamp") else line

    def dialect(self, columns: Sequence[str]) -> Dialect:
        return spark_dialect(columns)

    @quiet
    def has_twice(self, data: "DataFrame", value: str) -> bool:
        sql = f"SELECT 1 FROM {{data}} d WHERE {value} IS NOT NULL GROUP BY {value} HAVING count(*) > 1 LIMIT 1"
        return bool(data.sparkSession.sql(sql, data=_numbered(data)).collect())

    def writer(self, data: "DataFrame") -> SparkWriter:
        return SparkWriter(data.sparkSession)

    @quiet
    def open(self, tables: "Mapping[str, DataFrame]", compiler: Compiler, writer: SparkWriter) -> Engine:
        return _SparkEngine(tables, compiler, writer)

    def read(self, place: str, path: Path, view: str | None) -> "DataFrame":
        """Read Parquet files with the Spark session at a master.

        Everything else about Spark is set where Spark looks for it (``spark-defaults.conf``).
        """
        try:
            from pyspark.sql import SparkSession
        except ImportError:
            cure = "pip install '.[spark]' in your checkout of Almoner"
            raise MissingExtra(f"pyspark is not installed: {cure}") from None
        if not path.exists() or (path.is_file() and path.suffix != ".parquet"):
            raise DataError(f"{path} must be a Parquet file or a folder of them")

        @quiet
        def frame() -> "DataFrame":
            spark = SparkSession.builder.master(place).appName("almoner").getOrCreate()
            spark.sparkContext.setLogLevel("OFF")  # what Spark logs may quote entries
            data = spark.read.parquet(f"file://{path.absolute()}")
            if view is None:
                return data
            data.createOrReplaceTempView("data")
            return spark.sql(view)

        return frame()


plugin: Plugin = _SparkPlugin()


class _SparkEngine(Engine):
    """Rows in Spark. Private: it belongs to the data holder's session."""

    def __init__(self, tables: "Mapping[str, DataFrame]", compiler: Compiler, writer: SparkWriter) -> None:
        super().__init__(compiler)
        self._data = {name: _numbered(frame) for name, frame in tables.items()}
        self._spark = next(iter(tables.values())).sparkSession
        self._writer = writer

    def charges(self, plan: Compiled) -> Callable[[], WorkedOut]:
        """To be worked out, once, by the writer of the accounts."""
        return partial(self._work_out, plan)

    @quiet
    def prices(self, plan: Compiled) -> Query:
        """A query over files of prices."""
        self._writer.remove_scratch()
        path = self._writer.scratch() / "prices"
        self._writer.write(self._work_out(plan).charges.select("person", "units"), path)
        return Query("SELECT person, units FROM read_parquet(?, hive_partitioning = false)", (f"{path}/*.parquet",))

    @quiet
    def sums(self, plan: Compiled, admitted: object) -> list[int]:
        """The contributions of the people admitted, added up, in whole steps; from the files. Private."""
        return plan.added(tuple(row) for row in self._summed(plan, admitted))

    @quiet
    def people_by_value(self, plan: Compiled, admitted: object) -> list[tuple[Any, int]]:
        """People who take part, by value, for a question about values. Private."""
        return [(value, int(people)) for value, people in self._summed(plan, admitted)]

    def _summed(self, plan: Compiled, admitted: Any) -> list[Any]:
        return self._spark.sql(plan.sums, **admitted).collect()

    def _work_out(self, plan: Compiled) -> WorkedOut:
        """A data frame of each person's price and contribution; long contributions are written to files first."""
        folder = self._writer.scratch()
        tables: dict[str, Any] = dict(self._data)
        for keys in plan.keys:
            folder.mkdir(mode=0o700, exist_ok=True)
            tables[keys.table] = self._keys(keys, folder / f"{keys.table}.parquet")
        if plan.cells is None:
            return WorkedOut(self._those_with_any(self._spark.sql(plan.charges, **tables)))
        cells = self._spark.sql(plan.cells, **tables)
        self._writer.write(cells, folder / CELLS)
        written: dict[str, Any] = {CELLS: self._writer.read(folder / CELLS, cells.schema)}
        return WorkedOut(self._those_with_any(self._spark.sql(plan.charges, **written)), written)

    def _keys(self, keys: Keys, path: Path) -> "DataFrame":
        """The keys of one column to group by, through a file."""
        entries = pa.array(keys.values, _KEYS[keys.kind])
        parquet.write_table(pa.table({"key": entries, "place": pa.array(range(len(entries)), pa.int64())}), path)
        return self._writer.read(path, f"key {_TYPES.get(keys.kind, keys.kind)}, place BIGINT").hint("broadcast")

    def _those_with_any(self, charges: "DataFrame") -> "DataFrame":
        """Behind a column that Spark cannot see through: conditions on units are not written out over all rows."""
        numbered = "SELECT *, monotonically_increasing_id() AS row FROM {charges}"
        return self._spark.sql(f"SELECT * FROM ({numbered}) WHERE units > 0 AND row >= 0", charges=charges)

    def close(self) -> None:
        """Remove what the last question computed on its way."""
        self._writer.remove_scratch()
