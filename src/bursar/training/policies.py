"""Policies: what to do next, decided from what was released so far. Each is a callback of a run.

A policy reads what is public in the run, sets ``noise_multiplier`` or ``sample_rate`` for the next step, asks a
question that is paid for (``run.noisy_sum``), or stops. The guarantee holds whatever a policy does: that is what
filters are for. What it remembers it keeps in ``run.history`` by its class's name, and so in checkpoints: a run has one
of each class at most. A policy of your own is a function:

    def halve_at_the_end(run):
        if run.step == run.steps - 100:
            run.noise_multiplier /= 2

Source: Lécuyer (2021), section 5; Andrew et al. (2021), for the clip; theory 1.2, 4.1 (each step's parameters may
depend on all earlier outputs)
"""

from math import exp

from bursar import _check
from bursar.errors import ArgumentError
from bursar.mechanisms import Gaussian, Mechanism, Repeated
from bursar.odometers import Odometer
from bursar.training._evaluation import correct
from bursar.training._run import Run

__all__ = ["AdaptiveBatch", "AdaptiveClip", "AdaptiveNoise", "DecreasingNoise", "EarlyStopping", "ReduceNoiseOnPlateau"]

CLIP_RANGE = 1e6
"""The clip stays within this factor of where it began."""

DEVIATIONS = 3.0
"""A noisy count has grown significantly if it grew by so many standard deviations of its noise."""


class _Adaptive:
    """Every so many epochs: how many training examples are right, and has the noisy count grown significantly?"""

    def __init__(self, *, by: float, every: int, epoch: int, sigma: float) -> None:
        _check.positive(by=by, sigma=sigma)
        _check.whole(1, every=every, epoch=epoch)
        self._by, self._sigma, self._epoch = by, sigma, epoch
        self._every = every * epoch

    def __call__(self, run: Run) -> None:
        """Ask when a look is due, and adapt; the first look has nothing to compare with."""
        memory = run.history.setdefault(type(self).__name__, [])  # [value at the start, count, count, ...]
        if not memory:
            memory.append(self._value(run))
        if run.step == 0 or run.step % self._every or run.reason is not None:
            return
        memory.append(run.noisy_sum(correct, sigma=self._sigma, name="correct"))
        if len(memory) > 2:
            self._adapt(run, memory[0], grown=memory[-1] - memory[-2] >= DEVIATIONS * self._sigma)

    def _value(self, run: Run) -> float:
        return run.noise_multiplier

    def _adapt(self, run: Run, start: float, *, grown: bool) -> None:
        raise NotImplementedError


class AdaptiveNoise(_Adaptive):
    """More noise, so a cheaper step, while training gets better; less again, down to where it began, when it stalls.

    Args:
        by: public. What is added to the noise multiplier after a significant increase, and taken off after none.
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
        super().__init__(by=by, every=every, epoch=epoch, sigma=sigma)
        _check.whole(0, epochs_left=epochs_left)
        self._epochs_left = epochs_left

    def _adapt(self, run: Run, start: float, *, grown: bool) -> None:
        if not grown:
            run.noise_multiplier = max(start, run.noise_multiplier - self._by)
        elif _more_are_possible(run, self._epochs_left * self._epoch):
            run.noise_multiplier += self._by


class AdaptiveBatch(_Adaptive):
    """Smaller batches, so a cheaper step, while training gets better; larger again, up to where it began, if it stalls.

    Args:
        by: public. What is taken off the sample rate after a significant increase, and added after none.
        every, epoch, sigma, epochs_left: as in ``AdaptiveNoise``.
        least: public. The sample rate never falls below this.

    Guarantee: the decisions use noisy counts only, each charged as a Gaussian of sensitivity 1.
    Source: Lécuyer (2021), section 5.1.
    """

    def __init__(
        self, *, by: float, least: float, every: int = 10, epoch: int, sigma: float = 100.0, epochs_left: int = 50
    ) -> None:
        super().__init__(by=by, every=every, epoch=epoch, sigma=sigma)
        _check.positive(least=least)
        _check.whole(0, epochs_left=epochs_left)
        self._least, self._epochs_left = least, epochs_left

    def _value(self, run: Run) -> float:
        if run.sample_rate is None:
            raise ArgumentError("AdaptiveBatch needs a run with a sample_rate")
        return run.sample_rate

    def _adapt(self, run: Run, start: float, *, grown: bool) -> None:
        now = self._value(run)
        if not grown:
            run.sample_rate = min(start, now + self._by)
        elif _more_are_possible(run, self._epochs_left * self._epoch):
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

    def _adapt(self, run: Run, start: float, *, grown: bool) -> None:
        if not grown:
            run.noise_multiplier = min(run.noise_multiplier, max(self._least, run.noise_multiplier - self._by))


def _more_are_possible(run: Run, steps: int) -> bool:
    """Whether more than so many steps are possible as they are now."""
    return run.can_take(run.next_step(), steps + 1)


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

    def __call__(self, run: Run) -> None:
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

    def __call__(self, run: Run) -> None:
        """Lower the noise when it is due."""
        if run.step and run.step % self._every == 0:
            run.noise_multiplier = max(self._least, run.noise_multiplier * self._factor)


class EarlyStopping:
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
        _check.positive(sigma=sigma)
        _check.whole(1, every=every)
        if not isinstance(odometer, Odometer) or odometer.count:
            raise ArgumentError(f"odometer={odometer!r} must be a fresh odometer")
        self._target, self._patience, self._every, self._sigma = target, patience, every, sigma
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

    def began(self, run: Run) -> None:
        """Refuse a run whose steps, or questions, the odometer has no price for, before anybody is charged."""
        self._odometer.check(run.next_step())
        self._odometer.check(Gaussian(self._sigma, 1.0))

    def __call__(self, run: Run) -> None:
        """Ask when a look is due, and stop when the counts say so."""
        if self._run not in (None, run):
            raise ArgumentError("EarlyStopping: its odometer is that of another run; make a fresh one for each run")
        self._run = run
        _ = self.odometer  # also when the question is refused
        if run.step and run.step % self._every == 0:
            counts = run.history.setdefault(type(self).__name__, [])
            counts.append(run.noisy_sum(correct, sigma=self._sigma, name="correct"))
            self._decide(run, counts)
        _ = self.odometer

    def _decide(self, run: Run, counts: list[float]) -> None:
        """Stop at the target by three standard deviations, or after too many looks without a significant increase."""
        margin = DEVIATIONS * self._sigma
        if self._target is not None and counts[-1] - margin >= self._target:
            run.stop(f"{self._target:g} are right")
            return
        reference, waited = counts[0], 0
        for count in counts[1:]:
            waited += 1
            if count - reference >= margin:
                reference, waited = count, 0
        if self._patience is not None and waited >= self._patience:
            run.stop(f"no significant increase in {waited:d} looks")
