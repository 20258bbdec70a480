"""Each person's account, charge by charge, in three tables of the ledger's own database: accounts, shares, charges."""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager

from almoner._workspace import Query, StepRefused
from almoner.errors import ArgumentError, DataError, LedgerError
from almoner.ledger._accounts.reader import AccountReader, none
from almoner.ledger._names import Names, Person
from almoner.ledger._record.recorded_terms import TABLES
from almoner.ledger.interfaces import (
    Offer,
    Payment,
    PrivateNote,
    Share,
    Store,
)

__all__ = ["TableAccounts", "TableAdmitted", "TableOffer", "about_the_data", "left_of", "query_of", "refunded"]


class TableAccounts(AccountReader):
    """Accounts beside the record, in a file."""

    kind = TABLES

    def open(self, store: Store, names: Names) -> None:
        self._store, self._names = store, names

    def follow(self, note: str) -> None:  # noqa: ARG002 - AccountStore has it
        """Refuse: these accounts are kept nowhere else."""
        raise LedgerError("the record names accounts that are kept elsewhere", reason="damaged")

    def clean(self) -> None:
        """Nothing is left behind: a transaction that was killed is undone."""

    def prepare(self, charges: object) -> Offer:
        """Make the tables that the charges are worked out from; the charges themselves follow with the accounts."""
        return TableOffer(self._store, query_of(charges), self._names)

    def mark(self, person: Person, *, gone: bool) -> PrivateNote:
        stored = self.stored(person)
        self._store.run(
            "INSERT INTO ledger.accounts SELECT ?, 0, FALSE WHERE NOT EXISTS "
            "(SELECT 1 FROM ledger.accounts WHERE person = ?)",
            [stored, stored],
        )
        self._store.run("UPDATE ledger.accounts SET gone = ? WHERE person = ?", [gone, stored])
        return {}

    def open_share(self, scope: str, questions: Collection[int]) -> PrivateNote:
        self._store.run(f"INSERT INTO ledger.shares SELECT ?, person, units FROM ({_summed(questions)}) c", [scope])
        return {}

    def merge(self, entry: int, questions: Collection[int]) -> PrivateNote:
        """Put one charge per person, under this entry, in the place of those of these questions; inside a transaction.

        Returns:
            units and people of the charges that remain.
        """
        run, listed = self._store.run, ", ".join(f"{question:d}" for question in questions) or "-1"
        run(
            f"INSERT INTO ledger.charges SELECT {entry:d}, person, units FROM ({_summed(questions)}) c "
            "WHERE units <> 0 ORDER BY person"
        )
        run(f"DELETE FROM ledger.charges WHERE question IN ({listed})")
        ((units, people),) = run(
            f"SELECT coalesce(sum(units), 0), count(*) FROM ledger.charges WHERE question = {entry:d}"
        )
        return {"units": int(units), "people": int(people)}

    def merge_person(self, entry: int, person: Person, scopes: Collection[str]) -> PrivateNote:
        """Put one charge under this entry in the place of all of a person's charges; inside a transaction.

        Args:
            entry: that erases the person.
            person: whose charges they are.
            scopes: that are limited. The total counts in each of them, since what it consists of is forgotten.

        Returns:
            units of the charge.
        """
        stored, run = self.stored(person), self._store.run
        ((units,),) = run("SELECT coalesce(sum(units), 0) FROM ledger.charges WHERE person = ?", [stored])
        run("DELETE FROM ledger.charges WHERE person = ?", [stored])
        run("DELETE FROM ledger.shares WHERE person = ?", [stored])
        if units:
            run("INSERT INTO ledger.charges VALUES (?, ?, ?)", [entry, stored, int(units)])
            for scope in scopes:
                run("INSERT INTO ledger.shares VALUES (?, ?, ?)", [scope, stored, int(units)])
        return {"units": int(units)}

    def charged(self) -> str:
        return "SELECT question, person, units FROM ledger.charges"

    def shares_hold(self, scopes: Mapping[str, Collection[int]]) -> bool:
        stored = self._store.run("SELECT DISTINCT scope FROM ledger.shares")
        if {scope for (scope,) in stored} - set(scopes):
            return False
        return all(
            none(
                self._store.run,
                f"SELECT 1 FROM ({_summed(questions)}) c FULL JOIN (SELECT person, spent FROM ledger.shares "
                "WHERE scope = ?) s ON s.person = c.person "
                "WHERE coalesce(c.units, -1) <> coalesce(s.spent, -1)",
                [scope],
            )
            for scope, questions in scopes.items()
        )

    def gone(self) -> set[Person]:
        rows = self._store.run("SELECT person FROM ledger.accounts WHERE gone")
        return {self.named(person) for (person,) in rows}


class TableOffer:
    """A query that gives what a question charges each person: it runs where the accounts are."""

    def __init__(self, store: Store, charges: Query, names: Names) -> None:
        self._store = store
        self._charges, self._account = charges, names.sql("person")
        self._judged = store.workspace.fresh_name("judged")
        if charges.tables:
            with about_the_data(store):
                store.workspace.make(charges.tables)

    def admit(self, most: int, shares: Sequence[Share], payment: Payment) -> "TableAdmitted":
        """Read the rows once, and write down who can pay, and what."""
        joins, left, scopes = left_of(most, shares, "c.account")
        pays = payment.sql(left, divide="//")
        paid = f"{pays.units} AS units" + ("" if payment.pace is None else f", {pays.factor} AS factor")
        with about_the_data(self._store):
            self._store.run(
                f"CREATE OR REPLACE TEMP TABLE {self._judged} AS "
                f"SELECT c.* REPLACE ({paid}), a.person IS NULL AS fresh, {pays.taken} AS taken, "
                f"c.units AS wanted, CASE WHEN {pays.taken} THEN {pays.part} ELSE 0 END AS paid "
                f"FROM (SELECT *, {self._account} AS account FROM ({self._charges.sql}) q) c "
                f"LEFT JOIN ledger.accounts a ON a.person = c.account{joins} "
                "WHERE c.units > 0 AND NOT coalesce(a.gone, FALSE)",
                [*self._charges.parameters, *scopes],
            )
        rows = f"(SELECT * EXCLUDE (taken, wanted, paid, account) FROM {self._judged} WHERE taken)"
        table = f"(SELECT account AS person, units, fresh FROM {self._judged} WHERE taken)"
        return TableAdmitted(self._store, rows, table, f"SELECT wanted, paid FROM {self._judged}", payment)

    def refund(self, entry: int, of: int, scopes: Collection[str]) -> PrivateNote:
        """Write down what remains, where the accounts are, and give back the rest."""
        self._store.run(
            f"CREATE OR REPLACE TEMP TABLE {self._judged} AS SELECT {self._account} AS person, units "
            f"FROM ({self._charges.sql}) c",
            self._charges.parameters,
        )
        return refunded(self._store, self._judged, entry, of, scopes)

    def close(self) -> None:
        self._store.workspace.drop([self._judged, *(table.name for table in self._charges.tables)])


class TableAdmitted:
    """The people who take part, as a table of person, units and whether they are ``fresh``: without an account."""

    def __init__(self, store: Store, rows: str, table: str, paid: str, payment: Payment, *, order: str = "") -> None:
        """Take what an offer found.

        Args:
            rows: SQL of the table in the workspace.
            table: SQL of the same beside the accounts.
            paid: SQL that gives, beside the accounts, what each person wanted to pay for, and paid; also who was not
                admitted.
            payment: how the question is paid for.
            order: in which charges are written, as SQL.
        """
        self.rows: object = rows
        self._run = store.run
        self._table, self._paid, self._payment, self._order = table, paid, payment, order

    def refused(self) -> int:
        return int(self._run(f"SELECT count(*) FROM ({self._paid}) p WHERE paid < wanted")[0][0])

    def missing_mass(self, price: int) -> int:
        return int(self._run(f"SELECT {self._payment.mass_sql(price)} FROM ({self._paid}) p WHERE paid < wanted")[0][0])

    def charge(self, question: int, scopes: Collection[str], budget: int) -> PrivateNote:
        """Charge each person; refuses to go on where the accounts do not add up afterwards."""
        run, table = self._run, self._table
        spent = "SELECT coalesce(sum(spent), 0) FROM ledger.accounts"
        ((before, people, units),) = run(f"SELECT ({spent}), count(*), coalesce(sum(units), 0) FROM {table} c")
        run(
            f"UPDATE ledger.accounts SET spent = spent + c.units FROM {table} c "
            "WHERE c.person = accounts.person AND NOT c.fresh"
        )
        run(f"INSERT INTO ledger.accounts SELECT person, units, FALSE FROM {table} c WHERE fresh")
        for scope in scopes:
            self._charge_share(scope)
        run(f"INSERT INTO ledger.charges SELECT {question:d}, person, units FROM {table} c{self._order}")
        ((after, most),) = run("SELECT coalesce(sum(spent), 0), coalesce(max(spent), 0) FROM ledger.accounts")
        if after != before + units or most > budget:
            raise LedgerError(
                "the accounts do not add up", reason="damaged"
            )  # undone, reported as a failed transaction
        return {"units": int(units), "people": int(people)}

    def _charge_share(self, scope: str) -> None:
        self._run(
            f"UPDATE ledger.shares SET spent = spent + c.units FROM {self._table} c "
            "WHERE c.person = shares.person AND shares.scope = ?",
            [scope],
        )
        self._run(
            f"INSERT INTO ledger.shares SELECT ?, person, units FROM {self._table} c WHERE NOT EXISTS "
            "(SELECT 1 FROM ledger.shares s WHERE s.person = c.person AND s.scope = ?)",
            [scope, scope],
        )


def refunded(store: Store, remains: str, entry: int, of: int, scopes: Collection[str]) -> PrivateNote:
    """Give back what an entry reserved beside what remains.

    Args:
        store: inside a transaction.
        remains: SQL of a table of person (each once) and units, beside the accounts; units of 0 may be left out.
        entry, of, scopes: as for ``Offer.refund``.
    """
    run = store.run
    more = (
        f"SELECT 1 FROM {remains} s LEFT JOIN ledger.charges c ON c.person = s.person AND c.question = {of:d} "
        "WHERE s.units > coalesce(c.units, 0) OR s.units < 0"
    )
    if not none(run, more):
        raise LedgerError("a training cost somebody more than was reserved", reason="damaged")
    run(
        f"INSERT INTO ledger.charges SELECT {entry:d}, c.person, coalesce(s.units, 0) - c.units FROM ledger.charges c "
        f"LEFT JOIN {remains} s ON s.person = c.person "
        f"WHERE c.question = {of:d} AND c.units > coalesce(s.units, 0)"
    )
    back = f"(SELECT person, units FROM ledger.charges WHERE question = {entry:d}) c"
    run(f"UPDATE ledger.accounts SET spent = spent + c.units FROM {back} WHERE c.person = accounts.person")
    for scope in scopes:
        run(
            f"UPDATE ledger.shares SET spent = spent + c.units FROM {back} "
            "WHERE c.person = shares.person AND shares.scope = ?",
            [scope],
        )
    ((units, people),) = run(f"SELECT coalesce(sum(units), 0), count(*) FROM {back}")
    if not none(run, "SELECT 1 FROM ledger.accounts WHERE spent < 0"):
        raise LedgerError("the accounts do not add up", reason="damaged")
    return {"units": int(units), "people": int(people)}


def query_of(charges: object) -> Query:
    """Refuse what is no query of the workspace."""
    if isinstance(charges, Query):
        return charges
    raise ArgumentError("the accounts of this ledger are kept in tables: ask about rows that DuckDB reads")


@contextmanager
def about_the_data(store: Store) -> Iterator[None]:
    """A step that is refused while the ledger stays open is about the data."""
    try:
        yield
    except StepRefused:
        if store.closed:
            raise
        raise DataError("the data cannot be read; nothing was charged") from None


def left_of(most: int, shares: Iterable[Share], account: str) -> tuple[str, str, list[str]]:
    """(Joins, what a person has left, parameters): the least over the budget and over limited shares, as SQL.

    Args:
        most, shares: as for ``Offer.admit``.
        account: SQL of the person's stored name.
    """
    joins, left, scopes = "", [f"{most:d} - coalesce(a.spent, 0)"], []
    for place, (scope, of_scope) in enumerate(shares):
        joins += f" LEFT JOIN ledger.shares s{place} ON s{place}.person = {account} AND s{place}.scope = ?"
        left.append(f"{of_scope:d} - coalesce(s{place}.spent, 0)")
        scopes.append(scope)
    return joins, left[0] if len(left) == 1 else f"least({', '.join(left)})", scopes


def _summed(questions: Collection[int]) -> str:
    """SQL of the units that these questions charged each person."""
    listed = ", ".join(f"{question:d}" for question in questions) or "-1"
    return (
        "SELECT person, CAST(sum(units) AS BIGINT) AS units FROM ledger.charges "
        f"WHERE question IN ({listed}) GROUP BY person"
    )
