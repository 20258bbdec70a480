"""The rows that a question is about: the data, with a column for each expression that the question names.

Wherever a question names a column, an expression may stand. A name that is a column of the data is that column; a name
with a dot may be a column of another table.
"""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from itertools import pairwise
from typing import Any, NamedTuple

from almoner.errors import ArgumentError
from almoner.queries._language.expressions import Column
from almoner.queries._language.ranges import End, Range
from almoner.queries._language.where import parse, parse_value
from almoner.queries._sql.columns import FilterCompiler, cast, kind_of, literal
from almoner.queries._sql.dialects import Dialect
from almoner.queries._sql.functions import Sql
from almoner.queries._sql.joins import Joined
from almoner.queries._sql.tables import People

__all__ = ["Relation"]


class _Ends(NamedTuple):
    """A range of values as the dialect spells them, and its place among the keys."""

    low: Any
    high: Any
    place: int


_RANGED = ("whole", "number", "date", "time")


class Relation(Mapping[str, str]):
    """The kinds of columns and expressions over one source of rows, by what names them.

    An expression becomes a column of its own when it is first looked up; ``source`` gives the rows with all of them.
    """

    def __init__(self, people: People | Joined, dialect: Dialect) -> None:
        """Start from rows of people."""
        self._kinds, self._people = dict(people.kinds), people
        self._taken = {name.casefold() for name in self._kinds}
        self._columns = dict(people.columns)
        self._base = FilterCompiler(people.kinds, replace(dialect, columns=people.columns), "column")
        self._values: dict[str, Sql] = {}
        self._places: dict[str, Sql] = {}
        self.dialect = replace(dialect, columns=self._columns)

    def __getitem__(self, name: str) -> str:
        if name not in self._kinds:
            named = Column(name) if name in self._base.kinds else parse_value(name, name="column")
            kind, value = self._base.value(named)
            self._kinds[name], self._columns[name] = kind, self._added(self._values, value)
        return self._kinds[name]

    def __contains__(self, name: object) -> bool:
        """True if it names a column or an expression; raises ArgumentError where an expression is wrong."""
        return isinstance(name, str) and bool(self[name])

    def __iter__(self) -> Iterator[str]:
        return iter(self._kinds)

    def __len__(self) -> int:
        return len(self._kinds)

    def place(self, column: str, ranges: tuple[Range, ...]) -> str:
        """SQL for the place of the range that an entry is in; NULL where it is in none."""
        kind = kind_of(column, self)
        if kind not in _RANGED:
            raise ArgumentError(f"by: column {column!r} is of kind {kind}; ranges are of numbers, dates or times")
        if kind == "whole" and any(isinstance(end, float) for each in ranges for end in each):
            kind = "number"
        ends = [_Ends(_spelled(low, kind), _spelled(high, kind), place) for place, (low, high) in enumerate(ranges)]
        ends.sort(key=lambda each: (each.low is not None, each.low))
        for one in ends:
            if one.low is not None and one.high is not None and not one.low < one.high:
                raise ArgumentError(f"by: ranges of column {column!r} must have a low end below their high end")
        for one, other in pairwise(ends):
            if one.high is None or other.low is None or one.high > other.low:
                raise ArgumentError(f"by: two ranges of column {column!r} overlap")
        return self._added(self._places, self._halved(cast(column, kind, self.dialect), ends))

    def _halved(self, value: str, ends: list[_Ends]) -> Sql:
        """By halving, so that thousands of ranges are no trouble."""
        if len(ends) == 1:
            low, high, place = ends[0]
            tests = [] if low is None else [self._beside(f"{value} >= ", low)]
            tests += [] if high is None else [self._beside(f"{value} < ", high)]
            parameters = tuple(each for test in tests for each in test.parameters)
            return Sql(f"CASE WHEN {' AND '.join(test.text for test in tests)} THEN {place:d} END", parameters)
        half = len(ends) // 2
        test = self._beside(f"{value} < ", ends[half].low)
        below, above = self._halved(value, ends[:half]), self._halved(value, ends[half:])
        return Sql(
            f"CASE WHEN {test.text} THEN {below.text} ELSE {above.text} END",
            (*test.parameters, *below.parameters, *above.parameters),
        )

    def _beside(self, test: str, end: Any) -> Sql:
        parameters: list[object] = []
        spelled = self.dialect.literal(end, parameters)
        return Sql(f"{test}{spelled}", tuple(parameters))

    def _added(self, listed: dict[str, Sql], value: Sql) -> str:
        """A column of its own for a value."""
        name = f"value{len(self._taken)}"
        while name in self._taken:
            name += "_"
        self._taken.add(name)
        listed[name] = value
        return f"d.{name}"

    def condition(self, where: str) -> Sql:
        """A filter over the columns."""
        compiler = FilterCompiler(self._base.kinds, self._base.dialect)
        return Sql(compiler.sql(parse(where)), tuple(compiler.parameters))

    @property
    def source(self) -> Sql:
        """The rows with a column for each expression looked up so far; a table or a query, without an alias."""
        rows = self._people.rows  # with what was joined to them
        for columns in (self._values, self._places):
            if columns:
                listed = ", ".join(f"{value.text} AS {name}" for name, value in columns.items())
                parameters = tuple(each for value in columns.values() for each in value.parameters)
                rows = Sql(f"(SELECT d.*, {listed} FROM {rows.text} d)", parameters + rows.parameters)
        return rows


def _spelled(end: End, kind: str) -> object:
    return None if end is None else literal(end, kind)
