"""The workload of an optimizer's steps: the matrix A of the iterates, by momentum and learning rates."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from almoner import _check
from almoner.errors import ArgumentError

__all__ = ["Workload"]


@dataclass(frozen=True, slots=True)
class Workload:
    """Gradient descent with momentum and a schedule of learning rates. Public.

    It is what a factor is made good for, and nothing that the guarantee depends on: training may differ from it.

    Args:
        momentum: in [0, 1). The buffer is momentum times itself plus the gradient.
        rates: the learning rate of each step, each > 0; None: 1 in every step.
    """

    momentum: float = 0.0
    rates: tuple[float, ...] | None = None

    def __post_init__(self) -> None:
        _check.within(0, 1, momentum=self.momentum)
        if self.momentum == 1:
            raise ArgumentError("momentum=1 must be below 1")
        if self.rates is not None:
            object.__setattr__(self, "rates", tuple(self.rates))
            for rate in self.rates:
                _check.positive(rates=rate)

    def matrix(self, steps: int) -> NDArray[np.float64]:
        """(steps, steps) A, lower triangular: entry (t, s) is how far a unit in the sum of step s moves iterate t.

        Raises:
            ArgumentError: there are fewer rates than steps.
        """
        _check.whole(1, steps=steps)
        if self.rates is not None and len(self.rates) < steps:
            raise ArgumentError(f"rates: {len(self.rates)} learning rates must be at least steps={steps!r}")
        rates = np.ones(steps) if self.rates is None else np.asarray(self.rates[:steps], dtype=np.float64)
        moves, decay = np.zeros((steps, steps)), np.zeros(steps)
        for step in range(steps):
            decay *= self.momentum
            decay[step] = 1.0
            moves[step] = rates[step] * decay
        return np.cumsum(moves, axis=0)
