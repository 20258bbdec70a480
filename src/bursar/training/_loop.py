"""One run of a trainer: charge, release, step, tell the callbacks, and again."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import nn

from bursar import filters, individual
from bursar.errors import ArgumentError, BudgetExceeded, Unsupported
from bursar.mechanisms import Mechanism
from bursar.training._checkpoint import Journal, mechanism, plain
from bursar.training._contributions import FullBatch, Poisson, Records
from bursar.training._counters import rounded
from bursar.training._distributed import Noise, Together
from bursar.training._private_report import Counted, Watch
from bursar.training._run import Run, Values, of_people, over
from bursar.training.gradients import Gradients
from bursar.training.stopping import Doors

__all__ = ["Job", "Settings"]

OWN_PAST = (filters.RenyiOrder, filters.RenyiCurve, filters.Zcdp)
"""The budgets for which bounds may use a person's own past samples (theory 5.6)."""


@dataclass(frozen=True, slots=True)
class Settings:
    """What was decided before anybody's data were touched. Every field is public."""

    budget: filters.Filter
    max_grad_norm: float
    divisor: float
    noise_multiplier: float
    steps: int | None
    last: int | None
    individual: bool
    spend_remainder: bool
    sample_rate: float | None
    refresh_every: int
    slack: float
    seeded: bool


class Job:
    """One run. Its records and accounts are private; its ``run`` is public."""

    def __init__(
        self,
        settings: Settings,
        gradients: Gradients,
        module: nn.Module,
        optimizer: torch.optim.Optimizer,
        together: Together,
        randomness: tuple[Noise, np.random.Generator],
        records: Records,
        people: Any,
        counting: Callable[[Any], Any] | None,
        losses: individual.Losses | None,
        journal: Journal | None,
    ) -> None:
        self._settings, self._gradients, self._together = settings, gradients, together
        self._noise, coins = randomness
        self._records, self.people, self._journal = records, people, journal
        self._counting, self._losses = counting, losses
        self.seeded, self.owned = settings.seeded, records.people is not None
        self._refused: BudgetExceeded | None = None
        self._sampled = False
        self._print = None if journal is None else records.fingerprint()
        self._pass: FullBatch | Poisson = FullBatch(spend_remainder=settings.spend_remainder)
        if settings.sample_rate is not None:
            self._pass = Poisson(
                refresh_every=settings.refresh_every,
                slack=settings.slack,
                individual=settings.individual,
                own_past=isinstance(settings.budget, OWN_PAST),
                coins=coins,
            )
        self.run = Run(
            module,
            optimizer,
            steps=settings.steps,
            max_grad_norm=settings.max_grad_norm,
            noise_multiplier=settings.noise_multiplier,
            sample_rate=settings.sample_rate,
            accounts=people,
            last=settings.last,
            room=lambda step: settings.individual or people.admits(step),
            ask=self._answer,
        )
        self.watch = Watch(self._shares, 1.0, settings.last or 1)

    def resume(self, state: dict[str, Any], unseen: list[Mechanism]) -> None:
        """Go on from a checkpoint; everybody pays for what may have been released since.

        Raises:
            ArgumentError: the accounts belong to other records, or to these in another order; nothing was charged.
        """
        run = self.run
        if state["records"] != self._print:
            raise ArgumentError("resume: these are not the checkpoint's records of the same people in the same order")
        _check_same(state["public"]["settings"], self._public_settings())
        if (self._losses is None) != (state["losses"] is None):
            raise ArgumentError("losses: as the checkpoint's run did, count them or do not")
        if self._losses is not None:
            counts = {name: part.numpy() for name, part in state["losses"].items()}
            self._losses.merge(individual.Losses.from_state(counts))
        run.released = {mechanism(fields): times for fields, times in state["public"]["released"]}
        for step in unseen:
            self._pay_in_full(step)
            self._count(step)
        run.module.load_state_dict(state["module"])
        optimizer, public = self._together.same((state["optimizer"], state["public"]))
        run.optimizer.load_state_dict(optimizer)
        run.step, run.reason, run.history = public["step"], public["reason"], public["history"]
        run.answers = [tuple(answer) for answer in public["answers"]]
        run.noise_multiplier = public["noise_multiplier"]
        if public["sample_rate"] is not None:
            run.sample_rate = public["sample_rate"]
        self.seeded, self._sampled = self.seeded or public["seeded"], public["own_samples"]
        self.save()

    def go(self, callbacks: tuple[Callable[[Run], None], ...], save_every: int) -> None:
        """Steps until the plan, the budget or a callback says that it is enough."""
        run, last = self.run, self._settings.last
        if self._counting is not None:
            run.accounts = self._doors(self._counting(self.people))
            self.seeded = self.seeded or run.accounts.reproducible
            if not self._together.alone:
                run.accounts.among(self._together.gathered)
            self._count(run.accounts.price)
            self._lose_in_full(run.accounts.price)
        self._sampled = self._sampled or (isinstance(self._pass, Poisson) and self._pass.own_past)
        self.save()  # what was booked just now must survive
        try:
            self._tell(callbacks)
            while run.reason is None and (last is None or run.step < last):
                with self._refusal():
                    self._step()
                self._tell(callbacks)
                if run.step % save_every == 0:
                    self.save()
        except BudgetExceeded as refused:  # the worst case of everybody, for a step or a question: a public fact
            if refused is not self._refused:  # of some other budget, which a callback keeps
                raise
            run.reason = run.reason or "the budget is spent"
        run.reason = run.reason or "all planned steps are done"
        self.save()

    def _doors(self, accounts: Any) -> Any:
        """What stands in front of the accounts, if it does."""
        if not isinstance(accounts, Doors) or accounts.people is not self.people:
            raise ArgumentError("counting must make Dropouts or StillActive of the accounts that it is given")
        if accounts.most is not None and self._settings.last and accounts.most < self._settings.last - self.run.step:
            accounts.close()  # nobody has dropped out yet: everybody gets back what was booked
            raise ArgumentError(f"counting: {accounts.most} counts are fewer than steps: {self._settings.last}")
        if isinstance(self._pass, Poisson) and not accounts.own_samples:
            if self._sampled:
                raise ArgumentError("counting: bounds followed own samples so far, which its price does not cover")
            self._pass.own_past = False  # before the first step: refreshes alone
        return accounts

    def save(self) -> None:
        """Write a checkpoint."""
        if self._journal is None:
            return
        run = self.run
        accounts = _plain_numbers(self.people.state())
        if "spent" in accounts and isinstance(accounts["spent"], np.ndarray):
            accounts["spent"] = torch.from_numpy(accounts["spent"])
        public = {
            "step": run.step,
            "reason": run.reason,
            "answers": run.answers,
            "history": _plain_numbers(run.history),
            "released": [[plain(step), times] for step, times in run.released.items()],
            "noise_multiplier": run.noise_multiplier,
            "sample_rate": run.sample_rate,
            "seeded": self.seeded,
            "own_samples": self._sampled,
            "settings": self._public_settings(),
        }
        losses = None if self._losses is None else self._losses.state()
        self._journal.save(
            {
                "records": self._print,
                "module": run.module.state_dict(),
                "optimizer": run.optimizer.state_dict(),
                "accounts": accounts,
                "losses": losses and {name: torch.from_numpy(part) for name, part in losses.items()},
                "public": public,
            }
        )

    def _tell(self, callbacks: tuple[Callable[[Run], None], ...]) -> None:
        for callback in callbacks:
            callback(self.run)

    def _step(self) -> None:
        run, step = self.run, self.run.next_step()
        self._begin(step)
        sums = self._pass.sums(self._gradients, self._records, self._counted(run.accounts), step)
        noisy = self._together.noisy_total(sums, step.sigma, self._noise)
        self._count(step)
        divisor = self._settings.divisor * (run.sample_rate or 1.0)
        run.optimizer.zero_grad(set_to_none=True)  # no gradient that somebody left there, of frozen parameters too
        for parameter, total in zip(self._gradients.parameters, noisy, strict=True):
            parameter.grad = (total / divisor).to(parameter.dtype)
        run.optimizer.step()
        run.optimizer.zero_grad(set_to_none=True)
        run.step += 1
        if self._settings.individual:
            self.watch.look(run.step)

    def _answer(self, asked: Mechanism, values: Values) -> float:
        """A noisy sum over people of what each is charged for."""
        records = self._records
        found = over(self.run.module, records.inputs, records.targets, values)
        held = of_people(found, records.people, records.count)
        self._begin(asked)
        with self._refusal():
            active = np.asarray(self._counted(self.people).charge(asked, held), dtype=bool)
        self._count(asked)
        total = torch.tensor([float(held[active].sum())], dtype=torch.float64)
        sigma = asked.sigma  # type: ignore[attr-defined]
        return rounded(float(self._together.noisy_total([total], sigma, self._noise)[0]), sigma)

    @contextmanager
    def _refusal(self) -> Iterator[None]:
        """Remember that it was this run's budget that was exceeded."""
        try:
            yield
        except BudgetExceeded as refused:
            self._refused = refused
            raise

    def _begin(self, step: Mechanism) -> None:
        if self._journal is not None:
            self._journal.begin(step)

    def _count(self, step: Mechanism) -> None:
        self.run.released[step] = self.run.released.get(step, 0) + 1

    def _counted(self, accounts: Any) -> Any:
        return accounts if self._losses is None else Counted(accounts, self._losses)

    def _lose_in_full(self, step: Any) -> None:
        """Everybody is counted as if they had contributed all that the step allows."""
        if self._losses is None:
            return
        if not hasattr(step, "sensitivity"):
            raise Unsupported(f"losses: {step!r} can't be counted beside Gaussian steps; nothing was released")
        self._losses.record(step, np.full(self._records.count, step.sensitivity))

    def _public_settings(self) -> dict[str, Any]:
        """What the card says of every step, and whose state the optimizer's is."""
        names = ("max_grad_norm", "noise_multiplier", "sample_rate", "divisor", "spend_remainder")
        return {name: getattr(self._settings, name) for name in names} | {
            "optimizer": type(self.run.optimizer).__name__
        }

    def _pay_in_full(self, step: Mechanism) -> None:
        """What the step costs at most, or all that is left."""
        self._lose_in_full(step)
        if not self._settings.individual:
            try:
                self.people.charge(step, np.zeros(self._records.count))
            except BudgetExceeded:  # then it was refused before, too
                return
        else:
            self.people.write_off(step)

    def _shares(self) -> Any:
        """(n,) the share of each person's budget that is used, private."""
        spent, left = (np.asarray(part, dtype=np.float64) for part in (self.people.spent(), self.people.left()))
        most = spent + left
        shares = np.divide(spent, most, out=np.full_like(spent, np.inf), where=most > 0)
        if shares.ndim == 1:
            return shares
        some_order_is_enough = isinstance(self._settings.budget, filters.Renyi)
        return shares.min(axis=1) if some_order_is_enough else shares.max(axis=1)


def _check_same(held: dict[str, Any], given: dict[str, Any]) -> None:
    """Refuse to go on with other settings: the card would not be about the steps that were done."""
    for name, value in held.items():
        if given[name] != value:
            raise ArgumentError(f"{name}={given[name]!r} must be that of the checkpoint: {value!r}")


def _plain_numbers(value: Any) -> Any:
    """The same with NumPy's numbers as Python's: a checkpoint is read without running anything that is in it."""
    if isinstance(value, dict):
        return {key: _plain_numbers(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return (list if isinstance(value, list) else tuple)(_plain_numbers(each) for each in value)
    return value.item() if isinstance(value, np.generic) else value
