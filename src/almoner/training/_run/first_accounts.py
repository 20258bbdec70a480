"""The accounts that a run begins with: the caller's, those of its checkpoint, or fresh ones. Private."""

from collections.abc import Callable
from typing import Any

from almoner.errors import ArgumentError, Unsupported
from almoner.individual import Filter as PersonFilter
from almoner.individual import Losses
from almoner.individual import Odometer as PersonOdometer
from almoner.training._accounts.everybody import Everybody
from almoner.training._accounts.run_accounts import (
    TrainingAccounts,
    WithoutBudget,
    restored_accounts,
    restored_odometer,
)
from almoner.training._card import Boundary
from almoner.training._on_ledger.run import LedgerRun
from almoner.training._run.settings import Settings

__all__ = ["accounts_of_run"]


def accounts_of_run(
    settings: Settings,
    count: int,
    *,
    given: PersonFilter | None,
    losses: Losses | None,
    shares: Any,
    saved: dict[str, Any] | None,
    held: LedgerRun | None,
    before: Callable[[], object],
) -> TrainingAccounts:
    """The accounts of a run of so many people.

    Args:
        settings: public.
        count: the number of people.
        given: the caller's accounts, or None.
        losses: counts of each person's contributions, or None.
        shares: (n,) the part of the budget that each person may spend, or None.
        saved: what a checkpoint holds, or None.
        held: what a ledger reserved, or None.
        before: called before anybody is charged.
    """
    people: PersonFilter | Everybody | WithoutBudget
    if shares is not None and (given is not None or settings.budget is None or not settings.individual):
        raise ArgumentError("shares need individual=True and a filter as the budget")
    if given is not None:
        if not settings.individual:
            raise ArgumentError("budget: accounts per person need individual=True")
        if saved is not None:
            raise Unsupported("resume: give the budget as a filter; the accounts are in the checkpoint")
        if len(given.spent()) != count:
            raise ArgumentError("people: the records must be of as many people as there are accounts, or fewer")
        people = given
    elif settings.budget is None:
        people = WithoutBudget(count)
    elif saved is not None:
        people = restored_accounts(saved["accounts"], settings.budget, individual=settings.individual, count=count)
    elif settings.individual:
        people = PersonFilter(count, settings.budget.fresh(), shares=shares)
    else:
        people = Everybody(count, settings.budget.fresh())
    if held is not None and isinstance(people, PersonFilter):
        people = held.accounts(None if saved is None else people)
    return TrainingAccounts(people, losses, _running_bounds(settings, count, saved), count, before)


def _running_bounds(settings: Settings, count: int, saved: dict[str, Any] | None) -> PersonOdometer | Boundary | None:
    """The odometers of the checkpoint, or fresh ones, or None."""
    if saved is not None:
        return restored_odometer(saved.get("odometer"), settings.odometer, individual=settings.individual)
    if settings.odometer is None:
        return None
    return PersonOdometer(count, settings.odometer) if settings.individual else settings.odometer.fresh()
