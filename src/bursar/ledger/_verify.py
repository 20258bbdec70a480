"""Checking a ledger: the record is unbroken, and the accounts are what the record says."""

import json
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from bursar.errors import DataError, LedgerError
from bursar.ledger._ledger import Ledger
from bursar.ledger._record import START, digest, plain, seal

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
    checks: list[tuple[str, Callable[[Ledger], bool]]] = [
        ("the chain of hashes is unbroken, from the first entry to the last", _unbroken),
        ("every entry is filed under its own key, analyst and purpose", _filed),
        ("the charges of every question add up to its recorded total", _questions),
        ("every account is the sum of its charges", _accounts),
        ("no account is above the budget, and no charge above the price of its question", _within),
        ("the limited shares are the sums of the charges that they limit", _shares),
        ("who left and who returned is what the record says", _tombstones),
    ]

    def work() -> list[Finding]:
        found = [Finding(what, _guarded(check, ledger)) for what, check in checks]
        if head is not None:
            found.append(Finding("the entry that was the last once is still there", _has(ledger, head)))
        return found

    return ledger.store.snapshot(work)


def export(ledger: Ledger) -> Iterator[str]:
    """The record line by line as JSON, without its private parts but with their digests: the chain can be checked.

    It shows when somebody left or returned, but not who: give it to auditors, not to analysts.
    """
    for number, public, private, found in ledger.store.run(
        "SELECT number, public, private, hash FROM ledger.record ORDER BY number"
    ).fetchall():
        yield plain({"number": number, "public": json.loads(public), "private": digest(private), "hash": found})


def check_export(lines: Iterable[str]) -> int:
    """How many entries an exported record has; refuses a broken chain."""
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


def _guarded(check: Callable[[Ledger], bool], ledger: Ledger) -> bool:
    try:
        return check(ledger)
    except (ValueError, LookupError, TypeError, LedgerError):  # an entry that is not even an entry
        return False


def _rows(ledger: Ledger, sql: str) -> list[tuple[Any, ...]]:
    found: list[tuple[Any, ...]] = ledger.store.run(sql).fetchall()
    return found


def _unbroken(ledger: Ledger) -> bool:
    before = START
    rows = _rows(ledger, "SELECT number, public, private, hash FROM ledger.record ORDER BY number")
    for place, (number, public, private, found) in enumerate(rows):
        if number != place or seal(before, number, public, digest(private)) != found:
            return False
        before = found
    return bool(rows) and json.loads(rows[0][1])["kind"] == "opened"


def _filed(ledger: Ledger) -> bool:
    for public, *found in _rows(ledger, "SELECT public, kind, key, analyst, purpose, reserved FROM ledger.record"):
        told = json.loads(public)
        filed = told.get("name") if told["kind"] == "reserved" else told.get("key")
        if found != [told["kind"], filed, told.get("analyst"), told.get("purpose"), told.get("reserved")]:
            return False
    return True


def _questions(ledger: Ledger) -> bool:
    totals = {question: (units, people) for question, (units, people, _) in ledger.keeper.totals().items()}
    recorded = {
        entry.number: (entry.private["units"], entry.private["people"])
        for entry in ledger.entries("answered")
        if entry.private["people"]
    }
    return totals == recorded


def _accounts(ledger: Ledger) -> bool:
    return ledger.keeper.consistent(_budget(ledger))[0]


def _within(ledger: Ledger) -> bool:
    prices = {entry.number: int(entry.public["price"]) for entry in ledger.entries("answered")}
    dear = any(most > prices.get(question, -1) for question, (_, _, most) in ledger.keeper.totals().items())
    return ledger.keeper.consistent(_budget(ledger))[1] and not dear


def _budget(ledger: Ledger) -> int:
    """What may be charged to anybody: without what a watch took from all."""
    watched = sum(int(entry.public["units"]) for entry in ledger.entries("watched"))
    return int(ledger.entries("opened")[0].public["budget"]) - watched


def _shares(ledger: Ledger) -> bool:
    scopes: dict[str, list[int]] = {entry.public["scope"]: [] for entry in ledger.entries("limited")}
    for number, analyst, purpose in _rows(
        ledger, "SELECT number, analyst, purpose FROM ledger.record WHERE kind = 'answered' ORDER BY number"
    ):
        for scope in (f"analyst:{analyst}", f"purpose:{purpose}" if purpose is not None else None):
            if scope in scopes:
                scopes[scope].append(number)
    return ledger.keeper.shares_hold(scopes)


def _tombstones(ledger: Ledger) -> bool:
    gone: set[Any] = set()
    for entry in ledger.entries():
        if entry.kind == "retired":
            gone.add(entry.private["person"])
        elif entry.kind == "returned":
            gone.discard(entry.private["person"])
    return gone == ledger.keeper.gone()


def _has(ledger: Ledger, head: str) -> bool:
    number, _, found = head.partition(":")
    if not number.isdecimal():
        return False
    return bool(
        ledger.store.run("SELECT 1 FROM ledger.record WHERE number = ? AND hash = ?", [int(number), found]).fetchall()
    )
