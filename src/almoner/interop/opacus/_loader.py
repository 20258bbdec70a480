"""A data loader that remembers whose records are in a batch and splits large batches. What it remembers is private."""

from collections import deque
from collections.abc import Callable, Iterator
from math import ceil, inf
from typing import Any

import numpy as np
from numpy.typing import NDArray
from opacus.data_loader import DPDataLoader
from opacus.utils.uniform_sampler import UniformWithReplacementSampler
from torch.utils.data import DataLoader, Dataset, Sampler
from torch.utils.data._utils.pin_memory import pin_memory

from almoner.errors import ArgumentError, Unsupported

__all__ = ["SPLIT", "Loader"]

SPLIT = "BatchMemoryManager splits batches, which individual() does not follow: give it max_physical_batch_size instead"


class _NumberedRecords(Dataset[Any]):
    """A data set whose records come with their row, which is their person."""

    def __init__(self, records: Dataset[Any]) -> None:
        self.records = records

    def __len__(self) -> int:
        return len(self.records)  # type: ignore[arg-type]

    def __getitem__(self, row: int) -> tuple[int, object]:
        return row, self.records[row]


class _Piece:
    """A batch, or a piece of one, and the rows of its records; private."""

    def __init__(self, rows: list[int], batch: object) -> None:
        self.rows, self.batch = rows, batch

    def __iter__(self) -> Iterator[Any]:
        raise Unsupported(SPLIT)

    def pin_memory(self) -> "_Piece":
        """Called by loaders that copy batches to a GPU."""
        return _Piece(self.rows, pin_memory(self.batch))  # type: ignore[no-untyped-call]


class _Collate:
    """A ``collate_fn`` that keeps the rows of the records beside the batch."""

    def __init__(self, collate: Callable[[list[object]], object]) -> None:
        self._collate = collate

    def __call__(self, items: list[tuple[int, object]]) -> _Piece:
        return _Piece([row for row, _ in items], self._collate([record for _, record in items]))


class _Pieces(Sampler[list[int]]):
    """The batches of a sampler, the larger ones in pieces of at most ``size`` rows.

    ``ends`` holds, for each piece that was handed out, whether it is its batch's first and whether it is its last.
    """

    def __init__(self, sampler: UniformWithReplacementSampler, size: int | None) -> None:
        self._sampler, self._size = sampler, size
        self.ends: deque[tuple[bool, bool]] = deque()

    def __iter__(self) -> Iterator[list[int]]:
        self.ends.clear()
        for batch in self._sampler:
            size = self._size or max(1, len(batch))
            starts = range(0, max(1, len(batch)), size)
            for start in starts:
                self.ends.append((start == 0, start == starts[-1]))
                yield batch[start : start + size]

    def __len__(self) -> int:
        """The expected number of pieces, from public numbers."""
        expected = self._sampler.num_samples * self._sampler.sample_rate
        pieces: int = ceil(len(self._sampler) * max(1.0, expected / (self._size or inf)))
        return pieces


class Loader(DataLoader[Any]):
    """Yields the batches of a DPDataLoader and remembers the rows of the last one. What it remembers is private."""

    def __init__(self, loader: DPDataLoader, max_physical_batch_size: int | None) -> None:
        names = ("num_workers", "pin_memory", "timeout", "worker_init_fn", "multiprocessing_context", "generator")
        more = ("prefetch_factor", "persistent_workers")
        super().__init__(
            _NumberedRecords(loader.dataset),
            batch_sampler=_Pieces(loader.batch_sampler, max_physical_batch_size),
            collate_fn=_Collate(loader.collate_fn),
            **{name: getattr(loader, name) for name in names + more},
        )
        self._sampler = loader.batch_sampler
        self._waiting: tuple[NDArray[np.int64], bool, bool] | None = None
        self._unfinished = False
        self._loop: object = None

    @property
    def sample_rate(self) -> float:
        """The probability with which each record is in a batch."""
        return float(self._sampler.sample_rate)

    def __iter__(self) -> Iterator[Any]:  # type: ignore[override]
        self._waiting, self._unfinished = None, False
        self._loop = loop = object()
        pieces: Any = self.batch_sampler
        for piece in super().__iter__():
            if self._loop is not loop:
                raise ArgumentError("another loop over the loader was begun: the rest of this one is not paid for")
            if self._waiting is not None:
                raise ArgumentError(
                    "a batch was drawn and no step was taken: every batch needs its step, empty ones too"
                )
            self._waiting = (np.asarray(piece.rows, dtype=np.int64), *pieces.ends.popleft())
            yield piece.batch

    @property
    def waiting(self) -> bool:
        """True if a batch, or a piece of one, was drawn that had no step yet. Public."""
        return self._unfinished or self._waiting is not None

    def take(self) -> tuple[NDArray[np.int64], bool, bool]:
        """The rows of the piece that was drawn last, and whether it is its batch's first and last; once. Private."""
        if self._waiting is None:
            raise ArgumentError("no batch was drawn for this step from the loader that individual() returned")
        taken, self._waiting = self._waiting, None
        self._unfinished = not taken[2]
        return taken
