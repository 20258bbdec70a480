"""Training a PyTorch module with a privacy account for every person: gradient descent and DP-SGD.

Names and symbols
    C, z, q       clip (max_grad_norm), noise multiplier, sample rate; sigma = z C is the noise on a sum; public
    divisor       the fixed public number that noisy sums are divided by, times q when people are sampled

Source: theory.md statements 5.1 to 5.3, 5.6 and 5.7; Feldman & Zrnic (2021), Algorithms 3, 7 and 8
"""

import secrets
from collections.abc import Callable, Hashable, Iterable, Iterator
from contextlib import AbstractContextManager, ExitStack, closing, nullcontext
from pathlib import Path
from typing import Any, Unpack, cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from almoner import _check, filters
from almoner.errors import ArgumentError, DataError, Unsupported
from almoner.individual import BudgetStatement, Statement
from almoner.individual import Filter as PersonFilter
from almoner.individual import Odometer as PersonOdometer
from almoner.training._accounts import Everybody, HolderReport, ShareHistory
from almoner.training._card import Boundary, Card
from almoner.training._on_ledger import LedgerRun, OnLedger, reserve_on_ledger
from almoner.training._records import PublicBatches, PublicRecords, Records, as_records, as_rows
from almoner.training._run.books import Bounds, Counts, MemoryBook
from almoner.training._run.callback_view import CallbackView, Questions, put_in_front
from almoner.training._run.fixed_batches import BatchContributions, batch_plan, noise_for
from almoner.training._run.folder import Folder, RunFolder
from almoner.training._run.models import OfModule, Processes, TorchModel, check_optimizer, noise_generator
from almoner.training._run.run import Interruptions, Run, Saves
from almoner.training._run.samplings import Beginning, FullBatch, Sampling, Turnout, checked_sampling
from almoner.training._run.settings import (
    RENAMED,
    Compute,
    Passes,
    Settings,
    Target,
    Watched,
    check_shares,
    checked_callbacks,
    in_passes,
    picked,
    watched,
)
from almoner.training.correlated._kinds import FixedBatches
from almoner.training.gradients import Gradients
from almoner.training.gradients._batches import check_batch
from almoner.training.gradients._shards import whole

OWN_SAMPLES = (filters.RenyiOrder, filters.RenyiCurve, filters.Zcdp)  # bounds may use past samples: theory 5.6

Callback = Callable[[CallbackView], None]


class Trainer(OfModule):
    """Train a module so that no account exceeds the budget, whatever happens on the way.

    Args:
        module: public. A PyTorch module; see ``training.Gradients`` for what it may consist of.
        loss: public. One loss for each record: ``nn.CrossEntropyLoss(reduction="none")``.
        optimizer: public. Any optimizer of the module's parameters; it sees noisy gradients only.
        budget: public. A fresh filter: what each person may spend in this training; nothing else can spend it once
            ``fit`` began. Or ``Target(epsilon, delta)``: the best filter for the steps. Or a fresh odometer: running
            bounds and nobody is ever left out; steps and noise_multiplier must be given. Or an ``individual.Filter``,
            private: accounts that are in use already, which are charged. Or ``OnLedger(ledger, key, at_most=filter)``:
            the accounts that other trainings and questions charge too.
        max_grad_norm: public. The clip C on the L2 norm of each person's gradient.
        divisor: public. The fixed number of people that sums are divided by: a public number or a noisy count.
        steps: public. How many steps; None, without individual accounts: as many as the budget admits.
        noise_multiplier: public. The noise on a sum is N(0, (z C)^2); None: the least noise with which a person who
            contributes C in each of ``steps`` steps keeps within the budget.
        sampling: public. Who is in a step: ``FullBatch()``, everybody, by default; ``Poisson(rate)``, DP-SGD;
            ``FixedBatches(size, noise=)``, with correlated noise; or a ``Sampling`` of your own.
        individual: public. Whether each person is charged for their own contribution, or all for the worst case.
        compute: public. Views of records, memory and processes: ``Compute(views=, memory=, group=)``.
        seed: public. Repeats a run on one machine: NOT private. None: noise from a generator seeded by the system.
        batch_size: public, at most the divisor. So many people in a step on average, in place of ``sampling``:
            ``Poisson(batch_size / divisor)``.
        epochs: public. In so many steps each person is on average, in place of ``steps``, rounded up.

    Guarantee: the module's parameters after every step, and all answers to paid questions, are together as private as
        the budget says, for adding or removing any one person with all of that person's records.
    Source: theory 5.1 to 5.3, 5.6, 5.7; Feldman & Zrnic (2021), Theorem 4.5, Algorithms 3, 7 and 8.
    """

    _run: Run | None = None
    _held: LedgerRun | None = None
    _secret: int | None = None
    _public: PublicBatches | None = None

    @_check.renamed(RENAMED)
    def __init__(
        self,
        module: nn.Module,
        loss: Callable[..., Tensor],
        optimizer: torch.optim.Optimizer,
        budget: filters.Filter | Target | PersonFilter | Boundary | OnLedger,
        *,
        max_grad_norm: float,
        divisor: float,
        steps: int | None = None,
        noise_multiplier: float | None = None,
        sampling: Sampling | FixedBatches | None = None,
        individual: bool = True,
        compute: Compute | None = None,
        seed: int | None = None,
        **passes: Unpack[Passes],
    ) -> None:
        _check.positive(max_grad_norm=max_grad_norm, divisor=divisor)
        steps, sampling = in_passes(divisor, steps, sampling, **passes)
        sampling, compute = sampling or FullBatch(), compute or Compute()
        if not isinstance(sampling, FixedBatches):
            checked_sampling(sampling)
        self._seed, self._processes = seed, Processes(compute.group)
        self._gradients = Gradients(module, loss, views=compute.views, memory=compute.memory)
        self._processes.use(self._gradients.shards)
        check_optimizer(optimizer, self._gradients.parameters)
        self._module, self._optimizer, self._given = module, optimizer, budget
        self._people = budget if isinstance(budget, PersonFilter) else None
        self._ledger = budget if isinstance(budget, OnLedger) else None
        if self._ledger is not None:
            split = {"a module that parallelize_module has split": self._processes.copies}
            self._ledger.refuse(seed=seed, **{"individual=False": not individual} | split)
            self._ledger = self._ledger.of_process(self._processes.name)
            budget = self._ledger.whole()
        if self._people is not None and not individual:
            raise ArgumentError("budget: accounts per person need individual=True")
        noise, clip = noise_multiplier, float(max_grad_norm)
        if isinstance(sampling, FixedBatches):
            if isinstance(budget, Boundary):
                raise Unsupported("FixedBatches: an odometer is not done together with them")
            plan = batch_plan(sampling, steps=steps, people=divisor, max_grad_norm=clip)
            one = picked(budget, steps=1, noise_multiplier=noise, max_grad_norm=plan.together, individual=individual)
            chosen = noise_for(plan, one, given=noise, clip=clip)
        else:
            plan, how = None, {"sample_rate": sampling.rate, "individual": individual}
            chosen = picked(budget, steps=steps, noise_multiplier=noise, max_grad_norm=clip, **how)  # type: ignore[arg-type]
        self._settings = Settings(
            **chosen._asdict(),
            max_grad_norm=clip,
            divisor=float(divisor) / (1 if plan is None else plan.count),
            batches=plan,
            steps=steps,
            last_step=None if steps is None else steps + (sampling.extra_steps if individual else 0),
            individual=individual,
            sampling=sampling,
            seeded=seed is not None,
        )

    @_check.renamed(RENAMED)
    def fit(
        self,
        inputs: Any,
        targets: Any = None,
        people: Any = None,
        *,
        callbacks: Iterable[Callback] = (),
        watch: Any = None,
        shares: Any = None,
        folder: str | Path | RunFolder | None = None,
        public: PublicRecords | None = None,
    ) -> CallbackView:
        """Train.

        Args:
            inputs: private. (records, ...) tensor, several in a list, or a dict of them by name; arrays of NumPy, or
                tables of pandas. Or a map-style data set, or a DataLoader of one, whose records are loaded as they are
                needed: (input, ..., target), or a dict with the target as ``labels``.
            targets: (records, ...) tensor or array, private; None: they are in the records of the data set.
            people: (records,) private: whose each record is; None: each is a person. Ids of any kind, on a ledger as it
                names people; they get accounts as they appear; whole numbers from 0 with few gaps are their numbers.
            callbacks: each is called with the run (a ``CallbackView``) before the first step and after every step. A
                resumed run does not call them again for a step that they have seen. One that has a method ``began`` is
                told, with the run, before anything else, also of a resumed run; one that has ``ended``, at any end.
            watch: one or several. A fresh odometer, public: running bounds beside the budget, one for each person with
                individual accounts; see ``Trainer.odometer``. ``individual.Losses``, private, fresh: filled with each
                person's steps, for epsilons that are computed afterwards; its ``least`` is at most the noise
                multiplier. A function that puts accounts that count in front of the accounts:
                ``lambda people: Dropouts(people, Tree(...))``.
            shares: (n,) private, in (0, 1]: the part of the budget that each person may spend; see
                ``individual.Filter``. Not with accounts of the caller's, which have their own.
            folder: private: a path, or ``RunFolder(path, every=, resume=)``, from which a killed run can be resumed.
            public: records that nobody pays for, whose gradient is added to each step.

        Returns:
            The finished run. The module is trained in place.

        Raises:
            Errors in arguments or in the module are raised before anything is charged.
        """
        beside = dict[str, Any](callbacks=callbacks, watch=watch, shares=shares, folder=folder, public=public)
        for _ in self.steps(inputs, targets, people, **beside):
            pass
        return self._view

    def steps(
        self,
        inputs: Any,
        targets: Any = None,
        people: Any = None,
        *,
        callbacks: Iterable[Callback] = (),
        watch: Any = None,
        shares: Any = None,
        folder: str | Path | RunFolder | None = None,
        public: PublicRecords | None = None,
    ) -> Iterator[CallbackView]:
        """Train as ``fit`` does, for loops that are not ours: gives the run before the first step and after every one.

        The next step is taken when it is asked for; what there is is kept in the folder when the iterator is closed.
        """
        if self._run is not None:
            raise ArgumentError("this trainer has trained already: another run needs another trainer and budget")
        kept, watch, callbacks = RunFolder.of(folder), watched(watch), checked_callbacks(callbacks)
        if callable(self._optimizer):  # one that wants to know the run, as the others leave it
            callbacks = (*callbacks, self._optimizer)
        settings, processes = self._settings, self._processes
        records, sampling = self._compared(inputs, targets, people, watch, shares, public)
        with Interruptions(kept is not None or self._ledger is not None) as interruptions, ExitStack() as stack:
            with self._together():
                opened = None if kept is None else Folder(kept.path, "Trainer", resume=kept.resume)
                loaded = None if opened is None else stack.enter_context(closing(opened)).load()
                on, ids, budget = self._ledger, records.ids if self._ledger else None, settings.budget
                kept_run: dict[str, Any] = {"begun": loaded is not None, "ended": self._ended(loaded)}
                held = reserve_on_ledger(on, ids, budget, records.person_count, folder=opened, **kept_run)
                self._held = None if held is None else stack.enter_context(held)
                run = self._built(records, sampling, watch, shares, opened, interruptions, resumed=loaded is not None)
                own = self._given if self._ledger is None and loaded is None else None
                if loaded is not None:
                    check_shares(shares, loaded[0]["book"]["accounts"])
                    run.check(loaded[0])
                elif isinstance(own, filters.Filter):
                    own.refuse_if_given()
            self._resume(run, loaded)
            if watch.counting is not None and run.current.value.reason is None:
                gate = put_in_front(watch.counting, run.book, sampling, settings, processes)
                self._view.counting = gate.answer
            if isinstance(own, filters.Filter):
                own.hand_over("Trainer.fit")
            self._run = run
            processes.broadcast_module(self._module)
            for _ in self._train(run, callbacks, stack, None if kept is None else kept.every, interruptions):
                yield self._view
            if self._held is not None:
                self._held.settle(self.card(delta=self._held.delta), list(map(whole, self._module.parameters())))

    def _compared(
        self, inputs: Any, targets: Any, people: Any, watch: Watched, shares: Any, public: PublicRecords | None
    ) -> tuple[Records, Any]:
        """The records and the sampling, once all processes have the same settings, and the module was compared."""
        settings, processes = self._settings, self._processes
        same: dict[str, Any] = {}
        if not processes.single:
            same = settings.fixed() | {"steps": settings.last_step, "rate": settings.sampling.rate, "seed": self._seed}
            same |= {"optimizer": type(self._optimizer).__name__, "watch": repr(watch.odometer)}
            same |= {"budget": repr(settings.budget), "individual": settings.individual}
            same["learning"] = repr([{**group, "params": 0} for group in self._optimizer.param_groups])
            for name, each in self._module.named_parameters():
                same[f"parameter {name}"] = tuple(each.shape) if each.requires_grad else "frozen"
        if processes.alike:  # each draws all noise, which other kinds of devices would draw otherwise
            first, self._secret = self._gradients.parameters[0], processes.broadcast(secrets.randbits(128))
            same |= {"device": first.device.type, "dtype": first.dtype}
        with self._together(**same):
            records = self._records(inputs, targets, people, watch, shares)
            self._public = self._beside(records, public)
            # noise is drawn from generators made now, not with the trainer: processes forked since share nothing
            sampling = self._begun(records, watch, shares)
            if processes.alike and isinstance(sampling, BatchContributions):
                raise Unsupported("sampling: a sharded module takes no fixed batches: sampling=training.Poisson(0.01)")
            if processes.copies and (watch.counting is not None or self._people is not None):
                raise Unsupported("budget: with a split module give a fresh filter, and no function in watch=")
            own = (records.fingerprint(), np.asarray(shares, float).tolist()) if processes.copies else ()
        if processes.copies:
            self._gradients.shards.same("records, people, shares", *own)
            processes.broadcast_module(self._module)
        elif not processes.single:
            with processes.together():
                named = (records.ids or ()) if self._ledger is None else self._ledger.named(records.ids or ())
            processes.refuse_shared(named)
        with self._together():
            self._gradients.prepare(records.inputs, records.targets)
        return records, sampling

    def _together(self, **public: object) -> AbstractContextManager[None]:
        """See ``Processes.together``; nothing where this process is alone."""
        return nullcontext() if self._processes.single else self._processes.together(**public)

    def _beside(self, records: Records, public: PublicRecords | None) -> PublicBatches | None:
        if public is None:
            return None
        if not isinstance(public, PublicRecords):
            raise ArgumentError(f"public={type(public).__name__} must be training.PublicRecords(inputs, targets)")
        if not self._processes.single:
            raise Unsupported("public: they must come with one process, not several: train on them first")
        return public.beside(records, self._gradients.parameters[0].dtype)

    def _records(self, inputs: Any, targets: Any, people: Any, watch: Watched, shares: Any) -> Records:
        settings, caller = self._settings, self._people
        slots = 0 if settings.batches is not None else settings.sampling.slots
        if slots and people is None:
            raise ArgumentError(f"people must say in which of the sampling's {slots} slots each record's person is")
        if self._ledger is not None:
            self._ledger.refuse(shares=shares, **{"a sampling with slots": slots or None})
            if people is None:
                raise ArgumentError("people must say whose each record is, as the ledger names people")
        if shares is not None and (caller is not None or settings.budget is None or not settings.individual):
            raise ArgumentError("shares need individual=True and a filter as the budget")
        if watch.odometer is not None and settings.odometer is not None:
            raise ArgumentError("watch: the budget is an odometer already")
        if watch.odometer is not None and settings.batches is not None:
            raise Unsupported("an odometer is not done together with FixedBatches")
        columns, goals = as_records(inputs, targets, self._gradients.parameters[0].dtype)
        if not check_batch(columns, goals, None):
            raise ArgumentError("inputs must hold at least one record: the module is tried on it first")
        rows = self._ledger is None and any(each is not None for each in (watch.losses, shares, caller, slots or None))
        numbers, ids = as_rows(people, len(columns[0]), rows=rows, named=self._ledger is not None)
        check_batch(columns, goals, numbers)
        records = Records(columns, goals, numbers, slots if caller is None else len(caller.spent()), ids)
        if caller is not None and len(caller.spent()) != records.person_count:
            raise ArgumentError("people: the records must be of as many people as there are accounts, or fewer")
        if slots and records.person_count != slots:
            raise ArgumentError(f"people: the sampling has {slots} slots, from 0, so there are so many accounts")
        settings.check_losses(watch.losses, records.person_count)
        settings.check_first_step(caller, watch.odometer)
        if settings.individual and watch.odometer is not None:
            PersonOdometer(1, watch.odometer)  # refuses those that cannot be kept for each person
        return records

    def _begun(self, records: Records, watch: Watched, shares: Any) -> Any:
        settings = self._settings
        others = (self._people, self._ledger, shares, *watch, settings.odometer)
        beginning = Beginning(
            records=records,
            people=records.person_count,
            numbers=sum(parameter.numel() for parameter in self._gradients.parameters),
            individual=settings.individual,
            saving=any(each is not None for each in others) or settings.last_step != settings.steps,
            own_samples=isinstance(settings.budget, OWN_SAMPLES) and watch.odometer is None,
            clip=settings.max_grad_norm,
            plan=settings.batches,
            seed=self._secret + 1 if self._secret and self._processes.copies and self._seed is None else self._seed,
        )
        if isinstance(settings.sampling, FixedBatches):
            return BatchContributions(beginning)
        sampling = settings.sampling.begin(beginning)
        if sampling.own_samples and not beginning.own_samples:
            raise Unsupported(
                f"sampling={sampling!r}: bounds that follow people's own samples need a filters.RenyiOrder, RenyiCurve "
                "or Zcdp, and no odometer beside"
            )
        return sampling

    def _built(
        self,
        records: Records,
        sampling: Any,
        watch: Watched,
        shares: Any,
        folder: Folder | None,
        interruptions: Interruptions,
        *,
        resumed: bool,
    ) -> Run:
        settings, count = self._settings, records.person_count
        current, odometer = settings.current(), watch.odometer or settings.odometer
        observers: list[Any] = [] if odometer is None else [Bounds(odometer, count if settings.individual else None)]
        observers += [] if watch.losses is None else [Counts(watch.losses)]
        device, total = self._gradients.parameters[0].device, self._processes.noisy_total
        generator = noise_generator(device, self._seed, self._secret)
        book = MemoryBook(
            self._accounts(count, shares, resumed=resumed),
            current,
            lambda sums, sigma, rows: total(sums, sigma, generator if rows is None else rows),
            people=count,
            observers=observers,
            folder=folder,
            before=interruptions.wait,
        )
        questions = Questions(self._module, records, book, sampling)
        self._view = CallbackView(
            self._module,
            self._optimizer,
            settings=settings,
            current=current,
            budget_admits=book.admits,
            ask=questions.noisy_sum,
            count_clipped=questions.count_clipped,
        )
        self._people_of, self._shares = records, ShareHistory(book.shares, settings.last_step or 1, count)
        fixed = settings.fixed() | {"optimizer": type(self._optimizer).__name__}
        if folder is not None:
            fixed["records"] = f"{records.fingerprint()} {count}"
            folder.twice = bool(self._gradients.shards)
            fixed |= {"process": self._processes.name} if self._processes.alike else {}
            fixed |= {} if self._public is None else {"public": self._public.fingerprint()}
        model = TorchModel(self._gradients, self._module, self._optimizer, self._public, self._seed, self._secret)
        return Run(model, sampling, book, current, folder=folder, fixed=fixed)

    def _resume(self, run: Run, loaded: Any) -> None:
        """Go on from what was loaded, if anything was; all processes with one model."""
        if self._held is not None and self._held.settled:  # the folder's state is only read
            run.folder = run.book.folder = None
            run.resume(*loaded)
            run.book.accounts = self._held.accounts(run.book.accounts)
            return
        processes, folder, sharded = self._processes, run.folder, self._gradients.shards.mesh is not None
        own: Any = None if loaded is None or folder is None else (folder.numbers(), len(loaded[1]))
        told: list[Any] = [own] if processes.single else processes.all_gather(own)
        if None in told and any(each and (max(each[0]) > 0 or each[1] > 1 or processes.copies) for each in told):
            raise ArgumentError("resume: a process has no run in its folder, and others have: give each its own again")
        if own is None or folder is None:
            return
        first: Any = processes.broadcast
        if None in told:  # nothing was released: one of them had not begun
            first = lambda saved: saved  # noqa: E731
        elif sharded:
            common = set.intersection(*(set(numbers) for numbers, _ in told))
            if not common:
                raise DataError("resume: the processes' folders have no step in common")
            kept = folder.parts_of(max(common))
            first = lambda _: (kept["model"], processes.broadcast(kept["run"]))  # noqa: E731
        if processes.copies:  # all with the accounts of one that knows of all that was announced
            last = [max(numbers) + unseen for numbers, unseen in told]
            parts, unseen = processes.broadcast(loaded, last.index(max(last)))
            loaded = parts | {name: loaded[0][name] for name in ("model", "fixed")}, unseen
        run.resume(*loaded, first=first)
        folder.forget_before()
        if isinstance(run.sampling, BatchContributions) and not processes.single:
            run.sampling.begin_afresh(run.current.value.step)
        if self._held is not None:
            run.book.accounts = self._held.accounts(run.book.accounts)

    def _ended(self, loaded: Any) -> list[Any] | None:
        """The parameters in the folder of a run that is over; None: it goes on, or it is one process's of several."""
        if loaded is None or loaded[0]["run"]["reason"] is None or not self._processes.single:
            return None
        return [loaded[0]["model"]["module"].get(name, 0.0) for name, _ in self._module.named_parameters()]

    def _accounts(self, count: int, shares: Any, *, resumed: bool) -> Any:
        settings = self._settings
        if self._people is not None:
            if resumed:
                raise Unsupported("resume: give the budget as a filter; the accounts are in the folder")
            return self._people
        if settings.budget is None or not settings.individual:
            return Everybody(count, None if settings.budget is None else settings.budget.fresh())
        if self._held is not None and not resumed:
            return self._held.accounts(None)
        return PersonFilter(count, settings.budget, shares=shares)

    def _train(
        self, run: Run, callbacks: Any, stack: ExitStack, every: int | None, until: Interruptions
    ) -> Iterator[None]:
        """Take all steps, and tell callbacks that ask for it that the run begins, and that it has ended."""
        view, current, settings, processes = self._view, run.current, self._settings, self._processes
        accounts = run.book.accounts
        if isinstance(accounts, Everybody) and accounts.budget is not None and not processes.single:
            told = processes.all_gather((accounts.budget.count, accounts.budget.state()))  # one may have announced more
            accounts.budget = accounts.budget.from_state(max(told, key=lambda each: each[0])[1])
        for callback in callbacks:
            stack.callback(getattr(callback, "ended", lambda _: None), view)
        for callback in callbacks:
            getattr(callback, "began", lambda _: None)(view)
        current.update(own_samples=current.value.own_samples or run.sampling.own_samples)
        done = current.value.step

        def after() -> None:
            """Look at a step that was taken, and have each callback look at it once, also in a run that goes on."""
            if current.value.step > done:
                self._look(run)
                until.go_on()
            for number in range(current.value.called, len(callbacks)):
                callbacks[number](view)
                current.update(called=number + 1)
                until.go_on()

        kept = run.folder is not None
        together = {"agreed": processes.broadcast} if all(processes.all_gather(kept)) else {}
        saves = Saves(
            run.save if kept else None, every=every, planned=settings.last_step, interruptions=until, **together
        )
        return run.go(self._turnouts(settings), view.next_step, after, saves)

    def _look(self, run: Run) -> None:
        if run.book.gate is not None:
            self._view.counting = run.book.gate.answer
        if not run.model.sound():  # type: ignore[attr-defined]
            run.end("the parameters have exploded: lower the learning rate; what was not spent is left")
        if self._settings.individual and self._settings.budget is not None:
            self._shares.add(run.current.value.step)

    def _turnouts(self, settings: Settings) -> Iterator[Turnout]:
        view, records, last = self._view, self._people_of, settings.last_step
        while (left := 1 if last is None else last - view.step) > 0:
            divisor = settings.divisor * (view.sample_rate or 1.0)
            yield Turnout(records, records.person_count, left=left, divisor=divisor)

    def save(self) -> None:
        """Write what there is to the folder now, between two steps of ``steps``."""
        self._trained().save()

    @property
    def holder_report(self) -> HolderReport:
        """Each person's share of the budget over the run. PRIVATE: for the data holder."""
        self._trained()
        return self._shares.report()

    def shares(self) -> NDArray[np.float64]:
        """(n,) the share of each person's budget that is used. PRIVATE: for the data holder."""
        self._trained()
        return self._shares.shares()

    @property
    def accounts(self) -> PersonFilter | Everybody:
        """The accounts after the run. PRIVATE: for the data holder."""
        people = self._trained().book.accounts
        if people.budget is None:
            raise ArgumentError("accounts: this run has no budget; read trainer.odometer")
        return cast(PersonFilter | Everybody, people)

    @property
    def odometer(self) -> PersonOdometer | Boundary:
        """The running bounds of this run, up to date. With individual accounts PRIVATE, one for each person."""
        odometer: PersonOdometer | Boundary | None = self._trained().book.odometer()
        if odometer is None:
            raise ArgumentError("odometer: this run had no odometer, neither as its budget nor in watch=")
        return odometer

    def statement(self, person: Hashable, *, delta: float | None = None) -> BudgetStatement | Statement:
        """One person's statement, by id or number in ``people``, or of the record. PRIVATE: for this person alone.

        With an odometer it is the person's own running bound; else the share of the person's budget that is used.
        Delta, public, in (0, 1), is for budgets that have none of their own.
        """
        odometer, row = self._trained().book.odometer(), self._people_of.row_of(person)
        if isinstance(odometer, PersonOdometer):
            return odometer.statement(row)
        if not isinstance(self.accounts, PersonFilter):
            raise ArgumentError("statement: individual=False: all are charged the same; the card says what")
        return self.accounts.statement(row, delta=delta)

    def card(self, *, delta: float | None = None) -> Card:
        """The promise about the trained module, and its price. Public. Delta is for budgets that have none."""
        state, whose = self._trained().current.value, "record" if self._people_of.people is None else "group"
        card = self._card(state, delta, people_from=whose, public=self._public.describe() if self._public else "")
        return card if self._held is None else self._held.on_card(card)

    def _trained(self) -> Run:
        if self._run is None:
            raise ArgumentError("nothing was trained yet: call fit first")
        return self._run
