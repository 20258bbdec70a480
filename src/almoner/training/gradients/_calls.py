"""Which tensors that a layer is called with, and gives, have one row for each record, and which none at all.

Position embeddings, for example, are looked up once for all records: with a leading axis of 1, or with none. Two passes
over different numbers of different records tell: a tensor whose first axis is the record is as long as there are
records, and one without records is the same in both. Everything else is not understood.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_leaves

__all__ = ["Calls", "Kinds", "spread_out"]

Kinds = tuple[bool | None, ...]
"""For each tensor: True, a row for each record; False, no records; None, not understood."""


class Calls:
    """Records of each call of each layer, in order; without it every tensor must have a row for each record.

    Args:
        new_axis: whether what a layer gives without records gets a new leading axis for them where it has none of 1;
            else its gradient is refused, if it has one.
    """

    def __init__(self, *, new_axis: bool = False) -> None:
        self._kinds: dict[str, list[Kinds]] = {}
        self._new_axis = new_axis
        self.without_axis = False
        """True if there was something without records and without a leading axis of 1."""

    def kinds(self, name: str, number: int, tensors: Sequence[Tensor], records: int) -> Kinds:
        """The kinds of the tensors of one call: those that it takes, then those that it gives.

        Args:
            number: which call of this layer it is, from 0.
            records: how many there are now.
        """
        known: Kinds = (True,) * len(tensors)
        seen = self._kinds.get(name)
        if seen:
            alike = len(set(seen)) == 1
            known = seen[number] if number < len(seen) else seen[0] if alike else (None,) * len(tensors)
        if len(known) != len(tensors):
            known = (None,) * len(tensors)
        return tuple(self._now(kind, part, records) for kind, part in zip(known, tensors, strict=True))

    def _now(self, kind: bool | None, part: Tensor, records: int) -> bool | None:
        """The kind of a tensor, or None where it does not look like it."""
        leading = part.shape[0] if part.dim() else 0
        if kind is False and leading != 1 and part.requires_grad:
            self.without_axis = True
            return False if self._new_axis else None
        return None if kind and leading != records else kind

    def learn(self, layers: Sequence[tuple[str, nn.Module]], run: Callable[[slice], object], records: int) -> None:
        """Look at all calls in two passes, over all records and over all but the first.

        Args:
            run: computes the module on some of the records, which are at least 2; nothing is random in it.
        """
        with torch.no_grad():
            with _noting(layers) as first:
                run(slice(0, records))
            with _noting(layers) as second:
                run(slice(1, records))
        self._kinds = {
            name: [_kinds(*both, (records, records - 1)) for both in zip(calls, second[name], strict=False)]
            for name, calls in first.items()
        }


def _kinds(first: list[Tensor], second: list[Tensor], records: tuple[int, int]) -> Kinds:
    if len(first) != len(second):
        return (None,) * len(first)
    return tuple(_kind(*pair, records) for pair in zip(first, second, strict=True))


def _kind(first: Tensor, second: Tensor, records: tuple[int, int]) -> bool | None:
    if first.dim() and first.dim() == second.dim() and (first.shape[0], second.shape[0]) == records:
        return True
    same = first.shape == second.shape and torch.allclose(first, second, rtol=0.0, atol=0.0, equal_nan=True)
    return False if same else None


@contextmanager
def _noting(layers: Sequence[tuple[str, nn.Module]]) -> Iterator[dict[str, list[list[Tensor]]]]:
    """Within this context the tensors of all calls of the layers are kept."""
    noted: dict[str, list[list[Tensor]]] = {name: [] for name, _ in layers}

    def hook(name: str) -> Callable[..., None]:
        def note(_: nn.Module, args: Any, kwargs: Any, output: Any) -> None:
            found = tree_leaves((args, kwargs, output))
            noted[name].append([part.detach().clone() for part in found if isinstance(part, Tensor)])

        return note

    with ExitStack() as stack:
        for name, layer in layers:
            stack.callback(layer.register_forward_hook(hook(name), with_kwargs=True).remove)
        yield noted


def spread_out(part: Tensor, records: int) -> Tensor:
    """A tensor without records, once for each record: a leading axis of 1 becomes theirs, else they get a new one."""
    one = part if part.dim() and part.shape[0] == 1 else part.unsqueeze(0)
    return one.expand(records, *one.shape[1:])
