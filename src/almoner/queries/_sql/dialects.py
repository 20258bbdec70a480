"""Differences between the SQL of engines. Questions compile to the same statements but for what is in here.

No text of another author gets into the SQL: columns are quoted or numbered, literals are parameters, or spelled out by
type, texts as hexadecimal bytes.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import date, datetime

from almoner._workspace import quoted
from almoner.queries._sql.functions import duckdb_functions

__all__ = ["Dialect", "Literal", "double", "duckdb_dialect", "like_regex"]

Literal = bool | int | float | str | date | datetime
"""A value that a column is compared with."""


@dataclass(frozen=True, slots=True)
class Dialect:
    """Spellings of an engine: templates, in which {0} is an expression.

    Contributions are whole numbers in doubles, below 2^53 wherever they are rounded.

    Fields:
        types: the type of each kind of column.
        columns: each column of the data, of the alias d, by its name.
        table: a table of ours, by its name.
        person: whose row it is, by how people are named (BIGINT or VARCHAR); NULL for nobody.
        letters: a text that equals another one only letter by letter.
        present: whether there is a number that is not NaN.
        rounded: the nearest whole number, halves away from zero, of something below 2^50.
        truncated: rounded towards zero, of something up to 2^50.
        quotient: whole part of the quotient of a whole number that is not negative by {1}.
        without: all columns but {0}.
        positive: leaves out rows of which nothing is left.
        total: the exact sum of whole numbers of up to 2^50, over any number of people.
        literal: spells a literal; what SQL does not hold itself is added to the parameters.
        functions: templates of the functions of expressions.
        bound: computes {0} once, under the name {1}, for {2}.
        regex: the regular expression of a ``like`` pattern.
        case_tables: letters and what lower or upper makes of them, for an engine with rules of its own; else None.
    """

    types: Mapping[str, str]
    columns: Mapping[str, str]
    table: str
    person: Mapping[str, str]
    letters: str
    present: str
    rounded: str
    truncated: str
    quotient: str
    without: str
    positive: str
    total: str
    literal: Callable[[Literal, list[object]], str]
    functions: Mapping[str, str]
    bound: str
    regex: Callable[[str], str]
    case_tables: Callable[[str], tuple[str, str]] | None = None


def double(value: float) -> str:
    """A number as SQL, to the last bit."""
    return f"CAST('{float(value)!r}' AS DOUBLE)"


_TYPES = {
    "whole": "BIGINT",
    "number": "DOUBLE",
    "text": "VARCHAR",
    "bool": "BOOLEAN",
    "date": "DATE",
    "time": "TIMESTAMP",
}
_LETTERS = '({0} COLLATE "binary")'  # a column of a DuckDB file or a view may have a collation, which unites spellings


def duckdb_dialect(columns: Iterable[str]) -> Dialect:
    """DuckDB's, over columns of these names."""
    return Dialect(
        types=_TYPES,
        columns={name: f"d.{quoted(name)}" for name in columns},
        table="{0}",
        person={"BIGINT": "CAST({0} AS BIGINT)", "VARCHAR": _LETTERS.format("CAST({0} AS VARCHAR)")},
        letters=_LETTERS,
        present="NOT isnan({0})",  # NULL is neither NaN nor not
        rounded="round({0})",
        truncated="trunc({0})",
        quotient="{0} // {1:d}",
        without="* EXCLUDE ({0})",
        positive=" WHERE {0} > 0",
        total="sum(CAST({0} AS BIGINT))",  # in 128 bits
        literal=_parameter,
        functions=duckdb_functions(),
        bound="list_transform([{0}], lambda {1}: {2})[1]",
        regex=lambda pattern: like_regex(pattern, r"[\s\S]*{}"),  # matched in linear time
    )


def like_regex(pattern: str, middle: str) -> str:
    """A ``like`` pattern as a regular expression without a letter of its author's: each part at its first place.

    Args:
        pattern: with % and _.
        middle: template of a regular expression that skips to the first place of {}, in time linear in a text's length.
    """
    first, *others = ["".join(map(_letter, part)) for part in pattern.split("%")]
    if not others:
        return rf"\A{first}\z"
    listed = "".join(middle.format(part) for part in others[:-1] if part)
    return rf"\A{first}{listed}[\s\S]*{others[-1]}\z"


def _letter(letter: str) -> str:
    return r"[\s\S]" if letter == "_" else rf"\x{{{ord(letter):x}}}"


def _parameter(value: Literal, parameters: list[object]) -> str:
    parameters.append(value)
    return "?"
