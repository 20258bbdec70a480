"""A linear model as a run trains it: descent with momentum, a falling learning rate, and a mean of iterates."""

from collections.abc import Mapping, Sequence
from math import ceil
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from almoner.training._run.books import Draw
from almoner.training._run.samplings import Clipped

__all__ = ["Gradients", "LinearModel", "as_coefficients", "averaged", "independent"]

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
    """Parameters that descend along noisy sums. Public.

    Args:
        start: where to start.
        rate: learning rate, > 0.
        steps: how many there will be, and
        planned: how many from which the first averaged iterate is found.
        average: share of the iterates, from the end, whose mean is the result; 0: the last.
        momentum: Nesterov's.
        decay: over this share of the steps, the last ones, the learning rate falls to zero.
    """

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
