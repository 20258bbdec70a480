"""The ledger: what was asked, what it cost each person, and what was answered, in one durable record."""

from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Self, TypeVar

from almoner import _check
from almoner._units import to_float
from almoner.errors import ArgumentError, LedgerError
from almoner.ledger._accounts.folder import folder_beside
from almoner.ledger._accounts.parquet import ParquetAccounts
from almoner.ledger._accounts.tables import TableAccounts
from almoner.ledger._charged import Charged
from almoner.ledger._declared import Declared
from almoner.ledger._opening import accounts_of, create_in, names_of, terms_of
from almoner.ledger._record.entries import START, Entry, Row, find, read_rows
from almoner.ledger._record.history import Answered, history
from almoner.ledger._record.periods import Periods
from almoner.ledger._record.rules import CHARGING, EVERYTHING, Rules, scope_of
from almoner.ledger._record.terms import LedgerBudget, Terms, check_terms, exceeded
from almoner.ledger._record.watch import Watch
from almoner.ledger._stores.store import open_store
from almoner.ledger._transaction import Transaction
from almoner.ledger.interfaces import AccountStore, AccountWriter, Offer, Store

__all__ = ["Ledger"]

Result = TypeVar("Result")


class Ledger(Declared, Charged):
    """An open ledger, for the data holder: everything per person in it is private.

    ``Ledger.open`` makes it or opens it; a file may be open in one process at a time.
    """

    store: Store
    """Where the ledger is kept. Private."""
    accounts: AccountStore
    """The accounts. Private."""

    def __init__(self, store: Store, accounts: AccountStore) -> None:
        self.store, self.accounts = store, accounts
        self._rules = Rules()
        self._written = (-1, START)
        self._transaction: Transaction | None = None  # while a transaction is open
        self._catch_up()
        self._tell_witness()
        accounts.clean()

    @classmethod
    def open(
        cls,
        path: Path | str,
        *,
        budget: LedgerBudget | None = None,
        person: str | None = None,
        keys_delta: float | None = None,
        pseudonyms: Path | str | None = None,
        periods: Periods | None = None,
        spelling: str | None = None,
        witness: Path | str | None = None,
        create: bool = False,
        memory_limit: str | None = None,
        threads: int | None = None,
        writer: AccountWriter | None = None,
    ) -> Self:
        """Open a ledger; with ``create``, make it if there is none.

        Args:
            path: the file, or ``postgresql://user@server/database``.
            budget: what each person may spend, public: a fresh ``filters.Zcdp`` or ``filters.Gaussian``, or a
                ``filters.Basic`` with delta = 0; None for what the ledger was made for.
            person: how people are named: BIGINT (whole numbers) or VARCHAR (text); None for what it was made for.
            keys_delta: what all questions for keys may cost in delta, public; None for what it was made for.
            pseudonyms: a file with a key, private, beside the data: a ledger that is made with it stores keyed hashes
                of people's names (the first 128 bits of HMAC-SHA256). The file is made if it is missing then. Later:
                where it is now; None for where it was.
            periods: each of which brings every person a budget, public; None for what it was made for.
            spelling: which spellings of a text name one person, public: "exact" (letter by letter), "nfc" (Unicode's
                normal form C) or "caseless" (the same, and capital letters are small ones); None for what it was made
                for, and "exact" for a new ledger.
            witness: a file on another volume that remembers the newest entry, see ``witnessed_by``: it must be the
                ledger's. With ``create`` it is begun where the ledger has none. None for the one that the ledger has.
            create: make the ledger where there is none. Without it a missing one is refused, since an empty one in the
                place of one that got lost would give everybody a fresh budget.
            memory_limit, threads: what DuckDB may use, for example "4GB" and 2.
            writer: writes the accounts as Parquet files beside the ledger's file; None for tables beside the record,
                and to read and check the accounts of a ledger that are kept in files.

        Raises:
            ArgumentError: the ledger was made for other terms.
            LedgerError: it is not there, or cannot be opened or made; ``reason`` says what can be done. Where the
                ledger is not there but its witness is, the ledger got lost, and none is made.
        """
        if writer is not None:
            folder_beside(path)  # refused before anything is made
        check_terms(budget, person, keys_delta, periods, spelling)
        store, key = open_store(path), None if pseudonyms is None else Path(pseudonyms)
        wanted = TableAccounts.kind if writer is None else ParquetAccounts.kind
        try:
            if not store.exists():
                new = None
                if budget is not None and person is not None:
                    new = Terms.of(budget, person, wanted, keys_delta, periods, spelling)
                create_in(store, new, create=create, pseudonyms=key, witness=witness)
            store.open(memory_limit=memory_limit, threads=threads)
            terms = terms_of(store)
            accounts = accounts_of(store, writer, terms.accounts)
            given = {"budget": budget, "person": person, "keys_delta": keys_delta, "periods": periods}
            terms.refuse_other(store.name, accounts=accounts.kind, spelling=spelling, **given)  # type: ignore[arg-type]
            accounts.open(store, names_of(store, terms, key))
            book = cls(store, accounts)
            book._expect_witness(witness, begin=create)
            return book
        except BaseException as error:
            store.close()
            if isinstance(error, IndexError | ValueError | KeyError) and not isinstance(error, ArgumentError):
                raise LedgerError(
                    f"{store.name} is damaged: its first entry does not say the terms", reason="damaged"
                ) from None
            raise

    @staticmethod
    def exists(path: Path | str) -> bool:
        """Whether there is something under this name that a ledger could be; a server is asked."""
        store = open_store(path)
        try:
            return store.exists()
        finally:
            store.close()

    def limit(self, units: int, *, analyst: str | None = None, purpose: str | None = None) -> None:
        """The most that one analyst, or all questions for one purpose, may cost each person; within the budget for all.

        A limit counts what was asked before it, too. It does not widen anything: the budget holds for all together,
        whether or not analysts tell each other their answers.
        """
        scope = scope_of(analyst, purpose)
        _check.whole(0, units=units)
        units = int(units)
        column, name = ("analyst", analyst) if analyst is not None else ("purpose", purpose)

        def work(transaction: Transaction) -> None:
            note: dict[str, object] = {}
            if scope not in self._rules.limits:
                if any(each.public["scope"] == scope for each in self.entries("limited", after=self._rules.number)):
                    raise ArgumentError(f"{scope} is limited already in this transaction")
                before = self.store.run(
                    f"SELECT number FROM ledger.record WHERE kind IN {CHARGING!r} AND {column} = ?", [name]
                )
                asked = [number for (number,) in before]
                note = self.accounts.open_share(scope, asked + list(self._rules.erased.values()))
            transaction.append({"kind": "limited", "scope": scope, "units": units}, note)

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
            left = self._rules.chargeable - self._rules.set_aside()
            if units > left:
                raise exceeded(units, self.budget_units, left, self.symbol)
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
            left = max(0, self._rules.chargeable - self._rules.set_aside() - self._rules.charged_in_all.most())
            price = watch.price(self.measure)
            if price > left:
                raise exceeded(price, self.budget_units, left, self.symbol)
            whose = {"scope": scope} if scope else {}
            transaction.append({"kind": "watched", **watch.public, **whose, "units": price}, {"noise": watch.noise})

        self.transact(work)

    def retire(self, person: object) -> None:
        """A person leaves: left out of every later question. The account is kept: nobody returns with a new one."""
        self._mark(person, gone=True)

    def restore(self, person: object) -> None:
        """A person returns, to the account as it was left."""
        self._mark(person, gone=False)

    def _mark(self, person: object, *, gone: bool) -> None:
        names = self.accounts_of(person)

        def work(transaction: Transaction) -> None:
            for name in names:
                note = self.accounts.mark(name, gone=gone)
                transaction.append(
                    {"kind": "retired" if gone else "returned"}, {**note, "person": self.accounts.token(name)}
                )

        self.transact(work)

    def transact(self, work: Callable[[Transaction], Result]) -> Result:
        """Work that reads and writes the ledger as one transaction; nothing of it may be told before this returns.

        Args:
            work: gets the transaction; it is called again, with another one, where a server begins it
                again.
                Inside another transaction it is a part of that one.

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
            self._tell_witness()
            return result

    def refuse_inside(self, what: str) -> None:
        """Refuse what must not be undone with a transaction that is open in this thread; waits for other threads'.

        Args:
            what: may not be done, and ends as in "while a transaction is open".
        """
        with self.store.lock:
            if self.store.inside:
                raise ArgumentError(f"ledger: {what} while a transaction is open, which may be undone")

    def answer(self, charges: object, work: Callable[[Transaction, Offer], Result]) -> Result:
        """Prepare what a question would charge each person, then do the work of answering it in one transaction.

        Args:
            charges: a query of the workspace that gives person (each once), units, and what else the engine keeps; or
                what the writer of the accounts takes.
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
        if price > self.budget_units:
            raise exceeded(price, self.budget_units, self.budget_units, self.symbol)
        self._rules.allow_delta(delta)

    def rows(self) -> list[Row]:
        """The record in order, as it is stored: for the data holder."""
        return read_rows(self.store.run)

    def entries(self, *kinds: str, after: int = -1) -> list[Entry]:
        """The record in order, private parts included: for the data holder.

        Args:
            kinds: of the entries; all, if none is given.
            after: the number of the last entry that is not wanted.
        """
        listed = f" AND kind IN ({', '.join('?' for _ in kinds)})" if kinds else ""
        rows = read_rows(self.store.run, f"number > ?{listed}", (after, *kinds))
        return [row.entry(private=True) for row in rows]

    def history(self) -> Iterator[Answered]:
        """Every entry that charged people, in order, with what was in force before it: for the data holder."""
        return history(self.rows())

    def find(self, key: str) -> Entry | None:
        """The entry under a key, without its private part; the witness has seen it."""
        with self.store.lock:
            entry = find(self.store.run, key)
            if entry is not None and not self.store.inside:
                self._tell_witness()  # its writer may have been killed before it did
            return entry

    def left_by_period(self, analyst: str, purpose: str | None = None) -> dict[str, int]:
        """Units that every person has left at least for a new question of an analyst, by what is public.

        Returns:
            By the first day of the period from which on it is so much, in order; without periods, under "".
        """
        with self.store.lock:
            rules = self._rules
            if self._transaction is None:
                self.store.snapshot(self._catch_up)
            else:  # what this transaction wrote may be undone
                rules = Rules.of(read_rows(self.store.run, answers=False))
            left = rules.left_by_period(rules.allowance(analyst=analyst, purpose=purpose, reserved=None))
            labels = ("",) if self.periods is None else self.periods.labels
            return {labels[place]: max(0, units) for place, units in left if place < len(labels)}

    def watched(self) -> list[Entry]:
        """The entries that began the watches over this ledger."""
        watches = Rules.of(read_rows(self.store.run, "kind = 'watched'")).watches
        return [watched.entry for watched in watches.values()]

    def close(self) -> None:
        """Release the ledger; another process may open it then."""
        self.store.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _catch_up(self) -> None:
        """Read what any writer has recorded since the last time."""
        rules, last = self._rules, max(0, self._rules.number)
        rows = read_rows(self.store.run, "number >= ?", (last,), answers=False)
        if rules.number >= 0:
            if not rows or rows[0].hash != rules.hash:
                raise LedgerError(f"{self.store.name}: the record was changed while it was open", reason="damaged")
            del rows[0]
        for row in rows:
            accounts = rules.accounts
            rules.read(row)
            if rules.accounts is not None and rules.accounts != accounts:
                self.accounts.follow(rules.accounts)
