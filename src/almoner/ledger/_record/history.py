"""Every entry that charged people, with what was in force before it."""

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from almoner.ledger._names import Person
from almoner.ledger._record.entries import Entry, Row
from almoner.ledger._record.rules import CHARGING, Allowance, Rules

__all__ = ["Answered", "history"]


class Answered(NamedTuple):
    """An entry that charges people, and what was in force before it. Private, because of ``gone``.

    Fields:
        entry: a question's; or a training's, where it reserved or settled.
        allowance: the most that each person may have spent after it.
        gone: the people who had left.
        left: units that every person had left for it at least, by what is public; see ``Rules.left``.
        left_by_budget: the same as older versions stated it; see ``Rules.left_by_budget``.
    """

    entry: Entry
    allowance: Allowance
    gone: frozenset[Person]
    left: int
    left_by_budget: int


def history(rows: Iterable[Row]) -> Iterator[Answered]:
    """Every entry that charged people or gave something back, in order, with what was in force before it."""
    rules = Rules()
    for row in rows:
        if row.kind in CHARGING:
            allowance = rules.allowance(analyst=str(row.analyst), purpose=row.purpose, reserved=row.reserved)
            entry, gone = row.entry(private=True), frozenset(rules.gone)
            places = rules.places(_periods_in(entry))
            lefts = rules.left(allowance, places), rules.left_by_budget(allowance, places)
            yield Answered(entry, allowance, gone, *lefts)
        rules.read(row)


def _periods_in(entry: Entry) -> Sequence[str] | None:
    """The periods that a question can be about, as its entry says."""
    return entry.public.get("periods") if entry.kind == "answered" else None
