"""A ledger that stays small: charges of old questions become one total per person; and how large it is.

What single questions charged is forgotten; accounts, limits, answers and the record stay. The charges of one analyst
for one purpose are added up apart from others, so that limits which are set later count them.

Source: docs/ledger.md, "Size"
"""

from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, date, datetime

from almoner.errors import ArgumentError, LedgerError
from almoner.ledger._accounts.tables import TableAccounts
from almoner.ledger._ledger import Ledger
from almoner.ledger._record.entries import read_rows
from almoner.ledger._record.rules import CHARGING
from almoner.ledger._stores.file import File
from almoner.ledger._transaction import Transaction

__all__ = ["Size", "compact", "size", "without_gaps"]


@dataclass(frozen=True, slots=True)
class Size:
    """Size of a ledger. Private, because of the numbers of people and charges.

    Attributes:
        bytes: on the disk, or in the server's tables and indexes.
        entries: of the record.
        people: who have an account.
        charges: single charges that are stored.
        merged: the number of the last entry whose charges were merged; None where there is none.
    """

    bytes: int
    entries: int
    people: int
    charges: int
    merged: int | None


def compact(ledger: Ledger, *, before: date | str | None = None) -> int:
    """Merge what single questions, trainings and updates charged each person into one total per person.

    Totals are kept apart for each analyst and purpose. Nobody's account changes, nor any limit, answer or entry. A
    statement then lists one line for what was merged, and ``verify`` says what it can no longer check.

    Args:
        ledger: open, with its accounts in tables.
        before: merge what was asked before this day (UTC), or time; a date, or text as "2026-01-31". None: everything
            so far.

    Returns:
        The number of the last entry whose charges are merged now: everything before the first training that was open
        then, or was settled later. -1 where there is nothing.

    Raises:
        ArgumentError: before is no day, or accounts are in files.
        LedgerError: the ledger is as it was, or compacted but not smaller.

    Guarantee: each person remains charged the same units in all, for each analyst and for each purpose.
    Source: docs/ledger.md, "Size".
    """
    limit = _moment(before)
    accounts = ledger.accounts
    if not isinstance(accounts, TableAccounts):
        raise ArgumentError("ledger: accounts in Parquet files are not compacted")
    ledger.refuse_inside("nothing is compacted")

    def work(transaction: Transaction) -> int:
        rows = read_rows(ledger.store.run, f"kind IN {CHARGING!r}", answers=False)
        old = [row.number for row in rows if limit is None or row.entry().public["time"] < limit]
        through = transaction.mergeable(max(old, default=-1))
        stored = {int(question) for (question,) in ledger.store.run("SELECT DISTINCT question FROM ledger.charges")}
        groups: dict[tuple[str, str | None], list[int]] = {}
        for row in rows:
            if row.number <= through:
                groups.setdefault((str(row.analyst), row.purpose), []).extend({row.number} & stored)
        for (analyst, purpose), numbers in groups.items():
            if len(numbers) > 1:
                note = accounts.merge(transaction.number + 1, numbers)
                whose = {"analyst": analyst, "purpose": purpose}
                transaction.append({"kind": "merged", **whose, "through": through}, note)
        return through

    through = ledger.transact(work)
    without_gaps(ledger)
    return through


def without_gaps(ledger: Ledger) -> None:
    """Write the file of a ledger anew; a server has a vacuum of its own."""
    if isinstance(ledger.store, File):
        ledger.store.shrink()


def size(ledger: Ledger) -> Size:
    """Measure a ledger: bytes, people and charges. Private.

    Args:
        ledger: open, with its accounts in tables.
    """
    if not isinstance(ledger.accounts, TableAccounts):
        raise ArgumentError("ledger: accounts in Parquet files are as large as their folder")

    def work() -> Size:
        run = ledger.store.run
        entries, people, charges = (
            int(run(f"SELECT count(*) FROM ledger.{table}")[0][0]) for table in ("record", "accounts", "charges")
        )
        merged = [row.entry().public["through"] for row in read_rows(run, "kind = 'merged'")]
        return Size(_bytes(ledger), entries, people, charges, max(merged, default=None))

    return ledger.snapshot(work)


def _moment(before: date | str | None) -> str | None:
    """A day or time as the record writes times, which are in the order of their text."""
    if before is None:
        return None
    moment: date = datetime.min
    try:
        moment = datetime.fromisoformat(before) if isinstance(before, str) else before
    except ValueError:
        raise ArgumentError(f'before={before!r} must be a day or time, as "2026-01-31"') from None
    if not isinstance(moment, date):
        raise ArgumentError(f"before={before!r} must be a day or time")
    if not isinstance(moment, datetime):
        moment = datetime(moment.year, moment.month, moment.day, tzinfo=UTC)
    return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).astimezone(UTC).isoformat(timespec="milliseconds")


def _bytes(ledger: Ledger) -> int:
    path = ledger.store.path
    if path is None:
        tables = ("record", "accounts", "shares", "charges")
        sizes = [ledger.store.run(f"SELECT pg_total_relation_size('ledger.{table}'::regclass)") for table in tables]
        return sum(int(rows[0][0]) for rows in sizes)
    found = 0
    for each in (path, path.with_name(path.name + ".wal")):
        with suppress(OSError):
            found += each.stat().st_size
    if not found:
        raise LedgerError(f"{ledger.store.name} is not there", reason="missing")
    return found
