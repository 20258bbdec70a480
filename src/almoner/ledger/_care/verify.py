"""Checking a ledger: the record is unbroken, and the accounts are what the record says."""

import json
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property

from almoner._units import exact
from almoner.errors import DataError, LedgerError
from almoner.ledger._ledger import Ledger
from almoner.ledger._record.datasets import Dataset
from almoner.ledger._record.entries import START, Entry, Row, digest, filed_under, plain, seal
from almoner.ledger._record.rules import CHARGING, Rules
from almoner.ledger.interfaces import Consistency, Payment

__all__ = ["Finding", "check_export", "export", "verify"]


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that was checked, in words, and whether it holds."""

    what: str
    holds: bool


def verify(ledger: Ledger, *, head: str | None = None) -> list[Finding]:
    """Check a ledger, for the data holder.

    Args:
        ledger: an open ledger.
        head: what ``ledger.head`` said at some time in the past.

    Returns:
        What was checked. Whether it holds says nothing about single people.
    """

    def work() -> list[Finding]:
        checks = _Checks(ledger)
        due = [*_CHECKS, *(check for kind, check in _CHECKS_OF_KINDS.items() if checks.has_kind(kind))]
        findings = [Finding(what, _holds(check, checks)) for what, check in due]
        if head is not None:
            findings.append(Finding("the entry that was the last once is still there", checks.has(head)))
        return findings

    return ledger.snapshot(work)


def export(ledger: Ledger) -> Iterator[str]:
    """The record line by line as JSON, without its private parts but with their digests: the chain can be checked.

    It shows when a person left or returned, but not who: give it to auditors, not to analysts.
    """
    for row in ledger.rows():
        yield plain(
            {
                "number": row.number,
                "public": json.loads(row.public),
                "private": digest(row.private),
                "hash": row.hash,
            }
        )


def check_export(lines: Iterable[str]) -> int:
    """Count the entries of an exported record; refuse a broken chain."""
    before, count = START, 0
    for line in lines:
        try:
            entry = json.loads(line)
            right = entry["number"] == count and entry["hash"] == seal(
                before, count, plain(entry["public"]), entry["private"]
            )
        except (ValueError, KeyError, TypeError):
            right = False
        if not right:
            raise DataError(f"entry {count}: the chain is broken here")
        before, count = entry["hash"], count + 1
    if not count:
        raise DataError("there is not even a first entry")
    return count


class _Checks:
    """Comparisons of the record, read once, with the accounts. Every check may raise on what is not even an entry."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        self._accounts = ledger.accounts

    @cached_property
    def _rows(self) -> list[Row]:
        return self._ledger.rows()

    @cached_property
    def _rules(self) -> Rules:
        return Rules.of(self._rows)

    @cached_property
    def _answered(self) -> list[Entry]:
        return [row.entry(private=True) for row in self._rows if row.kind in CHARGING]

    @cached_property
    def _consistency(self) -> Consistency:
        return self._accounts.consistent(self._rules.chargeable, self._rules.settled)

    def unbroken(self) -> bool:
        before = START
        for place, row in enumerate(self._rows):
            if row.number != place or seal(before, place, row.public, digest(row.private)) != row.hash:
                return False
            before = row.hash
        return bool(self._rows) and self._rows[0].entry().kind == "opened"

    def filed(self) -> bool:
        return all(
            filed_under(row.entry().public) == (row.kind, row.key, row.analyst, row.purpose, row.reserved)
            for row in self._rows
        )

    def has_kind(self, kind: str) -> bool:
        """True if there are entries of a kind."""
        return any(row.kind == kind for row in self._rows)

    @cached_property
    def _erased(self) -> dict[int, int]:
        """The units of each person who was erased, by the entry that did it last."""
        last = set(self._rules.erased.values())
        entries = [row.entry(private=True) for row in self._rows if row.kind == "erased"]
        return {entry.number: int(entry.private["units"]) for entry in entries if entry.number in last}

    def _is_merged(self, entry: Entry) -> bool:
        whose = (entry.public["analyst"], entry.public["purpose"])
        return entry.number <= self._rules.merged.get(whose, -1)

    def questions(self) -> bool:
        totals = {question: (total.units, total.people) for question, total in self._accounts.totals().items()}
        charged = {
            entry.number: entry.private
            for entry in self._answered
            if entry.private["people"] and not self._is_merged(entry)
        }
        recorded = {number: (note["units"], note["people"]) for number, note in charged.items()}
        if not self._erased:
            return totals == recorded
        questions = {number: total for number, total in totals.items() if number not in self._erased}
        return questions.keys() <= recorded.keys() and all(
            self._less(number, questions.get(number, (0, 0)), whole) for number, whole in recorded.items()
        )

    def _less(self, number: int, total: tuple[int, int], whole: tuple[int, int]) -> bool:
        """True if charges are those that were recorded, but for people who were erased since."""
        since = sum(number < entry for entry in self._erased)
        units = abs(whole[0]) - abs(total[0])  # what trainings gave back is below 0
        people = whole[1] - total[1]
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
            whose = (entry.public["analyst"], entry.public["purpose"])
            if entry.kind == "merged":
                if not self._is_merged(entry):
                    left[whose] = left.get(whose, 0) - int(entry.private["units"])
            elif self._is_merged(entry):
                left[whose] = left.get(whose, 0) + int(entry.private["units"])
        if self._erased:  # the sum over all is compared in totals_of_erased
            return all(each >= 0 for each in left.values())
        return not any(left.values())

    def sums(self) -> bool:
        return self._consistency.sums

    def within(self) -> bool:
        most = self._rules.terms.budget  # of what was merged: its questions' prices say nothing of a sum
        prices = {
            entry.number: most if entry.kind == "merged" else int(entry.public.get("price", 0))
            for entry in self._answered
        } | dict.fromkeys(self._erased, most)
        dear = any(total.most > prices.get(question, -1) for question, total in self._accounts.totals().items())
        return self._consistency.budget and not dear

    def trainings(self) -> bool:
        reserved = {entry.number: str(entry.public["key"]) for entry in self._answered if entry.kind == "training"}
        back = {entry.number: entry for entry in self._answered if entry.kind == "settled"}
        same = all(
            entry.public["of"] == self._rules.settled[number]
            and entry.public["training"] == reserved.get(entry.public["of"])
            for number, entry in back.items()
        )
        return same and len(set(self._rules.settled.values())) == len(back) and self._consistency.budget

    def streams(self) -> bool:
        begun, updates = {}, {}
        for entry in (row.entry() for row in self._rows if row.kind in ("stream", "update")):
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
            public = answered.entry.public
            if answered.entry.kind in ("settled", "merged"):
                continue
            payment, spare = Payment(public.get("pace")), public.get("spare", 0)
            lefts = (answered.left, answered.left_by_budget)
            floors = [payment.floor(left - spare, int(public["price"])) for left in lefts]
            if public.get("floor", floors[0]) not in floors:
                return False
        return True

    def shares(self) -> bool:
        everywhere = list(self._erased)  # what single questions charged people who were erased is forgotten
        return self._accounts.shares_hold(
            {scope: [*self._rules.asked.get(scope, []), *everywhere] for scope in self._rules.limits}
        )

    def gone(self) -> bool:
        return self._rules.gone == self._accounts.gone()

    def delta(self) -> bool:
        charged = {
            entry.public["question"]: exact(entry.public["delta"])
            for entry in (row.entry() for row in self._rows if row.kind == "delta")
        }
        cost = {
            str(entry.public["key"]): exact(entry.public["delta"])
            for entry in self._answered
            if "delta" in entry.public
        }
        declared = self._rules.terms.keys_delta
        return charged == cost and self._rules.delta == sum(cost.values()) <= exact(declared or 0)

    def datasets(self) -> bool:
        known: dict[str, Dataset] = {}
        answered = {entry.number: entry.public for entry in self._answered}
        for row in self._rows:
            if row.kind == "dataset":
                new = Dataset.read(row.entry().public, row.number)
                if new.version != (known[new.name].version + 1 if new.name in known else 1):
                    return False
                known[new.name] = new
            elif row.kind == "answered" and known:
                public = answered[row.number]
                said = {name: known[name].number for name in public["declared"]}
                if public["dataset"] not in said or said != public["declared"]:
                    return False
        return True

    def has(self, head: str) -> bool:
        number, _, hash_ = head.partition(":")
        return number.isdecimal() and any(row.number == int(number) and row.hash == hash_ for row in self._rows)


_CHECKS: list[tuple[str, Callable[[_Checks], bool]]] = [
    ("the chain of hashes is unbroken, from the first entry to the last", _Checks.unbroken),
    ("every entry is filed under its own key, analyst and purpose", _Checks.filed),
    ("the charges of every question add up to its recorded total", _Checks.questions),
    ("every account is the sum of its charges", _Checks.sums),
    ("no account is above the budget, and no charge above the price of its question", _Checks.within),
    ("every training gave back, once at most, no more than it had reserved for each person", _Checks.trainings),
    ("the updates of every stream follow one another, under its own analyst and purpose", _Checks.streams),
    ("what every person could pay at least for each question follows from what the record said before", _Checks.floors),
    ("what keys that were not public cost in delta adds up to at most what was declared", _Checks.delta),
    ("the limited shares are the sums of the charges that they limit", _Checks.shares),
    ("who left and who returned is what the record says", _Checks.gone),
]


_CHECKS_OF_KINDS: dict[str, tuple[str, Callable[[_Checks], bool]]] = {
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
}
"""Checks that are due where the record has entries of a kind."""


def _holds(check: Callable[[_Checks], bool], checks: _Checks) -> bool:
    try:
        return check(checks)
    except (ValueError, LookupError, TypeError, AttributeError, LedgerError):  # an entry that is not even an entry
        return False
