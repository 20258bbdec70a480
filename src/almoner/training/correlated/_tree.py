"""The binary tree as a square factor: row t sums the block that ends at step t.

With t counted from 1, the block has as many steps as the largest power of two in t, so that the running sum up to t is
the sum of the blocks that the binary digits of t name. Every entry is 0 or 1: sums and products are exact.

Source: Chan, Shi & Song (2011); Dwork, Naor, Pitassi & Rothblum (2010); theory 5.11
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from almoner import _check
from almoner.training.correlated._factor import Array, Draw, Factor

__all__ = ["Tree"]


class TreeFactor(Factor):
    """The binary tree for a number of steps."""

    def __init__(self, steps: int) -> None:
        self.steps = steps

    def columns(self, places: Sequence[int]) -> Array:
        self._check_places(places)
        last = np.arange(1, self.steps + 1)[:, None]
        number = np.asarray(list(places), dtype=np.int64)[None, :] + 1
        return np.where((number <= last) & (number > last - (last & -last)), 1.0, 0.0)

    def noise(self, draw: Draw) -> Iterator[Array]:
        for step in range(self.steps):
            number, total = step + 1, draw(step).copy()
            part = 1
            while part < (number & -number):  # the blocks that make up this one but for its last step
                total -= draw(number - part - 1)
                part *= 2
            yield total

    @property
    def vectors(self) -> int:
        return 1


@dataclass(frozen=True, slots=True)
class Tree:
    """The binary tree: old and simple, with more noise than the others. Public."""

    def factor(self, steps: int) -> Factor:
        """The factor for so many steps."""
        _check.whole(1, steps=steps)
        return TreeFactor(int(steps))
