"""Lines that a refusal tells the data holder to write, so that a column can be used. None of them loses an entry.

Spark's names of types are in small letters, DuckDB's in capitals: the name of a type says whose it is.
"""

import re

from almoner._workspace import quoted

__all__ = ["as_dates", "as_person", "as_text", "as_usable", "recast", "shown_type"]

_DUCKDB = {
    **dict.fromkeys(("TIMESTAMP WITH TIME ZONE", "TIMESTAMPTZ_NS"), "{0} AT TIME ZONE 'UTC'"),
    "BLOB": "hex({0})",
    **dict.fromkeys(("STRUCT", "LIST", "ARRAY", "MAP", "UNION"), "CAST(to_json({0}) AS VARCHAR)"),
}
_SPARK = {
    "timestamp": "CAST({0} AS TIMESTAMP_NTZ)",
    "decimal": "CAST({0} AS DOUBLE)",
    "binary": "hex({0})",
    **dict.fromkeys(("struct", "array", "map"), "to_json({0})"),
}
_ZONES = {
    **dict.fromkeys(("TIMESTAMP WITH TIME ZONE", "TIMESTAMPTZ_NS"), ", or another zone"),
    "timestamp": ", which is in the zone of spark.sql.session.timeZone",
}
# NaN is nobody's name, 0 and -0 are one; times do not depend on a setting; numbers keep all their digits
_PEOPLE = {
    **dict.fromkeys(("FLOAT", "DOUBLE"), "CAST(nullif({0} + 0, 'nan') AS VARCHAR)"),
    **dict.fromkeys(("TIMESTAMP WITH TIME ZONE", "TIMESTAMPTZ_NS"), "CAST({0} AT TIME ZONE 'UTC' AS VARCHAR)"),
    **dict.fromkeys(("float", "double"), "CAST(nanvl({0} + 0, NULL) AS STRING)"),
    "timestamp": "unix_micros({0})",
    "decimal": "CAST({0} AS STRING)",
}


def shown_type(sql_type: str) -> str:
    """The name of a type, without what it is made of: the values of an ENUM are entries of the data."""
    if sql_type.endswith("]"):
        return "LIST" if sql_type.endswith("[]") else "ARRAY"
    if re.fullmatch(r"(?i)decimal\(\d+,-?\d+\)", sql_type):
        return sql_type
    return re.split("[(<]", sql_type)[0].strip('" ')


def as_usable(column: str, sql_type: str) -> str:
    """Line to write so that a column, of a type that questions cannot use, holds texts, numbers or times."""
    told = recast(column, sql_type, _expression(sql_type, _SPARK if _is_sparks(sql_type) else _DUCKDB))
    return told + _ZONES.get(sql_type, "")


def as_person(column: str, sql_type: str) -> str:
    """Line to write so that a column names people: a text, or a whole number, for each entry that is there."""
    return recast(column, sql_type, _expression(sql_type, (_SPARK if _is_sparks(sql_type) else _DUCKDB) | _PEOPLE))


def as_text(column: str, sql_type: str) -> str:
    """Line to write so that whole numbers are texts."""
    return recast(column, sql_type, _expression(sql_type, {}))


def as_dates(column: str, sql_type: str) -> str:
    """Line to write so that a column of DuckDB holds dates or times."""
    if sql_type in _ZONES:
        return as_usable(column, sql_type)
    if sql_type == "VARCHAR":
        return recast(column, sql_type, "CAST({0} AS DATE)") + ", if it is spelled like 2011-12-09"
    seconds = "make_timestamp(CAST({0} * 1000000 AS BIGINT))"
    return recast(column, sql_type, seconds) + ", if it holds seconds since 1970"


def recast(column: str, sql_type: str, expression: str) -> str:
    """A line that puts an expression, with {0} for the column, in the column's place.

    Args:
        column: its name.
        sql_type: its type, by the engine that has it.
        expression: in the engine's SQL.
    """
    if not _is_sparks(sql_type):
        name = quoted(column)
        return f"view={f'SELECT * REPLACE ({expression.format(name)} AS {name}) FROM data'!r}"
    name = column if re.fullmatch("[A-Za-z_][A-Za-z0-9_]*", column) else f"`{column.replace('`', '``')}`"
    return f"data.selectExpr({f'* EXCEPT ({name})'!r}, {f'{expression.format(name)} AS {name}'!r})"


def _is_sparks(sql_type: str) -> bool:
    return sql_type[:1].islower()


def _expression(sql_type: str, expressions: dict[str, str]) -> str:
    """The expression for a type; others are spelled out."""
    spelled = f"CAST({{0}} AS {'STRING' if _is_sparks(sql_type) else 'VARCHAR'})"
    return expressions.get(shown_type(sql_type).partition("(")[0], spelled)
