"""Parts of a ledger, as they know one another: where it is kept, and what is said of accounts."""

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from threading import RLock
from typing import Any, NamedTuple, Protocol, TypeVar

from almoner._workspace import Workspace
from almoner.ledger._payment import MASS, Payment

__all__ = ["MASS", "Charge", "Consistency", "Extent", "Payment", "Share", "Store"]

Result = TypeVar("Result")

PrivateNote = dict[str, object]  # the private part of an entry of the record, as JSON


class Share(NamedTuple):
    """A limited scope (an analyst's or a purpose's), and the most that each person may spend on it; units, public."""

    scope: str
    most: int


class Charge(NamedTuple):
    """Units that one question cost one person; below 0 where something came back. Private."""

    question: int
    units: int


class Consistency(NamedTuple):
    """Results of two checks: every account is the sum of its charges; none of them breaks the budget."""

    sums: bool
    budget: bool


class Extent(NamedTuple):
    """Of a column of units: how many people, units in all, the most of one person. Private."""

    people: int
    units: int
    most: int


class Store(Protocol):
    """A place for one ledger. SQL that goes through it speaks of ``ledger.record`` and has ? for parameters."""

    name: str  # where it is, for messages: no password in it
    path: Path | None  # the ledger's file; None on a server
    workspace: Workspace  # DuckDB in memory, where people's rows are looked at
    lock: RLock  # one thread at a time
    inside: bool  # true if a transaction is open
    reading: bool  # true if it may be read alone: nothing is written, and no witness is told

    @property
    def closed(self) -> bool:
        """True if the ledger must be opened before it is used again."""

    def exists(self) -> bool:
        """True if there is a ledger."""

    def create(self, person: str, first: Sequence[object]) -> None:
        """Make a ledger, whole or not at all.

        Args:
            person: the type of people's names: BIGINT, VARCHAR, BLOB for keyed hashes, or HUGEINT for numbers of units.
            first: the row of the record's first entry.
        """

    def open(self, *, memory_limit: str | None, threads: int | None) -> None:
        """Open the ledger and a workspace; a ledger whose tables are of another version is refused."""

    def run(self, sql: str, parameters: Iterable[object] = ()) -> list[tuple[Any, ...]]:
        """Execute SQL of our own making where the ledger is; all rows that it gives."""

    def transact(self, work: Callable[[], Result]) -> Result:
        """One transaction, all of it or nothing; within another one, a part of that. Work may be begun again.

        An error that says nothing about the ledger undoes everything and leaves the ledger open.
        """

    def snapshot(self, work: Callable[[], Result]) -> Result:
        """Work that reads the ledger as it is at one moment."""

    def close(self) -> None:
        """Release the file or the connection."""
