"""Spark as an engine: a plugin that uses public names of this package alone. Session.open takes data frames by it."""

from almoner.queries.spark._plugin import plugin

__all__ = ["plugin"]
