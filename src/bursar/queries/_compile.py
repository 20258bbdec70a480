"""A question as SQL for DuckDB: everybody's contribution in whole steps, its price, and the sums of those admitted.

The view ``data`` holds the rows. ``charges`` is a query that gives each person's price, and the ledger makes the table
``admitted`` of those who take part. Contributions stand beside the prices while there are few coordinates (wide), and
in a table ``cells`` of their own when there are many (long).

Nothing here can fail on an entry of the data: casts that do not fit are missing, and contributions are cut off at 2^50
steps. They are whole numbers in doubles, exact for people with fewer than 2^33 rows in a group; sums over people are in
128 bits.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import accumulate
from math import nextafter
from typing import Any

from bursar.errors import ArgumentError
from bursar.queries._columns import Compiler, cast, kind_of, literal, named
from bursar.queries._expressions import parse
from bursar.queries.questions import (
    STEPS,
    Count,
    Histogram,
    Mean,
    People,
    Quantiles,
    Question,
    Sum,
    Variance,
    units_per_step,
)

__all__ = ["Compiled", "compiled"]

_CUT = 2.0**50
_ALMOST = 1 - 1e-8  # so that rounding never makes a shrunk contribution longer than the clip
_WIDE = 32
_EXACT = 2.0**53  # sums of whole doubles below are exact
_ABOVE = 1 + 1e-8  # above every rounding of a longer sum


@dataclass(frozen=True, slots=True)
class Compiled:
    """Statements in the order in which they run. Every field is public."""

    keys: tuple[tuple[str, str, tuple[Any, ...]], ...]
    """For each column to group by: the name of a table, the type of its keys, the keys."""
    cells: str | None
    charges: str
    """Gives person, units, factor, and in the wide form the contribution."""
    parameters: tuple[Any, ...]
    """Of ``cells`` if there is one, else of ``charges``."""
    sums: str
    """Gives (cell, sum, ...) for cells in which somebody takes part, each cell once."""


def compiled(question: Question, person: str, person_kind: str, kinds: Mapping[str, str]) -> Compiled:
    """The statements of a question.

    Args:
        question: what is asked.
        person: the column that says whose row it is.
        person_kind: BIGINT or VARCHAR, as in the ledger.
        kinds: the kind of each column.
    """
    compiler = Compiler(kinds)
    tests = [f"{named(person)} IS NOT NULL"]
    if question.where is not None:
        tests.append(compiler.sql(parse(question.where)))
    units, totals, value_tests = _columns(question, kinds)
    keys, joins, cell = _grouping(question, kinds)
    binned = isinstance(question, Histogram | Quantiles)
    if isinstance(question, Histogram | Quantiles):
        cell = f"({cell}) * {question.coordinates:d} + {_bin(question, kinds)}"
    rows = (
        f"SELECT CAST({named(person)} AS {person_kind}) AS person, CAST({cell} AS INTEGER) AS cell"
        f"{''.join(f', {unit} AS u{place}' for place, unit in enumerate(units))} "
        f"FROM data d {joins} WHERE {' AND '.join(tests + value_tests)}"
    )
    cells = question.groups * (question.coordinates if binned else 1)
    names = [f"x{place}" for place in range(len(totals))]
    if cells * len(totals) > _WIDE:
        listed = ", ".join(f"{total.format(only='')} AS {name}" for total, name in zip(totals, names, strict=True))
        long = f"SELECT person, cell, {listed} FROM ({rows}) GROUP BY person, cell"
        table = f"CREATE OR REPLACE TEMP TABLE cells AS {_bounded_long(long, names, question)}"
        squares = f"SELECT person, {_firm(f'sum({_square(names)})')} AS square FROM cells GROUP BY person"
        sums = f"SELECT cell, {_added(names)} FROM cells JOIN admitted USING (person) GROUP BY cell"
        return Compiled(keys, table, _charges(squares, question), tuple(compiler.parameters), sums)
    grid = [[f"x{place}_{name}" for name in range(len(totals))] for place in range(cells)]
    listed = ", ".join(
        f"{total.format(only=f' FILTER (WHERE cell = {place:d})' if cells > 1 else '')} AS {name}"
        for place, row in enumerate(grid)
        for total, name in zip(totals, row, strict=True)
    )
    wide = f"SELECT person, {listed} FROM ({rows}) GROUP BY person"
    flat = [name for row in grid for name in row]
    width = question.coordinates if binned else 1
    groups = [[name for row in grid[start : start + width] for name in row] for start in range(0, cells, width)]
    squares = f"SELECT *, {_firm(_square(flat))} AS square FROM ({_bounded_wide(wide, groups, question)})"
    sums = f"SELECT 0, {_added(flat)} FROM admitted"
    return Compiled(keys, None, _charges(squares, question), tuple(compiler.parameters), sums)


def _columns(question: Question, kinds: Mapping[str, str]) -> tuple[list[str], list[str], list[str]]:
    """(whole steps in a row, aggregates of a person's rows in a group with a place for {only}, conditions on rows)."""
    count = f"least(CAST(count(*){{only}} AS DOUBLE) * {question.steps:d}, {_CUT!r}::DOUBLE)"
    match question:
        case Count():
            return [], [count], []
        case People():
            return [], [f"least(CAST(count(*){{only}} AS DOUBLE), 1) * {question.steps:d}"], []
        case Histogram() | Quantiles():
            return [], [count], [f"NOT isnan({_number(question.column, kinds)})"]
        case Sum() | Mean() | Variance():
            value = _number(question.column, kinds)
            inside = f"CASE WHEN {value} < {_double(question.low)} THEN {_double(question.low)} "
            inside += f"WHEN {value} > {_double(question.high)} THEN {_double(question.high)} ELSE {value} END"
            units, counts = _units(question, f"({inside})"), [] if isinstance(question, Sum) else [count]
            return units, [*counts, *map(_total, range(len(units)))], [f"NOT isnan({value})"]
    raise ArgumentError(f"question={type(question).__name__} is not known to this engine")


def _units(question: Sum | Mean | Variance, inside: str) -> list[str]:
    """A row's entry in whole steps, rounded to the nearest. What is charged is the length of what comes out."""
    if isinstance(question, Sum):
        return [f"round({inside} * {_double(question.steps / question.full)})"]
    away = f"({inside} - {_double(question.middle)})"
    units = [f"round({away} * {_double(question.steps / question.half)})"]
    if isinstance(question, Variance):
        share = f"({away} / {_double(question.half)})"
        units.append(f"round({share} * {share} * {question.steps:d})")
    return units


def _double(value: float) -> str:
    """A number as SQL, to the last bit."""
    return f"CAST('{float(value)!r}' AS DOUBLE)"


def _number(column: str, kinds: Mapping[str, str]) -> str:
    if kind_of(column, kinds) not in ("whole", "number"):
        raise ArgumentError(f"column {column!r} does not hold numbers")
    return f"TRY_CAST({named(column)} AS DOUBLE)"


def _total(place: int) -> str:
    """The sum of a person's rows in a group; cut off."""
    return f"least(greatest(coalesce(sum(u{place}){{only}}, 0), -{_CUT!r}::DOUBLE), {_CUT!r}::DOUBLE)"


def _grouping(question: Question, kinds: Mapping[str, str]) -> tuple[Any, str, str]:
    """(tables of keys, joins, the number of a row's group)."""
    by = question._by
    strides = list(accumulate((len(keys) for _, keys in reversed(by)), lambda a, b: a * b, initial=1))[-2::-1]
    tables, joins, terms = [], [], []
    types = {"whole": "BIGINT", "text": "VARCHAR", "bool": "BOOLEAN", "date": "DATE"}
    for place, ((column, keys), stride) in enumerate(zip(by, strides, strict=True)):
        kind = kind_of(column, kinds)
        if kind not in types:
            raise ArgumentError(
                f"by: column {column!r} is of kind {kind}; group by text, whole numbers, truths or dates"
            )
        values = tuple(literal(key, kind) for key in keys)
        if len(set(values)) < len(values):
            raise ArgumentError(f"by: two keys of column {column!r} are the same")
        tables.append((f"keys{place}", types[kind], values))
        joins.append(f"JOIN keys{place} k{place} ON k{place}.key = {cast(column, kind)}")
        terms.append(f"k{place}.place * {stride:d}")
    return tuple(tables), " ".join(joins), " + ".join(terms) or "0"


def _bin(question: Histogram | Quantiles, kinds: Mapping[str, str]) -> str:
    """The number of an entry's bin: halving, so that thousands of edges are no trouble."""
    value = _number(question.column, kinds)

    def halved(low: int, high: int) -> str:
        if low == high:
            return str(low)
        middle = (low + high + 1) // 2
        edge = f"{_double(question.edges[middle])}"
        return f"CASE WHEN {value} < {edge} THEN {halved(low, middle - 1)} ELSE {halved(middle, high)} END"

    return halved(0, question.coordinates - 1)


def _square(names: list[str]) -> str:
    return " + ".join(f"{name} * {name}" for name in names)


def _firm(square: str) -> str:
    """A sum of squares of whole numbers that is not below the true one: exact if short, else rounded up."""
    return f"CASE WHEN {square} < {_EXACT!r}::DOUBLE THEN {square} ELSE ({square}) * {_double(_ABOVE)} END"


def _shrunk(name: str, factor: str = "factor") -> str:
    """A whole number times a factor of at most 1, rounded towards zero."""
    return f"CASE WHEN {factor} = 1 THEN {name} ELSE trunc({name} * {factor}) END"


def _factor(square: str, bound: int) -> str:
    """1 within the bound, else what shrinks to it, and a little more."""
    return (
        f"CASE WHEN {square} <= {_double(nextafter(float(bound**2), 0) if bound**2 > _EXACT else bound**2)} "
        f"THEN 1::DOUBLE ELSE {_double(bound * _ALMOST)} / sqrt({square}) END"
    )


def _bounded_long(rows: str, names: list[str], question: Question) -> str:
    """Cells within the bound for each group, of all its coordinates together."""
    if question.per_group is None:
        return rows
    square = _firm(_square(names))
    if isinstance(question, Histogram | Quantiles):  # a group's coordinates are in several cells
        square = _firm(f"sum({_square(names)}) OVER (PARTITION BY person, cell // {question.coordinates:d})")
    bound = int(question.per_group * STEPS)
    factors = f"SELECT *, {_factor('square', bound)} AS factor FROM (SELECT *, {square} AS square FROM ({rows}))"
    return f"SELECT person, cell, {', '.join(f'{_shrunk(name)} AS {name}' for name in names)} FROM ({factors})"


def _bounded_wide(rows: str, groups: list[list[str]], question: Question) -> str:
    """The same where all coordinates stand in one row."""
    if question.per_group is None:
        return rows
    bound = int(question.per_group * STEPS)
    squares = ", ".join(f"{_firm(_square(names))} AS s{place}" for place, names in enumerate(groups))
    factors = ", ".join(f"{_factor(f's{place}', bound)} AS f{place}" for place in range(len(groups)))
    shrunk = ", ".join(
        f"{_shrunk(name, f'f{place}')} AS {name}" for place, names in enumerate(groups) for name in names
    )
    inner = f"SELECT *, {factors} FROM (SELECT *, {squares} FROM ({rows}))"
    return f"SELECT person, {shrunk} FROM ({inner})"


def _charges(squares: str, question: Question) -> str:
    """Everybody's price and factor.

    Guarantee: units >= (length of what the person contributes after clipping)**2 / (2 sigma**2), in units of rho.
    Source: theory 2.7 and 5.1.
    """
    price = question.price
    units = (
        f"CASE WHEN {_factor('square', question.clip_steps)} < 1 THEN {price:d} ELSE "
        f"least({price:d}, CAST(ceil(square * {_double(units_per_step(question))}) AS BIGINT)) END"
    )
    return (
        f"SELECT * EXCLUDE (square), CAST({units} AS BIGINT) AS units, "
        f"{_factor('square', question.clip_steps)} AS factor FROM ({squares}) WHERE square > 0"
    )


def _added(names: list[str]) -> str:
    """Sums over people: whole numbers, in 128 bits."""
    return ", ".join(f"sum(CAST({_shrunk(name)} AS BIGINT))" for name in names)
