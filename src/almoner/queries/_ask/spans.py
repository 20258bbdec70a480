"""Derive from a question's filter the periods that its rows can lie in, whatever the data are."""

from datetime import date, datetime, time
from functools import lru_cache
from typing import Any, NamedTuple

from almoner._calendar import start_of
from almoner.errors import ArgumentError
from almoner.ledger import Periods
from almoner.queries._language.expressions import Call, Column, Expression
from almoner.queries._language.where import And, Compare, Condition, In, Literal, Or, parse
from almoner.queries._questions.kinds.lengths import Lengths
from almoner.queries._questions.question import Question
from almoner.queries._sql.columns import literal
from almoner.queries._sql.schemas import Schema

__all__ = ["span_of"]

_TURNED = {"<": ">", "<=": ">=", ">": "<", ">=": "<=", "=": "="}
_DATES = ("date", "week", "month", "quarter")
"""The functions that give a date, and never an earlier one of a later time."""


class _Ends(NamedTuple):
    """The first and the last value that an expression has in each period, in order."""

    kind: str
    listed: tuple[tuple[Any, Any], ...]


def span_of(asked: Question, periods: Periods, schema: Schema) -> tuple[str, str] | None:
    """The first and the last period, by their labels, of rows that a question's filter can let through.

    Args:
        asked: the question.
        periods: of the ledger.
        schema: of the data; with periods there is one table of people.

    Returns:
        None where it may be all, as far as is known.

    Guarantee: rows of other periods are in no answer to the question, and are charged nothing, whatever the data.
    Source: a row counts only where the filter is true. The functions followed here never fall from one time to a later
        one; what is not followed counts as true.
    """
    about = asked.of if isinstance(asked, Lengths) else asked
    if about.where is None or about.each_person is not None:
        return None
    (table,) = schema.people.values()
    kind = table.kinds.get(periods.column)
    if kind not in ("date", "time"):
        return None
    return _span(about.where, periods, kind)


@lru_cache(1024)
def _span(where: str, periods: Periods, kind: str) -> tuple[str, str] | None:
    may = _may(parse(where), periods, kind)
    if all(may) or not any(may):
        return None
    listed = [label for label, each in zip(periods.labels, may, strict=True) if each]
    return listed[0], listed[-1]


def _may(node: Condition, periods: Periods, kind: str) -> list[bool]:
    """For each period, whether the condition may be true of one of its rows."""
    if isinstance(node, And | Or):
        joined = all if isinstance(node, And) else any
        return [joined(each) for each in zip(*(_may(part, periods, kind) for part in node.parts), strict=True)]
    tests = _tests(node)
    ends = None if tests is None else _ends(tests[0], periods, kind)
    if tests is None or ends is None:
        return [True] * periods.count
    try:
        bounds = [(sign, _value(of, ends.kind)) for sign, of in tests[1]]
    except ArgumentError:  # the question is refused elsewhere
        return [True] * periods.count
    return [any(_meets(sign, bound, *each) for sign, bound in bounds) for each in ends.listed]


def _tests(node: Condition) -> tuple[Expression, list[tuple[str, Literal]]] | None:
    """An expression, and comparisons of it one of which is true where the condition is; None where there are none."""
    match node:
        case In(column, values):
            return column, [("=", value) for value in values]
        case Compare(sign, left, Literal() as right) if sign in _TURNED:
            return left, [(sign, right)]
        case Compare(sign, Literal() as left, right) if sign in _TURNED:
            return right, [(_TURNED[sign], left)]
    return None


def _ends(node: Expression, periods: Periods, kind: str) -> _Ends | None:
    """The values of an expression of the column of the periods that never falls from one time to a later one."""
    match node:
        case Column(name) if name == periods.column:
            if kind == "date":
                return _Ends("date", tuple(periods.days))
            return _Ends("time", tuple((_time(low), _time(high, last=True)) for low, high in periods.days))
        case Call(name, (Column(of),)) if of == periods.column and name in _DATES:
            return _Ends("date", tuple((_start(name, low), _start(name, high)) for low, high in periods.days))
        case Call("year", (Column(of),)) if of == periods.column:
            return _Ends("number", tuple((low.year, high.year) for low, high in periods.days))
    return None


def _start(name: str, day: date) -> date:
    """The date that a function gives for a day."""
    return day if name == "date" else start_of(name, day)


def _time(day: date, *, last: bool = False) -> datetime:
    return datetime.combine(day, time.max if last else time.min)


def _value(of: Literal, kind: str) -> Any:
    return literal(of.value, kind)


def _meets(sign: str, bound: Any, low: Any, high: Any) -> bool:
    """True if a value from low to high may stand on the left of a comparison."""
    match sign:
        case "<":
            return bool(low < bound)
        case "<=":
            return bool(low <= bound)
        case ">":
            return bool(high > bound)
        case ">=":
            return bool(high >= bound)
    return bool(low <= bound <= high)
