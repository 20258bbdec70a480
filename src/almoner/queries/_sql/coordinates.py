"""SQL of the term that a row adds to each coordinate, in whole steps. Nothing here can fail on an entry of the data."""

from collections.abc import Mapping
from typing import NamedTuple

from almoner.errors import ArgumentError
from almoner.queries._language.where import parse
from almoner.queries._questions.question import Question
from almoner.queries._questions.row_contributions import AnyRow, Bins, Coordinate, CountRows, Entry, Matching, Product
from almoner.queries._sql.columns import FilterCompiler, kind_of
from almoner.queries._sql.contributions import away, person_total, row_units, share_of_rows
from almoner.queries._sql.dialects import Dialect, double

__all__ = ["Coordinates", "coordinates_of", "number_of"]

_HIGHEST = double(2.0**50)


class Coordinates(NamedTuple):
    """The coordinates of a question, as SQL.

    Fields:
        units: whole steps in a row.
        totals: aggregates of a person's rows in a group, with a place for {only}.
        tests: conditions on rows.
        parameters: of the units, in their order.
    """

    units: list[str]
    totals: list[str]
    tests: list[str]
    parameters: list[object]


def coordinates_of(question: Question, kinds: Mapping[str, str], sql: Dialect) -> Coordinates:
    """The coordinates of a question; refuses columns that do not hold numbers."""
    units: list[str] = []
    totals, parameters = [], list[object]()
    for coordinate in question.row():
        match coordinate:
            case CountRows():
                totals.append(f"least(CAST(count(*){{only}} AS DOUBLE) * {question.steps:d}, {_HIGHEST})")
            case AnyRow():
                totals.append(f"least(CAST(count(*){{only}} AS DOUBLE), 1) * {question.steps:d}")
            case _:
                totals.append(person_total(coordinate, len(units), question.steps, sql))
                units.append(_units(coordinate, question.steps, kinds, sql, parameters))
    columns = [entry.column for coordinate in question.row() for entry in _entries(coordinate)]
    bins = question.bins()
    if isinstance(bins, Bins) and bins.per == "person":
        totals = [share_of_rows(question.steps, sql)]
    columns += [bins.column] if isinstance(bins, Bins) else []
    tests = [sql.present.format(number_of(column, kinds, sql)) for column in dict.fromkeys(columns)]
    return Coordinates(units, totals, tests, parameters)


def _entries(coordinate: Coordinate) -> tuple[Entry, ...]:
    """The entries that a coordinate reads."""
    match coordinate:
        case Entry():
            return (coordinate,)
        case Product():
            return coordinate.first, coordinate.second
        case Matching():
            return _entries(coordinate.of)
    return ()


def _units(coordinate: Coordinate, steps: int, kinds: Mapping[str, str], sql: Dialect, parameters: list[object]) -> str:
    """A row's part in whole steps, rounded to the nearest. What is charged is the length of what comes out."""
    match coordinate:
        case Entry():
            return row_units(coordinate, steps, number_of(coordinate.column, kinds, sql), sql)
        case Product():
            first, second = (
                f"({away(each, number_of(each.column, kinds, sql))} / {double(each.scale)})"
                for each in _entries(coordinate)
            )
            return sql.rounded.format(f"({first} * {second} * {steps:d})")
        case Matching():
            compiler = FilterCompiler(kinds, sql)
            condition = compiler.sql(parse(coordinate.where))
            parameters += compiler.parameters
            part = _units(coordinate.of, steps, kinds, sql, parameters)
            return f"(CASE WHEN {condition} THEN {part} ELSE {double(0)} END)"
    return double(steps)


def number_of(column: str, kinds: Mapping[str, str], sql: Dialect) -> str:
    """A column's entry as a number; refuses columns that do not hold numbers."""
    if kind_of(column, kinds) not in ("whole", "number", "bool"):  # of truth values: 1 for true, so a mean is a rate
        raise ArgumentError(f"column {column!r} does not hold numbers")
    return f"TRY_CAST({sql.columns[column]} AS {sql.types['number']})"
