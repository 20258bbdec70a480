"""Correlated noise, step by step: drawn by a counter, so that any draw can be made again from the key and the step."""

import secrets
from collections.abc import Iterator, Sequence

import numpy as np

from almoner import _check
from almoner.errors import ArgumentError
from almoner.training.correlated._factor import Array, Factor

__all__ = ["Noise"]

KEYS = 2**128


class Noise:
    """The rows of C^-1 z for independent standard normal z of a key. Secret, as the key is.

    Args:
        factor: C, public.
        size: how many numbers each step's noise has; public.
        key: SECRET, in [0, 2^128): with it the noise can be taken off. None: from the operating system.

    Guarantee: the noise of step t is row t of C^-1 z up to the rounding of double precision, with z from a generator
        that has used no part of its stream twice.
    Source: theory 5.11; Salmon et al. (2011) on Philox, a generator whose state is a counter
    """

    def __init__(self, factor: Factor, size: int, *, key: int | None = None) -> None:
        _check.whole(1, size=size)
        self.factor, self._size = factor, int(size)
        """C. Public."""
        self._keys: list[tuple[int, int | None]] = [(0, _checked(key))]
        self._rows: Iterator[Array] = factor.noise(self.draw)
        self.step = 0
        """The number of steps whose noise was given."""

    def __repr__(self) -> str:
        return f"Noise(size={self._size}, step={self.step})"

    @property
    def keys(self) -> list[tuple[int, int | None]]:
        """SECRET: from which step on which key is used; None: the draws before a new beginning count as 0."""
        return list(self._keys)

    def draw(self, step: int) -> Array:
        """(size,) the independent noise z of a step; the same whenever it is asked for."""
        key = next(key for first, key in reversed(self._keys) if first <= step)
        if key is None:
            return np.zeros(self._size)
        words = np.array([key % 2**64, key >> 64], dtype=np.uint64)
        counter = np.array([0, 0, 0, step], dtype=np.uint64)  # each step has 2^192 blocks of its own
        return np.random.Generator(np.random.Philox(key=words, counter=counter)).standard_normal(self._size)

    def next(self) -> Array:
        """(size,) the correlated noise of the next step, at sigma 1.

        Raises:
            ArgumentError: there is no noise for more steps than the factor has.
        """
        if self.step >= self.factor.steps:
            raise ArgumentError(f"steps={self.factor.steps!r} are all that the factor has noise for")
        row = next(self._rows)
        self.step += 1
        return row

    def go_on(
        self,
        keys: Sequence[tuple[int, int | None]],
        step: int,
        *,
        key: int | None = None,
        afresh: bool = False,
    ) -> None:
        """Be where another noise of the same factor and size was, and use a fresh key from there on.

        Args:
            keys: its ``keys``.
            step: its ``step``: rows before it are made again, to the last bit.
            key: as for the constructor; not one that was used before.
            afresh: begin a new mechanism with this step, of the columns and rows of C from it on: where a step may have
                been released that is taken again, its rows may hold nothing that was in rows before.
        """
        before: list[tuple[int, int | None]] = [(0, None)] if afresh else [pair for pair in keys if pair[0] < step]
        self._keys = [*before, (step, _checked(key))]
        self._rows, self.step = self.factor.noise(self.draw), 0
        while self.step < step:
            self.next()


def _checked(key: int | None) -> int:
    """The key, or one from the operating system."""
    key = secrets.randbits(128) if key is None else key
    if isinstance(key, bool) or not isinstance(key, int) or not 0 <= key < KEYS:
        raise ArgumentError("key must be a whole number in [0, 2^128)")  # not its value
    return key
