"""What differs between the SQL of two engines. Questions compile to the same statements but for what is in here.

Nothing that anybody else wrote gets into the SQL: columns are quoted for DuckDB and numbered for Spark, literals are
parameters for DuckDB and spelled out by type for Spark, texts as hexadecimal bytes.
"""

from collections.abc import Iterable, Mapping
from datetime import date, datetime
from types import MappingProxyType
from typing import Any, Protocol

__all__ = ["Dialect", "DuckDBDialect", "SparkDialect", "double"]


def double(value: float) -> str:
    """A number as SQL, to the last bit."""
    return f"CAST('{float(value)!r}' AS DOUBLE)"


class Dialect(Protocol):
    """How an engine spells things. Contributions are whole numbers in doubles, below 2^53 wherever they are rounded."""

    types: Mapping[str, str]
    """The type of each kind of column."""

    def table(self, name: str) -> str:
        """A table of ours."""

    def column(self, name: str) -> str:
        """A column of the data, of the alias d."""

    def person(self, column: str, kind: str) -> str:
        """Whose row it is, as BIGINT or VARCHAR; NULL for nobody."""

    def letters(self, text: str) -> str:
        """A text that is the same as another one only letter by letter."""

    def literal(self, value: Any, parameters: list[Any]) -> str:
        """A literal; what SQL does not hold itself is added to the parameters."""

    def present(self, number: str) -> str:
        """Whether there is a number that is not NaN."""

    def rounded(self, value: str) -> str:
        """The nearest whole number, halves away from zero, of something below 2^50."""

    def truncated(self, value: str) -> str:
        """Rounded towards zero, of something up to 2^50."""

    def quotient(self, whole: str, by: int) -> str:
        """Whole part of the quotient of a whole number that is not negative."""

    def without(self, column: str) -> str:
        """All columns but one."""

    def positive(self, column: str) -> str:
        """Leaves out rows of which nothing is left."""

    def total(self, whole: str) -> str:
        """The exact sum of whole numbers of up to 2^50, over any number of people."""


class DuckDBDialect:
    """DuckDB."""

    types: Mapping[str, str] = MappingProxyType(
        {
            "whole": "BIGINT",
            "number": "DOUBLE",
            "text": "VARCHAR",
            "bool": "BOOLEAN",
            "date": "DATE",
            "time": "TIMESTAMP",
        }
    )

    def table(self, name: str) -> str:
        """Under its name."""
        return name

    def column(self, name: str) -> str:
        """In double quotes, which are doubled inside."""
        return 'd."' + name.replace('"', '""') + '"'

    def person(self, column: str, kind: str) -> str:
        """As the ledger has it."""
        found = f"CAST({self.column(column)} AS {kind})"
        return self.letters(found) if kind == "VARCHAR" else found

    def letters(self, text: str) -> str:
        """A column of a DuckDB file, or of a view, may have a collation, which takes several spellings for one."""
        return f'({text} COLLATE "binary")'

    def literal(self, value: Any, parameters: list[Any]) -> str:
        """A parameter."""
        parameters.append(value)
        return "?"

    def present(self, number: str) -> str:
        """NULL is neither NaN nor not."""
        return f"NOT isnan({number})"

    def rounded(self, value: str) -> str:
        """Halves are rounded away from zero."""
        return f"round({value})"

    def truncated(self, value: str) -> str:
        """Towards zero."""
        return f"trunc({value})"

    def quotient(self, whole: str, by: int) -> str:
        """Whole division."""
        return f"{whole} // {by:d}"

    def without(self, column: str) -> str:
        """All columns but one."""
        return f"* EXCLUDE ({column})"

    def positive(self, column: str) -> str:
        """A condition."""
        return f" WHERE {column} > 0"

    def total(self, whole: str) -> str:
        """In 128 bits."""
        return f"sum(CAST({whole} AS BIGINT))"


class SparkDialect:
    """Spark SQL over a table whose columns were numbered: their names are in no SQL, and may differ by case alone."""

    types: Mapping[str, str] = MappingProxyType(
        {**DuckDBDialect.types, "text": "STRING", "time": "TIMESTAMP_NTZ"},
    )

    def __init__(self, columns: Iterable[str]) -> None:
        self._places = {name: place for place, name in enumerate(columns)}

    def table(self, name: str) -> str:
        """A place for a table that is given to ``spark.sql`` with the statement."""
        return f"{{{name}}}"

    def column(self, name: str) -> str:
        """By its number."""
        return f"d.c{self._places[name]:d}"

    def person(self, column: str, kind: str) -> str:
        """Bytes that are no text name nobody: accounts are read by programs that take texts only."""
        if kind == "BIGINT":
            return f"CAST({self.column(column)} AS BIGINT)"
        return f"try_validate_utf8(CAST({self.column(column)} AS STRING))"

    def letters(self, text: str) -> str:
        """Columns with a collation are refused."""
        return text

    def literal(self, value: Any, parameters: list[Any]) -> str:
        """Spelled out; there is nothing in it to be escaped."""
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
        raise TypeError(f"no literal: {type(value).__name__}")

    def present(self, number: str) -> str:
        """To Spark, NULL is not NaN."""
        return f"({number} IS NOT NULL AND NOT isnan({number}))"

    def rounded(self, value: str) -> str:
        """Spark's round goes through decimals; the whole part and what is left of it are exact."""
        whole = f"CAST({value} AS BIGINT)"
        return f"(CAST({whole} AS DOUBLE) + CASE WHEN abs({value} - {whole}) >= 0.5D THEN sign({value}) ELSE 0D END)"

    def truncated(self, value: str) -> str:
        """Casts to whole numbers cut off."""
        return f"CAST(CAST({value} AS BIGINT) AS DOUBLE)"

    def quotient(self, whole: str, by: int) -> str:
        """Whole division."""
        return f"{whole} div {by:d}"

    def without(self, column: str) -> str:
        """All columns but one."""
        return f"* EXCEPT ({column})"

    def positive(self, column: str) -> str:
        """Left to the engine: Spark would write the condition out in terms of the rows, at great length."""
        return ""

    def total(self, whole: str) -> str:
        """In decimals of 26 digits: enough for ten billion people."""
        return f"sum(CAST({whole} AS DECIMAL(16, 0)))"
