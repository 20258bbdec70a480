"""The file of a ledger: one DuckDB file of mode 0600, with one writer at a time.

Everything that is written goes through ``writing``: one transaction, all of it or nothing. After a failed transaction
the file is not used again until it is opened anew, which brings it back to its last complete transaction.
"""

import os
import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from threading import RLock
from typing import Any

from bursar.errors import ArgumentError, LedgerError, MissingExtra

__all__ = ["VERSION", "Store", "duckdb", "quoted", "text"]

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


def quoted(name: str) -> str:
    """A name as SQL: in double quotes, which are doubled inside."""
    return '"' + name.replace('"', '""') + '"'


def text(value: str) -> str:
    """A text as SQL: in single quotes, which are doubled inside."""
    return "'" + value.replace("'", "''") + "'"


def duckdb() -> Any:
    """The library, or what to install."""
    try:
        import duckdb as library
    except ModuleNotFoundError as missing:
        raise MissingExtra("ledgers and queries need DuckDB: pip install 'bursar[queries]'") from missing
    return library


class Store:
    """An open ledger file: ``connection`` holds it as the catalogue ``ledger``, beside tables of its own in memory."""

    def __init__(self, path: Path, *, memory_limit: str | None = None, threads: int | None = None) -> None:
        self.path = path
        self.lock = RLock()
        self.library = duckdb()
        self._spill = path.with_name(path.name + ".tmp")
        config: dict[str, Any] = {"temp_directory": str(self._spill), "autoinstall_known_extensions": False}
        if memory_limit is not None:
            if not re.fullmatch(r"\d+(\.\d+)?(MB|GB|MiB|GiB)", memory_limit):
                raise ArgumentError(f"memory_limit={memory_limit!r} must be a size like '4GB'")
            config["memory_limit"] = memory_limit
        if threads is not None:
            config["threads"] = threads
        self.connection: Any = self.library.connect(config=config)
        try:
            self._attach()
        except BaseException:
            self.connection.close()
            self.connection = None
            raise

    def _attach(self) -> None:
        if not self.path.is_file():
            raise LedgerError(f"{self.path} is not a file")
        try:
            with private_files():
                self.connection.execute(f"ATTACH {text(str(self.path))} AS ledger (TYPE duckdb)")
        except self.library.Error as error:
            raise LedgerError(f"{self.path} {_reason(str(error))}") from None
        try:
            found = self.connection.execute("SELECT version FROM ledger.bursar_ledger").fetchall()
        except self.library.Error:
            raise LedgerError(f"{self.path} is not a ledger of Bursar, or is damaged") from None
        if found != [(VERSION,)]:
            raise LedgerError(f"{self.path} is not of version {VERSION}, the one that this program reads")
        shutil.rmtree(self._spill, ignore_errors=True)  # left over from a process that was killed
        self._spill.mkdir(mode=0o700)

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
        """Execute SQL of our own making."""
        if self.connection is None:
            raise LedgerError(f"{self.path} is closed; open it again")
        with suppress(self.library.Error):  # its message may quote the data: not even a context of ours
            return self.connection.execute(sql, parameters or [])
        raise LedgerError(f"{self.path}: the database refused a step; nothing was revealed")

    @contextmanager
    def writing(self) -> Iterator[None]:
        """One transaction: all of it or nothing."""
        with self.lock, private_files():
            try:
                self.run("BEGIN TRANSACTION")
                yield
                self.run("COMMIT")
            except BaseException as error:
                self._drop()
                if isinstance(error, LedgerError):
                    raise LedgerError(
                        f"{self.path} could not be written, and is closed now. Nothing was revealed. What was asked is "
                        "either recorded whole or not at all: open the ledger again and ask with the same key"
                    ) from None
                raise

    def close(self) -> None:
        """Write everything into the one file and let it go."""
        with self.lock:
            if self.connection is not None:
                with suppress(self.library.Error), private_files():
                    self.connection.execute("CHECKPOINT ledger")
                self._drop()

    def _drop(self) -> None:
        connection, self.connection = self.connection, None
        if connection is not None:
            with suppress(self.library.Error):
                connection.close()  # a transaction that is open is undone
            shutil.rmtree(self._spill, ignore_errors=True)


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
