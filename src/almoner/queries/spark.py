"""Spark as an engine: a plugin that uses public names of this package alone. Session.open takes data frames by it.

A data frame's columns are numbered before any SQL sees them; tables are handed over with each statement, so nothing is
left in the user's catalogue. No text of another author gets into the SQL: literals are spelled out by type, texts as
bytes.

Spark adds up each person's rows, once for each question, and hands the sums over; everything that is charged, added up
or revealed is computed from them. So a part of a job that Spark runs again, even on rows that come out differently,
changes nothing any more.
"""

import re
from collections.abc import Mapping, Sequence
from datetime import date, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from almoner.errors import DataError, MissingExtra
from almoner.queries import engines
from almoner.queries.engines import Dialect, Plugin, double

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

__all__ = ["plugin"]

_KINDS = {
    **dict.fromkeys(("tinyint", "smallint", "int", "bigint"), "whole"),
    **dict.fromkeys(("float", "double", "decimal"), "number"),
    "string": "text",
    "boolean": "bool",
    "date": "date",
    **dict.fromkeys(("timestamp", "timestamp_ntz"), "time"),
}
_CASTS = {"binary": "hex({0})", **dict.fromkeys(("struct", "array", "map"), "to_json({0})")}
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
_BLANKS = " \u00a0\u1680\u2000\u2001\u2002\u2003\u2004\u2005\u2006\u2007\u2008\u2009\u200a\u202f\u205f\u3000"
_FUNCTIONS = engines.functions(
    string="STRING",
    trim=f"trim(BOTH CAST(X'{_BLANKS.encode().hex()}' AS STRING) FROM {{0}})",
    floor="CAST(floor({0}) AS DOUBLE)",
    rounded=_ROUNDED,
    regex="r'{}'",
    total="aggregate(array_sort(collect_list({0})), CAST(NULL AS DOUBLE), "
    "(a, b) -> coalesce(a, CAST(0 AS DOUBLE)) + b)",
    pair="named_struct('o', {1}, 'x', {0})",
    **dict.fromkeys(("lower", "upper"), "translate({0}, {1}, {2})"),
    weekday="CAST(weekday({0}) + 1 AS BIGINT)",
    **{period: f"trunc({{0}}, '{period}')" for period in ("week", "month", "quarter")},
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


def _numbered(data: "DataFrame") -> "DataFrame":
    """With columns that are called by their places; times are those of the session's zone, as Spark shows them."""
    local = {"timestamp": "CAST({0} AS TIMESTAMP_NTZ) AS {0}"}
    rows = data.toDF(*(f"c{place}" for place in range(len(data.columns))))
    return rows.selectExpr(*(local.get(kind, "{0}").format(name) for name, kind in rows.dtypes))


class _SparkPlugin:
    """Data frames of Spark; see ``almoner.queries.Plugin``."""

    name, data = "Spark", "data frames of Spark"

    def takes(self, data: object) -> bool:
        return any(of.__module__.startswith("pyspark.sql.") and of.__name__ == "DataFrame" for of in type(data).__mro__)

    def types(self, data: "DataFrame") -> Sequence[tuple[str, str]]:
        return [(field.name, field.dataType.simpleString()) for field in data.schema.fields]

    def kind(self, sql_type: str) -> str | None:
        return _KINDS.get(sql_type.partition("(")[0])

    def cure(self, column: str, sql_type: str, wanted: str) -> str:
        known = {"question": _CASTS, "person": _CASTS | _PEOPLE, "text": {}}[wanted]
        name = column if re.fullmatch("[A-Za-z_][A-Za-z0-9_]*", column) else f"`{column.replace('`', '``')}`"
        expression = known.get(re.split("[(<]", sql_type)[0], "CAST({0} AS STRING)").format(name)
        return f"data.selectExpr({f'* EXCEPT ({name})'!r}, {f'{expression} AS {name}'!r})"

    def dialect(self, columns: Sequence[str]) -> Dialect:
        return spark_dialect(columns)

    def run(self, sql: str, parameters: Sequence[object], tables: Mapping[str, Any]) -> pa.Table:  # noqa: ARG002
        """Arrow batches come from Spark's workers as they finish, over its own connection: no files are shared."""
        spark = next(each for each in tables.values() if not isinstance(each, pa.Table)).sparkSession
        frames: dict[str, Any] = {
            name: spark.createDataFrame(each).hint("broadcast") if isinstance(each, pa.Table) else _numbered(each)
            for name, each in tables.items()
        }
        rows: pa.Table = spark.sql(sql, **frames).toArrow()
        return rows

    def read(self, place: str, path: Path | str, view: str | None) -> "DataFrame":
        """Read Parquet files with the Spark session at a master, or a Connect server (sc://host).

        Everything else about Spark is set where Spark looks for it (``spark-defaults.conf``).
        """
        try:
            from pyspark.sql import SparkSession
        except ImportError:
            cure = "`pip install '.[spark]'` in your checkout of Almoner"
            raise MissingExtra(f"pyspark is not installed: {cure}") from None
        if isinstance(path, Path) and (not path.exists() or (path.is_file() and path.suffix != ".parquet")):
            raise DataError(f"{path} must be a Parquet file or a folder of them")

        if place.startswith("sc://"):
            spark = SparkSession.builder.remote(place).getOrCreate()
        else:
            spark = SparkSession.builder.master(place).appName("almoner").getOrCreate()
            spark.sparkContext.setLogLevel("OFF")  # what Spark logs may quote entries
        data = spark.read.parquet(f"file://{path.absolute()}" if isinstance(path, Path) else path)
        if view is None:
            return data
        data.createOrReplaceTempView("data")
        return spark.sql(view)


plugin: Plugin = _SparkPlugin()
