"""Lécuyer (2021), section 5: noise and batches that follow a noisy count of right answers. Callbacks of a run.

Each looks every so many epochs, and keeps what it remembers in ``run.history`` by its class's name.
"""

from almoner import _check
from almoner.errors import ArgumentError
from almoner.training import CallbackView
from almoner.training.callbacks import Looks


class Adaptive(Looks):
    """A step's price changed every so many epochs, by whether the count of right answers has grown."""

    def __init__(self, *, by: float, every: int, epoch: int, sigma: float, epochs_left: int = 0) -> None:
        _check.positive(by=by)
        _check.whole(1, epoch=epoch)
        _check.whole(0, epochs_left=epochs_left)
        super().__init__(every=every, sigma=sigma)
        self._by, self._epoch, self._epochs_left = by, epoch, epochs_left

    def __call__(self, run: CallbackView) -> None:
        """Ask when a look is due, and adapt."""
        memory = self._memory(run)
        start = memory.setdefault("start", self._value(run))
        if self._look(run, memory, self._every * self._steps(run, start)):
            self._adapt(run, start, grown=memory["waited"] == 0)

    def _value(self, run: CallbackView) -> float:
        return run.noise_multiplier

    def _steps(self, run: CallbackView, start: float) -> int:
        """Steps of an epoch as things are."""
        return self._epoch

    def _may_save(self, run: CallbackView, start: float) -> bool:
        """Tell whether more than so many epochs are possible as things are."""
        return run.can_take(run.next_step(), self._epochs_left * self._steps(run, start) + 1)

    def _adapt(self, run: CallbackView, start: float, *, grown: bool) -> None:
        raise NotImplementedError


class AdaptiveNoise(Adaptive):
    """More noise, so a cheaper step, while training gets better; less again, down to where it began, when it stalls.

    Args:
        by: public. What is added to the noise multiplier after a significant increase, and taken off after none. The
            noisy count has increased significantly if it is above the largest count that had by at least three standard
            deviations of its noise. Before the first look that is 0, so the first look raises the noise.
        every: public. Epochs between two looks.
        epoch: public. Steps of an epoch.
        sigma: public. The noise on the count of right answers, which is charged to the accounts.
        epochs_left: public. The noise is raised only while more than so many epochs are possible as things are.

    Guarantee: the decisions use noisy counts only, each charged as a Gaussian of sensitivity 1.
    Source: Lécuyer (2021), section 5.1.
    """

    def __init__(
        self, *, by: float = 0.1, every: int = 10, epoch: int, sigma: float = 100.0, epochs_left: int = 50
    ) -> None:
        super().__init__(by=by, every=every, epoch=epoch, sigma=sigma, epochs_left=epochs_left)

    def _adapt(self, run: CallbackView, start: float, *, grown: bool) -> None:
        if not grown:
            run.noise_multiplier = max(start, run.noise_multiplier - self._by)
        elif self._may_save(run, start):
            run.noise_multiplier += self._by


class AdaptiveBatch(Adaptive):
    """Smaller batches, so a cheaper step, while training gets better; larger again, up to where it began, if it stalls.

    Args:
        by: public. What is taken off the sample rate after a significant increase, and added after none.
        epoch: public. Steps of an epoch at the sample rate at the start. An epoch is a pass over the data, so one at a
            smaller rate has more steps, in proportion to 1 / rate (rounded): 98 at 512 of 50,000, 195 at 256.
        every, sigma, epochs_left: as in ``AdaptiveNoise``.
        least: public. The sample rate never falls below this.

    Guarantee: the decisions use noisy counts only, each charged as a Gaussian of sensitivity 1.
    Source: Lécuyer (2021), section 5.1.
    """

    def __init__(
        self, *, by: float, least: float, every: int = 10, epoch: int, sigma: float = 100.0, epochs_left: int = 50
    ) -> None:
        super().__init__(by=by, every=every, epoch=epoch, sigma=sigma, epochs_left=epochs_left)
        _check.positive(least=least)
        self._least = least

    def _value(self, run: CallbackView) -> float:
        if run.sample_rate is None:
            raise ArgumentError("AdaptiveBatch needs a run with a sample_rate")
        return run.sample_rate

    def _steps(self, run: CallbackView, start: float) -> int:
        return max(1, round(self._epoch * round(1 / self._value(run)) / round(1 / start)))

    def _adapt(self, run: CallbackView, start: float, *, grown: bool) -> None:
        now = self._value(run)
        if not grown:
            run.sample_rate = min(start, now + self._by)
        elif self._may_save(run, start):
            run.sample_rate = min(now, max(self._least, now - self._by))


class ReduceNoiseOnPlateau(Adaptive):
    """Less noise whenever the noisy count has not grown significantly: for fine-tuning that begins with much noise.

    Args:
        by: public. What is taken off the noise multiplier.
        least: public. The noise multiplier never falls below this.
        every, epoch, sigma: as in ``AdaptiveNoise``.

    Guarantee: the decisions use noisy counts only, each charged as a Gaussian of sensitivity 1.
    Source: Lécuyer (2021), section 5.2, where the noise begins at 2.0.
    """

    def __init__(self, *, by: float = 0.1, least: float, every: int = 1, epoch: int, sigma: float = 100.0) -> None:
        super().__init__(by=by, every=every, epoch=epoch, sigma=sigma)
        _check.positive(least=least)
        self._least = least

    def _adapt(self, run: CallbackView, start: float, *, grown: bool) -> None:
        if not grown:
            run.noise_multiplier = min(run.noise_multiplier, max(self._least, run.noise_multiplier - self._by))
