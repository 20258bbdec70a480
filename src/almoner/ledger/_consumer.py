"""A training or a stream that charges a ledger: a name, and a claim by which one process shows that it is its own.

A training reserves, before it begins, the most that it may cost each person, and is settled when it is over: until then
all of it counts as spent. A stream charges the people who are in each of its updates; an update is told to nobody
before its transaction is complete, so that the ledger alone decides what was released.

Source: theory 5.1 to 5.3, 5.10, 5.12; docs/proofs/one-account.md
"""

import secrets
from collections.abc import Callable, Collection, Mapping, Sequence
from hashlib import sha256
from threading import RLock
from typing import Any, NoReturn, Self, TypeVar

import numpy as np
from numpy.typing import NDArray

from almoner import _check
from almoner._uncopyable import Uncopyable
from almoner._workspace import Query
from almoner.errors import ArgumentError, LedgerError
from almoner.ledger._accounts.tables import TableOffer
from almoner.ledger._ledger import Ledger
from almoner.ledger._names import Person
from almoner.ledger._payment import Payment, exceeded
from almoner.ledger._periods import Periods
from almoner.ledger._record.entries import Entry, plain
from almoner.ledger._record.rules import ConsumerState
from almoner.ledger._transaction import Transaction

Result = TypeVar("Result")
Units = NDArray[np.int64]
_FREE_TRIES = 2  # so often an update is computed while others may write, before it is in their way


class Consumer(Uncopyable):
    """A training or a stream on a ledger. Private.

    ``reserve`` begins a training or goes on with it, and ``settle`` ends it; ``begin`` begins a stream or goes on with
    it, and ``update`` charges people for it.

    Args:
        ledger: open.
        key: a name for it, as for a question; public.
        analyst, purpose: whose limits it falls under; public.
        dataset: which data set of the ledger it is about, public; None where that is not said.
        described: what the record says of it; public.
        claim: a secret of the process, new for a training; the same for a stream that goes on. See ``new_claim``.
        earlier: the claims that a training had before, if it goes on after a crash.

    Fields:
        claim: in force. Private.
        units: (n,) int64, private: the most that a training may charge each person, in the order of its people.
        number: of the updates that a stream has made. Public.
        record: number and hash of the entry that began it, for the model's card. Public.
        settled: whether a training is over. Public.
        lock: held while a training charges, and while it is settled: one never happens within the other.

    Raises:
        ArgumentError: a name is none.
    """

    units: Units
    record: str

    def __init__(
        self,
        ledger: Ledger,
        *,
        key: str,
        analyst: str,
        purpose: str | None = None,
        dataset: str | None = None,
        described: Mapping[str, object] | None = None,
        claim: str | None = None,
        earlier: Collection[str] = (),
    ) -> None:
        _check.name(key=key, analyst=analyst, **({} if purpose is None else {"purpose": purpose}))
        self._ledger, self.key, self._analyst, self._purpose = ledger, key, analyst, purpose
        self._dataset, self._described = dataset, dict(described or {})
        self.claim, self._earlier = new_claim() if claim is None else claim, tuple(earlier)
        self.number, self.settled, self.lock = 0, False, RLock()
        self._people: list[Person] = []

    def reserve(self, people: Sequence[object], units: int, *, delta: float = 0.0, ended: bool = False) -> Self:
        """Reserve, in one transaction, what a training may cost each person: the units, or what that person has left.

        Args:
            people: who is in the training, each once, named as the ledger names people; private.
            units: the most that it may cost a person, in the ledger's measure; public.
            delta: what it costs beside its price, public, of what the ledger declares as ``keys_delta``.
            ended: this process has the end of a training of this key: if it is settled it is read, and charges nobody.

        Raises:
            ArgumentError: the key was used, by another training or question; or this training went on somewhere else,
                was settled or was written off, or reserved for other people or in another order. Or two of the people
                are one person in this ledger; or a transaction of the ledger is open, which could undo this one.
            BudgetExceeded: by public facts alone, nobody has anything left.

        Guarantee: whatever else charges the ledger, nobody is above the budget if the training charges each person at
            most ``units``: these count as spent from now on, until the training is settled.
        Source: theory 5.12, 5.10; docs/proofs/one-account.md.
        """
        _check.whole(1, units=units)
        names, accounts = _named(self._ledger, people), self._ledger.accounts
        tokens = [accounts.names.token(name) for name in names]
        order = sha256(plain({"people": tokens}).encode()).hexdigest()

        def work(transaction: Transaction, offer: TableOffer) -> object:
            if transaction.find(self.key) is not None:
                self.settled = self._is_settled(transaction.consumers.get(self.key), order, ended=ended)
                claimed = {"kind": "claimed", "training": self.key}
                return self.settled or transaction.append(claimed, {"claim": self.claim})
            terms = self._terms(transaction, int(units))
            admission = transaction.admit(offer, key=self.key, payment=Payment(pace=1), delta=delta, **terms)
            public = {"training": self._described, **transaction.about(self._dataset)}
            return transaction.settle(admission, public, training={"claim": self.claim, "order": order})

        self._alone(names, int(units), work)
        now = self._ledger.consumers[self.key]
        self.record, reserved = now.record, accounts.units_of(now.number)
        self._people, self.units = names, np.array([reserved.get(token, 0) for token in tokens], dtype=np.int64)
        return self

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
            LedgerError: so it is, or the ledger was closed, moved or replaced. Nothing more may be released.
        """
        with self._ledger.store.lock:  # a file that is compacted is replaced
            self._ledger.store.check_place()
        if self.settled:
            raise LedgerError(f"training {self.key!r} is settled: what was not spent was given back", reason="closed")
        now = self._ledger.consumers.get(self.key)
        if now is None or now.claim != self.claim:  # only the newest claim is in force
            done = "went on elsewhere" if now is None or now.state == "open" else f"was {now.state}"
            raise LedgerError(
                f"training {self.key!r} {done}: nothing more may be released here, and what it reserved counts "
                "as spent",
                reason="closed",
            )

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
            if not self._in_force(transaction):
                return False
            transaction.append({"kind": "claimed", "training": self.key}, {"claim": claim})
            return True

        with self.lock, self._ledger.store.lock:
            self._ledger.refuse_inside("no round of a training is released")
            if not self._ledger.transact(work):
                self.check()
                raise LedgerError(f"training {self.key!r} is over: nothing more may be released", reason="closed")
            self.claim = claim

    def settle(self, units: Units, *, public: Mapping[str, object] | None = None) -> Entry:
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
        if not _is_within(units, self.units):
            raise ArgumentError("units must be whole numbers from 0 to what was reserved for each person")

        def work(transaction: Transaction, offer: TableOffer) -> Entry:
            if not self._in_force(transaction):
                raise ArgumentError(f"training {self.key!r} went on elsewhere, or is over: nothing was given back")
            return transaction.refund(offer, self.key, dict(public or {}))

        entry = self._alone(self._people, units, work)
        self.settled = True
        return entry

    def refuse_used_key(self) -> None:
        """Refuse, with ArgumentError, a key that the ledger knows; before a new stream's state is written anywhere."""
        found = self._ledger.find(self.key)
        if found is not None:
            self._refuse_other_stream(self._ledger.consumers.get(self.key), found)

    def begin(self, number: int = 0) -> Self:
        """Begin a stream, or go on with it.

        Args:
            number: how many updates it has made.

        Raises:
            ArgumentError: the key was used by another stream, question or training; or the ledger has another number
                of updates of this stream, so that it is an older copy, or the stream's own state is; or a transaction
                is open.
        """
        _check.whole(0, number=number)
        self.number = number

        def work(transaction: Transaction) -> None:
            transaction.about(self._dataset)  # refuses one that is not declared
            found = transaction.find(self.key)
            if found is not None or number:
                return self._refuse_other_stream(transaction.consumers.get(self.key), found)
            whose = {"key": self.key, "analyst": self._analyst, "purpose": self._purpose}
            transaction.append({"kind": "stream", **whose, "stream": self._described}, {"claim": self.claim})
            return None

        self._ledger.refuse_inside("no stream goes on")
        self._ledger.transact(work)
        self.record = self._ledger.consumers[self.key].record
        return self

    def update(
        self,
        people: Sequence[object],
        price: int,
        *,
        pace: int = 1,
        contribute: Callable[[Units], Units],
        release: Callable[[], Mapping[str, object]],
    ) -> Entry:
        """Charge the people who are in the next update of a stream, and write down that it was released.

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
        names = _named(self._ledger, people)
        called = _offered_as(self._ledger, names)

        def once() -> Entry | None:
            def left(transaction: Transaction, offer: TableOffer) -> tuple[int, Units]:
                asked = self._next(transaction, int(price))
                admitted = transaction.admit(offer, payment=Payment(pace=int(pace)), **asked)
                rows = self._ledger.store.workspace.run(f"SELECT person, units FROM {admitted.people.rows}")
                most = dict(rows.fetchall())
                return transaction.number, np.array([most.get(name, 0) for name in called], dtype=np.int64)

            before, most = with_people(self._ledger, names, int(price), left)
            units = np.asarray(contribute(most))
            if not _is_within(units, most):
                raise ArgumentError("contribute must return whole numbers from 0 to what each person may pay")

            def charge(transaction: Transaction, offer: TableOffer) -> Entry | None:
                if transaction.number != before:  # somebody wrote: each may have less left, and is looked up again
                    return None
                admitted = transaction.admit(offer, **self._next(transaction, int(price)))
                if admitted.people.refused():
                    raise LedgerError("a person cannot pay what was left a moment ago", reason="damaged")
                public = {**release(), "stream": self.key, **transaction.about(self._dataset)}
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

    def _terms(self, transaction: Transaction, price: int) -> dict[str, Any]:
        """Terms for ``Transaction.admit``, at a price that somebody can have left, by public facts."""
        left = transaction.most(self._analyst, self._purpose)
        if left <= 0:
            raise exceeded(price, self._ledger.budget_units, 0, self._ledger.symbol)
        return {"price": min(price, left), "analyst": self._analyst, "purpose": self._purpose}

    def _next(self, transaction: Transaction, price: int) -> dict[str, Any]:
        """Terms on which each update is admitted; refuses one that is not the next."""
        if not self._in_force(transaction):
            raise ArgumentError(f"stream {self.key!r} went on elsewhere: nothing more is released here")
        return {"key": None, **self._terms(transaction, price)}

    def _in_force(self, transaction: Transaction) -> bool:
        """True if this process may go on, by its claim and the number of its updates."""
        now = transaction.consumers.get(self.key)
        return not self.settled and now is not None and (now.claim, now.updates) == (self.claim, self.number)

    def _is_settled(self, now: ConsumerState | None, order: str, *, ended: bool) -> bool:
        """Refuse a key of another training or process, and other people by order; True: settled, and only read."""
        if now is None or (now.kind, now.analyst, now.purpose) != ("training", self._analyst, self._purpose):
            self._refuse("was used for another question, training, analyst or purpose: choose another")
        settled = ended and now.state == "settled"
        if now.state != "open" and not settled:
            self._refuse(f"names a training that was {now.state}: choose another key for another training")
        if now.claim not in self._earlier and not settled:
            self._refuse(
                "names a training begun or resumed elsewhere: resume its folder, or write it off and choose another key"
            )
        if now.order != order:
            raise ArgumentError("people: they must be those that the training was begun with, in the same order")
        return settled

    def _refuse_other_stream(self, now: ConsumerState | None, found: Entry | None) -> None:
        """Refuse a key that is not this stream's, and a state that is not the newest."""
        if found is None:
            raise ArgumentError(
                f"key={self.key!r}: this ledger knows of no such stream, which has made {self.number} updates: it is "
                "another ledger, or an older copy of it"
            )
        if now is None or now.kind != "stream":
            self._refuse("was used for a question or training: choose another")
        if (now.analyst, now.purpose, now.claim) != (self._analyst, self._purpose, self.claim):
            self._refuse("names another stream: go on from its own folder, or choose another key")
        if now.updates != self.number:
            raise ArgumentError(
                f"stream {self.key!r} made {now.updates} updates on this ledger, and {self.number} here: the older of "
                "the two is a copy. Nothing more is released from it"
            )

    def _refuse(self, why: str) -> NoReturn:
        raise ArgumentError(f"key={self.key!r} {why}")

    def _alone(
        self, people: Sequence[Person], units: int | Units, work: Callable[[Transaction, TableOffer], Result]
    ) -> Result:
        """Do the work of one transaction of its own, with an offer of these units for each of these people."""
        with self._ledger.store.lock:
            self._ledger.refuse_inside("no training begins or ends")
            return with_people(self._ledger, people, units, work)


def new_claim() -> str:
    """A secret by which a process shows that a training is its own; keep it in the training's folder."""
    return secrets.token_hex(16)


def write_off(ledger: Ledger, key: str) -> None:
    """Give a training up that was killed and cannot go on: all that it reserved is spent, for good.

    Raises:
        ArgumentError: there is no such training under the key, or it is over already.
    """
    _check.name(key=key)

    def work(transaction: Transaction) -> None:
        now = transaction.consumers.get(key)
        if now is None or not now.reserves:
            raise ArgumentError(f"key={key!r} names no training that is open")
        transaction.append({"kind": "written off", "training": key})

    ledger.transact(work)


def _is_within(units: Units, most: Units) -> bool:
    return units.shape == most.shape and units.dtype == np.int64 and not np.any((units < 0) | (units > most))


def _named(ledger: Ledger, people: Sequence[object]) -> list[Person]:
    """The names of people as the ledger keeps them; ArgumentError where two of them are one person there."""
    names = ledger.people(people)
    if len(set(names)) < len(names):
        raise ArgumentError("people: two of them are one person in this ledger: give each person once")
    return names


def _offered_as(ledger: Ledger, people: Sequence[Person]) -> list[object]:
    """Names of these people in the rows of an offer: their own, or the numbers of people in periods."""
    if ledger.terms.person != Periods.NUMBERS:
        return list(people)
    kept = ledger.accounts.names
    return [kept.listed(kept.token(name)) for name in people]


def with_people(
    ledger: Ledger, people: Sequence[Person], units: int | Units, work: Callable[[Transaction, TableOffer], Result]
) -> Result:
    """Do the work of one transaction, as ``Ledger.answer``, with an offer of units for each of these private people."""
    store = ledger.store
    with store.lock:
        workspace = store.workspace
        kind, view = ledger.terms.person, workspace.fresh_name("people")
        shown = [str(name) for name in _offered_as(ledger, people)] if kind == Periods.NUMBERS else people
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
