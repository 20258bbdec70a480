"""A tape of one forward pass: which parameter was used where, and how to read each person's gradient off it.

The gradients of what came out of each layer are asked for and nothing else: the backward pass computes no gradient of a
parameter, and everybody's norms and their weighted sum are then made from the same numbers.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.graph import GradientEdge, get_gradient_edge
from torch.nn import functional

from bursar.errors import Unsupported
from bursar.training.gradients._factors import Each, Outer, Use
from bursar.training.gradients._precision import exact, full

__all__ = ["Made", "Tape"]

Made = list[tuple[nn.Parameter, Use]]


class Tape:
    """What happened in one forward pass over some records."""

    def __init__(self, records: int) -> None:
        self._records = records
        self._entries: list[tuple[GradientEdge, Callable[[Tensor], Made]]] = []

    def note(self, name: str, x: Any, output: Tensor, make: Callable[[Tensor], Made]) -> None:
        """Remember a use: ``make`` turns the gradient of the output into uses of parameters."""
        if not isinstance(output, Tensor) or not output.requires_grad:
            return
        for part in (*(part for part in x if isinstance(part, Tensor)), output):
            if part.dim() == 0 or part.shape[0] != self._records:
                raise Unsupported(
                    f"module: layer {name!r} has an input or output of shape {tuple(part.shape)}, "
                    f"but the first axis must be the record, as in the inputs"
                )
        versions = [part._version for part in x if isinstance(part, Tensor)]

        def unchanged(b: Tensor) -> Made:
            if versions != [part._version for part in x if isinstance(part, Tensor)]:
                raise Unsupported(f"module: the input of layer {name!r} is changed in place afterwards: use a copy")
            return make(b)

        self._entries.append((get_gradient_edge(output), unchanged))

    def linear(self, x: Tensor, weight: nn.Parameter, bias: nn.Parameter | None, rows: slice | None = None) -> Tensor:
        """A linear map inside a layer, or some rows of it, with its use noted."""
        part = (weight, bias) if rows is None else (weight[rows], None if bias is None else bias[rows])
        output = functional.linear(x, *part)
        kept = full(x.detach())

        def make(b: Tensor) -> Made:
            b = b.reshape(b.shape[0], -1, b.shape[-1])
            if rows is not None:
                whole = b.new_zeros(*b.shape[:2], weight.shape[0])
                whole[:, :, rows] = b
                b = whole
            made: Made = []
            if weight.requires_grad:
                made.append((weight, Outer(kept.reshape(b.shape[0], -1, kept.shape[-1]), b, weight.shape)))
            if bias is not None and bias.requires_grad:
                made.append((bias, Each(b.sum(1))))
            return made

        self.note("linear", (kept,), output, make)
        return output

    def uses(self, loss: Tensor) -> dict[nn.Parameter, list[Use]]:
        """The uses of each parameter, after a backward pass from the loss."""
        edges = [edge for edge, _ in self._entries]
        found: dict[nn.Parameter, list[Use]] = {}
        if not edges:
            return found
        gradients = torch.autograd.grad(loss, edges, allow_unused=True)
        with torch.no_grad(), exact():
            for (_, make), b in zip(self._entries, gradients, strict=True):
                if b is not None:
                    for parameter, use in make(full(b)):
                        found.setdefault(parameter, []).append(use)
        return found
