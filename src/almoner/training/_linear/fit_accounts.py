"""The accounts of one call of fit: who is charged, what runs beside, and which questions decide when to stop."""

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from almoner import _audit_hook, individual
from almoner._arrays import to_numpy
from almoner.errors import ArgumentError
from almoner.training._accounts.counted import BoundsBeside, Counted, check_bound, count_worst_case, fresh_odometer
from almoner.training._accounts.counters import rounded
from almoner.training._accounts.everybody import Everybody
from almoner.training._accounts.holder_report import ShareHistory
from almoner.training._card import Boundary
from almoner.training._linear.noise_plan import Plan
from almoner.training._linear.personal_accounts import PersonalAccounts
from almoner.training._linear.stopping_rule import Counting, StoppingRule, by_square_root
from almoner.training._on_ledger.run import LedgerRun

__all__ = ["FitAccounts"]


class FitAccounts:
    """Fresh accounts for the people of one fit. Private throughout.

    Args:
        planned: what will be released, and the budget of each account.
        count: the number of people.
        per_person: public. Whether each person has an account, or all are charged the worst case.
        shares: (n,) the part of the budget that each person may spend, or None.
        odometer: public. A fresh odometer to run beside the accounts, or None.
        steps: public. The most steps there will be.
        held: what a ledger reserved for these people, or None.
    """

    def __init__(
        self,
        planned: Plan,
        count: int,
        *,
        per_person: bool,
        shares: ArrayLike | None,
        odometer: Boundary | None,
        steps: int,
        held: LedgerRun | None = None,
    ) -> None:
        if shares is not None and not per_person:
            raise ArgumentError("shares need individual=True")
        self._planned, self._count = planned, count
        self.people: individual.Filter | Everybody
        if per_person:
            people = (
                individual.Filter(count, planned.budget.fresh(), shares=shares) if held is None else held.accounts()
            )
            own = 1.0 if shares is None else np.asarray(shares, np.float64)
            self.people = people
            self.history = ShareHistory(lambda: to_numpy(people.spent()) / own, planned.total, steps)
        else:
            public = planned.budget.fresh()
            self.people = Everybody(count, public)
            self.history = ShareHistory(lambda: np.full(count, public.spent), planned.total, steps)
        self.odometer = _running(odometer, count, per_person=per_person)
        self.rule: StoppingRule | None = None
        self.for_steps = self._watched(self.people)

    def divisor(self, given: int | None, noise: np.random.Generator) -> float:
        """The public number of people: given, or counted with noise that each person pays for."""
        if given is not None:
            return float(given)
        count = self._planned.count
        if count is None:
            raise ArgumentError("n_people must be given: the plan holds no noisy count")
        counted = np.count_nonzero(np.asarray(self._watched(self.people).charge(count, np.ones(self._count))))
        noisy = _audit_hook.released(
            lambda: counted + noise.normal(0.0, count.sigma), exact=float(counted), mechanism=count
        )
        return max(1.0, rounded(float(noisy), count.sigma))

    def stop_by(
        self,
        counting: Counting | None,
        *,
        most_inactive: float | None,
        planned: int,
        extra: int,
        noise: np.random.Generator | None,
    ) -> None:
        """Put the accounts that count in front, from the step after the planned ones on."""
        if counting is None and self._planned.drops is None:
            return
        if not isinstance(self.people, individual.Filter):
            raise ArgumentError("stop_when_inactive and counting need individual=True")
        if counting is None and self._planned.drops is not None:
            counting = by_square_root(self._planned.drops, noise)
        if counting is None:
            return
        odometer = self.odometer
        self.rule = StoppingRule(
            self.people,
            counting,
            planned=planned,
            most_inactive=most_inactive,
            counts=extra,
            check=lambda price: None if odometer is None else check_bound(odometer, price),
        )
        if isinstance(odometer, individual.Odometer):
            count_worst_case(odometer, self.rule.answer.price, self._count)
        self.for_steps = self._watched(self.rule)

    def kept(self, ids: NDArray[Any] | None) -> PersonalAccounts | None:
        """The accounts for statements, after the last step; None where all were charged the same."""
        if self.rule is not None:
            self.rule.close()
        if not isinstance(self.people, individual.Filter):
            return None
        odometer = self.odometer if isinstance(self.odometer, individual.Odometer) else None
        return PersonalAccounts(self.people, odometer, ids, self._planned.delta)

    def _watched(self, accounts: Any) -> Counted:
        return Counted(accounts, [] if self.odometer is None else [BoundsBeside(self.odometer)])


def _running(odometer: Boundary | None, count: int, *, per_person: bool) -> individual.Odometer | Boundary | None:
    """The running bounds, fresh: one for each person, or one for the worst case."""
    if odometer is None:
        return None
    fresh = fresh_odometer(odometer)
    return individual.Odometer(count, fresh) if per_person else fresh
