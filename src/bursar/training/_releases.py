"""One release of a run: write it down, charge people, count it, add the noise; in this order."""

from collections.abc import Callable

from torch import Tensor

from bursar.errors import BudgetExceeded
from bursar.mechanisms import Gaussian, SampledGaussian
from bursar.training._checkpoint import Checkpoint
from bursar.training._distributed import NoiseGenerator, Processes
from bursar.training._state import CurrentState

__all__ = ["Releases"]


class Releases:
    """Releases noisy sums that people have been charged for.

    Args:
        current: the state of the run, where releases are counted.
        processes: this process, or the group of processes over which sums are added up.
        noise: the generator of the noise.
        checkpoint: where a release is announced before people are charged, or None.
    """

    def __init__(
        self, *, current: CurrentState, processes: Processes, noise: NoiseGenerator, checkpoint: Checkpoint | None
    ) -> None:
        self._current, self._processes, self._noise, self._checkpoint = current, processes, noise, checkpoint
        self.refused: BudgetExceeded | None = None
        """The refusal of this run's own budget, if there was one."""

    def release(
        self, mechanism: Gaussian | SampledGaussian, charge_and_sum: Callable[[], list[Tensor]]
    ) -> list[Tensor]:
        """Announce the mechanism, have people charged for it, and give the noisy sums, which are public.

        Args:
            mechanism: public. Its sigma is the noise on each entry of the sums.
            charge_and_sum: charges people for the mechanism and gives the private sums.

        Guarantee: when this returns or raises, the checkpoint or the accounts know of all that was released.
        Source: theory 5.1; what was announced counts as spent.
        """
        if self._checkpoint is not None:
            self._checkpoint.announce(mechanism)
        try:
            sums = charge_and_sum()
        except BudgetExceeded as refused:
            self.refused = refused
            raise
        self._current.add_release(mechanism)
        return self._processes.noisy_total(sums, mechanism.sigma, self._noise)
