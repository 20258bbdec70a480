"""Gradients per person of a PyTorch module: norms and clipped sums, in one pass."""

from almoner.training.gradients._batches import Batch
from almoner.training.gradients._engine import Gradients, Weigh, check, clipping

__all__ = ["Batch", "Gradients", "Weigh", "check", "clipping"]
