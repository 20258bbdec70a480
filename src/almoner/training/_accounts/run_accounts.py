"""The accounts of a training run, and the loss counts beside them; private throughout."""

from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any, cast

import numpy as np
import torch
from numpy.typing import NDArray

from almoner import filters
from almoner._arrays import Array, Mask
from almoner.errors import ArgumentError, BudgetExceeded
from almoner.individual import AccountsPerPerson, Filter, Losses
from almoner.individual import Odometer as PersonOdometer
from almoner.mechanisms import Mechanism, repeated
from almoner.training._accounts.counted import (
    BoundsBeside,
    Counted,
    LossesBeside,
    Observer,
    count_worst_case,
    countable,
)
from almoner.training._accounts.everybody import Everybody
from almoner.training._card import Boundary

__all__ = [
    "TrainingAccounts",
    "WithoutBudget",
    "odometer_fields",
    "plain_numbers",
    "restored_accounts",
    "restored_odometer",
]


class WithoutBudget:
    """Accounts that refuse nobody: every person may contribute up to the clip, in every step; private throughout."""

    def __init__(self, count: int) -> None:
        self._count = count

    def allowance(self, step: Mechanism) -> Array:
        """(n,) the sensitivity of the step, for each person; it is the same for several steps."""
        return np.full(self._count, countable(repeated(step)[0]).sensitivity)

    def check(self, step: Mechanism) -> None:
        """Refuse what is not Gaussian; nobody is charged."""
        countable(step)

    def charge(self, step: Mechanism, norms: Array) -> Mask:
        """(n,) bool: who keeps to the sensitivity."""
        return np.asarray((norms >= 0) & (norms <= countable(step).sensitivity))


class TrainingAccounts:
    """All accounts of a run. Private throughout; the loop charges them, callbacks never see them.

    Args:
        people: an account for each person, one public filter for the worst case, or none at all.
        losses: counts of each person's contributions, or None.
        odometer: running bounds beside the accounts, or None.
        count: the number of people, private.
        before: called before anybody is charged for a step or a question.
    """

    def __init__(
        self,
        people: Filter | Everybody | WithoutBudget,
        losses: Losses | None,
        odometer: PersonOdometer | Boundary | None,
        count: int,
        before: Callable[[], object] = lambda: None,
    ) -> None:
        self.people, self._losses, self._count, self.odometer = people, losses, count, odometer
        self._before = before
        self.for_questions = self._counted(cast(AccountsPerPerson, people))
        self.for_steps = self.for_questions

    def put_in_front(self, accounts: AccountsPerPerson) -> None:
        """Charge steps through these, which charge the accounts of ``people``; questions are charged as before."""
        self.for_steps = self._counted(accounts)

    def _counted(self, accounts: AccountsPerPerson) -> Counted:
        return Counted(accounts, self._observers, self._before)

    @property
    def _observers(self) -> list[Observer]:
        bounds = [] if self.odometer is None else [BoundsBeside(self.odometer)]
        return [*bounds, *([] if self._losses is None else [LossesBeside(self._losses)])]

    def check_observed(self, mechanism: Mechanism) -> None:
        """Raise Unsupported where losses or bounds cannot count a mechanism; nothing is counted."""
        for observer in self._observers:
            observer.check(mechanism)

    def admits(self, mechanism: Mechanism) -> bool:
        """True if the public filter has room; with accounts per person always, because each is judged by itself."""
        return not isinstance(self.people, Everybody) or self.people.admits(mechanism)

    def count_worst_case(self, mechanism: Mechanism) -> None:
        """Count for each person as much as the mechanism allows, where losses or bounds are counted."""
        if self.odometer is not None:
            count_worst_case(self.odometer, mechanism, self._count)
        if self._losses is not None:
            step = countable(mechanism)
            self._losses.record(step, np.full(self._count, step.sensitivity))

    def charge_worst_case(self, mechanism: Mechanism) -> None:
        """Charge each person as much as the mechanism can cost, or all that is left, after a crash."""
        self.count_worst_case(mechanism)
        if isinstance(self.people, Everybody):
            with suppress(BudgetExceeded):  # then it was refused before the crash, too
                self.people.charge(mechanism, np.zeros(self._count))  # type: ignore[arg-type]  # it was a step
        elif isinstance(self.people, Filter):
            self.people.write_off(mechanism)

    def shares(self) -> NDArray[np.float64]:
        """(n,) the share of each person's budget that is used."""
        if isinstance(self.people, Everybody):
            raise ArgumentError("individual=False: all are charged the worst case, so there are no shares to show")
        if isinstance(self.people, WithoutBudget):
            raise ArgumentError("shares: this run has no budget; read trainer.odometer")
        return self.people.used()

    def to_fields(self) -> dict[str, Any]:
        """The accounts and the loss counts as plain values and tensors, for a checkpoint."""
        accounts = {} if isinstance(self.people, WithoutBudget) else plain_numbers(self.people.state())
        if isinstance(accounts.get("spent"), np.ndarray):
            accounts["spent"] = torch.from_numpy(accounts["spent"])
        if isinstance(accounts.get("shares"), np.ndarray):
            accounts["shares"] = torch.from_numpy(accounts["shares"])
        losses = None if self._losses is None else self._losses.state()
        counts = losses and {name: torch.from_numpy(part) for name, part in losses.items()}
        return {"accounts": accounts, "losses": counts, "odometer": odometer_fields(self.odometer)}

    def add_losses(self, counts: Mapping[str, torch.Tensor] | None) -> None:
        """Add the loss counts of a checkpoint to the fresh ones of this run."""
        if (self._losses is None) != (counts is None):
            raise ArgumentError("losses: as the checkpoint's run did, count them or do not")
        if self._losses is not None and counts is not None:
            self._losses.merge(Losses.from_state({name: part.numpy() for name, part in counts.items()}))


def odometer_fields(odometer: PersonOdometer | Boundary | None) -> dict[str, Any] | None:
    """Running bounds as plain values and tensors, for a checkpoint; None where there are none."""
    if odometer is None:
        return None
    fields: dict[str, Any] = plain_numbers(odometer.state())
    if isinstance(odometer, PersonOdometer):
        fields["totals"] = torch.from_numpy(fields["totals"])
    return fields


def restored_accounts(
    state: dict[str, Any], budget: filters.Filter, *, individual: bool, count: int
) -> Filter | Everybody:
    """The accounts in a checkpoint.

    Raises:
        ArgumentError: they hold another budget than the trainer's.
    """
    saved_budget = state.get("budget", state)
    if ("budget" in state) != individual or not _same_promise(saved_budget, budget):
        raise ArgumentError(f"resume: the checkpoint's accounts do not hold the budget {budget!r}")
    if individual:
        return Filter.from_state(state | {"spent": state["spent"].numpy()})
    return Everybody(count, type(budget).from_state(state))


def restored_odometer(
    state: dict[str, Any] | None, boundary: Boundary | None, *, individual: bool
) -> PersonOdometer | Boundary | None:
    """The running bounds in a checkpoint.

    Raises:
        ArgumentError: they are not those of the trainer's odometer.
    """
    if state is None or boundary is None:
        if state is not None or boundary is not None:
            raise ArgumentError("resume: as the checkpoint's run did, give an odometer= or none")
        return None
    saved = state.get("boundary", state)
    if ("boundary" in state) != individual or _parameters(saved) != _parameters(boundary.state()):
        raise ArgumentError(f"resume: the checkpoint's bounds are not those of odometer={boundary!r}")
    if individual:
        return PersonOdometer.from_state(state | {"totals": state["totals"].numpy()})
    return type(boundary).from_state(state)


def _same_promise(saved: dict[str, Any], budget: filters.Filter) -> bool:
    """True if a saved filter makes the promise of this one."""
    return _parameters(saved) == _parameters(budget.state())


def _parameters(state: dict[str, Any]) -> tuple[object, ...]:
    """The class and parameters in a saved state, but for the share for failures: the first charge may have set it."""
    return state.get("filter"), state.get("odometer"), {**state["parameters"], "sum_delta": None}


def plain_numbers(value: Any) -> Any:
    """Replace NumPy's numbers by Python's: a checkpoint is read without running anything that is in it."""
    if isinstance(value, dict):
        return {key: plain_numbers(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return (list if isinstance(value, list) else tuple)(plain_numbers(each) for each in value)
    return value.item() if isinstance(value, np.generic) else value
