"""Records of a map-style data set, loaded a chunk at a time when they are asked for; private throughout."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.utils.data import (
    DataLoader,
    IterableDataset,
    RandomSampler,
    SequentialSampler,
    TensorDataset,
    default_collate,
)

from almoner.errors import ArgumentError, DataError, Unsupported
from almoner.training._records.records import Records, as_rows
from almoner.training.gradients._batches import Column, Inputs, as_inputs, as_tensor, check_batch

__all__ = ["Loaded", "as_records", "checked_records"]

LABELS = ("labels", "label")
"""Names of the target in a record that is a dict."""

FORM = "all records must have one shape, such as a public length that sequences are padded to, whatever is beside them"

Collate = Callable[[list[Any]], Any]


class Loading:
    """The records of a data set by their numbers; those that were asked for last are kept, for the other columns."""

    def __init__(self, dataset: Any, collate: Collate) -> None:
        self._dataset, self._collate = dataset, collate
        self._last: tuple[Tensor, dict[str, Tensor]] | None = None
        self._one: dict[str, Tensor] | None = None

    def records(self, numbers: Tensor) -> dict[str, Tensor]:
        """Each column of some records, by name; the last one is the target."""
        if self._last is not None and torch.equal(self._last[0], numbers):
            return self._last[1]
        listed = numbers.tolist()
        together = getattr(self._dataset, "__getitems__", None)
        items = list(together(listed)) if together is not None else [self._dataset[number] for number in listed]
        columns = self._together(items)
        if self._one is None:
            self._one = {name: part[:1] for name, part in columns.items()}
        for name, part in columns.items():
            if part.shape != (len(listed), *self._one[name].shape[1:]):
                raise DataError(f"inputs: {name!r} of the data set: {FORM}")
        self._last = numbers.clone(), columns
        return columns

    def check_collate(self, numbers: Tensor) -> None:
        """Raise Unsupported where a record among others is not what it is alone: it would hold something of theirs."""
        items = [self._dataset[number] for number in numbers.tolist()]
        for some in (items, items[::-1]):  # one of them is in no order of length, in which a function may put it
            among = self._together(list(some))
            for number, item in enumerate(some):
                for name, part in self._together([item]).items():
                    if part.shape[1:] != among[name].shape[1:] or not torch.equal(part[0], among[name][number]):
                        raise Unsupported(
                            f"inputs: {name!r} of a record depends on the others of its batch, by collate_fn: {FORM}"
                        )

    def _together(self, items: list[Any]) -> dict[str, Tensor]:
        try:
            return _columns(self._collate(items))
        except RuntimeError as failure:
            raise DataError(f"inputs: the records of the data set can't be put together: {FORM}") from failure


def _columns(batch: Any) -> dict[str, Tensor]:
    """A batch as columns by name, the target last."""
    if isinstance(batch, Mapping):
        label = next((name for name in LABELS if name in batch), None)
        if label is None:
            raise ArgumentError("inputs: a record that is a dict must have its target as 'labels'")
        batch = {name: batch[name] for name in batch if name != label} | {label: batch[label]}
    elif isinstance(batch, Sequence) and len(batch) >= 2:
        first = batch[0] if isinstance(batch[0], list | tuple) else batch[:-1]
        batch = {str(number): part for number, part in enumerate([*first, batch[-1]])}
    else:
        raise ArgumentError("inputs: a record of the data set must be (input, ..., target), or a dict with 'labels'")
    for name, part in batch.items():
        if not isinstance(part, Tensor) or not part.dim():
            raise ArgumentError(f"inputs: {name!r} in the records of the data set is not numbers: leave it out")
    return dict(batch)


class Loaded(Column):
    """One column of some records of a data set; what is asked for is loaded.

    Args:
        loading: the records.
        name: of the column.
        rows: (n,) the numbers of the records.
        one: one record of this column: its form.
    """

    def __init__(self, loading: Loading, name: str, rows: Tensor, one: Tensor) -> None:
        self._loading, self._name, self._rows, self._one = loading, name, rows, one
        self.dtype, self.shape = one.dtype, torch.Size((len(rows), *one.shape[1:]))

    def __getitem__(self, rows: slice | Tensor) -> Tensor:
        """Load some records."""
        chosen = self._rows[rows]
        return self._loading.records(chosen)[self._name] if len(chosen) else self._one[:0]

    def select(self, rows: Tensor) -> "Loaded":
        """The column of some records; nothing is loaded."""
        return Loaded(self._loading, self._name, self._rows[rows], self._one)


def as_records(inputs: object, targets: object, dtype: torch.dtype) -> tuple[Inputs, Any]:
    """The inputs of a module and the targets, as columns.

    Args:
        inputs: tensors, arrays, or a map-style data set or a DataLoader of one, in which case targets is None.
        dtype: of the module, which numbers of NumPy and pandas take.

    Raises:
        ArgumentError: they are of no such kind, or a DataLoader leaves records out or repeats some.
    """
    collate: Collate = default_collate
    if isinstance(inputs, DataLoader):
        loader: DataLoader[Any] = inputs
        inputs, collate = _whole(loader), loader.collate_fn or default_collate
    if isinstance(inputs, IterableDataset):
        raise ArgumentError(
            "inputs: an IterableDataset can't be asked for one person's records: use a map-style Dataset"
        )
    if not _is_dataset(inputs):
        if targets is None:
            raise ArgumentError("targets must be given where the inputs are tensors")
        return as_inputs(inputs, dtype), as_tensor("targets", targets)
    if targets is not None:
        raise ArgumentError("targets: they are in the records of the data set; leave them out")
    if isinstance(inputs, TensorDataset) and len(inputs.tensors) > 1 and collate is default_collate:
        return Inputs.of(inputs.tensors[:-1]), inputs.tensors[-1]
    dataset: Any = inputs
    if not len(dataset):
        raise ArgumentError("inputs must hold at least one record: the module is tried on it first")
    loading, rows = Loading(dataset, collate), torch.arange(len(dataset))
    columns = {name: Loaded(loading, name, rows, one) for name, one in loading.records(rows[:1]).items()}
    if len(dataset) > 1:
        loading.check_collate(torch.tensor(sorted({0, len(dataset) // 2, len(dataset) - 1})))
    *names, target = columns
    named = names if isinstance(collate([dataset[0]]), Mapping) else ()
    return Inputs.of([columns[name] for name in names], named), columns[target]  # type: ignore[misc]


def checked_records(
    inputs: object,
    targets: object,
    people: object,
    *,
    dtype: torch.dtype,
    at_least: int = 0,
    rows: bool = False,
    named: bool = False,
) -> Records:
    """The records of a run, of which there is at least one.

    Args:
        inputs, targets, people: as for ``Trainer.fit``.
        dtype: of the module.
        at_least: there are accounts of so many people already.
        rows: whether people must be the numbers of rows, because something else has these rows.
        named: whether people are named by ids in any case, because a ledger names them.
    """
    columns, goals = as_records(inputs, targets, dtype)
    if not check_batch(columns, goals, None):
        raise ArgumentError("inputs must hold at least one record: the module is tried on it first")
    numbers, ids = as_rows(people, len(columns[0]), rows=rows, named=named)
    check_batch(columns, goals, numbers)
    return Records(columns, goals, numbers, at_least, ids)


def _is_dataset(inputs: object) -> bool:
    if (
        isinstance(inputs, Tensor | list | tuple | Mapping)
        or hasattr(inputs, "__array__")
        or hasattr(inputs, "to_numpy")
    ):
        return False
    return hasattr(inputs, "__getitem__") and hasattr(inputs, "__len__")


def _whole(loader: "DataLoader[Any]") -> Any:
    """The data set of a loader that gives each record once; its batches are not used."""
    if loader.drop_last:
        raise ArgumentError(
            "inputs: this DataLoader drops records (drop_last=True): give its dataset, or drop_last=False"
        )
    sampler = loader.sampler
    once = isinstance(sampler, SequentialSampler) or (
        isinstance(sampler, RandomSampler) and not sampler.replacement and sampler.num_samples == len(loader.dataset)  # type: ignore[arg-type]
    )
    if not isinstance(loader.dataset, IterableDataset) and (loader.batch_size is None or not once):
        raise ArgumentError(
            f"inputs: this DataLoader's sampler ({type(sampler).__name__}) may repeat or leave out records: give its "
            "dataset; who takes part in a step is the trainer's to say"
        )
    return loader.dataset
