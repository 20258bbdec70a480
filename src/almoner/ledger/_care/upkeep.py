"""Upkeep of a ledger: copies, one total in the place of old charges, erasure of a person, triggers on a server.

Of a person who is erased one total must remain, or a person who returns would have a fresh budget. It is kept under the
keyed hash that a ledger with pseudonyms has in place of the name; so the name itself was never in the ledger.

Source: docs/ledger/size.md; docs/ledger/people.md, "Erasing a person"
"""

import re
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, date, datetime
from pathlib import Path

from almoner._disk import private_files, sync
from almoner._workspace import quoted, text
from almoner.errors import ArgumentError, LedgerError
from almoner.ledger._ledger import Ledger
from almoner.ledger._record.entries import read_rows
from almoner.ledger._record.rules import CHARGING
from almoner.ledger._stores.file import File
from almoner.ledger._stores.postgres import Postgres
from almoner.ledger._transaction import Transaction

_REFUSE = """
CREATE OR REPLACE FUNCTION ledger.refuse_change() RETURNS trigger LANGUAGE plpgsql SET search_path = pg_catalog AS '
BEGIN
    IF pg_has_role(current_user, (SELECT c.relowner FROM pg_class c WHERE c.oid = TG_RELID), ''MEMBER'') THEN
        RETURN CASE WHEN TG_OP = ''DELETE'' THEN OLD ELSE NEW END;
    END IF;
    RAISE EXCEPTION ''spending only grows, and the record is only appended to'' USING ERRCODE = ''42501'';
END'
"""
_FALLS = "NEW.spent < OLD.spent OR NEW.person IS DISTINCT FROM OLD.person"
_TRIGGERS = {
    "accounts_only_grow": f"BEFORE UPDATE ON ledger.accounts FOR EACH ROW WHEN ({_FALLS} OR OLD.gone AND NOT NEW.gone)",
    "accounts_begin": "BEFORE INSERT ON ledger.accounts FOR EACH ROW WHEN (NEW.spent < 0)",
    "shares_only_grow": f"BEFORE UPDATE ON ledger.shares FOR EACH ROW WHEN ({_FALLS})",
    "shares_begin": "BEFORE INSERT ON ledger.shares FOR EACH ROW WHEN (NEW.spent < 0)",
    "charges_stay": "BEFORE UPDATE OR DELETE ON ledger.charges FOR EACH ROW",
    "charges_begin": "BEFORE INSERT ON ledger.charges FOR EACH ROW WHEN (NEW.units < 0)",
    "record_stays": "BEFORE UPDATE OR DELETE ON ledger.record FOR EACH ROW",
}
GRANTS = (
    "USAGE ON SCHEMA {schema}",
    "SELECT ON ALL TABLES IN SCHEMA {schema}",
    "INSERT ON ledger.record, ledger.charges, ledger.accounts, ledger.shares",
    "UPDATE (spent, gone) ON ledger.accounts",
    "UPDATE (spent) ON ledger.shares",
    "UPDATE ON ledger.turn",
)  # to the role of a service, which answers and can change nothing that was recorded


@dataclass(frozen=True, slots=True)
class Size:
    """Size of a ledger. Private, because of the numbers of people and charges.

    ``bytes`` are on the disk, or in the server's tables and indexes; ``merged`` is the number of the last entry whose
    charges were merged; None where there is none.
    """

    bytes: int
    entries: int
    people: int
    charges: int
    merged: int | None


def backup(ledger: Ledger, to: Path | str) -> str:
    """Copy an open ledger to a new file, whole, while it is in use. PRIVATE, as the ledger is.

    Args:
        ledger: a file; a server has backups of its own.
        to: a file that is not there yet. It appears when it is whole.

    Returns:
        The head of the copy.

    Raises:
        ArgumentError: the ledger is on a server, or ``to`` is there already.
        LedgerError: the copy cannot be written.
    """
    to = Path(to)
    if ledger.store.path is None:
        raise ArgumentError("backup: copy a server's ledger with the server")
    if File(to).exists():  # refuses names of files beside a ledger, which are removed when that one is opened
        raise ArgumentError(f"{to} is there already: a backup is a new file")
    workspace, fresh = ledger.store.workspace, to.with_name(to.name + ".new")
    with ledger.store.lock:
        head, done = ledger.head, False
        with suppress(LedgerError, OSError), private_files():
            fresh.unlink(missing_ok=True)
            workspace.run(f"ATTACH {text(str(fresh))} AS backup (TYPE duckdb)")
            try:
                workspace.run("COPY FROM DATABASE ledger TO backup")
                workspace.run("CHECKPOINT backup")
            finally:
                workspace.run("DETACH backup")
            fresh.rename(to)
            sync(to.parent)
            done = True
    if not done:
        raise LedgerError(f"{to} cannot be written: is the folder there, and is there room?", reason="forbidden")
    return head


def restore(copy: Path | str, to: Path | str) -> str:
    """Put a backup in the place of a ledger that was lost, unless the ledger's witness saw anything newer.

    Args:
        copy: what ``backup`` wrote.
        to: where the ledger was; nothing of it may be there, nor its file ``.wal``.

    Returns:
        The head of the ledger, once it was opened and agrees with its witness.

    Raises:
        ArgumentError: there is something already, or the copy is missing.
        LedgerError: the backup is older than its witness; the message says how many entries are missing. Nothing
            is left at ``to``.
    """
    copy, to = Path(copy), Path(to)
    there = [each for each in (to, to.with_name(f"{to.name}.wal")) if each.exists()]  # the copy does not go with that
    if there or not copy.is_file():
        raise ArgumentError(f"{there[0]} is there already: move it away" if there else f"{copy} is not there")
    with Ledger.open(copy) as checked:
        checked.ask_witness()  # before it gets the name; opening asks it of no copy that may be read alone
        return backup(checked, to)


def compact(ledger: Ledger, *, before: date | str | None = None) -> int:
    """Merge what single questions, trainings and updates charged each person into one total per person.

    Totals are kept apart for each analyst and purpose. Nobody's account changes, nor any limit, answer or entry. A
    statement then lists one line for what was merged, and ``verify`` says what it can no longer check.

    Args:
        ledger: open.
        before: merge what was asked before this day (UTC), or time; a date, or text as "2026-01-31". None: everything
            so far.

    Returns:
        The number of the last entry whose charges are merged now: everything before the first training that was open
        then, or was settled later. -1 where there is nothing.

    Raises:
        ArgumentError: before is no day.
        LedgerError: the ledger is as it was, or compacted but not smaller.

    Guarantee: each person remains charged the same units in all, for each analyst and for each purpose.
    Source: docs/ledger/size.md.
    """
    limit, accounts = _moment(before), ledger.accounts
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
    if isinstance(ledger.store, File):  # a server has a vacuum of its own
        ledger.store.shrink()
    return through


def erase(ledger: Ledger, person: object) -> None:
    """Remove what single questions, trainings and updates charged a person; the total remains, and the person is out.

    A file is written anew, so that nothing remains in its gaps. The person is in no later answer, as after
    ``Ledger.retire``. A person who returns (``Ledger.restore``) has what was left, never more. Every limit,
    whenever it is set, counts the whole total.

    Args:
        ledger: open, made with pseudonyms.
        person: the person's name in the data, private. With periods, the person's accounts of all periods are erased.

    Raises:
        LedgerError: the ledger is as it was, or the person is erased but the file has its gaps.
        ArgumentError: the ledger was made without pseudonyms; or the person is in a training that is open, which may
            give something back: settle it or write it off first.

    Guarantee: the person remains charged the same units in all.
    Source: docs/ledger/people.md, "Erasing a person".
    """
    accounts = ledger.accounts
    if ledger.terms.pseudonyms is None:
        raise ArgumentError(
            "ledger: it was made without pseudonyms, so that names are in its record, which never changes: retire() "
            "leaves a person out of all later questions"
        )
    names = ledger.accounts_of(person)

    def work(transaction: Transaction) -> None:
        charged = accounts.charges(names)
        held = {question for listed in charged.values() for question, _ in listed} & transaction.open_trainings()
        if held:
            raise ArgumentError("person: in a training that is open; settle it or write it off first")
        for name in names:
            accounts.mark(name, gone=True)
            note = accounts.merge_person(transaction.number + 1, name, transaction.limited)
            transaction.append({"kind": "erased"}, {**note, "person": accounts.names.token(name)})

    ledger.refuse_inside("nobody is erased")
    ledger.transact(work)
    if isinstance(ledger.store, File):  # a server has a vacuum of its own
        ledger.store.shrink()


def protect(ledger: Ledger, *, role: str | None = None) -> None:
    """Install triggers: only the owner's role can lower what a person spent, or change or remove an entry.

    Any other role may raise what a person has spent, append to the record, and mark a person as gone, as a role that
    answers questions must. It can lower nothing, bring nobody back, and change no entry, whatever SQL it sends.
    Settling a training gives back, so it needs the owner's role, as do ``restore``, ``compact`` and ``erase``.
    Calling it again changes nothing.

    Args:
        ledger: on a server, opened as the owner of its tables.
        role: a service's, which is granted what answering needs and no more. Where it is not there it is made, without
            a password.

    Raises:
        ArgumentError: the ledger is a file, which its owner alone can read; or the triggers do not bind the role.
        LedgerError: this role does not own the tables, or may not make another one.
    """
    store = ledger.store
    if not isinstance(store, Postgres):
        raise ArgumentError("ledger: it is a file, without roles; protect() is for ledgers on a server")

    def work(_: object) -> None:
        store.run(_REFUSE)
        for name, when in _TRIGGERS.items():
            store.run(f"DROP TRIGGER IF EXISTS {name} ON {when.split(' ON ')[1].split()[0]}")
            store.run(f"CREATE TRIGGER {name} {when} EXECUTE FUNCTION ledger.refuse_change()")
        if role is not None:
            _grant(store, role)

    ledger.transact(work)


def _grant(store: Postgres, role: str) -> None:
    """Grant a role what a service needs; refuses one that may do all that the owner of the tables may."""
    if not re.fullmatch("[a-z_][a-z0-9_]{0,62}", role):
        raise ArgumentError(f"role={role!r} must be small letters, digits and underscores, such as service")
    if not store.run("SELECT 1 FROM pg_roles WHERE rolname = ?", [role]):
        store.run(f"CREATE ROLE {quoted(role)} LOGIN")
    owner = "SELECT relowner FROM pg_class WHERE oid = 'ledger.record'::regclass"
    if store.run(f"SELECT pg_has_role(?::name, ({owner}), 'MEMBER')", [role])[0][0]:
        raise ArgumentError(f"role={role!r} owns the tables, or may act as who does: give a service a role of its own")
    for what in GRANTS:
        store.run(f"GRANT {what.format(schema=quoted(store.schema))} TO {quoted(role)}")


def size(ledger: Ledger) -> Size:
    """Measure a ledger: bytes, people and charges. Private."""

    def work() -> Size:
        run, tables = ledger.store.run, ("record", "accounts", "charges")
        entries, people, charges = (int(run(f"SELECT count(*) FROM ledger.{each}")[0][0]) for each in tables)
        merged = [row.entry().public["through"] for row in read_rows(run, "kind = 'merged'")]
        path, found = ledger.store.path, 0
        if path is None:
            parts = (f"pg_total_relation_size('ledger.{table}')" for table in (*tables, "shares"))
            found = int(run(f"SELECT {' + '.join(parts)}")[0][0])
        else:
            files = path, path.with_name(path.name + ".wal")
            found = sum(each.stat().st_size for each in files if each.exists())
        if not found:
            raise LedgerError(f"{ledger.store.name} is not there", reason="missing")
        return Size(found, entries, people, charges, max(merged, default=None))

    return ledger.snapshot(work)


def _moment(before: date | str | None) -> str | None:
    """A day or time as the record writes times, which are in the order of their text."""
    if before is None:
        return None
    moment: object = None
    with suppress(ValueError):
        moment = datetime.fromisoformat(str(before))
    if not isinstance(before, str | date) or not isinstance(moment, datetime):
        raise ArgumentError(f'before={before!r} must be a day or time, as "2026-01-31"')
    return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).astimezone(UTC).isoformat(timespec="milliseconds")
