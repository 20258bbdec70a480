"""The records of a run, private: inputs, targets and the person each record belongs to."""

from collections.abc import Hashable
from hashlib import blake2b
from typing import Any

import torch
from torch import Tensor

from almoner.errors import UnknownPerson
from almoner.training.gradients._batches import Inputs, selected

__all__ = ["Records"]

AT_ONCE = 2**12
"""So many records are read at once, where all of them are."""


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

    def select_people(self, rows: Tensor) -> tuple[Inputs, Tensor, Tensor | None]:
        """Inputs, targets and people of the records of some people, who are numbered anew in the order of ``rows``."""
        if self.people is None:
            return self.inputs.select(rows), selected(self.targets, rows), None
        counts = self._counts[rows]
        new_numbers = torch.repeat_interleave(torch.arange(len(rows)), counts)
        within_person = torch.arange(int(counts.sum())) - (torch.cumsum(counts, 0) - counts)[new_numbers]
        records = self._by_person[self._starts[rows][new_numbers] + within_person]
        return self.inputs.select(records), selected(self.targets, records), new_numbers
