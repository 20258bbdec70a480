"""Private gradient descent of linear models: one loop for all of them, with or without an account for each person.

The loop knows nothing of the loss: it asks for the norm of each person's gradient and for a weighted sum of all of
them. Nor does it know the notion of privacy: it asks the accounts how much each person may still contribute.

Names and symbols
    n             number of people
    step          what one step releases: a sum of clipped gradients plus Gaussian noise; public
    norms         L2 norm of each person's gradient, all of that person's records together; private
    divisor       the fixed public number that sums are divided by; never the number of active people

Source: theory.md statements 5.1 and 5.3; Feldman & Zrnic (2021), Algorithms 7 and 8.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from math import ceil
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from almoner import _check
from almoner.errors import ArgumentError
from almoner.individual import AccountsPerPerson
from almoner.mechanisms import Gaussian
from almoner.training._accounts.everybody import Everybody
from almoner.training._run.books import Draw, MemoryBook
from almoner.training._run.ending import unsaved
from almoner.training._run.run import Run
from almoner.training._run.samplings import Clipped, FullBatch, Turnout
from almoner.training._run.state import CurrentState

__all__ = [
    "Gradients",
    "LinearModel",
    "as_coefficients",
    "averaged",
    "check_course",
    "descend",
    "independent",
    "take_steps",
]

Array = NDArray[np.float64]

ROUNDING, UNDERFLOW = 1e-9, 1e-300
"""Norms are charged larger than computed by this share plus this much: more than the error of computing them."""


class Gradients(Protocol):
    """The gradients of some loss, one for each person."""

    def norms(self, parameters: Array) -> Array:
        """L2 norms (n,), private, of the gradients at these parameters, which become the current ones.

        They must be right to a relative 1e-9: compute them in double precision. A person's records may cancel, but not
        so far that their sum is rounding: in the weighted sum they would round away what others contribute.
        """

    def weighted_sum(self, weights: Array) -> Array:
        """The sum over people of weight times gradient, private, at the current parameters.

        Args:
            weights: (n,), private. A person of weight zero is left out, whatever their gradient is.
        """


class LinearModel:
    """Parameters that descend along noisy sums; its arguments are those of ``descend``. Public."""

    def __init__(
        self,
        start: Array,
        rate: float = 1.0,
        *,
        steps: int = 1,
        planned: int | None = None,
        average: float = 0.0,
        momentum: float = 0.0,
        decay: float = 0.0,
    ) -> None:
        self.parameters = np.array(start, dtype=np.float64)
        self._rate, self._steps, self._momentum, self._decay = rate, steps, momentum, decay
        planned = steps if planned is None else min(planned, steps)
        self._average, self._before = average, planned - averaged(average, planned)
        self._velocity, self._total = np.zeros_like(self.parameters), np.zeros_like(self.parameters)
        self._count, self._done = 0, 0

    def norms(self, records: Gradients) -> Array:
        """(n,) private: the norm of each person's gradient, as it is charged; NaN where it is not a number."""
        computed = records.norms(self.parameters + self._momentum * self._velocity)
        norms = np.where(computed > 0, computed * (1 + ROUNDING) + UNDERFLOW, computed)
        return np.where(np.isfinite(norms), norms, np.nan)  # a person whose norm is not a number takes no part

    def clipped_sum(self, records: Gradients, clip: Array, most: Array | None) -> Clipped:
        """The sum of gradients clipped to ``clip``, (n,); who would still be above ``most``, (n,), has weight 0."""
        norms = self.norms(records)
        clipped = np.minimum(norms, clip)
        taken = norms > 0 if most is None else (norms > 0) & (clipped <= most)
        weights = np.divide(clipped, norms, out=np.zeros_like(norms), where=taken)
        return Clipped(norms, clipped, weights, [records.weighted_sum(weights)])

    def of_those(self, records: Gradients, made: Clipped, active: NDArray[np.bool_]) -> list[Array]:
        """The sums of those who were admitted: made again, of the same gradients, where somebody was not."""
        if not np.any((made.weights > 0) & ~active):
            return made.sums
        return [records.weighted_sum(np.where(active, made.weights, 0.0))]

    def step(self, noisy: Sequence[Array], divisor: float, rate: float | None = None) -> None:
        """One step along the noisy sum over the divisor; with a rate of its own, or the model's."""
        left = self._steps - self._done
        share = min(1.0, left / (self._decay * self._steps)) if self._decay > 0 else 1.0
        rate = self._rate if rate is None else rate
        self._velocity = self._momentum * self._velocity - rate * share / divisor * noisy[0]
        self.parameters = self.parameters + self._velocity
        self._done += 1
        if self._done > self._before:
            self._total, self._count = self._total + self.parameters, self._count + 1

    @property
    def result(self) -> Array:
        """The last iterate, or the mean of those that are averaged."""
        return self.parameters if self._average == 0 else np.asarray(self._total / self._count)

    def state(self) -> dict[str, Any]:
        """The parameters of a stream, which has neither momentum nor a mean."""
        return {"parameters": self.parameters}

    def load(self, state: Mapping[str, Any]) -> None:
        """Go on from the parameters of a stream."""
        self.parameters = np.asarray(state["parameters"], dtype=np.float64)


def averaged(average: float, steps: int) -> int:
    """The number of iterates, from the end, that make a share of so many; at least one."""
    return max(1, ceil(average * steps))


def independent(noise: Any) -> Draw:
    """Draws of a generator of NumPy."""
    return lambda sums, sigma, _rows: [each + noise.normal(0.0, sigma, size=np.shape(each)) for each in sums]


def as_coefficients(parameters: Array, *, intercept: bool) -> tuple[Array, Array]:
    """(columns, features) coefficients and (columns,) intercepts, as scikit-learn has them."""
    weights = parameters[:-1] if intercept else parameters
    return np.ascontiguousarray(weights.T), parameters[-1].copy() if intercept else np.zeros(parameters.shape[1])


def descend(  # noqa: PLR0913
    gradients: Gradients,
    start: Array,
    accounts: AccountsPerPerson | Everybody,
    step: Gaussian,
    /,
    *,
    steps: int,
    learning_rate: float,
    divisor: float,
    noise: np.random.Generator,
    average: float = 0.0,
    momentum: float = 0.0,
    decay: float = 0.0,
    pace: float = 1.0,
    observe: Callable[[int, Array], None] | None = None,
    stop: Callable[[int], bool] | None = None,
    planned: int | None = None,
) -> Array:
    """Descend along noisy sums of clipped gradients; contributions are clipped to what each person can still pay.

    Args:
        gradients: private. One gradient for each person.
        start: public. Where to start.
        accounts: private. One account for each person; charged before each sum is formed.
        step: public. One step: its sensitivity is the clip, its sigma the noise on the sum.
        steps: public, >= 1. How many steps, whatever happens to the accounts; with ``stop``, at most.
        learning_rate: public, > 0.
        divisor: public, > 0. The number of people that a sum is divided by, fixed in advance.
        noise: public. The generator of the noise; ONE draw a step, of the same size at every step.
        average: public, in [0, 1]. The share of the iterates, from the end, whose mean is returned; 0: the last.
        momentum: public, in [0, 1). Nesterov's: each step goes on by this share of the last one, and the gradients are
            taken where that leads to.
        decay: public, in [0, 1]. Over this share of the steps, the last ones, the learning rate falls to zero.
        pace: public, in [0, 1]. How evenly each person's budget is spread over the steps that are left: with 1
            nobody is out before the last step; with 0 each person contributes up to the clip until nothing is left
            (Algorithm 8), which can ruin a model where many people run out together.
        observe: public. Called after each step with the step's number and the parameters.
        stop: asked after each step, with its number, whether it was the last; by public numbers alone.
        planned: public, at most steps. The number of steps from which the first averaged iterate is found; None: steps.

    Returns:
        Parameters, in the shape of start, public.

    Guarantee: all iterates together are as private as the accounts' budget says, for each person: a person's
        contribution is fixed by that person's own data and past outputs, has at most the norm that is charged,
        and is charged before it is used.
    Source: theory.md statements 2.1, 5.1, 5.2 and 5.3; Feldman & Zrnic (2021), Theorem 4.5 and Algorithm 8.
    """
    _check.whole(1, steps=steps)
    _check.positive(learning_rate=learning_rate, divisor=divisor)
    check_course(average=average, decay=decay, pace=pace, momentum=momentum)
    if not isinstance(step, Gaussian):
        raise ArgumentError(f"step={step!r} must be a mechanisms.Gaussian")
    if not (hasattr(accounts, "allowance") and hasattr(accounts, "charge")):
        raise ArgumentError(f"accounts={accounts!r} must be accounts per person: individual.Filter(n, budget)")
    if not hasattr(noise, "normal"):
        raise ArgumentError(f"noise={noise!r} must be a generator, such as numpy.random.default_rng()")
    model = LinearModel(
        start, learning_rate, steps=steps, planned=planned, average=average, momentum=momentum, decay=decay
    )
    current = CurrentState.of_step(step)
    run = Run(model, FullBatch(pace=pace), MemoryBook(accounts, current, independent(noise)), current)
    take_steps(run, gradients, step, steps=steps, divisor=divisor, observe=observe, stop=stop)
    return np.asarray(model.result)


def take_steps(
    run: Run,
    gradients: Gradients,
    step: Gaussian,
    *,
    steps: int,
    divisor: float,
    observe: Callable[[int, Array], None] | None = None,
    stop: Callable[[int], bool] | None = None,
) -> None:
    """Take so many steps of a run on all people, or fewer where ``stop`` says so.

    Raises:
        BudgetExceeded: the worst case of all people does not fit.
    """
    state, model = run.current, run.model

    def everybody() -> Iterator[Turnout]:
        for number in range(steps):
            yield Turnout(gradients, 0, left=steps - number, divisor=divisor)

    def after() -> None:
        number = state.value.step
        if number and observe is not None:
            observe(number, model.parameters)  # type: ignore[attr-defined]
        if number and stop is not None and stop(number):
            run.end("stopped")

    run.go(everybody(), lambda: step, after, unsaved())
    if run.book.refused is not None:
        raise run.book.refused


def check_course(*, average: float, decay: float, pace: float, momentum: float) -> None:
    """Raise ArgumentError unless all are in [0, 1], and the momentum below 1."""
    _check.within(0, 1, average=average, decay=decay, pace=pace, momentum=momentum)
    if momentum == 1:
        raise ArgumentError("momentum=1 must be below 1: nothing would ever slow down")
