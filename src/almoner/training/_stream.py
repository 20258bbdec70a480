"""Training on people as they come: each update is a release, and only those who are in it pay.

Names and symbols
    C, z          clip (max_grad_norm) and noise multiplier; sigma = z C is the noise on a sum; public
    divisor       the fixed public number that the noisy sum of an update is divided by

Source: theory 5.1 to 5.3, 5.7; Feldman & Zrnic (2021), Algorithms 3 and 8
"""

from collections.abc import Callable, Hashable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, Self

import torch
from torch import Tensor, nn

from almoner import _check, filters
from almoner._uncopyable import OwnProcess, Uncopyable
from almoner.errors import ArgumentError, Unsupported
from almoner.individual import AccountsPerPerson, BudgetStatement, Statement
from almoner.individual import Filter as PersonFilter
from almoner.individual import Odometer as PersonOdometer
from almoner.mechanisms import Gaussian
from almoner.training._accounts.with_ids import numbered, opened
from almoner.training._card import Boundary, Card, build_card, worst_case
from almoner.training._on_ledger.run import OnLedger
from almoner.training._on_ledger.stream import LedgerStream, closed_after_errors
from almoner.training._records.datasets import as_records
from almoner.training._records.distributed import Processes, noise_generator
from almoner.training._records.records import Records
from almoner.training._run.arguments import accounts_with_ids, check_optimizer, settled_odometer, settled_stream
from almoner.training._run.contributions import FullBatch
from almoner.training._run.ending import Interruptions, Saves
from almoner.training._run.releases import Releaser, apply_gradients
from almoner.training._run.state import CurrentState, TrainingState
from almoner.training._run.stream_folder import StreamCheckpoint
from almoner.training.gradients import Gradients
from almoner.training.gradients._batches import check_batch
from almoner.training.gradients.augmentations import Views

__all__ = ["Stream"]


class Stream(Uncopyable):
    """Train a module on people as they come. Every update is released; only the people in it are charged.

    An account for each person pays off here: a person who is in three of two hundred updates pays for three.

    Args:
        module: public. A PyTorch module; see ``training.Gradients`` for what it may consist of.
        loss: public. One loss for each record: ``nn.CrossEntropyLoss(reduction="none")``.
        optimizer: public. Any optimizer of the module's parameters; it sees noisy gradients only.
        budget: public. A fresh filter: what each person may spend in all updates that there will ever be; nothing else
            can spend it after that. Or an ``individual.Filter`` with ids, private: accounts that other models of the
            same people share.
        epsilon, delta: public, in place of a budget.
        odometer: public. A fresh odometer: each person has a running bound on what this stream has cost so far, at any
            time; beside a budget, or in place of one. Then nobody is left out, and noise_multiplier must be given.
        max_grad_norm: public. The clip C on the L2 norm of each person's gradient in an update.
        divisor: public. How many people are expected in an update: a public number or a noisy count.
        updates: public. In how many updates a person can contribute a gradient of norm C. The noise follows from it.
            A person with smaller gradients can be in more updates; nobody has to be in so many.
        noise_multiplier: public. The noise on a sum is N(0, (z C)^2); in place of ``updates``.
        spend_remainder: public. Clip a gradient to what its person can still pay, rather than leave that person out.
        spread: public, >= 1. Keep enough for so many contributions of the same size, this one counted: a person's
            contributions shrink before the budget is spent. 1: each is up to C as long as anything is left.
        memory: public, bytes. See ``training.Gradients``.
        views: public. Several views of each record in each update; see ``training.augmentations``.
        checkpoint: a folder, private: the stream goes on from it after a crash or in another process.
        resume: go on from the folder.
        ledger: the accounts that questions and trainings charge too, in place of a budget; see ``training.OnLedger``.
            People are named as there.
        seed: public. Repeats a run on the same machine with the same versions: NOT private.

    Guarantee: the parameters after every update are together as private as the budget says, for adding or removing any
        one person with all of that person's records in all updates. Who is in an update, and which records come, may
        depend on earlier results, if each person's records depend on nothing of anybody else's but these results. With
        an odometer the bound of each person is what its theorem says, at every time.
    Source: theory 5.1 to 5.3, 5.7, 6.8; Feldman & Zrnic (2021), Theorem 4.5 and Algorithm 6.
    """

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
        updates: int | None = None,
        noise_multiplier: float | None = None,
        spend_remainder: bool = True,
        spread: int = 1,
        memory: float | None = None,
        views: Views | None = None,
        checkpoint: str | Path | None = None,
        resume: bool = False,
        ledger: OnLedger | None = None,
        seed: int | None = None,
    ) -> None:
        _check.positive(divisor=divisor)
        _check.whole(1, spread=spread)
        self._gradients = Gradients(module, loss, views=views, **({} if memory is None else {"memory": memory}))
        check_optimizer(optimizer, self._gradients.parameters)
        self._module, self._optimizer = module, optimizer
        own: dict[str, Any] = {"epsilon": epsilon, "delta": delta}
        self._boundary = settled_odometer(odometer, individual=True)
        self._odometer = None if self._boundary is None else PersonOdometer([], self._boundary)
        refused = {"budget": budget, "seed": seed, "odometer": odometer}
        self._ledger = None if ledger is None else LedgerStream(ledger, **refused, **own)
        noise: dict[str, Any] = {"updates": updates, "noise_multiplier": noise_multiplier}
        noise["max_grad_norm"] = max_grad_norm
        self._budget: filters.Filter | None
        with closed_after_errors(self._ledger):
            if self._ledger is not None:
                self._why, self._multiplier = settled_stream(self._ledger.whole, **noise)[1:]
                self._budget, self._own = self._ledger.budget, None
            else:
                bounded = self._boundary is not None
                self._budget, self._why, self._multiplier = settled_stream(budget, **own, **noise, bounded=bounded)
                self._own = None if self._budget is None else accounts_with_ids(budget, self._budget)
            self._clip, self._divisor = float(max_grad_norm), float(divisor)
            self._contributions = FullBatch(spend_remainder=spend_remainder, pace=1.0 if spread > 1 else 0.0)
            self._spend_remainder, self._spread = spend_remainder, int(spread)
            state = TrainingState(
                max_grad_norm=self._clip,
                noise_multiplier=self._multiplier,
                sample_rate=None,
                seeded=seed is not None,
            )
            self._current = CurrentState(state)
            self._refuse_unpriced()
            self._process = OwnProcess()
            self._noise = noise_generator(self._gradients.parameters[0].device, seed)
            self._folder: StreamCheckpoint | None = None
            self._begin(checkpoint, resume=resume, budget=budget)

    def _refuse_unpriced(self) -> None:
        """Refuse a budget or an odometer that has no price for an update."""
        if self._own is not None:
            self._own.check(self._step)
        if self._odometer is not None:
            self._odometer.check(self._step)

    def _begin(
        self, checkpoint: str | Path | None, *, resume: bool, budget: filters.Filter | PersonFilter | None
    ) -> None:
        """Open the folder, begin the stream on its ledger, and take over the budget."""
        fresh = budget if isinstance(budget, filters.Filter) and not resume else None
        if fresh is not None:
            fresh.refuse_if_given()  # before a folder is made
        if checkpoint is not None:
            self._open(checkpoint, resume=resume, own_accounts=not isinstance(budget, PersonFilter))
        elif self._ledger is not None:
            self._ledger.begin(self._settings(), None, 0)
        if fresh is not None:
            fresh.hand_over("training.Stream")

    @property
    def module(self) -> nn.Module:
        """The module that is trained, in place."""
        return self._module

    @property
    def noise_multiplier(self) -> float:
        """The noise on a sum, as a multiple of the clip. Public."""
        return self._multiplier

    @property
    def number(self) -> int:
        """The number of updates that were released. Public."""
        return self._current.value.step

    @property
    def accounts(self) -> PersonFilter:
        """Everybody's accounts. PRIVATE: for the data holder.

        Raises:
            Unsupported: the stream is on a ledger, which has the accounts, or has no budget.
        """
        if self._ledger is not None:
            raise Unsupported("accounts: those of a stream on a ledger are the ledger's; see Ledger.spent")
        if self._own is None:
            raise Unsupported("accounts: this stream has no budget; read its odometer")
        return self._own

    @property
    def odometer(self) -> PersonOdometer:
        """Everybody's running bound, up to date; of this stream alone. PRIVATE: for the data holder."""
        if self._odometer is None:
            raise ArgumentError("odometer: this stream was made without odometer=")
        return self._odometer

    def update(self, inputs: Any, targets: Any, people: object, *, divisor: float | None = None) -> int:
        """Take one step on the people who are there, and release the model.

        Args:
            inputs: private, as for ``Trainer.fit``; there may be no records.
            targets: (records, ...) tensor or array, private; None: they are in the records of the data set.
            people: (records,) private: an id for each record, that stays with the person in all updates: whole numbers,
                texts, or anything hashable. All records of a person in this update count as one contribution.
            divisor: public. How many people were expected in this update; default that of the stream.

        Returns:
            The number of this update, public.

        Raises:
            Errors in arguments or in the module are raised before anything is charged.
        """
        self._process.check("this Stream")
        inputs, targets = as_records(inputs, targets, self._gradients.parameters[0].dtype)
        count = check_batch(inputs, targets, None)
        divisor = self._divisor if divisor is None else float(divisor)
        _check.positive(divisor=divisor)
        ids, rows = numbered(people, count)
        if count and not self._gradients.ready(count):
            self._gradients.prepare(inputs, targets)
        records = Records(inputs, targets, rows)

        def charge_and_sum(accounts: AccountsPerPerson) -> list[Tensor]:
            if not ids:
                return [torch.zeros_like(each, dtype=torch.float64) for each in self._gradients.parameters]
            spread = self._spread if self._ledger is None else 1  # a ledger's accounts have one part of what is left
            return self._contributions.charge_and_sum(self._gradients, records, accounts, self._step, spread)

        folder = (
            self._folder if self._ledger is None else None
        )  # on a ledger, the folder and the ledger agree as they are
        save = None if folder is None else partial(self._save, folder)
        with Interruptions(self._folder or self._ledger) as until, Saves(save, every=1, interruptions=until):
            self._apply(self._released(ids, charge_and_sum, divisor, until), divisor)
        return self.number

    def _released(
        self,
        ids: Sequence[Hashable],
        charge_and_sum: Callable[[AccountsPerPerson], list[Tensor]],
        divisor: float,
        until: Interruptions,
    ) -> list[Tensor]:
        """The noisy sums of an update, once the people who are there have been charged for them."""
        folder = self._folder
        if self._ledger is not None:

            def keep(number: int, noisy: list[Tensor]) -> None:
                if folder is not None:
                    folder.keep(number, noisy, divisor)

            def add_noise(sums: Sequence[Tensor]) -> list[Tensor]:
                until.wait()
                return Processes().noisy_total(sums, self._step.sigma, self._noise)

            spread = self._spread if self._spend_remainder else 1
            return self._ledger.release(self._step, ids, charge_and_sum, add_noise, spread=spread, keep=keep)
        announced = None if folder is None else folder.announcing(ids)
        accounts = opened(self._own, ids, self._odometer, until.wait)
        releases = Releaser(
            current=self._current,
            processes=Processes(),
            noise=self._noise,
            checkpoint=announced,
            before=until.wait,
        )
        return releases.release(self._step, lambda: charge_and_sum(accounts), check=accounts.check)

    def _apply(self, noisy: Sequence[Tensor], divisor: float) -> None:
        """Take the step of an update that was released, and save."""
        if self._ledger is not None:
            self._current.add_release(self._step)
        apply_gradients(self._optimizer, self._gradients.parameters, noisy, divisor)
        self._current.update(step=self._current.value.step + 1)
        if self._folder is not None:
            self._save(self._folder)

    def _save(self, folder: StreamCheckpoint) -> None:
        folder.save(self._current.value, self._module, self._optimizer, self._own, self._odometer)

    @property
    def _step(self) -> Gaussian:
        return Gaussian(self._multiplier * self._clip, self._clip)

    def statement(self, person: Hashable, *, delta: float | None = None) -> BudgetStatement | Statement:
        """One person's statement. PRIVATE: to be disclosed to this person alone.

        Args:
            person: the person's id.
            delta: public, in (0, 1), for budgets that have none of their own.

        Returns:
            With an odometer, the person's own running bound; else the share of the person's budget that is used.
        """
        if self._odometer is not None:
            return self._odometer.statement(person)
        if self._ledger is not None:
            return self._ledger.statement(person, delta=delta)
        return self.accounts.statement(person, delta=delta)

    def card(self, *, delta: float | None = None) -> Card:
        """The promise about the module after every update, and its price. Public."""
        state = self._current.value
        return build_card(
            self._budget or worst_case(self._boundary, state.released),
            delta=delta,
            why=self._why,
            individual=True,
            spend_remainder=self._spend_remainder,
            sample_rate=None,
            streamed=True,
            sigma=self._multiplier * self._clip,
            noise_multiplier=self._multiplier,
            max_grad_norm=self._clip,
            steps=state.step,
            extra_steps=0,
            learning_rate=float(self._optimizer.param_groups[0]["lr"]),
            average=0.0,
            divisor=self._divisor,
            count_sigma=None,
            record="" if self._ledger is None else self._ledger.record,
            people_from="group",
            classes_from="caller",
            reproducible=state.seeded,
            released=tuple(state.released.items()),
        )

    def _open(self, folder: str | Path, *, resume: bool, own_accounts: bool) -> None:
        """Go on from a folder, or begin one."""
        if not own_accounts:
            raise Unsupported("checkpoint: give the budget as a filter; the accounts are in the checkpoint")
        self._folder = StreamCheckpoint(folder, self._settings(), resume=resume)
        try:
            own = None if self._ledger else self._budget
            restored = self._folder.restore(self._module, self._optimizer, own, self._boundary)
            if restored is not None:
                state, self._own, self._odometer = restored
                self._current.value = replace(state, seeded=state.seeded or self._current.value.seeded)
            self._save(self._folder)
            kept = None if self._ledger is None else self._ledger.begin(self._settings(), self._folder, self.number)
            if kept is not None:
                self._apply(*kept)
        except BaseException:
            self._folder.close()
            raise

    def _settings(self) -> dict[str, Any]:
        """The settings that a stream goes on with and its ledger's record repeats. Public."""
        return {
            "ledger": None if self._ledger is None else self._ledger.on.key,
            "max_grad_norm": self._clip,
            "noise_multiplier": self._multiplier,
            "spend_remainder": self._spend_remainder,
            "spread": self._spread,
            "optimizer": type(self._optimizer).__name__,
        }

    def close(self) -> None:
        """Release the folder, and a ledger that was opened here; the stream goes on with ``resume=True``."""
        if self._folder is not None:
            self._folder.close()
        if self._ledger is not None:
            self._ledger.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
