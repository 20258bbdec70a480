"""What was charged to whom: read from a ledger's accounts and its record. Everything here is private."""

from collections.abc import Sequence
from math import ceil

from almoner._units import exact
from almoner.ledger._names import Person
from almoner.ledger._promises import Promises
from almoner.ledger._record.entries import Entry, read_rows
from almoner.ledger.interfaces import AccountStore

__all__ = ["Charged"]


class Charged(Promises):
    """A ledger whose accounts can be read, person by person."""

    accounts: AccountStore

    def person(self, value: object) -> Person:
        """The name of an account as this ledger keeps it: a person's, or with periods that of a person in one."""
        return self._rules.terms.accounts_named([value])[0]

    def people(self, values: Sequence[object]) -> list[Person]:
        """The same for many, in order. Private."""
        return self._rules.terms.accounts_named(values)

    def accounts_of(self, person: object) -> list[Person]:
        """The names of all accounts of a person: one, or one for each period."""
        return self._rules.terms.names_of(person)

    def above(self, shares: Sequence[float]) -> list[int]:
        """How many people were charged such a share of the budget or more, for each of the shares. Private."""
        return self.accounts.above([max(1, ceil(exact(share) * self.budget_units)) for share in shares])

    def charged(self, person: object) -> bool:
        """Whether anything was charged to a person. Private."""
        return any(self.accounts.spent(self.accounts_of(person)).values())

    def spent(self, person: object) -> int:
        """Units that were charged to an account, private; 0 for one that was never charged."""
        name = self.person(person)
        return self.accounts.spent([name])[name]

    def charges(self, person: object) -> list[tuple[Entry, int]]:
        """Every question and training that charged an account, and how many units in the end. Private."""
        name = self.person(person)
        return self._charges([name])[name]

    def charges_by_account(self, person: object) -> dict[Person, list[tuple[Entry, int]]]:
        """The same for each account of a person, by its name: in two queries, however many there are. Private."""
        return self._charges(self.accounts_of(person))

    def _charges(self, names: Sequence[Person]) -> dict[Person, list[tuple[Entry, int]]]:
        charged = {name: dict(listed) for name, listed in self.accounts.charges(names).items()}
        listed = ", ".join(f"{number:d}" for number in sorted({n for each in charged.values() for n in each})) or "-1"
        entries = [row.entry() for row in read_rows(self.store.run, f"number IN ({listed})")]
        for entry in entries:
            for units in charged.values():
                if entry.kind == "settled" and entry.number in units:
                    units[int(entry.public["of"])] += units[entry.number]
        remain = [entry for entry in entries if entry.kind != "settled"]
        return {
            name: [(entry, units[entry.number]) for entry in remain if entry.number in units]
            for name, units in charged.items()
        }
