"""Queries of accounts that are the same wherever these are kept: in tables, or in files read as tables."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from almoner.ledger._names import Names, Person
from almoner.ledger.interfaces import Charge, Consistency, QuestionTotal, Store

__all__ = ["AccountReader", "none"]


class AccountReader:
    """Reads accounts and charges where the ledger is."""

    _store: Store
    _names: Names

    def accounts_table(self) -> str:
        """SQL of the table of person, spent, gone."""
        return "ledger.accounts"

    def charges_table(self) -> str:
        """SQL of the table of question, person, units."""
        return "ledger.charges"

    def above(self, edges: Sequence[int]) -> list[int]:
        counted = ", ".join(f"count(CASE WHEN spent >= {edge:d} THEN 1 END)" for edge in edges)
        (row,) = self._store.run(f"SELECT {counted} FROM {self.accounts_table()} a")
        return [int(people) for people in row]

    def spent(self, people: Sequence[Person]) -> dict[Person, int]:
        rows = self._of(people, f"SELECT person, spent FROM {self.accounts_table()} a")
        return dict.fromkeys(people, 0) | {person: int(spent) for person, spent in rows}

    def charges(self, people: Sequence[Person]) -> dict[Person, list[Charge]]:
        found: dict[Person, list[Charge]] = {person: [] for person in people}
        for person, question, units in self._of(
            people, f"SELECT person, question, units FROM {self.charges_table()} c"
        ):
            found[person].append(Charge(int(question), int(units)))
        return {person: sorted(listed) for person, listed in found.items()}

    def _of(self, people: Sequence[Person], select: str) -> list[tuple[Any, ...]]:
        """The rows of these people in a table whose first column names people; with their names as they were given."""
        names = {self.token(person): person for person in people}
        places = ", ".join("?" for _ in people)
        rows = self._store.run(f"{select} WHERE person IN ({places})", [self.stored(person) for person in people])
        return [(names[self.named(person)], *row) for person, *row in rows]

    def totals(self) -> dict[int, QuestionTotal]:
        sql = f"SELECT question, sum(units), count(*), max(units) FROM {self.charges_table()} c GROUP BY question"
        return {int(question): QuestionTotal(*map(int, total)) for question, *total in self._store.run(sql)}

    def units_of(self, question: int) -> dict[Person, int]:
        rows = self._store.run(f"SELECT person, units FROM {self.charges_table()} c WHERE question = ?", [question])
        return {self.named(person): int(units) for person, units in rows}

    def consistent(self, budget: int, refunds: Mapping[int, int]) -> Consistency:
        accounts, charges, run = self.accounts_table(), self.charges_table(), self._store.run
        twice = f"SELECT person FROM {accounts} a GROUP BY person HAVING count(*) > 1"
        different = (
            f"SELECT 1 FROM (SELECT person, sum(units) AS units FROM {charges} c GROUP BY person) c "
            f"FULL JOIN {accounts} a ON a.person = c.person WHERE coalesce(c.units, 0) <> coalesce(a.spent, -1)"
        )
        outside = f"SELECT 1 FROM {accounts} a WHERE spent > {budget:d} OR spent < 0"
        given_back = ", ".join(f"{entry:d}" for entry in refunds) or "-1"
        wrong = f"SELECT 1 FROM {charges} c WHERE (units <= 0) <> (question IN ({given_back}))"
        within = none(run, outside) and none(run, wrong)
        within = within and all(none(run, _too_much(charges, entry, of)) for entry, of in refunds.items())
        return Consistency(none(run, twice) and none(run, different), within)

    def token(self, person: Person) -> Person:
        return self._names.token(person)

    def stored(self, person: Person) -> object:
        return self._names.stored(person)

    @property
    def stored_kind(self) -> str:
        return self._names.kind

    def listed(self, token: Person) -> object:
        stored: object = self._names.listed(token)
        return stored

    def stored_sql(self, person: str) -> str:
        return self._names.sql(person)

    def named(self, stored: Any) -> Person:
        return self._names.named(stored)


def _too_much(charges: str, entry: int, of: int) -> str:
    """SQL that selects the people whose refund exceeds their reservation."""
    return (
        f"SELECT 1 FROM {charges} c LEFT JOIN {charges} r ON r.person = c.person AND r.question = {of:d} "
        f"WHERE c.question = {entry:d} AND -c.units > coalesce(r.units, 0)"
    )


def none(run: Callable[..., list[tuple[Any, ...]]], sql: str, parameters: Iterable[object] = ()) -> bool:
    """True if a search for contradictions finds none."""
    return not run(f"SELECT 1 FROM ({sql}) contradictions LIMIT 1", parameters)
