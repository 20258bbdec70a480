"""Checkpoints of a run that can be killed at any moment: whatever may have been released is charged after a restart.

Before anything is charged and released, a line that says what it will be is written to the journal and forced to the
disk. A checkpoint holds the model, the accounts and how many lines it has seen. After a restart, everybody is charged
for the lines that the last checkpoint has not seen, as much as each can pay: more than they spent, never less.

Both files are private, for the data holder: the accounts are in them.
"""

import fcntl
import json
import os
import pickle
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch

from bursar import mechanisms
from bursar.errors import ArgumentError, DataError
from bursar.mechanisms import Mechanism

__all__ = ["Journal", "mechanism", "plain"]

PLAIN = "run.history and people's ids must be numbers, strings, tensors, or lists and dicts of them, to be saved"


class Journal:
    """A folder with the last checkpoint and the lines since.

    Args:
        folder: made if it does not exist, readable by its owner alone.
        resume: whether to go on from what is there. A folder with a checkpoint is refused otherwise: to train a second
            time from the same checkpoint is to spend the same budget twice.
    """

    def __init__(self, folder: str | Path, *, resume: bool) -> None:
        self._folder = Path(folder)
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._state, self._lines = self._folder / "state.pt", self._folder / "journal.jsonl"
        if self._state.exists() and not resume:
            raise ArgumentError(f"checkpoint={str(folder)!r} holds a run already: pass resume=True to go on with it")
        self._lock = self._locked()
        self._written = len(self._read())
        self._file = os.open(self._lines, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)

    def begin(self, step: Mechanism) -> None:
        """Say what will be charged and released next; returns when it is on the disk."""
        line = (json.dumps(plain(step)) + "\n").encode()
        if os.write(self._file, line) < len(line):
            raise DataError(f"checkpoint: {str(self._lines)!r} could not be written; nothing was released")
        os.fsync(self._file)
        self._written += 1

    def save(self, state: dict[str, Any]) -> None:
        """Replace the checkpoint by this one, which has seen every line so far.

        Raises:
            DataError: it holds something that could not be read again; the last one was kept.
        """
        fresh = self._state.with_suffix(".new")
        with os.fdopen(os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as file:
            try:
                torch.save(state | {"seen": self._written}, file)
                file.flush()
                os.fsync(file.fileno())
                torch.load(fresh, map_location="meta", weights_only=True)
            except (pickle.PickleError, TypeError, AttributeError) as refused:
                fresh.unlink()
                raise DataError(f"checkpoint: {PLAIN}; no checkpoint was replaced") from refused
            except (OSError, RuntimeError) as failed:
                fresh.unlink()
                raise DataError(f"checkpoint: {str(fresh)!r} can't be written; no checkpoint was replaced") from failed
        fresh.replace(self._state)
        self._sync_folder()

    def load(self) -> tuple[dict[str, Any], list[Mechanism]] | None:
        """The last checkpoint, and what may have been released since; None where nothing was ever saved."""
        if not self._state.exists():
            if self._written:
                raise DataError(f"checkpoint: {str(self._state)!r} is missing, though a run has released something")
            return None
        try:
            state: dict[str, Any] = torch.load(self._state, weights_only=True)
        except Exception as broken:
            raise DataError(f"checkpoint: {str(self._state)!r} can't be read; nothing was changed") from broken
        lines = self._read()
        if len(lines) < state["seen"]:
            raise DataError("checkpoint: the journal is shorter than the checkpoint says; nothing was changed")
        try:
            return state, [mechanism(json.loads(line)) for line in lines[state["seen"] :]]
        except (ValueError, KeyError, TypeError, AttributeError) as broken:
            raise DataError(f"checkpoint: {str(self._lines)!r} can't be read; nothing was changed") from broken

    def close(self) -> None:
        """Nothing more will be written."""
        os.close(self._file)
        os.close(self._lock)

    def _locked(self) -> int:
        """One process at a time."""
        lock = os.open(self._folder / "lock", os.O_WRONLY | os.O_CREAT, 0o600)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as taken:
            os.close(lock)
            raise ArgumentError(f"checkpoint={str(self._folder)!r} is in use by another process") from taken
        return lock

    def _read(self) -> list[str]:
        """Whole lines; the end of the last one may be missing after a crash, and then nothing of it was released."""
        if not self._lines.exists():
            return []
        text = self._lines.read_bytes()
        whole = text[: text.rfind(b"\n") + 1]
        if len(whole) < len(text):
            os.truncate(self._lines, len(whole))
        return whole.decode().splitlines()

    def _sync_folder(self) -> None:
        folder = os.open(self._folder, os.O_RDONLY)
        os.fsync(folder)
        os.close(folder)


def plain(step: Mechanism) -> dict[str, Any]:
    """A mechanism as names and numbers."""
    return {"kind": type(step).__name__, **asdict(step)}  # type: ignore[call-overload]


def mechanism(fields: dict[str, Any]) -> Mechanism:
    """The mechanism that ``plain`` described."""
    numbers = {name: value for name, value in fields.items() if name != "kind"}
    return getattr(mechanisms, fields["kind"])(**numbers)  # type: ignore[no-any-return]
