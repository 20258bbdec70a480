"""Spark's SQL, its types, and the lines that make columns of other types usable.

No text of another author gets into the SQL: columns are numbered, literals spelled out by type, texts as bytes.
"""

import re
from collections.abc import Sequence
from datetime import date, datetime

from almoner.queries.engines import Dialect, case_tables, double, functions, like_regex

__all__ = ["cure_of", "kind_of", "spark_dialect"]

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
_FUNCTIONS = functions(
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
        types={
            "whole": "BIGINT",
            "number": "DOUBLE",
            "text": "STRING",
            "bool": "BOOLEAN",
            "date": "DATE",
            "time": "TIMESTAMP_NTZ",
        },
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
        regex=lambda pattern: like_regex(pattern, r"(?>[\s\S]*?{})"),  # the first place is the best: no other is tried
        case_tables=case_tables,
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


def kind_of(spark_type: str) -> str | None:
    """The kind of a column; None where questions cannot use it, or DuckDB would read it differently."""
    digits = re.fullmatch(r"decimal\((\d+),-?\d+\)", spark_type)
    if digits:
        return "number" if int(digits[1]) <= _DIGITS else None
    return _KINDS.get(spark_type)


def cure_of(column: str, spark_type: str, wanted: str) -> str:
    """Line to write so that a column can be used in questions, as a name of people, or as a text."""
    known = {"question": _CASTS, "person": _CASTS | _PEOPLE, "text": {}}[wanted]
    name = column if re.fullmatch("[A-Za-z_][A-Za-z0-9_]*", column) else f"`{column.replace('`', '``')}`"
    expression = known.get(re.split("[(<]", spark_type)[0], "CAST({0} AS STRING)").format(name)
    zone = ", which is in the zone of spark.sql.session.timeZone"
    line = f"data.selectExpr({f'* EXCEPT ({name})'!r}, {f'{expression} AS {name}'!r})"
    return line + zone if (wanted, spark_type) == ("question", "timestamp") else line
