"""One transaction on a ledger, handed out to the work that is done in it."""

from collections.abc import Callable, Mapping
from copy import deepcopy
from dataclasses import dataclass
from typing import Any

from almoner import _audit_hook, _check
from almoner.errors import ArgumentError
from almoner.ledger._accounts.tables import TableAdmitted, TableOffer
from almoner.ledger._payment import MASS, Payment
from almoner.ledger._record.datasets import Dataset
from almoner.ledger._record.entries import Entry, Row, find, insert, sealed
from almoner.ledger._record.rules import ConsumerState, Rules
from almoner.ledger._record.watch import Watch
from almoner.ledger._stores import Store


@dataclass(frozen=True, slots=True)
class Admission:
    """Who takes part in a question, and under which terms it was admitted. Only ``people`` is private.

    Fields:
        key, analyst, purpose, reserved: as asked; an update of a stream has no key.
        floor: units, at most the price, that every person could still pay for the question.
        periods: the first and the last that the question can be about; None for all.
        after: the number of the record's last entry then.
    """

    people: TableAdmitted
    key: str | None
    analyst: str
    purpose: str | None
    reserved: str | None
    price: int
    spare: int
    payment: Payment
    floor: int
    scopes: tuple[str, ...]
    delta: float
    periods: tuple[str, str] | None
    after: int


class Transaction:
    """One ledger transaction: all changes are committed together, and no result leaves the process before the commit.

    A question goes through ``find``, ``admit`` and ``settle``; what one returns is an argument of the next. Where the
    ledger begins a transaction again, the work gets a new transaction.
    """

    def __init__(self, store: Store, rules: Rules) -> None:
        self._store, self._rules = store, rules
        self.last = rules.number, rules.hash
        """Number and hash of the last entry."""
        self.datasets: Mapping[str, Dataset] = rules.datasets
        """The data sets that were declared before this transaction, by name."""
        self.consumers: Mapping[str, ConsumerState] = rules.consumers
        """The trainings and streams by key, as they were before this transaction."""
        self._keys: set[str] = set()  # of entries that were added here
        self._begun_at, self._unread = rules.number, list[Row]()  # entries added here that the rules have not read
        self._admission: Admission | None = None

    def find(self, key: str) -> Entry | None:
        """The entry under a key, without its private part: another writer may have come first."""
        return find(self._store.run, key) if key in self._rules.keys or key in self._keys else None

    def refuse_changed(self, what: str) -> None:
        """Refuse what depends on limits and prices once this transaction has changed the record."""
        if self.number != self._begun_at:
            raise ArgumentError(f"{what} after another change in the same transaction: use a transaction of its own")

    def _read_own(self) -> None:
        """Have the rules follow what this transaction added: a copy of them, since all of it may be undone."""
        if self._unread and self._rules.number == self._begun_at:
            self._rules = deepcopy(self._rules, {id(self._rules.terms): self._rules.terms})
        for row in self._unread:
            self._rules.read(row)
        self._unread.clear()

    def admit(
        self,
        offer: TableOffer,
        *,
        key: str | None,
        price: int,
        spare: int = 0,
        payment: Payment | None = None,
        analyst: str,
        purpose: str | None = None,
        reserved: str | None = None,
        delta: float = 0.0,
        periods: tuple[str, str] | None = None,
        anyway: bool = True,
    ) -> Admission:
        """Choose who takes part in a question, out of what was offered, by the accounts and rules as they are here.

        Args:
            offer: what ``Ledger.answer`` prepared.
            key: of the question; None for an update of a stream, which has a number.
            price: the most that the question costs a person, with what is fixed in ``payment``; units, public.
            spare: what each person who takes part must have left after paying, units, public; not with a pace.
            payment: how the question is paid for; None where a person pays in full or is left out.
            analyst, purpose: who asks, and what for.
            reserved: the key under which budget was set aside for this question.
            delta: what the question costs beside its price, public, of what the ledger declares for keys.
            periods: public, of a ledger with periods: the first and the last one that the question can be about,
                whatever the data; None for all.
            anyway: whether it is asked although not everybody can pay for it for certain; see
                ``Payment.refuse_uncertain``. So it is under a watch, which tells when too many people are missing.

        Raises:
            ArgumentError: nothing is reserved under this key for this analyst and purpose.
            BudgetExceeded: by public facts alone, nobody can pay the full price and have ``spare`` left; or, but for
                ``anyway``, who paid the highest price of every question so far cannot.
            DataError: the data cannot be read.

        Guarantee: each person admitted can pay within the budget, and within every limit that applies; what is
            reserved for other questions is not touched.
        Source: theory 5.1 and 5.3; Feldman & Zrnic (2021), Thm 4.5 and Alg. 8; docs/proofs/individual-filter.md.
        """
        self._read_own()
        payment = Payment() if payment is None else payment
        _check.whole(0, price=price, spare=spare, fixed=payment.fixed)
        if payment.pace is not None:
            _check.whole(1, pace=payment.pace)
            if spare:
                raise ArgumentError(f"pace={payment.pace}: who has {spare} units to spare is not asked of who shrink")
        more: dict[str, Any] = {"spare": spare, "delta": delta, "periods": periods, "anyway": anyway}
        allowance, floor = self._rules.admit(price, payment, who=(analyst, purpose), reserved=reserved, **more)
        shares = [share._replace(most=share.most - spare) for share in allowance.shares]
        people = offer.admit(allowance.most - spare, shares, payment)
        scopes = tuple(share.scope for share in shares)
        asked = (key, analyst, purpose, reserved, price, spare)
        self._admission = Admission(people, *asked, payment, floor, scopes, delta, periods, self.number)
        return self._admission

    def settle(
        self,
        admission: Admission,
        public: Mapping[str, object],
        *,
        watch_noise: Callable[[Watch], int] | None = None,
        training: Mapping[str, str] | None = None,
        update: int | None = None,
    ) -> Entry:
        """Charge each person admitted and store the finished answer.

        Args:
            admission: what ``admit`` returned in this transaction; it is settled once.
            public: the question and its answer. The price, who asked under which key, and ``floor`` are added: the
                units, at most the price, that every person could still pay, known before the data was looked at.
            watch_noise: draws the noise on the number of missing people; where it is given and the ledger is watched,
                the answer says whether it is ``complete``: whether all watches over it are still silent, with this
                question. Questions with ``spare`` do not matter to a watch.
            training: of a training, private: the ``claim`` that may settle it, and the ``order`` of its people.
            update: of a stream: its number there; ``public`` names the ``stream``.

        Guarantee: after the transaction either the answer is stored and each person in it is charged, or neither. All
            that a watch ever tells is paid for: ``Watch``, theory 5.8.
        """
        if admission is not self._admission or self.number != admission.after:
            raise ArgumentError("admission: not this transaction's, or settled already, or the record grew since")
        self._admission = None
        complete = self._complete(admission, watch_noise)
        if admission.delta:
            self.append({"kind": "delta", "delta": admission.delta, "question": admission.key})
        fields = ("analyst", "purpose", "key", "reserved", "price", "floor")
        asked: dict[str, object] = {name: getattr(admission, name) for name in fields}
        paid: dict[str, object] = {"pace": admission.payment.pace, "fixed": admission.payment.fixed}
        paid |= {"spare": admission.spare, "delta": admission.delta, "periods": list(admission.periods or ())}
        asked |= {name: value for name, value in paid.items() if value}
        entry = {**public, **({} if complete is None else {"complete": complete}), **asked}
        entry["kind"] = "answered" if training is None else "training"
        entry |= {} if update is None else {"kind": "update", "update": update}
        note = admission.people.charge(self.number + 1, admission.scopes, self._rules.chargeable)
        return self.append(entry, {**note, **(training or {})})

    def refund(self, offer: TableOffer, key: str, public: Mapping[str, object]) -> Entry:
        """Settle an open training: each person pays what was offered, and gets back what was reserved beside it.

        Args:
            offer: what the training cost each person, at most what was reserved for that person.
            key: of the training.
            public: what the record says of it.

        Guarantee: each person remains charged what was offered, whoever else was charged in the meantime.
        Source: theory 5.12.
        """
        self._read_own()
        training = self._rules.consumers[key]
        if not training.reserves:
            raise ArgumentError(f"key={key!r} names no training that is open")
        scopes = self._rules.allowance(analyst=training.analyst, purpose=training.purpose, reserved=None).shares
        note = offer.refund(self.number + 1, training.number, [share.scope for share in scopes])
        whose = {"analyst": training.analyst, "purpose": training.purpose}
        return self.append({**public, **whose, "kind": "settled", "training": key, "of": training.number}, note)

    def about(self, dataset: str | None) -> dict[str, object]:
        """The fields of an entry that name a data set, as it is declared now (else ArgumentError); none for None."""
        if dataset is None:
            return {}
        if dataset not in self.datasets:
            raise ArgumentError(f"dataset={dataset!r} is not declared (Ledger.dataset) in this ledger")
        return {"dataset": dataset, "declared": {dataset: self.datasets[dataset].number}}

    def mergeable(self, last: int) -> int:
        """The last entry, at most this one, up to which charges may be merged.

        What a training reserved is not merged while the training is open, nor without what it gave back.
        """
        spans: list[tuple[int, int | None]] = [(reserved, None) for reserved in self.open_trainings()]
        spans += [(reserved, back) for back, reserved in self._rules.settled.items()]
        for begun, ended in sorted(spans, key=lambda span: -span[0]):
            if begun <= last and (ended is None or ended > last):
                last = begun - 1
        return last

    def open_trainings(self) -> set[int]:
        """The numbers of the entries that reserved for trainings which may still be settled."""
        return {consumer.number for consumer in self._rules.consumers.values() if consumer.reserves}

    @property
    def number(self) -> int:
        """Of the record's last entry."""
        return self.last[0]

    def most(self, analyst: str, purpose: str | None) -> int:
        """Units that nobody can have more of left: the least over the budget and limits, by public facts."""
        return self._rules.allowance(analyst=analyst, purpose=purpose, reserved=None).least

    @property
    def limited(self) -> list[str]:
        """The scopes that are limited."""
        return list(self._rules.limits)

    def append(self, public: Mapping[str, object], private: Mapping[str, object] | None = None) -> Entry:
        """Add an entry to the record, filed under the key, analyst and purpose in its public part."""
        number, before = self.last
        row = sealed(number + 1, before, public, private or {})
        insert(self._store.run, row)
        self.last = row.number, row.hash
        self._unread.append(row)
        if row.key is not None:
            self._keys.add(row.key)
        return row.entry()

    def _complete(self, admission: Admission, noise: Callable[[Watch], int] | None) -> bool | None:
        """True if every watch over this question is still silent, with this question; None where none is asked."""
        watches = self._rules.watching(admission.analyst, admission.purpose)
        if not watches or noise is None or admission.spare:
            return None
        people, silent = admission.people, True
        for scope, watch in watches.items():
            if scope in self._rules.spoke:
                silent = False
                continue
            missing = people.missing_mass(admission.price) if watch.mass else people.refused()
            if _spoke(scope, watch, missing, noise):
                self.append({"kind": "spoke", **({"scope": scope} if scope else {})})
                silent = False
        return silent


def _spoke(scope: str, watch: Watch, missing: int, noise: Callable[[Watch], int]) -> bool:
    """True if a watch speaks, with fresh noise on the number."""
    part = _audit_hook.Part((scope, watch), "threshold", most=float(MASS if watch.mass else 1), one_way=watch.mass)
    return _audit_hook.released(
        lambda: watch.speaks(missing, noise(watch)), exact=float(missing), mechanism=watch, part=part
    )
