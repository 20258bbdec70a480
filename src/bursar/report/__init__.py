"""Pictures and tables of accounts. What shows single people is private, and says so."""

from bursar.report.spends import spends

__all__ = ["spends"]
