"""Which steps were taken, by each process that trained, so that checkpoints and files can be merged without loss.

A *run* holds the steps of one process, in order, and only ever grows. Of two copies of a run, one is therefore the
beginning of the other, and the longer one is right. So an old checkpoint takes nothing back, and nothing counts twice.
"""

import json
import os
import secrets
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from almoner import _check, _disk
from almoner.errors import ArgumentError

__all__ = ["Record", "Runs", "append"]

Steps = tuple[float, float, int]  # noise multiplier, sample rate, how many


class Runs:
    """The steps of all processes that an account knows of. Public."""

    def __init__(self) -> None:
        self._names: dict[int, str] = {}
        self._runs: dict[str, list[Steps]] = {}

    def add(self, noise_multiplier: float, sample_rate: float, *, run: str | None = None) -> None:
        """Add one step to a run; by default to this process's own. A forked process has another one."""
        own = self._names.setdefault(os.getpid(), secrets.token_hex(8))
        append(self._runs.setdefault(run or own, []), noise_multiplier, sample_rate)

    def state(self) -> dict[str, list[Steps]]:
        """The steps of each run, by its name."""
        return {name: list(steps) for name, steps in self._runs.items()}

    def missing(self, state: Mapping[str, Sequence[Sequence[float]]]) -> list[tuple[str, float, float]]:
        """The steps of a state that are not known here: their run, noise multiplier and sample rate, in order.

        Raises:
            ArgumentError: a run of the state is not the run of the same name here.
        """
        found = []
        for name, steps in state.items():
            known, there = list(_each(self._runs.get(name, []))), list(_each(steps))
            both = min(len(known), len(there))
            if known[:both] != there[:both]:
                raise ArgumentError(f"state: its run {name!r} has other steps than the run of that name here")
            found += [(name, *step) for step in there[both:]]
        return found


class Record:
    """A file that keeps a state as it was last written, whole, for its owner alone. One process at a time holds it."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._lock = _disk.Lock(path.with_name(path.name + ".lock"))

    def open(self) -> dict[str, Any] | None:
        """Take the file's lock, and read the state; None where there is no file yet.

        Raises:
            ArgumentError: another process holds the file, or it can't be read.
        """
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
        """Let other processes use the file."""
        self._lock.release()


def append(steps: list[Steps], noise_multiplier: float, sample_rate: float) -> None:
    """Append one step to a list of steps."""
    count = 1
    if steps and steps[-1][:2] == (noise_multiplier, sample_rate):
        count += steps.pop()[2]
    steps.append((noise_multiplier, sample_rate, count))


def _each(steps: Sequence[Sequence[float]]) -> Iterator[tuple[float, float]]:
    """(noise multiplier, sample rate) of every single step."""
    for noise_multiplier, sample_rate, count in steps:
        _check.number(noise_multiplier=noise_multiplier, sample_rate=sample_rate)
        _check.whole(1, steps=count)
        yield from [(float(noise_multiplier), float(sample_rate))] * int(count)
