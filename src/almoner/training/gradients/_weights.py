"""Norms of people's gradients, rounded up, and the weights with which the gradients are added."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from almoner.errors import ArgumentError
from almoner.training.gradients._factors import Factor, together

__all__ = ["checked_weights", "clipping", "norms_of"]

ROUNDING, UNDERFLOW = 5e-6, 1e-15
"""Norms are given larger than computed by this share and this much: more than the rounding of their sums."""


def clipping(norms: Tensor, clip: float) -> Tensor:
    """(n,) the weights min(1, clip / norm) that make no contribution larger than the clip; zero for unknown norms."""
    return torch.where(torch.isfinite(norms), clip / norms.clamp(min=clip), 0.0)


def norms_of(factors: Sequence[Factor | None], people: int) -> Tensor:
    """(people,) float64; rounded up; NaN where not finite."""
    per_parameter = (factor.squared_norms() for factor in together(factors))
    squares: Any = sum(per_parameter, torch.zeros((), dtype=torch.float64))
    norms = torch.sqrt(squares.expand(people) if squares.dim() == 0 else squares)
    norms = torch.where(norms > 0, norms * (1 + ROUNDING) + UNDERFLOW, norms)
    return torch.where(torch.isfinite(norms), norms, torch.nan)


def checked_weights(weights: Tensor, norms: Tensor) -> Tensor:
    """Weights as float64; people whose gradient is unknown must have none."""
    weights = torch.as_tensor(weights, dtype=torch.float64)
    if weights.shape != norms.shape or not bool(((weights >= 0) & torch.isfinite(weights)).all()):
        raise ArgumentError("weigh must give a weight, finite and >= 0, for each person of the chunk")
    normal = weights >= torch.finfo(torch.float32).tiny  # smaller ones may be rounded up by more than the margin
    return torch.where(torch.isfinite(norms) & normal, weights, 0.0)
