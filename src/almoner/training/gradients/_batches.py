"""Check a batch of records, and split it into chunks of people with all of their records."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
import torch
from torch import Tensor, nn
from torch.overrides import BaseTorchFunctionMode

from almoner.errors import ArgumentError

Batch = Tensor | Sequence[Tensor] | Mapping[str, Tensor]
"""Inputs of a module: a tensor, several in order, or by name; also arrays of NumPy, tables of pandas."""

MOST_PEOPLE = 2**31

WHOLE = (torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64)


@dataclass(frozen=True, slots=True)
class Chunk:
    """Some people with all of their records."""

    records: slice | Tensor  # or (r,) record numbers
    rows: Tensor  # (people,) the people's numbers
    place: Tensor | None = None  # (r,) where each record stands among people * most places
    most: int = 1  # no person of this chunk has more records


class Column:
    """Stands for a tensor of the form of one record, which loads those records that are asked for, by their numbers."""

    def __init__(self, load: Callable[[Tensor], Tensor], rows: Tensor, one: Tensor) -> None:
        self._load, self._rows, self._one = load, rows, one
        self.dtype, self.shape = one.dtype, torch.Size((len(rows), *one.shape[1:]))

    def __len__(self) -> int:
        return self.shape[0]

    def dim(self) -> int:
        return len(self.shape)

    def __getitem__(self, rows: slice | Tensor) -> Tensor:
        chosen = self._rows[rows]
        return self._load(chosen) if len(chosen) else self._one[:0]

    def select(self, rows: Tensor) -> "Column":
        """The column of some records; nothing is loaded."""
        return Column(self._load, self._rows[rows], self._one)


class Inputs(tuple[Tensor, ...]):
    """The inputs of a module, in order or by name; each with the records on the first axis."""

    names: tuple[str, ...]

    @classmethod
    def of(cls, parts: Iterable[Tensor], names: Iterable[str] = ()) -> Self:
        """Some tensors, and their names where the module is to be called by name."""
        made = cls(parts)
        made.names = tuple(names)
        return made

    def map(self, change: Callable[[Tensor], Tensor]) -> "Inputs":
        return Inputs.of(map(change, self), self.names)

    def rows(self, records: slice | Tensor) -> "Inputs":
        return self.map(lambda part: part[records])

    def copied(self, records: slice | Tensor, device: torch.device, *, channels_last: bool) -> "Inputs":
        """Some records on a device, in memory of their own; images with their channels last where that is wanted."""

        def moved(part: Tensor) -> Tensor:
            images = channels_last and part.dim() == 4 and part.is_floating_point()
            form = torch.channels_last if images else torch.preserve_format
            copy = isinstance(records, slice)  # else there is a copy already
            return part[records].to(device, memory_format=form, non_blocking=True, copy=copy)

        return self.map(moved)

    def select(self, rows: Tensor) -> "Inputs":
        """Select records; of a column that is loaded when it is asked for, nothing is loaded."""
        return self.map(lambda part: selected(part, rows))

    def call(self, module: nn.Module) -> Any:
        """Call the module, by name where the inputs have names."""
        with BaseTorchFunctionMode():  # in it nn.TransformerEncoder asks nothing about all masks of a batch
            return module(**dict(zip(self.names, self, strict=True))) if self.names else module(*self)


def selected(part: Tensor, rows: Tensor) -> Tensor:
    return part.select(rows) if isinstance(part, Column) else part[rows]


def as_inputs(inputs: object, dtype: torch.dtype | None = None) -> Inputs:
    """One tensor, several, or several by name; numbers of NumPy and pandas become tensors, of the module's type."""
    if isinstance(inputs, Inputs):
        return inputs
    if isinstance(inputs, Mapping):
        if not all(isinstance(name, str) for name in inputs):
            raise ArgumentError("inputs must be named by texts, as the module's arguments are")
        return Inputs.of([as_tensor("inputs", part, dtype) for part in inputs.values()], inputs)
    parts = inputs if isinstance(inputs, list | tuple) else [inputs]
    return Inputs.of(as_tensor("inputs", part, dtype) for part in parts)


def as_tensor(name: str, part: object, dtype: torch.dtype | None = None) -> Tensor:
    """A tensor, or one of the same numbers as an array of NumPy or a table of pandas."""
    if isinstance(part, Tensor | Column):
        return part  # type: ignore[return-value]
    array: Any = part.to_numpy() if hasattr(part, "to_numpy") else part
    if not hasattr(array, "__array__"):
        raise ArgumentError(
            f"{name} must be a tensor, an array, several of them in a list, or a dict of them by name, "
            f"not {type(part).__name__}"
        )
    array = np.asarray(array)
    if array.dtype.kind not in "biuf":
        raise ArgumentError(f"{name} must hold numbers only, not dtype {array.dtype}: encode other columns first")
    array = np.ascontiguousarray(array)
    found = torch.from_numpy(array if array.flags.writeable else array.copy())
    return found.to(dtype) if dtype is not None and found.is_floating_point() else found


def check_batch(inputs: Sequence[Tensor], targets: Tensor | None, people: Tensor | None) -> int:
    """Check the shapes and kinds of a batch; gives the number of its records."""
    if not inputs or not all(isinstance(part, Tensor | Column) and part.dim() for part in inputs):
        raise ArgumentError("inputs must be a tensor or several, each with the records on the first axis")
    count = inputs[0].shape[0]
    others = [("inputs", part) for part in inputs] + [("targets", targets), ("people", people)]
    for name, part in others:
        if part is not None and not (isinstance(part, Tensor | Column) and part.dim()):
            raise ArgumentError(f"{name} must be a tensor, the records on its first axis, not {type(part).__name__}")
        if part is not None and part.shape[0] != count:
            raise ArgumentError(f"{name} must have as many records on the first axis as the first of the inputs")
    if people is not None:
        whole = people.dim() == 1 and people.dtype in WHOLE
        if not whole or (count and int(people.min()) < 0):
            raise ArgumentError("people must be whole numbers from 0, one for each record")
        if count and int(people.max()) >= MOST_PEOPLE:
            raise ArgumentError("people: a number is too large: number the people from 0 to n - 1")
    return count


class ByPerson:
    """The numbers of each person's records, (records,) whole numbers from 0; at least so many people there are."""

    def __init__(self, people: Tensor, at_least: int = 0) -> None:
        self._order = torch.argsort(people, stable=True)
        self.counts = torch.bincount(people, minlength=at_least)  # (people,) how many records each has
        self._starts = torch.cumsum(self.counts, 0) - self.counts

    def of(self, people: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """(r,) the records of some people, (m,) by number; who of them each is of, 0 to m - 1; and its place there."""
        counts = self.counts[people]
        whose = torch.repeat_interleave(torch.arange(len(people)), counts)
        within = torch.arange(int(counts.sum())) - (torch.cumsum(counts, 0) - counts)[whose]
        return self._order[self._starts[people][whose] + within], whose, within


def chunks(count: int, people: Tensor | None, most: int) -> list[Chunk]:
    """Each person once, with all of their records; people with about as many records are in one chunk."""
    if people is None:
        stops = [(start, min(start + most, count)) for start in range(0, count, most)]
        return [Chunk(slice(start, stop), torch.arange(start, stop)) for start, stop in stops]
    parts: list[Chunk] = []
    by_person = ByPerson(people.cpu())
    order = torch.argsort(by_person.counts, stable=True)
    sizes = by_person.counts[order].tolist()
    first = sizes.count(0)  # a person without records has no gradient
    while first < len(sizes):
        last = first + 1
        while last < len(sizes) and (last - first + 1) * max(1, sizes[last]) <= most:
            last += 1
        rows, largest = order[first:last], max(1, sizes[last - 1])
        records, whose, within = by_person.of(rows)
        parts.append(Chunk(records, rows, whose * largest + within, largest))
        first = last
    return parts
