"""Policies: what to do next, decided from what was released so far. Each is a callback of a run.

A policy reads what is public in the run, sets ``noise_multiplier`` or ``sample_rate`` for the next step, asks a
question that is paid for (``run.noisy_sum``), or stops. The guarantee holds whatever a policy does: that is what
filters are for. What it remembers it keeps in ``run.history`` by its class's name, and so in checkpoints: a run has one
of each class at most. A policy of your own is a function:

    def halve_at_the_end(run):
        if run.step == run.steps - 100:
            run.noise_multiplier /= 2

Source: Lécuyer (2021), section 5; theory 1.2, 4.1 (each step's parameters may depend on all earlier outputs)
"""

from math import sqrt

from bursar import _check
from bursar.errors import ArgumentError
from bursar.mechanisms import Mechanism, Repeated
from bursar.odometers import Odometer
from bursar.training._evaluation import correct
from bursar.training._run import Run

__all__ = ["AdaptiveBatch", "AdaptiveNoise", "DecreasingNoise", "EarlyStopping"]

DEVIATIONS = 3.0
"""A noisy count is more than another if it is larger by so many standard deviations of their difference."""


class _Adaptive:
    """Every so many epochs: how many training examples are right? If no more than last time, pay more for a step."""

    def __init__(
        self,
        *,
        by: float,
        every: int,
        epoch: int,
        least: float,
        sigma: float = 100.0,
        epochs_left: int = 50,
    ) -> None:
        _check.positive(by=by, least=least, sigma=sigma)
        _check.whole(1, every=every, epoch=epoch)
        _check.whole(0, epochs_left=epochs_left)
        self._by, self._least, self._sigma = by, least, sigma
        self._every, self._epoch, self._epochs_left = every * epoch, epoch, epochs_left

    def __call__(self, run: Run) -> None:
        """Ask when a look is due, and adapt."""
        memory = run.history.setdefault(type(self).__name__, [])  # [baseline, count, count, ...]
        if not memory:
            memory.append(self._value(run))
        if run.step == 0 or run.step % self._every or run.reason is not None:
            return
        memory.append(run.noisy_sum(correct, sigma=self._sigma, name="correct"))
        if len(memory) < 3:
            return
        better = memory[-1] - memory[-2] > DEVIATIONS * sqrt(2.0) * self._sigma
        self._adapt(run, memory[0], better)

    def _value(self, run: Run) -> float:
        raise NotImplementedError

    def _adapt(self, run: Run, baseline: float, better: bool) -> None:
        raise NotImplementedError

    def _enough_left(self, run: Run, step: Mechanism) -> bool:
        """Whether so many epochs of such steps are still possible."""
        return run.can_take(step, self._epochs_left * self._epoch)


class AdaptiveNoise(_Adaptive):
    """Less noise when training stalls, more again, up to where it began, when it does not.

    Args:
        by: public. What is taken off the noise multiplier, or added to it.
        every: public. Epochs between two looks.
        epoch: public. Steps of an epoch.
        least: public. The noise multiplier never falls below this.
        sigma: public. The noise on the count of right answers, which is charged to the accounts.
        epochs_left: public. The noise is lowered only while at least so many epochs remain at the lower noise.

    Guarantee: the decisions use noisy counts only, each charged as a Gaussian of sensitivity 1.
    Source: Lécuyer (2021), section 5.
    """

    def _value(self, run: Run) -> float:
        return run.noise_multiplier

    def _adapt(self, run: Run, baseline: float, better: bool) -> None:
        if better:
            run.noise_multiplier = min(baseline, run.noise_multiplier + self._by)
            return
        lower = max(self._least, run.noise_multiplier - self._by)
        if self._enough_left(run, run.next_step(noise_multiplier=lower)):
            run.noise_multiplier = lower


class AdaptiveBatch(_Adaptive):
    """Smaller batches while training gets better, larger again, up to where it began, when it stalls.

    Args:
        by: public. What is taken off the sample rate, or added to it.
        every, epoch, sigma: as in ``AdaptiveNoise``.
        least: public. The sample rate never falls below this.
        epochs_left: public. The rate is lowered only while at least so many epochs remain at the lower rate.

    Guarantee: the decisions use noisy counts only, each charged as a Gaussian of sensitivity 1.
    Source: Lécuyer (2021), section 5.
    """

    def _value(self, run: Run) -> float:
        if run.sample_rate is None:
            raise ArgumentError("AdaptiveBatch needs a run with a sample_rate")
        return run.sample_rate

    def _adapt(self, run: Run, baseline: float, better: bool) -> None:
        now = self._value(run)
        if not better:
            run.sample_rate = min(baseline, now + self._by)
            return
        lower = max(self._least, now - self._by)
        if self._enough_left(run, run.next_step(sample_rate=lower)):
            run.sample_rate = lower


class DecreasingNoise:
    """Noise that falls by a factor every so many steps: for fine-tuning, where the last steps matter most.

    Args:
        factor: public, in (0, 1).
        every: public. Steps.
        least: public. The noise multiplier never falls below this.
    """

    def __init__(self, *, factor: float, every: int, least: float) -> None:
        _check.between(0, 1, factor=factor)
        _check.positive(least=least)
        _check.whole(1, every=every)
        self._factor, self._every, self._least = factor, every, least

    def __call__(self, run: Run) -> None:
        """Lower the noise when it is due."""
        if run.step and run.step % self._every == 0:
            run.noise_multiplier = max(self._least, run.noise_multiplier * self._factor)


class EarlyStopping:
    """Stops when enough training examples are right, and says what was spent by then.

    Args:
        target: public. How many must be right.
        every: public. Steps between two looks.
        odometer: public. A fresh odometer; it is charged the worst case of everything that is released. After the run
            ``.odometer.ex_post_epsilon()`` says what the model cost, which is less than the budget where it stopped
            early; the attribute is up to date whatever other callbacks have asked since.
        sigma: public. The noise on the count, which is charged to the accounts.

    Guarantee: the odometer's, at the time of stopping, for every person.
    Source: theory 6.1 to 6.3; Lécuyer (2021), section 5.
    """

    def __init__(self, *, target: float, every: int, odometer: Odometer, sigma: float = 100.0) -> None:
        _check.positive(target=target, sigma=sigma)
        _check.whole(1, every=every)
        if not isinstance(odometer, Odometer) or odometer.count:
            raise ArgumentError(f"odometer={odometer!r} must be a fresh odometer")
        self._target, self._every, self._sigma = target, every, sigma
        self._odometer = odometer
        self._run: Run | None = None
        self._charged: dict[Mechanism, int] = {}

    @property
    def odometer(self) -> Odometer:
        """The odometer, charged for everything that was released until now."""
        released = {} if self._run is None else self._run.released
        for mechanism, times in released.items():
            more = times - self._charged.get(mechanism, 0)
            if more:
                self._odometer.charge(Repeated(mechanism, more))
                self._charged[mechanism] = times
        return self._odometer

    def __call__(self, run: Run) -> None:
        """Ask when a look is due; stop when the count is above the target by three standard deviations."""
        if self._run not in (None, run):
            raise ArgumentError("EarlyStopping: its odometer is that of another run; make a fresh one for each run")
        self._run = run
        _ = self.odometer  # also when the question is refused
        if run.step and run.step % self._every == 0:
            count = run.noisy_sum(correct, sigma=self._sigma, name="correct")
            if count - DEVIATIONS * self._sigma >= self._target:
                run.stop(f"{self._target:g} are right")
        _ = self.odometer
