"""Filters as papers state them, to compare with; none is recommended."""

from bursar.filters.published._koskela import Koskela
from bursar.filters.published._pure import Pure
from bursar.filters.published._rogers import Rogers

__all__ = ["Koskela", "Pure", "Rogers"]
