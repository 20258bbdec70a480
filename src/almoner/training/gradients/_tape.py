"""Record one forward pass: which parameter was used where, and how each person's gradient follows.

The gradients of what came out of each layer are asked for and nothing else: the backward pass computes no gradient of a
parameter, and all norms and the weighted sum of gradients are then made from the same numbers.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.graph import GradientEdge, get_gradient_edge
from torch.nn import functional
from torch.utils._pytree import tree_flatten, tree_unflatten

from almoner.errors import Unsupported
from almoner.training.gradients._calls import Calls, spread_out
from almoner.training.gradients._factors import Dense, Factor, OuterProducts
from almoner.training.gradients._layers import Call, Rule, factors_of
from almoner.training.gradients._precision import exact, full

__all__ = ["LayerFactors", "Tape"]

LayerFactors = list[tuple[nn.Parameter, Factor]]

Make = Callable[..., LayerFactors]


class Tape:
    """Record of one forward pass over some records.

    Args:
        records: how many there are.
        calls: which tensors of the layers' calls have a row for each record.
    """

    def __init__(self, records: int, calls: Calls) -> None:
        self.records, self._calls = records, calls
        self._counts: dict[str, int] = {}
        self._entries: list[tuple[list[GradientEdge], Make]] = []

    def record(self, name: str, output: Tensor, make: Callable[[Tensor], LayerFactors]) -> None:
        """Record what a layer gave: ``make`` turns the gradient of it into the factors of its parameters."""
        if not output.requires_grad:
            return
        if output.dim() == 0 or output.shape[0] != self.records:
            make = _refusing(name)
        self._entries.append(([get_gradient_edge(output)], make))

    def layer(
        self, name: str, layer: nn.Module, rule: Rule | None, args: tuple[Any, ...], kwargs: dict[str, Any], output: Any
    ) -> object:
        """Record a call of a layer; gives its output, spread out where it has no row for each record."""
        number = self._counts[name] = self._counts.get(name, -1) + 1
        given, given_tree = tree_flatten((args, kwargs))
        found, found_tree = tree_flatten(output)
        into = [part for part in given if isinstance(part, Tensor)]
        out = [part for part in found if isinstance(part, Tensor)]
        kinds = self._calls.kinds(name, number, [*into, *out], self.records)
        shared = [part for part, kind in zip(out, kinds[len(into) :], strict=True) if kind is False]
        for place, part in enumerate(found):
            if isinstance(part, Tensor) and part.requires_grad and any(part is each for each in shared):
                found[place] = spread_out(part, self.records).clone()
        recorded = [part for part in found if isinstance(part, Tensor) and part.requires_grad]
        if recorded:
            given = [part.detach() if isinstance(part, Tensor) else part for part in given]
            call = Call(given, given_tree, kinds, [part.requires_grad for part in out], self.records)
            edges = [get_gradient_edge(part) for part in recorded]
            self._entries.append((edges, _made(name, layer, rule, call, into)))
        return tree_unflatten(found, found_tree) if shared else output

    def linear(self, x: Tensor, weight: nn.Parameter, bias: nn.Parameter | None, rows: slice | None = None) -> Tensor:
        """A linear map inside a layer, or some rows of it, recorded."""
        part = (weight, bias) if rows is None else (weight[rows], None if bias is None else bias[rows])
        output = functional.linear(x, *part)
        self.inner(x.detach(), weight, bias, output, rows)
        return output

    def inner(
        self, x: Tensor, weight: nn.Parameter, bias: nn.Parameter | None, output: Tensor, rows: slice | None = None
    ) -> None:
        """Record a linear map of x that was computed elsewhere; the gradient of its output is that of this tensor."""
        into = full(x)
        version = into._version

        def make(b: Tensor) -> LayerFactors:
            _refuse_changed("linear", into._version != version)
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

        self.record("linear", output, make)

    def factors(self, loss: Tensor) -> dict[nn.Parameter, list[Factor]]:
        """The factors of each parameter, after a backward pass from the loss."""
        edges = [edge for some, _ in self._entries for edge in some]
        factors: dict[nn.Parameter, list[Factor]] = {}
        if not edges:
            return factors
        gradients = iter(torch.autograd.grad(loss, edges, allow_unused=True))
        with torch.no_grad(), exact():
            for some, make in self._entries:
                bs = [next(gradients) for _ in some]
                if any(b is not None for b in bs):
                    for parameter, factor in make(*(None if b is None else full(b) for b in bs)):
                        factors.setdefault(parameter, []).append(factor)
        return factors


def _made(name: str, layer: nn.Module, rule: Rule | None, call: Call, into: list[Tensor]) -> Make:
    """Turn the gradients of a layer's output into the factors of its parameters."""
    versions = [part._version for part in into]

    def make(*bs: Tensor | None) -> LayerFactors:
        if None in call.kinds:
            return _refusing(name)(*bs)
        _refuse_changed(name, versions != [part._version for part in into])
        factors = factors_of(name, layer, rule, call, bs)
        parameters = dict(layer.named_parameters())
        return [(parameters[each], factor) for each, factor in factors.items() if parameters[each].requires_grad]

    return make


def _refuse_changed(name: str, changed: bool) -> None:
    if changed:
        raise Unsupported(f"module: the input of layer {name!r} is changed in place afterwards: use a copy")


def _refusing(name: str) -> Make:
    def make(*_: Tensor | None) -> LayerFactors:
        raise Unsupported(
            f"module: layer {name!r} has an input or output that is not one row for each record, "
            "but the first axis must be the record, as in the inputs: reshape or transpose before this layer; what is "
            "the same for all records needs a leading axis of 1"
        )

    return make
