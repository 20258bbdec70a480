"""The last few vectors of a sequence, and weighted sums of them."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

__all__ = ["Window"]

Array = NDArray[np.float64]


class Window:
    """So many vectors, of which each new one takes the place of the oldest; zeros where there was none yet."""

    def __init__(self, length: int) -> None:
        self._length, self._added = length, 0
        self._vectors: Array | None = None

    def add(self, vector: Array) -> None:
        """Keep a vector."""
        if not self._length:
            return
        if self._vectors is None:
            self._vectors = np.zeros((self._length, len(vector)))
        self._vectors[self._added % self._length] = vector
        self._added += 1

    def weighted(self, weights: Sequence[float] | Array) -> Array | float:
        """The sum of weight k times the vector that was added k + 1 ago; as many weights as vectors are kept."""
        if self._vectors is None:
            return 0.0
        placed = np.empty(self._length)
        placed[(self._added - 1 - np.arange(self._length)) % self._length] = weights
        found: Array = placed @ self._vectors
        return found
