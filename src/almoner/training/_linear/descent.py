"""Private gradient descent: one loop for every model, with or without an account for each person.

The loop knows nothing of the model: it asks for the norm of each person's gradient and for a weighted sum of all of
them. Nor does it know the notion of privacy: it asks the accounts how much each person may still contribute.

Names and symbols
    n             number of people
    step          what one step releases: a sum of clipped gradients plus Gaussian noise; public
    norms         L2 norm of each person's gradient, all of that person's records together; private
    divisor       the fixed public number that sums are divided by; never the number of active people

Source: theory.md statements 5.1 and 5.3; Feldman & Zrnic (2021), Algorithms 7 and 8.
"""

from collections.abc import Callable, Iterator

import numpy as np
from numpy.typing import NDArray

from almoner import _check
from almoner.errors import ArgumentError
from almoner.individual import AccountsPerPerson
from almoner.mechanisms import Gaussian
from almoner.training._accounts.everybody import Everybody
from almoner.training._linear.model import Gradients, LinearModel, independent
from almoner.training._run.books import MemoryBook
from almoner.training._run.ending import unsaved
from almoner.training._run.run import Run
from almoner.training._run.samplings import FullBatch, Turnout
from almoner.training._run.state import CurrentState, TrainingState

__all__ = ["check_momentum", "descend", "take_steps"]

Array = NDArray[np.float64]


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
    _check.within(0, 1, average=average, decay=decay, pace=pace)
    check_momentum(momentum)
    if not isinstance(step, Gaussian):
        raise ArgumentError(f"step={step!r} must be a mechanisms.Gaussian")
    if not (hasattr(accounts, "allowance") and hasattr(accounts, "charge")):
        raise ArgumentError(f"accounts={accounts!r} must be accounts per person: individual.Filter(n, budget)")
    if not hasattr(noise, "normal"):
        raise ArgumentError(f"noise={noise!r} must be a generator, such as numpy.random.default_rng()")
    model = LinearModel(
        start, learning_rate, steps=steps, planned=planned, average=average, momentum=momentum, decay=decay
    )
    state = TrainingState(max_grad_norm=step.sensitivity, noise_multiplier=step.sigma / step.sensitivity)
    current = CurrentState(state)
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


def check_momentum(momentum: float) -> None:
    """Raise ArgumentError unless 0 <= momentum < 1."""
    _check.within(0, 1, momentum=momentum)
    if momentum == 1:
        raise ArgumentError("momentum=1 must be below 1: nothing would ever slow down")
