"""Check a batch of records, and split it into chunks of people with all of their records."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from bursar.errors import ArgumentError

__all__ = ["Batch", "Chunk", "as_inputs", "check_batch", "chunks", "prepared"]

Batch = Tensor | Sequence[Tensor]

MOST_PEOPLE = 2**31

WHOLE = (torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64)


@dataclass(frozen=True, slots=True)
class Chunk:
    """Some people with all of their records."""

    records: slice | Tensor  # or (r,) record numbers
    rows: Tensor  # (people,) the people's numbers
    place: Tensor | None = None  # (r,) where each record stands among people * most places
    most: int = 1  # no person of this chunk has more records


def as_inputs(inputs: Batch) -> tuple[Tensor, ...]:
    """One tensor, or several, as a tuple of them."""
    if not isinstance(inputs, Tensor | list | tuple):
        raise ArgumentError(f"inputs must be a tensor or several, not {type(inputs).__name__}")
    return (inputs,) if isinstance(inputs, Tensor) else tuple(inputs)


def check_batch(inputs: Sequence[Tensor], targets: Tensor | None, people: Tensor | None) -> int:
    """Check the shapes and kinds of a batch; gives the number of its records."""
    if not inputs or not all(isinstance(part, Tensor) and part.dim() for part in inputs):
        raise ArgumentError("inputs must be a tensor or several, each with the records on the first axis")
    count = inputs[0].shape[0]
    others = [("inputs", part) for part in inputs] + [("targets", targets), ("people", people)]
    for name, part in others:
        if part is not None and not (isinstance(part, Tensor) and part.dim()):
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


def prepared(part: Tensor, device: torch.device) -> Tensor:
    """On the module's device; images with the channels last, which convolutions on a processor are faster with."""
    if part.dim() == 4 and part.is_floating_point():
        return part.to(device, memory_format=torch.channels_last, non_blocking=True)
    return part.to(device, non_blocking=True)


def chunks(count: int, people: Tensor | None, most: int) -> list[Chunk]:
    """Each person once, with all of their records; people with about as many records are in one chunk."""
    if people is None:
        stops = [(start, min(start + most, count)) for start in range(0, count, most)]
        return [Chunk(slice(start, stop), torch.arange(start, stop)) for start, stop in stops]
    parts: list[Chunk] = []
    people = people.cpu()
    numbers = torch.bincount(people)
    starts = torch.cumsum(numbers, 0) - numbers
    by_person = torch.argsort(people, stable=True)
    order = torch.argsort(numbers, stable=True)
    sizes = numbers[order].tolist()
    first = int((numbers == 0).sum())  # a person without records has no gradient
    while first < len(sizes):
        last = first + 1
        while last < len(sizes) and (last - first + 1) * max(1, sizes[last]) <= most:
            last += 1
        rows = order[first:last]
        counts = numbers[rows]
        local = torch.repeat_interleave(torch.arange(len(rows)), counts)
        within = torch.arange(int(counts.sum())) - (torch.cumsum(counts, 0) - counts)[local]
        largest = max(1, sizes[last - 1])
        parts.append(Chunk(by_person[starts[rows][local] + within], rows, local * largest + within, largest))
        first = last
    return parts
