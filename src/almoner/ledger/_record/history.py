"""Entries that charged people: with what was in force before each, or with what they charged these people."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from almoner.ledger._names import Person
from almoner.ledger._record.entries import Entry, Row, Run, read_rows
from almoner.ledger._record.rules import CHARGING, Allowance, Rules
from almoner.ledger.interfaces import Charge

__all__ = ["Answered", "history", "net_charges"]


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


def net_charges(run: Run, charges: Mapping[Person, Sequence[Charge]]) -> dict[Person, list[tuple[Entry, int]]]:
    """Entries that charged these people, each with the units in the end: without what a training gave back. Private.

    Args:
        run: executes SQL where the ledger is.
        charges: units by name of the account and number of the entry, as accounts keep them; what is given back is
            below zero. Private.
    """
    charged = {name: dict(listed) for name, listed in charges.items()}
    listed = ", ".join(f"{number:d}" for number in sorted({n for each in charged.values() for n in each})) or "-1"
    entries = [row.entry() for row in read_rows(run, f"number IN ({listed})")]
    for entry in entries:
        for units in charged.values():
            if entry.kind == "settled" and entry.number in units:
                units[int(entry.public["of"])] += units[entry.number]
    remain = [entry for entry in entries if entry.kind != "settled"]
    return {
        name: [(entry, units[entry.number]) for entry in remain if entry.number in units]
        for name, units in charged.items()
    }


def _periods_in(entry: Entry) -> Sequence[str] | None:
    """The periods that a question can be about, as its entry says."""
    return entry.public.get("periods") if entry.kind == "answered" else None
