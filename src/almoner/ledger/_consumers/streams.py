"""Updates of a stream on a ledger: each is one transaction that charges the people who are in it, and has a number.

An update is told to nobody before its transaction is complete, so that the ledger alone decides what was released: an
update whose transaction is missing was never told, and one that is in the record is released once.

Source: theory 5.1 to 5.3, 5.12; docs/proofs/one-account.md, "Streams"
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from almoner import _check
from almoner._uncopyable import Uncopyable
from almoner.errors import ArgumentError, LedgerError
from almoner.ledger._consumers.consumer import Consumer, named, offered_as, with_people
from almoner.ledger._ledger import Ledger
from almoner.ledger._record.entries import Entry, read_rows
from almoner.ledger._record.rules import Streamed
from almoner.ledger._transaction import Transaction
from almoner.ledger.interfaces import Offer, Payment

__all__ = ["Stream", "Updates", "last_update", "streams"]

Units = NDArray[np.int64]

_FREE_TRIES = 2
"""The number of times that an update is computed while others may write, before it is computed in their way."""


@dataclass(frozen=True, slots=True)
class Stream:
    """A stream in a record. Every field is public.

    Attributes:
        number, time: of the entry that began it.
        key, analyst, purpose: what it is called, who makes it, and what for.
        described: what its trainer said of it.
        updates: how many there are.
        last: the time of the last one; None where there is none.
    """

    number: int
    time: str
    key: str
    analyst: str
    purpose: str | None
    described: Mapping[str, Any]
    updates: int
    last: str | None


class Updates(Uncopyable):
    """The updates of one stream on a ledger. Private.

    Args:
        ledger: open, with its accounts in tables.
        key: a name for the stream, as for a question; public.
        analyst, purpose: whose limits it falls under; public.
        claim: a secret by which the stream shows that it is the one of this name; see ``new_claim``.
        number: how many updates it has made.
        described: what the record says of it, if it begins here; public.
        dataset: which data set of the ledger each update is about, public; None where that is not said.

    Raises:
        ArgumentError: the key was used by another stream, question or training; or the ledger has another number of
            updates of this stream, so that it is an older copy, or the stream's own state is; or a transaction is open.
    """

    def __init__(
        self,
        ledger: Ledger,
        *,
        key: str,
        analyst: str,
        purpose: str | None = None,
        claim: str,
        number: int = 0,
        described: Mapping[str, object] | None = None,
        dataset: str | None = None,
    ) -> None:
        _check.whole(0, number=number)
        self._whose = Consumer.on(ledger, "streams", key=key, analyst=analyst, purpose=purpose)
        self._ledger, self._claim, self.number, self._dataset = ledger, claim, number, dataset

        def work(transaction: Transaction) -> Streamed | None:
            stream = transaction.stream(key)
            transaction.about(dataset)  # refuses one that is not declared
            if stream is None and transaction.find(key) is None and not number:
                public = {"kind": "stream", **self._whose.public, "stream": dict(described or {})}
                transaction.append(public, {"claim": claim})
            return stream

        ledger.refuse_inside("no stream goes on")
        self._refuse_other(ledger.transact(work))

    @property
    def record(self) -> str:
        """Number and hash of the entry that began the stream. Public."""
        (row,) = read_rows(self._ledger.store.run, "kind = 'stream' AND key = ?", (self._whose.key,))
        return f"{row.number}:{row.hash}"

    def update(
        self,
        people: Sequence[object],
        price: int,
        *,
        pace: int = 1,
        contribute: Callable[[Units], Units],
        release: Callable[[], Mapping[str, object]],
    ) -> Entry:
        """Charge the people who are in the next update, and write down that it was released.

        Args:
            people: (n,) each once, named as the ledger names people; private. There may be none.
            price: the most that it costs a person, units, public.
            pace: public, >= 1. A person pays one part in so many of what that person has left, at most.
            contribute: private. Gets (n,) the most that each may pay, and returns (n,) what each pays: a function of
                that person's own records, public numbers and that most. It is called again, if another writer came
                between; what it computed before is forgotten.
            release: draws the noise, and returns what the record says of the update, which is public. It is called in
                the transaction, and again where a server begins that again; nothing of it may be told before this
                method returns.

        Raises:
            ArgumentError: two of the people are one person here; or the stream went on elsewhere.
            BudgetExceeded: by public facts alone, nobody has anything left.
            LedgerError: nothing was told; whether it is in the record says the ledger, when it is opened again.

        Guarantee: each person pays at most what that person has left in the budget and every limit, and is charged
            before the update is told; nobody else's records or account decide what a person contributes. Each number
            is released once.
        Source: theory 5.1, 5.3, 5.12; docs/proofs/one-account.md, "Streams".
        """
        _check.whole(1, price=price, pace=pace)
        names = named(self._ledger, people)
        called = offered_as(self._ledger, names)

        def once() -> Entry | None:
            def left(transaction: Transaction, offer: Offer) -> tuple[int, Units]:
                asked = self._asked(transaction, int(price))
                admitted = transaction.admit(offer, payment=Payment(pace=int(pace)), **asked)
                rows = self._ledger.store.workspace.run(f"SELECT person, units FROM {admitted.people.rows}")
                most = dict(rows.fetchall())
                return transaction.number, np.array([most.get(name, 0) for name in called], dtype=np.int64)

            before, most = with_people(self._ledger, names, int(price), left)
            units = np.asarray(contribute(most))
            if units.shape != most.shape or units.dtype != np.int64 or np.any((units < 0) | (units > most)):
                raise ArgumentError("contribute must return whole numbers from 0 to what each person may pay")

            def charge(transaction: Transaction, offer: Offer) -> Entry | None:
                if transaction.number != before:  # somebody wrote: each may have less left, and is looked up again
                    return None
                admitted = transaction.admit(offer, **self._asked(transaction, int(price)))
                if admitted.people.refused():
                    raise LedgerError("a person cannot pay what was left a moment ago", reason="damaged")
                public = {**release(), "stream": self._whose.key, **transaction.about(self._dataset)}
                return transaction.settle(admitted, public, update=self.number + 1)

            return with_people(self._ledger, names, units, charge)

        self._ledger.refuse_inside("no stream goes on")
        entry = None
        for _ in range(_FREE_TRIES):
            entry = entry or once()
        entry = entry or self._ledger.transact(lambda _: once())
        if entry is None:
            raise LedgerError("the record grew within a transaction", reason="damaged")
        self.number += 1
        return entry

    def most(self) -> int:
        """Units that nobody can have more of for the stream: the least over the budget and limits. Public."""
        return self._ledger.transact(lambda transaction: transaction.most(self._whose.analyst, self._whose.purpose))

    def _asked(self, transaction: Transaction, price: int) -> dict[str, Any]:
        """Terms on which each update is admitted; refuses one that is not the next."""
        stream = transaction.stream(self._whose.key)
        if stream is None or stream.claim != self._claim or stream.updates != self.number:
            raise ArgumentError(f"stream {self._whose.key!r} went on elsewhere: nothing more is released here")
        return {"key": None, **self._whose.terms(transaction, self._ledger, price)}

    def _refuse_other(self, stream: Streamed | None) -> None:
        """Refuse a key that is not this stream's, and a state that is not the newest; None: it has just begun."""
        key = self._whose.key
        if stream is None:
            found = self._ledger.find(key)
            if found is None:
                raise ArgumentError(
                    f"key={key!r}: this ledger knows of no such stream, which has made {self.number} updates: it is "
                    "another ledger, or an older copy of it"
                )
            if found.kind != "stream":
                raise ArgumentError(f"key={key!r} was used for a question or training: choose another")
            return
        if (stream.analyst, stream.purpose) != self._whose[1:] or stream.claim != self._claim:
            raise ArgumentError(f"key={key!r} names another stream: go on from its own folder, or choose another key")
        if stream.updates != self.number:
            raise ArgumentError(
                f"stream {key!r} made {stream.updates} updates on this ledger, and {self.number} here: the older of "
                "the two is a copy. Nothing more is released from it"
            )


def last_update(ledger: Ledger, key: str) -> Entry | None:
    """The last update of a stream in the record; None where there is none. Public.

    Args:
        ledger: open.
        key: of the stream.
    """
    stream = ledger.transact(lambda transaction: transaction.stream(key))
    if stream is None or not stream.updates:
        return None
    return read_rows(ledger.store.run, "number = ?", (stream.last,))[0].entry()


def streams(ledger: Ledger) -> tuple[Stream, ...]:
    """The streams in a record, in the order in which they began. Public.

    Args:
        ledger: open.
    """
    found: dict[str, dict[str, Any]] = {}
    for row in read_rows(ledger.store.run, "kind IN ('stream', 'update')"):
        public = row.entry().public
        if row.kind == "stream":
            whose = {name: public[name] for name in ("time", "key", "analyst", "purpose")}
            told = {"described": public["stream"], "updates": 0, "last": None}
            found[public["key"]] = {"number": row.number, **whose, **told}
        else:
            found[public["stream"]] |= {"updates": public["update"], "last": public["time"]}
    return tuple(Stream(**each) for each in found.values())
