"""A loader that remembers whose records it gave, and gives large batches in pieces. What it remembers is private."""

from collections import deque
from collections.abc import Iterator
from math import ceil, inf
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch.utils.data import DataLoader, Dataset, Sampler
from torch.utils.data._utils.pin_memory import pin_memory

from bursar.errors import ArgumentError, Unsupported

__all__ = ["SPLIT", "Loader"]

SPLIT = "BatchMemoryManager splits batches, which individual() does not follow: give it max_physical_batch_size instead"


class _Rows(Dataset[Any]):
    """A data set that also says whose each record is."""

    def __init__(self, records: Any) -> None:
        self.records = records

    def __len__(self) -> int:
        return len(self.records)

    def __getitem__(self, row: int) -> tuple[int, Any]:
        return row, self.records[row]


class _Piece:
    """A batch, or a piece of one, and whose records it holds; private."""

    def __init__(self, rows: list[int], batch: Any) -> None:
        self.rows, self.batch = rows, batch

    def __iter__(self) -> Iterator[Any]:
        raise Unsupported(SPLIT)

    def pin_memory(self) -> "_Piece":
        """For loaders that copy to a GPU."""
        return _Piece(self.rows, pin_memory(self.batch))  # type: ignore[no-untyped-call]


class _Collate:
    """The rows of a batch beside the batch."""

    def __init__(self, collate: Any) -> None:
        self._collate = collate

    def __call__(self, items: list[tuple[int, Any]]) -> _Piece:
        return _Piece([row for row, _ in items], self._collate([record for _, record in items]))


class _Pieces(Sampler[list[int]]):
    """The batches of a sampler, the larger ones in pieces; what has been given is noted in ``given``."""

    def __init__(self, sampler: Any, most: int | None) -> None:
        self._sampler, self._most = sampler, most
        self.given: deque[tuple[bool, bool]] = deque()

    def __iter__(self) -> Iterator[list[int]]:
        self.given.clear()
        for batch in self._sampler:
            most = self._most or max(1, len(batch))
            starts = range(0, max(1, len(batch)), most)
            for start in starts:
                self.given.append((start == 0, start == starts[-1]))
                yield batch[start : start + most]

    def __len__(self) -> int:
        """About how many pieces, from public numbers."""
        expected = self._sampler.num_samples * self._sampler.sample_rate
        pieces: int = ceil(len(self._sampler) * max(1.0, expected / (self._most or inf)))
        return pieces


class Loader(DataLoader[Any]):
    """Gives the batches of a DPDataLoader and remembers who is in the one given last. Its memory is private."""

    def __init__(self, given: Any, most: int | None) -> None:
        names = ("num_workers", "pin_memory", "timeout", "worker_init_fn", "multiprocessing_context", "generator")
        more = ("prefetch_factor", "persistent_workers")
        super().__init__(
            _Rows(given.dataset),
            batch_sampler=_Pieces(given.batch_sampler, most),
            collate_fn=_Collate(given.collate_fn),
            **{name: getattr(given, name) for name in names + more},
        )
        self._sampler = given.batch_sampler
        self._waiting: tuple[NDArray[np.int64], bool, bool] | None = None
        self._unfinished = False
        self._loop: object = None

    @property
    def sample_rate(self) -> float:
        """The probability with which each record is in a batch."""
        return float(self._sampler.sample_rate)

    def __iter__(self) -> Any:
        self._waiting, self._unfinished = None, False
        self._loop = loop = object()
        pieces: Any = self.batch_sampler
        for piece in super().__iter__():
            if self._loop is not loop:
                raise ArgumentError("another loop over the loader was begun: what was left of this one has no price")
            if self._waiting is not None:
                raise ArgumentError(
                    "a batch was drawn and no step was taken: every batch needs its step, empty ones too"
                )
            self._waiting = (np.asarray(piece.rows, dtype=np.int64), *pieces.given.popleft())
            yield piece.batch

    @property
    def waiting(self) -> bool:
        """Whether a batch was given, or a piece of one, that had no step yet. Public."""
        return self._unfinished or self._waiting is not None

    def take(self) -> tuple[NDArray[np.int64], bool, bool]:
        """The rows of the piece given last, once, whether it is a batch's first, and its last. Private."""
        if self._waiting is None:
            raise ArgumentError("no batch was drawn for this step from the loader that individual() gave")
        taken, self._waiting = self._waiting, None
        self._unfinished = not taken[2]
        return taken
