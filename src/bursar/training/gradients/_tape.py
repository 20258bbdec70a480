"""Record one forward pass: which parameter was used where, and how each person's gradient follows.

The gradients of what came out of each layer are asked for and nothing else: the backward pass computes no gradient of a
parameter, and all norms and the weighted sum of gradients are then made from the same numbers.
"""

from collections.abc import Callable, Sequence

import torch
from torch import Tensor, nn
from torch.autograd.graph import GradientEdge, get_gradient_edge
from torch.nn import functional

from bursar.errors import Unsupported
from bursar.training.gradients._factors import Dense, Factor, OuterProducts
from bursar.training.gradients._precision import exact, full

__all__ = ["LayerFactors", "Tape"]

LayerFactors = list[tuple[nn.Parameter, Factor]]


class Tape:
    """What happened in one forward pass over some records."""

    def __init__(self, records: int) -> None:
        self._records = records
        self._entries: list[tuple[GradientEdge, Callable[[Tensor], LayerFactors]]] = []

    def record(self, name: str, x: Sequence[object], output: Tensor, make: Callable[[Tensor], LayerFactors]) -> None:
        """Record a layer: ``make`` turns the gradient of its output into the factors of its parameters."""
        if not isinstance(output, Tensor) or not output.requires_grad:
            return
        for part in (*(part for part in x if isinstance(part, Tensor)), output):
            if part.dim() == 0 or part.shape[0] != self._records:
                raise Unsupported(
                    f"module: layer {name!r} has an input or output that is not one row for each record, "
                    "but the first axis must be the record, as in the inputs"
                )
        versions = [part._version for part in x if isinstance(part, Tensor)]

        def unchanged(b: Tensor) -> LayerFactors:
            if versions != [part._version for part in x if isinstance(part, Tensor)]:
                raise Unsupported(f"module: the input of layer {name!r} is changed in place afterwards: use a copy")
            return make(b)

        self._entries.append((get_gradient_edge(output), unchanged))

    def linear(self, x: Tensor, weight: nn.Parameter, bias: nn.Parameter | None, rows: slice | None = None) -> Tensor:
        """A linear map inside a layer, or some rows of it, recorded."""
        part = (weight, bias) if rows is None else (weight[rows], None if bias is None else bias[rows])
        output = functional.linear(x, *part)
        into = full(x.detach())

        def make(b: Tensor) -> LayerFactors:
            b = b.reshape(b.shape[0], -1, b.shape[-1])
            if rows is not None:
                all_rows = b.new_zeros(*b.shape[:2], weight.shape[0])
                all_rows[:, :, rows] = b
                b = all_rows
            made: LayerFactors = []
            if weight.requires_grad:
                made.append((weight, OuterProducts(into.reshape(b.shape[0], -1, into.shape[-1]), b, weight.shape)))
            if bias is not None and bias.requires_grad:
                made.append((bias, Dense(b.sum(1))))
            return made

        self.record("linear", (into,), output, make)
        return output

    def factors(self, loss: Tensor) -> dict[nn.Parameter, list[Factor]]:
        """The factors of each parameter, after a backward pass from the loss."""
        edges = [edge for edge, _ in self._entries]
        factors: dict[nn.Parameter, list[Factor]] = {}
        if not edges:
            return factors
        gradients = torch.autograd.grad(loss, edges, allow_unused=True)
        with torch.no_grad(), exact():
            for (_, make), b in zip(self._entries, gradients, strict=True):
                if b is not None:
                    for parameter, factor in make(full(b)):
                        factors.setdefault(parameter, []).append(factor)
        return factors
