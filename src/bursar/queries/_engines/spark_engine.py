"""The door to Spark: what a session needs of an engine, computed by the Spark session that the data frame came from.

A data frame's columns are numbered before any SQL sees them; tables are handed over with each statement, so nothing is
left in the user's catalogue. Accounts are generations of Parquet files (``ledger/_generations.py``).
"""

import re
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any, Self

from bursar import _extras
from bursar.errors import ArgumentError, DataError
from bursar.ledger import Ledger
from bursar.ledger._workspace import text
from bursar.queries._engines.compiler import Compiled, compiled
from bursar.queries._engines.dialects import SparkDialect
from bursar.queries._engines.duckdb_engine import fill_keys
from bursar.queries._engines.spark_accounts import SparkGenerations, quiet
from bursar.queries._forms import described
from bursar.queries._questions import Question

__all__ = ["Spark", "columns_of", "is_data_frame", "read_by_spark"]

_WHOLE = {"tinyint", "smallint", "int", "bigint"}
_KINDS = {"float": "number", "double": "number", "string": "text", "boolean": "bool", "date": "date"}
_DIGITS = 15  # every decimal of so many digits is one double, the same one on every engine
_KEYS = {"BIGINT": "BIGINT", "VARCHAR": "STRING", "BOOLEAN": "BOOLEAN", "DATE": "DATE"}


def is_data_frame(data: object) -> bool:
    """Whether it is Spark's, found out without loading Spark."""
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
) -> Any:
    """A data frame over Parquet files, or of SQL over them as ``data``; with the Spark session at this master.

    Everything else about Spark is set where Spark looks for it (``spark-defaults.conf``).
    """
    with _extras.need("pyspark", extra="spark"):
        from pyspark.sql import SparkSession
    if table is not None or types is not None:
        raise ArgumentError("table= is for DuckDB files, types= for CSV files")
    if not path.exists() or (path.is_file() and path.suffix != ".parquet"):
        raise DataError(f"{path} must be a Parquet file or a folder of them")
    return _read(SparkSession.builder.master(master).appName("bursar"), path.absolute(), view)


@quiet
def _read(builder: Any, path: Path, view: str | None) -> Any:
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("OFF")  # what Spark logs may quote entries
    data = spark.read.parquet(f"file://{path}")
    if view is None:
        return data
    data.createOrReplaceTempView("data")
    return spark.sql(view)


def columns_of(data: Any) -> Mapping[str, str]:
    """The kind of each column of a data frame."""
    fields = [(field.name, field.dataType.simpleString()) for field in data.schema.fields]
    if len({name for name, _ in fields}) < len(fields):
        raise ArgumentError("data: two columns have the same name")
    return {name: "other" if "\0" in name else _kind(kind) for name, kind in fields}


def _kind(spark_type: str) -> str:
    """Of a column, from Spark's name of its type. What another engine would read differently is other."""
    if spark_type in _WHOLE:
        return "whole"
    digits = re.fullmatch(r"decimal\((\d+),-?\d+\)", spark_type)
    if digits:
        return "number" if int(digits[1]) <= _DIGITS else "other"
    return "time" if spark_type == "timestamp_ntz" else _KINDS.get(spark_type, "other")


class Spark:
    """Rows in Spark. Private: it belongs to the data holder's session."""

    def __init__(self, ledger: Ledger, person: str, data: Any, kinds: Mapping[str, str]) -> None:
        self._ledger = ledger
        self._person = person
        self._kinds = dict(kinds)
        self._data = data.toDF(*(f"c{place}" for place in range(len(kinds))))
        self._spark = data.sparkSession
        self._dialect = SparkDialect(kinds)
        self._once = lru_cache(maxsize=16)(lambda asked, _: self._compile(asked))
        self._cells: dict[str, Any] = {}

    @classmethod
    @quiet
    def open(cls, ledger: Ledger, data: Any, *, person: str) -> Self:
        """Attach a data frame to a ledger whose accounts Spark keeps."""
        found = cls(ledger, person, data, columns_of(data))
        found._keeper.clean()
        return found

    @property
    def _keeper(self) -> SparkGenerations:
        keeper = self._ledger.keeper
        if not isinstance(keeper, SparkGenerations):
            raise ArgumentError("the accounts of this ledger are not kept by Spark")
        return keeper

    def check(self, asked: Question) -> None:
        """Refuse what cannot be asked of these columns. Public: names and types of columns only."""
        self._compiled(asked)

    @quiet
    def offer(self, asked: Question) -> None:
        """Say how everybody's contribution and price follow from the rows, for ``admit``."""
        self._ledger.offer(self.prices(asked))

    @quiet
    def admit(self, asked: Question, *, analyst: str, purpose: str | None, reserved: str | None) -> None:
        """Have the ledger choose who takes part in the question that was offered."""
        self._ledger.admit(
            price=asked.price, spare=asked.spare_units, analyst=analyst, purpose=purpose, reserved=reserved
        )

    @quiet
    def sums(self, asked: Question) -> list[int]:
        """The contributions of those admitted, added up, in whole steps; from the files. Private."""
        found = [0] * (asked.groups * asked.coordinates)
        rows = self._spark.sql(self._compiled(asked).sums, admitted=self._keeper.admitted(), **self._cells)
        for cell, *values in rows.collect():
            place = cell * len(values)
            found[place : place + len(values)] = [int(value or 0) for value in values]
        return found

    @quiet
    def charges(self, asked: Question) -> tuple[str, list[Any]]:
        """A query for the desk that gives everybody's price (person, units), and its parameters."""
        path = self._keeper.work(self._keeper.fresh()) / "prices"
        self._keeper.write(self.prices(asked).select("person", "units"), path)
        return f"SELECT person, units FROM read_parquet({text(f'{path}/*.parquet')}, hive_partitioning = false)", []

    def prices(self, asked: Question) -> Any:
        """A data frame of everybody's price and contribution; long contributions are written to files first."""
        plan, keeper = self._compiled(asked), self._keeper
        keeper.finish()
        folder, tables = keeper.work(keeper.fresh()), {"data": self._data}
        if plan.keys:
            folder.mkdir(mode=0o700)
        fill_keys(self._ledger.store.desk.run, plan.keys)
        for table, kind, _ in plan.keys:
            path = folder / f"{table}.parquet"
            self._ledger.store.desk.run(f"COPY {table} TO {text(str(path))}")
            tables[table] = keeper.read(path, f"key {_KEYS[kind]}, place BIGINT").hint("broadcast")
        self._cells = {}
        if plan.cells is None:
            return self._those_with_any(self._spark.sql(plan.charges, **tables))
        cells = self._spark.sql(plan.cells, **tables)
        keeper.write(cells, folder / "cells")
        self._cells = {"cells": keeper.read(folder / "cells", cells.schema)}
        return self._those_with_any(self._spark.sql(plan.charges, **self._cells))

    def _those_with_any(self, charges: Any) -> Any:
        """Behind a column that Spark cannot see through: conditions on units are not written out over all rows."""
        numbered = "SELECT *, monotonically_increasing_id() AS row FROM {charges}"
        return self._spark.sql(f"SELECT * FROM ({numbered}) WHERE units > 0 AND row >= 0", charges=charges)

    def close(self) -> None:
        """Remove what the last question computed on its way; not in a forked process, where it is its parent's."""
        if not self._ledger.store.closed:
            self._keeper.finish()

    def _compiled(self, asked: Question) -> Compiled:
        return self._once(asked, repr(described(asked)))  # to Python 1 and True are the same

    def _compile(self, asked: Question) -> Compiled:
        return compiled(asked, self._person, self._ledger.person_kind, self._kinds, self._dialect)
