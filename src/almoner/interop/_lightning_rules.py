"""Settings that a Trainer of Lightning must have, so that each optimizer step is one noisy sum of one Poisson batch."""

import inspect
from collections.abc import Iterator
from typing import Any

from lightning.pytorch import LightningModule, Trainer
from lightning.pytorch.callbacks import BatchSizeFinder, EarlyStopping, LearningRateFinder, ModelCheckpoint
from lightning.pytorch.strategies import SingleDeviceStrategy
from opacus.data_loader import CollateFnWithEmpty
from opacus.optimizers import DPOptimizer
from opacus.utils.uniform_sampler import UniformWithReplacementSampler
from torch.utils.data import DataLoader

from almoner.errors import Unsupported
from almoner.interop.opacus._rules import RAND_ON_EMPTY

__all__ = ["SEVERAL", "metrics_watched", "refuse_loader", "refuse_module", "refuse_trainer"]

PRECISIONS = ("32-true", "64-true", "bf16-mixed")
SEVERAL = "several Poisson batches in one step have no price"
SAMPLES = "train_dataloader must give poisson(DataLoader(...)), of almoner.interop.lightning: "


def refuse_trainer(trainer: Any) -> None:
    """Refuse settings of a trainer under which a step has no price, or that train without noise.

    Raises:
        Unsupported: names the setting. Nothing was charged.
    """
    strategy = trainer.strategy
    alone = type(strategy) is SingleDeviceStrategy and trainer.world_size == 1
    finds = any(isinstance(each, LearningRateFinder | BatchSizeFinder) for each in trainer.callbacks)
    reloads = trainer.reload_dataloaders_every_n_epochs
    _refuse(
        (not alone, f"strategy={type(strategy).__name__} with {trainer.world_size} processes; one device only"),
        (trainer.precision not in PRECISIONS, f"precision={trainer.precision!r}; {', '.join(PRECISIONS)} only"),
        (trainer.accumulate_grad_batches != 1, f"accumulate_grad_batches must be 1: {SEVERAL}"),
        (trainer.gradient_clip_val is not None, "gradient_clip_val has no effect; max_grad_norm clips each record"),
        (trainer.overfit_batches, "overfit_batches takes the same records in every epoch"),
        (reloads, "reload_dataloaders_every_n_epochs changes the loader, whose sample rate is charged"),
        (finds, "LearningRateFinder and BatchSizeFinder train on records without noise"),
    )


def refuse_module(trainer: Trainer, module: LightningModule) -> None:
    """Refuse what a module does if its steps have no price.

    Raises:
        Unsupported: says what. Nothing was charged.
    """
    optimizers = trainer.optimizers
    private = any(isinstance(each, DPOptimizer) for each in optimizers)
    draws = "dataloader_iter" in inspect.signature(module.training_step).parameters
    _refuse(
        (not module.automatic_optimization, "automatic_optimization=False hides which steps are taken"),
        (draws, "training_step(dataloader_iter) may put several batches into one step"),
        (len(optimizers) != 1, f"configure_optimizers gave {len(optimizers)} optimizers; one only"),
        (private, "configure_optimizers calls make_private; the callback does that, so return the plain optimizer"),
    )


def _refuse(*rules: tuple[object, str]) -> None:
    for is_broken, why in rules:
        if is_broken:
            raise Unsupported(f"Trainer: {why}")


def refuse_loader(loader: Any) -> None:
    """Refuse loaders whose batches are no Poisson samples, or are drawn again by the same seed.

    Raises:
        Unsupported: says why. Nothing was charged.
    """
    sampler: Any = getattr(loader, "batch_sampler", None)
    if not isinstance(loader, DataLoader) or type(sampler) is not UniformWithReplacementSampler:
        raise Unsupported(f"{SAMPLES}{type(loader).__name__} with {type(sampler).__name__} has no price")
    if not isinstance(loader.collate_fn, CollateFnWithEmpty) or loader.collate_fn.rand_on_empty:
        raise Unsupported(RAND_ON_EMPTY)
    if sampler.generator is None:
        raise Unsupported(f"{SAMPLES}PyTorch's global generator draws the same batches again after the same seed")
    people: Any = loader.dataset
    if sampler.num_samples != len(people):
        raise Unsupported(f"{SAMPLES}its sampler is not that of its data set")


def metrics_watched(trainer: Any) -> Iterator[tuple[str, str]]:
    """The callbacks and schedules that follow a metric other than epsilon, and which."""
    for each in trainer.callbacks:
        if isinstance(each, EarlyStopping | ModelCheckpoint) and each.monitor not in (None, "epsilon"):
            yield type(each).__name__, str(each.monitor)
    for config in trainer.lr_scheduler_configs:
        if config.reduce_on_plateau:
            yield type(config.scheduler).__name__, str(config.monitor)
