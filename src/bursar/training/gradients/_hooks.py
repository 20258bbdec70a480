"""Record a module while it runs: every layer with trainable parameters puts its factors on a tape."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from bursar.errors import Unsupported
from bursar.training.gradients._layers import RULES, general
from bursar.training.gradients._precision import full
from bursar.training.gradients._sequences import FORWARDS
from bursar.training.gradients._tape import LayerFactors, Tape

__all__ = ["record_layers", "refuse_changes"]


@contextmanager
def record_layers(module: nn.Module, records: int) -> Iterator[Tape]:
    """Record the forward pass inside this context; it must leave the module's buffers alone."""
    tape, before = Tape(records), _buffers(module)
    with ExitStack() as stack:
        for name, layer in _leaves(module):
            forward = FORWARDS.get(type(layer))
            if forward is None:
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
    """The same values in a layout that can be compared."""
    tensor = tensor.detach()
    tensor = tensor.dequantize() if tensor.is_quantized else tensor
    return tensor if tensor.layout is torch.strided else tensor.to_dense()


def _buffers(module: nn.Module) -> dict[str, tuple[Tensor, int]]:
    return {name: (buffer, buffer._version) for name, buffer in module.named_buffers()}


def _leaves(module: nn.Module, name: str = "", seen: set[int] | None = None) -> Iterator[tuple[str, nn.Module]]:
    """The layers that use trainable parameters, from the outside in; what has parameters of its own is taken whole."""
    seen = set() if seen is None else seen
    if id(module) in seen or not any(parameter.requires_grad for parameter in module.parameters()):
        return
    seen.add(id(module))
    if any(parameter.requires_grad for parameter in module.parameters(recurse=False)):
        yield name or type(module).__name__, module
        return
    for child_name, child in module.named_children():
        yield from _leaves(child, f"{name}.{child_name}".lstrip("."), seen)


def _hook(tape: Tape, name: str, layer: nn.Module) -> Callable[..., None]:
    rule = RULES.get(type(layer))

    def hook(_: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any], output: object) -> None:
        if kwargs and (args or len(kwargs) > 1):
            raise Unsupported(f"module: layer {name!r} must be called with its inputs in order, not by name")
        inputs = tuple(part.detach() if isinstance(part, Tensor) else part for part in args or kwargs.values())
        if not isinstance(output, Tensor):
            raise Unsupported(f"module: layer {name!r} ({type(layer).__name__}) must give one tensor")

        def make(b: Tensor) -> LayerFactors:
            x = tuple(full(part) if isinstance(part, Tensor) else part for part in inputs)
            factors = general(layer, x, b) if rule is None else rule(layer, x[0], b)
            parameters = dict(layer.named_parameters())
            return [(parameters[each], factor) for each, factor in factors.items() if parameters[each].requires_grad]

        tape.record(name, inputs, output, make)

    return hook


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
