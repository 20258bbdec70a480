"""Train a LightningModule with people's accounts, by one callback. Needs Lightning 2 (extra ``lightning``).

``PrivacyCallback`` takes the steps of Lightning's loop by ``training.Trainer``; schedules, validation, loggers and
checkpoints stay Lightning's. ``poisson`` is the loader of people who are sampled.

Source: that of ``training.Trainer``; the source of Lightning 2.6
"""

import inspect
from collections.abc import Hashable, Iterator, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from math import inf
from pathlib import Path
from typing import Any

from almoner import _extras
from almoner._uncopyable import Uncopyable
from almoner.errors import ArgumentError, Unsupported
from almoner.interop._steps import MANY, Steps
from almoner.training import Poisson, RunFolder
from almoner.training import Trainer as PrivateTraining

with _extras.need("lightning", "torch", extra="lightning"):
    import torch
    from lightning.pytorch import Callback, LightningModule, Trainer
    from lightning.pytorch.callbacks import BatchSizeFinder, LearningRateFinder
    from lightning.pytorch.strategies import SingleDeviceStrategy
    from torch import Tensor, nn
    from torch.utils._pytree import tree_flatten, tree_unflatten
    from torch.utils.data import DataLoader, IterableDataset

__all__ = ["PrivacyCallback", "poisson"]


@dataclass
class Sampled:
    """Stands for a loader of samples: as many batches, without records, which the steps themselves take."""

    records: DataLoader[Any]

    def __len__(self) -> int:
        return len(self.records)

    def __iter__(self) -> Iterator[int]:
        return iter(range(len(self)))


def poisson(data_loader: DataLoader[Any]) -> Sampled:
    """A loader of the same records whose batches are samples: each person is in one with probability 1 / their number.

    Args:
        data_loader: private. A loader over a data set of known length; records have one shape.
    """
    if isinstance(data_loader.dataset, IterableDataset):
        raise Unsupported("data_loader: an IterableDataset cannot be sampled; give a data set of known length")
    return Sampled(data_loader)


class _Losses(nn.Module):
    """A LightningModule whose output for the parts of a batch is the loss of each record."""

    def __init__(self, module: LightningModule, form: Any, *, autocast: bool) -> None:
        super().__init__()
        self.module, self._form, self._autocast = module, form, autocast
        self._numbered = "batch_idx" in inspect.signature(type(module).training_step).parameters

    def forward(self, *parts: Tensor) -> Tensor:
        """(records,) the losses that ``training_step`` gives."""
        own = self.module
        if any(each.dtype == torch.float64 for each in own.parameters()):
            parts = tuple(each.double() if each.is_floating_point() else each for each in parts)
        batch = tree_unflatten(list(parts), self._form)
        half = torch.autocast(own.device.type, torch.bfloat16) if self._autocast else nullcontext()
        with half:
            losses = type(own).training_step(own, batch, *([0] if self._numbered else ()))
        return losses["loss"] if isinstance(losses, dict) else losses  # type: ignore[return-value]


class PrivacyCallback(Uncopyable, Callback):
    """Trains a LightningModule in Lightning's loop by steps of ``training.Trainer``, and stops it at the budget.

    Args:
        budget, settings: public. As of ``training.Trainer``, without steps and sampling: ``max_grad_norm``, ``divisor``
            (the public number of people), ``noise_multiplier``, ``individual``, ``compute``.
        people: (records,) private: whose each record of the loader's data set is; None: each is a person.
        folder: private: a path, or ``RunFolder(path, resume=True)``; needed to resume from a checkpoint, by
            ``fit(ckpt_path=)``: what was charged since the checkpoint stays charged, and steps that are there are not
            taken again.

    ``training_step`` returns one loss for each record, ``reduction="none"``, and ``configure_optimizers`` one
    optimizer. What the module logs in training may be private, and is dropped; what validation computes is not charged.

    Guarantee: that of ``training.Trainer``.
    Source: that of ``training.Trainer``.
    """

    private: PrivateTraining | None = None
    """The training, once it has begun: its card, its accounts, statements for people."""
    _steps: Steps | None = None
    _module: Any = None

    def __init__(
        self,
        budget: Any,
        *,
        people: Sequence[Hashable] | None = None,
        folder: str | Path | RunFolder | None = None,
        **settings: Any,
    ) -> None:
        self._budget, self._people, self._folder, self._settings = budget, people, RunFolder.of(folder), settings

    def setup(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
        """Refuse settings of the trainer, and put a function in the place of its step: copies of the module take it."""
        if stage != "fit":
            return
        if self.private is not None:
            raise ArgumentError("this callback has trained already: another run needs another callback and budget")
        _refuse(trainer, pl_module)
        self._module = pl_module
        own, log = pl_module.__dict__, pl_module.log
        own["training_step"] = lambda batch, batch_idx: self._step(trainer)  # noqa: ARG005
        # what is said in training may be of the records, also where an epoch ends; log_dict says it by log
        own["log"] = lambda *of, **how: log(*of, **how) if trainer.validating or trainer.sanity_checking else None

    def on_load_checkpoint(self, *_: object, **__: object) -> None:
        """Go on from the folder of the run that wrote the checkpoint."""
        if self._folder is not None:
            self._folder = replace(self._folder, resume=True)

    def on_train_start(self, trainer: Any, pl_module: LightningModule) -> None:
        """Begin the training, or go on with it; refuse what is not done in it, before anything is charged."""
        loader = trainer.train_dataloader
        if not isinstance(loader, Sampled):
            raise Unsupported("train_dataloader must be poisson(DataLoader(...)), of almoner.interop.lightning")
        _refuse(trainer, pl_module)
        steps = trainer.estimated_stepping_batches
        if steps == inf:
            raise ArgumentError("Trainer: give max_epochs= or max_steps=: the noise follows from the number of steps")
        collate = loader.records.collate_fn
        form = tree_flatten(collate([loader.records.dataset[0]]))[1]

        def parts(items: list[Any]) -> tuple[Tensor, ...]:
            found = tree_flatten(collate(items))[0]
            return (*found, torch.zeros(len(found[0])))  # as_records wants a target; training_step has its own

        losses = _Losses(pl_module, form, autocast=trainer.precision == "bf16-mixed")
        plan = {"steps": steps, "sampling": Poisson(1 / len(loader)), **self._settings}
        self.private = PrivateTraining(losses, lambda each, _: each, trainer.optimizers[0], self._budget, **plan)
        records: Any = DataLoader(loader.records.dataset, collate_fn=parts)
        self._steps = Steps(self.private, records, people=self._people, folder=self._folder)
        self._steps.refuse_older(trainer.global_step, "ckpt_path", "folder=")

    def _step(self, trainer: Any) -> Tensor:
        """Take a step of the training, with its optimizer; Lightning's own step around it finds no gradients."""
        if self._steps is not None and self._steps.run.step == trainer.global_step:  # else taken before a crash
            with torch.autocast(self._module.device.type, enabled=False):
                self._steps.take()
        return torch.zeros((), requires_grad=True)

    def on_train_batch_end(self, trainer: Trainer, *_: object, **__: object) -> None:
        """Stop where there is no further step."""
        if self._steps is not None and not self._steps.more:
            trainer.should_stop = True

    def on_save_checkpoint(self, *_: object, **__: object) -> None:
        """Save the accounts first: they are never older than a model."""
        if self._steps is not None:
            self._steps.save()

    def on_train_end(self, *_: object, **__: object) -> None:
        """End the training, which is kept in its folder and on its ledger."""
        if self._steps is not None:
            self._steps.finish()

    def teardown(self, *_: object, **__: object) -> None:
        """Let go of the module and the folder."""
        if self._steps is not None:
            self._steps.close()
        if self._module is not None:
            for name in ("training_step", "log"):
                self._module.__dict__.pop(name, None)

    on_exception = teardown


def _refuse(trainer: Any, module: LightningModule) -> None:
    """Raise Unsupported for what is not done in private steps."""
    strategy, batches, kind = trainer.strategy, trainer.accumulate_grad_batches, trainer.precision
    count = len(trainer.optimizers)
    alone = type(strategy) is SingleDeviceStrategy and trainer.world_size == 1
    finds = any(isinstance(each, LearningRateFinder | BatchSizeFinder) for each in trainer.callbacks)
    draws = "dataloader_iter" in inspect.signature(type(module).training_step).parameters
    for is_broken, why in (
        (not alone, f"strategy={type(strategy).__name__} with {trainer.world_size} processes; one device only"),
        (kind not in ("32-true", "64-true", "bf16-mixed"), f"precision={kind!r}; 32-true, 64-true, bf16-mixed only"),
        (batches != 1, MANY.format("accumulate_grad_batches", batches, "accumulate_grad_batches=1")),
        (trainer.gradient_clip_val is not None, "gradient_clip_val has no effect; max_grad_norm clips each person"),
        (finds, "LearningRateFinder and BatchSizeFinder train on records without noise"),
        (draws, "training_step(dataloader_iter) may put several batches into one step"),
        (not module.automatic_optimization, "automatic_optimization=False hides which steps are taken"),
        (count > 1, f"configure_optimizers gave {count} optimizers; one only"),
    ):
        if is_broken:
            raise Unsupported(f"Trainer: {why}")
