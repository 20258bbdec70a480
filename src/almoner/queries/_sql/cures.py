"""Lines that a refusal tells the data holder to write, so that a column can be used. None of them loses an entry."""

import re
from typing import Literal, Self

from almoner._workspace import quoted

__all__ = ["Unusable", "as_dates", "cure_of", "recast", "shown_type"]

_CASTS = {
    **dict.fromkeys(("TIMESTAMP WITH TIME ZONE", "TIMESTAMPTZ_NS"), "{0} AT TIME ZONE 'UTC'"),
    "BLOB": "hex({0})",
    **dict.fromkeys(("STRUCT", "LIST", "ARRAY", "MAP", "UNION"), "CAST(to_json({0}) AS VARCHAR)"),
}
_ZONES = dict.fromkeys(("TIMESTAMP WITH TIME ZONE", "TIMESTAMPTZ_NS"), ", or another zone")
# NaN is nobody's name, 0 and -0 are one; times do not depend on a setting
_PEOPLE = {
    **dict.fromkeys(("FLOAT", "DOUBLE"), "CAST(nullif({0} + 0, 'nan') AS VARCHAR)"),
    **dict.fromkeys(("TIMESTAMP WITH TIME ZONE", "TIMESTAMPTZ_NS"), "CAST({0} AT TIME ZONE 'UTC' AS VARCHAR)"),
}


class Unusable(str):
    """The kind of a column that questions cannot use: the name of its type; with the line to write, of a plugin."""

    cure: str

    @classmethod
    def made(cls, sql_type: str, cure: str) -> Self:
        """The kind of a type, and the line that makes such a column usable."""
        made = cls(sql_type)
        made.cure = cure
        return made


def shown_type(sql_type: str) -> str:
    """The name of a type, without what it is made of: the values of an ENUM are entries of the data."""
    if sql_type.endswith("]"):
        return "LIST" if sql_type.endswith("[]") else "ARRAY"
    if re.fullmatch(r"(?i)decimal\(\d+,-?\d+\)", sql_type):
        return sql_type
    return re.split("[(<]", sql_type)[0].strip('" ')


def cure_of(column: str, sql_type: str, wanted: Literal["question", "person", "text"]) -> str:
    """Line to write so that a column of DuckDB can be used.

    Args:
        column: its name.
        sql_type: its type.
        wanted: in questions; or as a name of people, a text or a whole number for each entry that is there; or as a
            text.
    """
    known = {"question": _CASTS, "person": _CASTS | _PEOPLE, "text": {}}[wanted]
    expression = known.get(shown_type(sql_type).partition("(")[0], "CAST({0} AS VARCHAR)")
    return recast(column, expression) + (_ZONES.get(sql_type, "") if wanted == "question" else "")


def as_dates(column: str, sql_type: str) -> str:
    """Line to write so that a column of DuckDB holds dates or times."""
    if sql_type in _ZONES:
        return cure_of(column, sql_type, "question")
    if sql_type == "VARCHAR":
        return recast(column, "CAST({0} AS DATE)") + ", if it is spelled like 2011-12-09"
    return recast(column, "make_timestamp(CAST({0} * 1000000 AS BIGINT))") + ", if it holds seconds since 1970"


def recast(column: str, expression: str) -> str:
    """A line that puts an expression of DuckDB, with {0} for the column, in the column's place."""
    name = quoted(column)
    return f"view={f'SELECT * REPLACE ({expression.format(name)} AS {name}) FROM data'!r}"
