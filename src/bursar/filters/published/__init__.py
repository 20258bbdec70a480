"""Filters as other papers state them, to compare with; none is recommended."""

from bursar.filters.published._rogers import Rogers

__all__ = ["Rogers"]
