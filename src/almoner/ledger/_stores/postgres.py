"""A ledger on a PostgreSQL server: several writers at once, one after another.

Every writer first locks the table ``turn``, before its transaction sees anything; so transactions of Almoner follow
each other, and each sees all that came before. They are serializable besides, against programs that do not take turns:
where the server cannot put two of them in an order, it refuses one, and that one is begun again. Nothing that a
transaction computed is told before it is committed.

The password in a connection string is in no message and no repr, nor is what the driver says of it.
"""

import random
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from itertools import islice
from pathlib import Path
from threading import RLock
from typing import Any, TypeVar

from almoner._disk import abandon_after_fork, never_close
from almoner._workspace import Workspace, quoted
from almoner.errors import AlmonerError, LedgerError
from almoner.ledger._stores.connection import AGAIN, Connection, connected, psycopg, read, refusal
from almoner.ledger._stores.schema import VERSION, check_version, make, migrate

__all__ = ["Postgres"]

Result = TypeVar("Result")
TRIES = 50
_PERSON = {"BIGINT": "BIGINT", "VARCHAR": "BYTEA", "BLOB": "BYTEA"}
_SPELLING = {
    # no collation of the system's is in an index: those change with its libraries, and an account would not be found
    "text": 'TEXT COLLATE "C"',
    "key": " PRIMARY KEY",
    "often": " WITH (fillfactor = 45)",  # so that a charge of all people finds room beside every row
    "scoped": ", PRIMARY KEY (scope, person)",
    "asked": ", PRIMARY KEY (question, person)",
}


class _TryAgain(Exception):
    """The server found no order for this transaction and another one: it was undone, and may be begun again."""


class Postgres:
    """A ledger in a schema of a PostgreSQL database."""

    workspace: Workspace
    path: Path | None = None

    def __init__(self, ledger: str) -> None:
        self._conninfo, self._schema, self.name = read(ledger)
        self.lock = RLock()
        self.inside = False
        self._connection: Connection | None = None
        abandon_after_fork(self)

    def abandon(self) -> None:
        """In a forked process: the connection is its parent's."""
        self.lock, self.inside = RLock(), False
        never_close(self._connection)
        self._connection = None
        if hasattr(self, "workspace"):
            self.workspace.abandon()

    @property
    def closed(self) -> bool:
        return self._connection is None

    def exists(self) -> bool:
        if self._connection is None:
            self._connection = connected(self._conninfo, self.name)
        sql = "SELECT 1 FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace "
        sql += "WHERE n.nspname = ? AND c.relname = 'ledger_format'"
        return bool(self.run(sql, [self._schema]))

    def create(self, person: str, first: Sequence[object]) -> None:
        """Make schema and tables with the first entry in one transaction, unless another program just did."""
        try:
            self.run("BEGIN")
            self.run("SELECT pg_advisory_xact_lock(hashtext(?))", [f"privacy ledger {self._schema}"])
            if not self.exists():
                self.run(f"CREATE SCHEMA IF NOT EXISTS {quoted(self._schema)}")
                self.run("CREATE TABLE ledger.turn(of_writers INTEGER)")
                make(self.run, first, person=_PERSON[person], **_SPELLING)
            self._commit()
        except (LedgerError, _TryAgain):
            self._drop()
            raise LedgerError(
                f"{self.name}: the ledger cannot be created: may this role create a schema?", reason="forbidden"
            ) from None

    def open(self, *, memory_limit: str | None, threads: int | None) -> None:
        """Open a workspace beside the connection."""
        if not self.exists():
            raise LedgerError(f"{self.name}: the ledger is gone", reason="missing")
        self.workspace = Workspace(None, memory_limit=memory_limit, threads=threads, name=self.name)
        ((version,),) = self.run("SELECT max(version) FROM ledger.ledger_format")
        check_version(self.name, version)
        if version < VERSION:
            self.transact(lambda: migrate(self.run, version))

    def run(self, sql: str, parameters: Iterable[object] = ()) -> list[tuple[Any, ...]]:
        def work(connection: Connection) -> list[tuple[Any, ...]]:
            cursor = connection.execute(self._spelled(sql), list(parameters))
            return cursor.fetchall() if cursor.description else []

        with self.lock:  # a step of another thread would be one of this thread's transaction
            return self._do(work)

    def send(self, table: str, blocks: Iterable[str]) -> None:
        """Copy blocks of text, in PostgreSQL's own format, into a table."""

        def work(connection: Connection) -> None:
            with connection.cursor() as cursor, cursor.copy(f"COPY {table} FROM STDIN") as copy:
                for block in blocks:
                    copy.write(block)

        self._do(work)

    def fetch(self, sql: str, take: Callable[[str], object], rows: int = 50_000) -> None:
        """Rows of a query, as lines of text with tabs between columns; take gets so many rows at a time."""

        def work(connection: Connection) -> None:
            with connection.cursor() as cursor, cursor.copy(f"COPY ({self._spelled(sql)}) TO STDOUT") as copy:
                lines: Iterator[Any] = iter(copy)
                while block := b"".join(bytes(line) for line in islice(lines, rows)):
                    take(block.decode().removesuffix("\n"))

        self._do(work)

    def transact(self, work: Callable[[], Result]) -> Result:
        """One serializable transaction in this writer's turn; begun again where the server finds no order."""
        with self.lock:
            if self.inside:
                return work()
            for attempt in range(TRIES):
                with suppress(_TryAgain):
                    return self._once("ISOLATION LEVEL SERIALIZABLE, READ WRITE", work, turn=True)
                time.sleep(random.random() * min(1.0, 0.01 * 2**attempt))
        raise LedgerError(
            f"{self.name} is busy: other programs keep writing to it. Nothing was charged; ask again", reason="busy"
        )

    def snapshot(self, work: Callable[[], Result]) -> Result:
        with self.lock:
            if self.inside:
                return work()
            return self._once("ISOLATION LEVEL REPEATABLE READ, READ ONLY", work, turn=False)

    def close(self) -> None:
        """Close the connection and the workspace."""
        with self.lock:
            self._drop()

    def _once(self, mode: str, work: Callable[[], Result], *, turn: bool) -> Result:
        self.run(f"BEGIN {mode}")
        self.inside = True
        try:
            if turn:  # before the snapshot is taken, which is done by the first statement that reads or writes
                self.run("LOCK TABLE ledger.turn IN EXCLUSIVE MODE")
            result = work()
            self._commit()
            return result
        except BaseException as error:
            public = isinstance(error, AlmonerError) and not isinstance(error, LedgerError)
            if (public or isinstance(error, _TryAgain)) and self._undone():
                raise
            self._drop()
            if isinstance(error, LedgerError | _TryAgain):
                raise LedgerError(
                    f"{self.name} did not confirm, and is closed now ({error}). Nothing was revealed. What was asked "
                    "is either recorded whole or not at all: open the ledger again and ask with the same key",
                    reason="closed",
                ) from None
            raise
        finally:
            self.inside = False

    def _spelled(self, sql: str) -> str:
        """Our SQL as the driver takes it."""
        return sql.replace("?", "%s").replace("ledger.", quoted(self._schema) + ".")

    def _commit(self) -> None:
        status = self._do(lambda connection: connection.execute("COMMIT").statusmessage)
        if status != "COMMIT":  # it says ROLLBACK where a step had failed before
            raise LedgerError("the server undid the transaction")

    def _undone(self) -> bool:
        with suppress(LedgerError, _TryAgain):
            self.run("ROLLBACK")
            return True
        return False

    def _do(self, work: Callable[[Connection], Result]) -> Result:
        """A step on the server; what the driver says of a failure may quote private data, and is lost."""
        connection, state = self._connection, None
        if connection is None:
            raise LedgerError(f"{self.name} is closed; open it again", reason="closed")
        with suppress(psycopg().Error, UnicodeEncodeError):
            try:
                return work(connection)
            except psycopg().Error as error:
                state = error.sqlstate
                raise
        if state in AGAIN and self.inside:
            raise _TryAgain
        if connection.closed:
            self._drop()
            raise LedgerError(
                f"{self.name}: the connection is lost; open the ledger again and ask with the same key", reason="closed"
            )
        words, reason = refusal(state)
        raise LedgerError(f"{self.name}: {words}; nothing was revealed", reason=reason)

    def _drop(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            with suppress(psycopg().Error):
                connection.close()  # a transaction that is open is undone
        if hasattr(self, "workspace"):
            self.workspace.close()
