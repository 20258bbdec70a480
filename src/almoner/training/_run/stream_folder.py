"""The folder of a stream, private: module, optimizer, accounts after every update, and who is in the next one."""

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from almoner import filters
from almoner._disk import whole_file
from almoner.errors import ArgumentError, DataError
from almoner.individual import Filter, Odometer
from almoner.ledger import new_claim
from almoner.mechanisms import Mechanism
from almoner.training._accounts.counted import countable
from almoner.training._accounts.run_accounts import odometer_fields, plain_numbers, restored_accounts, restored_odometer
from almoner.training._card import Boundary
from almoner.training._run.folder import Checkpoint, check_ids
from almoner.training._run.state import TrainingState

__all__ = ["Announcement", "StreamCheckpoint"]


@dataclass(frozen=True, slots=True)
class Announcement:
    """Announces a release to the people who are in it."""

    folder: Checkpoint
    ids: Sequence[Hashable]

    def announce(self, mechanism: Mechanism) -> None:
        """Write down, before anybody is charged, what will be released and who is in it."""
        self.folder.announce(mechanism, self.ids)


class StreamCheckpoint:
    """The state that a stream goes on from, after a crash or in another process.

    Args:
        folder: made if it does not exist, readable by its owner alone.
        settings: public. A stream goes on with the same ones only, because its card states them.
        resume: whether to go on from what is there; a folder with a stream is refused otherwise.
    """

    def __init__(self, folder: str | Path, settings: dict[str, Any], *, resume: bool) -> None:
        self._folder, self._settings = Checkpoint(folder, resume=resume), settings
        self._kept = Path(folder) / "update.pt"

    def announcing(self, ids: Sequence[Hashable]) -> Announcement:
        """The announcement of a release with these people.

        Raises:
            ArgumentError: an id would not come back from the disk as it is; before anybody has an account.
        """
        check_ids(ids)
        return Announcement(self._folder, ids)

    def save(
        self,
        state: TrainingState,
        module: nn.Module,
        optimizer: torch.optim.Optimizer,
        accounts: Filter | None,
        odometer: Odometer | None,
    ) -> None:
        """Replace the checkpoint by one that knows of all that was announced.

        Accounts are None on a ledger, and where there is an odometer and no budget.
        """
        held = None if accounts is None else plain_numbers(accounts.state())
        if held is not None:
            held["spent"] = torch.from_numpy(held["spent"])
        self._folder.save(
            {
                "stream": state.to_fields(),
                "settings": self._settings,
                "module": module.state_dict(),
                "optimizer": optimizer.state_dict(),
                "accounts": held,
                "odometer": odometer_fields(odometer),
            }
        )

    def keep(self, number: int, noisy: Sequence[Tensor], divisor: float) -> None:
        """Keep the noisy sums of an update on a ledger, which is told once the ledger has charged it. Private."""
        with whole_file(self._kept) as file:
            torch.save({"number": number, "noisy": list(noisy), "divisor": divisor}, file)

    def kept(self, number: int) -> tuple[list[Tensor], float] | None:
        """The noisy sums and the divisor of the update of this number, if they are what was kept last. Private."""
        if not self._kept.exists():
            return None
        try:
            contents = torch.load(self._kept, weights_only=True)
        except Exception as broken:
            raise DataError(f"checkpoint: {str(self._kept)!r} can't be read; nothing was changed") from broken
        return (contents["noisy"], contents["divisor"]) if contents["number"] == number else None

    def claim(self) -> str:
        """The secret by which this folder's stream shows a ledger that it is the one of its name. Private."""
        if not self._folder.claims():
            self._folder.claim(new_claim())
        return self._folder.claims()[0]

    def restore(
        self,
        module: nn.Module,
        optimizer: torch.optim.Optimizer,
        budget: filters.Filter | None,
        boundary: Boundary | None,
    ) -> tuple[TrainingState, Filter | None, Odometer | None] | None:
        """Set module and optimizer, and give the state, accounts and bounds; None where nothing was saved.

        Without a budget of its own the stream is on a ledger, which has the accounts, or has an odometer alone.

        People who were in an update that was announced, and is not in the checkpoint, pay its worst case.

        Guarantee: each person is charged at least what all releases cost that person.
        Source: theory 5.1; what was announced counts as spent.
        """
        loaded = self._folder.load()
        if loaded is None:
            return None
        contents, unseen = loaded
        if "stream" not in contents:
            raise ArgumentError("checkpoint: this folder holds the run of a Trainer, not a stream")
        for name, value in contents["settings"].items():
            if self._settings[name] != value:
                raise ArgumentError(f"{name}={self._settings[name]!r} must be that of the checkpoint: {value!r}")
        if (budget is None) != (contents["accounts"] is None):
            raise ArgumentError("budget: what began with a budget of its own goes on with it, and nothing else does")
        state = TrainingState.from_fields(contents["stream"])
        accounts = None if budget is None else _people(contents["accounts"], budget)
        odometer = restored_odometer(contents.get("odometer"), boundary, individual=True)
        if odometer is not None and not isinstance(odometer, Odometer):
            raise ArgumentError("checkpoint: it holds no running bounds per person")
        for announced in unseen:
            if accounts is not None:
                accounts.join(accounts.missing(announced.people))
                accounts.write_off(announced.mechanism, people=announced.people)
            if odometer is not None:
                odometer.join(odometer.missing(announced.people))
                most = countable(announced.mechanism, by="odometer").sensitivity
                odometer.charge(announced.mechanism, np.full(len(announced.people), most), announced.people)
            state = state.with_release(announced.mechanism)
        module.load_state_dict(contents["module"])
        optimizer.load_state_dict(contents["optimizer"])
        return state, accounts, odometer

    def close(self) -> None:
        """Release the lock; nothing more can be written."""
        self._folder.close()


def _people(saved: dict[str, Any], budget: filters.Filter) -> Filter:
    accounts = restored_accounts(saved, budget, individual=True, count=0)
    if not isinstance(accounts, Filter):
        raise ArgumentError("checkpoint: it holds no accounts per person")
    return accounts
