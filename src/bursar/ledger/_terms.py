"""What a ledger was made for, how limits are filed, and how a question is refused: from public facts alone."""

from collections.abc import Iterable
from typing import Any

from bursar import _check
from bursar._units import MEASURE, RANGE, to_float
from bursar.errors import ArgumentError, BudgetExceeded
from bursar.filters import Zcdp
from bursar.ledger._accounts.tables import Accounts
from bursar.ledger._record import START, name, sealed

__all__ = ["check_terms", "exceeded", "first_entry", "scope_of", "scopes_of", "worded"]

KINDS = ("BIGINT", "VARCHAR")


def check_terms(budget: Zcdp | None, person: str | None) -> None:
    """Refuse what a ledger cannot be made for."""
    if person is not None:
        _check.one_of(KINDS, person=person)
    if budget is None:
        return
    if not isinstance(budget, Zcdp) or budget.count:
        raise ArgumentError(f"budget={budget!r} must be a fresh filters.Zcdp: queries are counted in zCDP")
    if not budget.notion.person_limits()[0]:
        raise ArgumentError(f"budget={budget!r} is less than 1e-15 of rho, which no question costs")
    if budget.notion.person_limits()[0] >= RANGE:
        raise ArgumentError(f"budget={budget!r} must be below {RANGE / MEASURE:g} of rho")


def first_entry(budget: Zcdp, person: str, accounts: str) -> tuple[Any, ...]:
    """The row of the record that says the terms."""
    terms = {
        "kind": "opened",
        "measure": "zCDP rho",
        "units": MEASURE,
        "budget": budget.notion.person_limits()[0],
        "epsilon": budget.notion.epsilon,
        "delta": budget.delta,
        "person": person,
        **({} if accounts == Accounts.kind else {"accounts": accounts}),
    }
    return sealed(0, START, terms, {})


def scope_of(analyst: str | None, purpose: str | None) -> str:
    """How the limit of an analyst, or of a purpose, is filed."""
    if (analyst is None) == (purpose is None):
        raise ArgumentError("give either analyst= or purpose=")
    if analyst is not None:
        name(analyst=analyst)
        return f"analyst:{analyst}"
    name(purpose=purpose)
    return f"purpose:{purpose}"


def scopes_of(analyst: str, purpose: str | None) -> Iterable[str]:
    """The limits that a question may fall under."""
    yield f"analyst:{analyst}"
    if purpose is not None:
        yield f"purpose:{purpose}"


def exceeded(asked: int, budget: int, left: int) -> BudgetExceeded:
    """A refusal, from public numbers alone."""
    rho = {"asked": to_float(asked), "spent": to_float(budget - left), "left": to_float(left, down=True)}
    return BudgetExceeded(
        f"this may cost rho = {rho['asked']:.6g} of anybody's budget; nobody can have more than {rho['left']:.6g} left",
        **rho,
    )


def worded(field: str, held: Any, asked: Any) -> str:
    """What a ledger was made for and what was asked of it instead, in words."""
    if field == "budget":
        return f"a budget of rho = {to_float(held):.9g} for each person, not {to_float(asked):.9g}"
    if field == "person":
        names = {"BIGINT": "whole numbers", "VARCHAR": "text"}
        return f"person={held!r}, names that are {names.get(held)}, not {asked!r}, {names.get(asked)}"
    return f"{field}={held!r}, not {asked!r}"
