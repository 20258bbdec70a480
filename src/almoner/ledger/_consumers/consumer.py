"""A training or stream that charges a ledger by a name: whose it is, its terms, and offers of people and units."""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, Self, TypeVar

import numpy as np
from numpy.typing import NDArray

from almoner import _check
from almoner._workspace import Query
from almoner.errors import ArgumentError, LedgerError
from almoner.ledger._accounts.tables import TableAccounts
from almoner.ledger._ledger import Ledger
from almoner.ledger._names import Person
from almoner.ledger._record.periods import Periods
from almoner.ledger._record.terms import exceeded
from almoner.ledger._transaction import Transaction
from almoner.ledger.interfaces import Offer

__all__ = ["Consumer", "named", "offered_as", "with_people"]

Result = TypeVar("Result")


class Consumer(NamedTuple):
    """The name of a training or stream on a ledger, and whose limits it falls under. Public."""

    key: str
    analyst: str
    purpose: str | None

    @classmethod
    def on(cls, ledger: Ledger, kind: str, *, key: str, analyst: str, purpose: str | None) -> Self:
        """One that a ledger can have; its ``kind``, in the plural, is for the message.

        Raises:
            ArgumentError: the accounts of the ledger are in files; or a name is none.
        """
        _check.name(key=key, analyst=analyst, **({} if purpose is None else {"purpose": purpose}))
        if not isinstance(ledger.accounts, TableAccounts):
            raise ArgumentError(f"ledger: accounts in Parquet files are charged by questions alone, not by {kind}")
        return cls(key, analyst, purpose)

    @property
    def public(self) -> dict[str, object]:
        """As an entry of the record says it."""
        return self._asdict()

    def terms(self, transaction: Transaction, ledger: Ledger, price: int) -> dict[str, Any]:
        """The price, analyst and purpose for ``Transaction.admit``: the price, or less if nobody can have so much left.

        Raises:
            BudgetExceeded: by public facts alone, nobody has anything left.
        """
        left = transaction.most(self.analyst, self.purpose)
        if left <= 0:
            raise exceeded(price, ledger.budget_units, 0, ledger.symbol)
        return {"price": min(price, left), "analyst": self.analyst, "purpose": self.purpose}


def named(ledger: Ledger, people: Sequence[object]) -> list[Person]:
    """The names of people as the ledger keeps them.

    Raises:
        ArgumentError: two of them are one person there.
    """
    names = ledger.people(people)
    if len(set(names)) < len(names):
        raise ArgumentError("people: two of them are one person in this ledger: give each person once")
    return names


def offered_as(ledger: Ledger, people: Sequence[Person]) -> list[object]:
    """Names of these people in the rows of an offer: their own, or the numbers of people in periods."""
    if ledger.person_kind != Periods.NUMBERS:
        return list(people)
    return [ledger.accounts.listed(ledger.accounts.token(name)) for name in people]


def with_people(
    ledger: Ledger,
    people: Sequence[Person],
    units: int | NDArray[np.int64],
    work: Callable[[Transaction, Offer], Result],
) -> Result:
    """Do the work of one transaction with an offer of these units for each of these people.

    Args:
        ledger: open; if a transaction of it is open, the work is a part of that.
        people: (n,) different names, private.
        units: (n,) or one number for all, private.
        work: as for ``Ledger.answer``.
    """
    store = ledger.store
    with store.lock:
        workspace = store.workspace
        kind, view = ledger.person_kind, workspace.fresh_name("people")
        shown = [str(name) for name in offered_as(ledger, people)] if kind == Periods.NUMBERS else people
        persons = np.array(shown, dtype=np.int64 if kind == "BIGINT" else object)
        offered = np.broadcast_to(np.asarray(units, np.int64), persons.shape)
        if store.closed:
            raise LedgerError(f"{store.name} is closed; open it again", reason="closed")
        workspace.connection.register(view, {"person": persons, "units": np.ascontiguousarray(offered)})
        try:
            sql = f"SELECT CAST(person AS {kind}) AS person, units, CAST(1 AS DOUBLE) AS factor FROM {view}"
            return ledger.answer(Query(sql), work)
        finally:
            if workspace.connection is not None:
                workspace.connection.unregister(view)
