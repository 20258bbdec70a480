"""Each person's account, charge by charge, in three tables of the ledger's own database: accounts, shares, charges."""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from almoner._workspace import Query, StepRefused
from almoner.errors import DataError, LedgerError
from almoner.ledger._names import Names, Person
from almoner.ledger._payment import Charge, Consistency, Extent, Payment, PrivateNote, Share
from almoner.ledger._stores import Store

_HASHES = "hashes_of_names"


class TableAccounts:
    """Keeps the accounts where the record is. All in and out of it is private, but prices, budgets and limits.

    Methods that write are called inside the record's transaction, and may be called again if it was undone. A note that
    they return is kept in the private part of the entry.
    """

    _store: Store
    names: Names
    """People's names: ``token`` as the record says them; of ``kind``, and by ``sql`` and ``listed``, as ``charged``."""

    def open(self, store: Store, names: Names) -> None:
        """The ledger is open, and names people so; called once, before all else."""
        self._store, self.names = store, names

    def prepare(self, charges: Query) -> "TableOffer":
        """Work out what a question would charge: person (each once), units, and what else its answer needs.

        The units are what a person's contribution costs in full, without the fixed part of a ``Payment``.
        """
        return TableOffer(self._store, charges, self.names)

    def mark(self, person: Person, *, gone: bool) -> None:
        """Mark a person as left, or as returned; the account is kept."""
        stored = self.stored(person)
        self._store.run(
            "INSERT INTO ledger.accounts SELECT ?, 0, FALSE WHERE NOT EXISTS "
            "(SELECT 1 FROM ledger.accounts WHERE person = ?)",
            [stored, stored],
        )
        self._store.run("UPDATE ledger.accounts SET gone = ? WHERE person = ?", [gone, stored])

    def has_left(self, person: Person) -> bool | None:
        """True if a person has left; None where there is no account."""
        rows = self._store.run("SELECT gone FROM ledger.accounts WHERE person = ?", [self.stored(person)])
        return bool(rows[0][0]) if rows else None

    def open_share(self, scope: str, questions: Collection[int]) -> None:
        """Limit a scope from now on; these questions were charged to it before."""
        self._store.run(f"INSERT INTO ledger.shares SELECT ?,person,units FROM ({summed(_under(questions))})", [scope])

    def above(self, edges: Sequence[int]) -> list[int]:
        """Count the people who were charged so many units or more, for each edge. Private."""
        counted = ", ".join(f"count(CASE WHEN spent >= {edge:d} THEN 1 END)" for edge in edges)
        (row,) = self._store.run(f"SELECT {counted} FROM ledger.accounts")
        return [int(people) for people in row]

    def spent(self, people: Sequence[Person]) -> dict[Person, int]:
        """Units that were charged to each of these people; 0 for one who was never charged."""
        rows = self._of(people, "SELECT person, spent FROM ledger.accounts")
        return dict.fromkeys(people, 0) | {person: int(spent) for person, spent in rows}

    def charges(self, people: Sequence[Person]) -> dict[Person, list[Charge]]:
        found: dict[Person, list[Charge]] = {person: [] for person in people}
        for person, question, units in self._of(people, "SELECT person, question, units FROM ledger.charges"):
            found[person].append(Charge(int(question), int(units)))
        return {person: sorted(listed) for person, listed in found.items()}

    def _of(self, people: Sequence[Person], select: str) -> list[tuple[Any, ...]]:
        """The rows of these people in a table whose first column names people; with their names as they were given."""
        names = {self.names.token(person): person for person in people}
        places = ", ".join("?" for _ in people)
        rows = self._store.run(f"{select} WHERE person IN ({places})", [self.stored(person) for person in people])
        return [(names[self.named(person)], *row) for person, *row in rows]

    def totals(self) -> dict[int, Extent]:
        """Cost of each question to all people, by its number."""
        sql = "SELECT question, count(*), sum(units), max(units) FROM ledger.charges GROUP BY question"
        return {int(question): Extent(*map(int, total)) for question, *total in self._store.run(sql)}

    def units_of(self, question: int) -> dict[Person, int]:
        rows = self._store.run("SELECT person, units FROM ledger.charges WHERE question = ?", [question])
        return {self.named(person): int(units) for person, units in rows}

    def consistent(self, budget: int, refunds: Mapping[int, int]) -> Consistency:
        """Compare accounts and charges with each other and with a budget of each person in units.

        No entry of ``refunds`` gives back more than the entry reserved that it names.
        """
        run, twice = self._store.run, "SELECT person FROM ledger.accounts GROUP BY person HAVING count(*) > 1"
        different = (
            "SELECT 1 FROM (SELECT person, sum(units) AS units FROM ledger.charges GROUP BY person) c "
            "FULL JOIN ledger.accounts a ON a.person = c.person WHERE coalesce(c.units, 0) <> coalesce(a.spent, -1)"
        )
        outside = f"SELECT 1 FROM ledger.accounts WHERE spent > {budget:d} OR spent < 0"
        given_back = ", ".join(f"{entry:d}" for entry in refunds) or "-1"
        wrong = f"SELECT 1 FROM ledger.charges WHERE (units <= 0) <> (question IN ({given_back}))"
        too_much = (
            "SELECT 1 FROM ledger.charges c LEFT JOIN ledger.charges r ON r.person = c.person AND r.question = ? "
            "WHERE c.question = ? AND -c.units > coalesce(r.units, 0)"
        )
        within = none(run, outside) and none(run, wrong)
        within = within and all(none(run, too_much, [of, entry]) for entry, of in refunds.items())
        return Consistency(none(run, twice) and none(run, different), within)

    def stored(self, person: Person) -> object:
        return self.names.stored(person)

    def named(self, stored: Any) -> Person:
        return self.names.named(stored)

    def merge(self, entry: int, questions: Collection[int]) -> PrivateNote:
        """Put one charge per person, under this entry, in the place of those of these questions; what it comes to."""
        run, merged = self._store.run, _under(questions)
        run(
            f"INSERT INTO ledger.charges SELECT {entry:d}, person, units FROM ({summed(merged)}) c "
            "WHERE units <> 0 ORDER BY person"
        )
        run(merged.replace("SELECT *", "DELETE", 1))
        whole = f"SELECT coalesce(sum(units), 0), count(*) FROM ledger.charges WHERE question = {entry:d}"
        ((units, people),) = run(whole)
        return {"units": int(units), "people": int(people)}

    def merge_person(self, entry: int, person: Person, scopes: Collection[str]) -> PrivateNote:
        """Put one charge under this entry, in each limited scope, in the place of all of a person's; its units."""
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
        """SQL for the workspace that gives question, person, units of all charges."""
        return "SELECT question, person, units FROM ledger.charges"

    def shares_hold(self, scopes: Mapping[str, Collection[int]]) -> bool:
        """True if the shares are those of these scopes, each the sum of what its entries charged."""
        if {scope for (scope,) in self._store.run("SELECT DISTINCT scope FROM ledger.shares")} - set(scopes):
            return False
        different = (
            "SELECT 1 FROM ({}) c FULL JOIN (SELECT person, spent FROM ledger.shares WHERE scope = ?) s "
            "ON s.person = c.person WHERE coalesce(c.units, -1) <> coalesce(s.spent, -1)"
        )
        sums = {scope: different.format(summed(_under(questions))) for scope, questions in scopes.items()}
        return all(none(self._store.run, sql, [scope]) for scope, sql in sums.items())

    def gone(self) -> set[Person]:
        return {self.named(person) for (person,) in self._store.run("SELECT person FROM ledger.accounts WHERE gone")}


class TableOffer:
    """Charges that a question would bring each person, prepared before the transaction: here a query. Private."""

    def __init__(self, store: Store, charges: Query, names: Names) -> None:
        self._store = store
        self._charges, self._names = charges, names
        self._judged = store.workspace.fresh_name("judged")
        if charges.tables:
            with about_the_data(store):
                store.workspace.make(charges.tables)

    def admit(self, most: int, shares: Sequence[Share], payment: Payment) -> "TableAdmitted":
        """Choose who can pay: at most so much in all, within each limited share. DataError if the data cannot be read.

        Rows are read once. With a pace, the ``factor`` of those who pay for less than all they contribute is made
        smaller.
        """
        joins, left, scopes = left_of(most, shares, "c.account")
        pays = payment.sql(left, divide="//")
        paid = f"{pays.units} AS units" + ("" if payment.pace is None else f", {pays.factor} AS factor")
        with about_the_data(self._store):
            self._store.run(
                f"CREATE OR REPLACE TEMP TABLE {self._judged} AS "
                f"SELECT c.* REPLACE ({paid}), a.person IS NULL AS fresh, {pays.taken} AS taken, c.units AS wanted "
                f"FROM ({accounts_of(self._store, self._charges.sql, self._names)}) c "
                f"LEFT JOIN ledger.accounts a ON a.person = c.account{joins} "
                "WHERE c.units > 0 AND NOT coalesce(a.gone, FALSE)",
                [*self._charges.parameters, *scopes],
            )
            keep_hashes(self._store, self._judged, self._names)
        rows = f"(SELECT * EXCLUDE (taken, wanted, account) FROM {self._judged} WHERE taken)"
        return TableAdmitted(self._store, rows, self._judged, payment)

    def refund(self, entry: int, of: int, scopes: Collection[str]) -> PrivateNote:
        """Give back, under this entry, what an earlier one reserved beside these units; see ``refunded``."""
        self._store.run(
            f"CREATE OR REPLACE TEMP TABLE {self._judged} AS SELECT account AS person, units "
            f"FROM ({accounts_of(self._store, self._charges.sql, self._names)}) c",
            self._charges.parameters,
        )
        return refunded(self._store, self._judged, entry, of, scopes)

    def close(self) -> None:
        self._store.workspace.drop([self._judged, *(table.name for table in self._charges.tables)])


class TableAdmitted:
    """The people who take part in a question, private; ``rows`` are their offers, as SQL of a workspace's table."""

    def __init__(self, store: Store, rows: str, judged: str, payment: Payment, *, order: str = "") -> None:
        """Take SQL of the rows; and, beside the accounts, everybody's account, units, fresh, taken and units wanted."""
        self.rows, self._run, self._payment, self._order = rows, store.run, payment, order
        self._table = f"(SELECT account AS person, units, fresh FROM {judged} WHERE taken)"
        self._paid = f"SELECT wanted, CASE WHEN taken THEN units - {payment.fixed:d} ELSE 0 END AS paid FROM {judged}"

    def refused(self) -> int:
        """Count the people who were offered, and have not left, and cannot pay in full."""
        return self._of_refused("count(*)")

    def missing_mass(self, price: int) -> int:
        """The mass missing from their contributions; see ``Payment.mass_sql``."""
        return self._of_refused(self._payment.mass_sql(price))

    def _of_refused(self, number: str) -> int:
        return int(self._run(f"SELECT {number} FROM ({self._paid}) p WHERE paid < wanted")[0][0])

    def charge(self, question: int, scopes: Collection[str], budget: int) -> PrivateNote:
        """Charge each person under an entry; refuses to go on where the accounts do not add up afterwards."""
        run, table = self._run, self._table
        spent = "SELECT coalesce(sum(spent), 0) FROM ledger.accounts"
        ((before, people, units),) = run(f"SELECT ({spent}), count(*), coalesce(sum(units), 0) FROM {table} c")
        _add_to_what_is_there(run, table, scopes)
        run(f"INSERT INTO ledger.accounts SELECT person, units, FALSE FROM {table} c WHERE fresh")
        for scope in scopes:
            run(
                f"INSERT INTO ledger.shares SELECT ?, person, units FROM {table} c WHERE NOT EXISTS "
                "(SELECT 1 FROM ledger.shares s WHERE s.person = c.person AND s.scope = ?)",
                [scope, scope],
            )
        run(f"INSERT INTO ledger.charges SELECT {question:d}, person, units FROM {table} c{self._order}")
        ((after, most),) = run("SELECT coalesce(sum(spent), 0), coalesce(max(spent), 0) FROM ledger.accounts")
        if after != before + units or most > budget:
            raise LedgerError("the accounts do not add up", reason="damaged")  # undone, said as a failed transaction
        return {"units": int(units), "people": int(people)}


def refunded(store: Store, remains: str, entry: int, of: int, scopes: Collection[str]) -> PrivateNote:
    """Give back what an entry reserved beside what ``remains``, SQL of person (each once), units; or LedgerError."""
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
    back = f"(SELECT person, units FROM ledger.charges WHERE question = {entry:d})"
    _add_to_what_is_there(run, back, scopes)
    ((units, people),) = run(f"SELECT coalesce(sum(units), 0), count(*) FROM {back} c")
    if not none(run, "SELECT 1 FROM ledger.accounts WHERE spent < 0"):
        raise LedgerError("the accounts do not add up", reason="damaged")
    return {"units": int(units), "people": int(people)}


def _add_to_what_is_there(run: Callable[..., object], charges: str, scopes: Iterable[str]) -> None:
    """Add a table of person and units to the accounts, and to shares of these scopes, that people have already."""
    added = f"SET spent = spent + c.units FROM {charges} c WHERE c.person"
    run(f"UPDATE ledger.accounts {added} = accounts.person")
    for scope in scopes:
        run(f"UPDATE ledger.shares {added} = shares.person AND shares.scope = ?", [scope])


@contextmanager
def about_the_data(store: Store) -> Iterator[None]:
    """A step that is refused while the ledger stays open is about the data."""
    try:
        yield
    except StepRefused:
        if store.closed:
            raise
        raise DataError("the data cannot be read; nothing was charged") from None


def accounts_of(store: Store, charges: str, names: Names) -> str:
    """Charges, which are SQL, with the ``account`` of each person: a keyed hash is computed once, and then kept."""
    account, known = names.sql("q.person"), ""
    if names.hashed:
        store.workspace.run(f"CREATE TEMP TABLE IF NOT EXISTS {_HASHES}(person {names.given}, account {names.kind})")
        account, known = f"coalesce(h.account, {account})", f" LEFT JOIN {_HASHES} h ON h.person = q.person"
    return f"SELECT q.*, {account} AS account FROM ({charges}) q{known}"


def keep_hashes(store: Store, table: str, names: Names) -> None:
    """Keep the hashes of a table of person and account while the ledger is open."""
    if names.hashed:
        others = f"SELECT person, account FROM {table} t ANTI JOIN {_HASHES} h ON h.person = t.person"
        store.workspace.run(f"INSERT INTO {_HASHES} {others}")


def left_of(most: int, shares: Iterable[Share], account: str) -> tuple[str, str, list[str]]:
    """(Joins, what an account has left, parameters): the least over the budget and limited shares, as SQL."""
    joins, left, scopes = "", [f"{most:d} - coalesce(a.spent, 0)"], []
    for place, (scope, of_scope) in enumerate(shares):
        joins += f" LEFT JOIN ledger.shares s{place} ON s{place}.person = {account} AND s{place}.scope = ?"
        left.append(f"{of_scope:d} - coalesce(s{place}.spent, 0)")
        scopes.append(scope)
    return joins, left[0] if len(left) == 1 else f"least({', '.join(left)})", scopes


def summed(charges: str) -> str:
    """SQL of the units that charges, which are SQL, add up to for each person."""
    return f"SELECT person, CAST(sum(units) AS BIGINT) AS units FROM ({charges}) c GROUP BY person"


def _under(questions: Collection[int]) -> str:
    listed = ", ".join(f"{question:d}" for question in questions) or "-1"
    return f"SELECT * FROM ledger.charges WHERE question IN ({listed})"


def none(run: Callable[..., list[tuple[Any, ...]]], sql: str, parameters: Iterable[object] = ()) -> bool:
    """True if a search for contradictions finds none."""
    return not run(f"SELECT 1 FROM ({sql}) contradictions LIMIT 1", parameters)
