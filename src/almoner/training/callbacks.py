"""Callbacks: progress, accuracy, logs, schedules, averages of iterates; and policies, which decide what to do next.

A row of a log has the step, the last step of the plan, the learning rate, the noise multiplier, the sample rate, and
what was asked for at this step, with its noise: answers of ``noisy_sum`` and accuracies of ``Evaluation``.

A policy reads what is public in the run, sets ``noise_multiplier`` or ``sample_rate`` for the next step, asks a
question that is paid for (``run.noisy_sum``), or stops. The guarantee holds whatever a policy does: that is what
filters are for. What it remembers it keeps in ``run.history`` by its class's name, and so in the folder: a run has one
of each class at most. A policy of your own is a function of the run: see docs/training/watch-and-stop.md.

Source: Lécuyer (2021), section 5; Andrew et al. (2021), for the clip; theory 1.2, 4.1 (each step's parameters may
depend on all earlier outputs)
"""

import csv
import json
from copy import deepcopy
from math import exp
from pathlib import Path
from typing import Any, cast

from rich.progress import Progress as Bar
from rich.progress import TaskID

from almoner import _check, _extras
from almoner._units import shown
from almoner.errors import ArgumentError
from almoner.mechanisms import Gaussian, Mechanism, Repeated
from almoner.odometers import Odometer

with _extras.need("torch", extra="torch"):
    import torch
    from torch import Tensor, nn
    from torch.optim.lr_scheduler import LRScheduler, ReduceLROnPlateau

from almoner.training._card import Boundary, worst_case
from almoner.training._records import correct, values_by_record
from almoner.training._run.callback_view import CallbackView
from almoner.training._run.settings import fresh_odometer
from almoner.training.gradients._batches import Batch, as_inputs

__all__ = [
    "AdamBC", "AdaptiveClip", "DecreasingNoise", "EarlyStopping", "Evaluation", "Log", "MovingAverage", "Progress",
    "Schedule", "TensorBoard",
]  # fmt: skip

CLIP_RANGE = 1e6  # the clip stays within this factor of where it began
DEVIATIONS = 3.0  # a noisy count is significant if so far above the largest significant one before it


class Progress:
    """A progress bar. It shows the number of steps and the time, which are public, and what was spent so far.

    Args:
        odometer: public, fresh. Its bound for a person who pays the most in all that was released so far is shown.
    """

    def __init__(self, odometer: Boundary | None = None) -> None:
        self._bar, self._odometer = Bar(transient=True), None if odometer is None else fresh_odometer(odometer)
        self._task: TaskID | None = None

    def __call__(self, run: CallbackView) -> None:
        """Show the number of steps done."""
        if self._task is None:
            self._task = self._bar.add_task("training", total=run.last)
            self._bar.start()
        if self._odometer is not None:
            epsilon = worst_case(self._odometer, run.released).epsilon()
            self._bar.update(self._task, description=f"training, epsilon at most {shown(epsilon, 3)} so far")
        self._bar.update(self._task, completed=run.step)

    def ended(self, _: CallbackView) -> None:
        """Remove the bar."""
        self._bar.stop()


class Evaluation:
    """Accuracy on PUBLIC held-out records, every so many steps; kept in ``run.history["accuracy"]`` as (step, share).

    Args:
        inputs, targets: public records. For private ones use ``CallbackView.noisy_sum``, which is paid for.
        every: steps between two looks.
    """

    def __init__(self, inputs: Batch, targets: Tensor, *, every: int = 10) -> None:
        _check.whole(1, every=every)
        self._batch, self._targets, self._every = as_inputs(inputs), targets, every

    def __call__(self, run: CallbackView) -> None:
        """Compute the accuracy when a look is due."""
        if run.step % self._every == 0 or run.step == run.last:
            right = values_by_record(run.module, self._batch, self._targets, correct, public=True)
            run.history.setdefault("accuracy", []).append((run.step, float(right.mean())))


class Schedule:
    """A learning-rate schedule of PyTorch, which takes a step after each step of the training.

    Args:
        scheduler: public. Of the trainer's optimizer: ``CosineAnnealingLR(optimizer, T_max=steps)``. Its state is kept
            in ``run.history["schedule"]``, so that a resumed run goes on with it.

    Guarantee: costs nothing: rates are functions of the number of steps.
    Source: theory 2.1 (post-processing).
    """

    def __init__(self, scheduler: LRScheduler) -> None:
        if not isinstance(scheduler, LRScheduler) or isinstance(scheduler, ReduceLROnPlateau):
            raise ArgumentError(
                f"scheduler={type(scheduler).__name__} must be one of torch.optim.lr_scheduler that needs no loss: "
                "a loss of the records is private"
            )
        self._scheduler = scheduler
        self._step: int | None = None

    def began(self, run: CallbackView) -> None:
        """Go on where a resumed run was."""
        if self._scheduler.optimizer is not run.optimizer:
            raise ArgumentError("scheduler must be of the trainer's optimizer")
        self._step = run.step
        if "schedule" in run.history:
            self._scheduler.load_state_dict(dict(run.history["schedule"]))
            self._step = -1  # it is called with steps that it has not seen

    def __call__(self, run: CallbackView) -> None:
        """Take a step of the schedule after a step of the training."""
        if self._step is None:
            self.began(run)
        if self._step is not None and run.step > self._step:
            self._scheduler.step()
        self._step = run.step
        state = self._scheduler.state_dict()
        run.history["schedule"] = {name: state[name] for name in state if isinstance(state[name], int | float | list)}


class AdamBC(torch.optim.Optimizer):
    """Adam without the noise in its second moment, whose variance is known and subtracted (DP-AdamBC).

    Where what Adam is given is noise for the most part, it divides all coordinates by one number, as plain descent.

    Args:
        params, lr, betas, weight_decay: public. As of ``torch.optim.AdamW``. A trainer tells it the noise of each step.
        floor: public, > 0. The least mean square, in units of the noise's variance.

    Guarantee: costs nothing: it sees noisy sums and public numbers.
    Source: theory 2.1 (post-processing); Tang, Shpilevskiy & Lécuyer (2024), https://arxiv.org/abs/2312.14334, Alg. 1
    """

    def __init__(
        self,
        params: Any,
        lr: float = 1e-3,
        *,
        betas: Any = (0.9, 0.999),
        floor: float = 0.01,
        weight_decay: float = 0.0,
    ) -> None:
        _check.positive(lr=lr, floor=floor)
        super().__init__(params, {"lr": lr, "betas": betas, "floor": floor, "weight_decay": weight_decay})
        self._noise: float | None = None

    def __call__(self, run: CallbackView) -> None:
        """Take note of the noise of the next step, as a callback of the run."""
        if run._settings.batches is not None:
            raise ArgumentError("AdamBC: the noise of FixedBatches is correlated: take another optimizer")
        self._noise = run.noise_multiplier * run.max_grad_norm / run.divisor

    began = __call__  # also of a resumed run

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:  # type: ignore[override]
        """Take a step along the noisy gradients; a closure, which brings them, is called first."""
        if closure is not None:
            with torch.enable_grad():
                closure()
        for group in self.param_groups:
            (first, second), rate = group["betas"], group["lr"]
            for parameter in (each for each in group["params"] if each.grad is not None):
                if self._noise is None:
                    raise ArgumentError("AdamBC: nobody said how much noise there is: use it in training.Trainer")
                state, zero = self.state[parameter], torch.zeros_like(parameter)
                mean, square = state.get("mean", zero), state.get("square", zero)
                mean, square = mean.lerp(parameter.grad, 1 - first), square.lerp(parameter.grad.square(), 1 - second)
                noise, step = state.get("noise", 0.0) * second + self._noise**2 * (1 - second), state.get("step", 0) + 1
                state |= {"mean": mean, "square": square, "noise": noise, "step": step}
                debiased = (square - noise).clamp(min=group["floor"] * noise) / (1 - second**step)
                parameter.mul_(1 - rate * group["weight_decay"])
                parameter.addcdiv_(mean / (1 - first**step), debiased.sqrt(), value=-rate)


class MovingAverage:
    """An exponential moving average of the iterates, in ``module``: less noisy than the last iterate.

    Args:
        decay: public, in [0, 1). The weight of the past after step t is the smaller of this and (1 + t) / (10 + t).

    The average is kept in ``run.history["moving average"]``, so that a resumed run goes on with it.

    Guarantee: costs nothing: it is made of iterates, which are all released.
    Source: theory 2.1 (post-processing); De et al. (2022), https://arxiv.org/abs/2204.13650.
    """

    def __init__(self, decay: float = 0.999) -> None:
        _check.number(decay=decay)
        if not 0 <= decay < 1:
            raise ArgumentError(f"decay={decay!r} must be in [0, 1)")
        self._decay, self._step = float(decay), -1
        self._module: nn.Module | None = None

    @property
    def module(self) -> nn.Module:
        """The averaged module, a copy: for predictions. Public."""
        if self._module is None:
            raise ArgumentError("module: there is no average yet: give this callback to fit first")
        return self._module

    def began(self, run: CallbackView) -> None:
        """Begin with the module as it is, or with the average of a resumed run."""
        averaged = run.history.get("moving average", {})
        self._module, self._step = deepcopy(run.module), -1 if averaged else run.step
        with torch.no_grad():
            for name, parameter in self._module.named_parameters():
                parameter.copy_(averaged.get(name, parameter))

    def __call__(self, run: CallbackView) -> None:
        """Take an iterate into the average."""
        averaged = run.history.setdefault("moving average", {})
        if self._module is None:
            self.began(run)
        if run.step > self._step:
            decay = min(self._decay, (1 + run.step) / (10 + run.step))
            with torch.no_grad():
                for mean, now in zip(self.module.parameters(), run.module.parameters(), strict=True):
                    mean.lerp_(now.to(mean.dtype), 1 - decay)
            self._step = run.step
        averaged.update({name: each.detach().clone() for name, each in self.module.named_parameters()})


def _row(run: CallbackView) -> dict[str, Any]:
    """The public facts of this step, by name."""
    row: dict[str, Any] = {
        "step": run.step,
        "last": run.last,
        "learning_rate": float(run.optimizer.param_groups[0]["lr"]),
        "noise_multiplier": run.noise_multiplier,
        "sample_rate": run.sample_rate,
    }
    results = [*run.answers, *((step, "accuracy", share) for step, share in run.history.get("accuracy", []))]
    return row | {name: value for step, name, value in results if step == run.step}


class Log:
    """A callback that writes a row after every so many steps: CSV, or JSON in lines, by the name of the file.

    Give it after the callbacks whose answers it is to show. A resumed run goes on in the same file.

    Args:
        path: public: the file, ``.csv`` or ``.jsonl``.
        names: public. Answers that get a column in a CSV file; JSON holds all.
        every: public. Steps between two rows.

    Guarantee: it holds what is released in any case, and costs nothing; an answer is paid for when it is asked.
    Source: theory 2.1 (post-processing).
    """

    COLUMNS = ("step", "last", "learning_rate", "noise_multiplier", "sample_rate", "accuracy")

    def __init__(self, path: str | Path, *, names: tuple[str, ...] = (), every: int = 1) -> None:
        self._path = Path(path)
        if self._path.suffix not in (".csv", ".jsonl"):
            raise ArgumentError(f"path={str(path)!r} must end in .csv or .jsonl")
        _check.whole(1, every=every)
        self._names, self._every, self._begun = (*self.COLUMNS, *names), every, False

    def began(self, run: CallbackView) -> None:
        """Refuse the log of another run, and note in the run's history, and so in its folder, that this one is its."""
        with self._path.open("a") as file:
            if file.tell() and not run.step and f"log {self._path}" not in run.history:
                raise ArgumentError(f"path={str(self._path)!r} exists already: the log of another run")
        run.history[f"log {self._path}"] = self._begun = True

    def __call__(self, run: CallbackView) -> None:
        """Write a row, when one is due."""
        if not self._begun:
            self.began(run)
        if run.step and (run.step % self._every == 0 or run.step == run.last or run.reason is not None):
            with self._path.open("a", newline="", encoding="utf-8") as file:
                if self._path.suffix == ".jsonl":
                    file.write(json.dumps(_row(run)) + "\n")
                    return
                table = csv.DictWriter(file, self._names, extrasaction="ignore")
                if not file.tell():
                    table.writeheader()
                table.writerow(_row(run))


class TensorBoard:
    """A callback that shows the same numbers on TensorBoard, or on anything that has ``add_scalar``.

    Args:
        writer: ``torch.utils.tensorboard.SummaryWriter(folder)``, of the package ``tensorboard``.

    Guarantee: as ``Log``.
    Source: theory 2.1 (post-processing).
    """

    def __init__(self, writer: Any) -> None:
        if not callable(getattr(writer, "add_scalar", None)):
            raise ArgumentError(f"writer={type(writer).__name__} must have add_scalar, as a SummaryWriter has")
        self._writer = writer

    def __call__(self, run: CallbackView) -> None:
        """Show this step."""
        for name, value in _row(run).items():
            if isinstance(value, int | float) and name not in ("step", "last"):
                self._writer.add_scalar(name, value, run.step)


class Looks:
    """Looks at a noisy count of right answers, one every so many steps, and a memory of when it last grew.

    The memory, in ``run.history`` under the class's name: step and count of the last look, the largest significant
    count so far (0 before the first look, so a first count of any size is growth), and the looks since it was found.
    """

    def __init__(self, *, every: int, sigma: float) -> None:
        _check.positive(sigma=sigma)
        _check.whole(1, every=every)
        self._every, self._sigma = every, sigma

    def _memory(self, run: CallbackView) -> dict[str, float]:
        fresh = {"step": 0, "count": 0.0, "largest": 0.0, "waited": 0}
        return cast(dict[str, float], run.history.setdefault(type(self).__name__, fresh))

    def _look(self, run: CallbackView, memory: dict[str, float], steps: int) -> bool:
        """Ask if so many steps were done since the last look; False: they were not, or the run was stopped."""
        if run.step - memory["step"] < steps or run.reason is not None:
            return False
        memory["count"] = run.noisy_sum(correct, sigma=self._sigma, name="correct")
        memory["step"] = run.step  # last: a run that was stopped while it counted asks again when it goes on
        if memory["count"] - memory["largest"] >= DEVIATIONS * self._sigma:
            memory["largest"], memory["waited"] = memory["count"], 0
        else:
            memory["waited"] += 1
        return True


class AdaptiveClip:
    """A clip that follows a quantile of people's gradient norms, so that a bad first clip does no lasting harm.

    Every so many steps it asks how many gradients were longer than the clip, and multiplies the clip by exp(-rate
    (share that was not longer - quantile)). The noise is a multiple of the clip and follows it, so a step costs a
    person whose gradient is clipped the same, whatever the clip is. Runs of samples or fixed batches are refused.

    Args:
        quantile: public, in (0, 1). The share of people whose gradients should not be clipped. The gradients of most
            people vanish as a classifier gets good, and a clip that follows their median vanishes with them.
        rate: public. How fast the clip moves: it falls by at most a factor of exp(-rate (1 - quantile)) at a time, and
            grows by at most exp(rate quantile).
        every: public. Steps between two questions.
        sigma: public. The noise on the count; None: a twentieth of ``run.divisor``.

    Guarantee: the clip is computed from noisy counts only, each charged as a Gaussian of sensitivity 1 to the people
        whose gradients were longer than the clip.
    Source: Andrew et al. (2021), Differentially Private Learning with Adaptive Clipping, Algorithm 1; theory 2.1, 5.1.
    """

    def __init__(self, *, quantile: float = 0.8, rate: float = 0.2, every: int = 1, sigma: float | None = None) -> None:
        _check.between(0, 1, quantile=quantile)
        _check.positive(rate=rate, **({} if sigma is None else {"sigma": sigma}))
        _check.whole(1, every=every)
        self._quantile, self._rate, self._every, self._sigma = quantile, rate, every, sigma

    def began(self, run: CallbackView) -> None:
        """Leave out the question after the step that a resumed run stands at: its gradients are gone."""
        if type(self).__name__ in run.history:
            run.history[type(self).__name__][1] = run.step

    def __call__(self, run: CallbackView) -> None:
        """Ask when it is due, and move the clip."""
        if run.sample_rate is not None:
            raise ArgumentError("AdaptiveClip needs every person in every step: a run without sample_rate")
        memory = run.history.setdefault(type(self).__name__, [run.max_grad_norm, 0])  # [clip at the start, last asked]
        if run.step in (memory[1], run.last) or run.step % self._every or run.reason is not None:
            return
        memory[1] = run.step
        longer = run.count_clipped(sigma=run.divisor / 20 if self._sigma is None else self._sigma) / run.divisor
        clip = run.max_grad_norm * exp(-self._rate * (1.0 - min(1.0, max(0.0, longer)) - self._quantile))
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


class EarlyStopping(Looks):
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
        _check.given(_check.positive, target=target)
        _check.given(_check.whole, 1, patience=patience)
        super().__init__(every=every, sigma=sigma)
        if not isinstance(odometer, Odometer) or odometer.count:
            raise ArgumentError(f"odometer={odometer!r} must be a fresh odometer")
        self._target, self._patience, self._odometer = target, patience, odometer
        self._run: CallbackView | None = None
        self._charged: dict[Mechanism, int] = {}

    @property
    def odometer(self) -> Odometer:
        """The odometer, charged for everything that was released until now."""
        for mechanism, times in ({} if self._run is None else self._run.released).items():
            if more := times - self._charged.get(mechanism, 0):
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
            if self._target is not None and memory["count"] - DEVIATIONS * self._sigma >= self._target:
                run.stop(f"{self._target:g} are right")
            elif self._patience is not None and memory["waited"] >= self._patience:
                run.stop(f"no significant increase in {memory['waited']:.0f} looks")
        _ = self.odometer
