"""Callbacks that look on: a progress bar, accuracy on public records, and losses for reports by group."""

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray
from rich.progress import Progress as Bar
from rich.progress import TaskID

from bursar import _check, _extras

with _extras.need("torch", extra="torch"):
    from torch import Tensor, nn

from bursar.training._evaluation import correct, means_by_person, values_by_record
from bursar.training._run import Run
from bursar.training.gradients import Batch

__all__ = ["Evaluation", "Progress", "module_measure"]


class Progress:
    """A progress bar. It shows the number of steps and the time, which are public, and nothing else."""

    def __init__(self) -> None:
        self._bar = Bar(transient=True)
        self._task: TaskID | None = None

    def __call__(self, run: Run) -> None:
        """Show the number of steps done."""
        if self._task is None:
            self._task = self._bar.add_task("training", total=run.last)
            self._bar.start()
        self._bar.update(self._task, completed=run.step)

    def ended(self, _: Run) -> None:
        """Remove the bar."""
        self._bar.stop()


class Evaluation:
    """Accuracy on PUBLIC held-out records, every so many steps; kept in ``run.history["accuracy"]`` as (step, share).

    Args:
        inputs, targets: public records. For private ones use ``Run.noisy_sum``, which is paid for.
        every: steps between two looks.
    """

    def __init__(self, inputs: Batch, targets: Tensor, *, every: int = 10) -> None:
        _check.whole(1, every=every)
        self._batch = (inputs,) if isinstance(inputs, Tensor) else tuple(inputs)
        self._targets, self._every = targets, every

    def __call__(self, run: Run) -> None:
        """Compute the accuracy when a look is due."""
        if run.step % self._every == 0 or run.step == run.last:
            right = values_by_record(run.module, self._batch, self._targets, correct)
            run.history.setdefault("accuracy", []).append((run.step, float(right.mean())))


def module_measure(
    inputs: Batch, targets: Tensor, loss: Callable[[Tensor, Tensor], Tensor], people: Tensor | None = None
) -> Callable[[nn.Module], tuple[NDArray[np.float64], NDArray[np.float64]]]:
    """Losses and right answers of a classifier, for ``groups.Audience``; both private where the records are.

    Args:
        inputs, targets, people: as for ``Trainer.fit``; people's values are means over their records.
        loss: one number for each record.
    """
    batch = (inputs,) if isinstance(inputs, Tensor) else tuple(inputs)
    count = len(targets) if people is None else int(people.max()) + 1

    def measure(module: nn.Module) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        losses, right = (values_by_record(module, batch, targets, values) for values in (loss, correct))
        return means_by_person(losses, people, count), means_by_person(right, people, count)

    return measure
