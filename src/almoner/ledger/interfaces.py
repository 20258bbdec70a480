"""Protocols between the parts of a ledger: where it is kept, who keeps the accounts, and who writes them.

A question's way through them: ``AccountStore.prepare`` gives an ``Offer``, before the transaction; in the transaction
``Offer.admit`` gives the people who are ``Admitted``, and ``Admitted.charge`` charges them. Each step is a method of
what the step before it returned.
"""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from pathlib import Path
from threading import RLock
from typing import Any, NamedTuple, Protocol, TypeVar

from almoner._workspace import Workspace
from almoner.ledger._names import Names, Person
from almoner.ledger._payment import MASS, Payment

__all__ = [
    "MASS", "AccountStore", "AccountWriter", "Admitted", "Charge", "Consistency", "Extent", "Offer", "Payment", "Share",
    "Store", "Verdicts",
]  # fmt: skip

Result = TypeVar("Result")


PrivateNote = dict[str, object]
"""The private part of an entry of the record, as JSON."""


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

    name: str
    """Where it is, for messages: no password in it."""
    path: Path | None
    """The ledger's file; None on a server."""
    workspace: Workspace
    """DuckDB in memory, where people's rows are looked at."""
    lock: RLock
    """One thread at a time."""
    inside: bool
    """True if a transaction is open."""

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
        """Open the ledger and a workspace; an older version's tables are brought to this version."""

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


class Admitted(Protocol):
    """The people who take part in a question. Private; it ends with the transaction."""

    rows: object
    """The offers of these people: SQL of a table in the workspace, or what the writer of the accounts makes."""

    def refused(self) -> int:
        """Count the people who were offered, and have not left, and cannot pay in full."""

    def missing_mass(self, price: int) -> int:
        """The mass missing from their contributions; see ``Payment.mass_sql``."""

    def charge(self, question: int, scopes: Collection[str], budget: int) -> PrivateNote:
        """Charge each person admitted; refuses to go on where the accounts do not add up afterwards.

        Args:
            question: number of the entry.
            scopes: the limited scopes that the question falls under.
            budget: the most that each person may have spent, units.

        Returns:
            units and people in all, and ``accounts`` if the record must name what is in force from now on.
        """


class Offer(Protocol):
    """Charges that a question would bring each person, prepared before the transaction. Private."""

    def admit(self, most: int, shares: Sequence[Share], payment: Payment) -> Admitted:
        """Choose the people who can pay: at most so much in all, and within each limited share.

        Where the question has a pace, what was offered for each person has a ``factor``, which is made smaller for
        those who pay for less than all of their contribution.

        Raises:
            DataError: the data cannot be read.
        """

    def refund(self, entry: int, of: int, scopes: Collection[str]) -> PrivateNote:
        """Give back, under this entry, what an earlier one reserved beside the units that are offered for each person.

        Args:
            entry: number of the entry that gives back.
            of: number of the entry that reserved.
            scopes: the limited scopes that it falls under.

        Raises:
            LedgerError: more is offered for a person than was reserved; nothing may be written then.
        """

    def close(self) -> None:
        """Remove what was prepared."""


class AccountStore(Protocol):
    """Keeps the accounts. Everything in and out of it is private, but prices, budgets and limits.

    Methods that write are called inside the record's transaction: what they did must not be in force unless it is
    committed, and they may be called again if it was not. What they return is kept in the private part of the entry.
    """

    kind: str
    """The place of accounts, as the first entry of the record says it."""
    names: Names
    """People's names: ``token`` as the record says them; of ``kind``, and by ``sql`` and ``listed``, as ``charged``."""

    def open(self, store: Store, names: Names) -> None:
        """The ledger is open, and names people so; called once, before all else."""

    def follow(self, note: str) -> None:
        """Follow the record: what is in force is the newest ``accounts`` that a writing method returned."""

    def clean(self) -> None:
        """The record has been read: remove what killed programs left behind; refuse to go on without the accounts."""

    def prepare(self, charges: object) -> Offer:
        """Work out what a question would charge: person (each once), units, and what else the engine keeps.

        The units are what a person's contribution costs in full, without the fixed part of a ``Payment``.
        """

    def mark(self, person: Person, *, gone: bool) -> PrivateNote:
        """Mark a person as left, or as returned; the account is kept."""

    def open_share(self, scope: str, questions: Collection[int]) -> PrivateNote:
        """Limit a scope from now on; these questions were charged to it before."""

    def above(self, edges: Sequence[int]) -> list[int]:
        """Count the people who were charged so many units or more, for each edge. Private."""

    def spent(self, people: Sequence[Person]) -> dict[Person, int]:
        """Units that were charged to each of these people; 0 for one who was never charged."""

    def charges(self, people: Sequence[Person]) -> dict[Person, list[Charge]]:
        """All that charged each of these people, in order."""

    def charged(self) -> str:
        """SQL for the workspace that gives question, person, units of all charges."""

    def totals(self) -> dict[int, Extent]:
        """Cost of each question to all people, by its number."""

    def consistent(self, budget: int, refunds: Mapping[int, int]) -> Consistency:
        """Compare accounts and charges with each other and with a budget in units.

        Args:
            budget: of each person, units.
            refunds: for each entry that gave something back, the entry that had reserved it: it gives back no more.
        """

    def units_of(self, question: int) -> dict[Person, int]:
        """Units that an entry charged each person."""

    def shares_hold(self, scopes: Mapping[str, Collection[int]]) -> bool:
        """True if the shares are those of these scopes, each the sum of what its entries charged."""

    def gone(self) -> set[Person]:
        """The people who have left."""


class Verdicts(Protocol):
    """The charges of a question with a verdict on each, complete in files. Private."""

    admitted: object
    """The charges of the people who take part, as the engine of the question reads them."""

    def refused(self) -> int:
        """Count the people who cannot pay in full."""

    def missing_mass(self, price: int) -> int:
        """The mass missing from their contributions; see ``Payment.mass_sql``."""

    def extent(self) -> Extent:
        """Of the units of the people who take part."""


class AccountWriter(Protocol):
    """Writes accounts in Parquet files. Every method that writes returns when its folder is complete."""

    def open(self, folder: Path, person: str) -> None:
        """Accounts are in this folder, in which ``work`` is free to use; people are named as BIGINT or VARCHAR."""

    def prepare(self, charges: object) -> object:
        """Before the transaction: all that can be worked out without the accounts, for ``judge``."""

    def judge(
        self,
        prepared: object,
        accounts: Path | None,
        marks: Path,
        shares: Sequence[tuple[Path | None, int]],
        most: int,
        payment: Payment,
    ) -> Verdicts:
        """Decide who can pay, and what, and write it down.

        Args:
            prepared: what ``prepare`` returned.
            accounts: the folder of the accounts in force (person, spent, gone); None before the first.
            marks: a file of the people who left or returned since (person, gone).
            shares: for each limit the folder of what was spent (person, spent), and the most that may be.
            most: that may be spent in all.
            payment: how the question is paid for.
        """

    def write_charges(self, verdicts: Verdicts, question: int, into: Path) -> None:
        """Write what the question costs each person who takes part: question, person, units."""

    def write_accounts(self, charges: Path, accounts: Path | None, marks: Path, into: Path) -> Extent:
        """Write the accounts as they are after these charges; returns the extent of ``spent``."""

    def write_share(self, charges: Path, share: Path | None, into: Path) -> None:
        """Write what was spent on a limited scope, with these charges."""
