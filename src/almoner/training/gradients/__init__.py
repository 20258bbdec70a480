"""Gradients per person of a PyTorch module: norms and clipped sums, in one pass."""

from almoner.training.gradients._engine import Gradients, check

__all__ = ["Gradients", "check"]
