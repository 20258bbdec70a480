"""Odometers as other papers state them, to compare with; none is recommended."""

from almoner.odometers.published._lecuyer import Lecuyer
from almoner.odometers.published._restarts import FeldmanZrnic, GaussianRestarts
from almoner.odometers.published._rogers import Rogers
from almoner.odometers.published._whitehouse import Mixture, Stitched

__all__ = ["FeldmanZrnic", "GaussianRestarts", "Lecuyer", "Mixture", "Rogers", "Stitched"]
