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

from collections.abc import Callable
from math import ceil
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from almoner import _audit_hook, _check
from almoner.errors import ArgumentError
from almoner.individual import AccountsPerPerson
from almoner.mechanisms import Gaussian
from almoner.training._accounts.everybody import Everybody
from almoner.training._accounts.pace import paced_allowance

__all__ = ["Gradients", "descend", "release"]

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
    parameters = np.array(start, dtype=np.float64)
    planned = steps if planned is None else min(planned, steps)
    before = planned - averaged(average, planned)
    total, count, velocity = np.zeros_like(parameters), 0, np.zeros_like(parameters)
    for number in range(1, steps + 1):
        left = steps - number + 1
        ahead = parameters + momentum * velocity
        noisy = _noisy(_contributions(gradients, ahead, accounts, step, steps_left=left, pace=pace), step, noise)
        velocity = momentum * velocity - learning_rate * _share_of_rate(left, steps, decay) / divisor * noisy
        parameters = parameters + velocity
        if average == 0:  # the last iterate
            total, count = parameters, 1
        elif number > before:
            total, count = total + parameters, count + 1
        if observe is not None:
            observe(number, parameters)
        if stop is not None and stop(number):
            break
    return np.asarray(total / count)


def release(
    gradients: Gradients, parameters: Array, accounts: AccountsPerPerson, step: Gaussian, noise: np.random.Generator
) -> Array:
    """One noisy sum of the clipped gradients at these parameters, public; contributions are charged before it.

    Guarantee: that of ``descend``, for one step.
    Source: theory.md statements 2.1, 5.1, 5.2 and 5.3.
    """
    return _noisy(charged_sum(gradients, parameters, accounts, step), step, noise)


def charged_sum(gradients: Gradients, parameters: Array, accounts: AccountsPerPerson, step: Gaussian) -> Array:
    """The sum of the clipped gradients at these parameters, private, to which noise is added; all have paid for it."""
    return _contributions(gradients, parameters, accounts, step, steps_left=1, pace=0.0)


def _noisy(sums: Array, step: Gaussian, noise: np.random.Generator) -> Array:
    """The sums with one draw of noise."""
    return _audit_hook.released(
        lambda: np.asarray(sums + noise.normal(0.0, step.sigma, size=sums.shape)), exact=sums, mechanism=step
    )


def check_momentum(momentum: float) -> None:
    """Raise ArgumentError unless 0 <= momentum < 1."""
    _check.within(0, 1, momentum=momentum)
    if momentum == 1:
        raise ArgumentError("momentum=1 must be below 1: nothing would ever slow down")


def _share_of_rate(left: int, steps: int, decay: float) -> float:
    """The learning rate of a step, over the full one, when so many of the steps are left, this one counted."""
    return min(1.0, left / (decay * steps)) if decay > 0 else 1.0


def averaged(average: float, steps: int) -> int:
    """The number of iterates, from the end, that make a share of so many; at least one."""
    return max(1, ceil(average * steps))


def _contributions(
    gradients: Gradients,
    parameters: Array,
    accounts: AccountsPerPerson | Everybody,
    step: Gaussian,
    *,
    steps_left: int,
    pace: float,
) -> Array:
    """The sum of what people contribute, private; each of them has paid when it is formed."""
    computed = gradients.norms(parameters)
    norms = np.where(computed > 0, computed * (1 + ROUNDING) + UNDERFLOW, computed)
    norms = np.where(np.isfinite(norms), norms, np.nan)  # a person whose norm is not a number takes no part
    clipped = np.minimum(norms, paced_allowance(accounts, step, steps_left, pace))
    active = np.asarray(accounts.charge(step, clipped))
    weights = np.divide(clipped, norms, out=np.zeros_like(norms), where=active & (norms > 0))
    return gradients.weighted_sum(weights)
