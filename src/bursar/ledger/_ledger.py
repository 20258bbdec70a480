"""The ledger: what was asked, what it cost everybody, and what was answered, in one durable file."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, Self, TypeVar

from bursar import _check
from bursar._units import to_float
from bursar.errors import ArgumentError, LedgerError, Unsupported
from bursar.filters import Zcdp
from bursar.ledger._accounts.parquet import Generations
from bursar.ledger._accounts.tables import Accounts, Keeper
from bursar.ledger._reading import Reading, opening
from bursar.ledger._record import Entry, name, sealed
from bursar.ledger._rules import Agreed
from bursar.ledger._stores.schema import COLUMNS
from bursar.ledger._stores.store import Store, door
from bursar.ledger._terms import check_terms, exceeded, first_entry, scope_of, worded
from bursar.ledger._watch import Counting, Watch

__all__ = ["Ledger"]

Result = TypeVar("Result")


class Ledger(Reading):
    """An open ledger, for the data holder: everything per person in it is private.

    ``Ledger.open`` makes it or opens it; one process at a time may have it open.
    """

    def __init__(self, store: Store, terms: dict[str, Any], keeper: Keeper) -> None:
        super().__init__(store, terms, keeper)
        self._agreed = Agreed(self._budget)
        self._seen = -1
        self._catch_up()

    @classmethod
    def open(
        cls,
        path: Path | str,
        *,
        budget: Zcdp | None = None,
        person: str | None = None,
        create: bool = True,
        memory_limit: str | None = None,
        threads: int | None = None,
        keeper: Keeper | None = None,
    ) -> Self:
        """Open a ledger; make it if there is none.

        Args:
            path: the file, or ``postgresql://user@server/database``.
            budget: what everybody may spend, public; None for what the ledger was made for.
            person: how people are named: BIGINT (whole numbers) or VARCHAR (text); None for what it was made for.
            create: whether a missing file is made. A ledger that got lost must not be replaced by an empty one: say
                False where it must be there.
            memory_limit, threads: what DuckDB may use, for example "4GB" and 2.
            keeper: who keeps everybody's account; None for tables beside the record, or whoever reads what is there.
        """
        store = door(path)
        kept = keeper or store.keeper()
        check_terms(budget, person)
        try:
            if not store.exists():
                if not create:
                    raise LedgerError(f"{store.name} is not there, and a new one must not be made (create=False)")
                if budget is None or person is None:
                    raise LedgerError(
                        f"{store.name} is not there, and cannot be made without a budget and a kind of names"
                    )
                store.create(person, first_entry(budget, person, kept.kind))
            store.open(memory_limit=memory_limit, threads=threads)
            terms = opening(store)
            if keeper is None and terms.get("accounts") == Generations.kind:
                kept = Generations()
            given = {
                "budget": None if budget is None else budget.notion.person_limits()[0],
                "person": person,
                "accounts": kept.kind,
            }
            for field, value in given.items():
                if value is not None and terms.get(field, Accounts.kind) != value:
                    raise ArgumentError(f"{store.name} was made for {worded(field, terms.get(field), value)}")
            kept.open(store)
            return cls(store, terms, kept)
        except BaseException as error:
            store.close()
            if isinstance(error, IndexError | ValueError | KeyError) and not isinstance(error, ArgumentError):
                raise LedgerError(f"{store.name} is damaged: its first entry does not say the terms") from None
            raise

    def limit(self, units: int, *, analyst: str | None = None, purpose: str | None = None) -> None:
        """The most that one analyst, or all questions for one purpose, may cost each person; within the budget for all.

        A limit counts what was asked before it, too. It does not widen anything: the budget holds for all together,
        whether or not analysts tell each other their answers.
        """
        scope = scope_of(analyst, purpose)
        _check.whole(0, units=units)
        units = int(units)
        whose, name_of = ("analyst", analyst) if analyst is not None else ("purpose", purpose)

        def work() -> None:
            told: dict[str, Any] = {}
            if scope not in self._agreed.limits:
                before = self._store.run(
                    f"SELECT number FROM ledger.record WHERE kind = 'answered' AND {whose} = ?", [name_of]
                ).fetchall()
                told = self._keeper.open_share(scope, [number for (number,) in before])
            self._append({"kind": "limited", "scope": scope, "units": units}, told)

        self.transaction(work)

    def reserve(self, units: int, *, key: str, analyst: str | None = None, purpose: str | None = None) -> None:
        """Set a part of everybody's budget aside for a question to come; it counts as spent until used or released.

        Args:
            units: how much, public.
            key: what to call it.
            analyst, purpose: whose question may use it; anybody's who knows the key where neither is given.

        Raises:
            BudgetExceeded: that much is not left beside what is reserved already.
        """
        name(key=key)
        _check.whole(1, units=units)
        units = int(units)
        whose = {kind: told for kind, told in (("analyst", analyst), ("purpose", purpose)) if told is not None}
        name(**whose)

        def work() -> None:
            held = self._agreed.reserved.get(key)
            if held == (units, whose):
                return
            if held is not None:
                raise ArgumentError(f"key={key!r} reserves rho={to_float(held[0]):g} already")
            if self.find(key) is not None:
                raise ArgumentError(f"key={key!r} was used before")
            left = self._agreed.open_to_all - self._agreed.set_aside()
            if units > left:
                raise exceeded(units, self._budget, left)
            self._append({"kind": "reserved", "name": key, "units": units, "whose": whose}, key=key)

        self.transaction(work)

    def release(self, key: str) -> None:
        """Give back what was reserved under a key."""
        name(key=key)

        def work() -> None:
            if key not in self._agreed.reserved:
                raise ArgumentError(f"key={key!r} reserves nothing")
            self._append({"kind": "released", "name": key})

        self.transaction(work)

    def watch(self, watch: Watch) -> None:
        """Begin a watch over how many people could not pay; its price is set aside from everybody's budget for good.

        Args:
            watch: with the threshold's noise.

        Raises:
            BudgetExceeded: by public facts alone, that much is not left to everybody.
        """
        if not isinstance(self._keeper, Counting):
            raise Unsupported("these accounts cannot tell how many people are missing")
        if watch.noise is None:
            raise ArgumentError("watch: its threshold has no noise; Session.watch draws it")

        def work() -> None:
            if self._agreed.watch is not None:
                raise ArgumentError("this ledger is watched already")
            asked = sum(int(entry.public["price"]) for entry in self.entries("answered"))
            left = max(0, self._budget - self._agreed.set_aside() - asked)
            if watch.units > left:
                raise exceeded(watch.units, self._budget, left)
            public = {"kind": "watched", "people": watch.people, "epsilon": watch.epsilon, "units": watch.units}
            self._append(public, {"noise": watch.noise})

        self.transaction(work)

    def complete(self, noise: Callable[[Watch], int]) -> bool | None:
        """Whether the watch is still silent, with this question; None where there is no watch. In a transaction.

        Args:
            noise: draws the noise on the number of missing people.

        Guarantee: all that this ever tells is paid for: ``Watch``.
        Source: theory 5.8.
        """
        watch = self._agreed.watch
        if watch is None or not isinstance(self._keeper, Counting):
            return None
        if self._agreed.spoke:
            return False
        if watch.speaks(self._keeper.refused(), noise(watch)):
            self._append({"kind": "spoke"})
            return False
        return True

    def transaction(self, work: Callable[[], Result]) -> Result:
        """Work that reads and writes the ledger as one transaction; nothing of it may be told before this returns.

        Guarantee: either all of it is written, or nothing; limits and reservations in it are those in force.
        """

        def begun() -> Result:
            self._catch_up()
            return work()

        with self._store.lock:  # whether a transaction is open is asked by its own thread alone
            return self._store.transact(work if self._store.inside else begun)

    def offer(self, charges: Any, parameters: list[Any] | None = None) -> None:
        """What a question would charge everybody, for ``admit``; before the transaction in which that is called.

        Args:
            charges: SQL for the desk that gives person (each once), units, and whatever else the engine wants to keep;
                or what else the keeper of the accounts takes.
            parameters: of that SQL.
        """
        self._keeper.offer(charges, parameters or [])

    def admit(
        self,
        *,
        price: int,
        spare: int = 0,
        analyst: str,
        purpose: str | None,
        reserved: str | None = None,
    ) -> None:
        """Choose who takes part: makes the table ``admitted``, on the desk, out of the charges that were offered.

        Args:
            price: the most that the question costs anybody, units, public.
            spare: what must be left to whoever takes part after paying, units, public.
            analyst, purpose: who asks, and what for.
            reserved: the key under which budget was set aside for this question.

        Raises:
            BudgetExceeded: by public facts alone, nobody could pay the full price.

        Guarantee: whoever is admitted can pay within the budget, and within every limit that applies; what is reserved
            for other questions is not touched.
        Source: theory 5.1; Feldman & Zrnic (2021), Thm 4.5.
        """
        _check.whole(0, price=price, spare=spare)
        most, scopes = self._agreed.most(price, spare, analyst=analyst, purpose=purpose, reserved=reserved)
        self._keeper.admit(most - spare, [(scope, units - spare) for scope, units in scopes])

    def settle(
        self, public: dict[str, Any], *, key: str, analyst: str, purpose: str | None, reserved: str | None = None
    ) -> Entry:
        """Charge everybody in ``admitted`` and store the finished answer, in one transaction.

        Args:
            public: the entry: question, price, answer.
            key, analyst, purpose, reserved: as asked.

        Guarantee: afterwards either the answer is stored and everybody in it is charged, or neither.
        """

        def work() -> Entry:
            number = self._next()[0]
            scopes = [scope for scope, _ in self._agreed.limits_of(analyst, purpose)]
            asked = {"analyst": analyst, "purpose": purpose, "key": key, "reserved": reserved}
            return self._append(
                {**public, "kind": "answered", **asked},
                self._keeper.charge(number, scopes, self._agreed.open_to_all),
                **asked,
            )

        return self.transaction(work)

    def retire(self, person: object) -> None:
        """Somebody leaves: left out of every later question. The account stays: nobody returns with a new one."""
        self._mark(person, gone=True)

    def restore(self, person: object) -> None:
        """Somebody returns, to the account as it was left."""
        self._mark(person, gone=False)

    def _mark(self, person: object, *, gone: bool) -> None:
        known = self.person(person)

        def work() -> None:
            told = self._keeper.mark(known, gone=gone)
            self._append({"kind": "retired" if gone else "returned"}, {**told, "person": known})

        self.transaction(work)

    def _catch_up(self) -> None:
        """Read what was recorded since the last time, by whomever: limits, reservations, and where accounts are."""
        rows = self._store.run(
            "SELECT number, kind, private, CASE WHEN kind = 'answered' THEN NULL ELSE public END, reserved "
            "FROM ledger.record WHERE number > ? ORDER BY number",
            [self._seen],
        ).fetchall()
        for number, kind, private, public, used in rows:
            note = json.loads(private)
            if kind == "answered":
                self._agreed.used(used)
            else:
                self._agreed.read(json.loads(public), note)
            if note.get("accounts") is not None:
                self._keeper.follow(note["accounts"])
            self._seen = number

    def _next(self) -> tuple[int, str]:
        row = self._store.run("SELECT number, hash FROM ledger.record ORDER BY number DESC LIMIT 1").fetchone()
        if row is None:
            raise LedgerError("the record is empty")
        return row[0] + 1, row[1]

    def _append(
        self,
        public: dict[str, Any],
        private: dict[str, Any] | None = None,
        *,
        key: str | None = None,
        analyst: str | None = None,
        purpose: str | None = None,
        reserved: str | None = None,
    ) -> Entry:
        number, before = self._next()
        row = sealed(
            number, before, public, private or {}, key=key, analyst=analyst, purpose=purpose, reserved=reserved
        )
        places = ", ".join("?" for _ in row)
        self._store.run(f"INSERT INTO ledger.record({COLUMNS}) VALUES ({places})", list(row))
        *_, told, _, found = row
        return Entry(number, json.loads(told), found)
