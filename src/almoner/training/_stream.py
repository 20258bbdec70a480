"""Training on people as they come: each update is a release, and only those who are in it pay.

Names and symbols
    C, z          clip (max_grad_norm) and noise multiplier; sigma = z C is the noise on a sum; public
    divisor       the public number that the noisy sum of an update is divided by

Source: theory 5.1 to 5.3, 5.7; Feldman & Zrnic (2021), Algorithms 3 and 8
"""

from collections.abc import Callable, Hashable
from contextlib import AbstractContextManager, ExitStack
from pathlib import Path
from typing import Any, cast

import torch
from torch import Tensor, nn

from almoner import _check, filters
from almoner._uncopyable import OwnProcess, Uncopyable
from almoner.errors import ArgumentError, Unsupported
from almoner.individual import BudgetStatement, Statement
from almoner.individual import Filter as PersonFilter
from almoner.individual import Odometer as PersonOdometer
from almoner.training._accounts import Everybody, ids_and_rows
from almoner.training._card import Boundary, Card
from almoner.training._on_ledger import LedgerStream, OnLedger
from almoner.training._records import Records, as_records
from almoner.training._run.books import Bounds, LedgerBook, MemoryBook
from almoner.training._run.folder import Folder, RunFolder
from almoner.training._run.models import OfModule, Processes, TorchModel, check_optimizer, noise_generator
from almoner.training._run.run import Interruptions, Run, Saves
from almoner.training._run.samplings import Beginning, FullBatch, Sampling, Turnout, checked_sampling
from almoner.training._run.settings import RENAMED, Compute, Settings, Target, Watched, picked, watched
from almoner.training.correlated._kinds import FixedBatches
from almoner.training.gradients import Gradients
from almoner.training.gradients._batches import check_batch


class Stream(OfModule, Uncopyable, AbstractContextManager["Stream"]):
    """Train a module on people as they come. Every update is released; only the people in it are charged.

    An account for each person pays off here: a person who is in three of two hundred updates pays for three.

    Args:
        module, loss, optimizer: public. As of ``Trainer``.
        budget: public. A fresh filter: what each person may spend in all updates that there will ever be; nothing else
            can spend it after that. Or ``Target(epsilon, delta)``. Or a fresh odometer: each person has a running bound
            on what this stream has cost so far, and nobody is left out; noise_multiplier must be given. Or an
            ``individual.Filter`` with ids, private: accounts that other models of the same people share. Or
            ``OnLedger(ledger, key)``: the accounts that questions and trainings charge too.
        max_grad_norm: public. The clip C on the L2 norm of each person's gradient in an update.
        updates: public. In how many updates a person can contribute a gradient of norm C. The noise follows from it.
            A person with smaller gradients can be in more updates; nobody has to be in so many.
        noise_multiplier: public. The noise on a sum is N(0, (z C)^2); in place of ``updates``.
        sampling: public. ``FullBatch(spend_remainder=, spread=)``: everybody who is there; or a ``Sampling`` of yours.
        watch: public. A fresh odometer beside the budget: each person's running bound at any time.
        folder: private: a path, or ``RunFolder(path, resume=True)``: the stream goes on from it after a crash or in
            another process. It is saved after every update.
        compute, seed: public. As of ``Trainer``, but for processes: ``Compute(views=, memory=)``.

    Guarantee: the parameters after every update are together as private as the budget says, for adding or removing any
        one person with all of that person's records in all updates. Who is in an update, and which records come, may
        depend on earlier results, if each person's records depend on nothing of anybody else's but these results. With
        an odometer the bound of each person is what its theorem says, at every time.
    Source: theory 5.1 to 5.3, 5.7, 6.8; Feldman & Zrnic (2021), Theorem 4.5 and Algorithm 6.
    """

    _divisor = 1.0

    @_check.renamed(RENAMED | {"divisor": "stream.update(inputs, targets, people, divisor=100)"})
    def __init__(
        self,
        module: nn.Module,
        loss: Callable[..., Tensor],
        optimizer: torch.optim.Optimizer,
        budget: filters.Filter | Target | PersonFilter | Boundary | OnLedger,
        *,
        max_grad_norm: float,
        updates: int | None = None,
        noise_multiplier: float | None = None,
        sampling: Sampling | None = None,
        watch: Any = None,
        folder: str | Path | RunFolder | None = None,
        compute: Compute | None = None,
        seed: int | None = None,
    ) -> None:
        sampling, compute, beside = sampling or FullBatch(), compute or Compute(), watched(watch)
        _check_for_stream(sampling, compute, beside)
        kept = RunFolder.of(folder)
        self._gradients = Gradients(module, loss, views=compute.views, memory=compute.memory)
        if self._gradients.shards:
            raise Unsupported("module: a stream is trained by one process: give it a module that is in no parts")
        check_optimizer(optimizer, self._gradients.parameters)
        if callable(optimizer):
            raise Unsupported(f"optimizer={type(optimizer).__name__} wants to know its run: it is for training.Trainer")
        if not isinstance(budget, Boundary) and (updates is None) == (noise_multiplier is None):
            raise ArgumentError("give either updates= or noise_multiplier=")
        self._module, self._optimizer, self._given = module, optimizer, budget
        on = budget if isinstance(budget, OnLedger) else None
        self._ledger = None if on is None else LedgerStream(on, seed=seed)
        with ExitStack() as failed:  # a ledger that was opened for a stream that does not come to be is closed
            failed.callback(lambda: None if self._ledger is None else self._ledger.close())
            whole = budget if self._ledger is None else self._ledger.whole
            how: dict[str, Any] = {"noise_multiplier": noise_multiplier, "max_grad_norm": max_grad_norm}
            chosen = picked(whole, steps=updates or 1, **how)
            self._settings = Settings(
                **(chosen if self._ledger is None else chosen._replace(budget=self._ledger.budget))._asdict(),
                max_grad_norm=float(max_grad_norm),
                divisor=1.0,
                steps=updates,
                sampling=sampling,
                seeded=seed is not None,
            )
            if beside.odometer is not None and chosen.odometer is not None:
                raise ArgumentError("watch: the budget is an odometer already")
            self._step, self._process = self._settings.first_step(), OwnProcess()
            self._run = self._built(beside.odometer or chosen.odometer, seed)
            self._run.book.check(self._step)
            self._begin(kept)
            failed.pop_all()

    def _built(self, odometer: Boundary | None, seed: int | None) -> Run:
        settings, given = self._settings, self._given
        sampling = settings.sampling.begin(Beginning(clip=settings.max_grad_norm, seed=seed))
        current, generator = settings.current(), noise_generator(self._gradients.parameters[0].device, seed)
        observers = [] if odometer is None else [Bounds(odometer, [])]

        def draw(sums: list[Any], sigma: float, _rows: None) -> list[Any]:
            return Processes().noisy_total(sums, sigma, generator)

        book: LedgerBook | MemoryBook
        self._spread = sampling.spread if isinstance(sampling, FullBatch) else 1
        if self._ledger is not None:
            remainder = not isinstance(sampling, FullBatch) or sampling.spend_remainder
            # a ledger's accounts have one part of what is left already
            spread, self._spread = self._spread if remainder else 1, 1
            book = LedgerBook(self._ledger, current, draw, observers=observers, spread=spread)
        else:
            fresh = None if settings.budget is None else settings.budget.fresh()
            accounts: Any = PersonFilter([], fresh) if fresh else Everybody(0, None)
            if isinstance(given, PersonFilter):
                given.missing([])  # refuses accounts that are rows
                accounts = given
            book = MemoryBook(accounts, current, draw, observers=observers, by_id=True)
        model = TorchModel(self._gradients, self._module, self._optimizer, None, seed)
        return Run(model, sampling, book, current, fixed=self._described())

    def _begin(self, kept: RunFolder | None) -> None:
        given, run = self._given, self._run
        fresh = given if isinstance(given, filters.Filter) else None
        if fresh is not None and not (kept and kept.resume):
            fresh.refuse_if_given()  # before a folder is made
        if kept is not None and isinstance(given, PersonFilter):
            raise Unsupported("folder: give the budget as a filter; the accounts are in the folder")
        if kept is not None:
            run.folder = Folder(kept.path, "Stream", resume=kept.resume)
            run.book.folder = run.folder
        try:
            loaded = None if run.folder is None else run.folder.load()
            if loaded is not None:
                self._divisor = loaded[0].get("divisor", 1.0)
                run.resume(*loaded)
            elif fresh is not None:
                fresh.refuse_if_given()
            elif self._ledger is not None:
                self._ledger.refuse_used_key()
            run.save()
            if self._ledger is not None:
                update = self._ledger.begin(self._described(), run.folder, self.number)
                if update is not None:
                    self._keep_divisor(update["divisor"])
                    run.follow_kept(update, self._step)
        except BaseException:
            if run.folder is not None:
                run.folder.close()
            raise
        if fresh is not None and loaded is None:
            fresh.hand_over("training.Stream")

    def _keep_divisor(self, divisor: float) -> None:
        self._divisor = self._run.more["divisor"] = divisor

    @property
    def number(self) -> int:
        """The number of updates that were released. Public."""
        return self._run.current.value.step

    @property
    def accounts(self) -> PersonFilter:
        """Everybody's accounts. PRIVATE: for the data holder; Unsupported: a ledger has them, or nobody a budget."""
        if self._ledger is not None:
            raise Unsupported("accounts: those of a stream on a ledger are the ledger's; see Ledger.spent")
        if self._settings.budget is None:
            raise Unsupported("accounts: this stream has no budget; read its odometer")
        return cast(PersonFilter, self._run.book.accounts)

    @property
    def odometer(self) -> PersonOdometer:
        """Everybody's running bound, up to date; of this stream alone. PRIVATE: for the data holder."""
        odometer: PersonOdometer | None = self._run.book.odometer()
        if odometer is None:
            raise ArgumentError("odometer: this stream has none, neither as its budget nor in watch=")
        return odometer

    def update(self, inputs: Any, targets: Any, people: object, *, divisor: float, key: str | None = None) -> int:
        """Take one step on the people who are there, and release the model.

        Args:
            inputs: private, as for ``Trainer.fit``; there may be no records.
            targets: (records, ...) tensor or array, private; None: they are in the records of the data set.
            people: (records,) private: an id for each record, that stays with the person in all updates: whole numbers,
                texts, or anything hashable. All records of a person in this update count as one contribution.
            divisor: public. How many people were expected in this update: a public number or a noisy count.
            key: public. A name for the update, such as its day: with one that was made already nothing is done, and
                nobody pays. So a job that may have failed can be run again.

        Returns:
            The number of this update, public.

        Raises:
            Errors in arguments or in the module are raised before anything is charged.
        """
        self._process.check("this Stream")
        _check.given(_check.name, key=key)
        if key in self._run.keys:
            return self._run.keys[key]
        inputs, targets = as_records(inputs, targets, self._gradients.parameters[0].dtype)
        count = check_batch(inputs, targets, None)
        _check.positive(divisor=divisor)
        ids, rows = ids_and_rows(people, count)
        if count and not self._gradients.ready(count):
            self._gradients.prepare(inputs, targets)
        run, divisor = self._run, float(divisor)
        records = Records(inputs, targets, torch.tensor(rows, dtype=torch.int64))
        turnout = Turnout(records, len(ids), ids, left=self._spread, divisor=divisor, key=key)
        # on a ledger, the folder and the ledger agree as they are
        save = run.save if run.folder is not None and self._ledger is None else None
        with Interruptions(run.folder or self._ledger) as until, Saves(save, every=1, interruptions=until):
            run.book.before = until.wait
            run.take(turnout, self._step)
            self._keep_divisor(divisor)
            run.save()
        return self.number

    def statement(self, person: Hashable, *, delta: float | None = None) -> BudgetStatement | Statement:
        """One person's statement, by id, at a delta for budgets without one. PRIVATE: for this person alone.

        With an odometer it is the person's own running bound; else the share of the person's budget that is used.
        """
        if self._run.book.odometer() is not None:
            return self.odometer.statement(person)
        if self._ledger is not None:
            return self._ledger.statement(person, delta=delta)
        return self.accounts.statement(person, delta=delta)

    def card(self, *, delta: float | None = None) -> Card:
        """The promise about the module after every update, and its price. Public."""
        how: dict[str, Any] = {"streamed": True, "pace": 0.0, "divisor": self._divisor}
        card = self._card(self._run.current.value, delta, **how)
        return card if self._ledger is None else self._ledger.on_card(card)

    def _described(self) -> dict[str, Any]:
        """The settings that a stream goes on with and its ledger's record repeats. Public."""
        settings, sampling = self._settings, self._settings.sampling
        how = sampling.described()
        if isinstance(sampling, FullBatch):
            how = {"spend_remainder": sampling.spend_remainder, "spread": sampling.spread}
        return {
            "ledger": None if self._ledger is None else self._ledger.on.key,
            "max_grad_norm": settings.max_grad_norm,
            "noise_multiplier": settings.noise_multiplier,
            **how,
            "optimizer": type(self._optimizer).__name__,
        }

    def close(self) -> None:
        """Release the folder, and a ledger that was opened here; the stream goes on with ``resume=True``."""
        if self._run.folder is not None:
            self._run.folder.close()
        if self._ledger is not None:
            self._ledger.close()

    def __exit__(self, *_: object) -> None:
        self.close()


def _check_for_stream(sampling: Sampling | FixedBatches, compute: Compute, beside: Watched) -> None:
    if not isinstance(sampling, FixedBatches):
        checked_sampling(sampling)
    everybody = isinstance(sampling, Sampling) and sampling.rate is None and not sampling.own_samples
    if not everybody or sampling.extra_steps or getattr(sampling, "slots", 0):
        raise Unsupported(f"sampling={sampling!r}: a stream takes all who are there: sampling=training.FullBatch()")
    if isinstance(sampling, FullBatch) and sampling.pace != 1:
        raise Unsupported("sampling: a stream has no last step to pace for: training.FullBatch(spread=4)")
    if compute.group is not None:
        raise Unsupported("compute: a stream is trained by one process: training.Compute(views=, memory=)")
    if beside.losses is not None or beside.counting is not None:
        raise Unsupported("watch: a stream is watched by an odometer alone")
