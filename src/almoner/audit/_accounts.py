"""Compare what a person's account paid in a run with what the person's shifts would have cost. Private."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from math import inf, pi
from typing import Any

import numpy as np
from numpy.typing import NDArray

from almoner import filters, individual
from almoner._arrays import to_numpy
from almoner._units import MEASURE
from almoner.errors import ArgumentError, BudgetExceeded, UnknownPerson, Unsupported
from almoner.mechanisms import DiscreteGaussian, Exponential, Gaussian, Laplace

__all__ = ["Account", "Amount", "Comparison", "account_of"]

CLOSE = 1e-9
"""Largest difference, relative and absolute, that rounding may make between two sums of the same charges."""
ADDITIVE = (filters.Gaussian, filters.Zcdp, filters.RenyiOrder, filters.RenyiCurve, filters.Renyi, filters.Basic)
"""Budgets in which less cost is less spent, whatever came before."""


@dataclass(frozen=True)
class Amount:
    """A person's account as amounts of a measure that adds up. Private.

    Args:
        paid: what the person paid in all.
        budget: the most that the person may pay, public.
        measure: public, as ledgers name it: "zCDP rho", "Gaussian rho" (mu squared / 2), or "epsilon".
        reserved: what was set aside of everybody's budget beside what was paid, such as the price of a watch; public.
    """

    paid: float
    budget: float
    measure: str = "Gaussian rho"
    reserved: float = 0.0

    def __post_init__(self) -> None:
        if self.measure not in _COSTS:
            raise ArgumentError(f"measure={self.measure!r} must be one of {list(_COSTS)}")

    def compared(self) -> "_Sums":
        """A fresh comparison, to which shifts are charged."""
        return _Sums(self)


class _Sums:
    """Adds up what shifts cost in a measure that adds up, and compares with what was paid."""

    def __init__(self, account: Amount) -> None:
        self._account, self.revealed, self._aside = account, 0.0, 0.0

    def charge(self, mechanism: Any, norm: float) -> None:
        """Count a shift of this norm, in the mechanism's own unit and norm, at this mechanism."""
        if hasattr(mechanism, "price"):  # a watch: set aside for everybody, paid by nobody
            self._aside += float(mechanism.price(self._account.measure)) / MEASURE
        else:
            self.revealed += _COSTS[self._account.measure](mechanism, norm)

    def problem(self) -> str:
        """A description of what is wrong; empty if all is paid for."""
        account = self._account
        if _more(self.revealed, account.paid):
            return MORE_THAN_PAID
        if _more(account.paid + account.reserved, account.budget):
            return "the account paid more than its budget"
        return "a watch reveals more than was set aside for it" if _more(self._aside, account.reserved) else ""


MORE_THAN_PAID = "what was released reveals more of the person than the account paid"
MORE_THAN_BUDGET = "what was released reveals more of the person than the whole budget"


def _more(amount: float, than: float) -> bool:
    """True if an amount exceeds another one by more than rounding; also if it is not a number."""
    return not amount <= than * (1 + CLOSE) + CLOSE


def _rho(mechanism: Any, norm: float) -> float:
    if isinstance(mechanism, Gaussian | DiscreteGaussian):
        return (norm / mechanism.sigma) ** 2 / 2
    if isinstance(mechanism, Exponential):  # docs/proofs/chosen-quantiles.md, Theorem 2
        return pi / 16 * _epsilon(mechanism, norm) ** 2
    return _epsilon(mechanism, norm) ** 2 / 2


def _epsilon(mechanism: Any, norm: float) -> float:
    if isinstance(mechanism, Laplace):
        return norm / mechanism.scale
    if isinstance(mechanism, Exponential):  # eta for a norm of 1
        return norm * mechanism.eta
    epsilon = getattr(mechanism, "epsilon", inf) if getattr(mechanism, "delta", 0) == 0 else inf
    return float(epsilon) if norm > 0 else 0.0


_COSTS: dict[str, Callable[[Any, float], float]] = {"zCDP rho": _rho, "Gaussian rho": _rho, "epsilon": _epsilon}


def account_of(accounts: Any, person: Any) -> "Account | None":
    """The account of a person as it is now, from what a pipeline gives as its accounts; private."""
    if accounts is None or hasattr(accounts, "compared"):
        return accounts  # type: ignore[no-any-return]
    if isinstance(accounts, individual.Filter):
        return _Charged(lambda: individual.Filter(1, accounts.budget.fresh()), _spent(accounts, person))
    if isinstance(accounts, filters.Filter):
        return _Charged(accounts.fresh, np.atleast_1d(np.array(accounts.spent, np.float64)))
    if hasattr(accounts, "ledger"):
        accounts = accounts.ledger
    if hasattr(accounts, "watched"):
        aside = sum(int(str(entry.public["units"])) for entry in accounts.watched())  # what watches have set aside
        return Amount(accounts.spent(person) / MEASURE, accounts.budget, accounts.measure, aside / MEASURE)
    if hasattr(accounts, "state"):  # training's accounts of everybody
        state = accounts.state()
        return account_of(getattr(filters, str(state["filter"])).from_state(state), person)
    if callable(accounts):
        return account_of(accounts(person), person)
    raise ArgumentError(f"accounts: {type(accounts).__name__} is not known: give an individual.Filter or a function")


def _spent(people: individual.Filter, person: Any) -> NDArray[np.float64]:
    """A person's spending; nothing if the person was never there."""
    try:
        return np.atleast_1d(np.array(to_numpy(people.spent([person]))[0], np.float64))
    except (UnknownPerson, ArgumentError):
        return np.zeros(1)


@dataclass(frozen=True, eq=False)
class _Charged:
    """Totals of a filter, of one person or of everybody."""

    fresh: Callable[[], Any]
    spent: NDArray[np.float64]

    @property
    def paid(self) -> float:
        return float(np.max(self.spent))

    def compared(self) -> "_Shadow":
        return _Shadow(self.fresh(), self.spent)


class _Shadow:
    """Charges the shifts to a fresh filter like the person's."""

    def __init__(self, shadow: Any, spent: NDArray[np.float64]) -> None:
        self._shadow, self._spent, self._refused = shadow, spent, False
        self._own = isinstance(shadow, individual.Filter)

    def charge(self, mechanism: Any, norm: float) -> None:
        if not norm > 0:
            return
        moved = replace(mechanism, sensitivity=norm) if hasattr(mechanism, "sensitivity") else mechanism
        try:
            if self._own:
                given = norm if hasattr(mechanism, "sensitivity") else True
                self._refused |= not bool(to_numpy(self._shadow.charge(moved, np.array([given])))[0])
            else:
                self._shadow.charge(moved)
        except (ArgumentError, BudgetExceeded, Unsupported):
            self._refused = True

    @property
    def revealed(self) -> float:
        return inf if self._refused else float(np.max(self._totals()))

    def _totals(self) -> NDArray[np.float64]:
        spent = self._shadow.spent()[0] if self._own else self._shadow.spent
        return np.atleast_1d(np.array(spent, np.float64))

    def problem(self) -> str:
        if self._refused:
            return MORE_THAN_BUDGET
        budget = self._shadow.budget if self._own else self._shadow
        if isinstance(budget, ADDITIVE):
            totals = self._totals()
            if any(_more(float(one), float(paid)) for one, paid in zip(totals, self._spent, strict=False)):
                return MORE_THAN_PAID
        return ""


Account = Amount | _Charged
"""One person's account, for an audit: what it ``paid``, the largest of several totals. Private."""
Comparison = _Sums | _Shadow
