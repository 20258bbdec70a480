"""The state that goes on from one call of ``partial_fit`` to the next: accounts, the noise and the parameters. Private.

Source: theory 5.1 to 5.3, 5.7, 5.12; docs/proofs/one-account.md, "Streams"
"""

from collections.abc import Hashable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from almoner import filters, individual
from almoner._private import MARK
from almoner._uncopyable import OwnProcess
from almoner.accounting import calibrate
from almoner.errors import ArgumentError, DataError, Unsupported
from almoner.individual import BudgetStatement
from almoner.ledger import Ledger
from almoner.mechanisms import Gaussian
from almoner.training._accounts.present_people import join_new
from almoner.training._linear import descent
from almoner.training._linear.gradients import LogisticGradients
from almoner.training._linear.noise_plan import Plan
from almoner.training._linear.personal_accounts import PersonalAccounts, named_accounts
from almoner.training._linear.stream_folder import Saved, StreamFolder
from almoner.training._on_ledger.run import OnLedger
from almoner.training._on_ledger.stream import LedgerStream

__all__ = ["StreamState", "StreamedAccounts", "plain", "planned_on", "restored", "stream_on"]

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class StreamedAccounts:
    """The accounts of everybody who ever came. PRIVATE: for the data holder.

    Attributes: people, the accounts, by id; None where a ledger has them. Public: delta, at which the budgets are
    stated.
    """

    people: individual.Filter | None
    delta: float
    _ledger: LedgerStream | None = None

    def __repr__(self) -> str:
        return f"StreamedAccounts({MARK})"

    def statement(self, person: Hashable) -> BudgetStatement:
        """One person's statement, for nobody else."""
        if self._ledger is not None:
            return self._ledger.statement(person, delta=self.delta)
        return self._own.statement(person, delta=self.delta)

    def save(self, path: Path) -> Path:
        """Write what ``SavedAccounts`` reads: a file that its owner alone can read; PRIVATE."""
        return self._named().save(path)

    def _named(self) -> PersonalAccounts:
        return named_accounts(self._own, self._own.state()["ids"], self.delta)

    @property
    def _own(self) -> individual.Filter:
        if self.people is None:
            raise Unsupported("accounts: they are the ledger's; see Ledger.spent")
        return self.people


@dataclass(slots=True, eq=False, repr=False)
class StreamState:
    """The state that goes on from one call to the next.

    Attributes:
        settings: of the estimator, which the first call decides.
        classes, planned: public.
        accounts: of everybody who ever came; None on a ledger.
        ledger: the stream on its ledger, or None.
        noise: the generator.
        parameters, updates: what was released, public.
        folder: what it goes on from, or None.
    """

    settings: dict[str, Any]
    classes: NDArray[Any]
    planned: Plan
    accounts: individual.Filter | None
    ledger: LedgerStream | None
    noise: np.random.Generator
    parameters: Floats
    updates: int = 0
    folder: StreamFolder | None = None
    process: OwnProcess = field(default_factory=OwnProcess)

    def alone(self) -> AbstractContextManager[None]:
        """Keep other processes out of the folder, if there is one; it must be where this model is."""
        return nullcontext() if self.folder is None else self.folder.alone(self.updates)

    def begin(self, described: Mapping[str, Any]) -> None:
        """Keep what there is, begin on the ledger or go on there, and take the step that a crash kept from the folder.

        Args:
            described: public. What a folder keeps of the estimator.
        """
        self.save(described, self.parameters, self.updates)
        if self.ledger is None:
            return
        public: dict[str, object] = {"model": "LogisticRegression", "max_grad_norm": self.planned.step.sensitivity}
        public["noise_multiplier"] = self.planned.step.sigma / self.planned.step.sensitivity
        kept = self.ledger.begin(public, self.folder, self.updates)
        if kept is not None:
            (noisy,), factor = kept
            self.parameters, self.updates = self.parameters - factor * noisy, self.updates + 1
            self.save(described, self.parameters, self.updates)

    def update(
        self,
        ids: Sequence[Hashable],
        gradients: LogisticGradients,
        factor: float,
        described: Mapping[str, Any],
    ) -> None:
        """Charge the people who are there, take the step, and keep it before anybody is told.

        Args:
            ids: (n,) who is there, private.
            gradients: theirs, private.
            factor: public. What the noisy sum is multiplied by.
            described: public. What a folder keeps of the estimator.

        Raises:
            ArgumentError: an id cannot be kept in a folder; nobody was charged.
        """
        if self.folder is not None and not all(isinstance(person, int | str) for person in ids):
            raise ArgumentError("people: with a checkpoint, ids must be whole numbers or texts")
        if self.ledger is not None:
            noisy = self._charge_on_ledger(self.ledger, ids, gradients, factor)
            self.parameters, self.updates = self.parameters - factor * noisy, self.updates + 1
            self.save(described, self.parameters, self.updates)
            return
        accounts = join_new(self._own, ids)
        noisy = descent.release(gradients, self.parameters, accounts, self.planned.step, self.noise)
        parameters = self.parameters - factor * noisy
        self.save(described, parameters, self.updates + 1)
        self.parameters, self.updates = parameters, self.updates + 1

    def save(self, described: Mapping[str, Any], parameters: Floats, number: int) -> None:
        """Write what the next call goes on from, if there is a folder."""
        if self.folder is None:
            return
        held = None if self.accounts is None else self.accounts.state()
        spent = None if held is None else np.asarray(held.pop("spent"), dtype=np.int64)
        fields = {
            **described,
            "classes": self.classes.tolist(),
            "sigma": self.planned.step.sigma,
            "ledger": None if self.ledger is None else self.ledger.on.key,
            "accounts": None if held is None else plain(held),
        }
        self.folder.save(Saved(number, fields, parameters, spent))

    @property
    def _own(self) -> individual.Filter:
        if self.accounts is None:
            raise Unsupported("accounts: they are the ledger's")
        return self.accounts

    def _charge_on_ledger(
        self, ledger: LedgerStream, ids: Sequence[Hashable], gradients: LogisticGradients, factor: float
    ) -> Floats:
        """The noisy sum of a call that the ledger charges."""
        step, folder = self.planned.step, self.folder

        def charge_and_sum(accounts: individual.Filter) -> list[Floats]:
            return [descent.charged_sum(gradients, self.parameters, accounts, step)]

        def add_noise(sums: Sequence[Floats]) -> list[Floats]:
            return [sums[0] + self.noise.normal(0.0, step.sigma, size=sums[0].shape)]

        def keep(number: int, noisy: list[Floats]) -> None:
            if folder is not None:
                folder.keep(number, noisy[0], factor)

        (noisy,) = ledger.release(step, ids, charge_and_sum, add_noise, spread=1, keep=keep)
        return np.asarray(noisy)


def plain(value: Any) -> Any:
    """Replace NumPy's numbers and arrays by Python's, for JSON.

    Raises:
        ArgumentError: there is something else than numbers and texts.
    """
    if isinstance(value, Mapping):
        return {key: plain(each) for key, each in value.items()}
    if isinstance(value, np.ndarray | np.generic):
        return plain(value.tolist())
    if isinstance(value, list | tuple):
        return [plain(each) for each in value]
    if value is None or isinstance(value, bool | int | float | str):
        return value
    raise ArgumentError("checkpoint: ids, labels and settings must be whole numbers, numbers or texts to be kept")


def stream_on(ledger: OnLedger | None, seed: int | None) -> LedgerStream | None:
    """The stream on its ledger.

    Raises:
        ArgumentError: the ledger is not open.
        Unsupported: there is a seed, or the ledger counts what has no price for Gaussian noise.
    """
    if ledger is None:
        return None
    if not isinstance(ledger.ledger, Ledger):
        raise ArgumentError("ledger: partial_fit needs one that stays open between calls: OnLedger(Ledger.open(...))")
    return LedgerStream(ledger, seed=seed)


def planned_on(planned: Plan, ledger: LedgerStream, *, steps: int, noise_multiplier: float | None) -> Plan:
    """The plan of a stream whose accounts are a ledger's: the noise for so many full contributions to its budget."""
    clip = planned.step.sensitivity
    sigma = (
        calibrate.sigma(ledger.whole, steps, sensitivity=clip) if noise_multiplier is None else noise_multiplier * clip
    )
    delta = planned.delta if ledger.budget.delta is None else ledger.budget.delta
    reached = ledger.budget.epsilon(delta=delta)
    return replace(planned, budget=ledger.budget, epsilon=reached, delta=delta, step=Gaussian(sigma, clip), why="")


def restored(saved: Saved, planned: Plan) -> tuple[individual.Filter | None, Plan]:
    """The accounts that a folder holds, to the last unit, and the plan with their budget; no accounts on a ledger.

    Raises:
        DataError: they are damaged.
    """
    held = saved.fields["accounts"]
    if held is None:
        return None, planned
    try:
        accounts = individual.Filter.from_state({**held, "spent": saved.spent})
    except (ArgumentError, TypeError, ValueError, KeyError) as damaged:
        raise DataError("checkpoint: its accounts are damaged; nothing was changed") from damaged
    budget = accounts.budget
    if not isinstance(budget, filters.Gaussian | filters.Zcdp):
        raise DataError("checkpoint: its accounts are damaged; nothing was changed")
    return accounts, replace(planned, budget=budget)
