"""One release of a run: write it down, charge people, count it, add the noise; in this order."""

from collections.abc import Callable, Sequence
from typing import Protocol

import torch
from torch import Tensor, nn

from almoner import _audit_hook
from almoner.errors import BudgetExceeded
from almoner.mechanisms import Gaussian, Mechanism, SampledGaussian
from almoner.training._records.distributed import NoiseGenerator, Processes
from almoner.training._run.fixed_batches import Rows
from almoner.training._run.state import CurrentState

__all__ = ["Announces", "Releaser", "apply_gradients"]


class Announces(Protocol):
    """Writes down what will be released, before anybody is charged."""

    def announce(self, mechanism: Mechanism, /) -> None:
        """Returns when it is on the disk."""


class Releaser:
    """Releases noisy sums that people have been charged for.

    Args:
        current: the state of the run, where releases are counted.
        processes: this process, or the group of processes over which sums are added up.
        noise: the generator of the noise.
        checkpoint: where a release is announced before people are charged, or None.
        before: called before noise is drawn.
    """

    def __init__(
        self,
        *,
        current: CurrentState,
        processes: Processes,
        noise: NoiseGenerator,
        checkpoint: Announces | None,
        before: Callable[[], object],
    ) -> None:
        self._before = before
        self._current, self._processes, self._noise, self._checkpoint = current, processes, noise, checkpoint
        self.refused: BudgetExceeded | None = None
        """The refusal of this run's own budget, if there was one."""

    def release(
        self,
        mechanism: Gaussian | SampledGaussian,
        charge_and_sum: Callable[[], list[Tensor]],
        *,
        check: Callable[[Mechanism], object],
        noise: NoiseGenerator | None = None,
    ) -> list[Tensor]:
        """Check the mechanism, announce it, have people charged for it, and give the noisy sums, which are public.

        Args:
            mechanism: public. Its sigma is the noise on each entry of the sums.
            charge_and_sum: charges people for the mechanism and gives the private sums.
            check: raises where an account cannot price or count the mechanism; nobody is charged then.
            noise: the noise of this release; None: fresh and independent.

        Guarantee: when this returns or raises, the checkpoint or the accounts know of all that was released.
        Source: theory 5.1; what was announced counts as spent.
        """
        check(mechanism)
        if self._checkpoint is not None:
            self._checkpoint.announce(mechanism)
        try:
            sums = charge_and_sum()
        except BudgetExceeded as refused:
            self.refused = refused
            raise
        self._before()
        self._current.add_release(mechanism)
        drawn = self._noise if noise is None else noise
        return _audit_hook.released(
            lambda: self._processes.noisy_total(sums, mechanism.sigma, drawn),
            exact=sums,
            mechanism=mechanism,
            part=drawn.part() if isinstance(drawn, Rows) else None,
        )


def apply_gradients(
    optimizer: torch.optim.Optimizer, parameters: Sequence[nn.Parameter], noisy: Sequence[Tensor], divisor: float
) -> None:
    """One step along the noisy sums over the divisor, and along no gradient that was left in the module."""
    optimizer.zero_grad(set_to_none=True)  # also of frozen parameters
    for parameter, total in zip(parameters, noisy, strict=True):
        parameter.grad = (total / divisor).to(parameter.dtype)
    optimizer.step()
    optimizer.zero_grad(set_to_none=True)
