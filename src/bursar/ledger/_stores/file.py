"""The file of a ledger: one DuckDB file of mode 0600, with one writer at a time.

Everything that is written goes through ``transact``: one transaction, all of it or nothing. After a failed transaction
the file is not used again until it is opened anew, which brings it back to its last complete transaction.
"""

import os
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from threading import RLock
from typing import Any, TypeVar

from bursar._disk import Lock, abandon_after_fork, private_files, sync
from bursar.errors import BursarError, LedgerError
from bursar.ledger._accounts.tables import Accounts
from bursar.ledger._stores.schema import COLUMNS, TABLES, VERSION, migrate, noted
from bursar.ledger._workspace import Desk, duckdb, text

__all__ = ["File"]

Result = TypeVar("Result")


class Found:
    """The rows of one step."""

    def __init__(self, rows: list[tuple[Any, ...]]) -> None:
        self._rows = iter(rows)

    def fetchone(self) -> tuple[Any, ...] | None:
        """The next row, or None."""
        return next(self._rows, None)

    def fetchall(self) -> list[tuple[Any, ...]]:
        """All rows that are left."""
        return list(self._rows)


class File:
    """A ledger's file: ``desk`` holds it as the catalogue ``ledger``, beside tables of its own in memory."""

    desk: Desk

    def __init__(self, path: Path) -> None:
        self.path = path.resolve()  # the same file and neighbours by every name, and after a change of folder
        self.name = str(path)
        self.lock = RLock()
        self.inside = False
        self._turn = Lock(self.path.with_name(self.path.name + ".lock"))
        abandon_after_fork(self)

    def exists(self) -> bool:
        """Whether there is something under this name."""
        return self.path.exists()

    def open(self, *, memory_limit: str | None, threads: int | None) -> None:
        """Attach the file to a desk of its own."""
        self.desk = Desk(
            self.path.with_name(self.path.name + ".tmp"), memory_limit=memory_limit, threads=threads, name=self.name
        )
        try:
            self._attach()
        except BaseException:
            self._drop()
            raise

    def abandon(self) -> None:
        """In a forked process: the ledger is its parent's."""
        self.lock, self.inside = RLock(), False
        if not self.closed:
            self.desk.abandon()

    def keeper(self) -> Accounts:
        """Accounts beside the record."""
        return Accounts()

    @property
    def closed(self) -> bool:
        """Whether it must be opened again."""
        return not hasattr(self, "desk") or self.desk.connection is None

    def _attach(self) -> None:
        if not self.path.is_file():
            raise LedgerError(f"{self.name} is not a file")
        self._alone()
        left_over = self.path.with_name(self.path.name + ".new")  # by a crash while it was made
        if left_over.exists() and left_over.samefile(self.path):
            left_over.unlink()
        self._status = self.path.stat()
        if not self._turn.claim(self._status):
            raise LedgerError(f"{self.name} {_reason('lock')}")
        if self._status.st_nlink > 1:
            raise LedgerError(f"{self.name} has another name (a hard link), under which it could be opened beside this")
        try:
            with private_files():
                self.desk.connection.execute(f"ATTACH {text(str(self.path))} AS ledger (TYPE duckdb)")
        except self.desk.library.Error as error:
            raise LedgerError(f"{self.name} {_reason(str(error))}") from None
        try:
            found = self.desk.connection.execute("SELECT max(version) FROM ledger.bursar_ledger").fetchall()[0][0]
        except self.desk.library.Error:
            raise LedgerError(f"{self.name} is not a ledger of Bursar, or is damaged") from None
        if not isinstance(found, int) or found > VERSION:
            raise LedgerError(f"{self.name} is of version {found}; this program reads up to {VERSION}")
        try:
            self.desk.clear()
        except OSError:
            raise LedgerError(f"{self.name}: {self.path.name}.tmp beside it cannot be replaced by a folder") from None
        if found < VERSION:
            self.transact(lambda: migrate(self.run, found))

    def _alone(self) -> None:
        """Keep all others away from the file until this one is closed."""
        if not self.path.parent.is_dir():
            raise LedgerError(f"{self.name} cannot be created: is the folder there, and may it be written?")
        try:
            alone = self._turn.take(required=False)  # where there are no locks, DuckDB's own remains
        except OSError:
            raise LedgerError(
                f"{self.name}, or {self.path.name}.lock beside it, {_reason('permission denied')}"
            ) from None
        if not alone:
            raise LedgerError(f"{self.name} {_reason('lock')}")

    def create(self, person: str, first: tuple[Any, ...]) -> None:
        """Make a new file with its first entry; it appears under its name when it is complete."""
        self._alone()
        path, library = self.path, duckdb()
        if path.exists():  # somebody else was faster
            return
        fresh = path.with_name(path.name + ".new")
        fresh.unlink(missing_ok=True)
        connection = library.connect()
        try:
            with private_files():
                connection.execute(f"ATTACH {text(str(fresh))} AS ledger (TYPE duckdb)")
                tables = TABLES.format(person=person, text="VARCHAR", key="", often="", scoped="", asked="")
                for statement in tables.split(";"):
                    if statement.strip():
                        connection.execute(statement)
                noted(connection.execute, VERSION)
                places = ", ".join("?" for _ in first)
                connection.execute(f"INSERT INTO ledger.record({COLUMNS}) VALUES ({places})", list(first))
                connection.execute("CHECKPOINT ledger")
                connection.execute("DETACH ledger")
                os.link(fresh, path)  # fails if the name is taken
                sync(path.parent)
        except (library.Error, OSError):
            raise LedgerError(f"{self.name} cannot be created: is the folder there, and may it be written?") from None
        finally:
            connection.close()
            with suppress(OSError):
                fresh.unlink(missing_ok=True)

    def run(self, sql: str, parameters: list[Any] | None = None) -> Any:
        """Execute SQL of our own making where the ledger is.

        All of its rows are fetched before another thread has its turn: a connection keeps one result, the last.
        """
        with self.lock:
            return Found(self.desk.run(sql, parameters).fetchall())

    def transact(self, work: Callable[[], Result]) -> Result:
        """One transaction, all of it or nothing; within another one, a part of that.

        An error that says nothing about the ledger undoes everything and leaves the ledger open.
        """
        with self.lock:
            if self.inside:
                return work()
            self._check_place()
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
                    raise LedgerError(
                        f"{self.name} could not be written, and is closed now. Nothing was revealed. What was asked is "
                        "either recorded whole or not at all: open the ledger again and ask with the same key"
                    ) from None
                if not isinstance(error, BursarError) or not self._undone():
                    self._drop()
                raise
            finally:
                self.inside = False

    def snapshot(self, work: Callable[[], Result]) -> Result:
        """Work that reads the ledger as it is at one moment."""
        with self.lock:
            return work()

    def close(self) -> None:
        """Write everything into the one file and let it go."""
        with self.lock:
            if not self.closed:
                with suppress(self.desk.library.Error), private_files():
                    self.desk.connection.execute("CHECKPOINT ledger")
            self._drop()

    def _check_place(self) -> None:
        """Refuse to write into a file that nobody will find again."""
        with suppress(OSError):
            if os.path.samestat(self.path.stat(), self._status):
                return
        if not self.closed:
            self._drop()
            raise LedgerError(f"{self.name} was moved or replaced while it was open, and is closed now")

    def _undone(self) -> bool:
        with suppress(LedgerError):
            self.run("ROLLBACK")
            return True
        return False

    def _drop(self) -> None:
        if hasattr(self, "desk"):
            self.desk.close()  # a transaction that is open is undone
        self._turn.release()


def _reason(message: str) -> str:
    if "lock" in message or "already attached" in message:
        return "is open already, here or in another process; a ledger has one writer at a time"
    if "ermission denied" in message or "read-only" in message.lower():
        return "may not be written by this user"
    return "is not a ledger of Bursar, or is damaged"
