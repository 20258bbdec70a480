"""Odometers as other papers state them, to compare with; none is recommended."""

from bursar.odometers.published._lecuyer import Lecuyer
from bursar.odometers.published._restarts import FeldmanZrnic, GaussianRestarts
from bursar.odometers.published._rogers import Rogers
from bursar.odometers.published._whitehouse import Mixture, Stitched

__all__ = ["FeldmanZrnic", "GaussianRestarts", "Lecuyer", "Mixture", "Rogers", "Stitched"]
