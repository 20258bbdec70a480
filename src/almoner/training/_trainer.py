"""Training a PyTorch module with a privacy account for every person: gradient descent and DP-SGD.

Names and symbols
    C, z, q       clip (max_grad_norm), noise multiplier, sample rate; sigma = z C is the noise on a sum; public
    divisor       the fixed public number that noisy sums are divided by, times q when people are sampled

Source: theory.md statements 5.1 to 5.3, 5.6 and 5.7; Feldman & Zrnic (2021), Algorithms 3, 7 and 8
"""

from collections.abc import Callable, Hashable, Iterable, Sequence
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from almoner import _check, filters
from almoner.errors import ArgumentError
from almoner.individual import BudgetStatement, Losses, Statement
from almoner.individual import Filter as PersonFilter
from almoner.individual import Odometer as PersonOdometer
from almoner.training._accounts.everybody import Everybody
from almoner.training._accounts.holder_report import HolderReport
from almoner.training._accounts.run_accounts import TrainingAccounts, WithoutBudget
from almoner.training._card import Boundary, Card, build_card, worst_case
from almoner.training._on_ledger.run import LedgerRun, OnLedger, reserve_on_ledger
from almoner.training._records.datasets import checked_records
from almoner.training._records.distributed import Processes, noise_generator
from almoner.training._records.records import Records
from almoner.training._run.arguments import (
    check_first_step,
    check_losses,
    check_optimizer,
    check_options,
    checked_callbacks,
    refresh_interval,
    settled_budget,
    settled_odometer,
)
from almoner.training._run.callback_view import CallbackView
from almoner.training._run.contributions import FullBatch, Poisson, contributions
from almoner.training._run.ending import Interruptions
from almoner.training._run.first_accounts import accounts_of_run
from almoner.training._run.fixed_batches import BatchContributions, Correlation, batch_plan
from almoner.training._run.folder import Announced, Checkpoint
from almoner.training._run.loop import Callback, Counting, Loop
from almoner.training._run.settings import Settings
from almoner.training.correlated import FixedBatches
from almoner.training.gradients import Gradients
from almoner.training.gradients.augmentations import Views

__all__ = ["Trainer"]


class Trainer:
    """Train a module so that no account exceeds the budget, whatever happens on the way.

    Args:
        module: public. A PyTorch module; see ``training.Gradients`` for what it may consist of.
        loss: public. One loss for each record: ``nn.CrossEntropyLoss(reduction="none")``.
        optimizer: public. Any optimizer of the module's parameters; it sees noisy gradients only.
        budget: public. A fresh filter: what each person may spend in this training; nothing else can spend it once
            ``fit`` began. Or an ``individual.Filter``, private: accounts that are in use already, which are charged.
        epsilon, delta: public, in place of a budget. The filter is then the one that ``filters.recommend`` names for
            the noise and rate of the steps, or with accounts per person the best that these can have; the card says
            why.
        odometer: public. A fresh odometer: running bounds beside the budget, or in place of one (then nobody is ever
            left out, and steps and noise_multiplier must be given). With individual accounts there is one for each
            person; see ``Trainer.odometer``.
        max_grad_norm: public. The clip C on the L2 norm of each person's gradient.
        steps: public. How many steps; None, without individual accounts: as many as the budget admits.
        noise_multiplier: public. The noise on a sum is N(0, (z C)^2); None: the least noise with which a person who
            contributes C in each of ``steps`` steps keeps within the budget.
        extra_steps: public. So many steps more than the noise was planned for. Only with individual accounts.
        divisor: public. The fixed number of people that sums are divided by: a public number or a noisy count.
        individual: public. Whether each person is charged for their own contribution, or all for the worst case.
        spend_remainder: public. Clip a gradient to what its person can still pay (FZ Alg. 8), rather than leave that
            person out (Alg. 3). Without sampling only.
        pace: public, in [0, 1]. How evenly each person's budget is spread over the steps that are left: with 1
            nobody is out before the last step; with 0 each person contributes up to the clip until nothing is left, as
            in FZ Alg. 8, which can ruin a model (see docs/training.md). Without sampling, and with ``spend_remainder``.
        sample_rate: public. Sample each person with this probability in each step (DP-SGD); None: all, always.
        refresh_every: public. With sampling, after how many steps bounds are assigned anew; None: once an epoch.
        slack: public. With sampling, how much larger than the last norm a person's bound is.
        batches, noise: public. Fixed batches and a factor of correlated noise; see ``training.correlated``. Steps are
            those of single batches then, and noise_multiplier is that of the noise before it is correlated.
        memory: public, bytes. See ``training.Gradients``.
        views: public. Several views of each record in each step; see ``training.augmentations``.
        group: a torch.distributed process group, or True for the default one: every process holds its own people.
        seed: public. Repeats a run on one machine: NOT private. None: noise from a generator seeded by the system.

    Guarantee: the module's parameters after every step, and all answers to paid questions, are together as private as
        the budget says, for adding or removing any one person with all of that person's records.
    Source: theory 5.1 to 5.3, 5.6, 5.7; Feldman & Zrnic (2021), Theorem 4.5, Algorithms 3, 7 and 8.
    """

    _loop: Loop | None = None
    _held: LedgerRun | None = None

    def __init__(  # noqa: PLR0913
        self,
        module: nn.Module,
        loss: Callable[..., Tensor],
        optimizer: torch.optim.Optimizer,
        budget: filters.Filter | PersonFilter | None = None,
        *,
        max_grad_norm: float,
        divisor: float,
        epsilon: float | None = None,
        delta: float | None = None,
        odometer: Boundary | None = None,
        steps: int | None = None,
        noise_multiplier: float | None = None,
        extra_steps: int = 0,
        individual: bool = True,
        spend_remainder: bool = True,
        pace: float = 1.0,
        sample_rate: float | None = None,
        refresh_every: int | None = None,
        slack: float = 1.1,
        batches: FixedBatches | None = None,
        noise: Correlation | None = None,
        memory: float | None = None,
        views: Views | None = None,
        group: "torch.distributed.ProcessGroup | Literal[True] | None" = None,
        seed: int | None = None,
    ) -> None:
        check_options(max_grad_norm=max_grad_norm, divisor=divisor, slack=slack, extra_steps=extra_steps, pace=pace)
        self._processes, self._seed, self._slack = Processes(group), seed, float(slack)
        self._refresh_every = refresh_interval(refresh_every, sample_rate)
        self._gradients = Gradients(module, loss, views=views, **({} if memory is None else {"memory": memory}))
        check_optimizer(optimizer, self._gradients.parameters)
        self._module, self._optimizer, self._caller_budget = module, optimizer, budget
        self._people = budget if isinstance(budget, PersonFilter) else None
        others = {"sample_rate": sample_rate, "extra_steps": extra_steps, "odometer": odometer, "group": group}
        plan = batch_plan(batches, noise, steps=steps, people=divisor, max_grad_norm=max_grad_norm, **others)
        chosen = settled_budget(
            budget,
            epsilon=epsilon,
            delta=delta,
            steps=steps,
            noise_multiplier=noise_multiplier,
            max_grad_norm=max_grad_norm,
            sample_rate=sample_rate,
            individual=individual,
            with_odometer=odometer is not None,
            plan=plan,
        )
        self._settings = Settings(
            budget=chosen.budget,
            odometer=settled_odometer(odometer, individual=individual),
            why=chosen.why,
            max_grad_norm=float(max_grad_norm),
            divisor=float(divisor) / (1 if plan is None else plan.count),
            batches=plan,
            noise_multiplier=chosen.noise_multiplier,
            steps=steps,
            last_step=None if steps is None else steps + (extra_steps if individual else 0),
            individual=individual,
            spend_remainder=spend_remainder,
            pace=float(pace),
            sample_rate=sample_rate,
            seeded=seed is not None,
        )

    @property
    def module(self) -> nn.Module:
        """The module that is trained, in place."""
        return self._module

    @property
    def noise_multiplier(self) -> float:
        """The noise on a sum, as a multiple of the clip. Public."""
        return self._settings.noise_multiplier

    def fit(
        self,
        inputs: Any,
        targets: Any = None,
        people: Any = None,
        *,
        callbacks: Iterable[Callback] = (),
        counting: Counting | None = None,
        losses: Losses | None = None,
        shares: Any = None,
        checkpoint: str | Path | None = None,
        checkpoint_every: int | None = None,
        resume: bool = False,
        ledger: OnLedger | None = None,
        ids: Sequence[object] | None = None,
    ) -> CallbackView:
        """Train.

        Args:
            inputs: private. (records, ...) tensor, several in a list, or a dict of them by name; arrays of NumPy, or
                tables of pandas. Or a map-style data set, or a DataLoader of one, whose records are loaded as they are
                needed: (input, ..., target), or a dict with the target as ``labels``.
            targets: (records, ...) tensor or array, private; None: they are in the records of the data set.
            people: (records,) private: whose each record is; None: each is a person. Ids of any kind, which get
                accounts in the order in which they appear; whole numbers from 0 with few gaps are accounts' numbers.
            callbacks: each is called with the run (a ``CallbackView``) before the first step and after every step. A
                resumed run does not call them again for a step that they have seen. One that has a method ``began`` is
                told, with the run, before anything else, also of a resumed run; one that has ``ended``, when it is
                over, however it ends.
            counting: stands in front of the accounts, e.g. ``lambda people: Dropouts(people, Tree(...))``.
            losses: private, fresh: filled with each person's steps, for epsilons that are computed afterwards. Its
                ``least`` is at most the noise multiplier.
            shares: (n,) private, in (0, 1]: the part of the budget that each person may spend; see
                ``individual.Filter``. Not with accounts of the caller's, which have their own.
            checkpoint: a folder, private: written before anything is released, so that a killed run can be resumed.
            checkpoint_every: steps between two checkpoints; None: as often as writing them takes less than a twentieth
                of the time. One is written in any case when the run ends, also by Ctrl-C, by SIGTERM or by an error.
            resume: go on from the folder, with the same records in the same order and the same budget. Each person is
                first charged for what may have been released since its last checkpoint.
            ledger: the accounts that other trainings and questions charge too; see ``training.OnLedger``.
            ids: private: who each person is on the ledger, in the order of the numbers in ``people``.

        Returns:
            The finished run. The module is trained in place.

        Raises:
            Errors in arguments or in the module are raised before anything is charged.
        """
        if self._loop is not None:
            raise ArgumentError("this trainer has trained already: another run needs another trainer and budget")
        if checkpoint_every is not None:
            _check.whole(1, checkpoint_every=checkpoint_every)
        callbacks = checked_callbacks(callbacks)
        self._refuse_on_ledger(ledger, shares)
        records = self._records(inputs, targets, people, rows=any(each is not None for each in (losses, shares, ids)))
        check_losses(losses, records.person_count, self._settings)
        check_first_step(self._settings, self._people)
        # noise is drawn from generators made now, not with the trainer: processes forked since share nothing
        chosen = self._contributions(records)
        self._gradients.prepare(records.inputs, records.targets)
        with Interruptions(checkpoint is not None or ledger is not None) as interruptions, ExitStack() as stack:
            folder = None if checkpoint is None else stack.enter_context(closing(Checkpoint(checkpoint, resume=resume)))
            loaded = None if folder is None else folder.load()
            budget, begun = self._settings.budget, loaded is not None
            on = reserve_on_ledger(ledger, ids, budget, records.person_count, folder=folder, begun=begun)
            self._held = None if on is None else stack.enter_context(on)
            accounts = accounts_of_run(
                self._settings,
                records.person_count,
                given=self._people,
                losses=losses,
                shares=shares,
                saved=loaded and loaded[0],
                held=self._held,
                before=interruptions.wait,
            )
            if loaded is None and self._held is None and isinstance(self._caller_budget, filters.Filter):
                self._caller_budget.hand_over("Trainer.fit")
            loop = self._loop = self._looped(records, chosen, accounts, folder, loaded, interruptions)
            self._processes.broadcast_module(self._module)
            if counting is not None:
                loop.count_with(counting)
            loop.tell(callbacks, stack)
            loop.train(callbacks, save_every=checkpoint_every)
            if self._held is not None:
                self._held.settle(self.card(delta=self._held.delta), list(self._module.parameters()))
        return loop.run

    def _looped(
        self,
        records: Records,
        chosen: FullBatch | Poisson | BatchContributions,
        accounts: TrainingAccounts,
        folder: Checkpoint | None,
        loaded: tuple[dict[str, Any], list[Announced]] | None,
        interruptions: Interruptions,
    ) -> Loop:
        """The run, where its checkpoint was, if there is one."""
        loop = Loop(
            settings=self._settings,
            module=self._module,
            optimizer=self._optimizer,
            gradients=self._gradients,
            contributions=chosen,
            records=records,
            accounts=accounts,
            processes=self._processes,
            noise=noise_generator(self._gradients.parameters[0].device, self._seed),
            checkpoint=folder,
            interruptions=interruptions,
        )
        if loaded is not None:
            loop.restore(*loaded)
        return loop

    def _refuse_on_ledger(self, ledger: OnLedger | None, shares: object) -> None:
        if ledger is not None:
            kinds = {"individual=False": not self._settings.individual, "group=": not self._processes.single}
            kinds |= {"odometer= without a budget": self._settings.budget is None, "shares=": shares is not None}
            ledger.refuse(seed=self._seed, budget=self._people, **kinds)

    def _records(self, inputs: Any, targets: Any, people: Any, *, rows: bool) -> Records:
        rows, dtype = rows or self._people is not None, self._gradients.parameters[0].dtype
        least = 0 if self._people is None else len(self._people.spent())
        return checked_records(inputs, targets, people, dtype=dtype, at_least=least, rows=rows)

    def _contributions(self, records: Records) -> FullBatch | Poisson | BatchContributions:
        how = {"refresh_every": self._refresh_every, "slack": self._slack, "seed": self._seed}
        return contributions(self._settings, records, self._gradients, **how)  # type: ignore[arg-type]

    @property
    def holder_report(self) -> HolderReport:
        """Each person's share of the budget over the run. PRIVATE: for the data holder."""
        return self._trained().shares.report()

    def shares(self) -> NDArray[np.float64]:
        """(n,) the share of each person's budget that is used. PRIVATE: for the data holder."""
        return self._trained().shares.shares()

    @property
    def accounts(self) -> PersonFilter | Everybody:
        """The accounts after the run. PRIVATE: for the data holder."""
        people = self._trained().accounts.people
        if isinstance(people, WithoutBudget):
            raise ArgumentError("accounts: this run has no budget; read trainer.odometer")
        return people

    @property
    def odometer(self) -> PersonOdometer | Boundary:
        """The running bounds of this run, up to date. With individual accounts PRIVATE, one for each person."""
        odometer = self._trained().accounts.odometer
        if odometer is None:
            raise ArgumentError("odometer: this trainer was made without odometer=")
        return odometer

    def statement(self, person: Hashable, *, delta: float | None = None) -> BudgetStatement | Statement:
        """One person's statement. PRIVATE: to be disclosed to this person alone.

        Args:
            person: the person's id or number in ``people``, or the number of the record.
            delta: public, in (0, 1), for budgets that have none of their own.

        Returns:
            With an odometer, the person's own running bound; else the share of the person's budget that is used.
        """
        odometer = self._trained().accounts.odometer
        row = self._trained().row_of(person)
        if isinstance(odometer, PersonOdometer):
            return odometer.statement(row)
        if not isinstance(self.accounts, PersonFilter):
            raise ArgumentError("statement: individual=False: all are charged the same; the card says what")
        return self.accounts.statement(row, delta=delta)

    def card(self, *, delta: float | None = None) -> Card:
        """The promise about the trained module, and its price. Public.

        Args:
            delta: in (0, 1), for budgets that have no delta of their own.
        """
        loop, settings = self._trained(), self._settings
        state = loop.run.state
        return build_card(
            settings.budget or worst_case(settings.odometer, state.released),
            delta=delta,
            why=settings.why,
            individual=settings.individual,
            spend_remainder=settings.individual and settings.spend_remainder and settings.sample_rate is None,
            pace=settings.pace if settings.individual and settings.sample_rate is None else 0.0,
            sample_rate=settings.sample_rate,
            sigma=settings.noise_multiplier * settings.max_grad_norm,
            noise_multiplier=settings.noise_multiplier,
            max_grad_norm=settings.max_grad_norm,
            steps=state.step,
            extra_steps=0,
            learning_rate=float(self._optimizer.param_groups[0]["lr"]),
            average=0.0,
            divisor=settings.divisor * (settings.sample_rate or 1.0),
            count_sigma=None,
            people_from="group" if loop.several_records else "record",
            classes_from="caller",
            reproducible=state.seeded,
            batches="" if settings.batches is None else settings.batches.describe(),
            record="" if self._held is None else self._held.record,
            released=tuple(state.released.items()),
        )

    def _trained(self) -> Loop:
        if self._loop is None:
            raise ArgumentError("nothing was trained yet: call fit first")
        return self._loop
