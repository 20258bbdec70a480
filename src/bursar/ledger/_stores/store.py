"""The door to the database that holds a ledger; behind it, one file (``File``) or a server (``Postgres``)."""

import re
from collections.abc import Callable
from pathlib import Path
from threading import RLock
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from bursar.errors import ArgumentError
from bursar.ledger._workspace import Desk

if TYPE_CHECKING:
    from bursar.ledger._accounts.tables import Keeper

__all__ = ["Store", "door", "on_a_server"]

Result = TypeVar("Result")


class Store(Protocol):
    """A place for one ledger. SQL that goes through it speaks of ``ledger.record`` and has ? for parameters."""

    name: str
    """Where it is, for people and messages: no password in it."""
    desk: Desk
    """DuckDB in memory, where people's rows are looked at."""
    lock: RLock
    """One thread at a time."""
    inside: bool
    """Whether a transaction is open."""

    @property
    def closed(self) -> bool:
        """Whether it must be opened again."""

    def exists(self) -> bool:
        """Whether there is a ledger."""

    def create(self, person: str, first: tuple[Any, ...]) -> None:
        """Make a ledger, whole or not at all.

        Args:
            person: how people are named: BIGINT or VARCHAR.
            first: the row of the record's first entry.
        """

    def open(self, *, memory_limit: str | None, threads: int | None) -> None:
        """Open the ledger and a desk; an older version's tables are brought to this version."""

    def keeper(self) -> "Keeper":
        """Who keeps everybody's account unless somebody else is named."""

    def run(self, sql: str, parameters: list[Any] | None = None) -> Any:
        """Execute SQL of our own making where the ledger is."""

    def transact(self, work: Callable[[], Result]) -> Result:
        """One transaction, all of it or nothing; within another one, a part of that. Work may be begun again.

        An error that says nothing about the ledger undoes everything and leaves the ledger open.
        """

    def snapshot(self, work: Callable[[], Result]) -> Result:
        """Work that reads the ledger as it is at one moment."""

    def close(self) -> None:
        """Let it go."""


def on_a_server(where: Path | str) -> bool:
    """Whether this is a connection string, not a path; what only looks like one is refused without being quoted."""
    if not isinstance(where, str) or where.startswith(("postgresql://", "postgres://")):
        return isinstance(where, str)
    if "://" in where or re.match(r"\s*(host|hostaddr|dbname|user|password|port|service)\s*=", where):
        raise ArgumentError("ledger: a connection string begins with postgresql:// ; what was given is no path either")
    return False


def door(where: Path | str) -> Store:
    """The place that a path, or a text like ``postgresql://server/database``, names."""
    if isinstance(where, str) and on_a_server(where):
        from bursar.ledger._stores.postgres import Postgres

        return Postgres(where)
    from bursar.ledger._stores.file import File

    return File(Path(where))
