"""The records of a run, private: inputs, targets and the person each record belongs to."""

from collections.abc import Hashable, Sequence
from hashlib import blake2b
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from almoner.errors import ArgumentError, UnknownPerson
from almoner.training._accounts.ids import ids_and_rows
from almoner.training.gradients._batches import Inputs, selected

__all__ = ["Part", "Records", "as_rows", "numbered"]

AT_ONCE = 2**12
"""So many records are read at once, where all of them are."""

GAPS = 4
"""Whole numbers below so many times the number of records are rows as they are: accounts of nobody cost little."""


class Part(NamedTuple):
    """The records of some people, numbered from 0. Private."""

    inputs: Inputs
    targets: Tensor
    people: Tensor | None


class Records:
    """Inputs, targets and the person of each record. Private throughout.

    Args:
        inputs: what the module is called with, with the records on the first axis.
        targets: a tensor with the records on the first axis.
        people: (records,) whole numbers from 0, or None where each record is a person.
        ids: (n,) of each person, where people are not numbered by the caller.
        at_least: there are at least this many people; the last of them may have no records.
    """

    def __init__(
        self,
        inputs: Inputs,
        targets: Tensor,
        people: Tensor | None,
        at_least: int = 0,
        ids: list[Hashable] | None = None,
    ) -> None:
        people = None if people is None else people.cpu()
        self.inputs, self.targets, self.people, self.ids = inputs, targets, people, ids
        self._rows = {} if ids is None else {each: number for number, each in enumerate(ids)}
        self.person_count = len(inputs[0])
        if people is not None:
            self.person_count = max(at_least, int(people.max()) + 1 if len(people) else 0)
            self._by_person = torch.argsort(people, stable=True)
            self._counts = torch.bincount(people, minlength=self.person_count)
            self._starts = torch.cumsum(self._counts, 0) - self._counts

    def fingerprint(self) -> str:
        """A digest, private, that is the same for the same records of the same people in the same order only."""
        digest = blake2b(digest_size=16)
        for part in (*self.inputs, self.targets, self.people):
            if part is not None:
                digest.update(f"{part.dtype} {tuple(part.shape)}".encode())
                for start in range(0, max(1, len(part)), AT_ONCE):
                    some = part[start : start + AT_ONCE].detach().cpu().contiguous()
                    digest.update(some.view(-1).view(torch.uint8).numpy().data)
        digest.update(repr(self.ids).encode())
        return digest.hexdigest()

    def row_of(self, person: Hashable) -> Any:
        """The number of a person, from the id or from the number itself."""
        if self.ids is None:
            return person
        if person not in self._rows:
            raise UnknownPerson("person: no record of the training is of this person")
        return self._rows[person]

    def of(self, people: NDArray[np.int64]) -> "Part":
        """The records of some people, (m,) by number, who are numbered anew in this order."""
        rows = torch.from_numpy(people)
        if self.people is None:
            return Part(self.inputs.select(rows), selected(self.targets, rows), None)
        counts = self._counts[rows]
        new_numbers = torch.repeat_interleave(torch.arange(len(rows)), counts)
        within_person = torch.arange(int(counts.sum())) - (torch.cumsum(counts, 0) - counts)[new_numbers]
        records = self._by_person[self._starts[rows][new_numbers] + within_person]
        return Part(self.inputs.select(records), selected(self.targets, records), new_numbers)


def numbered(people: object, records: int) -> tuple[list[Hashable], Tensor]:
    """Who is there, and whose each record is.

    Args:
        people: (records,) an id for each record: a list, or an array or a tensor of numbers or texts.
        records: how many there are.

    Returns:
        (m,) different ids in the order in which they appear, and (records,) their numbers from 0 to m - 1.

    Raises:
        ArgumentError: there is not one id for each record, or an id is missing, or cannot be told from itself.
    """
    ids, rows = ids_and_rows(people, records)
    return ids, torch.tensor(rows, dtype=torch.int64)


def as_rows(
    people: object, records: int, *, rows: bool, named: bool = False
) -> tuple[Tensor | None, list[Hashable] | None]:
    """Whose each record is, as the numbers of rows, and the ids of those rows if there are any.

    Args:
        people: (records,) private: an id for each record, or None: each is a person.
        records: how many there are.
        rows: whether whole numbers are the numbers of rows however large they are: something else has these rows too.
        named: whether whole numbers are ids as others are: a ledger names people by them.

    Returns:
        (records,) numbers from 0, or None; and (n,) ids in the order in which they appear. Whole numbers from 0 with
        few gaps are numbers of rows already, and have no ids.
    """
    if people is None:
        return None, None
    if named:
        ids, numbers = numbered(people, records)
        return numbers, ids
    array: Any = people.to_numpy() if hasattr(people, "to_numpy") else people
    if isinstance(array, np.ndarray) and array.dtype.kind in "iu":
        array = torch.from_numpy(array.astype(np.int64)) if array.max(initial=0) < 2**63 else array
    elif isinstance(array, Sequence) and array and all(type(each) is int and 0 <= each < 2**63 for each in array):
        array = torch.tensor(array)
    if isinstance(array, Tensor) and not array.is_floating_point() and array.dim() == 1 and len(array) == records:
        few_gaps = not records or (int(array.min()) >= 0 and int(array.max()) < GAPS * records)
        if rows or few_gaps:
            return array, None
    if rows:
        raise ArgumentError("people: accounts and shares are of rows here, so people must be whole numbers from 0")
    if isinstance(array, Tensor) and (array.is_floating_point() or array.dim() != 1):
        raise ArgumentError("people must be whole numbers or other ids, one for each record")
    ids, numbers = numbered(array, records)
    return numbers, ids
