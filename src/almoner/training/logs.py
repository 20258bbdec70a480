"""Logs of a run while it goes on, in a file or on TensorBoard; nothing private.

Each row has the step, the last step of the plan, the learning rate, the noise multiplier, the sample rate, and what was
asked for at this step, with its noise: answers of ``noisy_sum`` and accuracies of ``callbacks.Evaluation``.
"""

import csv
import json
from pathlib import Path
from typing import Any

from almoner import _check, _extras
from almoner.errors import ArgumentError

with _extras.need("torch", extra="torch"):
    from almoner.training._run.callback_view import CallbackView

__all__ = ["Log", "TensorBoard"]


def _row(run: CallbackView) -> dict[str, Any]:
    """The public facts of this step, by name."""
    row: dict[str, Any] = {
        "step": run.step,
        "last": run.last,
        "learning_rate": float(run.optimizer.param_groups[0]["lr"]),
        "noise_multiplier": run.noise_multiplier,
        "sample_rate": run.sample_rate,
    }
    row |= {name: answer for step, name, answer in run.answers if step == run.step}
    accuracies = dict(run.history.get("accuracy", []))
    return row | ({"accuracy": accuracies[run.step]} if run.step in accuracies else {})


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

    def __call__(self, run: CallbackView) -> None:
        """Write a row, when one is due."""
        if not self._begun:
            self._begun = True
            if self._path.exists() and not run.step:
                raise ArgumentError(f"path={str(self._path)!r} exists already: the log of another run")
            if not self._path.exists() and self._path.suffix == ".csv":
                with self._path.open("x", newline="", encoding="utf-8") as file:
                    csv.DictWriter(file, self._names).writeheader()
        if run.step and (run.step % self._every == 0 or run.step == run.last or run.reason is not None):
            row = _row(run)
            with self._path.open("a", newline="", encoding="utf-8") as file:
                if self._path.suffix == ".csv":
                    csv.DictWriter(file, self._names, extrasaction="ignore").writerow(row)
                else:
                    file.write(json.dumps(row) + "\n")


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
