"""A run as its callbacks see it: public facts, what may be changed next, and questions that are paid for."""

from collections.abc import Callable
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from bursar import _check, _extras
from bursar.errors import ArgumentError
from bursar.mechanisms import Gaussian, Mechanism, Repeated, SampledGaussian

with _extras.need("torch", extra="torch"):
    import torch
    from torch import Tensor, nn

from bursar.training.gradients._self_check import evaluating

__all__ = ["Callback", "Run", "Values", "correct", "of_people", "over"]

Values = Callable[[Tensor, Tensor], Tensor]

AT_ONCE = 2**10


class Callback(Protocol):
    """What is called with the run before the first step and after each: any function of one argument will do."""

    def __call__(self, run: "Run", /) -> None:
        """Look, ask, change what comes next, or stop."""


class Run:
    """The state of a run, public but for ``accounts`` and its underscored fields; handed to callbacks.

    Decisions may depend on what is public here: on the module's parameters, on answers to :meth:`noisy_sum`, on data
    that are not private. They may not depend on private data, or on what people have spent, in any other way.

    Fields: module, optimizer; step, the number of steps done; steps, how many everybody can pay in full; last, the
        number of the last; noise_multiplier and sample_rate, which a callback may set for the next step (the clip is
        fixed); accounts, PRIVATE, but for the ``count`` of ``stopping.Dropouts`` or the ``still`` of ``StillActive``
        where one of them stands in front of the accounts; answers, what was asked so far; released, what was charged
        and how often; history, for callbacks to keep public things in; reason, why the run ended.
    """

    def __init__(
        self,
        module: nn.Module,
        optimizer: torch.optim.Optimizer,
        *,
        steps: int | None,
        max_grad_norm: float,
        noise_multiplier: float,
        sample_rate: float | None,
        accounts: Any,
        last: int | None,
        room: Callable[[Mechanism], bool],
        ask: Callable[[Mechanism, Values], float],
    ) -> None:
        self.module, self.optimizer, self.accounts = module, optimizer, accounts
        self.step, self.steps, self._max_grad_norm = 0, steps, max_grad_norm
        self._noise_multiplier, self._sample_rate, self._ask = noise_multiplier, sample_rate, ask
        self.last, self._room = last, room
        self.answers: list[tuple[int, str, float]] = []
        self.released: dict[Mechanism, int] = {}
        self.history: dict[str, list[Any]] = {}
        self.reason: str | None = None

    def __repr__(self) -> str:
        return f"Run(step={self.step}, steps={self.steps}, noise_multiplier={self._noise_multiplier:g})"

    @property
    def max_grad_norm(self) -> float:
        """The clip, which is fixed."""
        return self._max_grad_norm

    @property
    def noise_multiplier(self) -> float:
        """The noise of the next step on a sum, as a multiple of the clip."""
        return self._noise_multiplier

    @noise_multiplier.setter
    def noise_multiplier(self, value: float) -> None:
        _check.positive(noise_multiplier=value)
        self._noise_multiplier = float(value)

    @property
    def sample_rate(self) -> float | None:
        """The probability with which each person is sampled in the next step; None: everybody takes part."""
        return self._sample_rate

    @sample_rate.setter
    def sample_rate(self, value: float) -> None:
        if self._sample_rate is None:
            raise ArgumentError("sample_rate can't be set in a run in which everybody takes part in every step")
        _check.number(sample_rate=value)
        if not 0 < value <= 1:
            raise ArgumentError(f"sample_rate={value!r} must be in (0, 1]")
        self._sample_rate = float(value)

    def next_step(
        self, *, noise_multiplier: float | None = None, sample_rate: float | None = None
    ) -> Gaussian | SampledGaussian:
        """What the next step releases, or would with other noise or another rate."""
        sigma = (self._noise_multiplier if noise_multiplier is None else noise_multiplier) * self.max_grad_norm
        rate = self._sample_rate if sample_rate is None else sample_rate
        return Gaussian(sigma, self.max_grad_norm) if rate is None else SampledGaussian(sigma, self.max_grad_norm, rate)

    def can_take(self, step: Mechanism, times: int) -> bool:
        """Whether the plan and, where everybody is charged the worst case, the budget leave room for so many steps."""
        if self.last is not None and self.step + times > self.last:
            return False
        return times == 0 or self._room(Repeated(step, times))

    def stop(self, reason: str = "a callback stopped it") -> None:
        """No further step after this one."""
        self.reason = reason

    def noisy_sum(self, values: Values, *, sigma: float, name: str = "sum") -> float:
        """A sum over people of something between 0 and 1, with Gaussian noise; charged to the same accounts.

        Args:
            values: called with the module's output and the targets of some records, gives a number in [0, 1] for each:
                ``correct`` counts correct answers. A person with several records gives their mean.
            sigma: public. Standard deviation of the noise.
            name: under which the answer is kept in ``answers``.

        Returns:
            Public. Whoever can't pay for their part is left out.

        Guarantee: released by a Gaussian mechanism with sensitivity 1, each person charged for the own value.
        Source: theory 2.1, 5.1.
        """
        found = self._ask(Gaussian(sigma, 1.0), values)
        self.answers.append((self.step, name, found))
        return found


def correct(output: Tensor, targets: Tensor) -> Tensor:
    """1 where the largest output is at the target, else 0: for ``Run.noisy_sum``."""
    return (output.argmax(dim=-1) == targets).double()


def of_people(values: NDArray[np.float64], people: Any, count: int) -> NDArray[np.float64]:
    """Each person's mean value, clamped to [0, 1]; NaN where unknown."""
    held = np.clip(values, 0.0, 1.0)  # NaN stays NaN
    if people is None:
        return held
    number = np.bincount(people, minlength=count)
    total = np.bincount(people, held, minlength=count)
    return np.divide(total, number, out=np.zeros(count), where=number > 0)


def over(
    module: nn.Module, batch: tuple[Tensor, ...], targets: Tensor, values: Callable[[Tensor, Tensor], Tensor]
) -> NDArray[np.float64]:
    """One number for each record, with the module in evaluation mode.

    Raises:
        ArgumentError: values gave anything else than one number for each record.
    """
    device = next(module.parameters()).device
    with evaluating(module), torch.no_grad():
        parts = []
        for start in range(0, len(targets), AT_ONCE):
            some = slice(start, start + AT_ONCE)
            output, goals = module(*(part[some].clone().to(device) for part in batch)), targets[some].to(device)
            found = values(output, goals)
            if not isinstance(found, Tensor) or found.shape != (len(goals),):
                raise ArgumentError("values must give one number for each record, in a tensor of shape (records,)")
            parts.append(found.double().cpu())
        return np.asarray(torch.cat(parts).numpy())
