"""Odometers as other papers state them, to compare with; none is recommended."""

from almoner.odometers._published._boundaries import Lecuyer, Mixture, Rogers, Stitched
from almoner.odometers._published._restarts import FeldmanZrnic, GaussianRestarts

__all__ = ["FeldmanZrnic", "GaussianRestarts", "Lecuyer", "Mixture", "Rogers", "Stitched"]
