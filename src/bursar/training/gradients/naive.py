"""Everybody's gradients the slow way, one record after the other: what the fast way is compared with.

Once in evaluation mode, where nothing is random, and once as the module is, where it may treat records differently.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from bursar.errors import Unsupported
from bursar.training.gradients.uses import Use

__all__ = ["compare", "evaluating", "gradients", "independent", "spread"]

Fast = Callable[[Sequence[Tensor], Any], Iterable[Use | None]]

FEW = 4
"""So many records are compared."""

ABSOLUTE, RELATIVE = 1e-6, 1e-3
"""Rounding in single precision, with room for long sums: a layer that is treated wrongly is off by far more."""


def spread(inputs: Sequence[Tensor], targets: Any) -> tuple[list[Tensor], Any]:
    """A few records from all over, to compare: neighbours are more often alike."""
    count = inputs[0].shape[0]
    rows = torch.unique(torch.linspace(0, max(count - 1, 0), min(FEW, count)).long())
    return [part[rows] for part in inputs], None if targets is None else targets[rows]


def gradients(
    module: nn.Module, loss: Callable[..., Tensor], inputs: Sequence[Tensor], targets: Any
) -> Iterator[list[Tensor]]:
    """Each record's gradient, by itself, of every trained parameter; one list a record."""
    parameters = [parameter for parameter in module.parameters() if parameter.requires_grad]
    device = parameters[0].device
    for number in range(inputs[0].shape[0]):
        one = slice(number, number + 1)
        with torch.enable_grad():
            output = module(*(part[one].clone().to(device) for part in inputs))
            value = (loss(output) if targets is None else loss(output, targets[one].to(device))).sum()
            found = torch.autograd.grad(value, parameters, allow_unused=True)
        yield [torch.zeros_like(p) if g is None else g.detach() for p, g in zip(parameters, found, strict=True)]


def compare(
    module: nn.Module,
    loss: Callable[..., Tensor],
    inputs: Sequence[Tensor],
    targets: Any,
    fast: Fast,
) -> Tensor:
    """Compare everybody's gradients with the slow way, dropout switched off.

    Args:
        fast: gives the use of each trained parameter, records first, for the same inputs and targets.

    Returns:
        (records,) the norms of the slow way, private.

    Raises:
        Unsupported: they differ, so records depend on each other, or a parameter is used outside its layer.
    """
    norms = []
    with evaluating(module):
        uses = list(fast(inputs, targets))
        for number, slow in enumerate(gradients(module, loss, inputs, targets)):
            squares, apart = 0.0, 0.0
            for use, part in zip(uses, slow, strict=True):
                squares += float(part.norm()) ** 2
                apart += float((part if use is None else use.of(number).reshape(part.shape) - part).norm()) ** 2
            norms.append(squares**0.5)
            if apart**0.5 > RELATIVE * squares**0.5 + ABSOLUTE:  # False where one is not a number
                raise Unsupported(
                    "module: gradients per record differ from those of each record by itself. Either records depend "
                    "on each other, or a layer's parameter is also used outside that layer, or the records are not on "
                    "the first axis"
                )
    return torch.tensor(norms, dtype=torch.float64)


def independent(inputs: Sequence[Tensor], targets: Any, fast: Fast, device: torch.device) -> None:
    """Compare a record's gradient among the others with its gradient among copies of itself, the same coins for both.

    Raises:
        Unsupported: they differ, so this module mixes records while it is trained.
    """
    among = _drawn_alike(fast, inputs, targets, device)
    for number in {0, inputs[0].shape[0] - 1} if inputs[0].shape[0] > 1 else ():
        copies = torch.full((inputs[0].shape[0],), number)
        alone = _drawn_alike(
            fast, [part[copies] for part in inputs], None if targets is None else targets[copies], device
        )
        squares, apart = 0.0, 0.0
        for use, other in zip(among, alone, strict=True):
            if use is not None and other is not None:
                squares += float(other.of(number).norm()) ** 2
                apart += float((use.of(number) - other.of(number)).norm()) ** 2
        if apart**0.5 > RELATIVE * squares**0.5 + ABSOLUTE:  # False where one is not a number
            raise Unsupported(
                "module: in training mode gradients per record depend on the other records, or on coins that are not "
                "PyTorch's"
            )


def _drawn_alike(fast: Fast, inputs: Sequence[Tensor], targets: Any, device: torch.device) -> list[Use | None]:
    """Gradients with coins that are always the same; the generators of the caller are left as they were."""
    with torch.random.fork_rng([device] if device.type == "cuda" else []):
        torch.default_generator.manual_seed(0)
        if device.type == "cuda":
            with torch.cuda.device(device):
                torch.cuda.manual_seed(0)
        return list(fast(inputs, targets))


@contextmanager
def evaluating(module: nn.Module) -> Iterator[None]:
    """Within this context the module is in evaluation mode; afterwards each layer is in the mode that it was in."""
    before = [(layer, layer.training) for layer in module.modules()]
    try:
        module.eval()
        yield
    finally:
        for layer, training in before:
            layer.training = training
