"""Record a module while it runs: every layer with trainable parameters puts its factors on a tape."""

from collections.abc import Callable, Collection, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from almoner.errors import Unsupported
from almoner.training.gradients._calls import Calls, spread_out
from almoner.training.gradients._factors import Dense
from almoner.training.gradients._layers import rule_of
from almoner.training.gradients._sequences import FORWARDS
from almoner.training.gradients._tape import LayerFactors, Tape

__all__ = ["layers_with_parameters", "own_parameters", "record_layers", "refuse_changes"]

Kind = type[nn.Module]


@contextmanager
def record_layers(
    module: nn.Module, records: int, calls: Calls | None = None, spread: Collection[Kind] = ()
) -> Iterator[Tape]:
    """Record the forward pass inside this context; it must leave the module's buffers alone.

    Args:
        calls: which tensors of the layers' calls have a row for each record; None: all.
        spread: kinds of layers whose own parameters are given to them once for each record, while the layers in them
            are recorded by themselves; all others with parameters of their own are taken as a whole.
    """
    tape, before = Tape(records, Calls() if calls is None else calls), _buffers(module)
    with ExitStack() as stack:
        for name, layer in layers_with_parameters(module, spread):
            forward = FORWARDS.get(type(layer))
            if type(layer) in spread:
                stack.enter_context(_spread_out(name, layer, tape))
            elif forward is None:
                handle = layer.register_forward_hook(_hook(tape, name, layer), with_kwargs=True)
                stack.callback(handle.remove)
            else:
                stack.enter_context(_replaced(layer, forward, tape))
        yield tape
    for name, (buffer, version) in _buffers(module).items():
        if name not in before or before[name][0] is not buffer or before[name][1] != version:
            raise Unsupported(
                f"module: buffer {name!r} is changed by the forward pass: what it keeps of the records would be in the "
                "model, and nobody is charged for it"
            )


@contextmanager
def refuse_changes(module: nn.Module) -> Iterator[None]:
    """Raise Unsupported where this context changes anything that is saved with the module."""
    saved = [*module.named_parameters(), *module.named_buffers()]
    before = [_comparable(tensor).clone() for _, tensor in saved]
    yield
    for (name, tensor), old in zip(saved, before, strict=True):
        if not torch.allclose(_comparable(tensor), old, rtol=0.0, atol=0.0, equal_nan=True):
            raise Unsupported(
                f"module: {name!r} is changed by the forward pass: what it keeps of the records would be in the model, "
                "and nobody is charged for it"
            )


def _comparable(tensor: Tensor) -> Tensor:
    """Lay values out so that they can be compared."""
    tensor = tensor.detach()
    tensor = tensor.dequantize() if tensor.is_quantized else tensor
    return tensor if tensor.layout is torch.strided else tensor.to_dense()


def _buffers(module: nn.Module) -> dict[str, tuple[Tensor, int]]:
    return {name: (buffer, buffer._version) for name, buffer in module.named_buffers()}


def own_parameters(module: nn.Module) -> dict[str, nn.Parameter]:
    """The parameters that are trained and belong to the module itself, not to a layer in it."""
    return {name: each for name, each in module.named_parameters(recurse=False) if each.requires_grad}


def layers_with_parameters(
    module: nn.Module, spread: Collection[Kind] = (), name: str = "", seen: set[int] | None = None
) -> Iterator[tuple[str, nn.Module]]:
    """The layers that use trainable parameters, from the outside in; what has parameters of its own is taken whole."""
    seen = set() if seen is None else seen
    if id(module) in seen or not any(parameter.requires_grad for parameter in module.parameters()):
        return
    seen.add(id(module))
    if own_parameters(module) or hasattr(module, "parametrizations"):
        yield name or type(module).__name__, module
        if type(module) not in spread:
            return
    for child_name, child in module.named_children():
        yield from layers_with_parameters(child, spread, f"{name}.{child_name}".lstrip("."), seen)


def _hook(tape: Tape, name: str, layer: nn.Module) -> Callable[..., object]:
    rule = rule_of(layer)

    def hook(_: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any], output: object) -> object:
        return tape.layer(name, layer, rule, args, kwargs, output)

    return hook


@contextmanager
def _spread_out(name: str, layer: nn.Module, tape: Tape) -> Iterator[None]:
    """The layer with its own parameters once for each record, on a leading axis, so that gradients come apart."""
    before = dict(layer._parameters)
    for each, parameter in own_parameters(layer).items():
        copies = spread_out(parameter, tape.records).clone()
        tape.record(f"{name}.{each}", copies, _own(parameter, tape.records))
        layer._parameters[each] = copies  # type: ignore[assignment]
    try:
        yield
    finally:
        layer._parameters.update(before)


def _own(parameter: nn.Parameter, records: int) -> Callable[[Tensor], LayerFactors]:
    return lambda b: [(parameter, Dense(b.reshape(records, *parameter.shape)))]


@contextmanager
def _replaced(layer: nn.Module, forward: Callable[..., Any], tape: Tape) -> Iterator[None]:
    """The layer with the same computation spelled out, so that its linear maps are recorded."""

    def spelled_out(*args: object, **kwargs: object) -> object:
        return forward(layer, tape, *args, **kwargs)

    layer.forward = spelled_out
    try:
        yield
    finally:
        del layer.forward  # the method of the class again
