"""Policies: what to do next, decided from what was released so far. Each is a callback of a run.

A policy reads what is public in the run, sets ``noise_multiplier`` or ``sample_rate`` for the next step, asks a
question that is paid for (``run.noisy_sum``), or stops. The guarantee holds whatever a policy does: that is what
filters are for. What it remembers it keeps in ``run.history`` by its class's name, and so in the folder: a run has one
of each class at most. A policy of your own is a function:

    def halve_at_the_end(run):
        if run.step == run.steps - 100:
            run.noise_multiplier /= 2

Source: Lécuyer (2021), section 5; Andrew et al. (2021), for the clip; theory 1.2, 4.1 (each step's parameters may
depend on all earlier outputs)
"""

from math import exp

from almoner import _check
from almoner.errors import ArgumentError
from almoner.mechanisms import Gaussian, Mechanism, Repeated
from almoner.odometers import Odometer
from almoner.training._records import correct
from almoner.training._run.callback_view import CallbackView

__all__ = ["AdaptiveBatch", "AdaptiveClip", "AdaptiveNoise", "DecreasingNoise", "EarlyStopping", "ReduceNoiseOnPlateau"]

CLIP_RANGE = 1e6
"""The clip stays within this factor of where it began."""

DEVIATIONS = 3.0
"""A noisy count is significant if it is above the largest significant one so far by so many standard deviations."""


class _Looks:
    """Looks at a noisy count of right answers, one every so many steps, and a memory of when it last grew.

    The memory is in ``run.history`` under the class's name: the step and the count of the last look, the largest
    significant count so far (0 before the first look, so a first count of any size is growth), and the number of looks
    since it was found.
    """

    def __init__(self, *, every: int, sigma: float) -> None:
        _check.positive(sigma=sigma)
        _check.whole(1, every=every)
        self._every, self._sigma = every, sigma

    def _memory(self, run: CallbackView) -> dict[str, float]:
        fresh = {"step": 0, "count": 0.0, "largest": 0.0, "waited": 0}
        memory: dict[str, float] = run.history.setdefault(type(self).__name__, fresh)
        return memory

    def _look(self, run: CallbackView, memory: dict[str, float], steps: int) -> bool:
        """Ask if so many steps were done since the last look; False: they were not, or the run was stopped."""
        if run.step - memory["step"] < steps or run.reason is not None:
            return False
        memory["step"] = run.step
        memory["count"] = run.noisy_sum(correct, sigma=self._sigma, name="correct")
        if memory["count"] - memory["largest"] >= DEVIATIONS * self._sigma:
            memory["largest"], memory["waited"] = memory["count"], 0
        else:
            memory["waited"] += 1
        return True


class _Adaptive(_Looks):
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

    def _steps(self, run: CallbackView, start: float) -> int:  # noqa: ARG002 - policies that change the batch need both
        """Steps of an epoch as things are."""
        return self._epoch

    def _may_save(self, run: CallbackView, start: float) -> bool:
        """Tell whether more than so many epochs are possible as things are."""
        return run.can_take(run.next_step(), self._epochs_left * self._steps(run, start) + 1)

    def _adapt(self, run: CallbackView, start: float, *, grown: bool) -> None:
        raise NotImplementedError


class AdaptiveNoise(_Adaptive):
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


class AdaptiveBatch(_Adaptive):
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


class ReduceNoiseOnPlateau(_Adaptive):
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

    def _adapt(self, run: CallbackView, start: float, *, grown: bool) -> None:  # noqa: ARG002 - other policies need it
        if not grown:
            run.noise_multiplier = min(run.noise_multiplier, max(self._least, run.noise_multiplier - self._by))


class AdaptiveClip:
    """A clip that follows a quantile of people's gradient norms, so that a bad first clip does no lasting harm.

    Every so many steps it asks how many gradients were longer than the clip, and multiplies the clip by
    exp(-rate (share that was not longer - quantile)). The noise is a multiple of the clip and follows it, so a step
    costs a person whose gradient is clipped the same, whatever the clip is.

    Args:
        quantile: public, in (0, 1). The share of people whose gradients should not be clipped. The gradients of most
            people vanish as a classifier gets good, and a clip that follows their median vanishes with them.
        rate: public. How fast the clip moves: it falls by at most a factor of exp(-rate (1 - quantile)) at a time, and
            grows by at most exp(rate quantile).
        every: public. Steps between two questions.
        sigma: public. The noise on the count; None: a twentieth of ``run.divisor``.

    Raises:
        ArgumentError: an argument is out of its range, or the run samples people or has fixed batches.

    Guarantee: the clip is computed from noisy counts only, each charged as a Gaussian of sensitivity 1 to the people
        whose gradients were longer than the clip.
    Source: Andrew et al. (2021), Differentially Private Learning with Adaptive Clipping, Algorithm 1; theory 2.1, 5.1.
    """

    def __init__(self, *, quantile: float = 0.8, rate: float = 0.2, every: int = 1, sigma: float | None = None) -> None:
        _check.between(0, 1, quantile=quantile)
        _check.positive(rate=rate, **({} if sigma is None else {"sigma": sigma}))
        _check.whole(1, every=every)
        self._quantile, self._rate, self._every, self._sigma = quantile, rate, every, sigma

    def __call__(self, run: CallbackView) -> None:
        """Ask when it is due, and move the clip."""
        if run.sample_rate is not None:
            raise ArgumentError("AdaptiveClip needs every person in every step: a run without sample_rate")
        memory = run.history.setdefault(type(self).__name__, [run.max_grad_norm, 0])  # [clip at the start, last asked]
        if run.step in (memory[1], run.last) or run.step % self._every or run.reason is not None:
            return
        memory[1] = run.step
        count = run.count_clipped(sigma=run.divisor / 20 if self._sigma is None else self._sigma)
        not_longer = 1.0 - min(1.0, max(0.0, count / run.divisor))
        clip = run.max_grad_norm * exp(-self._rate * (not_longer - self._quantile))
        run.max_grad_norm = min(max(clip, memory[0] / CLIP_RANGE), memory[0] * CLIP_RANGE)


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

    def __call__(self, run: CallbackView) -> None:
        """Lower the noise when it is due."""
        if run.step and run.step % self._every == 0:
            run.noise_multiplier = max(self._least, run.noise_multiplier * self._factor)


class EarlyStopping(_Looks):
    """Stops when enough training examples are right, or when no more get right, and says what was spent by then.

    Args:
        target: public. How many must be right; None for no target.
        patience: public. The run stops once the count has not grown significantly (by three standard deviations of its
            noise) in so many looks since it last did; None: it does not stop for that.
        every: public. Steps between two looks.
        odometer: public. A fresh odometer; it is charged the worst case of everything that is released. After the run
            ``.odometer.ex_post_epsilon()`` says what the model cost, which is less than the budget where it stopped
            early; the attribute is up to date whatever other callbacks have asked since.
        sigma: public. The noise on the count, which is charged to the accounts.

    Raises:
        ArgumentError: neither a target nor a patience is given, or an argument is out of its range.

    Guarantee: the odometer's, at the time of stopping, for every person.
    Source: theory 6.1 to 6.3; Lécuyer (2021), section 5.2.
    """

    def __init__(
        self,
        *,
        target: float | None = None,
        patience: int | None = None,
        every: int,
        odometer: Odometer,
        sigma: float = 100.0,
    ) -> None:
        if target is None and patience is None:
            raise ArgumentError("EarlyStopping: give target=, patience= or both")
        if target is not None:
            _check.positive(target=target)
        if patience is not None:
            _check.whole(1, patience=patience)
        super().__init__(every=every, sigma=sigma)
        if not isinstance(odometer, Odometer) or odometer.count:
            raise ArgumentError(f"odometer={odometer!r} must be a fresh odometer")
        self._target, self._patience, self._odometer = target, patience, odometer
        self._run: CallbackView | None = None
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

    def began(self, run: CallbackView) -> None:
        """Refuse a run whose steps, or questions, the odometer has no price for, before anybody is charged."""
        self._odometer.check(run.next_step())
        self._odometer.check(Gaussian(self._sigma, 1.0))

    def __call__(self, run: CallbackView) -> None:
        """Ask when a look is due, and stop when the counts say so."""
        if self._run not in (None, run):
            raise ArgumentError("EarlyStopping: its odometer is that of another run; make a fresh one for each run")
        self._run = run
        _ = self.odometer  # also when the question is refused
        memory = self._memory(run)
        if self._look(run, memory, self._every):
            self._decide(run, memory)
        _ = self.odometer

    def _decide(self, run: CallbackView, memory: dict[str, float]) -> None:
        """Stop at the target by three standard deviations, or after too many looks without a significant increase."""
        if self._target is not None and memory["count"] - DEVIATIONS * self._sigma >= self._target:
            run.stop(f"{self._target:g} are right")
        elif self._patience is not None and memory["waited"] >= self._patience:
            run.stop(f"no significant increase in {memory['waited']:.0f} looks")
