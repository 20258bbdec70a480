"""What a row adds to each coordinate, as SQL in whole steps. Nothing here can fail on an entry of the data."""

from collections.abc import Mapping
from typing import NamedTuple

from bursar.errors import ArgumentError
from bursar.queries._engines.columns import FilterCompiler, kind_of
from bursar.queries._engines.dialects import Dialect, double
from bursar.queries._question import Question
from bursar.queries._rows import AnyRow, Bins, Coordinate, CountRows, Entry, Matching, Product
from bursar.queries._where import parse

__all__ = ["Coordinates", "bin_of", "coordinates_of"]

_LOWEST, _HIGHEST = double(-(2.0**50)), double(2.0**50)


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
                totals.append(_total(len(units)))
                units.append(_units(coordinate, question.steps, kinds, sql, parameters))
    columns = [entry.column for coordinate in question.row() for entry in _entries(coordinate)]
    bins = question.bins()
    columns += [bins.column] if isinstance(bins, Bins) else []
    tests = [sql.present.format(_number(column, kinds, sql)) for column in dict.fromkeys(columns)]
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
            return _entry(coordinate, steps, kinds, sql)
        case Product():
            first, second = (f"({_away(each, kinds, sql)} / {double(each.scale)})" for each in _entries(coordinate))
            return sql.rounded.format(f"({first} * {second} * {steps:d})")
        case Matching():
            compiler = FilterCompiler(kinds, sql)
            condition = compiler.sql(parse(coordinate.where))
            parameters += compiler.parameters
            part = _units(coordinate.of, steps, kinds, sql, parameters)
            return f"(CASE WHEN {condition} THEN {part} ELSE {double(0)} END)"
    return double(steps)


def _entry(entry: Entry, steps: int, kinds: Mapping[str, str], sql: Dialect) -> str:
    away = _away(entry, kinds, sql)
    if entry.power == 1:
        return sql.rounded.format(f"({away} * {double(steps / entry.scale)})")
    share = f"({away} / {double(entry.scale)})"
    return sql.rounded.format(f"({share} * {share} * {steps:d})")


def _away(entry: Entry, kinds: Mapping[str, str], sql: Dialect) -> str:
    """A row's entry, clipped, as its difference from the center."""
    value, low, high = _number(entry.column, kinds, sql), double(entry.low), double(entry.high)
    away = f"(CASE WHEN {value} < {low} THEN {low} WHEN {value} > {high} THEN {high} ELSE {value} END)"
    return f"({away} - {double(entry.center)})" if entry.center else away


def _number(column: str, kinds: Mapping[str, str], sql: Dialect) -> str:
    if kind_of(column, kinds) not in ("whole", "number"):
        raise ArgumentError(f"column {column!r} does not hold numbers")
    return f"TRY_CAST({sql.columns[column]} AS {sql.types['number']})"


def _total(place: int) -> str:
    """The sum of a person's rows in a group; cut off."""
    return f"least(greatest(coalesce(sum(u{place}){{only}}, 0), {_LOWEST}), {_HIGHEST})"


def bin_of(bins: Bins, kinds: Mapping[str, str], sql: Dialect) -> str:
    """The number of an entry's bin: halving, so that thousands of edges are no trouble."""
    value = _number(bins.column, kinds, sql)

    def halved(low: int, high: int) -> str:
        if low == high:
            return str(low)
        middle = (low + high + 1) // 2
        edge = double(bins.edges[middle])
        return f"CASE WHEN {value} < {edge} THEN {halved(low, middle - 1)} ELSE {halved(middle, high)} END"

    return halved(0, len(bins.edges) - 2)
