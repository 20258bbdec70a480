"""What can be read from an open ledger."""

import json
from numbers import Integral
from typing import Any, Self

from bursar._uncopyable import Uncopyable
from bursar._units import to_float
from bursar.errors import UnknownPerson
from bursar.ledger._accounts.tables import Keeper
from bursar.ledger._record import Entry
from bursar.ledger._stores.store import Store

__all__ = ["Reading", "opening"]

_KIND_WORDS = {"BIGINT": "whole numbers of 64 bits", "VARCHAR": "text"}


class Reading(Uncopyable):
    """Everything that does not change a ledger."""

    def __init__(self, store: Store, terms: dict[str, Any], keeper: Keeper) -> None:
        self._store = store
        self._keeper = keeper
        self._terms = terms
        self._budget = int(terms["budget"])

    @property
    def budget(self) -> float:
        """What everybody may spend, rho, rounded down. Public."""
        return to_float(self._budget, down=True)

    @property
    def budget_units(self) -> int:
        """The same in whole units. Public."""
        return self._budget

    @property
    def delta(self) -> float | None:
        """The delta at which the budget was given; None if it was given as rho. Public."""
        value = self._terms["delta"]
        return None if value is None else float(value)

    @property
    def person_kind(self) -> str:
        """How people are named: BIGINT or VARCHAR. Public."""
        return str(self._terms["person"])

    @property
    def head(self) -> str:
        """Number and hash of the last entry. Kept elsewhere, it lets ``verify`` show that nothing was cut off."""
        number, found = self._store.run(
            "SELECT number, hash FROM ledger.record ORDER BY number DESC LIMIT 1"
        ).fetchone()
        return f"{number}:{found}"

    @property
    def store(self) -> Store:
        """The open file, for the engine that computes beside it. Private."""
        return self._store

    @property
    def keeper(self) -> Keeper:
        """Who keeps everybody's account. Private."""
        return self._keeper

    def __repr__(self) -> str:
        return f"Ledger({self._store.name!r}, rho={self.budget!r})"

    def entries(self, kind: str | None = None) -> list[Entry]:
        """The record in order, private parts included: for the data holder."""
        where, given = ("", []) if kind is None else ("WHERE kind = ?", [kind])
        rows = self._store.run(
            f"SELECT number, public, private, hash FROM ledger.record {where} ORDER BY number", given
        ).fetchall()
        return [
            Entry(number, json.loads(public), found, json.loads(private)) for number, public, private, found in rows
        ]

    def find(self, key: str) -> Entry | None:
        """The entry under a key, without its private part."""
        row = self._store.run("SELECT number, public, hash FROM ledger.record WHERE key = ?", [key]).fetchone()
        return None if row is None else Entry(row[0], json.loads(row[1]), row[2])

    def person(self, value: object) -> int | str:
        """A person's name as this ledger keeps it."""
        if self.person_kind == "VARCHAR":
            if isinstance(value, str) and value == value.encode(errors="ignore").decode():
                return value
        elif isinstance(value, Integral | str) and not isinstance(value, bool):
            digits = str(value)
            if len(digits) <= 20 and digits.removeprefix("-").isdecimal() and -(2**63) <= int(digits) < 2**63:
                return int(digits)
        raise UnknownPerson(f"person: people are named by {_KIND_WORDS[self.person_kind]} here")

    def spent(self, person: object) -> int:
        """Units that were charged to a person, private; 0 for somebody never charged."""
        return self._keeper.spent(self.person(person))

    def charges(self, person: object) -> list[tuple[Entry, int]]:
        """Every question that charged a person, and how many units. Private."""
        charged = dict(self._keeper.charges(self.person(person)))
        listed = ", ".join(f"{question:d}" for question in charged) or "-1"
        rows = self._store.run(
            f"SELECT number, public, hash FROM ledger.record WHERE number IN ({listed}) ORDER BY number"
        ).fetchall()
        return [(Entry(number, json.loads(public), found), charged[number]) for number, public, found in rows]

    def close(self) -> None:
        """Let the file go."""
        self._store.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def opening(store: Store) -> dict[str, Any]:
    """The public part of the first entry."""
    rows = store.run("SELECT public FROM ledger.record WHERE number = 0").fetchall()
    found: dict[str, Any] = json.loads(rows[0][0])
    return found
