"""The records of a run, private: inputs, targets and the person each record belongs to; and values of their outputs.

Records of a map-style data set are loaded a chunk at a time, when they are asked for.
"""

from collections.abc import Callable, Hashable, Mapping, Sequence
from functools import cached_property, partial
from hashlib import blake2b
from typing import Any

import numpy as np
from numpy.typing import NDArray

from almoner import _check, _extras
from almoner.errors import ArgumentError, DataError, UnknownPerson, Unsupported

with _extras.need("torch", extra="torch"):
    import torch
    from torch import Tensor, nn
    from torch.utils import data

from almoner.training._accounts import ids_and_rows
from almoner.training.gradients import _batches
from almoner.training.gradients._batches import Batch, Column, Inputs, as_inputs, as_tensor
from almoner.training.gradients._factors import half
from almoner.training.gradients._recorder import Choices
from almoner.training.gradients._self_check import evaluation_mode
from almoner.training.gradients._shards import Shards

LABELS = ("labels", "label")  # names of the target in a record that is a dict
FORM = "all records must have one shape, such as a public length that sequences are padded to, whatever is beside them"
AT_ONCE = 2**12  # so many records are read at once, where all of them are
GAPS = 4  # whole numbers below so many times the number of records are rows as they are: accounts of nobody cost little
OUTPUTS_AT_ONCE, OUTPUTS = 2**10, 2**26  # so many records are evaluated at once, or bytes in one tensor of theirs

Collate = Callable[[list[Any]], Any]
Values = Callable[[Tensor, Tensor], Tensor]  # from a module's output and the targets, one number for each record


class Records:
    """Inputs, targets and the person of each record. Private throughout.

    ``people`` (records,) are whole numbers from 0; None: each record is one. ``ids`` (n,) are of each person, if any.
    """

    def __init__(
        self,
        inputs: Inputs,
        targets: Tensor,
        people: Tensor | None,
        at_least: int = 0,
        ids: list[Hashable] | None = None,
    ) -> None:
        self.inputs, self.targets, self.ids, self._at_least = inputs, targets, ids, at_least
        self.people = None if people is None else people.cpu()
        self._rows = {} if ids is None else {each: number for number, each in enumerate(ids)}

    @cached_property
    def _by_person(self) -> _batches.ByPerson | None:
        return None if self.people is None else _batches.ByPerson(self.people, self._at_least)

    @property
    def person_count(self) -> int:
        return len(self.inputs[0]) if self._by_person is None else len(self._by_person.counts)

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
        if self.ids is None:
            return person
        if person not in self._rows:
            raise UnknownPerson("person: no record of the training is of this person")
        return self._rows[person]

    def of(self, people: NDArray[np.int64]) -> "Records":
        """The records of some people, (m,) by number, who are numbered anew in this order."""
        records, new_numbers = torch.from_numpy(people), None
        if self._by_person is not None:
            records, new_numbers, _ = self._by_person.of(records)
        return Records(self.inputs.select(records), _batches.selected(self.targets, records), new_numbers)


class PublicRecords:
    """Public records whose gradient is added to each step of a training on private ones. Nobody pays for them.

    The noisy sum over the divisor is the private mean; to it ``weight`` times the mean gradient of a batch of these is
    added, at the same parameters. That is neither clipped nor noisy.

    Args:
        inputs, targets: public. As ``Trainer.fit`` takes them, each record of the same shape as the private ones.
        weight: public, > 0, finite.
        batch_size: public, at most the number of records. So many are in a step, in turns, in one random order, or all.

    Guarantee: as without them, and accounts are charged by the same rule: a step is computed from what was released and
        from public records. These must be free for anybody to see, and chosen without looking at the private ones.
    Source: theory 2.1 (post-processing); Lowy et al. (2023), https://arxiv.org/abs/2306.15056 (weighted gradients).
    """

    def __init__(self, inputs: Any, targets: Any = None, *, weight: float = 1.0, batch_size: int | None = None) -> None:
        _check.positive(weight=weight)
        _check.given(_check.whole, 1, batch_size=batch_size)
        self._given, self.weight, self._size = (inputs, targets), float(weight), batch_size

    def __repr__(self) -> str:
        return f"PublicRecords(weight={self.weight!r}, batch_size={self._size!r})"

    def beside(self, private: Records, dtype: torch.dtype) -> "PublicBatches":
        """The batches of these beside private records; ArgumentError where they have another form, or are the same."""
        inputs, targets = as_records(*self._given, dtype)
        count, parts = _batches.check_batch(inputs, targets, None), (*inputs, targets)
        others = (*private.inputs, private.targets)
        form, wanted = ([(tuple(part.shape[1:]), part.dtype) for part in each] for each in (parts, others))
        if not count or form != wanted or inputs.names != private.inputs.names:
            raise ArgumentError(f"public: {count} records of {form}: give some of the private ones' form, {wanted}")
        if any(isinstance(part, Tensor) and not bool(torch.isfinite(part).all()) for part in parts):
            raise ArgumentError("public: numbers must be finite: leave out records with NaN")
        if any(map(_one_memory, parts, others)):
            raise ArgumentError("public: they must be other records than the private ones, which somebody must pay for")
        size = count if self._size is None else self._size
        if size > count:
            raise ArgumentError(f"public: batch_size={size} must be at most {count}, the number of public records")
        return PublicBatches(Records(inputs, targets, None), self.weight, size)


class PublicBatches:
    """Public records in turns: the ones of each step, by the number of steps before it."""

    def __init__(self, records: Records, weight: float, size: int) -> None:
        self._records, self.weight, self.size = records, weight, size
        self._order = np.random.default_rng(0).permutation(records.person_count)

    def of_turn(self, turn: int) -> Records:
        places = np.arange(turn * self.size, (turn + 1) * self.size) % len(self._order)
        return self._records.of(self._order[places])

    def describe(self) -> str:
        """In words, for a card."""
        return f"{self.size} of {len(self._order)} in each step, weight {self.weight!r}: nobody paid for them"

    def fingerprint(self) -> str:
        return f"{self.describe()}; {self._records.fingerprint()}"


def _one_memory(one: Tensor, other: Tensor) -> bool:
    """True if two tensors have numbers in the same place: one of them is a slice of what the other is."""
    parts = [each for each in (one, other) if isinstance(each, Tensor) and each.numel()]
    ends = [(each.data_ptr(), each[(-1,) * each.dim()].data_ptr()) for each in parts if each.device == parts[0].device]
    return len(ends) == 2 and max(first for first, _ in ends) <= min(last for _, last in ends)


def as_rows(
    people: object, records: int, *, rows: bool, named: bool = False
) -> tuple[Tensor | None, list[Hashable] | None]:
    """(records,) numbers of rows from 0, or None where each record is a person; and (n,) ids of these rows, if any.

    Whole numbers from 0 with few gaps are numbers of rows already, and have no ids. ``rows``: whole numbers are rows
    however large, because something else has these rows too; ``named``: they are ids, by which a ledger names people.
    """
    if people is None:
        return None, None
    array: Any = people
    if not named:
        array = people.to_numpy() if hasattr(people, "to_numpy") else people
        if isinstance(array, np.ndarray) and array.dtype.kind in "iu":
            array = torch.from_numpy(array.astype(np.int64)) if array.max(initial=0) < 2**63 else array
        elif isinstance(array, Sequence) and array and all(type(each) is int and 0 <= each < 2**63 for each in array):
            array = torch.tensor(array)
        line = isinstance(array, Tensor) and array.dim() == 1 and len(array) == records
        whole = line and not array.is_floating_point()
        if whole and (rows or not records or (int(array.min()) >= 0 and int(array.max()) < GAPS * records)):
            return array, None
        if rows:
            raise ArgumentError("people: accounts and shares are of rows here, so people must be whole numbers from 0")
        if isinstance(array, Tensor) and (array.is_floating_point() or array.dim() != 1):
            raise ArgumentError("people must be whole numbers or other ids, one for each record")
    ids, numbers = ids_and_rows(array, records)
    return torch.tensor(numbers, dtype=torch.int64), ids


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
        listed, together = numbers.tolist(), getattr(self._dataset, "__getitems__", None)
        items = list(together(listed)) if together is not None else [self._dataset[number] for number in listed]
        columns = self._together(items)
        if self._one is None:
            self._one = {name: part[:1] for name, part in columns.items()}
        for name, part in columns.items():
            if part.shape != (len(listed), *self._one[name].shape[1:]):
                raise DataError(f"inputs: {name!r} of the data set: {FORM}")
        self._last = numbers.clone(), columns
        return columns

    def column(self, name: str, numbers: Tensor) -> Tensor:
        return self.records(numbers)[name]

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


def as_records(inputs: object, targets: object, dtype: torch.dtype) -> tuple[Inputs, Any]:
    """Inputs and targets as columns, of tensors, arrays, a data set or a DataLoader that gives each record once."""
    collate: Collate = data.default_collate
    loaded = isinstance(inputs, data.DataLoader)  # then a list is a data set
    if isinstance(inputs, data.DataLoader):
        loader: data.DataLoader[Any] = inputs
        inputs, collate = _whole(loader), loader.collate_fn or data.default_collate
    if isinstance(inputs, data.IterableDataset):
        raise ArgumentError("inputs: an IterableDataset can't be asked for a person's records: use a map-style Dataset")
    given = isinstance(inputs, list) and not loaded
    numbers = given or isinstance(inputs, Tensor | tuple | Mapping) or hasattr(inputs, "__array__")
    if numbers or hasattr(inputs, "to_numpy") or not (hasattr(inputs, "__getitem__") and hasattr(inputs, "__len__")):
        if targets is None:
            raise ArgumentError("targets must be given where the inputs are tensors")
        return as_inputs(inputs, dtype), as_tensor("targets", targets)
    if targets is not None:
        raise ArgumentError("targets: they are in the records of the data set; leave them out")
    if isinstance(inputs, data.TensorDataset) and len(inputs.tensors) > 1 and collate is data.default_collate:
        return Inputs.of(inputs.tensors[:-1]), inputs.tensors[-1]
    dataset: Any = inputs
    if not len(dataset):
        raise ArgumentError("inputs must hold at least one record: the module is tried on it first")
    loading, rows = Loading(dataset, collate), torch.arange(len(dataset))
    first = loading.records(rows[:1])
    columns = {name: Column(partial(loading.column, name), rows, one) for name, one in first.items()}
    if len(dataset) > 1:
        loading.check_collate(torch.tensor(sorted({0, len(dataset) // 2, len(dataset) - 1})))
    *names, target = columns
    named = names if isinstance(collate([dataset[0]]), Mapping) else ()
    return Inputs.of([columns[name] for name in names], named), columns[target]  # type: ignore[misc]


def _whole(loader: "data.DataLoader[Any]") -> Any:
    """The data set of a loader that gives each record once; its batches are not used."""
    if loader.drop_last:
        raise ArgumentError("inputs: this loader drops records (drop_last=True): give its dataset, or drop_last=False")
    sampler = loader.sampler
    once = isinstance(sampler, data.SequentialSampler) or (
        isinstance(sampler, data.RandomSampler)
        and not sampler.replacement
        and sampler.num_samples == len(loader.dataset)  # type: ignore[arg-type]
    )
    if not isinstance(loader.dataset, data.IterableDataset) and (loader.batch_size is None or not once):
        raise ArgumentError(
            f"inputs: this DataLoader's sampler ({type(sampler).__name__}) may repeat or leave out records: give its "
            "dataset; who takes part in a step is the trainer's to say"
        )
    return loader.dataset


def correct(output: Tensor, targets: Tensor) -> Tensor:
    """Give 1 where the largest output is at the target, else 0; also of what has ``logits``. For ``noisy_sum``."""
    return (getattr(output, "logits", output).argmax(dim=-1) == targets).double()


def values_by_record(
    module: nn.Module, inputs: Batch, targets: Tensor, values: Values, *, public: bool = False
) -> NDArray[np.float64]:
    """(records,) one each, in evaluation mode, singly if private and in half precision; ArgumentError for others."""
    like = next(module.parameters())
    device, parts_of, parts = like.device, as_inputs(inputs, like.dtype), []
    with evaluation_mode(module), torch.no_grad():
        with Choices() as choices:
            parts_of.rows(slice(0, 1)).map(lambda part: part.clone().to(device)).call(module)
        singly = not public and (choices.half or any(map(half, module.parameters())))
        shards, fitting = Shards(module), min(OUTPUTS_AT_ONCE, OUTPUTS // choices.largest)
        at_once = 1 if singly else max(1, -shards.most(-fitting))
        for start in range(0, shards.most(len(targets)), at_once):
            some = start < len(targets)  # else it is a pass in step with other processes
            rows = slice(start, start + at_once) if some else slice(0, 1)
            output = parts_of.rows(rows).map(lambda part: part.clone().to(device)).call(module)
            if not some:
                continue
            goals = targets[rows].to(device)
            numbers = values(output, goals)
            if not isinstance(numbers, Tensor) or numbers.shape != (len(goals),):
                raise ArgumentError("values must give one number for each record, in a tensor of shape (records,)")
            parts.append(numbers.double().cpu())
        return np.asarray(shards.alike("values", torch.cat(parts)).cpu().numpy())


def means_by_person(values: NDArray[np.float64], people: Tensor | None, count: int) -> NDArray[np.float64]:
    """(n,) the mean of each person's values; 0 for a person without records, NaN where a value is NaN."""
    if people is None:
        return values
    return np.bincount(people, values, minlength=count) / np.maximum(np.bincount(people, minlength=count), 1)
