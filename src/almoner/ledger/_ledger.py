"""The ledger: what was asked, what it cost each person, and what was answered, in one durable record."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, closing, suppress
from dataclasses import replace
from math import ceil, floor
from pathlib import Path
from typing import Any, Self, TypeVar

from almoner import _check
from almoner._uncopyable import Uncopyable
from almoner._units import as_float, exact, to_float
from almoner._workspace import Query
from almoner.accounting.meaning import Meaning
from almoner.errors import ArgumentError, LedgerError
from almoner.ledger._accounts.postgres import PostgresAccounts
from almoner.ledger._accounts.tables import TableAccounts, TableOffer
from almoner.ledger._copy_guard import Witness, newest, witness_to_record
from almoner.ledger._names import Person
from almoner.ledger._opening import closed_on_error, create_in, names_of, open_store
from almoner.ledger._periods import Periods
from almoner.ledger._record import rules as _rules
from almoner.ledger._record.datasets import Dataset
from almoner.ledger._record.entries import START, Entry, Row, find, read_rows
from almoner.ledger._record.rules import CHARGING, EVERYTHING, Answered, ConsumerState, Rules, scope_of
from almoner.ledger._record.terms import LedgerBudget, RecordedTerms, Terms
from almoner.ledger._record.watch import Watch
from almoner.ledger._stores import Postgres, Store
from almoner.ledger._transaction import Transaction

Result = TypeVar("Result")


class Ledger(Uncopyable, AbstractContextManager["Ledger"]):
    """An open ledger, for the data holder: everything per person in it is private.

    ``Ledger.open`` makes it or opens it; a file may be open in one process at a time.
    """

    store: Store
    """Where the ledger is kept. Private."""
    accounts: TableAccounts
    """The accounts. Private."""

    def __init__(self, store: Store, accounts: TableAccounts) -> None:
        self.store, self.accounts = store, accounts
        self._rules = Rules()
        self._written = (-1, START)
        self._transaction: Transaction | None = None  # while a transaction is open
        self._catch_up()
        if not store.reading:
            self.ask_witness()

    @classmethod
    def open(
        cls,
        path: Path | str,
        terms: Terms | LedgerBudget | None = None,
        *,
        pseudonyms: Path | str | None = None,
        witness: Path | str | None = None,
        create: bool = False,
        memory_limit: str | None = None,
        threads: int | None = None,
    ) -> Self:
        """Open a ledger; with ``create``, make it if there is none.

        Args:
            path: the file, or ``postgresql://user@server/database``.
            terms: on which it is made, or that it must have; a budget alone, or None for those that it was made for.
            pseudonyms: a file with a key, private, beside the data: a ledger that is made with it stores keyed hashes
                of people's names (the first 128 bits of HMAC-SHA256). The file is made if it is missing then. Later:
                where it is now; None for where it was.
            witness: a file on another volume that remembers the newest entry, see ``witnessed_by``: it must be the
                ledger's. With ``create`` it is begun where the ledger has none. None for the one that the ledger has.
            create: make the ledger where there is none. Without it a missing one is refused, since an empty one in the
                place of one that got lost would give everybody a fresh budget.
            memory_limit, threads: what DuckDB may use, for example "4GB" and 2.

        Raises:
            ArgumentError: the ledger was made for other terms.
            LedgerError: it is not there, or cannot be opened or made; ``reason`` says what can be done. Where the
                ledger is not there but its witness is, the ledger got lost, and none is made.
        """
        store, key, wanted = open_store(path), None if pseudonyms is None else Path(pseudonyms), Terms.of(terms)
        with closed_on_error(store):
            if not store.exists():
                create_in(store, wanted, create=create, pseudonyms=key, witness=witness)
            store.open(memory_limit=memory_limit, threads=threads)
            recorded = RecordedTerms.read(read_rows(store.run, "number = 0")[0].entry().public)
            accounts = PostgresAccounts(store) if isinstance(store, Postgres) else TableAccounts()
            recorded.refuse_other(store.name, wanted)
            accounts.open(store, names_of(store, recorded, key))
            book = cls(store, accounts)
            unrecorded = witness_to_record(store, book.witness, witness, begin=create)
            if unrecorded is not None:
                book._record_witness(unrecorded)
            book.declare(wanted)
            return book

    @staticmethod
    def exists(path: Path | str) -> bool:
        """True if there is something under this name that a ledger could be; a server is asked."""
        with closing(open_store(path)) as store:
            return store.exists()

    @property
    def budget(self) -> float:
        """The most that each person may spend, in the ledger's measure, rounded down. Public."""
        return to_float(self.budget_units, down=True)

    @property
    def budget_units(self) -> int:
        """The most that each person may spend, in whole units. Public."""
        return self.terms.budget

    @property
    def terms(self) -> RecordedTerms:
        """Terms that the ledger was made for, as its first entry says them. Public."""
        return self._rules.terms

    @property
    def measure(self) -> str:
        """Measure that is counted: "zCDP rho", "Gaussian rho" (mu squared / 2), or "epsilon". Public."""
        return self.terms.measure

    @property
    def symbol(self) -> str:
        """Of the measure, for messages: rho or epsilon. Public."""
        return self.terms.symbol

    def promise(self, delta: float) -> float:
        """The epsilon, rounded up, that the whole budget promises at delta. Public.

        Where questions for keys may cost a delta of their own, it is taken off first: infinite where nothing is left.

        Guarantee: all that is charged within the budget is together (epsilon, delta)-DP.
        Source: theory 3.2 (zCDP), 3.3 (Gaussian), 4.5 (pure); docs/proofs/unknown-keys.md, Theorem 2.
        """
        return self.terms.promise(delta)

    def meaning(self) -> Meaning:
        """Bounds on how well anyone can tell whether a person was in, from all that the budget ever pays for. Public.

        With periods: from all that the budgets of all periods pay for.

        Guarantee: no attack on all that is charged within the budget does better.
        Source: theory 8.1; docs/proofs/periods.md, Theorem 2.
        """
        return self.terms.meaning()

    @property
    def stated_delta(self) -> float:
        """The delta at which pages and statements say what the budget promises. Public.

        That of the budget, or 1e-6 where it was given without one, and what keys may cost on top.
        """
        return as_float(exact(self.terms.delta or 1e-6) + exact(self.terms.keys_delta or 0))

    def declare(self, terms: Terms) -> None:
        """Put the data sets and limits of terms in force, where they are not so yet.

        Raises:
            ArgumentError: a data set was declared otherwise.
        """

        def work(_: Transaction) -> None:
            for name, fields in terms.datasets.items():
                self.dataset(name, **fields)
            for scope, share in terms.limits.items():
                units, (kind, name) = floor(exact(share) * self.budget_units), scope.partition(":")[::2]
                if self._rules.limits.get(scope) != units:
                    self.limit(units, **{kind: name})

        if terms.datasets or terms.limits:
            self.transact(work)

    @property
    def periods(self) -> Periods | None:
        """The periods that bring every person a budget; None: there is one for good. Public."""
        return self.terms.periods

    def lifetime(self, delta: float) -> float:
        """The epsilon, rounded up, that the budgets of all periods together promise a person at delta. Public.

        Guarantee: all that is charged is together (epsilon, delta)-DP for adding or removing a person with all rows.
        Source: docs/proofs/periods.md, Theorem 2.
        """
        return self.terms.lifetime(delta)

    def dataset(
        self, name: str, *, person: str, columns: Mapping[str, Any] | None = None, new_version: bool = False
    ) -> Dataset:
        """Declare a data set; nothing happens where it was declared so before.

        From the first declaration on, a session says which data sets its tables are, and a table that does not fit its
        declaration is refused.

        Args:
            name: letters, digits and ``_``, public; of a table of several, the name of the table.
            person: the column that says whose row it is, public.
            columns: what is public about columns, each a ``Domain``, or ``{"low": 0, "high": 100}`` or ``{"keys":
                [...]}``. Questions that leave bounds or keys out get them from here.
            new_version: whether a declaration that differs takes the place of the one before it, from now on. What was
                asked before says which declaration it was about.

        Returns:
            The data set, with the number of its entry in the record.

        Raises:
            ArgumentError: it was declared otherwise; the message has the field that differs.
        """
        wanted = Dataset(name, person, self.terms.data_names, {} if columns is None else columns)

        def work(transaction: Transaction) -> Dataset:
            new = wanted.following(self.datasets, new_version=new_version)
            return new if new.number >= 0 else replace(new, number=transaction.append(new.public).number)

        return self.transact(work)

    @property
    def datasets(self) -> dict[str, Dataset]:
        """The data sets that were declared, by name, each in its last version. Public."""
        return dict(self._rules_now().datasets)

    def amount(self, rho: float | None, epsilon: float | None) -> float:
        """The amount, above 0, in the ledger's measure: one of the two."""
        amount, other = (rho, epsilon) if self.symbol == "rho" else (epsilon, rho)
        if amount is None or other is not None:
            raise ArgumentError(f"this ledger counts {self.measure}: give {self.symbol}=")
        _check.positive(**{self.symbol: amount})
        return amount

    def limit(self, units: int, *, analyst: str | None = None, purpose: str | None = None) -> None:
        """The most that one analyst, or all questions for one purpose, may cost each person; within the budget for all.

        A limit counts what was asked before it, too. It does not widen anything: the budget holds for all together,
        whether or not analysts tell each other their answers.
        """
        scope = scope_of(analyst, purpose)
        _check.whole(0, units=units)
        column, name = ("analyst", analyst) if analyst is not None else ("purpose", purpose)

        def work(transaction: Transaction) -> None:
            if scope not in self._rules.limits:
                if any(each.public["scope"] == scope for each in self.entries("limited", after=self._rules.number)):
                    raise ArgumentError(f"{scope} is limited already in this transaction")
                sql = f"SELECT number FROM ledger.record WHERE kind IN {CHARGING!r} AND {column} = ?"
                asked = [number for (number,) in self.store.run(sql, [name])]
                self.accounts.open_share(scope, asked + list(self._rules.erased.values()))
            transaction.append({"kind": "limited", "scope": scope, "units": int(units)})

        self.transact(work)

    def reserve(self, units: int, *, key: str, analyst: str | None = None, purpose: str | None = None) -> None:
        """Set a part of each person's budget aside for a question to come; it counts as spent until used or released.

        Args:
            units: how much, public.
            key: what to call it.
            analyst, purpose: whose question may use it; where neither is given, any analyst's who knows the key.

        Raises:
            BudgetExceeded: that much is not left beside what is reserved already.
        """
        _check.name(key=key)
        _check.whole(1, units=units)
        units = int(units)
        whose = {kind: name for kind, name in (("analyst", analyst), ("purpose", purpose)) if name is not None}
        _check.name(**whose)

        def work(transaction: Transaction) -> None:
            earmark = self._rules.earmarked.get(key)
            if earmark == (units, whose):
                return
            if earmark is not None:
                raise ArgumentError(f"key={key!r} reserves {self.symbol}={to_float(earmark.units):g} already")
            if transaction.find(key) is not None:
                raise ArgumentError(f"key={key!r} was used before")
            transaction.refuse_changed("nothing is reserved")
            self._rules.refuse_beyond(units, 0)
            transaction.append({"kind": "reserved", "name": key, "units": units, "whose": whose})

        self.transact(work)

    def release(self, key: str) -> None:
        """Give back what was reserved under a key."""
        _check.name(key=key)

        def work(transaction: Transaction) -> None:
            if key not in self._rules.earmarked:
                raise ArgumentError(f"key={key!r} reserves nothing")
            transaction.append({"kind": "released", "name": key})

        self.transact(work)

    def watch(self, watch: Watch, *, analyst: str | None = None, purpose: str | None = None) -> None:
        """Begin a watch over how many people could not pay; its price is set aside from each person's budget for good.

        Args:
            watch: with the threshold's noise.
            analyst, purpose: public. Over the questions of an analyst, or for a purpose, alone; else over all.

        Raises:
            BudgetExceeded: by public facts alone, a person may not have that much left.
        """
        if watch.noise is None:
            raise ArgumentError("watch: its threshold has no noise; Session.watch draws it")
        scope = EVERYTHING if analyst is None and purpose is None else scope_of(analyst, purpose)

        def work(transaction: Transaction) -> None:
            transaction.refuse_changed("nothing is watched")
            if scope in self._rules.watches:
                raise ArgumentError(f"{scope or 'this ledger'} is watched already")
            price = watch.price(self.measure)
            self._rules.refuse_beyond(price, self._rules.charged_in_all.most())
            whose = {"scope": scope} if scope else {}
            transaction.append({"kind": "watched", **watch.public, **whose, "units": price}, {"noise": watch.noise})

        self.transact(work)

    def retire(self, person: object) -> bool:
        """A person leaves: in no later answer; the account is kept. False, private, where no account has this name."""
        return self._mark(person, gone=True)

    def restore(self, person: object) -> None:
        """A person returns, to the account as it was left; ArgumentError where nobody of this name has left."""
        self._mark(person, gone=False)

    def _mark(self, person: object, *, gone: bool) -> bool:
        names = self.accounts_of(person)

        def work(transaction: Transaction) -> bool:
            before = [self.accounts.has_left(name) for name in names]
            if not gone and not any(before):
                raise ArgumentError("restore: nobody of this name has left; names are spelt as in the data")
            for name in names:
                self.accounts.mark(name, gone=gone)
                private = {"person": self.accounts.names.token(name)}
                transaction.append({"kind": "retired" if gone else "returned"}, private)
            return any(each is not None for each in before)

        return self.transact(work)

    def transact(self, work: Callable[[Transaction], Result]) -> Result:
        """Work that reads and writes the ledger as one transaction; nothing of it may be told before this returns.

        Args:
            work: gets the transaction; it is called again, with another one, where a server begins it again. Inside
                another transaction it is a part of that one.

        Guarantee: either all of it is written, or nothing; limits and reservations in it are those in force.
        """
        written = self._written

        def begun() -> Result:
            nonlocal written
            self._catch_up()
            self._transaction = Transaction(self.store, self._rules)
            try:
                result = work(self._transaction)
                written = self._transaction.last
                return result
            finally:
                self._transaction = None

        with self.store.lock:  # only its own thread asks whether a transaction is open
            open_transaction = self._transaction if self.store.inside else None
            if open_transaction is not None:
                return work(open_transaction)
            result = self.store.transact(begun)
            self._written = written
            self.ask_witness()
            return result

    def refuse_inside(self, what: str) -> None:
        """Refuse what must not be undone with a transaction that is open in this thread; waits for other threads'."""
        with self.store.lock:
            if self.store.inside:
                raise ArgumentError(f"ledger: {what} while a transaction is open, which may be undone")

    def answer(self, charges: Query, work: Callable[[Transaction, TableOffer], Result]) -> Result:
        """Prepare what a question would charge each person, then do the work of answering it in one transaction.

        Args:
            charges: a query of the workspace that gives person (each once), units, and what else the engine keeps.
            work: gets a transaction, and the offer that ``transaction.admit`` takes; see ``transact``.

        Guarantee: that of ``transact``. What is expensive and needs no account is done before the transaction.
        """
        with self.store.lock:
            offer = self.accounts.prepare(charges)
            try:
                return self.transact(lambda transaction: work(transaction, offer))
            finally:
                with suppress(LedgerError):  # what is left goes with the connection
                    offer.close()

    def snapshot(self, work: Callable[[], Result]) -> Result:
        """Work that reads the ledger as it is after one of its transactions."""
        return self.store.snapshot(work)

    def __repr__(self) -> str:
        return f"Ledger({self.store.name!r}, {self.symbol}={self.budget!r})"

    def refuse_beyond_budget(self, price: int, *, delta: float = 0.0) -> None:
        """Refuse a question that costs more than the whole budget, in units, or a delta that is not left."""
        self.terms.refuse_beyond_budget(price)
        self._rules.allow_delta(delta)

    def rows(self) -> list[Row]:
        """The record in order, as it is stored: for the data holder."""
        return read_rows(self.store.run)

    def entries(self, *kinds: str, after: int = -1) -> list[Entry]:
        """The record in order, or these kinds of it after this number, with private parts: for the data holder."""
        listed = f" AND kind IN ({', '.join('?' for _ in kinds)})" if kinds else ""
        return [row.entry(private=True) for row in read_rows(self.store.run, f"number > ?{listed}", (after, *kinds))]

    def history(self) -> Iterator[Answered]:
        """Every entry that charged people, in order, with what was in force before it: for the data holder."""
        return _rules.history(self.rows())

    def find(self, key: str) -> Entry | None:
        """The entry under a key, without its private part; the witness has seen it."""
        with self.store.lock:
            entry = find(self.store.run, key)
            if entry is not None and not (self.store.inside or self.store.reading):
                self.ask_witness()  # its writer may have been killed before it did
            return entry

    def left_by_period(self, analyst: str, purpose: str | None = None) -> dict[str, int]:
        """Units that every person has left at least for a new question of an analyst, by what is public.

        By the first day of the period from which on it is so much, in order; without periods, under "".

        Guarantee: every person who has not left can pay a question of at most this price, whatever their rows are.
        Source: docs/proofs/individual-filter.md, "How complete an answer is".
        """
        return self._rules_now().left_by_period(analyst, purpose)

    @property
    def consumers(self) -> dict[str, ConsumerState]:
        """The trainings and streams in the record by key, in the order in which they began. Public, but claims."""
        return dict(self._rules_now().consumers)

    def _rules_now(self) -> Rules:
        with self.store.lock:
            if self._transaction is not None:  # what it wrote may be undone
                return Rules.of(read_rows(self.store.run, answers=False))
            self._catch_up()
            return self._rules

    def watched(self) -> list[Entry]:
        """The entries that began the watches over this ledger."""
        return [watched.entry for watched in self._rules_now().watches.values()]

    def person(self, value: object) -> Person:
        """The name of an account as this ledger keeps it: a person's, or with periods that of a person in one."""
        return self.terms.accounts_named([value])[0]

    def people(self, values: Sequence[object]) -> list[Person]:
        """The names of many accounts, in order, each as ``person`` gives it. Private."""
        return self.terms.accounts_named(values)

    def accounts_of(self, person: object) -> list[Person]:
        """The names of all accounts of a person: one, or one for each period."""
        return self.terms.names_of(person)

    def above(self, shares: Sequence[float]) -> list[int]:
        """Numbers of people who were charged such a share of the budget or more, for each of the shares. Private."""
        return self.accounts.above([max(1, ceil(exact(share) * self.budget_units)) for share in shares])

    def charged(self, person: object) -> bool:
        """True if anything was charged to a person. Private."""
        return any(self.accounts.spent(self.accounts_of(person)).values())

    def spent(self, person: object) -> int:
        """Units that were charged to an account, private; 0 for one that was never charged."""
        name = self.person(person)
        return self.accounts.spent([name])[name]

    def charges(self, person: object) -> list[tuple[Entry, int]]:
        """Every question and training that charged an account, and how many units in the end. Private."""
        name = self.person(person)
        return _rules.net_charges(self.store.run, self.accounts.charges([name]))[name]

    def charges_by_account(self, person: object) -> dict[Person, list[tuple[Entry, int]]]:
        """The ``charges`` of each account of a person, by its name: in two queries, however many there are. Private."""
        return _rules.net_charges(self.store.run, self.accounts.charges(self.accounts_of(person)))

    @property
    def head(self) -> str:
        """Number and hash of the last entry. Kept elsewhere, it lets ``verify`` show that nothing was cut off."""
        return str(newest(self.store))

    @property
    def last_seen(self) -> tuple[int, str]:
        """Number and hash of the newest entry that was read or written here; also of a ledger that is closed."""
        return max((self._rules.number, self._rules.hash), self._written)

    def continues(self, seen: tuple[int, str]) -> bool:
        """True if the record has an entry of this number and hash, so that nothing up to it was lost or changed."""
        number, digest = seen
        return number < 0 or [row.hash for row in read_rows(self.store.run, "number = ?", (number,))] == [digest]

    @property
    def witness(self) -> str | None:
        """The file that remembers the newest entry; None where there is none. Public."""
        return self._rules.witness

    def witnessed_by(self, path: Path | str) -> None:
        """Have a new file, on another volume than the ledger, remember the newest entry from now on.

        Wherever the ledger is opened from now on, the file must be there; an older copy of the ledger is refused.

        Args:
            path: absolute; not there yet. Its folder is.

        Raises:
            ArgumentError: the path is not absolute.
            LedgerError: the file is there already, or cannot be made.
        """
        path = Path(path)
        if not path.is_absolute():
            raise ArgumentError(f"path={str(path)!r} must be absolute: the ledger may be opened from anywhere")
        with self.store.lock:
            Witness(path, self.store).begin()
            self._record_witness(path)

    def close(self) -> None:
        """Release the ledger; another process may open it then."""
        self.store.close()

    def __exit__(self, *_: object) -> None:
        self.close()

    def _catch_up(self) -> None:
        rules, last = self._rules, max(0, self._rules.number)
        rows = read_rows(self.store.run, "number >= ?", (last,), answers=False)
        if rules.number >= 0:
            if not rows or rows[0].hash != rules.hash:
                raise LedgerError(f"{self.store.name}: the record was changed while it was open", reason="damaged")
            del rows[0]
        for row in rows:
            rules.read(row)

    def _record_witness(self, path: Path) -> None:
        self.transact(lambda transaction: transaction.append({"kind": "witnessed", "where": str(path)}))
        self.store.snapshot(self._catch_up)
        self.ask_witness()

    def ask_witness(self) -> None:
        """Show the witness, if there is one, the newest entry; closes a ledger that is not the newest."""
        if self._rules.witness is not None:
            try:
                Witness(Path(self._rules.witness), self.store).check()
            except LedgerError:
                self.store.close()
                raise
