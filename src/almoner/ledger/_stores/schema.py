"""The tables of a ledger, and their version: a ledger of another one is refused."""

from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from typing import Any

from almoner.errors import LedgerError
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
VERSION = 4  # of the tables that this program reads and writes


def make(run: Run, first: Sequence[object], **spelling: str) -> None:
    """Make the tables, in the engine's ``spelling``, and the row of the first entry, in the caller's transaction."""
    for statement in TABLES.format(**dict.fromkeys(("key", "often", "scoped", "asked"), "") | spelling).split(";"):
        if statement.strip():
            run(statement)
    now = datetime.now(UTC).isoformat(timespec="seconds")
    run("INSERT INTO ledger.ledger_format(version, since) VALUES (?, ?)", [VERSION, now])
    insert(run, first)


def unconfirmed(what: str) -> LedgerError:
    """The refusal where nobody knows whether a transaction was written."""
    cure = "open the ledger again and ask with the same key"
    told = f"{what}. Nothing was revealed. What was asked is either recorded whole or not at all: {cure}"
    return LedgerError(told, reason="closed")


def check_version(name: str, run: Run) -> None:
    ((version,),) = run("SELECT max(version) FROM ledger.ledger_format")
    if version != VERSION:
        raise LedgerError(
            f"{name} is of version {version}, and this program reads version {VERSION}: open it with the release "
            "of Almoner that made it, or make a new ledger with create=True at another place"
        )
