"""Lécuyer's policies, which are among the experiments."""

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).parents[2] / "experiments"))
from lecuyers_policies import AdaptiveBatch, AdaptiveNoise, ReduceNoiseOnPlateau

__all__ = ["AdaptiveBatch", "AdaptiveNoise", "ReduceNoiseOnPlateau"]
