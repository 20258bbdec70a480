"""The file of a ledger: one DuckDB file of mode 0600, with one writer at a time.

Everything that is written goes through ``transact``: one transaction, all of it or nothing. After a failed transaction
the file is not used again until it is opened anew, which brings it back to its last complete transaction.
"""

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from threading import RLock
from typing import Any, TypeVar

from bursar.errors import BursarError, LedgerError
from bursar.ledger._desk import Desk, duckdb, text

__all__ = ["VERSION", "Store"]

Result = TypeVar("Result")

VERSION = 1
"""Of the tables below. A file of another version is refused."""

_TABLES = """
CREATE TABLE ledger.bursar_ledger(version INTEGER NOT NULL);
CREATE TABLE ledger.record(number BIGINT NOT NULL, kind VARCHAR NOT NULL, key VARCHAR UNIQUE, analyst VARCHAR,
    purpose VARCHAR, public VARCHAR NOT NULL, private VARCHAR NOT NULL, hash VARCHAR NOT NULL);
CREATE TABLE ledger.accounts(person {person} NOT NULL, spent BIGINT NOT NULL, gone BOOLEAN NOT NULL);
CREATE TABLE ledger.shares(scope VARCHAR NOT NULL, person {person} NOT NULL, spent BIGINT NOT NULL);
CREATE TABLE ledger.charges(question BIGINT NOT NULL, person {person} NOT NULL, units BIGINT NOT NULL);
"""


class Store:
    """An open ledger file: ``desk`` holds it as the catalogue ``ledger``, beside tables of its own in memory."""

    def __init__(self, path: Path, *, memory_limit: str | None = None, threads: int | None = None) -> None:
        self.path = path
        self.lock = RLock()
        self.inside = False
        self.desk = Desk(path.with_name(path.name + ".tmp"), memory_limit=memory_limit, threads=threads)
        self.library = self.desk.library
        try:
            self._attach()
        except BaseException:
            self.desk.close()
            raise

    @property
    def name(self) -> str:
        """Where the ledger is, for people."""
        return str(self.path)

    @property
    def closed(self) -> bool:
        """Whether it must be opened again."""
        return self.desk.connection is None

    def _attach(self) -> None:
        if not self.path.is_file():
            raise LedgerError(f"{self.path} is not a file")
        try:
            with private_files():
                self.desk.connection.execute(f"ATTACH {text(str(self.path))} AS ledger (TYPE duckdb)")
        except self.library.Error as error:
            raise LedgerError(f"{self.path} {_reason(str(error))}") from None
        try:
            found = self.desk.connection.execute("SELECT version FROM ledger.bursar_ledger").fetchall()
        except self.library.Error:
            raise LedgerError(f"{self.path} is not a ledger of Bursar, or is damaged") from None
        if found != [(VERSION,)]:
            raise LedgerError(f"{self.path} is not of version {VERSION}, the one that this program reads")
        self.desk.clear()

    @classmethod
    def create(cls, path: Path, *, person: str, first: tuple[Any, ...]) -> None:
        """Make a new file with its first entry; it appears under its name when it is complete.

        Args:
            path: where.
            person: how people are named: BIGINT or VARCHAR.
            first: the row of the record's first entry.
        """
        library, fresh = duckdb(), path.with_name(path.name + ".new")
        fresh.unlink(missing_ok=True)
        connection = library.connect()
        try:
            with private_files():
                connection.execute(f"ATTACH {text(str(fresh))} AS ledger (TYPE duckdb)")
                for statement in _TABLES.format(person=person).split(";"):
                    if statement.strip():
                        connection.execute(statement)
                connection.execute("INSERT INTO ledger.bursar_ledger VALUES (?)", [VERSION])
                connection.execute("INSERT INTO ledger.record VALUES (?, ?, ?, ?, ?, ?, ?, ?)", first)
                connection.execute("CHECKPOINT ledger")
                connection.execute("DETACH ledger")
                os.link(fresh, path)  # fails if the name is taken
                _sync(path.parent)
        except (library.Error, OSError):
            raise LedgerError(f"{path} cannot be created: is the folder there, and may it be written?") from None
        finally:
            connection.close()
            with suppress(OSError):
                fresh.unlink(missing_ok=True)

    def run(self, sql: str, parameters: list[Any] | None = None) -> Any:
        """Execute SQL of our own making where the ledger is."""
        return self.desk.run(sql, parameters, name=self.name)

    def transact(self, work: Callable[[], Result]) -> Result:
        """One transaction, all of it or nothing; within another one, a part of that.

        An error that says nothing about the ledger undoes everything and leaves the ledger open.
        """
        with self.lock:
            if self.inside:
                return work()
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
                        f"{self.path} could not be written, and is closed now. Nothing was revealed. What was asked is "
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
                with suppress(self.library.Error), private_files():
                    self.desk.connection.execute("CHECKPOINT ledger")
                self._drop()

    def _undone(self) -> bool:
        with suppress(LedgerError):
            self.run("ROLLBACK")
            return True
        return False

    def _drop(self) -> None:
        self.desk.close()  # a transaction that is open is undone


@contextmanager
def private_files() -> Iterator[None]:
    """Files that are made in the meantime are for their owner alone."""
    before = os.umask(0o077)
    try:
        yield
    finally:
        os.umask(before)


def _sync(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _reason(message: str) -> str:
    if "lock" in message or "already attached" in message:
        return "is open already, here or in another process; a ledger has one writer at a time"
    if "ermission denied" in message or "read-only" in message.lower():
        return "may not be written by this user"
    return "is not a ledger of Bursar, or is damaged"
