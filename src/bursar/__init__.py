"""Bursar: a privacy account for every person."""

__version__ = "0.1.0"
