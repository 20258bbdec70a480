"""The function that Opacus calls between noise and step: it charges, and can be asked before."""

from typing import Protocol

from opacus.optimizers import DPOptimizer

from almoner import mechanisms
from almoner.interop.opacus._rules import forget_gradients, refuse_accumulation, refuse_adaptive

__all__ = ["Hook"]


class Accountant(Protocol):
    """An accountant that can be asked."""

    def refuse(self, step: mechanisms.Mechanism) -> None:
        """Raise where one more step cannot be counted, or does not fit; nothing is charged."""

    def step(self, *, noise_multiplier: float, sample_rate: float) -> None:
        """Charge one step."""


class Hook:
    """The function that Opacus calls after adding noise and before each step."""

    def __init__(self, accountant: Accountant, sample_rate: float) -> None:
        self._accountant, self._rate = accountant, sample_rate

    def __call__(self, optimizer: DPOptimizer) -> None:
        """Charge the step, or raise before a parameter changes."""
        try:
            refuse_accumulation(optimizer)
            refuse_adaptive(optimizer)
            self._accountant.step(noise_multiplier=float(optimizer.noise_multiplier), sample_rate=self._rate)
        except BaseException:
            forget_gradients(optimizer)
            raise

    def refuse(self, optimizer: DPOptimizer) -> None:
        """Raise where the step cannot be charged; nothing is."""
        self._accountant.refuse(mechanisms.gaussian_step(float(optimizer.noise_multiplier), 1.0, self._rate))
