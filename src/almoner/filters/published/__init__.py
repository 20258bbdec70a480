"""Filters as papers state them, to compare with; none is recommended."""

from almoner.filters.published._koskela import Koskela
from almoner.filters.published._pure import Pure
from almoner.filters.published._rogers import Rogers

__all__ = ["Koskela", "Pure", "Rogers"]
