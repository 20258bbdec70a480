"""SQL of the term that a person's rows add to a coordinate: per row, per person, or by the person's total.

All are whole steps in doubles, and none depends on the order in which an engine adds up: sums of whole numbers are
exact before anything is divided, and each quotient is rounded once.
"""

from collections.abc import Sequence
from dataclasses import replace
from math import floor, frexp

from almoner.queries._questions.row_contributions import Bins, Coordinate, Entry, Product
from almoner.queries._sql.dialects import Dialect, double

__all__ = ["binned_rows", "person_total", "place_between", "row_units", "share_of_rows"]

_LOWEST, _HIGHEST = double(-(2.0**50)), double(2.0**50)
_MOST_SCALES = 2.0**29  # of one entry in a person's total: 2^49 steps
_TOTAL_BITS = 32  # of the edges, in a total that is put in a bin


def row_units(entry: Entry, steps: int, value: str, sql: Dialect) -> str:
    """A row's entry in whole steps, rounded to the nearest. What is charged is the length of what comes out.

    Args:
        entry: the coordinate.
        steps: whole steps of a coordinate that is as large as it can be.
        value: the entry, as SQL.
        sql: of the engine.
    """
    if entry.per == "total":
        bound = _MOST_SCALES * entry.scale
        entry = replace(entry, low=-bound, high=bound, center=0.0, power=1)
    clipped = away(entry, value)
    if entry.power == 1:
        return sql.rounded.format(f"({clipped} * {double(steps / entry.scale)})")
    share = f"({clipped} / {double(entry.scale)})"
    return sql.rounded.format(f"({share} * {share} * {steps:d})")


def away(entry: Entry, value: str) -> str:
    """An entry, clipped, as its difference from the center; or what the clipping takes away."""
    low, high = double(entry.low), double(entry.high)
    if entry.widest is not None:
        first, last = (double(end) for end in entry.widest)
        taken = f"WHEN {value} < {low} THEN greatest({value}, {first}) - {low} "
        return f"(CASE {taken}WHEN {value} > {high} THEN least({value}, {last}) - {high} ELSE {double(0)} END)"
    clipped = f"(CASE WHEN {value} < {low} THEN {low} WHEN {value} > {high} THEN {high} ELSE {value} END)"
    return f"({clipped} - {double(entry.center)})" if entry.center else clipped


def person_total(coordinate: Coordinate, place: int, steps: int, sql: Dialect) -> str:
    """SQL of the total of a person's rows in a group, with a place for {only}: which rows.

    Args:
        coordinate: of the question.
        place: of its ``row_units`` among those of the question.
        steps: whole steps of a coordinate that is as large as it can be.
        sql: of the engine.
    """
    number = "nullif(CAST(count(*){only} AS DOUBLE), 0)"
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
            return f"CASE WHEN count(*){{only}} = 0 THEN 0 ELSE {total} END"
    return f"least(greatest(coalesce(sum(u{place}){{only}}, 0), {_LOWEST}), {_HIGHEST})"


def share_of_rows(steps: int, sql: Dialect) -> str:
    """The share of a person's rows in a group that are in a bin, of the ``n`` of ``binned_rows``."""
    share = sql.truncated.format(f"(CAST(count(*){{only}} AS DOUBLE) * {steps:d} / max(n){{only}})")
    return f"coalesce({share}, 0)"


def binned_rows(bins: Bins, who: str, group: str, source: str, value: str, sql: Dialect) -> str:
    """Rows with person and cell, one cell for each bin of each group; per person also the number ``n`` of the group.

    Args:
        bins: the bins.
        who: whose row it is, as SQL.
        group: the number of a row's group.
        source: FROM which rows.
        value: the entry.
        sql: of the engine.
    """
    width = bins.cells
    if bins.per == "total":
        unit = _power_of_two(bins)
        entry = Entry(bins.column, 0.0, 0.0, scale=unit * 2.0**20, per="total")
        rows = f"SELECT {who} AS person, {group} AS place, {row_units(entry, 2**20, value, sql)} AS u0 {source}"
        total = f"CAST({sql.total.format('u0')} AS DOUBLE) * {double(unit)}"
        totals = f"SELECT person, place, {total} AS entry FROM ({rows}) GROUP BY person, place"
        cell = f"place * {width:d} + {place_between('entry', bins.edges)}"
        return f"SELECT person, CAST({cell} AS INTEGER) AS cell FROM ({totals})"
    cell = f"CAST(({group}) * {width:d} + {place_between(value, bins.edges)} AS INTEGER) AS cell"
    if bins.per == "row":
        return f"SELECT {who} AS person, {cell} {source}"
    rows = f"SELECT {who} AS person, {cell} {source}"
    over = f"PARTITION BY person, {sql.quotient.format('cell', width)}"
    return f"SELECT *, CAST(count(*) OVER ({over}) AS DOUBLE) AS n FROM ({rows})"


def _power_of_two(bins: Bins) -> float:
    """In which totals are added up: whole numbers below 2^32 exactly, if the edges are."""
    largest = max(abs(bins.edges[0]), abs(bins.edges[-1]), 1e-90)
    return float(2.0 ** (frexp(largest)[1] - _TOTAL_BITS))


def place_between(value: str, edges: Sequence[float]) -> str:
    """The number of a value's bin; the outer bins take what is beyond. By halving, so that thousands are no trouble."""

    def halved(low: int, high: int) -> str:
        if low == high:
            return str(low)
        middle = (low + high + 1) // 2
        edge = double(edges[middle])
        return f"CASE WHEN {value} < {edge} THEN {halved(low, middle - 1)} ELSE {halved(middle, high)} END"

    return halved(0, len(edges) - 2)
