"""A folder with the checkpoints of a run, which can be killed at any moment.

Before people are charged and anything is released, a line that says what it will be is written to a journal and forced
to the disk. A checkpoint holds the module, the accounts and how many lines it has seen. After a restart each person is
charged for the lines that the last checkpoint has not seen, as much as each can pay: more than they spent, never less.

Both files are private, for the data holder: the accounts are in them.
"""

import json
import os
import pickle
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import torch

from almoner import mechanisms
from almoner._disk import PRIVATE_FILE, Lock, private_folder, whole_file
from almoner.errors import ArgumentError, DataError
from almoner.mechanisms import Mechanism

__all__ = ["FORMAT", "Announced", "Checkpoint", "check_ids"]

FORMAT = 1
"""Of what a checkpoint holds. It grows when a version can't go on from what an earlier one wrote."""

PLAIN = "run.history and people's ids must be numbers, strings, tensors, or lists and dicts of them, to be saved"


@dataclass(frozen=True, slots=True)
class Announced:
    """A release that was announced. Private, because of the people.

    Attributes:
        mechanism: what was to be released.
        people: the ids of those who were in it; empty where it was everybody.
    """

    mechanism: Mechanism
    people: tuple[Hashable, ...] = ()

    @classmethod
    def read(cls, line: str) -> Self:
        """The release that a line of the journal announces."""
        fields = json.loads(line)
        return cls(people=tuple(fields.pop("people", ())), mechanism=mechanisms.from_fields(fields))


def check_ids(people: Sequence[Hashable]) -> None:
    """Refuse ids that would not come back from the disk as they are, as a tuple would come back as a list."""
    if not all(isinstance(person, int | str) for person in people):
        raise ArgumentError("people: with a checkpoint, ids must be whole numbers or texts")


class Checkpoint:
    """The last checkpoint of a run, and the journal of what was announced since.

    Args:
        folder: made if it does not exist, readable by its owner alone.
        resume: whether to go on from what is there. A folder with a checkpoint is refused otherwise: to train a second
            time from the same checkpoint is to spend the same budget twice.
    """

    def __init__(self, folder: str | Path, *, resume: bool) -> None:
        self._folder = Path(folder)
        private_folder(self._folder)
        self._state_file, self._journal_file = self._folder / "state.pt", self._folder / "journal.jsonl"
        self._claims_file = self._folder / "claims"
        if self._state_file.exists() and not resume:
            raise ArgumentError(f"checkpoint={str(folder)!r} holds a run already: pass resume=True to go on with it")
        self._lock = Lock(self._folder / "lock")
        self._take_lock()
        self._confirm: Callable[[], object] = lambda: None
        self._announced: int | None = len(self._complete_lines())
        self._journal = os.open(self._journal_file, os.O_WRONLY | os.O_APPEND | os.O_CREAT, PRIVATE_FILE)

    def announce(self, mechanism: Mechanism, people: Sequence[Hashable] | None = None) -> None:
        """Write down what people will be charged for next; returns when it is on the disk.

        Args:
            mechanism: what will be released.
            people: the ids of those who are in it, whole numbers or texts, private; None: everybody.
        """
        self._check_process()
        check_ids(people or ())
        fields = mechanisms.to_fields(mechanism)
        line = (json.dumps(fields if people is None else fields | {"people": list(people)}) + "\n").encode()
        announced, self._announced = self._lines_announced(), None  # a signal may end this after the line is written
        if os.write(self._journal, line) < len(line):
            raise DataError(f"checkpoint: {str(self._journal_file)!r} could not be written; nothing was released")
        os.fsync(self._journal)
        self._announced = announced + 1
        self._confirm()

    def save(self, contents: dict[str, Any]) -> None:
        """Replace the checkpoint by this one, which has seen every line so far.

        Raises:
            DataError: it holds something that could not be read again; the last one was kept.
        """
        self._check_process()
        try:
            with whole_file(self._state_file) as file:
                torch.save(contents | {"format": FORMAT, "seen": self._lines_announced()}, file)
                file.seek(0)
                torch.load(file, map_location="meta", weights_only=True)
        except (pickle.PickleError, TypeError, AttributeError) as refused:
            raise DataError(f"checkpoint: {PLAIN}; no checkpoint was replaced") from refused
        except (OSError, RuntimeError) as failed:
            raise DataError(f"checkpoint: {str(self._state_file)!r} can't be written") from failed

    def load(self) -> tuple[dict[str, Any], list[Announced]] | None:
        """The last checkpoint, and what was announced since; None where nothing was ever saved."""
        if not self._state_file.exists():
            if self._lines_announced():
                raise DataError(
                    f"checkpoint: {str(self._state_file)!r} is missing, though a run has released something"
                )
            return None
        try:
            contents: dict[str, Any] = torch.load(self._state_file, weights_only=True)
        except Exception as broken:
            raise DataError(f"checkpoint: {str(self._state_file)!r} can't be read; nothing was changed") from broken
        if contents.get("format") != FORMAT:
            raise DataError(
                f"checkpoint: {str(self._state_file)!r} has format {contents.get('format')!r}, of another version of "
                f"Almoner; this one reads format {FORMAT}. Nothing was changed: go on with the version that began it"
            )
        lines = self._complete_lines()
        if len(lines) < contents["seen"]:
            raise DataError("checkpoint: the journal is shorter than the checkpoint says; nothing was changed")
        try:
            unseen = [Announced.read(line) for line in lines[contents["seen"] :]]
        except (ValueError, KeyError, TypeError, AttributeError) as broken:
            raise DataError(f"checkpoint: {str(self._journal_file)!r} can't be read; nothing was changed") from broken
        return contents, unseen

    def claims(self) -> list[str]:
        """The claims on a ledger that runs from this folder had so far, in order.

        Those that were written down with a longer journal are left out: the folder is a copy, made while a run went on.
        """
        if not self._claims_file.exists():
            return []
        lines = (line.split() for line in self._claims_file.read_text(encoding="ascii").splitlines())
        return [claim for claim, announced in lines if int(announced) <= self._lines_announced()]

    def claim(self, claim: str, *, after: str | None = None) -> None:
        """Keep one more claim; returns when it is on the disk.

        Args:
            claim: private.
            after: the one that is in force: those before it are dropped.
        """
        kept = self.claims() if after is None else [after]
        with whole_file(self._claims_file) as file:
            file.write("".join(f"{each} {self._lines_announced()}\n" for each in (*kept, claim)).encode())

    def confirm_by(self, work: Callable[[], object]) -> None:
        """Have this done after each announcement is on the disk; where it raises, nothing is released."""
        self._confirm = work

    def close(self) -> None:
        """Release the lock; nothing more can be written."""
        os.close(self._journal)
        self._lock.release()

    def _lines_announced(self) -> int:
        """Number of lines of the journal; counted anew, and forced to the disk, where the last one was interrupted."""
        if self._announced is None:
            counted = len(self._complete_lines())
            os.fsync(self._journal)  # a checkpoint that has seen a line must not outlive it
            self._announced = counted
        return self._announced

    def _check_process(self) -> None:
        """Refuse to write in a process that was forked: the folder is its parent's."""
        if not self._lock.held:
            raise DataError(f"checkpoint={str(self._folder)!r} belongs to the process that this one was forked from")

    def _take_lock(self) -> None:
        """Keep other processes out."""
        try:
            taken = self._lock.take()
        except OSError as error:
            raise ArgumentError(f"checkpoint={str(self._folder)!r} cannot be locked: {error.strerror}") from error
        if not taken:
            raise ArgumentError(f"checkpoint={str(self._folder)!r} is in use by another process")

    def _complete_lines(self) -> list[str]:
        """Complete lines; the last one may be cut off by a crash, and then nothing of it was released."""
        if not self._journal_file.exists():
            return []
        text = self._journal_file.read_bytes()
        complete = text[: text.rfind(b"\n") + 1]
        if len(complete) < len(text):
            os.truncate(self._journal_file, len(complete))
        return complete.decode().splitlines()
