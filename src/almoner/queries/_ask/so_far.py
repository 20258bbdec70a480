"""Public facts about an analyst's next question: the answers so far, prices of all, and periods it can be about."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, time
from functools import lru_cache
from typing import Any, NamedTuple, cast

from almoner._calendar import start_of
from almoner.errors import ArgumentError
from almoner.ledger import Entry, Ledger, Periods
from almoner.queries._ask.answer import without
from almoner.queries._language import expressions as tree
from almoner.queries._questions.kinds.counts import Lengths
from almoner.queries._questions.question import Question
from almoner.queries._sql.columns import literal
from almoner.queries._sql.rows import Schema

_TURNED = {"<": ">", "<=": ">=", ">": "<", ">=": "<=", "=": "="}
_DATES = ("date", "week", "month", "quarter")
"""The functions that give a date, and never an earlier one of a later time."""


def span_of(asked: Question, periods: Periods, schema: Schema) -> tuple[str, str] | None:
    """The first and the last period, by their labels, of rows that a question's filter can let through.

    None where it may be all, as far as is known. With periods there is one table of people.

    Guarantee: rows of other periods are in no answer to the question, and are charged nothing, whatever the data.
    Source: a row counts only where the filter is true. The functions followed here never fall from one time to a later
        one; what is not followed counts as true.
    """
    about = asked.of if isinstance(asked, Lengths) else asked
    if about.where is None or about.each is not None or about.each_person is not None:
        return None
    (table,) = schema.people.values()
    kind = table.kinds.get(periods.column)
    if kind not in ("date", "time"):
        return None
    return _span(about.where, periods, kind)


@lru_cache(1024)
def _span(where: str, periods: Periods, kind: str) -> tuple[str, str] | None:
    may = _may(tree.parse(where), periods, kind)
    if all(may) or not any(may):
        return None
    listed = [label for label, each in zip(periods.labels, may, strict=True) if each]
    return listed[0], listed[-1]


def _may(node: tree.Condition, periods: Periods, kind: str) -> list[bool]:
    """For each period, whether the condition may be true of one of its rows."""
    if isinstance(node, tree.And | tree.Or):
        joined = all if isinstance(node, tree.And) else any
        return [joined(each) for each in zip(*(_may(part, periods, kind) for part in node.parts), strict=True)]
    tests = _tests(node)
    ends = None if tests is None else _ends(tests[0], periods, kind)
    if tests is None or ends is None:
        return [True] * periods.count
    try:
        bounds = [(sign, literal(of.value, ends[0])) for sign, of in tests[1]]
    except ArgumentError:  # the question is refused elsewhere
        return [True] * periods.count

    def meets(sign: str, bound: Any, low: Any, high: Any) -> bool:  # a value from low to high may stand on the left
        test = {"<": low < bound, "<=": low <= bound, ">": high > bound, ">=": high >= bound, "=": low <= bound <= high}
        return bool(test[sign])

    return [any(meets(sign, bound, *each) for sign, bound in bounds) for each in ends[1]]


def _tests(node: tree.Condition) -> tuple[tree.Expression, list[tuple[str, tree.Literal]]] | None:
    """An expression, and comparisons of it one of which is true where the condition is; None where there are none."""
    match node:
        case tree.In(column, values):
            return column, [("=", value) for value in values]
        case tree.Compare(sign, left, tree.Literal() as right) if sign in _TURNED:
            return left, [(sign, right)]
        case tree.Compare(sign, tree.Literal() as left, right) if sign in _TURNED:
            return right, [(_TURNED[sign], left)]
    return None


def _ends(node: tree.Expression, periods: Periods, kind: str) -> tuple[str, list[tuple[Any, Any]]] | None:
    """The kind, and the first and last value in each period, of an expression that never falls as time goes on."""
    match node:
        case tree.Column(name) if name == periods.column:
            if kind == "date":
                return "date", list(periods.days)
            ends = [(datetime.combine(low, time.min), datetime.combine(high, time.max)) for low, high in periods.days]
            return "time", ends
        case tree.Call(name, (tree.Column(of),)) if of == periods.column and name in _DATES:
            every = "day" if name == "date" else name
            return "date", [(start_of(every, low), start_of(every, high)) for low, high in periods.days]
        case tree.Call("year", (tree.Column(of),)) if of == periods.column:
            return "number", [(low.year, high.year) for low, high in periods.days]
    return None


class AnalystId(NamedTuple):
    analyst: str
    purpose: str | None


@dataclass(frozen=True, slots=True)
class SoFar:
    """Public facts of a ledger for one analyst and purpose, as of its entry ``head``, with its answers' public parts.

    ``left_by_period`` is what a person has left, in units, who paid the highest price of every question so far; by the
    first day of the period from which on it is so much.
    """

    head: str
    analyst: str
    purpose: str | None
    left_by_period: Mapping[str, int]
    answers: tuple[Mapping[str, Any], ...] = field(repr=False)
    latest: Mapping[Any, Mapping[str, Any]] = field(repr=False)  # of these, by what they ask

    @classmethod
    def read(cls, ledger: Ledger, analyst: str, purpose: str | None, before: "SoFar | None") -> "SoFar":
        """The state now; ``before``, if nothing was recorded since: else only what is new is read."""

        def work() -> SoFar:
            head, own = ledger.head, before
            if own is None or (own.analyst, own.purpose) != (analyst, purpose):
                own = SoFar("-1:", analyst, purpose, {"": 0}, (), {})
            if own.head == head:
                return own
            new = [e.public for e in answered(ledger, analyst, purpose, after=int(own.head.partition(":")[0]))]
            left = ledger.left_by_period(analyst, purpose)
            latest = {_frozen(without(each["question"])): each for each in new}
            return cls(head, analyst, purpose, left, (*own.answers, *new), {**own.latest, **latest})

        return ledger.snapshot(work)

    @property
    def left(self) -> int:
        """The least of ``left_by_period``."""
        return min(self.left_by_period.values())

    def left_in(self, periods: tuple[str, str] | None) -> int:
        """Units left at worst to a question about the periods from a first to a last one; to any, for None."""
        if periods is None:
            return self.left
        starts = [*self.left_by_period, "9999"]
        runs = zip(starts, starts[1:], self.left_by_period.values(), strict=False)
        return min(units for start, beyond, units in runs if start <= periods[1] and beyond > periods[0])

    def find(self, key: str) -> Entry | None:
        """The entry of the answer under a key, if it is one of these; without its number and hash."""
        return next((Entry(-1, dict(public), "") for public in self.answers if public["key"] == key), None)

    def released(self, values: Mapping[str, Any]) -> Sequence[int] | None:
        """The noisy sums of the latest answer to the same question, with whatever clip and noise."""
        return cast(Sequence[int] | None, self.latest.get(_frozen(without(values)), {}).get("released"))


def _frozen(value: Any) -> Any:
    """Plain values as a key of a table: equal where they are."""
    if isinstance(value, Mapping):
        return frozenset((name, _frozen(each)) for name, each in value.items())
    return tuple(map(_frozen, value)) if isinstance(value, list | tuple) else value


def answered(ledger: Ledger, analyst: str, purpose: str | None, *, after: int = -1) -> list[Entry]:
    """The entries of an analyst's answers for a purpose, in order, from the one after ``after`` on."""
    entries = ledger.entries("answered", "shared", after=after)  # the second stands for an earlier one, and is free
    return [e for e in entries if (e.public["analyst"], e.public["purpose"]) == (analyst, purpose)]
