"""Rules for each kind of layer: the factors of its parameters, from its input and the gradient of its output.

A rule takes the layer, the input (records first) and the gradient of the output, and gives the factors of the layer's
parameters, by name. A layer without a rule of its own is differentiated person by person (torch.func), as a whole.

Layers whose records depend on each other have no gradient per person: they are refused by name.
"""

from collections.abc import Callable
from math import prod
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call, vjp, vmap
from torch.nn import functional
from torch.nn.modules.conv import _ConvNd
from torch.nn.modules.instancenorm import _InstanceNorm

from bursar.errors import Unsupported
from bursar.training.gradients._factors import Dense, Factor, OuterProducts, SparseRows

__all__ = ["RULES", "general", "refuse_unsupported"]

Factors = dict[str, Factor]

BATCH_NORM = "normalises each record with the others of its batch: use GroupNorm, LayerNorm or InstanceNorm"
BATCH_FIRST = "must have batch_first=True: the first axis must be the record"
REFUSED: tuple[tuple[Any, str], ...] = (
    (nn.modules.batchnorm._BatchNorm, BATCH_NORM),
    (nn.modules.lazy.LazyModuleMixin, "has no parameters yet: run it on one batch first"),
)


def refuse_unsupported(module: nn.Module) -> None:
    """Raise Unsupported, naming the layer and what to use instead, where no gradient per person exists."""
    for name, layer in module.named_modules():
        named = f"module: layer {name or 'itself'!r} ({type(layer).__name__})"
        for kind, reason in REFUSED:
            if isinstance(layer, kind) and not isinstance(layer, _InstanceNorm):
                raise Unsupported(f"{named} {reason}")
        if getattr(layer, "track_running_stats", False):
            raise Unsupported(f"{named} keeps statistics of all records: set track_running_stats=False")
        if getattr(layer, "proj_size", 0):
            raise Unsupported(f"{named} must not set proj_size: add a linear layer after it")
        if getattr(layer, "batch_first", True) is False:
            raise Unsupported(f"{named} {BATCH_FIRST}")
        if isinstance(layer, nn.Embedding | nn.EmbeddingBag):
            for option in ("max_norm", "scale_grad_by_freq", "sparse"):
                if getattr(layer, option):
                    raise Unsupported(f"{named} must not set {option}")
        if any(type(hook).__name__ in ("WeightNorm", "SpectralNorm") for hook in layer._forward_pre_hooks.values()):
            raise Unsupported(f"{named} has weight or spectral norm: remove it")
        if hasattr(layer, "parametrizations"):
            raise Unsupported(f"{named} is parametrised: remove the parametrisation")


def linear(layer: nn.Linear, x: Tensor, b: Tensor) -> Factors:
    """Places are all axes between the first and the last."""
    a, b = _places(x), _places(b)
    return {"weight": OuterProducts(a, b, layer.weight.shape)} | _bias(layer, b)


def convolution(layer: _ConvNd, x: Tensor, b: Tensor) -> Factors:
    """Places are the positions of the output; what went in is the patch below each of them."""
    a = _patches(layer, x)
    b = b.movedim(1, -1).reshape(b.shape[0], -1, b.shape[1])
    return {"weight": OuterProducts(a, b, *_kernel_last(layer.weight.shape), layer.groups)} | _bias(layer, b)


def transposed(layer: _ConvNd, x: Tensor, b: Tensor) -> Factors:
    """A transposed convolution is a convolution backwards: what went in and what came out change places."""
    if layer.groups != 1 or any(layer.output_padding):
        return general(layer, (x,), b)
    a = _patches(layer, b)
    x = x.movedim(1, -1).reshape(x.shape[0], -1, x.shape[1])
    return {"weight": OuterProducts(a, x, *_kernel_last(layer.weight.shape))} | _bias(
        layer, b.movedim(1, -1).flatten(1, -2)
    )


def embedding(layer: nn.Embedding, x: Tensor, b: Tensor) -> Factors:
    """The gradient has a row for each entry that occurs."""
    entries = x.reshape(x.shape[0], -1)
    if layer.padding_idx is not None:
        entries = entries.masked_fill(entries == layer.padding_idx, -1)
    return {"weight": SparseRows(entries, b.reshape(*entries.shape, -1), layer.weight.shape)}


def layer_norm(layer: nn.LayerNorm, x: Tensor, b: Tensor) -> Factors:
    """Scale and shift of each position."""
    standard = functional.layer_norm(x, layer.normalized_shape, eps=layer.eps)
    return _scale(layer, standard, b, lambda t: t.reshape(t.shape[0], -1, *layer.normalized_shape).sum(1))


def rms_norm(layer: nn.RMSNorm, x: Tensor, b: Tensor) -> Factors:
    """Scale of each position."""
    standard = functional.rms_norm(x, list(layer.normalized_shape), eps=layer.eps)
    return _scale(layer, standard, b, lambda t: t.reshape(t.shape[0], -1, *layer.normalized_shape).sum(1))


def group_norm(layer: nn.GroupNorm, x: Tensor, b: Tensor) -> Factors:
    """Scale and shift of each channel."""
    standard = functional.group_norm(x, layer.num_groups, eps=layer.eps)
    return _scale(layer, standard, b, lambda t: t.reshape(*t.shape[:2], -1).sum(2))


def instance_norm(layer: _InstanceNorm, x: Tensor, b: Tensor) -> Factors:
    """Scale and shift of each channel."""
    standard = functional.instance_norm(x, eps=layer.eps)
    return _scale(layer, standard, b, lambda t: t.reshape(*t.shape[:2], -1).sum(2))


def general(layer: nn.Module, x: tuple[Any, ...], b: Tensor) -> Factors:
    """Any module, person by person: slower, and each person's gradient is built."""
    names = [name for name, parameter in layer.named_parameters() if parameter.requires_grad]
    values = {name: layer.get_parameter(name).detach() for name in names}

    def backward(x: tuple[Any, ...], b: Tensor) -> dict[str, Tensor]:
        def forward(values: dict[str, Tensor]) -> Tensor:
            one = (part.unsqueeze(0) if isinstance(part, Tensor) else part for part in x)
            output: Tensor = functional_call(layer, values, tuple(one))
            return output.squeeze(0)

        gradients: dict[str, Tensor] = vjp(forward, values)[1](b)[0]
        return gradients

    axes = tuple(0 if isinstance(part, Tensor) else None for part in x)
    try:
        gradients = vmap(backward, in_dims=(axes, 0), randomness="error")(x, b)
    except (RuntimeError, ValueError) as failure:
        raise Unsupported(
            f"module: {type(layer).__name__} has parameters of its own and can't be differentiated person by person: "
            "build it of layers that can"
        ) from failure
    return {name: Dense(gradient) for name, gradient in gradients.items()}


def _kernel_last(shape: torch.Size) -> tuple[torch.Size, tuple[int, ...]]:
    """(out, kernel, in), the shape in which patches give the weight, and the order that makes it (out, in, kernel)."""
    last = len(shape) - 1
    return torch.Size((shape[0], *shape[2:], shape[1])), (0, last, *range(1, last))


def _places(x: Tensor) -> Tensor:
    return x.reshape(x.shape[0], -1, x.shape[-1])


def _bias(layer: nn.Linear | _ConvNd, b: Tensor) -> Factors:
    return {} if layer.bias is None else {"bias": Dense(b.sum(1))}


def _scale(layer: nn.Module, standard: Tensor, b: Tensor, total: Callable[[Tensor], Tensor]) -> Factors:
    factors: Factors = {}
    if getattr(layer, "weight", None) is not None:
        factors["weight"] = Dense(total(b * standard))
    if getattr(layer, "bias", None) is not None:
        factors["bias"] = Dense(total(b))
    return factors


def _patches(layer: _ConvNd, x: Tensor) -> Tensor:
    """(n, positions, groups * kernel * channels of a group) what each position of the output saw, channels fastest."""
    x = _padded(layer, x).movedim(1, -1)
    spatial = x.dim() - 2
    for axis in range(spatial):
        reach = layer.dilation[axis] * (layer.kernel_size[axis] - 1) + 1
        x = x.unfold(1 + axis, reach, layer.stride[axis])
    for axis in range(spatial):
        x = x.movedim(-spatial, -1)[..., :: layer.dilation[axis]]
    x = x.reshape(*x.shape[: 1 + spatial], layer.groups, -1, *x.shape[2 + spatial :])
    order = (0, *range(1, 2 + spatial), *range(3 + spatial, 3 + 2 * spatial), 2 + spatial)
    return x.permute(order).reshape(x.shape[0], prod(x.shape[1 : 1 + spatial]), -1)


def _padded(layer: _ConvNd, x: Tensor) -> Tensor:
    if layer.padding_mode != "zeros":
        return functional.pad(x, layer._reversed_padding_repeated_twice, mode=layer.padding_mode)
    if isinstance(layer.padding, str):
        widths = list(layer._reversed_padding_repeated_twice)
    else:
        widths = [width for size in reversed(layer.padding) for width in (size, size)]
    return functional.pad(x, widths) if any(widths) else x


RULES: dict[type[nn.Module], Callable[[Any, Tensor, Tensor], Factors]] = {
    nn.Linear: linear,
    nn.Conv1d: convolution,
    nn.Conv2d: convolution,
    nn.Conv3d: convolution,
    nn.ConvTranspose1d: transposed,
    nn.ConvTranspose2d: transposed,
    nn.ConvTranspose3d: transposed,
    nn.Embedding: embedding,
    nn.LayerNorm: layer_norm,
    nn.RMSNorm: rms_norm,
    nn.GroupNorm: group_norm,
    nn.InstanceNorm1d: instance_norm,
    nn.InstanceNorm2d: instance_norm,
    nn.InstanceNorm3d: instance_norm,
}
"""By exact type: a subclass may do something else, so it is differentiated as a whole."""
