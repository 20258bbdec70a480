"""Checks of a ledger: the record is unbroken, the accounts are what the record says; and its summary."""

import json
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from almoner._units import exact
from almoner.errors import DataError, LedgerError
from almoner.ledger._ledger import Ledger
from almoner.ledger._payment import Consistency, Payment
from almoner.ledger._record.datasets import Dataset
from almoner.ledger._record.entries import START, Entry, Row, digest, filed_under, plain, seal
from almoner.ledger._record.rules import CHARGING, Rules


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that was checked, in words, and whether it holds."""

    what: str
    holds: bool


def verify(ledger: Ledger, *, head: str | None = None) -> list[Finding]:
    """Check a ledger, for the data holder; whether something holds says nothing about single people.

    Args:
        ledger: an open ledger.
        head: what ``ledger.head`` said at some time in the past.
    """

    def work() -> list[Finding]:
        checks = _Checks(ledger)
        kinds = {row.kind for row in checks.rows}
        due = _ALWAYS | dict(check for kind, check in _WHERE.items() if kind in kinds)
        findings = [Finding(what, _holds(check, checks)) for what, check in due.items()]
        if head is not None:
            findings.append(Finding("the entry that was the last once is still there", checks.has(head)))
        return findings

    return ledger.snapshot(work)


def export(ledger: Ledger) -> Iterator[str]:
    """The record line by line as JSON, without its private parts but with their digests: the chain can be checked.

    It shows when a person left or returned, but not who: give it to auditors, not to analysts.
    """
    for row in ledger.rows():
        shown = {"number": row.number, "public": json.loads(row.public), "hash": row.hash}
        yield plain({**shown, "private": digest(row.private)})


def check_export(lines: Iterable[str]) -> int:
    """Count the entries of an exported record; refuse a broken chain."""
    before, count = START, 0
    for line in lines:
        try:
            entry = json.loads(line)
            sealed = seal(before, count, plain(entry["public"]), entry["private"])
            right = entry["number"] == count and entry["hash"] == sealed
        except (ValueError, KeyError, TypeError):
            right = False
        if not right:
            raise DataError(f"entry {count}: the chain is broken here")
        before, count = entry["hash"], count + 1
    if not count:
        raise DataError("there is not even a first entry")
    return count


def check_export_file(path: Path) -> tuple[int, str]:
    """Check the chain of hashes in a file of lines that ``export`` gave.

    Returns:
        The number of entries, and the head: compare it with a ``ledger.head`` that was kept elsewhere, since a chain
        that was cut off at the end is unbroken.

    Raises:
        LedgerError: the file cannot be read.
        DataError: the chain is broken, or a line is no entry.
    """
    try:
        text = path.read_text(encoding="utf-8").removesuffix("\n")
    except (OSError, UnicodeDecodeError):
        raise LedgerError(f"{path} cannot be read") from None
    lines = text.split("\n") if text else []  # not splitlines(): text in the entries may hold other ends of lines
    count, last = check_export(lines), json.loads(lines[-1])
    return count, f"{last['number']}:{last['hash']}"


@dataclass(frozen=True, slots=True)
class Summary:
    """The terms of a ledger and the questions that were answered, without their answers. Every field is public.

    Attributes:
        terms: measure, epsilon, delta and amount of the budget (under the name of its symbol, rho or epsilon), the kind
            of people's names, and when it was made; the periods, where there are any.
        entries: the number of entries of the record.
        head: number and hash of the last entry, as ``verify`` takes it.
        questions: number, time, analyst, purpose, key, question and "rho at most" (or epsilon) of each, in order; and
            the data set, where the ledger knows some.
    """

    terms: dict[str, Any]
    entries: int
    head: str
    questions: tuple[dict[str, Any], ...]


def summary(ledger: Ledger) -> Summary:
    """The terms of an open ledger, its head, and every question that was answered, with its worst-case price."""
    entries, head = ledger.entries(), ledger.head
    first = entries[0].public
    terms = {name: first[name] for name in ("measure", "epsilon", "delta", "person", "time")}
    if ledger.terms.keys_delta is not None:
        terms["keys_delta"] = ledger.terms.keys_delta
    if ledger.periods is not None:
        terms["periods"] = ledger.periods.public | {"count": ledger.periods.count}
    terms[ledger.symbol] = first["budget"] / first["units"]
    names, at_most = ("time", "analyst", "purpose", "key", "dataset"), f"{ledger.symbol} at most"
    questions = tuple(
        {"number": entry.number, **{name: entry.public[name] for name in names if name in entry.public}}
        | {"question": entry.public.get("question", {}), at_most: entry.public["price"] / first["units"]}
        for entry in entries
        if entry.kind == "answered"
    )
    return Summary(terms, len(entries), head, questions)


class _Checks:
    """Comparisons of the record, read once, with the accounts. Every check may raise on what is not even an entry."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger, self._accounts = ledger, ledger.accounts

    @cached_property
    def rows(self) -> list[Row]:
        return self._ledger.rows()

    @cached_property
    def _rules(self) -> Rules:
        return Rules.of(self.rows)

    @cached_property
    def _answered(self) -> list[Entry]:
        return self.of_kind(*CHARGING)

    @cached_property
    def consistency(self) -> Consistency:
        return self._accounts.consistent(self._rules.chargeable, self._rules.settled)

    def unbroken(self) -> bool:
        before = START
        for place, row in enumerate(self.rows):
            if row.number != place or seal(before, place, row.public, digest(row.private)) != row.hash:
                return False
            before = row.hash
        return bool(self.rows) and self.rows[0].entry().kind == "opened"

    def filed(self) -> bool:
        return all(filed_under(row.entry().public) == row[1:6] for row in self.rows)  # kind to reserved

    def of_kind(self, *kinds: str) -> list[Entry]:
        return [row.entry(private=True) for row in self.rows if row.kind in kinds]

    @cached_property
    def _erased(self) -> dict[int, int]:
        """The units of each person who was erased, by the entry that did it last."""
        last = set(self._rules.erased.values())
        return {entry.number: int(entry.private["units"]) for entry in self.of_kind("erased") if entry.number in last}

    def _is_merged(self, entry: Entry) -> bool:
        return entry.number <= self._rules.merged.get((entry.public["analyst"], entry.public["purpose"]), -1)

    def questions(self) -> bool:
        totals = {question: (total.units, total.people) for question, total in self._accounts.totals().items()}
        charged = [entry for entry in self._answered if entry.private["people"] and not self._is_merged(entry)]
        recorded = {entry.number: (entry.private["units"], entry.private["people"]) for entry in charged}
        if not self._erased:
            return totals == recorded
        questions = {number: total for number, total in totals.items() if number not in self._erased}
        fewer = (self._less(number, questions.get(number, (0, 0)), whole) for number, whole in recorded.items())
        return questions.keys() <= recorded.keys() and all(fewer)

    def _less(self, number: int, total: tuple[int, int], whole: tuple[int, int]) -> bool:
        """True if charges are those that were recorded, but for people who were erased since."""
        since = sum(number < entry for entry in self._erased)
        units, people = abs(whole[0]) - abs(total[0]), whole[1] - total[1]  # what trainings gave back is below 0
        return 0 <= people <= since and units >= 0 and (people > 0 or units == 0)

    def totals_of_erased(self) -> bool:
        totals = self._accounts.totals()
        own = {number: totals[number].units if number in totals else 0 for number in self._erased}
        people = all(totals[number].people == 1 for number in self._erased if number in totals)
        recorded = sum(int(entry.private["units"]) for entry in self._answered if entry.kind != "merged")
        return own == self._erased and people and recorded == sum(total.units for total in totals.values())

    def totals_of_merged(self) -> bool:
        left: dict[tuple[str, str | None], int] = {}
        for entry in self._answered:
            merged = self._is_merged(entry)
            if merged != (entry.kind == "merged"):  # the totals that are in force, and what they stand for
                whose = (entry.public["analyst"], entry.public["purpose"])
                left[whose] = left.get(whose, 0) + (1 if merged else -1) * int(entry.private["units"])
        # where people were erased, the sum over all is compared in totals_of_erased
        return all(each >= 0 for each in left.values()) if self._erased else not any(left.values())

    def within(self) -> bool:
        most = self._rules.terms.budget  # of what was merged: its questions' prices say nothing of a sum
        prices = {entry.number: int(entry.public.get("price", 0)) for entry in self._answered}
        merged = [entry.number for entry in self._answered if entry.kind == "merged"]
        prices |= dict.fromkeys([*merged, *self._erased], most)
        dear = any(total.most > prices.get(question, -1) for question, total in self._accounts.totals().items())
        return self.consistency.budget and not dear

    def trainings(self) -> bool:
        reserved = {entry.number: str(entry.public["key"]) for entry in self._answered if entry.kind == "training"}
        back = {entry.number: entry for entry in self._answered if entry.kind == "settled"}
        told = {number: (entry.public["of"], entry.public["training"]) for number, entry in back.items()}
        same = told == {number: (of, reserved.get(of)) for number, of in self._rules.settled.items() if number in back}
        return same and len(set(self._rules.settled.values())) == len(back) and self.consistency.budget

    def streams(self) -> bool:
        begun, updates = {}, {}
        for entry in (row.entry() for row in self.rows if row.kind in ("stream", "update")):
            public = entry.public
            if entry.kind == "stream":
                begun[public["key"]], updates[public["key"]] = (public["analyst"], public["purpose"]), 0
                continue
            updates[public["stream"]] += 1
            whose = (public["analyst"], public["purpose"])
            if public["update"] != updates[public["stream"]] or whose != begun[public["stream"]]:
                return False
        return True

    def floors(self) -> bool:
        for answered in self._ledger.history():
            public, left = answered.entry.public, answered.left
            if answered.entry.kind not in ("settled", "merged"):
                floor = Payment(public.get("pace")).floor(left - public.get("spare", 0), int(public["price"]))
                if public.get("floor") != floor:
                    return False
        return True

    def shares(self) -> bool:
        asked, everywhere = self._rules.asked, list(self._erased)  # what single questions charged them is forgotten
        return self._accounts.shares_hold({each: asked.get(each, []) + everywhere for each in self._rules.limits})

    def gone(self) -> bool:
        return self._rules.gone == self._accounts.gone()

    def delta(self) -> bool:
        charged = {entry.public["question"]: exact(entry.public["delta"]) for entry in self.of_kind("delta")}
        asked = [entry.public for entry in self._answered if "delta" in entry.public]
        cost = {str(public["key"]): exact(public["delta"]) for public in asked}
        declared = exact(self._rules.terms.keys_delta or 0)
        return charged == cost and self._rules.delta == sum(cost.values()) <= declared

    def datasets(self) -> bool:
        known: dict[str, Dataset] = {}
        for entry in self.of_kind("dataset", "answered"):
            public = entry.public
            if entry.kind == "dataset":
                new = Dataset.read(public, entry.number)
                if new.version != (known[new.name].version + 1 if new.name in known else 1):
                    return False
                known[new.name] = new
            elif known:
                said = {name: known[name].number for name in public["declared"]}
                if public["dataset"] not in said or said != public["declared"]:
                    return False
        return True

    def has(self, head: str) -> bool:
        number, _, hash_ = head.partition(":")
        return number.isdecimal() and any(row.number == int(number) and row.hash == hash_ for row in self.rows)


_ALWAYS: dict[str, Callable[[_Checks], bool]] = {
    "the chain of hashes is unbroken, from the first entry to the last": _Checks.unbroken,
    "every entry is filed under its own key, analyst and purpose": _Checks.filed,
    "the charges of every question add up to its recorded total": _Checks.questions,
    "every account is the sum of its charges": lambda checks: checks.consistency.sums,
    "no account is above the budget, and no charge above the price of its question": _Checks.within,
    "every training gave back, once at most, no more than it had reserved for each person": _Checks.trainings,
    "the updates of every stream follow one another, under its own analyst and purpose": _Checks.streams,
    "what every person could pay at least for each question follows from what the record said before": _Checks.floors,
    "what keys that were not public cost in delta adds up to at most what was declared": _Checks.delta,
    "the limited shares are the sums of the charges that they limit": _Checks.shares,
    "who left and who returned is what the record says": _Checks.gone,
}
_WHERE: dict[str, tuple[str, Callable[[_Checks], bool]]] = {
    "merged": (
        "what was merged adds up, for each analyst and purpose, to what those questions recorded; what single ones of "
        "them charged is not there to be checked",
        _Checks.totals_of_merged,
    ),
    "erased": (
        "with the totals of people who were erased, all charges add up to what was recorded; what single questions "
        "charged these people is not there to be checked",
        _Checks.totals_of_erased,
    ),
    "dataset": (
        "since data sets are declared, every question says which ones it was about, by their declarations then",
        _Checks.datasets,
    ),
}  # checks that are due where the record has entries of a kind


def _holds(check: Callable[[_Checks], bool], checks: _Checks) -> bool:
    try:
        return check(checks)
    except (ValueError, LookupError, TypeError, AttributeError, LedgerError):  # an entry that is not even an entry
        return False
