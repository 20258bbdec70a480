"""SQL of the terms that a row, and a person's rows, add to each coordinate: per row, per person, or by the total.

All are whole steps in doubles, and none depends on the order in which an engine adds up: sums of whole numbers are
exact before anything is divided, and each quotient is rounded once. Nothing here can fail on an entry of the data.
"""

from collections.abc import Sequence
from dataclasses import replace
from math import floor, frexp

from almoner.errors import ArgumentError
from almoner.queries._language.expressions import parse
from almoner.queries._questions.question import Question
from almoner.queries._questions.row_contributions import AnyRow, Bins, Coordinate, CountRows, Entry, Matching, Product
from almoner.queries._sql.columns import FilterCompiler, kind_of
from almoner.queries._sql.dialects import Dialect, double
from almoner.queries._sql.rows import Relation

_LOWEST, _HIGHEST = double(-(2.0**50)), double(2.0**50)
_MOST_SCALES = 2.0**29  # of one entry in a person's total: 2^49 steps
_TOTAL_BITS = 32  # of the edges, in a total that is put in a bin


def row_units(entry: Entry, steps: int, value: str, sql: Dialect) -> str:
    """A row's entry in whole steps, rounded to the nearest. What is charged is the length of what comes out."""
    if entry.per == "total":
        bound = _MOST_SCALES * entry.scale
        entry = replace(entry, low=-bound, high=bound, center=0.0, power=1)
    clipped = away(entry, value)
    if entry.power == 1:
        return sql.rounded.format(f"({clipped} * {double(steps / entry.scale)})")
    share = f"({clipped} / {double(entry.scale)})"
    return sql.rounded.format(f"({share} * {share} * {steps:d})")


def away(entry: Entry, value: str) -> str:
    """An entry, clipped, as its difference from the center."""
    low, high = double(entry.low), double(entry.high)
    clipped = f"(CASE WHEN {value} < {low} THEN {low} WHEN {value} > {high} THEN {high} ELSE {value} END)"
    return f"({clipped} - {double(entry.center)})" if entry.center else clipped


def person_total(coordinate: Coordinate, place: int, steps: int, sql: Dialect, rows: str) -> str:
    """SQL of the total of a person's rows in a group, with a place for {only}: which rows; ``place`` is its units'.

    ``rows`` is the number of those that count for it.
    """
    number = f"nullif({rows}, 0)"
    match coordinate:
        case Entry(per="person") | Product(first=Entry(per="person")):
            mean = sql.rounded.format(f"(coalesce(sum(u{place}){{only}}, 0) / {number})")
            return f"coalesce({mean}, 0)"
        case Entry(per="total") as entry:
            center, lowest, highest = (
                double(floor((each - origin) / entry.scale * steps + 0.5))
                for each, origin in ((entry.center, 0.0), (entry.low, entry.center), (entry.high, entry.center))
            )
            total = f"CAST({sql.total.format(f'u{place}')}{{only}} AS DOUBLE) - {center}"
            total = f"least(greatest({total}, {lowest}), {highest})"
            if entry.power == 2:
                total = sql.rounded.format(f"({total} * {total} / {steps:d})")
            return f"CASE WHEN {rows} = 0 THEN 0 ELSE {total} END"
    return f"least(greatest(coalesce(sum(u{place}){{only}}, 0), {_LOWEST}), {_HIGHEST})"


def binned_rows(bins: Bins, who: str, group: str, source: str, value: str, sql: Dialect) -> str:
    """Rows with person and cell, one cell for each bin of each group; per person also the number ``n`` of the group."""
    width = bins.cells
    if bins.per == "total":
        # totals are added up in a power of two: whole numbers below 2^32 exactly, if the edges are
        unit = 2.0 ** (frexp(max(abs(bins.edges[0]), abs(bins.edges[-1]), 1e-90))[1] - _TOTAL_BITS)
        entry = Entry(bins.column, 0.0, 0.0, scale=unit * 2.0**20, per="total")
        rows = f"SELECT {who} AS person, {group} AS place, {row_units(entry, 2**20, value, sql)} AS u0 {source}"
        total = f"CAST({sql.total.format('u0')} AS DOUBLE) * {double(unit)}"
        totals = f"SELECT person, place, {total} AS entry FROM ({rows}) GROUP BY person, place"
        cell = f"place * {width:d} + {place_between('entry', bins.edges)}"
        return f"SELECT person, CAST({cell} AS INTEGER) AS cell FROM ({totals})"
    cell = f"CAST(({group}) * {width:d} + {place_between(value, bins.edges)} AS INTEGER) AS cell"
    rows = f"SELECT {who} AS person, {cell} {source}"
    if bins.per == "row":
        return rows
    over = f"PARTITION BY person, {sql.quotient.format('cell', width)}"
    return f"SELECT *, CAST(count(*) OVER ({over}) AS DOUBLE) AS n FROM ({rows})"


def place_between(value: str, edges: Sequence[float]) -> str:
    """The number of a value's bin; the outer bins take what is beyond. By halving, so that thousands are no trouble."""

    def halved(low: int, high: int) -> str:
        if low == high:
            return str(low)
        middle = (low + high + 1) // 2
        edge = double(edges[middle])
        return f"CASE WHEN {value} < {edge} THEN {halved(low, middle - 1)} ELSE {halved(middle, high)} END"

    return halved(0, len(edges) - 2)


def coordinates_of(question: Question, relation: Relation) -> tuple[list[str], list[str], list[str], list[object]]:
    """(Whole steps in a row, totals over a person's rows with a place for {only}, tests on rows, parameters)."""
    units, totals, parameters, sql = list[str](), list[str](), list[object](), relation.dialect
    columns = [entry.column for coordinate in question.row() for entry in _entries(coordinate)]
    for coordinate in question.row():
        column, rows = getattr(coordinate, "column", None), "CAST(count(*){only} AS DOUBLE)"
        if column is not None and not question.whole_rows:
            rows = f"CAST(count(u{len(units):d}){{only}} AS DOUBLE)"
            unit = _units(coordinate, question.steps, relation, parameters)
            units.append(f"CASE WHEN {sql.present.format(number_of(column, relation))} THEN {unit} END")
        elif not isinstance(coordinate, CountRows | AnyRow):
            units.append(_units(coordinate, question.steps, relation, parameters))
        match coordinate:
            case CountRows():
                totals.append(f"least({rows} * {question.steps:d}, {_HIGHEST})")
            case AnyRow():
                totals.append(f"least({rows}, 1) * {question.steps:d}")
            case _:
                totals.append(person_total(coordinate, len(units) - 1, question.steps, sql, rows))
    columns = columns if question.whole_rows else []
    bins = question.bins()
    if isinstance(bins, Bins) and bins.per == "person":
        share = f"(CAST(count(*){{only}} AS DOUBLE) * {question.steps:d} / max(n){{only}})"  # of ``binned_rows``
        totals = [f"coalesce({sql.truncated.format(share)}, 0)"]
    columns += [bins.column] if isinstance(bins, Bins) else []
    tests = [sql.present.format(number_of(column, relation)) for column in dict.fromkeys(columns)]
    return units, totals, tests, parameters


def _entries(coordinate: Coordinate) -> tuple[Entry, ...]:
    match coordinate:
        case Entry():
            return (coordinate,)
        case Product():
            return coordinate.first, coordinate.second
        case Matching():
            return _entries(coordinate.of)
    return ()


def _units(coordinate: Coordinate, steps: int, relation: Relation, parameters: list[object]) -> str:
    """A row's part in whole steps, rounded to the nearest. What is charged is the length of what comes out."""
    match coordinate:
        case Entry():
            return row_units(coordinate, steps, number_of(coordinate.column, relation), relation.dialect)
        case Product():
            first, second = (
                f"({away(each, number_of(each.column, relation))} / {double(each.scale)})"
                for each in _entries(coordinate)
            )
            return relation.dialect.rounded.format(f"({first} * {second} * {steps:d})")
        case Matching():
            _, condition = FilterCompiler(relation, relation.dialect).value(parse(coordinate.where))
            parameters += condition.parameters
            part = _units(coordinate.of, steps, relation, parameters)
            return f"(CASE WHEN {condition.text} THEN {part} ELSE {double(0)} END)"
    return double(steps)


def number_of(column: str, relation: Relation) -> str:
    """A column's entry as a number; refuses columns that do not hold numbers."""
    if kind_of(column, relation) not in ("whole", "number", "bool"):  # of truth values: 1 for true, so a mean is a rate
        raise ArgumentError(f"column {column!r} does not hold numbers")
    return f"TRY_CAST({relation.dialect.columns[column]} AS {relation.dialect.types['number']})"
