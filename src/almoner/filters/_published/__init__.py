"""Filters as papers state them, to compare with; none is recommended."""

from almoner.filters._published._koskela import Koskela
from almoner.filters._published._pure import Pure
from almoner.filters._published._rogers import Rogers

__all__ = ["Koskela", "Pure", "Rogers"]
