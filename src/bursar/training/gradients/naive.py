"""Everybody's gradients the slow way, one record after the other: what the fast way is compared with."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from bursar.errors import Unsupported

__all__ = ["compare", "gradients", "norms"]

ABSOLUTE, RELATIVE = 1e-6, 1e-3
"""Rounding in single precision, with room for long sums: a layer that is treated wrongly is off by far more."""


def gradients(module: nn.Module, loss: Callable[..., Tensor], inputs: Sequence[Tensor], targets: Any) -> list[Tensor]:
    """(records, parameters) each record's gradient, by itself, of every trained parameter, as one row a record."""
    parameters = [parameter for parameter in module.parameters() if parameter.requires_grad]
    device = parameters[0].device
    rows = []
    for number in range(inputs[0].shape[0]):
        one = slice(number, number + 1)
        with torch.enable_grad():
            output = module(*(part[one].to(device) for part in inputs))
            value = (loss(output) if targets is None else loss(output, targets[one].to(device))).sum()
            found = torch.autograd.grad(value, parameters, allow_unused=True)
        parts = [torch.zeros_like(p) if g is None else g for p, g in zip(parameters, found, strict=True)]
        rows.append(torch.cat([part.detach().reshape(-1) for part in parts]))
    return rows


def norms(module: nn.Module, loss: Callable[..., Tensor], inputs: Sequence[Tensor], targets: Any) -> Tensor:
    """(records,) float64: norms of each record's gradient by itself."""
    return torch.stack([row.double().norm() for row in gradients(module, loss, inputs, targets)]).cpu()


def compare(
    module: nn.Module, loss: Callable[..., Tensor], inputs: Sequence[Tensor], targets: Any, fast: Any
) -> Tensor:
    """Compare norms and sums with the slow way, dropout switched off.

    Args:
        fast: gives the uses of each parameter, records first, for the same inputs and targets.

    Returns:
        (records,) the norms of the slow way, private.

    Raises:
        Unsupported: they differ, so records depend on each other, or a parameter is used outside its layer.
    """
    with _evaluating(module):
        rows = torch.stack(gradients(module, loss, inputs, targets))
        uses = fast(inputs, targets)
    parts = []
    for parameter, use in uses:
        shape = (rows.shape[0], parameter.numel())
        parts.append(torch.zeros(shape, device=rows.device) if use is None else use.each().reshape(shape))
    made = torch.cat(parts, dim=1)
    known = torch.isfinite(rows).all(dim=1)
    scale = rows[known].double().norm(dim=1)
    apart = (made[known].double() - rows[known].double()).norm(dim=1)
    if bool((apart > RELATIVE * scale + ABSOLUTE).any()):
        raise Unsupported(
            "module: gradients per record differ from those of each record by itself. Either records depend on each "
            "other, or a layer's parameter is also used outside that layer, or the records are not on the first axis"
        )
    lengths: Tensor = rows.double().norm(dim=1).cpu()
    return lengths


@contextmanager
def _evaluating(module: nn.Module) -> Iterator[None]:
    before = [(layer, layer.training) for layer in module.modules()]
    try:
        module.eval()
        yield
    finally:
        for layer, training in before:
            layer.training = training
