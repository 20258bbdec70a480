"""Gradients per person of a PyTorch module: norms and clipped sums, in one pass."""

from almoner.training.gradients._engine import Gradients, check
from almoner.training.gradients._layers import register_rule

__all__ = ["Gradients", "check", "register_rule"]
