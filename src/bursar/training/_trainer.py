"""Training a PyTorch module with a privacy account for every person: gradient descent and DP-SGD.

Names and symbols
    C, z, q       clip (max_grad_norm), noise multiplier, sample rate; sigma = z C is the noise on a sum; public
    divisor       the fixed public number that noisy sums are divided by, times q when people are sampled

Source: theory.md statements 5.1 to 5.3, 5.6 and 5.7; Feldman & Zrnic (2021), Algorithms 3, 7 and 8
"""

import inspect
import math
from collections.abc import Callable, Iterable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from bursar import _check, calibrate, filters, individual
from bursar.errors import ArgumentError, Unsupported
from bursar.training._card import Card
from bursar.training._checkpoint import Journal
from bursar.training._contributions import Records
from bursar.training._distributed import Together, source
from bursar.training._logistic.descent import Everybody
from bursar.training._loop import Job, Settings
from bursar.training._private_report import HolderReport
from bursar.training._promise import promise
from bursar.training._run import Run
from bursar.training.gradients import Batch, Gradients
from bursar.training.gradients._batches import as_inputs, check_batch

__all__ = ["Trainer"]


class Trainer:
    """Trains a module so that nobody's account exceeds the budget, whatever happens on the way.

    Args:
        module: public. A PyTorch module; see ``training.Gradients`` for what it may consist of.
        loss: public. One loss for each record: ``nn.CrossEntropyLoss(reduction="none")``.
        optimizer: public. Any optimizer of the module's parameters; it sees noisy gradients only.
        budget: public. A fresh filter: what each person may spend in this training; it is copied, not charged. Or an
            ``individual.Filter``, private: accounts that are in use already, which are charged.
        max_grad_norm: public. The clip C on the L2 norm of each person's gradient.
        steps: public. How many steps; None, without individual accounts: as many as the budget admits.
        noise_multiplier: public. The noise on a sum is N(0, (z C)^2); None: the least noise with which somebody who
            contributes C in each of ``steps`` steps keeps within the budget.
        extra_steps: public. So many steps more, for those who have budget left. Only with individual accounts.
        divisor: public. The fixed number of people that sums are divided by: a public number or a noisy count.
        individual: public. Whether everybody is charged for the own contribution, or all for the worst case.
        spend_remainder: public. Clip a gradient to what its person can still pay (FZ Alg. 8), rather than leave that
            person out (Alg. 3). Without sampling only.
        sample_rate: public. Sample each person with this probability in each step (DP-SGD); None: everybody, always.
        refresh_every: public. With sampling, after how many steps bounds are assigned anew; None: once an epoch.
        slack: public. With sampling, how much larger than the last norm a person's bound is.
        memory: public, bytes. See ``training.Gradients``.
        group: a torch.distributed process group, or True for the default one: every process holds its own people.
        seed: public. Makes a run reproducible: NOT private. None: noise from a generator seeded by the system.

    Guarantee: the module's parameters after every step, and all answers to paid questions, are together as private as
        the budget says, for adding or removing any one person with all of that person's records.
    Source: theory 5.1 to 5.3, 5.6, 5.7; Feldman & Zrnic (2021), Theorem 4.5, Algorithms 3, 7 and 8.
    """

    def __init__(
        self,
        module: nn.Module,
        loss: Callable[..., Tensor],
        optimizer: torch.optim.Optimizer,
        budget: filters.Filter | individual.Filter,
        *,
        max_grad_norm: float,
        divisor: float,
        steps: int | None = None,
        noise_multiplier: float | None = None,
        extra_steps: int = 0,
        individual: bool = True,
        spend_remainder: bool = True,
        sample_rate: float | None = None,
        refresh_every: int | None = None,
        slack: float = 1.1,
        memory: float | None = None,
        group: Any = None,
        seed: int | None = None,
    ) -> None:
        _check.positive(max_grad_norm=max_grad_norm, divisor=divisor, slack=slack)
        _check.whole(0, extra_steps=extra_steps)
        if steps is not None:
            _check.whole(1, steps=steps)
        elif individual or noise_multiplier is None:
            raise ArgumentError("steps=None needs individual=False and a noise_multiplier")
        if sample_rate is not None:
            _check.positive(sample_rate=sample_rate)
            _check.within(0, 1, sample_rate=sample_rate)
            refresh_every = max(1, round(1 / sample_rate)) if refresh_every is None else refresh_every
            _check.whole(1, refresh_every=refresh_every)
        self._gradients = Gradients(module, loss, **({} if memory is None else {"memory": memory}))
        _check_optimizer(optimizer, self._gradients.parameters)
        self._module, self._optimizer, self._given = module, optimizer, budget
        public: Any = getattr(budget, "budget", budget)
        if not isinstance(public, filters.Filter) or public.count:
            raise ArgumentError(f"budget={budget!r} must be a fresh filter, or accounts per person")
        self._settings = Settings(
            budget=type(public).from_state(public.state()),  # ours: the card must not change with the caller's
            max_grad_norm=float(max_grad_norm),
            divisor=float(divisor),
            noise_multiplier=_noise_multiplier(noise_multiplier, public, steps, max_grad_norm, sample_rate),
            steps=steps,
            last=None if steps is None else steps + (extra_steps if individual else 0),
            individual=individual,
            spend_remainder=spend_remainder,
            sample_rate=sample_rate,
            refresh_every=refresh_every or 1,
            slack=float(slack),
            seeded=seed is not None,
        )
        self._together = Together(group)
        self._seed = seed
        self._job: Job | None = None

    @property
    def module(self) -> nn.Module:
        """What is trained, in place."""
        return self._module

    @property
    def noise_multiplier(self) -> float:
        """The noise on a sum, as a multiple of the clip. Public."""
        return self._settings.noise_multiplier

    def fit(
        self,
        inputs: Batch,
        targets: Tensor,
        people: Tensor | None = None,
        *,
        callbacks: Iterable[Callable[[Run], None]] = (),
        counting: Callable[[Any], Any] | None = None,
        losses: individual.Losses | None = None,
        checkpoint: str | Path | None = None,
        checkpoint_every: int = 50,
        resume: bool = False,
    ) -> Run:
        """Train.

        Args:
            inputs: (records, ...) tensor or several, private.
            targets: (records, ...) tensor, private.
            people: (records,) whole numbers 0 to n - 1, private: whose each record is; None: each is a person.
            callbacks: each is called with the run before the first step and after every step; see ``Run``. One that
                has a method ``ended`` is told, with the run, when it is over, however it ends.
            counting: stands in front of the accounts, e.g. ``lambda people: Dropouts(people, Tree(...))``.
            losses: private, fresh: filled with everybody's steps, for epsilons that are computed afterwards. Its
                ``least`` is at most the noise multiplier.
            checkpoint: a folder, private: written before anything is released, so that a killed run can be resumed.
            checkpoint_every: steps between two checkpoints.
            resume: go on from the folder, with the same records in the same order and the same budget. Everybody is
                first charged for what may have been released since its last checkpoint.

        Returns:
            The finished run. The module is trained in place.

        Raises:
            Errors in arguments or in the module are raised before anything is charged.
        """
        if self._job is not None:
            raise ArgumentError("this trainer has trained already: another run needs another trainer and budget")
        _check.whole(1, checkpoint_every=checkpoint_every)
        told = tuple(callbacks) if isinstance(callbacks, Iterable) else (None,)
        if not all(map(callable, told)):
            raise ArgumentError("callbacks must be a list of functions of the run")
        inputs = as_inputs(inputs)
        if not check_batch(inputs, targets, people):
            raise ArgumentError("inputs must hold at least one record: the module is tried on it first")
        held = len(self._given.spent()) if isinstance(self._given, individual.Filter) else 0
        records = Records(inputs, targets, people, held)
        self._check_losses(losses, records.count)
        randomness = source(self._gradients.parameters[0].device, self._seed), np.random.default_rng(self._seed)
        self._gradients.prepare(inputs, targets)
        journal = None if checkpoint is None else Journal(checkpoint, resume=resume)
        with ExitStack() as stack:
            if journal is not None:
                stack.callback(journal.close)
            loaded = None if journal is None else journal.load()
            accounts = self._accounts(records.count, None if loaded is None else loaded[0]["accounts"])
            job = Job(
                self._settings,
                self._gradients,
                self._module,
                self._optimizer,
                self._together,
                randomness,  # drawn now, not when the trainer was made: processes forked since share nothing
                records,
                accounts,
                counting,
                losses,
                journal,
            )
            if loaded is not None:
                job.resume(*loaded)
            self._job = job
            self._together.agree(self._module)
            for callback in told:
                if hasattr(callback, "ended"):
                    stack.callback(callback.ended, job.run)
            job.go(told, checkpoint_every)
        return job.run

    @property
    def holder_report(self) -> HolderReport:
        """Everybody's shares of the budget over the run. PRIVATE: for the data holder."""
        return self._watched().watch.report()

    def shares(self) -> Any:
        """(n,) the share of each person's budget that is used. PRIVATE: for the data holder."""
        return self._watched().watch.shares()

    @property
    def accounts(self) -> Any:
        """Everybody's accounts after the run. PRIVATE: for the data holder."""
        return self._finished().people

    def card(self, *, delta: float | None = None) -> Card:
        """What is promised about the trained module, and what it was paid with. Public.

        Args:
            delta: in (0, 1), for budgets that have no delta of their own.
        """
        job = self._finished()
        return promise(
            self._settings,
            job.run.released,
            steps=job.run.step,
            learning_rate=float(self._optimizer.param_groups[0]["lr"]),
            seeded=job.seeded,
            people=job.owned,
            delta=delta,
        )

    def _finished(self) -> Job:
        if self._job is None:
            raise ArgumentError("nothing was trained yet: call fit first")
        return self._job

    def _watched(self) -> Job:
        if not self._settings.individual:
            raise ArgumentError("individual=False: everybody is charged the worst case, so there are no shares to show")
        return self._finished()

    def _check_losses(self, losses: individual.Losses | None, count: int) -> None:
        if losses is None:
            return
        if not isinstance(losses, individual.Losses) or losses.n != count or losses.rates:
            raise ArgumentError("losses must be fresh individual.Losses of as many people as the records are of")
        if losses.noise[0] > self._settings.noise_multiplier:
            raise ArgumentError(
                f"losses: its least={losses.noise[0]:g} must be at most the noise multiplier {self.noise_multiplier:g}"
            )

    def _accounts(self, count: int, state: dict[str, Any] | None) -> Any:
        if isinstance(self._given, individual.Filter):
            if not self._settings.individual:
                raise ArgumentError("budget: accounts per person need individual=True")
            if state is not None:
                raise Unsupported("resume: give the budget as a filter; the accounts are in the checkpoint")
            if len(self._given.spent()) != count:
                raise ArgumentError("people: the records must be of as many people as there are accounts, or fewer")
            return self._given
        if state is None:
            fresh = type(self._settings.budget).from_state(self._settings.budget.state())
            return individual.Filter(count, fresh) if self._settings.individual else Everybody(count, fresh)
        held = state.get("budget", state)
        if ("budget" in state) != self._settings.individual or not _same(held, self._settings.budget):
            raise ArgumentError(f"resume: the checkpoint's accounts do not hold the budget {self._settings.budget!r}")
        if self._settings.individual:
            return individual.Filter.from_state(state | {"spent": state["spent"].numpy()})
        return Everybody(count, type(self._settings.budget).from_state(state))


def _check_optimizer(optimizer: Any, parameters: list[nn.Parameter]) -> None:
    """Refuse an optimizer that would leave a parameter where it is: its noisy gradients would be paid for in vain."""
    if not isinstance(optimizer, torch.optim.Optimizer):
        raise ArgumentError(f"optimizer={optimizer!r} must be a torch.optim.Optimizer of the module's parameters")
    if isinstance(optimizer, torch.optim.SparseAdam):
        raise ArgumentError("optimizer=SparseAdam takes sparse gradients only, and noise is in every coordinate")
    asked = inspect.signature(optimizer.step).parameters.get("closure")
    if asked is not None and asked.default is inspect.Parameter.empty:
        raise ArgumentError(
            f"optimizer={type(optimizer).__name__} computes the loss again within a step, which nobody has paid for: "
            "use one whose step needs no closure"
        )
    held = {id(parameter) for group in optimizer.param_groups for parameter in group["params"]}
    missing = sum(id(parameter) not in held for parameter in parameters)
    if missing:
        raise ArgumentError(
            f"optimizer: {missing} of the module's {len(parameters)} trained parameters are not among those it moves; "
            "make it of module.parameters(), or call requires_grad_(False) on what must stay as it is"
        )


def _same(state: dict[str, Any], budget: filters.Filter) -> bool:
    """Whether a saved filter made the promise of this one; its share for failures may be set by the first charge."""
    given = budget.state()
    pairs = [{**each["parameters"], "sum_delta": None} for each in (state, given)]
    return bool(state["filter"] == given["filter"] and pairs[0] == pairs[1])


def _noise_multiplier(
    given: float | None, budget: filters.Filter, steps: int | None, clip: float, sample_rate: float | None
) -> float:
    if given is not None:
        _check.positive(noise_multiplier=given)
        return float(given)
    sigma = calibrate.sigma(budget, steps or 1, sensitivity=clip, sample_rate=sample_rate or 1.0)
    multiplier = sigma / clip
    while multiplier * clip < sigma:  # rounded down: then the last step would not fit
        multiplier = math.nextafter(multiplier, math.inf)
    return multiplier
