"""What a ledger was made for: the budget of each person, and how people are named. Its first entry says so."""

from collections.abc import Mapping
from dataclasses import dataclass
from numbers import Integral
from typing import Any, Self

from bursar import _check
from bursar._units import MEASURE, RANGE, to_float
from bursar.errors import ArgumentError, BudgetExceeded, UnknownPerson
from bursar.filters import Zcdp
from bursar.ledger.interfaces import Person

__all__ = ["TABLES", "Terms", "check_terms", "exceeded"]

TABLES = "tables"
"""How accounts are kept where the terms say nothing else."""

_NAMES = {"BIGINT": "whole numbers", "VARCHAR": "text"}


@dataclass(frozen=True, slots=True)
class Terms:
    """What a ledger was made for. Public.

    Fields:
        budget: of each person, units.
        epsilon, delta: as the budget was given, if it was given so.
        person: how people are named: BIGINT or VARCHAR.
        accounts: how accounts are kept.
    """

    budget: int
    epsilon: float | None
    delta: float | None
    person: str
    accounts: str = TABLES

    @classmethod
    def of(cls, budget: Zcdp, person: str, accounts: str) -> Self:
        """The terms of a new ledger."""
        return cls(budget.notion.person_limits()[0], budget.notion.epsilon, budget.delta, person, accounts)

    @classmethod
    def read(cls, public: Mapping[str, Any]) -> Self:
        """The terms that a first entry says."""
        delta = public["delta"]
        accounts = str(public.get("accounts", TABLES))
        return cls(
            int(public["budget"]),
            public.get("epsilon"),
            None if delta is None else float(delta),
            str(public["person"]),
            accounts,
        )

    @property
    def public(self) -> dict[str, object]:
        """The public part of a first entry."""
        return {
            "kind": "opened",
            "measure": "zCDP rho",
            "units": MEASURE,
            "budget": self.budget,
            "epsilon": self.epsilon,
            "delta": self.delta,
            "person": self.person,
            **({} if self.accounts == TABLES else {"accounts": self.accounts}),
        }

    def name_of(self, person: object) -> Person:
        """A person's name as the ledger keeps it."""
        if self.person == "VARCHAR":
            if isinstance(person, str) and person == person.encode(errors="ignore").decode():
                return person
        elif isinstance(person, Integral | str) and not isinstance(person, bool):
            digits = str(person)
            if len(digits) <= 20 and digits.removeprefix("-").isdecimal() and -(2**63) <= int(digits) < 2**63:
                return int(digits)
        bits = " of 64 bits" if self.person == "BIGINT" else ""
        raise UnknownPerson(f"person: people are named by {_NAMES[self.person]}{bits} here")

    def refuse_other(self, name: str, *, budget: Zcdp | None, person: str | None, accounts: str) -> None:
        """Refuse to open a ledger of these terms for other ones; None for whatever they are."""
        units = self.budget if budget is None else budget.notion.person_limits()[0]
        if units != self.budget:
            other = f"a budget of rho = {to_float(self.budget):.9g} for each person, not {to_float(units):.9g}"
        elif person not in (None, self.person):
            other = f"person={self.person!r}, names that are {_NAMES.get(self.person)}, "
            other += f"not {person!r}, {_NAMES.get(str(person))}"
        elif accounts != self.accounts:
            other = f"accounts={self.accounts!r}, not {accounts!r}"
        else:
            return
        raise ArgumentError(f"{name} was made for {other}")


def check_terms(budget: Zcdp | None, person: str | None) -> None:
    """Refuse what no ledger can be made for."""
    if person is not None:
        _check.one_of(tuple(_NAMES), person=person)
    if budget is None:
        return
    if not isinstance(budget, Zcdp) or budget.count:
        raise ArgumentError(f"budget={budget!r} must be a fresh filters.Zcdp: queries are counted in zCDP")
    if not budget.notion.person_limits()[0]:
        raise ArgumentError(f"budget={budget!r} is less than 1e-15 of rho, which no question costs")
    if budget.notion.person_limits()[0] >= RANGE:
        raise ArgumentError(f"budget={budget!r} must be below {RANGE / MEASURE:g} of rho")


def exceeded(asked: int, budget: int, left: int) -> BudgetExceeded:
    """A refusal, from public numbers alone; all in units."""
    rho = {"asked": to_float(asked), "spent": to_float(budget - left), "left": to_float(left, down=True)}
    return BudgetExceeded(
        f"this may cost rho = {rho['asked']:.6g} of a person's budget; nobody can have more than "
        f"{rho['left']:.6g} left",
        **rho,
    )
