"""Rows in Spark, computed by the Spark session that the data frame came from.

A data frame's columns are numbered before any SQL sees them; tables are handed over with each statement, so nothing is
left in the user's catalogue. Accounts are generations of Parquet files (``almoner.ledger``), which ``spark_accounts``
writes.
"""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from almoner import _extras
from almoner._disk import PRIVATE_FOLDER
from almoner._workspace import Query, text
from almoner.errors import ArgumentError, DataError
from almoner.ledger import Ledger
from almoner.queries._engines.spark_accounts import SparkCharges, SparkWriter, WorkedOut, quiet
from almoner.queries._questions.question import Question
from almoner.queries._sources.sources import view_name
from almoner.queries._sources.table_input import TableInput, schema_of
from almoner.queries._sql.compiler import Compiled, Compiler
from almoner.queries._sql.cures import shown_type
from almoner.queries._sql.dialects import spark_dialect
from almoner.queries._sql.keys import CELLS, Keys
from almoner.queries._sql.schemas import Schema

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

__all__ = ["Spark", "check_frames", "columns_of", "is_data_frame", "read_by_spark", "spark_types"]

_WHOLE = {"tinyint", "smallint", "int", "bigint"}
_KINDS = {"float": "number", "double": "number", "string": "text", "boolean": "bool", "date": "date"}
_DIGITS = 15  # every decimal of so many digits is one double, the same one on every engine
_KEYS = {"BIGINT": "BIGINT", "VARCHAR": "STRING", "BOOLEAN": "BOOLEAN", "DATE": "DATE"}


def is_data_frame(data: object) -> bool:
    """True if it is a data frame of Spark's, found out without loading Spark."""
    return any(
        kind.__module__.startswith("pyspark.sql.") and kind.__name__ == "DataFrame" for kind in type(data).__mro__
    )


def read_by_spark(
    master: str,
    path: Path,
    *,
    table: str | None = None,
    view: str | None = None,
    types: Mapping[str, str] | None = None,
) -> "DataFrame":
    """A data frame over Parquet files, or of SQL over them as ``data``; with the Spark session at this master.

    Everything else about Spark is set where Spark looks for it (``spark-defaults.conf``).
    """
    with _extras.need("pyspark", extra="spark"):
        from pyspark.sql import SparkSession
    if table is not None or types is not None:
        raise ArgumentError("table= is for DuckDB files, types= for CSV files")
    if not path.exists() or (path.is_file() and path.suffix != ".parquet"):
        raise DataError(f"{path} must be a Parquet file or a folder of them")
    return _read(SparkSession.builder.master(master).appName("almoner"), path.absolute(), view)


@quiet
def _read(builder: "SparkSession.Builder", path: Path, view: str | None) -> "DataFrame":
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("OFF")  # what Spark logs may quote entries
    data = spark.read.parquet(f"file://{path}")
    if view is None:
        return data
    data.createOrReplaceTempView("data")
    return spark.sql(view)


def columns_of(data: "DataFrame") -> Mapping[str, str]:
    """The kind of each column of a data frame."""
    types = spark_types(data)
    if len(types) < len(data.schema.fields):
        raise ArgumentError("data: two columns have the same name")
    return {name: "other" if "\0" in name else _kind(kind) for name, kind in types.items()}


def spark_types(data: "DataFrame") -> dict[str, str]:
    """The columns of a data frame, each with Spark's name of its type."""
    return {field.name: field.dataType.simpleString() for field in data.schema.fields}


def _numbered(data: "DataFrame") -> "DataFrame":
    return data.toDF(*(f"c{place}" for place in range(len(data.columns))))


@quiet
def check_frames(given: list[TableInput], person_kind: str) -> None:
    """Refuse a second row where one was declared; for the data holder."""
    for each in given:
        if each.person is not None and not each.one_row:
            continue
        kinds = columns_of(each.data)
        found_by = each.found_by(kinds, person_kind, spark_dialect(kinds))
        sql = f"SELECT 1 FROM {{data}} d WHERE {found_by} IS NOT NULL GROUP BY {found_by} HAVING count(*) > 1 LIMIT 1"
        if each.data.sparkSession.sql(sql, data=_numbered(each.data)).collect():
            raise DataError(each.twice)


def _kind(spark_type: str) -> str:
    """Of a column, from Spark's name of its type; that name where another engine would read it differently."""
    if spark_type in _WHOLE:
        return "whole"
    digits = re.fullmatch(r"decimal\((\d+),-?\d+\)", spark_type)
    if digits:
        return "number" if int(digits[1]) <= _DIGITS else spark_type
    return "time" if spark_type == "timestamp_ntz" else _KINDS.get(spark_type, shown_type(spark_type))


class Spark:
    """Rows in Spark. Private: it belongs to the data holder's session."""

    def __init__(
        self, ledger: Ledger, compiler: Compiler, data: Mapping[str, "DataFrame"], writer: SparkWriter
    ) -> None:
        self._ledger = ledger
        self._compiler = compiler
        self._data = {name: _numbered(frame) for name, frame in data.items()}
        self._spark = next(iter(data.values())).sparkSession
        self._writer = writer

    @classmethod
    @quiet
    def open(cls, ledger: Ledger, given: list[TableInput], writer: SparkWriter) -> Self:
        """Attach data frames to a ledger whose accounts Spark writes."""
        kinds = [columns_of(each.data) for each in given]
        names = [view_name(place) for place in range(len(given))]
        dialects = [spark_dialect(columns) for columns in kinds]
        rows = [dialects[0].table.format(name) for name in names]
        schema = schema_of(given, kinds, rows, ledger.terms.person, dialects)
        frames = {name: each.data for name, each in zip(names, given, strict=True)}
        return cls(ledger, Compiler(schema, dialects[0]), frames, writer)

    @property
    def schema(self) -> Schema:
        return self._compiler.schema

    def plan(self, asked: Question, described: Mapping[str, object]) -> Compiled:
        return self._compiler.plan(asked, described)

    def check_files(self) -> None:
        """Nothing: a data frame says itself what its rows are."""

    def charges(self, plan: Compiled) -> SparkCharges:
        """To be worked out by the writer of the accounts."""
        return SparkCharges(lambda: self._work_out(plan))

    @quiet
    def prices(self, plan: Compiled) -> Query:
        """A query over files of prices."""
        self._writer.remove_scratch()
        path = self._writer.scratch() / "prices"
        self._writer.write(self._work_out(plan).charges.select("person", "units"), path)
        return Query(f"SELECT person, units FROM read_parquet({text(f'{path}/*.parquet')}, hive_partitioning = false)")

    @quiet
    def sums(self, plan: Compiled, admitted: object) -> list[int]:
        """The contributions of the people admitted, added up, in whole steps; from the files. Private."""
        tables: dict[str, Any] = admitted  # type: ignore[assignment]
        return plan.added(tuple(row) for row in self._spark.sql(plan.sums, **tables).collect())

    @quiet
    def people_by_value(self, plan: Compiled, admitted: object) -> list[tuple[Any, int]]:
        """People who take part, by value, for a question about values. Private."""
        tables: dict[str, Any] = admitted  # type: ignore[assignment]
        return [(value, int(people)) for value, people in self._spark.sql(plan.sums, **tables).collect()]

    def _work_out(self, plan: Compiled) -> WorkedOut:
        """A data frame of each person's price and contribution; long contributions are written to files first."""
        folder = self._writer.scratch()
        tables: dict[str, Any] = dict(self._data)
        for keys in plan.keys:
            folder.mkdir(mode=PRIVATE_FOLDER, exist_ok=True)
            tables[keys.table] = self._keys(keys, folder / f"{keys.table}.parquet")
        if plan.cells is None:
            return WorkedOut(self._those_with_any(self._spark.sql(plan.charges, **tables)))
        cells = self._spark.sql(plan.cells, **tables)
        self._writer.write(cells, folder / CELLS)
        written: dict[str, Any] = {CELLS: self._writer.read(folder / CELLS, cells.schema)}
        return WorkedOut(self._those_with_any(self._spark.sql(plan.charges, **written)), written)

    def _keys(self, keys: Keys, path: Path) -> "DataFrame":
        """The keys of one column to group by, through a file."""
        workspace = self._ledger.store.workspace
        workspace.make([keys.to_make()])
        workspace.run(f"COPY {keys.table} TO {text(str(path))}")
        workspace.drop([keys.table])
        return self._writer.read(path, f"key {_KEYS[keys.kind]}, place BIGINT").hint("broadcast")

    def _those_with_any(self, charges: "DataFrame") -> "DataFrame":
        """Behind a column that Spark cannot see through: conditions on units are not written out over all rows."""
        numbered = "SELECT *, monotonically_increasing_id() AS row FROM {charges}"
        return self._spark.sql(f"SELECT * FROM ({numbered}) WHERE units > 0 AND row >= 0", charges=charges)

    def close(self) -> None:
        """Remove what the last question computed on its way; not in a forked process, where it is its parent's."""
        if not self._ledger.store.closed:
            self._writer.remove_scratch()
