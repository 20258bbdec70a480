"""A ledger on a PostgreSQL server: several writers at once, one after another.

Every writer first locks the table ``turn``, before its transaction sees anything; so transactions of Almoner follow
each other, and each sees all that came before. They are serializable besides, against programs that do not take turns:
where the server cannot put two of them in an order, it refuses one, and that one is begun again. Nothing that a
transaction computed is told before it is committed.

This is the only module that knows the driver. A connection string may hold a password: it is in no message and no repr,
nor is anything that the driver says, which may quote it.
"""

import random
import re
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import islice
from pathlib import Path
from threading import RLock
from types import ModuleType
from typing import Any, TypeVar
from urllib.parse import unquote

from almoner import _extras
from almoner._disk import abandon_after_fork, never_close
from almoner._workspace import Workspace, quoted
from almoner.errors import AlmonerError, ArgumentError, LedgerError, LedgerReason
from almoner.ledger._stores.schema import check_version, make, unconfirmed

Result = TypeVar("Result")
Connection = Any  # the driver's: psycopg's
TRIES = 50
_PERSON = {"BIGINT": "BIGINT", "VARCHAR": "BYTEA", "BLOB": "BYTEA"}
_BROUGHT = {"BIGINT": "CAST({} AS BIGINT)", "VARCHAR": "decode(unhex({}))", "BLOB": "unhex({})"}
_ROWS = 50_000  # brought to the workspace at a time
_SPELLING = {
    # no collation of the system's is in an index: those change with its libraries, and an account would not be found
    "text": 'TEXT COLLATE "C"',
    "key": " PRIMARY KEY",
    "often": " WITH (fillfactor = 45)",  # so that a charge of all people finds room beside every row
    "scoped": ", PRIMARY KEY (scope, person)",
    "asked": ", PRIMARY KEY (question, person)",
}
SCHEMA = "privacy_ledger"  # the schema of a ledger whose address names none
AGAIN = ("40001", "40P01")  # no order is found for transactions, or two wait for each other
OLDEST = 130000
_PATIENCE = 10  # seconds until a server that does not answer is given up, where the connection string says nothing else
_SURE = ("on", "remote_apply")
_SETTINGS = (
    ("search_path", "pg_catalog, pg_temp"),  # names of ours are found in no other schema
    ("client_encoding", "UTF8"),
    ("lock_timeout", "10min"),
    ("work_mem", "64MB"),
    ("tcp_keepalives_idle", "60"),  # a writer whose machine is gone keeps its turn for two minutes, not for hours
    ("tcp_keepalives_interval", "10"),
    ("tcp_keepalives_count", "6"),
)
_NO_ANSWER = ("Connection refused", "No such file", "could not translate", "failed to resolve", "timeout")
_REASONS = {
    "the server refuses this role or its password": ("password", "pg_hba.conf"),
    "the server does not know this role": ('role "" does not exist',),
    "the server does not know this database": ('database "" does not exist',),
    "the server is starting up": ("starting up", "not yet accepting connections", "in recovery mode"),
    "the server is shutting down": ("shutting down",),
    "the server has too many connections": ("too many", "connection slots"),
    "no server answers there": _NO_ANSWER,
}  # by what the driver says, names in quotes left out: those of a host, a role or a database may be any word
_REFUSALS: dict[str, tuple[str, LedgerReason]] = {
    "25006": ("the server may only be read", "forbidden"),
    "42501": ("this role may not do that", "forbidden"),
    "53100": ("the server's disk is full", "unavailable"),
    "55P03": ("other programs held the ledger for too long", "busy"),
    "23505": ("it is there already", "unavailable"),
}


class _TryAgain(Exception):
    """The server found no order for this transaction and another one: it was undone, and may be begun again."""


class Postgres:
    """A ledger in a schema of a PostgreSQL database."""

    workspace: Workspace
    path: Path | None = None
    reading = False

    def __init__(self, ledger: str) -> None:
        self._conninfo, self.schema, self.name = read(ledger)
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
        return bool(self.run(sql, [self.schema]))

    def create(self, person: str, first: Sequence[object]) -> None:
        """Make schema and tables with the first entry in one transaction, unless another program just did."""
        try:
            self.run("BEGIN")
            self.run("SELECT pg_advisory_xact_lock(hashtext(?))", [f"privacy ledger {self.schema}"])
            if not self.exists():
                self.run(f"CREATE SCHEMA IF NOT EXISTS {quoted(self.schema)}")
                self.run("CREATE TABLE ledger.turn(of_writers INTEGER)")
                make(self.run, first, person=_PERSON[person], **_SPELLING)
            self._commit()
        except (LedgerError, _TryAgain):
            self._drop()
            why = "the ledger cannot be created: may this role create a schema?"
            raise LedgerError(f"{self.name}: {why}", reason="forbidden") from None

    def open(self, *, memory_limit: str | None, threads: int | None) -> None:
        if not self.exists():
            raise LedgerError(f"{self.name}: the ledger is gone", reason="missing")
        self.workspace = Workspace(None, memory_limit=memory_limit, threads=threads, name=self.name)
        check_version(self.name, self.run)

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

    def bring(self, sql: str, table: str, kinds: Mapping[str, str]) -> None:
        """Bring the rows of a query to a new table of the workspace; texts and bytes come as hexadecimal digits."""
        listed = ", ".join(f"{name} {kind}" for name, kind in kinds.items())
        self.workspace.run(f"CREATE OR REPLACE TEMP TABLE {table}({listed})")
        fields = (_BROUGHT[kind].format(f"split_part(line, chr(9), {n})") for n, kind in enumerate(kinds.values(), 1))
        read = f"SELECT {', '.join(fields)} FROM (SELECT unnest(string_split(?, chr(10))) AS line)"

        def work(connection: Connection) -> None:
            with connection.cursor() as cursor, cursor.copy(f"COPY ({self._spelled(sql)}) TO STDOUT") as copy:
                lines: Iterator[Any] = iter(copy)
                while block := b"".join(bytes(line) for line in islice(lines, _ROWS)):
                    self.workspace.run(f"INSERT INTO {table} {read}", [block.decode().removesuffix("\n")])

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
        raise LedgerError(f"{self.name} is busy: others keep writing. Nothing was charged; ask again", reason="busy")

    def snapshot(self, work: Callable[[], Result]) -> Result:
        with self.lock:
            if self.inside:
                return work()
            return self._once("ISOLATION LEVEL REPEATABLE READ, READ ONLY", work, turn=False)

    def check_place(self) -> None:
        """Nothing: a server's ledger is where its tables are."""

    def close(self) -> None:
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
                raise unconfirmed(f"{self.name} did not confirm, and is closed now ({error})") from None
            raise
        finally:
            self.inside = False

    def _spelled(self, sql: str) -> str:
        return sql.replace("?", "%s").replace("ledger.", quoted(self.schema) + ".")

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
            lost = "the connection is lost; open the ledger again and ask with the same key"
            raise LedgerError(f"{self.name}: {lost}", reason="closed")
        words, reason = _REFUSALS.get(state or "", ("the server refused a step", "unavailable"))
        raise LedgerError(f"{self.name}: {words}; nothing was revealed", reason=reason)

    def _drop(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            with suppress(psycopg().Error):
                connection.close()  # a transaction that is open is undone
        if hasattr(self, "workspace"):
            self.workspace.close()


def psycopg() -> ModuleType:
    """The driver; raises MissingExtra where it is not installed."""
    with _extras.need("psycopg", extra="postgres"):
        import psycopg as library
    return library


def read(ledger: str) -> tuple[str, str, str]:
    """(What the driver takes, which may hold a password; schema; a name that may be shown) of a connection string."""
    base, _, query = ledger.partition("?")
    options = [option for option in query.split("&") if option]
    schema = SCHEMA
    for option in options:
        if option.startswith("schema="):
            schema = unquote(option.removeprefix("schema="))
    if not re.fullmatch("[a-z_][a-z0-9_]{0,62}", schema) or schema.startswith("pg_"):
        raise ArgumentError(f"ledger: schema={schema!r} must be small letters, digits and underscores")
    rest = "&".join(option for option in options if not option.startswith("schema="))
    conninfo, parts = base + (f"?{rest}" if rest else ""), None
    with suppress(psycopg().Error, UnicodeError):
        parts = psycopg().conninfo.conninfo_to_dict(conninfo)
    host, port, database = (str((parts or {}).get(part) or "") for part in ("host", "port", "dbname"))
    # a password that slipped into another part must not be shown as a part of the name
    if parts is None or "@" in host + database or ":" in database or not re.fullmatch("[0-9,]*", port):
        raise ArgumentError("ledger: the connection string makes no sense; try postgresql://user@server/database")
    shown = f"postgresql://{host}{f':{port}' if port else ''}/{database}"
    return conninfo, schema, shown + (f"?schema={schema}" if schema != SCHEMA else "")


def connected(conninfo: str, name: str) -> Connection:
    """A connection to a server on which nothing that was committed can be lost; messages have the ledger's ``name``."""
    connection: Connection | None = None
    reason = "the connection string makes no sense"
    with suppress(psycopg().Error, UnicodeError):
        try:
            said = psycopg().conninfo.conninfo_to_dict(conninfo)
            patience = {} if "connect_timeout" in said else {"connect_timeout": _PATIENCE}
            connection = psycopg().connect(conninfo, autocommit=True, prepare_threshold=None, **patience)
        except psycopg().Error as error:
            reason = _reason(str(error))
            raise
    if connection is None:
        raise LedgerError(f"{name} cannot be opened: {reason}")
    wrong: str | None = "the server refuses a setting"
    with suppress(psycopg().Error):
        wrong = _prepare(connection)
    if wrong is not None:
        connection.close()
        raise LedgerError(f"{name}: {wrong}")
    return connection


def _prepare(connection: Connection) -> str | None:
    """Set what a ledger needs; what cannot be set and is wrong, or None."""

    def shown(setting: str) -> str:
        return str(connection.execute("SELECT current_setting(%s)", [setting]).fetchall()[0][0])

    for setting, value in _SETTINGS:
        connection.execute("SELECT set_config(%s, %s, false)", [setting, value])
    if shown("synchronous_commit") not in _SURE:
        connection.execute("SET synchronous_commit = on")
    if int(shown("server_version_num")) < OLDEST:
        return "the server must be PostgreSQL 13 or newer"
    if connection.execute("SELECT pg_is_in_recovery()").fetchall()[0][0]:
        return "this server is a standby; a ledger needs the one that is written to"
    for setting, right in (("fsync", ("on",)), ("synchronous_commit", _SURE), ("server_encoding", ("UTF8",))):
        if shown(setting) not in right:
            return f"{setting} is {shown(setting)!r} on this server; a ledger needs {' or '.join(right)}"
    return None


def _reason(message: str) -> str:
    """Why there is no connection, in words of our own."""
    said = re.sub('"[^"]*"', '""', message)
    return next((why for why, words in _REASONS.items() if any(each in said for each in words)), "see the server's log")
