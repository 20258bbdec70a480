"""The training loop: charge, release, take the step, call the callbacks, answer their questions, save; and again."""

from collections.abc import Callable, Hashable, Sequence
from contextlib import ExitStack
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from almoner import individual
from almoner.errors import ArgumentError, BudgetExceeded, Unsupported
from almoner.mechanisms import Gaussian
from almoner.training._accounts.counters import rounded
from almoner.training._accounts.holder_report import ShareHistory
from almoner.training._accounts.run_accounts import TrainingAccounts
from almoner.training._accounts.stopping_accounts import StoppingAccounts
from almoner.training._records.distributed import NoiseGenerator, Processes
from almoner.training._records.evaluation import Values, means_by_person, values_by_record
from almoner.training._records.records import Records
from almoner.training._run.callback_view import CallbackView
from almoner.training._run.checkpointing import Resumable
from almoner.training._run.contributions import FullBatch, Poisson
from almoner.training._run.ending import Interruptions, Saves
from almoner.training._run.fixed_batches import BatchContributions
from almoner.training._run.folder import Announced, Checkpoint
from almoner.training._run.releases import Releaser, apply_gradients
from almoner.training._run.settings import Settings
from almoner.training._run.state import CurrentState, TrainingState
from almoner.training.gradients import Gradients

__all__ = ["Callback", "Counting", "Loop"]

EXPLODED = 1e12
"""Parameters whose norm is so many times that of the first ones are of no use to anybody."""

Callback = Callable[[CallbackView], None]
Counting = Callable[[individual.Filter], StoppingAccounts]


class Loop:
    """One run, step by step. Its records and accounts are private; its ``run`` is public."""

    def __init__(
        self,
        *,
        settings: Settings,
        module: nn.Module,
        optimizer: torch.optim.Optimizer,
        gradients: Gradients,
        contributions: FullBatch | Poisson | BatchContributions,
        records: Records,
        accounts: TrainingAccounts,
        processes: Processes,
        noise: NoiseGenerator,
        checkpoint: Checkpoint | None,
        interruptions: Interruptions,
    ) -> None:
        state = TrainingState(
            max_grad_norm=settings.max_grad_norm,
            noise_multiplier=settings.noise_multiplier,
            sample_rate=settings.sample_rate,
            seeded=settings.seeded,
        )
        self._settings, self._current, self._interruptions = settings, CurrentState(state), interruptions
        self._module, self._optimizer, self._processes = module, optimizer, processes
        self._gradients, self._contributions, self._records = gradients, contributions, records
        self._parameters = gradients.parameters
        batches = contributions if isinstance(contributions, BatchContributions) else None
        self._step_noise = None if batches is None else batches.noise
        self.accounts = accounts
        before = interruptions.wait
        self._releases = Releaser(
            current=self._current, processes=processes, noise=noise, checkpoint=checkpoint, before=before
        )
        self._resumable = Resumable(
            checkpoint=checkpoint,
            settings=settings,
            current=self._current,
            module=module,
            optimizer=optimizer,
            accounts=accounts,
            records=records,
            batches=batches,
        )
        self.run = CallbackView(
            module,
            optimizer,
            settings=settings,
            current=self._current,
            budget_admits=accounts.admits,
            ask=self._noisy_sum,
            count_clipped=self._count_clipped,
        )
        self.shares = ShareHistory(accounts.shares, 1.0, settings.last_step or 1)
        self.several_records = records.people is not None
        self._stopping: StoppingAccounts | None = None
        self._largest = EXPLODED * (1.0 + _norm(self._parameters))

    def restore(self, contents: dict[str, Any], unseen: list[Announced]) -> None:
        """Go on from a checkpoint, with what was announced since; before the first step."""
        self._resumable.restore(contents, unseen, self._processes)

    def count_with(self, counting: Counting) -> None:
        """Put the accounts that answer a public question in front, and book their price; before the first step."""
        if self._step_noise is not None:
            raise Unsupported("counting is not done together with batches=")
        stopping = counting(self.accounts.people)  # type: ignore[arg-type]
        try:
            self._check_counting(stopping)
            self.accounts.check_observed(stopping.price)
        except BaseException:
            if isinstance(stopping, StoppingAccounts):
                stopping.undo()
            raise
        self._stopping = stopping
        self.accounts.put_in_front(stopping)
        self._current.update(seeded=self._current.value.seeded or stopping.reproducible)
        if not self._processes.single:
            stopping.among(self._processes.all_gather)
        self._current.add_release(stopping.price)
        self.accounts.count_worst_case(stopping.price)
        self.run.counting = stopping.answer

    def _check_counting(self, stopping: StoppingAccounts) -> None:
        if not isinstance(stopping, StoppingAccounts) or stopping.people is not self.accounts.people:
            raise ArgumentError("counting must make Dropouts or StillActive of the accounts that it is given")
        last, step = self._settings.last_step, self._current.value.step
        if stopping.most is not None and last and stopping.most < last - step:
            raise ArgumentError(f"counting: {stopping.most} counts are fewer than steps: {last}")
        if isinstance(self._contributions, Poisson) and not stopping.own_samples:
            if self._current.value.own_samples:
                raise ArgumentError("counting: bounds followed own samples so far, which its price does not cover")
            self._contributions.own_samples = False  # before the first step: refreshes alone

    def tell(self, callbacks: Sequence[Callback], stack: ExitStack) -> None:
        """Tell callbacks that ask for it that the run begins, and when the stack is left, that it has ended."""
        for callback in callbacks:
            if hasattr(callback, "ended"):
                stack.callback(callback.ended, self.run)
        for callback in callbacks:
            if hasattr(callback, "began"):
                callback.began(self.run)

    def train(self, callbacks: Sequence[Callback], *, save_every: int | None) -> None:
        """Take steps until the plan, the budget or a callback says that it is enough."""
        sampled = isinstance(self._contributions, Poisson) and self._contributions.own_samples
        self._current.update(own_samples=self._current.value.own_samples or sampled)
        with self._saves(save_every) as saves:
            saves.save()  # what was booked just now must survive
            try:
                self._call(callbacks)
                while self._goes_on():
                    self._take_step()
                    self._call(callbacks)
                    saves.after(self._current.value.step)
            except BudgetExceeded as refused:  # the worst case of all people, for a step or a question: a public fact
                if refused is not self._releases.refused:  # of some other budget, which a callback keeps
                    raise
                self._end("the budget is spent")
            self._end("all planned steps are done")
            saves.save()

    def _saves(self, every: int | None) -> Saves:
        """Saving, by the first process's clock where all have a folder."""
        kept, processes = self._resumable.kept, self._processes
        together = {"agreed": processes.broadcast} if all(processes.all_gather(kept)) else {}
        save = self._resumable.save if kept else None
        return Saves(save, every=every, interruptions=self._interruptions, **together)

    @property
    def ids(self) -> list[Hashable] | None:
        """Whose each account is; None where people are the numbers of accounts. Private."""
        return self._records.ids

    def row_of(self, person: Hashable) -> Any:
        """The number of a person's account. Private, as the accounts are."""
        return self._records.row_of(person)

    def _goes_on(self) -> bool:
        state, last = self._current.value, self._settings.last_step
        return state.reason is None and (last is None or state.step < last)

    def _end(self, reason: str) -> None:
        """Say why the run ends, unless a reason was given before."""
        self._current.update(reason=self._current.value.reason or reason)

    def _steps_left(self) -> int:
        """The number of steps that are left, the next one counted; 1 where the budget decides."""
        last = self._settings.last_step
        return 1 if last is None else last - self.run.step

    def _call(self, callbacks: Sequence[Callback]) -> None:
        """Have each callback look at this step once, also where a run is interrupted among them and goes on."""
        for number in range(self._current.value.called, len(callbacks)):
            callbacks[number](self.run)
            self._current.update(called=number + 1)
            self._interruptions.go_on()

    def _take_step(self) -> None:
        step = self.run.next_step()
        noisy = self._releases.release(
            step,
            lambda: self._contributions.charge_and_sum(
                self._gradients,
                self._records,
                self.accounts.for_steps,
                step,  # type: ignore[arg-type]  # what the contributions are for
                self._steps_left(),
            ),
            check=self.accounts.for_steps.check,
            noise=self._step_noise,
        )
        if self._stopping is not None:
            self.run.counting = self._stopping.answer
        self._apply(noisy)
        number = self._current.value.step + 1
        self._current.update(step=number, called=0)
        if not self._sound():
            self._end("the parameters have exploded: lower the learning rate; what was not spent is left")
        if self._settings.individual and self._settings.budget is not None:
            self.shares.add(number)
        self._interruptions.go_on()

    def _apply(self, noisy: Sequence[Tensor]) -> None:
        """One step of the optimizer along the noisy sums, and along no gradient that was left in the module."""
        divisor = self._settings.divisor * (self._current.value.sample_rate or 1.0)
        apply_gradients(self._optimizer, self._parameters, noisy, divisor)

    def _sound(self) -> bool:
        """True if the parameters, which are public, are finite and not far beyond where they began."""
        return _norm(self._parameters) <= self._largest  # False where it is not a number

    def _noisy_sum(self, name: str, question: Gaussian, values: Values) -> float:
        """The sum over people of their mean values, clamped to [0, 1], plus the noise of ``question``. Public.

        Guarantee: released by a Gaussian mechanism with sensitivity 1, each person charged for their own value.
        Source: theory 2.1, 5.1.
        """
        records = self._records
        numbers = values_by_record(self._module, records.inputs, records.targets, values)
        shares = means_by_person(np.clip(numbers, 0.0, 1.0), records.people, records.person_count)  # NaN stays NaN
        return self._noisy_total(name, question, shares)

    def _count_clipped(self, name: str, question: Gaussian) -> float:
        """The number of people whose gradients exceeded the clip in the last step, plus noise. Public."""
        if not isinstance(self._contributions, FullBatch):
            raise ArgumentError("count_clipped needs every person in every step: no sample_rate and no batches")
        if self._contributions.were_clipped is None:
            raise ArgumentError("count_clipped: this process has taken no step yet")
        return self._noisy_total(name, question, self._contributions.were_clipped)

    def _noisy_total(self, name: str, question: Gaussian, shares: NDArray[np.float64]) -> float:
        """The total of what people have, (n,) in [0, 1], plus noise; who cannot pay for their own is left out.

        The answer is kept under this name.
        """

        def charge_and_sum() -> list[Tensor]:
            active = np.asarray(self.accounts.for_questions.charge(question, shares), dtype=bool)
            return [torch.tensor([float(shares[active].sum())], dtype=torch.float64)]

        (noisy,) = self._releases.release(question, charge_and_sum, check=self.accounts.for_questions.check)
        answer = rounded(float(noisy[0]), question.sigma)
        self._current.update(answers=(*self._current.value.answers, (self.run.step, name, answer)))
        return answer


def _norm(parameters: Sequence[Tensor]) -> float:
    """The norm of all parameters together; NaN or infinite where one is."""
    return float(torch.stack([each.detach().double().norm().cpu() for each in parameters]).norm())
