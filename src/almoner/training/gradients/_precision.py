"""Norms and sums in single precision at least, whatever the caller allows for the rest of a training.

PyTorch may be told to multiply float32 matrices with fewer digits (TF32, bfloat16), and torch.autocast computes in half
precision. That is allowed in a forward pass: a contribution may be computed with few digits. But the norm that is
charged and the contribution that is added must not be rounded differently.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from almoner.errors import Unsupported

__all__ = ["exact", "full", "refuse_autocast", "refuse_precision"]


@contextmanager
def exact() -> Iterator[None]:
    """Within this context products of float32 matrices keep all of their digits."""
    backends: Any = torch.backends
    places = (backends.cuda.matmul, backends.mkldnn.matmul)
    before = [place.fp32_precision for place in places]
    try:
        for place in places:
            place.fp32_precision = "ieee"
        yield
    finally:
        for place, precision in zip(places, before, strict=True):
            place.fp32_precision = precision


def full(x: Tensor) -> Tensor:
    """Convert to single precision, where they come in half precision."""
    return x.float() if x.is_floating_point() and x.element_size() < 4 else x


def refuse_precision(module: nn.Module) -> None:
    """Raise Unsupported where sums over people would be made in half precision, or can't be in double precision."""
    for name, parameter in module.named_parameters():
        if parameter.requires_grad and parameter.dtype not in (torch.float32, torch.float64):
            raise Unsupported(
                f"module: parameter {name!r} is {parameter.dtype}: train in float32 or float64, by module.float()"
            )
        if parameter.device.type == "mps":
            raise Unsupported(f"module: parameter {name!r} is on mps, without double precision: train module.cpu()")


def refuse_autocast(device: torch.device) -> None:
    """Raise Unsupported inside torch.autocast, which keeps old copies of the parameters until it ends."""
    if torch.is_autocast_enabled(device.type):
        raise Unsupported("module: train outside torch.autocast; the module's own forward may use it")
