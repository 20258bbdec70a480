"""Callbacks: progress, accuracy on public records, learning-rate schedules, averages of iterates."""

from copy import deepcopy

from rich.progress import Progress as Bar
from rich.progress import TaskID

from almoner import _check, _extras
from almoner.errors import ArgumentError

with _extras.need("torch", extra="torch"):
    import torch
    from torch import Tensor, nn
    from torch.optim.lr_scheduler import LRScheduler, ReduceLROnPlateau

from almoner.training._records import correct, values_by_record
from almoner.training._run.callback_view import CallbackView
from almoner.training.gradients import Batch
from almoner.training.gradients._batches import as_inputs

__all__ = ["Evaluation", "MovingAverage", "Progress", "Schedule"]


class Progress:
    """A progress bar. It shows the number of steps and the time, which are public, and nothing else."""

    def __init__(self) -> None:
        self._bar = Bar(transient=True)
        self._task: TaskID | None = None

    def __call__(self, run: CallbackView) -> None:
        """Show the number of steps done."""
        if self._task is None:
            self._task = self._bar.add_task("training", total=run.last)
            self._bar.start()
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
            right = values_by_record(run.module, self._batch, self._targets, correct)
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
