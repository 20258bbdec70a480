"""The settings of a run that its card states; all of them are public."""

from dataclasses import dataclass
from typing import Any

from almoner import filters
from almoner.training._card import Boundary
from almoner.training._run.fixed_batches import BatchPlan

__all__ = ["Settings"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """The facts that a run's card states, fixed before any private data are read. Every field is public."""

    budget: filters.Filter | None
    """The budget of each person; None: there is an odometer alone."""
    odometer: Boundary | None
    """A fresh odometer that running bounds are read off; None: there are none."""
    max_grad_norm: float
    """The clip to begin with; callbacks may set another."""
    divisor: float
    noise_multiplier: float
    steps: int | None
    """The number of steps that each person can pay in full; None: as many as the budget admits."""
    last_step: int | None
    individual: bool
    spend_remainder: bool
    pace: float
    sample_rate: float | None
    seeded: bool
    batches: BatchPlan | None = None
    """The plan of fixed batches with correlated noise; None: all people, or Poisson samples of them, in every step."""
    why: str = ""
    """Why the budget is this filter, where it was recommended."""

    def of_checkpoint(self) -> dict[str, Any]:
        """The settings that a resumed run must share with its checkpoint, because its card states them."""
        names = ("max_grad_norm", "noise_multiplier", "sample_rate", "divisor", "spend_remainder", "pace")
        batches = "" if self.batches is None else self.batches.describe()
        return {name: getattr(self, name) for name in names} | {"batches": batches}

    def sensitivity(self, clip: float) -> float:
        """The most that a person can contribute to what a step with this clip releases, and is charged for."""
        return clip if self.batches is None else self.batches.most
