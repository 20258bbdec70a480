"""A question as SQL for DuckDB: everybody's contribution in whole steps, its price, and the sums of those admitted.

Tables, all in memory: ``data`` holds the rows; ``cells`` each person's contribution to each group; ``charges`` each
person's price; ``admitted`` (made by the ledger) the part of ``charges`` that takes part. Nothing here can fail on an
entry of the data: casts that do not fit are missing, sums are in 128 bits, and contributions are cut off at 2^50 steps.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import accumulate
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

_CUT = 2**50
_ALMOST = 1 - 1e-12  # so that rounding never makes a shrunk contribution longer than the clip


@dataclass(frozen=True, slots=True)
class Compiled:
    """Statements in the order in which they run. Every field is public."""

    keys: tuple[tuple[str, str, tuple[Any, ...]], ...]
    """For each column to group by: the name of a table, the type of its keys, the keys."""
    cells: str
    parameters: tuple[Any, ...]
    """Of ``cells``."""
    charges: str
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
    columns, value_tests = _columns(question, kinds)
    tests += value_tests
    keys, joins, cell = _grouping(question, kinds)
    if isinstance(question, Histogram | Quantiles):
        cell = f"({cell}) * {question.coordinates:d} + {_bin(question, kinds)}"
    rows = (
        f"SELECT CAST({named(person)} AS {person_kind}) AS person, CAST({cell} AS BIGINT) AS cell, "
        f"{', '.join(columns)} FROM data d {joins} WHERE {' AND '.join(tests)} GROUP BY ALL"
    )
    names = [f"x{place}" for place in range(len(columns))]
    cells = f"CREATE OR REPLACE TEMP TABLE cells AS {_bounded(rows, names, question)}"
    return Compiled(keys, cells, tuple(compiler.parameters), _charges(names, question), _sums(names))


def _columns(question: Question, kinds: Mapping[str, str]) -> tuple[list[str], list[str]]:
    """(aggregates over a person's rows in a group, conditions on rows): whole steps."""
    count = f"least(count(*), {_CUT // STEPS}) * {question.steps:d}"
    match question:
        case Count():
            return [f"{count} AS x0"], []
        case People():
            return [f"CAST({question.steps:d} AS BIGINT) AS x0"], []
        case Histogram() | Quantiles():
            value = _number(question.column, kinds)
            return [f"{count} AS x0"], [_is_number(value)]
        case Sum():
            value = _number(question.column, kinds)
            clipped = f"least(greatest({value}, {_double(question.low)}), {_double(question.high)})"
            return [_total(f"{clipped} / {_double(question.full)}", question.steps, 0)], [_is_number(value)]
        case Mean() | Variance():
            value = _number(question.column, kinds)
            clipped = f"least(greatest({value}, {_double(question.low)}), {_double(question.high)})"
            unit = f"(({clipped} - {_double(question.middle)}) / {_double(question.half)})"
            parts = [f"{count} AS x0", _total(unit, question.steps, 1)]
            if isinstance(question, Variance):
                parts.append(_total(f"{unit} * {unit}", question.steps, 2))
            return parts, [_is_number(value)]
    raise ArgumentError(f"question={type(question).__name__} is not known to this engine")


def _double(value: float) -> str:
    """A number as SQL, to the last bit."""
    return f"CAST('{float(value)!r}' AS DOUBLE)"


def _number(column: str, kinds: Mapping[str, str]) -> str:
    if kind_of(column, kinds) not in ("whole", "number"):
        raise ArgumentError(f"column {column!r} does not hold numbers")
    return cast(column, "number")


def _is_number(value: str) -> str:
    return f"({value} IS NOT NULL AND NOT isnan({value}))"


def _total(unit: str, steps: int, place: int) -> str:
    """The sum of entries in [-1, 1], each rounded to whole steps; cut off."""
    whole = f"CAST(round(least(greatest({unit}, -1::DOUBLE), 1::DOUBLE) * {steps:d}) AS BIGINT)"
    return f"CAST(least(greatest(sum({whole}), -{_CUT:d}), {_CUT:d}) AS BIGINT) AS x{place}"


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
    return " + ".join(f"CAST({name} AS HUGEINT) * {name}" for name in names)


def _shrunk(name: str) -> str:
    """A whole number times a factor of at most 1, rounded towards zero."""
    return f"CASE WHEN factor = 1 THEN {name} ELSE CAST(trunc({name} * factor) AS BIGINT) END"


def _factor(square: str, bound: int) -> str:
    """1 within the bound, else what shrinks to it. ``square`` is an exact whole number."""
    return (
        f"CASE WHEN {square} <= CAST('{bound**2:d}' AS HUGEINT) THEN 1::DOUBLE "
        f"ELSE {_double(bound * _ALMOST)} / sqrt(CAST({square} AS DOUBLE)) END"
    )


def _bounded(rows: str, names: list[str], question: Question) -> str:
    """Cells with the bound for each group, of all its coordinates together."""
    if question.per_group is None:
        return rows
    bound = int(question.per_group * STEPS)
    inner = f"SELECT *, {_square(names)} AS square FROM ({rows})"
    if isinstance(question, Histogram | Quantiles):  # a group's coordinates are in several cells
        whole = f"sum({_square(names)}) OVER (PARTITION BY person, cell // {question.coordinates:d})"
        inner = f"SELECT *, {whole} AS square FROM ({rows})"
    factors = f"SELECT *, {_factor('square', bound)} AS factor FROM ({inner})"
    return f"SELECT person, cell, {', '.join(f'{_shrunk(name)} AS {name}' for name in names)} FROM ({factors})"


def _charges(names: list[str], question: Question) -> str:
    """Everybody's price and factor.

    Guarantee: units >= (length of what the person contributes after clipping)**2 / (2 sigma**2), in units of rho.
    Source: theory 2.7 and 5.1.
    """
    clip, price = question.clip_steps, question.price
    squares = f"SELECT person, CAST(sum({_square(names)}) AS HUGEINT) AS square FROM cells GROUP BY person"
    units = (
        f"CASE WHEN square >= CAST('{clip**2:d}' AS HUGEINT) THEN {price:d} ELSE "
        f"least({price:d}, CAST(ceil(CAST(square AS DOUBLE) * {_double(units_per_step(question))}) AS BIGINT)) END"
    )
    return (
        f"CREATE OR REPLACE TEMP TABLE charges AS SELECT person, CAST({units} AS BIGINT) AS units, "
        f"{_factor('square', clip)} AS factor FROM ({squares}) WHERE square > 0"
    )


def _sums(names: list[str]) -> str:
    totals = ", ".join(f"sum({_shrunk(name)})" for name in names)
    return f"SELECT cell, {totals} FROM cells JOIN admitted USING (person) GROUP BY cell"
