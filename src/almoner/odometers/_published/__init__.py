"""Odometers as other papers state them, to compare with; none is recommended."""

from almoner.odometers._published._lecuyer import Lecuyer
from almoner.odometers._published._restarts import FeldmanZrnic, GaussianRestarts
from almoner.odometers._published._rogers import Rogers
from almoner.odometers._published._whitehouse import Mixture, Stitched

__all__ = ["FeldmanZrnic", "GaussianRestarts", "Lecuyer", "Mixture", "Rogers", "Stitched"]
