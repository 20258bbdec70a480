"""Checkpoints of a run that can be killed at any moment: whatever may have been released is charged after a restart.

Before anything is charged and released, a line that says what it will be is written to the journal and forced to the
disk. A checkpoint holds the model, the accounts and how many lines it has seen. After a restart, everybody is charged
for the lines that the last checkpoint has not seen, as much as each can pay: more than they spent, never less.

Both files are private, for the data holder: the accounts are in them.
"""

import json
import os
import pickle
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch

from bursar import mechanisms
from bursar._disk import PRIVATE_FILE, Lock, private_folder, whole_file
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
        private_folder(self._folder)
        self._state, self._lines = self._folder / "state.pt", self._folder / "journal.jsonl"
        if self._state.exists() and not resume:
            raise ArgumentError(f"checkpoint={str(folder)!r} holds a run already: pass resume=True to go on with it")
        self._lock = Lock(self._folder / "lock")
        self._take_lock()
        self._written = len(self._read())
        self._file = os.open(self._lines, os.O_WRONLY | os.O_APPEND | os.O_CREAT, PRIVATE_FILE)

    def begin(self, step: Mechanism) -> None:
        """Say what will be charged and released next; returns when it is on the disk."""
        if not self._lock.held:
            raise DataError(f"checkpoint={str(self._folder)!r} belongs to the process that this one was forked from")
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
        try:
            with whole_file(self._state) as file:
                torch.save(state | {"seen": self._written}, file)
                file.seek(0)
                torch.load(file, map_location="meta", weights_only=True)
        except (pickle.PickleError, TypeError, AttributeError) as refused:
            raise DataError(f"checkpoint: {PLAIN}; no checkpoint was replaced") from refused
        except (OSError, RuntimeError) as failed:
            raise DataError(f"checkpoint: {str(self._state)!r} can't be written") from failed

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
        self._lock.release()

    def _take_lock(self) -> None:
        """Keep other processes out."""
        try:
            taken = self._lock.take()
        except OSError as error:
            raise ArgumentError(f"checkpoint={str(self._folder)!r} cannot be locked: {error.strerror}") from error
        if not taken:
            raise ArgumentError(f"checkpoint={str(self._folder)!r} is in use by another process")

    def _read(self) -> list[str]:
        """Whole lines; the end of the last one may be missing after a crash, and then nothing of it was released."""
        if not self._lines.exists():
            return []
        text = self._lines.read_bytes()
        whole = text[: text.rfind(b"\n") + 1]
        if len(whole) < len(text):
            os.truncate(self._lines, len(whole))
        return whole.decode().splitlines()


def plain(step: Mechanism) -> dict[str, Any]:
    """A mechanism as names and numbers."""
    return {"kind": type(step).__name__, **asdict(step)}  # type: ignore[call-overload]


def mechanism(fields: dict[str, Any]) -> Mechanism:
    """The mechanism that ``plain`` described."""
    numbers = {name: value for name, value in fields.items() if name != "kind"}
    return getattr(mechanisms, fields["kind"])(**numbers)  # type: ignore[no-any-return]
