"""The folder of a run, which can be killed at any moment: one format for every way to train.

Before people are charged and anything is released, a line that says what it will be is written to a journal and forced
to the disk. ``state.npz`` holds the parts of the run and how many lines it has seen: one text of JSON that names the
arrays beside it. After a restart each person is charged for the lines that the state has not seen, as much as each can
pay: more than they spent, never less. On a ledger, the noisy sums of an update are kept in ``update.npz`` before the
ledger charges it, and the ledger says whether it did.

All files are private, for the data holder: the accounts are in them.
"""

import json
import os
import sys
import zipfile
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self, cast

import numpy as np

from almoner import _check, mechanisms
from almoner._disk import PRIVATE_FILE, Lock, private_folder, whole_file
from almoner.errors import ArgumentError, DataError
from almoner.ledger import new_claim
from almoner.mechanisms import Mechanism

FORMAT = 2  # of what a folder holds. It grows when a version can't go on from what an earlier one wrote.
PLAIN = "run.history and people's ids must be numbers, strings, tensors, or lists and dicts of them, to be saved"
PACKED = "BbHhIiLlQqefdgFD?U"  # types of arrays, by NumPy's characters, that a file can hold without a pickle


@dataclass(frozen=True, slots=True)
class RunFolder:
    """A folder from which a run can go on after a crash, or in another process. Private.

    Args:
        path: made if it does not exist, readable by its owner alone; written before anything is released.
        every: steps between two saves; None: as often as saving takes less than a twentieth of the time, and a hundred
            times in a run whose ``steps`` are given. One more when the run ends, also by Ctrl-C, SIGTERM or an error.
        resume: go on from what is there, with the same records in the same order, settings and budget. Each person is
            first charged for what may have been released since it was saved. A folder with a run is refused otherwise:
            to train a second time from the same folder is to spend the same budget twice.
    """

    path: str | Path
    every: int | None = None
    resume: bool = False

    def __post_init__(self) -> None:
        if not isinstance(self.path, str | Path):
            raise ArgumentError("folder must be a path, or training.RunFolder(path, resume=True)")
        _check.given(_check.whole, 1, every=self.every)

    @classmethod
    def of(cls, given: "str | Path | RunFolder | None") -> "RunFolder | None":
        """The folder that an argument names."""
        return given if given is None or isinstance(given, RunFolder) else cls(given)


@dataclass(frozen=True, slots=True)
class Announced:
    """A release that was announced, of people by their ids; None: of everybody. Private, because of the people."""

    mechanism: Mechanism
    people: tuple[Hashable, ...] | None = field(default=None, repr=False)

    @classmethod
    def read(cls, line: str) -> Self:
        fields = json.loads(line)
        people = fields.pop("people", None)
        return cls(people=None if people is None else tuple(people), mechanism=mechanisms.from_fields(fields))


def check_ids(people: Sequence[Hashable]) -> None:
    """Refuse ids that would not come back from the disk as they are, as a tuple would come back as a list."""
    if not all(isinstance(person, int | str) for person in people):
        raise ArgumentError("people: with a folder, ids must be whole numbers or texts")


class Folder:
    """The state of one run of a kind, and the journal of what was announced since, for its owner alone."""

    check_ids = staticmethod(check_ids)

    def __init__(self, path: str | Path, kind: str, *, resume: bool) -> None:
        self.path, self._kind = Path(path), kind
        private_folder(self.path)
        self._state_file, self._journal_file = self.path / "state.npz", self.path / "journal.jsonl"
        self._update_file, self._claims_file = self.path / "update.npz", self.path / "claims"
        self._before_file, self.twice = self.path / "before.npz", False
        """True: the state before the last is kept too, so that processes that each have a part find a common one."""
        if self._state_file.exists() and not resume:
            raise ArgumentError(f"folder={str(path)!r} holds a run already: pass resume=True to go on with it")
        self._lock = Lock(self.path / "lock")
        try:
            taken = self._lock.take()
        except OSError as error:
            raise ArgumentError(f"folder={str(self.path)!r} cannot be locked: {error.strerror}") from error
        if not taken:
            raise ArgumentError(f"folder={str(self.path)!r} is in use by another process")
        self.confirm: Callable[[], object] = lambda: None
        """Done after each announcement is on the disk; where it raises, nothing is released."""
        self._announced: int | None = None
        self._journal = os.open(self._journal_file, os.O_WRONLY | os.O_APPEND | os.O_CREAT, PRIVATE_FILE)

    def announce(self, mechanism: Mechanism, people: Sequence[Hashable] | None = None) -> None:
        """Write down what people (None: everybody) are charged for next; returns when it is on the disk."""
        self._check_process()
        check_ids(people or ())
        fields = mechanisms.to_fields(mechanism)
        line = (json.dumps(fields if people is None else fields | {"people": list(people)}) + "\n").encode()
        announced, self._announced = self._lines_announced(), None  # a signal may end this after the line is written
        if os.write(self._journal, line) < len(line):
            raise DataError(f"folder: {str(self._journal_file)!r} could not be written; nothing was released")
        os.fsync(self._journal)
        self._announced = announced + 1
        self.confirm()

    def save(self, parts: Mapping[str, Any], number: int) -> None:
        """Replace the state by these parts, which have seen every line; DataError: they can't be; the last is kept."""
        self._check_process()
        if self.twice and self._state_file.exists() and self.number() < number:  # others may lack it
            self.forget_before()
            os.link(self._state_file, self._before_file)
        told = {"format": FORMAT, "kind": self._kind, "seen": self._lines_announced(), "parts": parts}
        _write(self._state_file, told, number)

    def load(self) -> tuple[dict[str, Any], list[Announced]] | None:
        """The last state, and what was announced since; None where nothing was ever saved."""
        if not self._state_file.exists():
            if self._lines_announced():
                raise DataError(f"folder: {str(self._state_file)!r} is missing, though a run has released something")
            return None
        told = _read(self._state_file)
        if not isinstance(told, dict) or told.get("format") != FORMAT:
            found = told.get("format") if isinstance(told, dict) else None
            raise DataError(
                f"folder: {str(self._state_file)!r} has format {found!r}, of another version of Almoner; this "
                f"one reads format {FORMAT}. Nothing was changed: go on with the version that began it"
            )
        if told["kind"] != self._kind:
            raise ArgumentError(f"folder: {str(self.path)!r} holds the run of a {told['kind']}, not of a {self._kind}")
        lines = self._complete_lines()
        if len(lines) < told["seen"]:
            raise DataError("folder: the journal is shorter than the state says; nothing was changed")
        try:
            unseen = [Announced.read(line) for line in lines[told["seen"] :]]
        except (ValueError, KeyError, TypeError, AttributeError) as broken:
            raise DataError(f"folder: {str(self._journal_file)!r} can't be read; nothing was changed") from broken
        return told["parts"], unseen

    def number(self) -> int:
        """The number of the step that the state was saved after; 0 where there is none."""
        return int(_members(self._state_file, "number")["number"]) if self._state_file.exists() else 0

    def numbers(self) -> list[int]:
        """The numbers of the steps after which a state was saved that is still there."""
        before = [_members(self._before_file, "number")] if self._before_file.exists() else []
        return [self.number(), *(int(each["number"]) for each in before)]

    def parts_of(self, number: int) -> dict[str, Any]:
        """The parts of the state that was saved after a step, one of ``numbers``."""
        file = self._state_file if number == self.number() else self._before_file
        return cast(dict[str, Any], _read(file)["parts"])

    def forget_before(self) -> None:
        """Keep the last state alone: a step that is taken again must not be mistaken for the one before."""
        self._before_file.unlink(missing_ok=True)

    def keep(self, update: Mapping[str, Any], number: int) -> None:
        """Keep an update on a ledger, which is told once the ledger has charged it. Private."""
        _write(self._update_file, update, number)

    def kept(self, number: int) -> dict[str, Any] | None:
        """The update of this number, if it is what was kept last. Private."""
        if not self._update_file.exists() or int(_members(self._update_file, "number")["number"]) != number:
            return None
        return cast(dict[str, Any], _read(self._update_file))

    def claims(self) -> list[str]:
        """The claims on a ledger so far, in order, without those of a longer journal: then this is an older copy."""
        if not self._claims_file.exists():
            return []
        lines = (line.split() for line in self._claims_file.read_text(encoding="ascii").splitlines())
        return [claim for claim, announced in lines if int(announced) <= self._lines_announced()]

    def claim(self, claim: str, *, after: str | None = None) -> None:
        """Keep one more claim, private; returns when it is on the disk. Those before ``after`` go."""
        kept = self.claims() if after is None else [after]
        with whole_file(self._claims_file) as file:
            file.write("".join(f"{each} {self._lines_announced()}\n" for each in (*kept, claim)).encode())

    def own_claim(self) -> str:
        """The secret by which this folder's stream shows a ledger that it is the one of its name. Private."""
        if not self.claims():
            self.claim(new_claim())
        return self.claims()[0]

    def close(self) -> None:
        os.close(self._journal)
        self._lock.release()

    def _lines_announced(self) -> int:
        """Number of lines of the journal; counted anew, and forced to the disk, where the last one was interrupted."""
        if self._announced is None:
            counted = len(self._complete_lines())
            os.fsync(self._journal)  # a state that has seen a line must not outlive it
            self._announced = counted
        return self._announced

    def _check_process(self) -> None:
        if not self._lock.held:
            raise DataError(f"folder={str(self.path)!r} is closed, or belongs to the process before a fork")

    def _complete_lines(self) -> list[str]:
        """Complete lines; the last one may be cut off by a crash, and then nothing of it was released."""
        if not self._journal_file.exists():
            return []
        text = self._journal_file.read_bytes()
        complete = text[: text.rfind(b"\n") + 1]
        if len(complete) < len(text):
            os.truncate(self._journal_file, len(complete))
        return complete.decode().splitlines()


def _write(path: Path, told: Mapping[str, Any], number: int) -> None:
    arrays: dict[str, Any] = {"number": np.int64(number)}
    text = json.dumps(_packed(told, arrays))
    try:
        with whole_file(path) as file:
            np.savez(file, allow_pickle=False, json=np.frombuffer(text.encode(), np.uint8), **arrays)
    except (OSError, RuntimeError) as failed:
        raise DataError(f"folder: {str(path)!r} can't be written") from failed


def _read(path: Path) -> Any:
    arrays = _members(path)
    try:
        return _unpacked(json.loads(arrays["json"].tobytes()), arrays)
    except (ValueError, KeyError, TypeError, AttributeError, RuntimeError) as broken:
        raise DataError(f"folder: {str(path)!r} can't be read; nothing was changed") from broken


def _members(path: Path, *names: str) -> dict[str, Any]:
    try:
        with path.open("rb") as file, np.load(file, allow_pickle=False) as arrays:
            return {name: arrays[name] for name in names or arrays.files}
    except (OSError, ValueError, KeyError, TypeError, AttributeError, zipfile.BadZipFile, EOFError) as broken:
        raise DataError(f"folder: {str(path)!r} can't be read; nothing was changed") from broken


def _packed(value: Any, arrays: dict[str, Any]) -> Any:
    """A value for JSON; its arrays are put aside under names. Dictionaries are lists of pairs: keys may be numbers."""
    torch: Any = sys.modules.get("torch")
    tensor = torch is not None and isinstance(value, torch.Tensor)
    if tensor or isinstance(value, np.ndarray):
        name, kind = f"a{len(arrays)}", None
        if tensor:
            kind, value = str(value.dtype).removeprefix("torch."), value.detach().cpu().contiguous()
            value = value.view(torch.int16) if value.dtype == torch.bfloat16 else value
            value = value.numpy()
        if value.dtype.char not in PACKED:
            raise DataError(f"folder: {PLAIN}; nothing was replaced")
        arrays[name] = value
        return {"": "array", "name": name, "torch": kind}
    if isinstance(value, Mapping):
        return {"": "dict", "items": [[_packed(key, arrays), _packed(each, arrays)] for key, each in value.items()]}
    if isinstance(value, list | tuple):
        kind = "list" if isinstance(value, list) else "tuple"
        return {"": kind, "items": [_packed(each, arrays) for each in value]}
    value = value.item() if isinstance(value, np.generic) else value
    if value is None or isinstance(value, bool | int | float | str):
        return value
    raise DataError(f"folder: {PLAIN}; nothing was replaced")


def _unpacked(told: Any, arrays: Mapping[str, Any]) -> Any:
    kind = told[""] if isinstance(told, dict) else None
    if kind is None:
        return told
    if kind == "array":
        value = arrays[told["name"]]
        if told["torch"] is None:
            return value
        import torch

        return torch.from_numpy(value).view(getattr(torch, told["torch"]))
    if kind == "dict":
        return {_unpacked(key, arrays): _unpacked(each, arrays) for key, each in told["items"]}
    return {"list": list, "tuple": tuple}[kind](_unpacked(each, arrays) for each in told["items"])
