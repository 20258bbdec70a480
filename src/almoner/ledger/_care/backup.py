"""Copies of a ledger's file: one that is whole at any time, and one that goes on where the ledger was lost."""

from contextlib import suppress
from pathlib import Path

from almoner._disk import private_files, sync
from almoner._workspace import text
from almoner.errors import ArgumentError, LedgerError
from almoner.ledger._ledger import Ledger

__all__ = ["backup", "restore"]


def backup(ledger: Ledger, to: Path | str) -> str:
    """Copy an open ledger to a new file, whole, while it is in use. PRIVATE, as the ledger is.

    Args:
        ledger: a file; a server has backups of its own.
        to: a file that is not there yet. It appears when it is whole.

    Returns:
        The head of the copy.

    Raises:
        ArgumentError: the ledger is on a server, its accounts are in files of their own, or ``to`` is there already.
        LedgerError: the copy cannot be written.
    """
    to = Path(to)
    if ledger.store.path is None or ledger.accounts.kind != "tables":
        raise ArgumentError("backup: copy a server's ledger with the server, and accounts in files with their folder")
    if to.exists():
        raise ArgumentError(f"{to} is there already: a backup is a new file")
    workspace, fresh = ledger.store.workspace, to.with_name(to.name + ".new")
    with ledger.store.lock:
        head, done = ledger.head, False
        with suppress(OSError):
            fresh.unlink(missing_ok=True)
        with suppress(LedgerError, OSError), private_files():
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
        to: where the ledger was; nothing may be there.

    Returns:
        The head of the ledger, once it was opened and agrees with its witness.

    Raises:
        ArgumentError: there is something already, or the copy is missing.
        LedgerError: the backup is older than its witness; the message says how many entries are missing. Nothing
            is left at ``to``.
    """
    copy, to = Path(copy), Path(to)
    if to.exists() or not copy.is_file():
        raise ArgumentError(f"{to} is there already" if to.exists() else f"{copy} is not there")
    with Ledger.open(copy) as checked:  # refuses a copy that is too old before it gets the name
        return backup(checked, to)
