"""Rows in Spark, computed by the Spark session that the data frame came from.

A data frame's columns are numbered before any SQL sees them; tables are handed over with each statement, so nothing is
left in the user's catalogue. Accounts are generations of Parquet files, which ``SparkWriter`` writes.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyarrow import parquet

from almoner.errors import DataError, MissingExtra
from almoner.queries.engines import Compiled, Compiler, Dialect, Engine, Keys, Plugin, Query
from almoner.queries.spark._accounts import SparkCharges, SparkWriter, WorkedOut, quiet
from almoner.queries.spark._dialect import cure_of, kind_of, spark_dialect

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

__all__ = ["plugin"]

CELLS = "cells"  # the table that `Compiled.cells` fills

_KEYS = {"BIGINT": pa.int64(), "VARCHAR": pa.string(), "BOOLEAN": pa.bool_(), "DATE": pa.date32()}
_SPELLED = {"BIGINT": "BIGINT", "VARCHAR": "STRING", "BOOLEAN": "BOOLEAN", "DATE": "DATE"}


def _numbered(data: "DataFrame") -> "DataFrame":
    return data.toDF(*(f"c{place}" for place in range(len(data.columns))))


@quiet
def _read(builder: "SparkSession.Builder", path: Path, view: str | None) -> "DataFrame":
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("OFF")  # what Spark logs may quote entries
    data = spark.read.parquet(f"file://{path}")
    if view is None:
        return data
    data.createOrReplaceTempView("data")
    return spark.sql(view)


class _SparkPlugin:
    """Data frames of Spark; see ``almoner.queries.engines.Plugin``."""

    name, data = "Spark", "data frames of Spark"

    def takes(self, data: object) -> bool:
        return any(
            kind.__module__.startswith("pyspark.sql.") and kind.__name__ == "DataFrame" for kind in type(data).__mro__
        )

    def types(self, data: "DataFrame") -> Sequence[tuple[str, str]]:
        return [(field.name, field.dataType.simpleString()) for field in data.schema.fields]

    def kind(self, sql_type: str) -> str | None:
        return kind_of(sql_type)

    def cure(self, column: str, sql_type: str, wanted: str) -> str:
        return cure_of(column, sql_type, wanted)

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
        return _read(SparkSession.builder.master(place).appName("almoner"), path.absolute(), view)


plugin: Plugin = _SparkPlugin()


class _SparkEngine(Engine):
    """Rows in Spark. Private: it belongs to the data holder's session."""

    def __init__(self, tables: "Mapping[str, DataFrame]", compiler: Compiler, writer: SparkWriter) -> None:
        super().__init__(compiler)
        self._data = {name: _numbered(frame) for name, frame in tables.items()}
        self._spark = next(iter(tables.values())).sparkSession
        self._writer = writer

    def charges(self, plan: Compiled) -> SparkCharges:
        """To be worked out by the writer of the accounts."""
        return SparkCharges(lambda: self._work_out(plan))

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
        return self._writer.read(path, f"key {_SPELLED[keys.kind]}, place BIGINT").hint("broadcast")

    def _those_with_any(self, charges: "DataFrame") -> "DataFrame":
        """Behind a column that Spark cannot see through: conditions on units are not written out over all rows."""
        numbered = "SELECT *, monotonically_increasing_id() AS row FROM {charges}"
        return self._spark.sql(f"SELECT * FROM ({numbered}) WHERE units > 0 AND row >= 0", charges=charges)

    def close(self) -> None:
        """Remove what the last question computed on its way."""
        self._writer.remove_scratch()
