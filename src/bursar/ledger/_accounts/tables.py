"""Everybody's account, charge by charge, in tables beside the record.

A ``Keeper`` keeps what belongs to single people; the ledger keeps the record, and decides. ``Accounts`` keeps it in
three tables of the ledger's own database. Another keeper may keep it elsewhere, in generations: what its writing
methods return under ``accounts`` is stored in the record's transaction, and names what is in force from then on.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol

from bursar.errors import LedgerError

if TYPE_CHECKING:
    from bursar.ledger._stores.store import Store

__all__ = ["Accounts", "Keeper", "limited"]


class Keeper(Protocol):
    """Who keeps the accounts. Everything in and out of it is private, but prices, budgets and limits.

    All methods that write are called inside the record's transaction: what they did must not be in force unless it is
    committed, and they may be called again if it was not.
    """

    kind: str
    """What the first entry of the record says of how accounts are kept; a ledger is opened with no other keeper."""

    def open(self, store: "Store") -> None:
        """The ledger is open; called once, before everything else."""

    def follow(self, note: str) -> None:
        """What the record says is in force: the newest ``accounts`` that a writing method returned."""

    def offer(self, charges: Any, parameters: list[Any]) -> None:
        """What a question would charge everybody: person (each once), units, and what else the engine keeps."""

    def admit(self, most: int, shares: Sequence[tuple[str, int]]) -> None:
        """Make ``admitted`` of those who can pay: at most so much in all, and on each of these limited scopes."""

    def charge(self, question: int, scopes: Collection[str], budget: int) -> dict[str, Any]:
        """Charge everybody admitted; returns units and people in all, and ``accounts`` if the record must name it."""

    def mark(self, person: int | str, *, gone: bool) -> dict[str, Any]:
        """Somebody leaves or returns."""

    def open_share(self, scope: str, questions: Collection[int]) -> dict[str, Any]:
        """A scope is limited from now on; these questions were charged to it before."""

    def spent(self, person: int | str) -> int:
        """Units that were charged to a person; 0 for somebody never charged."""

    def charges(self, person: int | str) -> list[tuple[int, int]]:
        """(question, units) of all that charged a person, in order."""

    def charged(self) -> str:
        """SQL for the workbench that gives question, person, units of all charges."""

    def totals(self) -> dict[int, tuple[int, int, int]]:
        """{question: (units in all, people, the most that anybody paid)}, for a check."""

    def consistent(self, budget: int) -> tuple[bool, bool]:
        """(Whether every account is the sum of its charges, whether none of them breaks the budget)."""

    def shares_hold(self, scopes: Mapping[str, Collection[int]]) -> bool:
        """Whether the shares are those of these scopes, each the sum of its questions' charges."""

    def gone(self) -> set[Any]:
        """Who has left."""


class Accounts:
    """Accounts in the ledger's own database, in the tables accounts, shares and charges."""

    kind = "tables"

    _store: Any
    _order = ""

    def __init__(self) -> None:
        self._offered: tuple[str, list[Any]] = ("", [])

    def open(self, store: "Store") -> None:
        """The accounts of this ledger."""
        self._store = store

    def follow(self, note: str) -> None:
        """Nothing is kept elsewhere."""
        raise LedgerError(f"the record names accounts that are kept elsewhere: {note!r}")

    def offer(self, charges: str, parameters: list[Any]) -> None:
        """Remember the SQL: it runs where the accounts are."""
        self._offered = charges, parameters

    def admit(self, most: int, shares: Sequence[tuple[str, int]]) -> None:
        """Make the table ``judged``, in memory, from one reading of the rows, and ``admitted`` of it."""
        charges, parameters = self._offered
        joins, tests, given = limited(shares)
        self._store.run(
            "CREATE OR REPLACE TEMP TABLE judged AS SELECT c.*, a.person IS NULL AS fresh, "
            f"c.units <= {most:d} - coalesce(a.spent, 0){tests} AS taken "
            f"FROM ({charges}) c LEFT JOIN ledger.accounts a ON a.person = c.person{joins} "
            "WHERE c.units > 0 AND NOT coalesce(a.gone, FALSE)",
            [*parameters, *given],
        )
        self._store.run("CREATE OR REPLACE TEMP VIEW admitted AS SELECT * EXCLUDE (taken) FROM judged WHERE taken")

    def refused(self) -> int:
        """How many of those who were offered, and have not left, were not admitted."""
        return int(self._store.run("SELECT count(*) FROM judged WHERE NOT taken").fetchone()[0])

    def charge(self, question: int, scopes: Collection[str], budget: int) -> dict[str, Any]:
        """Charge everybody in ``admitted``; refuses to go on if the accounts do not add up afterwards."""
        run = self._store.run
        before, _ = self._extent()
        run(
            "UPDATE ledger.accounts SET spent = spent + c.units FROM admitted c "
            "WHERE c.person = accounts.person AND NOT c.fresh"
        )
        run("INSERT INTO ledger.accounts SELECT person, units, FALSE FROM admitted WHERE fresh")
        for scope in scopes:
            self._charge_share(scope)
        run(f"INSERT INTO ledger.charges SELECT {question:d}, person, units FROM admitted{self._order}")
        people, units = run("SELECT count(*), coalesce(sum(units), 0) FROM admitted").fetchone()
        after, most = self._extent()
        if after != before + units or most > budget:
            raise LedgerError("the accounts do not add up")  # undone, and reported as a failed transaction
        return {"units": int(units), "people": int(people)}

    def mark(self, person: int | str, *, gone: bool) -> dict[str, Any]:
        """A tombstone, or none; the account stays."""
        self._store.run(
            "INSERT INTO ledger.accounts SELECT ?, 0, FALSE WHERE NOT EXISTS "
            "(SELECT 1 FROM ledger.accounts WHERE person = ?)",
            [self._kept(person)] * 2,
        )
        self._store.run("UPDATE ledger.accounts SET gone = ? WHERE person = ?", [gone, self._kept(person)])
        return {}

    def open_share(self, scope: str, questions: Collection[int]) -> dict[str, Any]:
        """Sums of what was charged before."""
        self._store.run(f"INSERT INTO ledger.shares SELECT ?, person, units FROM ({_summed(questions)}) c", [scope])
        return {}

    def spent(self, person: int | str) -> int:
        """Units that were charged to a person; 0 for somebody never charged."""
        row = self._store.run("SELECT spent FROM ledger.accounts WHERE person = ?", [self._kept(person)]).fetchone()
        return 0 if row is None else int(row[0])

    def charges(self, person: int | str) -> list[tuple[int, int]]:
        """(question, units) of all that charged a person, in order."""
        rows = self._store.run(
            "SELECT question, units FROM ledger.charges WHERE person = ? ORDER BY question", [self._kept(person)]
        ).fetchall()
        return [(int(question), int(units)) for question, units in rows]

    def charged(self) -> str:
        """The table is at hand."""
        return "SELECT question, person, units FROM ledger.charges"

    def totals(self) -> dict[int, tuple[int, int, int]]:
        """{question: (units in all, people, the most that anybody paid)}."""
        rows = self._store.run(
            "SELECT question, sum(units), count(*), max(units) FROM ledger.charges GROUP BY question"
        ).fetchall()
        return {int(question): (int(units), int(people), int(most)) for question, units, people, most in rows}

    def consistent(self, budget: int) -> tuple[bool, bool]:
        """(Whether every account is the sum of its charges, whether none of them breaks the budget)."""
        twice = "SELECT person FROM ledger.accounts GROUP BY person HAVING count(*) > 1"
        different = (
            "SELECT 1 FROM (SELECT person, sum(units) AS units FROM ledger.charges GROUP BY person) c "
            "FULL JOIN ledger.accounts a ON a.person = c.person WHERE coalesce(c.units, 0) <> coalesce(a.spent, -1)"
        )
        outside = f"SELECT 1 FROM ledger.accounts WHERE spent > {budget:d} OR spent < 0"
        negative = "SELECT 1 FROM ledger.charges WHERE units <= 0"
        return self._none(twice) and self._none(different), self._none(outside) and self._none(negative)

    def shares_hold(self, scopes: Mapping[str, Collection[int]]) -> bool:
        """Whether the shares are those of these scopes, each the sum of its questions' charges."""
        found = self._store.run("SELECT DISTINCT scope FROM ledger.shares").fetchall()
        if {scope for (scope,) in found} - set(scopes):
            return False
        return all(
            self._none(
                f"SELECT 1 FROM ({_summed(questions)}) c FULL JOIN (SELECT person, spent FROM ledger.shares "
                "WHERE scope = ?) s ON s.person = c.person WHERE coalesce(c.units, -1) <> coalesce(s.spent, -1)",
                [scope],
            )
            for scope, questions in scopes.items()
        )

    def gone(self) -> set[Any]:
        """Who has left."""
        rows = self._store.run("SELECT person FROM ledger.accounts WHERE gone").fetchall()
        return {self._told(person) for (person,) in rows}

    def _charge_share(self, scope: str) -> None:
        self._store.run(
            "UPDATE ledger.shares SET spent = spent + c.units FROM admitted c "
            "WHERE c.person = shares.person AND shares.scope = ?",
            [scope],
        )
        self._store.run(
            "INSERT INTO ledger.shares SELECT ?, person, units FROM admitted c WHERE NOT EXISTS "
            "(SELECT 1 FROM ledger.shares s WHERE s.person = c.person AND s.scope = ?)",
            [scope, scope],
        )

    def _kept(self, person: Any) -> Any:
        """A person as the tables name them."""
        return person

    def _told(self, person: Any) -> Any:
        """The person that the tables name so."""
        return person

    def _extent(self) -> tuple[int, int]:
        """(What all have spent together, the most that anybody has spent.)"""
        total, most = self._store.run(
            "SELECT coalesce(sum(spent), 0), coalesce(max(spent), 0) FROM ledger.accounts"
        ).fetchone()
        return int(total), int(most)

    def _none(self, sql: str, parameters: list[Any] | None = None) -> bool:
        """Whether a search for contradictions finds none."""
        return not self._store.run(f"SELECT 1 FROM ({sql}) found LIMIT 1", parameters).fetchall()


def limited(shares: Iterable[tuple[str, int]]) -> tuple[str, str, list[Any]]:
    """(Joins, conditions, parameters) that hold everybody within limited scopes."""
    joins, tests, given = "", "", []
    for place, (scope, most) in enumerate(shares):
        joins += f" LEFT JOIN ledger.shares s{place} ON s{place}.person = c.person AND s{place}.scope = ?"
        tests += f" AND c.units <= {most:d} - coalesce(s{place}.spent, 0)"
        given.append(scope)
    return joins, tests, given


def _summed(questions: Collection[int]) -> str:
    """What these questions charged each person."""
    listed = ", ".join(f"{question:d}" for question in questions) or "-1"
    return (
        "SELECT person, CAST(sum(units) AS BIGINT) AS units FROM ledger.charges "
        f"WHERE question IN ({listed}) GROUP BY person"
    )
