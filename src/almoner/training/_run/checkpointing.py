"""Checkpoints of a run: what they hold, and how a run goes on from one."""

from dataclasses import replace
from typing import Any

import torch
from torch import nn

from almoner.errors import ArgumentError
from almoner.training._accounts.run_accounts import TrainingAccounts
from almoner.training._records.distributed import Processes
from almoner.training._records.records import Records
from almoner.training._run.fixed_batches import BatchContributions
from almoner.training._run.folder import Announced, Checkpoint
from almoner.training._run.settings import Settings
from almoner.training._run.state import CurrentState, TrainingState

__all__ = ["Resumable"]


class Resumable:
    """The parts of a run that a checkpoint holds: state, module, optimizer and accounts; private because of the last.

    Args:
        checkpoint: the folder, or None: then nothing is saved.
        settings: those of the run; a checkpoint is resumed with the same ones only.
        current: the state of the run.
        module, optimizer: saved and restored in place.
        accounts: private. Saved; restored when they were made.
        records: private. A checkpoint is resumed with the same records only: an account stands for a row.
        batches: private. What people in fixed batches contributed, and the noise; None: there are none.
    """

    def __init__(
        self,
        *,
        checkpoint: Checkpoint | None,
        settings: Settings,
        current: CurrentState,
        module: nn.Module,
        optimizer: torch.optim.Optimizer,
        accounts: TrainingAccounts,
        records: Records,
        batches: BatchContributions | None = None,
    ) -> None:
        self._checkpoint, self._current, self._accounts, self._batches = checkpoint, current, accounts, batches
        self._module, self._optimizer = module, optimizer
        self._fingerprint = None if checkpoint is None else records.fingerprint()
        self._fixed = settings.of_checkpoint() | {"optimizer": type(optimizer).__name__}

    @property
    def kept(self) -> bool:
        """Tell whether there is a folder."""
        return self._checkpoint is not None

    def save(self) -> None:
        """Write a checkpoint, if there is a folder."""
        if self._checkpoint is not None:
            public = self._current.value.to_fields() | {"settings": self._fixed}
            self._checkpoint.save(
                {
                    "records": self._fingerprint,
                    "module": self._module.state_dict(),
                    "optimizer": self._optimizer.state_dict(),
                    "public": public,
                }
                | self._accounts.to_fields()
                | ({} if self._batches is None else {"batches": self._batches.to_fields(self._current.value.step)})
            )

    def restore(self, contents: dict[str, Any], unseen: list[Announced], processes: Processes) -> None:
        """Go on from a checkpoint; each person pays for what may have been released since.

        Raises:
            ArgumentError: the accounts belong to other records, or to these in another order; nothing was charged.
        """
        if "records" not in contents:
            raise ArgumentError("resume: this folder holds a stream, not the run of a Trainer")
        if contents["records"] != self._fingerprint:
            raise ArgumentError("resume: these are not the checkpoint's records of the same people in the same order")
        for name, value in contents["public"]["settings"].items():
            if self._fixed[name] != value:  # the card would not be about the steps that were done
                raise ArgumentError(f"{name}={self._fixed[name]!r} must be that of the checkpoint: {value!r}")
        self._accounts.add_losses(contents["losses"])
        released = TrainingState.from_fields(contents["public"]).released
        self._current.update(released=released)
        if self._batches is not None:
            self._batches.restore(contents["batches"], [each.mechanism for each in unseen], self._accounts)
        for announced in unseen:
            if self._batches is None:
                self._accounts.charge_worst_case(announced.mechanism)
            self._current.add_release(announced.mechanism)
        self._module.load_state_dict(contents["module"])
        optimizer, public = processes.broadcast((contents["optimizer"], contents["public"]))
        self._optimizer.load_state_dict(optimizer)
        seeded, released = self._current.value.seeded, self._current.value.released
        first = TrainingState.from_fields(public)  # of the first process, which the others follow
        self._current.value = replace(first, released=released, seeded=seeded or first.seeded)
        self.save()
