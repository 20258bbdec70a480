"""The file of a ledger: one DuckDB file of mode 0600, with one writer at a time.

Everything that is written goes through ``transact``: one transaction, all of it or nothing. After a failed transaction
the file is not used again until it is opened anew, which brings it back to its last complete transaction.
"""

import errno
import os
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from pathlib import Path
from threading import RLock
from typing import Any, TypeVar

from almoner._disk import Lock, abandon_after_fork, private_files, sync
from almoner._workspace import Workspace, duckdb, text
from almoner.errors import AlmonerError, ArgumentError, LedgerError, LedgerReason
from almoner.ledger._stores.schema import check_version, make, unconfirmed

Result = TypeVar("Result")

_ENDINGS = (".lock", ".new", ".tmp", ".wal")
_Refusal = tuple[str, LedgerReason]  # why a file cannot be opened: in words that follow its name, and for programs
_BUSY: _Refusal = ("is open already, here or in another process; a ledger has one writer at a time", "busy")
_FORBIDDEN: _Refusal = ("may not be written by this user", "forbidden")
_DAMAGED: _Refusal = ("is not a ledger of Almoner, or is damaged", "damaged")
_NOT_MADE: _Refusal = ("cannot be created: is the folder there, and may it be written?", "forbidden")

_HELD = (
    "IO Error: Could not set lock on file ",  # another process
    "Resource In Use Error: Unique file handle conflict: ",  # another connection of this process
)
_NOT_ALLOWED = tuple(os.strerror(number) for number in (errno.EACCES, errno.EPERM, errno.EROFS))


class File:
    """A ledger's file: the workspace holds it as the catalogue ``ledger``, beside tables of its own in memory."""

    workspace: Workspace  # DuckDB in memory, where people's rows are looked at
    path: Path | None  # None on a server
    inside: bool  # true if a transaction is open
    reading: bool  # true if it may be read alone: nothing is written, and no witness is told

    def __init__(self, path: Path) -> None:
        if path.name.endswith(_ENDINGS):
            listed = ", ".join(_ENDINGS)
            raise ArgumentError(f"ledger={str(path)!r} must not end in {listed}: files beside a ledger are called so")
        self._file = self.path = path.resolve()  # the same by every name, and after a change of folder
        self.name = str(path)  # for messages: no password in it
        self.lock = RLock()
        self.inside = self.reading = False
        self._file_lock = Lock(self._beside(".lock"))
        abandon_after_fork(self)

    def exists(self) -> bool:
        return self._file.exists()

    def open(self, *, memory_limit: str | None, threads: int | None) -> None:
        """Attach the file to a workspace of its own; only to read, where the user may not write it or beside it."""
        self.reading = not all(os.access(place, os.W_OK) for place in (self._file, self._file.parent))
        spill = None if self.reading else self._beside(".tmp")
        self.workspace = Workspace(spill, memory_limit=memory_limit, threads=threads, name=self.name)
        try:
            self._attach()
        except BaseException:
            self._drop()
            raise

    def abandon(self) -> None:
        """In a forked process: the ledger is its parent's."""
        self.lock, self.inside = RLock(), False
        if not self.closed:
            self.workspace.abandon()

    @property
    def closed(self) -> bool:
        """True if the ledger must be opened before it is used again."""
        return not hasattr(self, "workspace") or self.workspace.connection is None

    def _beside(self, ending: str) -> Path:
        return self._file.with_name(self._file.name + ending)

    def _refused(self, why: _Refusal) -> LedgerError:
        return LedgerError(f"{self.name} {why[0]}", reason=why[1])

    def _attach(self) -> None:
        if not self._file.is_file():
            raise self._refused(("is not a file", "damaged"))
        self._take_lock()
        left_over = self._beside(".new")  # by a crash while it was made
        if not self.reading and left_over.exists() and left_over.samefile(self._file):
            left_over.unlink()
        self._status = self._file.stat()
        if not self._file_lock.claim(self._status):
            raise self._refused(_BUSY)
        if self._status.st_nlink > 1 and not self.reading:
            told = "has another name (a hard link), under which it could be opened beside this"
            raise self._refused((told, "busy"))
        connection, library = self.workspace.connection, self.workspace.library
        kind = "duckdb, READ_ONLY" if self.reading else "duckdb"
        try:
            with private_files():
                connection.execute(f"ATTACH {text(str(self._file))} AS ledger (TYPE {kind})")
        except library.Error as error:
            raise self._refused(_why_not_attached(error, self._file)) from None
        for ending in (".new", ".new.wal"):  # of a compaction that was killed: nothing in them is in force
            with suppress(OSError):  # it may be read alone
                self._beside(ending).unlink(missing_ok=True)
        try:
            connection.execute("SELECT version FROM ledger.ledger_format")
        except library.Error:
            raise self._refused(_DAMAGED) from None
        try:
            if not self.reading:
                self.workspace.make_spill()
        except OSError:
            raise LedgerError(f"{self.name}: {self._file.name}.tmp beside it cannot be replaced by a folder") from None
        check_version(self.name, self.run)

    def _take_lock(self) -> None:
        """Keep all other programs away from the file until this one is closed."""
        if not self._file.parent.is_dir():
            raise self._refused(_NOT_MADE)
        try:
            taken = self._file_lock.take(required=False)  # where there are no locks, DuckDB's own remains
        except OSError:
            if self.reading:  # DuckDB's own lock remains
                return
            raise LedgerError(f"{self.name}, or {self._file.name}.lock, {_FORBIDDEN[0]}", reason="forbidden") from None
        if not taken:
            raise self._refused(_BUSY)

    def create(self, person: str, first: Sequence[object]) -> None:
        """Make a new file with the row of its first entry, and this type of names; it appears when it is complete."""
        self._take_lock()
        if self._file.exists():  # another program was faster
            return
        library, fresh = duckdb(), self._beside(".new")
        fresh.unlink(missing_ok=True)
        connection = library.connect()
        try:
            with private_files():
                connection.execute(f"ATTACH {text(str(fresh))} AS ledger (TYPE duckdb)")
                plain = " USING COMPRESSION uncompressed" * (person == "BLOB")  # hashes: nothing gets smaller
                make(connection.execute, first, person=person + plain, text="VARCHAR")
                connection.execute("CHECKPOINT ledger")
                connection.execute("DETACH ledger")
                os.link(fresh, self._file)  # fails if the name is taken
                sync(self._file.parent)
        except (library.Error, OSError):
            raise self._refused(_NOT_MADE) from None
        finally:
            connection.close()
            with suppress(OSError):
                fresh.unlink(missing_ok=True)

    def run(self, sql: str, parameters: Iterable[object] = ()) -> list[tuple[Any, ...]]:
        """Execute SQL of our own making; all rows are fetched at once, as a connection keeps one result, the last."""
        with self.lock:
            rows: list[tuple[Any, ...]] = self.workspace.run(sql, parameters).fetchall()
            return rows

    def transact(self, work: Callable[[], Result]) -> Result:
        """One transaction, all of it or nothing; within another one, a part of that. Work may be begun again.

        An error that says nothing about the ledger undoes everything and leaves the ledger open.
        """
        with self.lock:
            if self.inside:
                return work()
            if self.reading:
                raise self._refused(_FORBIDDEN)
            self.check_place()
            self.run("BEGIN TRANSACTION")
            self.inside = True
            try:
                result = work()
                with private_files():
                    self.run("COMMIT")
                return result
            except BaseException as error:
                if isinstance(error, LedgerError):
                    self._drop()
                    raise unconfirmed(f"{self.name} could not be written, and is closed now") from None
                if not isinstance(error, AlmonerError) or not self._undone():
                    self._drop()
                raise
            finally:
                self.inside = False

    def snapshot(self, work: Callable[[], Result]) -> Result:
        """Work that reads the ledger as it is at one moment."""
        with self.lock:
            return work()

    def shrink(self) -> None:
        """Write all into a new file without gaps, in the old one's place; on failure it is as it was, and is closed."""
        with self.lock:
            if self.reading:
                raise self._refused(_FORBIDDEN)
            self.check_place()
            fresh, done = self._beside(".new"), False
            try:
                with suppress(LedgerError, OSError), private_files():
                    fresh.unlink(missing_ok=True)
                    self.run(f"ATTACH {text(str(fresh))} AS shrunk (TYPE duckdb)")
                    self.run("COPY FROM DATABASE ledger TO shrunk")
                    self.run("CHECKPOINT shrunk")
                    same = self._contents("ledger") == self._contents("shrunk")
                    self.run("DETACH shrunk")
                    self.run("CHECKPOINT ledger")
                    self.run("DETACH ledger")
                    if same and not self._beside(".wal").exists():  # else its last transactions would be lost
                        fresh.replace(self._file)
                        sync(self._file.parent)
                        self._status = self._file.stat()
                        self._file_lock.moved(self._status)
                        self.run(f"ATTACH {text(str(self._file))} AS ledger (TYPE duckdb)")
                        done = True
            finally:
                if not done:
                    self._drop()
                    with suppress(OSError):
                        fresh.unlink(missing_ok=True)
            if not done:
                raise LedgerError(
                    f"{self.name} could not be written anew, and is closed now; it is as it was: is there room?",
                    reason="closed",
                )

    def _contents(self, catalogue: str) -> list[tuple[Any, ...]]:
        """Row count and hash of each table, on which two copies of a ledger must agree."""
        tables = ("ledger_format", "record", "accounts", "shares", "charges")
        return [self.run(f"SELECT count(*), bit_xor(hash(t)) FROM {catalogue}.{table} t")[0] for table in tables]

    def close(self) -> None:
        """Write everything into the one file, and release it."""
        with self.lock:
            if not self.closed:
                with suppress(self.workspace.library.Error), private_files():
                    self.workspace.connection.execute("CHECKPOINT ledger")
            self._drop()

    def check_place(self) -> None:
        """Refuse to write into a file that would not be found again under its name."""
        with suppress(OSError):
            if os.path.samestat(self._file.stat(), self._status):
                return
        if not self.closed:
            self._drop()
            raise LedgerError(f"{self.name} was moved or replaced while it was open, and is closed", reason="closed")

    def _undone(self) -> bool:
        with suppress(LedgerError):
            self.run("ROLLBACK")
            return True
        return False

    def _drop(self) -> None:
        if hasattr(self, "workspace"):
            self.workspace.close()  # a transaction that is open is undone
        self._file_lock.release()


def _why_not_attached(error: Exception, path: Path) -> _Refusal:
    """Why DuckDB could not open a file: busy and forbidden only where it says exactly that, else damaged.

    A message about a damaged file speaks of blocks and checksums, and any message may hold the file's name: so nothing
    is looked for inside of a message.
    """
    message = str(error)
    if message.startswith(_HELD):
        return _BUSY
    refused = message.removeprefix(f'IO Error: Cannot open file "{path}": ').startswith(_NOT_ALLOWED)
    return _FORBIDDEN if refused or not os.access(path, os.R_OK | os.W_OK) else _DAMAGED
