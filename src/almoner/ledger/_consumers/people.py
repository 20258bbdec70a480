"""Offers that are made of people's names and units, not of a query over rows."""

from collections.abc import Callable, Sequence
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from almoner._workspace import Query
from almoner.errors import ArgumentError, LedgerError
from almoner.ledger._ledger import Ledger
from almoner.ledger._names import Person
from almoner.ledger._record.periods import Periods
from almoner.ledger._transaction import Transaction
from almoner.ledger.interfaces import Offer

__all__ = ["named", "offered_as", "with_people"]

Result = TypeVar("Result")


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
