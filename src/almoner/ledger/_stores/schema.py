"""The tables of a ledger, their version, and the steps from older versions.

Every step is run once, in one transaction with all others that are due, and is noted with its time in the table
``ledger_format``. A ledger of a newer version is refused.
"""

import json
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from typing import Any

from almoner.errors import LedgerError
from almoner.ledger._interfaces import Store
from almoner.ledger._record.entries import insert

TABLES = """
CREATE TABLE ledger.ledger_format(version INTEGER NOT NULL, since {text});
CREATE TABLE ledger.record(number BIGINT NOT NULL{key}, kind {text} NOT NULL, key {text} UNIQUE, analyst {text},
    purpose {text}, reserved {text}, public {text} NOT NULL, private {text} NOT NULL, hash {text} NOT NULL);
CREATE TABLE ledger.accounts(person {person} NOT NULL{key}, spent BIGINT NOT NULL, gone BOOLEAN NOT NULL){often};
CREATE TABLE ledger.shares(scope {text} NOT NULL, person {person} NOT NULL, spent BIGINT NOT NULL{scoped}){often};
CREATE TABLE ledger.charges(question BIGINT NOT NULL, person {person} NOT NULL, units BIGINT NOT NULL{asked});
"""
"""Of the version below. The engine says how texts and people are stored, and which keys it checks."""

Run = Callable[..., Any]


def _reservations(run: Run) -> None:
    """Version 2: the record says in a column of its own which reservation an answer used."""
    run("ALTER TABLE ledger.ledger_format ADD COLUMN since VARCHAR")
    run("ALTER TABLE ledger.record ADD COLUMN reserved VARCHAR")
    for number, public in run("SELECT number, public FROM ledger.record WHERE kind = 'answered'"):
        used = json.loads(public).get("reserved")
        if used is not None:
            run("UPDATE ledger.record SET reserved = ? WHERE number = ?", [used, number])


STEPS: tuple[tuple[int, Callable[[Run], None]], ...] = ((2, _reservations),)
"""(the version that it leads to, the step), in order."""

VERSION = STEPS[-1][0]
"""Of the tables that this program reads and writes."""


def make(run: Run, first: Sequence[object], **spelling: str) -> None:
    """Make the tables, in the engine's ``spelling``, and the row of the first entry, in the caller's transaction."""
    places = dict.fromkeys(("key", "often", "scoped", "asked"), "")
    for statement in TABLES.format(**places | spelling).split(";"):
        if statement.strip():
            run(statement)
    noted(run, VERSION)
    insert(run, first)


def bring_up_to_date(store: Store) -> None:
    """Bring the tables of an older version to this program's, in one transaction; refuse those of a newer one."""
    ((version,),) = store.run("SELECT max(version) FROM ledger.ledger_format")
    if not isinstance(version, int) or version > VERSION:
        raise LedgerError(f"{store.name} is of version {version}; this program reads up to {VERSION}")

    def work() -> None:
        for leads_to, step in STEPS:
            if leads_to > version:
                step(store.run)
                noted(store.run, leads_to)

    if version < VERSION:
        store.transact(work)


def noted(run: Run, version: int) -> None:
    """Note that the tables are of a version from now on."""
    now = datetime.now(UTC).isoformat(timespec="seconds")
    run("INSERT INTO ledger.ledger_format(version, since) VALUES (?, ?)", [version, now])
