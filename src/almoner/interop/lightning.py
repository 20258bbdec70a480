"""Train a LightningModule with Opacus within a budget, by one callback. Needs Lightning 2 (extra ``lightning``).

``PrivacyCallback`` makes the optimizer private when training starts, charges every step before a parameter changes,
logs epsilon, stops before a step that does not fit, and keeps what was spent in checkpoints and in a file.
``poisson`` draws the batches as the guarantee assumes.

Names and symbols
    z, q          noise multiplier, sample rate; public

Source: theory 2.6, 4.1 to 4.4, 6.1, 7.2; the source of Lightning 2.6 and Opacus 1.6.0
"""

import inspect
import json
import logging
import secrets
from collections.abc import Mapping
from math import inf
from pathlib import Path
from typing import Any

import numpy as np

from almoner import _check, _disk, _extras
from almoner._uncopyable import OwnProcess, Uncopyable
from almoner.errors import ArgumentError, BudgetExceeded, Unsupported

with _extras.need("lightning", "opacus", "torch", extra="lightning"):
    import torch
    from lightning.pytorch import Callback, LightningModule, Trainer
    from lightning.pytorch.callbacks import BatchSizeFinder, EarlyStopping, LearningRateFinder, ModelCheckpoint
    from lightning.pytorch.strategies import SingleDeviceStrategy
    from opacus.data_loader import DPDataLoader
    from opacus.optimizers import DPOptimizer
    from torch.utils.data import DataLoader, IterableDataset

    from almoner.interop.opacus._engine import OdometerAccountant, PrivacyEngine, forget_gradients, refuse_unsampled

__all__ = ["PrivacyCallback", "poisson"]

LOG = logging.getLogger("almoner.interop.lightning")

OPTIONS = ("batch_first", "grad_sample_mode", "loss_reduction")  # passed on to Opacus's ``make_private`` as they are

STALE = (
    "the checkpoint has {} steps that this account does not know, and cannot know which were taken after it was "
    "written: give the record= that the run was trained with, or say checkpoint_is_newest=True"
)

PRECISIONS = ("32-true", "64-true", "bf16-mixed")
SEVERAL = "several Poisson batches in one step have no price"
SAMPLES = "train_dataloader must give poisson(DataLoader(...)), of almoner.interop.lightning: "


def poisson(data_loader: DataLoader[Any]) -> DPDataLoader:
    """A loader of the same records that draws each one independently with probability 1 / len(data_loader).

    Its generator is seeded by the operating system, so that ``seed_everything`` does not repeat its batches.

    Args:
        data_loader: private. A loader over a data set of known length, in which each record is a person.
    """
    if isinstance(data_loader.dataset, IterableDataset):
        raise Unsupported("data_loader: an IterableDataset cannot be sampled; give a data set of known length")
    return DPDataLoader.from_data_loader(data_loader, generator=_generator("cpu"))


class Record:
    """A file that keeps a state as it was last written, whole, for its owner alone. One process at a time holds it."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._lock = _disk.Lock(path.with_name(path.name + ".lock"))

    def open(self) -> dict[str, Any] | None:
        """Take the file's lock, and read the state; None where there is no file yet, ArgumentError where it is held."""
        if not self._path.parent.is_dir():
            raise ArgumentError(f"record={str(self._path)!r} must be in a folder that exists")
        if not self._lock.take():
            raise ArgumentError(f"record={str(self._path)!r} is in use by another training")
        if not self._path.exists():
            return None
        try:
            state: dict[str, Any] = json.loads(self._path.read_text(encoding="utf-8"))
            _check.saved(state, "account", "runs")
        except (ValueError, OSError) as error:
            raise ArgumentError(f"record={str(self._path)!r} can't be read: restore it from a backup") from error
        return state

    def write(self, state: Mapping[str, Any]) -> None:
        """Put a state in the place of the one before; it is on the disk when this returns."""
        with _disk.whole_file(self._path) as file:
            file.write(json.dumps(state).encode())

    def close(self) -> None:
        self._lock.release()


class PrivacyCallback(Uncopyable, Callback):
    """Trains a LightningModule with Opacus, and keeps to the account of an engine of ``almoner.interop.opacus``.

    Args:
        engine: public. ``PrivacyEngine(epsilon=, delta=)``, ``PrivacyEngine(odometers.Renyi(...))`` or
            ``PrivacyEngine(epochs=)``: its accountant is charged.
        noise_multiplier, max_grad_norm: public. As in Opacus.
        delta: public. The delta of the epsilon that is logged.
        target_epsilon: public. With an odometer: stop before its epsilon exceeds this number.
        record: public. A file that has every step before it is taken, whatever checkpoint is resumed.
        checkpoint_is_newest: public. Whether nobody saw anything that was trained after the checkpoint was written;
            then a new process may resume it without its record.
        options: public. ``batch_first``, ``grad_sample_mode`` and ``loss_reduction`` of ``make_private``.

    ``training_step`` returns the mean loss of a batch from ``poisson(loader)``, and ``configure_optimizers`` one plain
    optimizer. What else a module or a callback does with records is not charged: losses and metrics that it logs, and
    what is stopped or chosen by them, buffers that it changes, records that it mixes in a batch.

    Raises, when training starts, ``Unsupported`` for what has no price: another loader, gradients of several batches,
    several devices, manual optimization, 16-bit parameters; ``ArgumentError`` for a checkpoint of another account.

    Guarantee: that of the engine's accountant, for all steps of all processes that share the record; without one, for
        the steps of this process and those in the checkpoints that it resumed.
    Source: the source of the accountant's guarantee; theory 1.2.
    """

    def __init__(
        self,
        engine: PrivacyEngine,
        *,
        noise_multiplier: float,
        max_grad_norm: float,
        delta: float,
        target_epsilon: float | None = None,
        record: str | Path | None = None,
        checkpoint_is_newest: bool = False,
        **options: object,
    ) -> None:
        if not isinstance(engine, PrivacyEngine):
            raise ArgumentError(f"engine={engine!r} must be an almoner.interop.opacus.PrivacyEngine")
        _check.noise(noise_multiplier=noise_multiplier)
        _check.positive(max_grad_norm=max_grad_norm)
        _check.between(0, 1, delta=delta)
        if target_epsilon is not None:
            _check.positive(target_epsilon=target_epsilon)
            if not isinstance(engine.accountant, OdometerAccountant):
                raise ArgumentError("target_epsilon= is for engines with an odometer; others have their budget or plan")
        for name in options:
            _check.one_of(OPTIONS, option=name)
        if str(options.get("grad_sample_mode", "hooks")) not in ("hooks", "functorch"):
            raise Unsupported("grad_sample_mode must be 'hooks' or 'functorch': ghost clipping needs its own backward")
        self._engine, self._delta, self._target = engine, delta, target_epsilon
        self._make = {"noise_multiplier": noise_multiplier, "max_grad_norm": max_grad_norm, **options}
        self._record = None if record is None else Record(Path(record))
        self._may_be_newest = checkpoint_is_newest
        self._process, self._began = OwnProcess(), False
        self._loaded: dict[str, Any] | None = None
        self._hooks: Any = None

    @property
    def engine(self) -> PrivacyEngine:
        """The engine whose accountant is charged. Public."""
        return self._engine

    def epsilon(self) -> float:
        """The epsilon of the engine's accountant at delta. Public.

        Guarantee: that of the engine's accountant.
        Source: that of the engine's accountant.
        """
        return self._engine.get_epsilon(self._delta)

    def setup(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:  # noqa: ARG002 - Lightning gives them
        """Refuse settings of the trainer, before other callbacks may train."""
        if stage == "fit":
            _refuse_trainer(trainer)

    def on_load_checkpoint(self, trainer: Trainer, pl_module: LightningModule, checkpoint: dict[str, Any]) -> None:  # noqa: ARG002 - Lightning gives them
        """Keep what a checkpoint says was spent, to charge it when training starts."""
        if trainer.state.fn != "fit":
            return
        state = checkpoint["callbacks"].get(self.state_key)
        if not state:
            raise ArgumentError(
                "ckpt_path: the checkpoint was trained without PrivacyCallback, so nobody knows what it cost; to start "
                "from weights of public data, load them into the module"
            )
        self._loaded = state

    def state_dict(self) -> dict[str, Any]:
        """The account and its steps, for checkpoints. Public."""
        return self._engine.accountant.merged_state() if self._began else dict(self._loaded or {})

    def on_train_start(self, trainer: Any, pl_module: LightningModule) -> None:
        """Make the optimizer private, and charge what the record and the checkpoint have; refuse what has no price."""
        self._process.check("PrivacyCallback")
        _refuse_trainer(trainer)
        _refuse_module(trainer, pl_module)
        loader: Any = trainer.train_dataloader
        refuse_unsampled(loader, f"{SAMPLES}{{}} has no price")
        if loader.batch_sampler.generator is None:
            raise Unsupported(f"{SAMPLES}PyTorch's global generator draws the same batches again after the same seed")
        if loader.batch_sampler.num_samples != len(loader.dataset):
            raise Unsupported(f"{SAMPLES}its sampler is not that of its data set")
        noise = None if self._engine.secure_mode else _generator(pl_module.device)
        given = {"module": pl_module, "optimizer": trainer.optimizers[0], "data_loader": loader, "wrap_model": False}
        self._hooks, self._optimizer, private = self._engine.make_private(noise_generator=noise, **given, **self._make)
        self._loader, self._rate, self._trainer = loader, 1 / len(private), trainer
        self._charge, self._optimizer.step_hook = self._optimizer.step_hook, self._charged
        trainer.optimizers = [self._optimizer]
        self._refuse_changed(trainer)
        self._resume()
        follow: list[Any] = [each for each in trainer.callbacks if isinstance(each, EarlyStopping | ModelCheckpoint)]
        watching = [(type(each).__name__, each.monitor) for each in follow if each.monitor not in (None, "epsilon")]
        plateaus = [config for config in trainer.lr_scheduler_configs if config.reduce_on_plateau]
        for watcher, metric in watching + [(type(each.scheduler).__name__, str(each.monitor)) for each in plateaus]:
            LOG.warning("%s follows %r: what that tells of people is not in epsilon", watcher, metric)
        trainer.should_stop = trainer.should_stop or not self._fits(self._optimizer)

    def on_train_batch_start(self, trainer: Trainer, *_: object, **__: object) -> None:
        """Refuse what was changed since training started, before anything is computed from the batch."""
        self._refuse_changed(trainer)

    def on_train_batch_end(self, trainer: Trainer, *_: object, **__: object) -> None:
        """Stop where one more step does not fit."""
        if not self._fits(self._optimizer):
            LOG.info("training stops: one more step does not fit")
            trainer.should_stop = True

    def on_train_epoch_end(self, trainer: Trainer, pl_module: LightningModule) -> None:  # noqa: ARG002 - Lightning gives them
        """Log epsilon, rounded up to what a logger's 32 bits hold."""
        pl_module.log("epsilon", _rounded_up(self.epsilon()), prog_bar=True)

    def teardown(self, *_: object, **__: object) -> None:
        """Let go of the module and the record."""
        if self._hooks is not None:
            forget_gradients(self._optimizer)
            self._hooks.cleanup()
            self._hooks = None
        if self._record is not None:
            self._record.close()

    on_exception = teardown

    def _resume(self) -> None:
        """Charge the steps of the record, then those of the checkpoint that the record lacks."""
        accountant = self._engine.accountant
        if self._record is not None and (kept := self._record.open()) is not None:
            accountant.merge(kept)
        loaded, self._loaded, self._began = self._loaded, None, True
        if loaded is not None:
            unknown = accountant.unknown(loaded)
            if unknown and not self._may_be_newest:
                raise ArgumentError(STALE.format(unknown))
            accountant.merge(loaded)
        if self._record is not None:
            self._record.write(accountant.merged_state())

    def _charged(self, optimizer: DPOptimizer) -> None:
        """Charge a step, and write it down, before a parameter changes."""
        try:
            self._process.check("PrivacyCallback")
            self._refuse_changed(self._trainer)
            if optimizer._is_last_step_skipped:  # what was clipped then is in this sum too
                raise Unsupported(f"signal_skip_step: {SEVERAL}")
            if self._target is not None and not self._fits(optimizer):
                why = f"one more step would exceed target_epsilon={self._target}"
                raise BudgetExceeded(why, asked=None, spent=self.epsilon(), left=None)
            self._charge(optimizer)
            if self._record is not None:
                self._record.write(self._engine.accountant.merged_state())
        except BaseException:
            forget_gradients(optimizer)
            raise

    def _fits(self, optimizer: DPOptimizer) -> bool:
        step = self._charge.mechanism(optimizer)
        accountant = self._engine.accountant
        if self._target is not None and isinstance(accountant, OdometerAccountant):
            return accountant.odometer.ex_post_epsilon(delta=self._delta, after=step) <= self._target
        return bool(accountant.admits(step))

    def _refuse_changed(self, trainer: Trainer) -> None:
        if trainer.optimizers != [self._optimizer] or self._optimizer.step_hook != self._charged:
            raise Unsupported("trainer.optimizers: the optimizer was replaced, so that its steps are not charged")
        sampler: Any = self._loader.batch_sampler
        if trainer.train_dataloader is not self._loader or not sampler.sample_rate <= self._rate:
            raise Unsupported("trainer.train_dataloader: the loader or its sample rate is not the one that is charged")
        if trainer.accumulate_grad_batches != 1:
            raise Unsupported(f"accumulate_grad_batches must be 1: {SEVERAL}")


def _generator(device: torch.device | str) -> torch.Generator:
    return torch.Generator(device).manual_seed(secrets.randbits(63))


def _rounded_up(number: float) -> float:
    """The smallest number of 32 bits that is not below this one."""
    near = np.float32(number)
    return float(near if float(near) >= number else np.nextafter(near, np.float32(inf)))


def _refuse_trainer(trainer: Any) -> None:
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


def _refuse_module(trainer: Trainer, module: LightningModule) -> None:
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
