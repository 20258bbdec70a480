"""Columns, literals and filters as SQL; what names and literals look like is the dialect's. No entry can fail a type.

Every column is of one kind: whole, number, text, bool, date, time, or other, which questions cannot use.
"""

import re
from collections.abc import Mapping
from datetime import date, datetime
from math import nan

from bursar.errors import ArgumentError
from bursar.queries._engines.dialects import Dialect, double
from bursar.queries._engines.dialects import Literal as Value
from bursar.queries._where import And, Column, Compare, Filter, In, IsNull, IsTrue, Literal, Not, Or

__all__ = ["FilterCompiler", "cast", "kind_of", "kind_of_type", "literal"]


_NAN = double(nan)


def kind_of_type(sql_type: str) -> str:
    """The kind of a column from DuckDB's name of its type."""
    if sql_type in ("TINYINT", "SMALLINT", "INTEGER", "BIGINT", "UTINYINT", "USMALLINT", "UINTEGER"):
        return "whole"
    if sql_type in ("UBIGINT", "HUGEINT", "UHUGEINT", "FLOAT", "DOUBLE") or re.fullmatch(
        r"DECIMAL\(\d+,\d+\)", sql_type
    ):
        return "number"
    if sql_type in ("VARCHAR", "UUID") or (sql_type.startswith("ENUM(") and sql_type.endswith(")")):
        return "text"
    if sql_type in ("TIMESTAMP", "TIMESTAMP_S", "TIMESTAMP_MS", "TIMESTAMP_NS"):
        return "time"
    return {"BOOLEAN": "bool", "DATE": "date"}.get(sql_type, "other")


class FilterCompiler:
    """Filters as SQL over the alias ``d``, given the kinds of the columns (whole, number, text, bool, date, time)."""

    def __init__(self, kinds: Mapping[str, str], dialect: Dialect) -> None:
        self._kinds = kinds
        self._dialect = dialect
        self.parameters: list[object] = []

    def sql(self, filter_: Filter) -> str:
        """A condition; the literals that the dialect does not write down are appended to ``parameters`` in order."""
        match filter_:
            case And():
                return "(" + " AND ".join(map(self.sql, filter_.parts)) + ")"
            case Or():
                return "(" + " OR ".join(map(self.sql, filter_.parts)) + ")"
            case Not():
                return f"(NOT {self.sql(filter_.of)})"
            case IsNull():
                return f"({self._side(filter_.column, self.kind(filter_.column))} IS NULL)"
            case IsTrue():
                if self.kind(filter_.column) != "bool":
                    raise ArgumentError(f"where: column {filter_.column.name!r} holds no truth values; compare it")
                return self._side(filter_.column, "bool")
            case In():
                kind = _wider(self.kind(filter_.column), filter_.values)
                sides = ", ".join(self._side(value, kind) for value in filter_.values)
                return f"({self._side(filter_.column, kind)} IN ({sides}))"
        return self._compare(filter_)

    def _compare(self, test: Compare) -> str:
        sides = (test.left, test.right)
        kinds = {self.kind(side) for side in sides if isinstance(side, Column)}
        if len(kinds) > 1 and kinds != {"whole", "number"}:
            raise ArgumentError(f"where: columns of kinds {' and '.join(sorted(kinds))} cannot be compared")
        kind = _wider(min(kinds), sides)  # "number" comes before "whole"
        return f"({self._side(test.left, kind)} {test.sign} {self._side(test.right, kind)})"

    def kind(self, column: Column) -> str:
        """The kind of a column; refuses those that are not there."""
        return kind_of(column.name, self._kinds)

    def _side(self, side: Column | Literal, kind: str) -> str:
        if isinstance(side, Column):
            return cast(side.name, kind, self._dialect)
        return self._dialect.literal(literal(side.value, kind), self.parameters)


def _wider(kind: str, sides: tuple[Column | Literal, ...]) -> str:
    """Whole numbers are compared as whole numbers, unless there is a literal that is none."""
    broken = any(isinstance(side, Literal) and isinstance(side.value, float) for side in sides)
    return "number" if kind == "whole" and broken else kind


def kind_of(name: str, kinds: Mapping[str, str]) -> str:
    """The kind of a column; refuses those that are not there, or of a type that questions cannot use."""
    if name not in kinds:
        raise ArgumentError(f"column {name!r} is not in the data")
    if kinds[name] == "other":
        raise ArgumentError(f"column {name!r} is of a type that questions cannot use")
    return kinds[name]


def cast(name: str, kind: str, dialect: Dialect) -> str:
    """A column as SQL of one type for each kind; entries that do not fit, and NaN, are missing."""
    entry = f"TRY_CAST({dialect.columns[name]} AS {dialect.types[kind]})"
    if kind == "text":
        return dialect.letters.format(entry)
    return f"nullif({entry}, {_NAN})" if kind == "number" else entry


def literal(value: object, kind: str) -> Value:
    """A literal as a parameter for a column of this kind."""
    try:
        match kind:
            case "number" if isinstance(value, int | float) and not isinstance(value, bool) and value == value:
                return float(value)
            case "whole" if isinstance(value, int) and not isinstance(value, bool) and -(2**63) <= value < 2**63:
                return int(value)
            case "text" if isinstance(value, str):
                value.encode()  # refuses halves of characters
                return value
            case "bool" if isinstance(value, bool):
                return value
            case "date" if isinstance(value, date) and not isinstance(value, datetime):
                return value
            case "date" if isinstance(value, str):
                return date.fromisoformat(value)
            case "time" if isinstance(value, str):
                value = datetime.fromisoformat(value)
        if kind == "time" and isinstance(value, datetime) and value.tzinfo is None:
            return value
    except (ValueError, OverflowError):
        pass
    raise ArgumentError(f"{value!r} cannot be compared with a column of kind {kind}")
