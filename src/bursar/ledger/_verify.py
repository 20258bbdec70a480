"""Checking a ledger: the record is unbroken, and the accounts are what the record says."""

import json
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from bursar.errors import DataError, LedgerError
from bursar.ledger._book import Ledger
from bursar.ledger._chain import START, digest, plain, seal

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
    found = [Finding(what, _guarded(check, ledger)) for what, check in checks]
    if head is not None:
        found.append(Finding("the entry that was the last once is still there", _has(ledger, head)))
    return found


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
    return count


def _guarded(check: Callable[[Ledger], bool], ledger: Ledger) -> bool:
    try:
        return check(ledger)
    except (ValueError, LookupError, TypeError, LedgerError):  # an entry that is not even an entry
        return False


def _rows(ledger: Ledger, sql: str) -> list[tuple[Any, ...]]:
    found: list[tuple[Any, ...]] = ledger.store.run(sql).fetchall()
    return found


def _none(ledger: Ledger, sql: str) -> bool:
    """Whether a search for contradictions finds none."""
    return not _rows(ledger, f"SELECT 1 FROM ({sql}) LIMIT 1")


def _unbroken(ledger: Ledger) -> bool:
    before = START
    rows = _rows(ledger, "SELECT number, public, private, hash FROM ledger.record ORDER BY number")
    for place, (number, public, private, found) in enumerate(rows):
        if number != place or seal(before, number, public, digest(private)) != found:
            return False
        before = found
    return bool(rows) and json.loads(rows[0][1])["kind"] == "opened"


def _filed(ledger: Ledger) -> bool:
    for kind, key, analyst, purpose, public in _rows(
        ledger, "SELECT kind, key, analyst, purpose, public FROM ledger.record"
    ):
        told = json.loads(public)
        filed = told.get("name") if kind == "reserved" else told.get("key")
        if (kind, key, analyst, purpose) != (told["kind"], filed, told.get("analyst"), told.get("purpose")):
            return False
    return True


def _questions(ledger: Ledger) -> bool:
    totals = {
        question: (int(units), people)
        for question, units, people in _rows(
            ledger, "SELECT question, sum(units), count(*) FROM ledger.charges GROUP BY question"
        )
    }
    recorded = {
        entry.number: (entry.private["units"], entry.private["people"])
        for entry in ledger.entries("answered")
        if entry.private["people"]
    }
    return totals == recorded


def _accounts(ledger: Ledger) -> bool:
    twice = "SELECT person FROM ledger.accounts GROUP BY person HAVING count(*) > 1"
    different = (
        "SELECT 1 FROM (SELECT person, sum(units) AS units FROM ledger.charges GROUP BY person) c "
        "FULL JOIN ledger.accounts a ON a.person = c.person WHERE coalesce(c.units, 0) <> coalesce(a.spent, -1)"
    )
    return _none(ledger, twice) and _none(ledger, different)


def _within(ledger: Ledger) -> bool:
    budget = int(ledger.entries("opened")[0].public["budget"])
    above = f"SELECT 1 FROM ledger.accounts WHERE spent > {budget:d} OR spent < 0"
    negative = "SELECT 1 FROM ledger.charges WHERE units <= 0"
    dear = (
        "SELECT 1 FROM (SELECT question, max(units) AS most FROM ledger.charges GROUP BY question) c "
        "LEFT JOIN ledger.record r ON r.number = c.question "
        "WHERE c.most > coalesce(CAST(json_extract_string(r.public, '$.price') AS BIGINT), -1)"
    )
    return _none(ledger, above) and _none(ledger, negative) and _none(ledger, dear)


def _shares(ledger: Ledger) -> bool:
    scopes = {entry.public["scope"] for entry in ledger.entries("limited")}
    if {scope for (scope,) in _rows(ledger, "SELECT DISTINCT scope FROM ledger.shares")} - scopes:
        return False
    for scope in scopes:
        kind, _, whose = scope.partition(":")
        right = (
            "SELECT c.person, sum(c.units) AS units FROM ledger.charges c "
            "JOIN ledger.record r ON r.number = c.question "
            f"WHERE r.{'analyst' if kind == 'analyst' else 'purpose'} = ? GROUP BY c.person"
        )
        found = ledger.store.run(
            f"SELECT 1 FROM ({right}) c FULL JOIN (SELECT person, spent FROM ledger.shares WHERE scope = ?) s "
            "ON s.person = c.person WHERE coalesce(c.units, -1) <> coalesce(s.spent, -1) LIMIT 1",
            [whose, scope],
        ).fetchall()
        if found:
            return False
    return True


def _tombstones(ledger: Ledger) -> bool:
    gone: set[Any] = set()
    for entry in ledger.entries():
        if entry.kind == "retired":
            gone.add(entry.private["person"])
        elif entry.kind == "returned":
            gone.discard(entry.private["person"])
    return gone == {person for (person,) in _rows(ledger, "SELECT person FROM ledger.accounts WHERE gone")}


def _has(ledger: Ledger, head: str) -> bool:
    number, _, found = head.partition(":")
    if not number.isdecimal():
        return False
    return bool(
        ledger.store.run("SELECT 1 FROM ledger.record WHERE number = ? AND hash = ?", [int(number), found]).fetchall()
    )
