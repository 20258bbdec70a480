"""The records of a run, private: inputs, targets and the person each record belongs to."""

from hashlib import blake2b

import torch
from torch import Tensor

__all__ = ["Records"]


class Records:
    """Inputs, targets and the person of each record. Private throughout.

    Args:
        inputs: tensors with the records on the first axis.
        targets: a tensor with the records on the first axis.
        people: (records,) whole numbers from 0, or None where each record is a person.
        at_least: there are at least this many people; the last of them may have no records.
    """

    def __init__(self, inputs: tuple[Tensor, ...], targets: Tensor, people: Tensor | None, at_least: int = 0) -> None:
        people = None if people is None else people.cpu()
        self.inputs, self.targets, self.people = inputs, targets, people
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
                digest.update(part.detach().cpu().contiguous().view(-1).view(torch.uint8).numpy().data)
        return digest.hexdigest()

    def select_people(self, rows: Tensor) -> tuple[tuple[Tensor, ...], Tensor, Tensor | None]:
        """Inputs, targets and people of the records of some people, who are numbered anew in the order of ``rows``."""
        if self.people is None:
            return tuple(part[rows] for part in self.inputs), self.targets[rows], None
        counts = self._counts[rows]
        new_numbers = torch.repeat_interleave(torch.arange(len(rows)), counts)
        within_person = torch.arange(int(counts.sum())) - (torch.cumsum(counts, 0) - counts)[new_numbers]
        records = self._by_person[self._starts[rows][new_numbers] + within_person]
        return tuple(part[records] for part in self.inputs), self.targets[records], new_numbers
