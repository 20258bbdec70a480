"""Terms of a ledger, as people write them: who may spend how much, and how people are named.

What is counted in a ledger depends on its budget:

    filters.Zcdp      rho, of noise that is rho-zCDP
    filters.Gaussian  rho = mu squared / 2, of rounded Gaussian noise only, which is mu-GDP
    filters.Basic     epsilon, of Laplace noise, with delta = 0
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from math import floor
from typing import Any

from almoner import _check
from almoner._spelling import EXACT, check_spelling
from almoner._units import MEASURE, RANGE, exact, to_float
from almoner.errors import ArgumentError, BudgetExceeded, Unsupported
from almoner.filters import Basic, Gaussian, Zcdp
from almoner.ledger._record.periods import Periods

__all__ = [
    "GAUSSIAN",
    "NAMES",
    "PURE",
    "RENAMED",
    "ZCDP",
    "LedgerBudget",
    "Terms",
    "counted",
    "delta_exceeded",
    "exceeded",
]

ZCDP, GAUSSIAN, PURE = "zCDP rho", "Gaussian rho", "epsilon"
"""The measures, as first entries name them. Gaussian rho is mu squared / 2."""

LedgerBudget = Zcdp | Gaussian | Basic
"""The budgets that a ledger may be made for."""

NAMES = {"BIGINT": "whole numbers", "VARCHAR": "text"}
"""Kinds of people's names, in words."""


RENAMED = {
    "budget": "terms=ledger.Terms(filters.Zcdp(rho=0.1))",
    "person": 'terms=ledger.Terms(filters.Zcdp(rho=0.1), person="VARCHAR")',
    "keys_delta": "terms=ledger.Terms(filters.Zcdp(rho=0.1), keys_delta=1e-8)",
    "periods": "terms=ledger.Terms(filters.Zcdp(rho=0.1), periods=ledger.Periods(...))",
    "spelling": 'terms=ledger.Terms(filters.Zcdp(rho=0.1), spelling="caseless")',
}
"""Parameters of earlier versions, and the line to write in their place."""


@dataclass(frozen=True, slots=True)
class Terms:
    """Terms on which a ledger is made, and with which it is opened: None for whatever it was made for. Public.

    Args:
        budget: what each person may spend: a fresh ``filters.Zcdp`` or ``filters.Gaussian``, or a ``filters.Basic``
            with delta = 0.
        person: how people are named: BIGINT (whole numbers) or VARCHAR (text); a session takes it from its data.
        keys_delta: what all questions for ``Keys`` together may cost in delta, beside the budget: all answers together
            keep what the budget promises but for this probability. Without it no keys can be asked for.
        periods: each of which brings every person a budget.
        spelling: which spellings of a text name one person: "exact" (letter by letter; so it is where nothing is
            given), "nfc" (Unicode's normal form C) or "caseless" (the same, and capital letters are small ones).
        datasets: that are declared, by name, each as the arguments of ``Ledger.dataset``: {"visits": {"person": "who",
            "columns": {"hours": {"low": 0, "high": 24}}}}.
        limits: of analysts and purposes, shares of each person's budget: {"analyst:ann": 0.1, "purpose:care": 0.5}.

    The first five are fixed when a ledger is made; data sets and limits are put in force where they are not so yet.
    """

    budget: LedgerBudget | None = None
    person: str | None = field(default=None, kw_only=True)
    keys_delta: float | None = field(default=None, kw_only=True)
    periods: Periods | None = field(default=None, kw_only=True)
    spelling: str | None = field(default=None, kw_only=True)
    datasets: Mapping[str, Mapping[str, Any]] = field(default_factory=dict, kw_only=True)
    limits: Mapping[str, float] = field(default_factory=dict, kw_only=True)

    def __post_init__(self) -> None:
        if self.spelling is not None:
            check_spelling(self.spelling)
            if self.spelling != EXACT and self.person == "BIGINT":
                raise ArgumentError(
                    f"spelling={self.spelling!r} is for people who are named by text, not by whole numbers"
                )
        if self.periods is not None and not isinstance(self.periods, Periods):
            raise ArgumentError(f"periods={self.periods!r} must be a ledger.Periods")
        if self.periods is not None and self.keys_delta is not None:
            raise Unsupported("keys_delta with periods: what several periods of a person add to a delta is not proven")
        if self.keys_delta is not None:
            _check.between(0, 1, keys_delta=self.keys_delta)
            if isinstance(self.budget, Basic):
                raise ArgumentError(
                    f"keys_delta={self.keys_delta!r}: a pure budget has delta = 0; use Zcdp or Gaussian"
                )
        if self.person is not None:
            _check.one_of(tuple(NAMES), person=self.person)
        for scope, share in self.limits.items():
            if scope.partition(":")[0] not in ("analyst", "purpose"):
                raise ArgumentError(f"limits: {scope!r} must be 'analyst:NAME' or 'purpose:NAME'")
            _check.within(0, 1, **{f"limits[{scope!r}]": share})
        if self.budget is not None:
            _check_budget(self.budget)

    @classmethod
    def of(cls, given: "Terms | LedgerBudget | None") -> "Terms":
        """Terms, or those of a budget alone."""
        return given if isinstance(given, Terms) else cls(given)

    def limits_of(self, budget: int) -> dict[tuple[str, str], int]:
        """Units that each limit lets a person spend, by ("analyst" or "purpose", name); rounded down.

        Args:
            budget: of each person, units.
        """
        scopes = {scope: scope.partition(":") for scope in self.limits}
        return {(kind, name): floor(exact(self.limits[scope]) * budget) for scope, (kind, _, name) in scopes.items()}


def _check_budget(budget: object) -> None:
    """Refuse what no ledger counts."""
    if not isinstance(budget, LedgerBudget) or budget.count:
        raise ArgumentError(f"budget={budget!r} must be a fresh filters.Zcdp, filters.Gaussian or pure filters.Basic")
    if isinstance(budget, Basic) and budget.delta:
        raise ArgumentError(f"budget={budget!r} must have delta=0; filters.Gaussian makes more of a delta")
    measure, units = counted(budget)
    symbol = measure.removeprefix("zCDP ")
    if not units:
        raise ArgumentError(f"budget={budget!r} is less than 1e-15 of {symbol}, which no question costs")
    if units >= RANGE:
        raise ArgumentError(f"budget={budget!r} must be below {RANGE / MEASURE:g} of {symbol}")


def counted(budget: LedgerBudget) -> tuple[str, int]:
    """The measure in which a budget is counted, and its units there, rounded down."""
    units = budget.notion.person_limits()[0]
    if isinstance(budget, Gaussian):
        return GAUSSIAN, units // 2  # of mu squared / 2
    return (ZCDP if isinstance(budget, Zcdp) else PURE), units


def exceeded(asked: int, budget: int, left: int, symbol: str = "rho") -> BudgetExceeded:
    """A refusal, from public numbers alone; all in units."""
    amounts = {"asked": to_float(asked), "spent": to_float(budget - left), "left": to_float(left, down=True)}
    return BudgetExceeded(
        f"this may cost {symbol} = {amounts['asked']:.6g} of a person's budget; nobody can have more than "
        f"{amounts['left']:.6g} left",
        **amounts,
    )


def delta_exceeded(asked: float, declared: float, left: float) -> BudgetExceeded:
    """A refusal of a delta for keys, from public numbers alone."""
    return BudgetExceeded(
        f"this costs delta = {asked:.6g} for keys; {left:.6g} is left of the ledger's keys_delta = {declared:.6g}",
        asked=asked,
        spent=declared - left,
        left=left,
    )
