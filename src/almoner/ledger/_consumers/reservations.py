"""Budget that a training holds: reserved before it begins, settled when it is over.

A training charges accounts of its own, step by step, and never more to a person than the ledger reserved for that
person. Until it is settled, everything that was reserved counts as spent.

Source: theory 5.12 and 5.10; docs/proofs/one-account.md
"""

import secrets
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from hashlib import sha256
from threading import RLock
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from almoner import _check
from almoner._uncopyable import Uncopyable
from almoner.errors import ArgumentError, LedgerError
from almoner.ledger._consumers.consumer import Consumer, named, with_people
from almoner.ledger._ledger import Ledger
from almoner.ledger._names import Person
from almoner.ledger._record.entries import Entry, plain, read_rows
from almoner.ledger._transaction import Transaction
from almoner.ledger.interfaces import Offer, Payment

__all__ = ["Reservation", "Training", "new_claim", "trainings", "write_off"]


@dataclass(frozen=True, slots=True)
class Training:
    """A training in a record. Every field is public.

    Attributes:
        number, time: of the entry that reserved.
        key, analyst, purpose: who trained what, and what for.
        units: the most that was reserved for a person.
        state: "open", "written off" or "settled".
        described: what the trainer said of it.
        model: the digest of the model's numbers, once it is settled.
    """

    number: int
    time: str
    key: str
    analyst: str
    purpose: str | None
    units: int
    state: str
    described: Mapping[str, Any]
    model: str | None


class Reservation(Uncopyable):
    """A part of each person's budget, in units, that a ledger reserves for one training. Private.

    ``Reservation.take`` makes it; ``settle`` ends it.

    Fields:
        key: of the training. Public.
        record: number and hash of the entry that reserved, for the model's card. Public.
        units: (n,) int64, private: the most that the training may charge each person, in the order of ``people``.
        lock: held while the training charges, and while it is settled: one never happens within the other.
    """

    key: str
    record: str
    units: NDArray[np.int64]
    lock: RLock

    def __init__(self, ledger: Ledger, key: str, people: Sequence[Person], claim: str, entry: Entry) -> None:
        self.key, self.record = key, f"{entry.number}:{entry.hash}"
        self._ledger, self._people, self._claim = ledger, people, claim
        self._seen, self._settled, self.lock = entry.number, False, RLock()
        reserved = ledger.accounts.units_of(entry.number)
        self.units = np.fromiter(
            (reserved.get(ledger.accounts.token(person), 0) for person in people), np.int64, len(people)
        )

    @classmethod
    def take(
        cls,
        ledger: Ledger,
        *,
        key: str,
        people: Sequence[object],
        units: int,
        analyst: str,
        purpose: str | None = None,
        delta: float = 0.0,
        claim: str | None = None,
        earlier: Collection[str] = (),
        described: Mapping[str, object] | None = None,
        dataset: str | None = None,
    ) -> "Reservation":
        """Reserve, in one transaction, what a training may cost each person: the units, or what that person has left.

        Args:
            ledger: open.
            key: a name for the training, as for a question; public.
            people: who is in the training, each once, named as the ledger names people; private.
            units: the most that it may cost a person, in the ledger's measure; public.
            analyst, purpose: whose limits it falls under; public.
            delta: what it costs beside its price, public, of what the ledger declares as ``keys_delta``.
            claim: a new secret of the process that trains; see ``new_claim``.
            earlier: the claims that this training had before, if it goes on after a crash.
            described: what the record says of it; public.
            dataset: which data set of the ledger it is about, public; None where that is not said.

        Raises:
            ArgumentError: the key was used, by another training or question; or this training went on somewhere else,
                was settled or was written off, or reserved for other people or in another order. Or two of the people
                are one person in this ledger; or a transaction of the ledger is open, which could undo this one.
            BudgetExceeded: by public facts alone, nobody has anything left.

        Guarantee: whatever else charges the ledger, nobody is above the budget if the training charges each person at
            most ``Reservation.units``: these count as spent from now on, until the training is settled.
        Source: theory 5.12, 5.10; docs/proofs/one-account.md.
        """
        _check.whole(1, units=units)
        whose = Consumer.on(ledger, "trainings", key=key, analyst=analyst, purpose=purpose)
        names = named(ledger, people)
        claim = new_claim() if claim is None else claim
        order = sha256(plain({"people": [ledger.accounts.token(name) for name in names]}).encode()).hexdigest()

        def work(transaction: Transaction, offer: Offer) -> Entry:
            entry = transaction.find(key)
            if entry is not None:
                _refuse_other(transaction, ledger, entry, whose, earlier, order)
                transaction.append({"kind": "claimed", "training": key}, {"claim": claim})
                return entry
            terms = whose.terms(transaction, ledger, int(units))
            admission = transaction.admit(offer, key=key, payment=Payment(pace=1), delta=delta, **terms)
            public = {"training": dict(described or {}), **transaction.about(dataset)}
            return transaction.settle(admission, public, training={"claim": claim, "order": order})

        entry = _with_people(ledger, names, int(units), work)
        return cls(ledger, key, names, claim, entry)

    def __enter__(self) -> Self:
        """Begin a charge of the training, where ``check`` has nothing to refuse."""
        self.lock.acquire()  # what is charged while a run is being settled would be forgotten
        try:
            self.check()
        except BaseException:
            self.lock.release()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.lock.release()

    def check(self) -> None:
        """Refuse to go on where another process has gone on with this training, or it was settled or written off.

        Raises:
            LedgerError: so it is, or the ledger was closed. Nothing more may be released.
        """
        if self._settled:
            raise LedgerError(f"training {self.key!r} is settled: what was not spent was given back", reason="closed")
        rows = read_rows(
            self._ledger.store.run,
            "number > ? AND kind IN ('claimed', 'settled', 'written off')",
            (self._seen,),
        )
        ours = [entry for row in rows if (entry := row.entry(private=True)).public["training"] == self.key]
        if ours and ours[-1].private.get("claim") != self._claim:  # only the newest claim is in force
            done = "went on elsewhere" if ours[-1].kind == "claimed" else f"was {ours[-1].kind}"
            raise LedgerError(
                f"training {self.key!r} {done}: nothing more may be released here, and what it reserved counts "
                "as spent",
                reason="closed",
            )
        self._seen = max((row.number for row in rows), default=self._seen)

    @property
    def claim(self) -> str:
        """The secret of this process. Private."""
        return self._claim

    def renew(self, claim: str) -> None:
        """Put another claim in force: whoever knows only earlier ones can't go on with the training from now on.

        Args:
            claim: new, and written down in the training's folder.

        Raises:
            ArgumentError: the ledger has a transaction open, which may be undone. Nothing may be released.
            LedgerError: another process went on with the training, or it was settled or written off; or the ledger was
                closed. Nothing may be released.

        Guarantee: if this returns, the claim before was in force until now, and this one is; of several processes that
            hold one claim it returns for one alone.
        Source: docs/proofs/one-account.md
        """

        def work(transaction: Transaction) -> bool:
            now = transaction.training(self.key)
            if self._settled or now is None or now.claim != self._claim:
                return False
            transaction.append({"kind": "claimed", "training": self.key}, {"claim": claim})
            return True

        with self.lock, self._ledger.store.lock:
            self._ledger.refuse_inside("no round of a training is released")
            if not self._ledger.transact(work):
                self.check()
                raise LedgerError(f"training {self.key!r} is over: nothing more may be released", reason="closed")
            self._claim = claim

    def settle(self, units: NDArray[np.int64], *, public: Mapping[str, object] | None = None) -> Entry:
        """End the training: each person remains charged this, and has the rest back. Nothing may be charged after it.

        Args:
            units: (n,) int64, private, >= 0, at most ``self.units``: what the training cost each person.
            public: what the record says of the outcome, such as the digest of the model's card.

        Raises:
            ArgumentError: units are not of these people, or are more than was reserved; or another process went on
                with the training, or ended it. Nothing was given back.
            LedgerError: the ledger was closed; nothing was given back.

        Guarantee: each person remains charged at least what the training cost that person.
        Source: theory 5.12; docs/proofs/one-account.md.
        """
        units = np.asarray(units)
        if units.shape != self.units.shape or units.dtype != np.int64 or np.any((units < 0) | (units > self.units)):
            raise ArgumentError("units must be whole numbers from 0 to what was reserved for each person")

        def work(transaction: Transaction, offer: Offer) -> Entry:
            now = transaction.training(self.key)
            if self._settled or now is None or now.claim != self._claim:
                raise ArgumentError(f"training {self.key!r} went on elsewhere, or is over: nothing was given back")
            return transaction.refund(offer, self.key, dict(public or {}))

        entry = _with_people(self._ledger, self._people, units, work)
        self._settled = True
        return entry

    @property
    def settled(self) -> bool:
        """True once it is over. Public."""
        return self._settled


def new_claim() -> str:
    """A secret by which a process shows that a training is its own; keep it in the training's folder."""
    return secrets.token_hex(16)


def write_off(ledger: Ledger, key: str) -> None:
    """Give a training up that was killed and cannot go on: all that it reserved is spent, for good.

    Args:
        ledger: open.
        key: of the training.

    Raises:
        ArgumentError: there is no such training, or it is over already.
    """
    _check.name(key=key)

    def work(transaction: Transaction) -> None:
        now = transaction.training(key)
        if now is None or now.claim is None:
            raise ArgumentError(f"key={key!r} names no training that is open")
        transaction.append({"kind": "written off", "training": key})

    ledger.transact(work)


def trainings(ledger: Ledger) -> tuple[Training, ...]:
    """The trainings in a record, in order. Public.

    Args:
        ledger: open.
    """
    kinds = "kind IN ('training', 'settled', 'written off')"
    found: dict[str, Training] = {}
    for row in read_rows(ledger.store.run, kinds):
        public = row.entry().public
        if row.kind == "training":
            fields = (row.number, public["time"], public["key"], public["analyst"], public["purpose"], public["price"])
            found[public["key"]] = Training(*fields, "open", public["training"], None)
        else:
            before = found[public["training"]]
            found[before.key] = replace(before, state=row.kind, model=public.get("model"))
    return tuple(found.values())


def _refuse_other(
    transaction: Transaction, ledger: Ledger, entry: Entry, whose: Consumer, earlier: Collection[str], order: str
) -> None:
    """Refuse a key that is not that of an open training whose claim is among the earlier ones.

    Other people than it was begun with, or these in another order, are refused too: its accounts go by numbers.
    """
    key, public = whose.key, entry.public
    if entry.kind != "training" or (public["analyst"], public["purpose"]) != whose[1:]:
        raise ArgumentError(f"key={key!r} was used for another question, training, analyst or purpose: choose another")
    now = transaction.training(key)
    if now is None:
        raise ArgumentError(f"key={key!r} names a training that is settled: choose another key for another training")
    if now.claim is None:
        raise ArgumentError(f"key={key!r} names a training that was written off: choose another key")
    if now.claim not in earlier:
        raise ArgumentError(
            f"key={key!r} names a training that was begun or resumed elsewhere: go on from its folder, or write "
            "it off and choose another key"
        )
    (row,) = read_rows(ledger.store.run, "number = ?", (entry.number,))
    if row.entry(private=True).private.get("order") != order:
        raise ArgumentError("people: they must be those that the training was begun with, in the same order")


def _with_people(
    ledger: Ledger,
    people: Sequence[Person],
    units: int | NDArray[np.int64],
    work: Callable[[Transaction, Offer], Entry],
) -> Entry:
    """Do the work of one transaction of its own, with an offer of these units for each of these people."""
    with ledger.store.lock:
        ledger.refuse_inside("no training begins or ends")
        return with_people(ledger, people, units, work)
