"""A run as its callbacks see it: public facts, what may be changed next, and questions that the run's book charges."""

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from almoner import _check
from almoner.errors import ArgumentError, Unsupported
from almoner.mechanisms import Gaussian, Mechanism, Repeated, SampledGaussian
from almoner.training._accounts import ActiveAnswer, DropoutCount, StoppingAccounts, rounded
from almoner.training._records import Records, Values, means_by_person, values_by_record
from almoner.training._run.books import MemoryBook
from almoner.training._run.models import Processes
from almoner.training._run.run import CurrentState, History, TrainingState
from almoner.training._run.samplings import FullBatch, Poisson, Sampling, Turnout
from almoner.training._run.settings import Settings


class CallbackView:
    """The state of a run, handed to callbacks. It holds nothing private.

    Decisions may depend on what is public here: on the module's parameters, on answers to :meth:`noisy_sum`, on data
    that are not private. They may not depend on private data, or on what people have spent, in any other way.

    Fields: module, optimizer; step, the number of steps done; steps, how many each person can pay in full; last, the
        number of the last; divisor, what sums are divided by; max_grad_norm, noise_multiplier and sample_rate, which a
        callback may set for the next step; counting, the latest answer of ``stopping.Dropouts`` or ``StillActive``, if
        one counts; answers, what was asked so far, as (step, name, answer); released, what was charged and how often;
        history, for callbacks to keep public things in; reason, why the run ended; state, all of it, frozen.
    """

    def __init__(
        self,
        module: nn.Module,
        optimizer: torch.optim.Optimizer,
        *,
        settings: Settings,
        current: CurrentState,
        budget_admits: Callable[[Mechanism], bool],
        ask: Callable[[str, Gaussian, Values], float],
        count_clipped: Callable[[str, Gaussian], float],
    ) -> None:
        self.module, self.optimizer = module, optimizer
        self.counting: DropoutCount | ActiveAnswer | None = None
        self._settings, self._current = settings, current
        self._budget_admits, self._ask, self._count_clipped = budget_admits, ask, count_clipped

    def __repr__(self) -> str:
        return f"CallbackView(step={self.step}, steps={self.steps}, noise_multiplier={self.noise_multiplier:g})"

    @property
    def state(self) -> TrainingState:
        """Where the run stands now, as one frozen value."""
        return self._current.value

    @property
    def step(self) -> int:
        """The number of steps done."""
        return self.state.step

    @property
    def steps(self) -> int | None:
        """The number of steps that each person can pay in full; None: as many as the budget admits."""
        return self._settings.steps

    @property
    def last(self) -> int | None:
        """The number of the last step; None: the budget decides."""
        return self._settings.last_step

    @property
    def max_grad_norm(self) -> float:
        """The clip of the next step, on each person's gradient. Noise is a multiple of it."""
        return self.state.max_grad_norm

    @max_grad_norm.setter
    def max_grad_norm(self, value: float) -> None:
        self._set("max_grad_norm", value)

    @property
    def divisor(self) -> float:
        """The fixed public number of people that sums are divided by, times the sample rate if people are sampled."""
        return self._settings.divisor * (self.sample_rate or 1.0)

    @property
    def noise_multiplier(self) -> float:
        """The noise of the next step on a sum, as a multiple of the clip."""
        return self.state.noise_multiplier

    @noise_multiplier.setter
    def noise_multiplier(self, value: float) -> None:
        self._set("noise_multiplier", value)

    def _set(self, name: str, value: float) -> None:
        _check.positive(**{name: value})
        if self._settings.batches is not None:
            raise ArgumentError(f"{name} can't be set in a run with fixed batches: later rows are paid already")
        self._current.update(**{name: float(value)})

    @property
    def sample_rate(self) -> float | None:
        """The probability with which each person is sampled in the next step; None: every person takes part."""
        return self.state.sample_rate

    @sample_rate.setter
    def sample_rate(self, value: float) -> None:
        if self.sample_rate is None:
            raise ArgumentError("sample_rate can't be set in a run in which every person takes part in every step")
        _check.positive(sample_rate=value)
        _check.within(0, 1, sample_rate=value)
        self._current.update(sample_rate=float(value))

    @property
    def answers(self) -> tuple[tuple[int, str, float], ...]:
        """The questions asked so far: (step, name, answer)."""
        return self.state.answers

    @property
    def released(self) -> Mapping[Mechanism, int]:
        """The mechanisms that were charged and released, and how often."""
        return self.state.released

    @property
    def history(self) -> History:
        """For callbacks to keep public things in, by name; saved in the folder."""
        return self.state.history

    @property
    def reason(self) -> str | None:
        """Why the run ended; None while it goes on."""
        return self.state.reason

    def next_step(
        self, *, noise_multiplier: float | None = None, sample_rate: float | None = None
    ) -> Gaussian | SampledGaussian:
        """The mechanism of the next step, or the one with other noise or another rate."""
        noise = self.noise_multiplier if noise_multiplier is None else noise_multiplier
        rate = self.sample_rate if sample_rate is None else sample_rate
        return self._settings.step(noise, self.max_grad_norm, rate)

    def can_take(self, step: Mechanism, times: int) -> bool:
        """True if the plan and, where all are charged the worst case, the budget leave room for so many steps."""
        planned = self.last is None or self.step + times <= self.last
        return planned and (times == 0 or self._budget_admits(Repeated(step, times)))

    def stop(self, reason: str = "a callback stopped it") -> None:
        """End the run after this step."""
        self._current.update(reason=reason)

    def noisy_sum(self, values: Values, *, sigma: float, name: str = "sum") -> float:
        """A sum over people of something between 0 and 1, with Gaussian noise; charged to the same accounts. Public.

        A person who can't pay for their part is left out.

        Args:
            values: called with the module's output and the targets of some records, gives a number in [0, 1] for each,
                from it alone: ``correct`` counts correct answers. A person with several records gives their mean.
            sigma: public. Standard deviation of the noise.
            name: under which the answer is kept in ``answers``.

        Guarantee: released by a Gaussian mechanism with sensitivity 1, each person charged for their own value.
        Source: theory 2.1, 5.1.
        """
        return self._ask(name, Gaussian(sigma, 1.0), values)

    def count_clipped(self, *, sigma: float, name: str = "clipped") -> float:
        """The number of people whose gradients exceeded the clip in the last step, with noise of this sigma. Public.

        The answer is kept in ``answers`` by the name. A person who can't pay for being counted is left out. Raises
        ArgumentError where this process has taken no step yet, or people are sampled or in fixed batches.

        Guarantee: released by a Gaussian mechanism with sensitivity 1; a person whose gradient was longer than the clip
            is charged for one, and any other person for nothing.
        Source: theory 2.1, 5.1; Andrew et al. (2021), who charge everybody one half.
        """
        return self._count_clipped(name, Gaussian(sigma, 1.0))


class Questions:
    """Answers with noise about the records of a run, charged to its book. Private, but for the answers."""

    def __init__(self, module: nn.Module, records: Records, book: MemoryBook, sampling: Sampling) -> None:
        self._module, self._records, self._book, self._sampling = module, records, book, sampling

    def noisy_sum(self, name: str, question: Gaussian, values: Values) -> float:
        records = self._records
        numbers = values_by_record(self._module, records.inputs, records.targets, values)
        shares = means_by_person(np.clip(numbers, 0.0, 1.0), records.people, records.person_count)  # NaN stays NaN
        return self._noisy_total(name, question, shares)

    def count_clipped(self, name: str, question: Gaussian) -> float:
        if not isinstance(self._sampling, FullBatch):
            raise ArgumentError("count_clipped needs every person in every step: sampling=FullBatch()")
        if self._sampling.were_clipped is None:
            raise ArgumentError("count_clipped: this process has taken no step yet")
        return self._noisy_total(name, question, self._sampling.were_clipped)

    def _noisy_total(self, name: str, question: Gaussian, shares: NDArray[np.float64]) -> float:
        """The total of shares, (n,) in [0, 1], plus noise, kept by this name; who cannot pay is left out."""

        def contribute(accounts: Any) -> list[Any]:
            active = np.asarray(accounts.charge(question, shares), dtype=bool)
            return [torch.tensor([float(shares[active].sum())], dtype=torch.float64)]

        book, turnout = self._book, Turnout(self._records, self._records.person_count)
        (noisy,) = book.release(question, turnout, contribute, gated=False)
        answer, state = rounded(float(noisy[0]), question.sigma), book.current.value
        book.current.update(answers=(*state.answers, (state.step, name, answer)))
        return answer


def put_in_front(counting: Any, book: MemoryBook, sampling: Sampling, settings: Settings, processes: Processes) -> Any:
    """Put accounts that answer a public question in front of a book; before the first step."""
    if settings.batches is not None:
        raise Unsupported("drops are not counted together with FixedBatches")
    current = book.current

    def check(stopping: StoppingAccounts) -> None:
        last, step = settings.last_step, current.value.step
        if stopping.most is not None and last and stopping.most < last - step:
            raise ArgumentError(f"watch: {stopping.most} counts are fewer than steps: {last}")
        if (isinstance(sampling, Poisson) or sampling.own_samples) and not stopping.own_samples:
            if current.value.own_samples:
                raise ArgumentError("watch: bounds followed own samples so far, which the price of counting excludes")
            if not isinstance(sampling, Poisson):
                raise Unsupported(f"sampling={sampling!r}: its bounds follow own samples, which the price excludes")
            sampling.own_samples = False  # before the first step: refreshes alone
        if not processes.single:
            stopping.among(processes.all_gather)

    stopping = book.put_in_front(counting, "watch: a function", check)
    current.update(seeded=current.value.seeded or stopping.reproducible)
    return stopping
