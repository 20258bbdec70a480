"""Connections to PostgreSQL: the only module that knows the driver.

A connection string may hold a password. It is in no message and no repr; nor is anything that the driver says, which
may quote it.
"""

import re
from collections.abc import Sequence
from contextlib import suppress
from types import ModuleType
from typing import Any, NamedTuple, Protocol
from urllib.parse import unquote

from almoner import _extras
from almoner.errors import ArgumentError, LedgerError, LedgerReason

__all__ = ["AGAIN", "SCHEMA", "Address", "Connection", "connected", "psycopg", "read", "refusal"]

SCHEMA = "privacy_ledger"
"""The schema of a ledger whose address names none."""


class Connection(Protocol):
    """The part of psycopg's connections that a ledger uses."""

    closed: bool

    def execute(self, sql: str, parameters: Sequence[object] = ()) -> Any:
        """Execute a statement; a cursor over its rows."""

    def cursor(self) -> Any:
        """A new cursor, for COPY."""

    def close(self) -> None:
        """Close the connection; a transaction that is open is undone."""


class Address(NamedTuple):
    """Where a ledger is: what the driver takes (which may hold a password), the schema, a name that may be shown."""

    conninfo: str
    schema: str
    name: str


AGAIN = ("40001", "40P01")
"""Errors of the server where it finds no order for transactions, and where two wait for each other."""

OLDEST = 130000
_PATIENCE = 10
"""Seconds until a server that does not answer is given up, where the connection string says nothing else."""
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
_REASONS = (
    ("password", "the server refuses this role or its password"),
    ("pg_hba.conf", "the server refuses this role or its password"),
    ('role "" does not exist', "the server does not know this role"),
    ('database "" does not exist', "the server does not know this database"),
    ("starting up", "the server is starting up"),
    ("not yet accepting connections", "the server is starting up"),
    ("in recovery mode", "the server is starting up"),
    ("shutting down", "the server is shutting down"),
    ("too many", "the server has too many connections"),
    ("connection slots", "the server has too many connections"),
    ("Connection refused", "no server answers there"),
    ("No such file", "no server answers there"),
    ("could not translate", "no server answers there"),
    ("failed to resolve", "no server answers there"),
    ("timeout", "no server answers there"),
)
"""By what the driver says, names in quotes left out: those of a host, a role or a database may be any word."""
_REFUSALS: dict[str, tuple[str, LedgerReason]] = {
    "25006": ("the server may only be read", "forbidden"),
    "42501": ("this role may not do that", "forbidden"),
    "53100": ("the server's disk is full", "unavailable"),
    "55P03": ("other programs held the ledger for too long", "busy"),
    "23505": ("it is there already", "unavailable"),
}


def psycopg() -> ModuleType:
    """The driver; raises MissingExtra where it is not installed."""
    with _extras.need("psycopg", extra="postgres"):
        import psycopg as library
    return library


def read(ledger: str) -> Address:
    """Parse ``postgresql://...?schema=...``."""
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
    return Address(conninfo, schema, shown + (f"?schema={schema}" if schema != SCHEMA else ""))


def connected(conninfo: str, name: str) -> Connection:
    """A connection to a server on which nothing that was committed can be lost.

    Args:
        conninfo: what the driver takes.
        name: of the ledger, for messages.
    """
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


def refusal(state: str | None) -> tuple[str, LedgerReason]:
    """Fault that the server's code means: in words, and for programs."""
    return _REFUSALS.get(state or "", ("the server refused a step", "unavailable"))


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
    return next((reason for words, reason in _REASONS if words in said), "see the server's log")
