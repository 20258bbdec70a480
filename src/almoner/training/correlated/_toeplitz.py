"""Toeplitz factors: the square root of running sums, and the factor whose inverse is banded.

Names and symbols
    c, r          first columns of C and of its inverse; for the square root, series of (1 - x)^(-1/2), (1 - x)^(1/2)
    u             2^-53, the rounding of one operation

Source: theory 5.11; docs/proofs/correlated-noise.md
"""

from abc import abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from almoner import _check
from almoner.training.correlated._factor import Array, Draw, Factor
from almoner.training.correlated._window import Window

__all__ = ["BandedInverse", "PrefixSums", "square_root_series"]

BITS = 192
ROUNDING = 2.0**-53


def square_root_series(steps: int) -> Array:
    """(steps,) binomial(2k, k) / 4^k, k = 0, 1, ...: each the nearest float, or its neighbour."""
    series, value = np.empty(steps), 1 << BITS
    for k in range(steps):
        series[k] = value / (1 << BITS)
        value = value * (2 * k + 1) // (2 * k + 2)
    return series


class Toeplitz(Factor):
    """A factor with the same entries along each diagonal; none is negative, and none is larger than the one before."""

    @cached_property
    @abstractmethod
    def first_column(self) -> Array:
        """(T,) entries that are at least those of the first column of C, which fall and are >= 0."""

    def columns(self, places: Sequence[int]) -> Array:
        self._check_places(places)
        found = np.zeros((self.steps, len(places)))
        for column, place in enumerate(places):
            found[place:, column] = self.first_column[: self.steps - place]
        return found

    def sensitivity(self, *, separation: int, participations: int) -> float:
        """As in ``Factor``: exact but for rounding, because the earliest and densest pattern moves the rows the most.

        Guarantee: at least ``sensitivity_at`` of every such pattern, also where a person chooses places from outputs.
        Source: docs/proofs/correlated-noise.md; Kalinin & Lampert (2024), https://arxiv.org/abs/2405.13763, Thm 2
        """
        _check.whole(1, separation=separation, participations=participations)
        return self.sensitivity_at(range(0, self.steps, separation)[:participations])


class SquareRootFactor(Toeplitz):
    """The square root of running sums: C C = A."""

    def __init__(self, steps: int) -> None:
        self.steps = steps
        series = square_root_series(steps)
        self._inverse_column = np.concatenate([[1.0], -series[1:] / (2 * np.arange(1, steps) - 1)])
        self._series = series

    @cached_property
    def first_column(self) -> Array:
        # the entries of the inverse are off by 3 u of themselves, those of its inverse by less than 12 u
        return np.asarray((self._series + 16 * ROUNDING) * (1 + 4 * ROUNDING))

    def noise(self, draw: Draw) -> Iterator[Array]:
        for step in range(self.steps):
            yield sum((self._inverse_column[step - s] * draw(s) for s in range(step)), draw(step))

    @property
    def vectors(self) -> int:
        return 1


class BandedInverseFactor(Toeplitz):
    """The factor whose inverse has the first entries of that of the square root, and zeros below them."""

    def __init__(self, steps: int, band: int) -> None:
        self.steps, self._band = steps, min(band, steps)
        series = square_root_series(self._band)
        self._inverse_column = np.concatenate([[1.0], -series[1:] / (2 * np.arange(1, self._band) - 1)])

    @cached_property
    def first_column(self) -> Array:
        back = -self._inverse_column[:0:-1]  # > 0: so every entry is a sum of positive terms
        column = np.zeros(self.steps)
        column[0] = 1.0
        for k in range(1, self.steps):
            low = max(0, k - len(back))
            column[k] = column[low:k] @ back[len(back) - (k - low) :]
        # each entry adds the rounding of at most band + 2 operations to that of the entries before it
        bound = column * (1 + (self._band + 2) * np.arange(self.steps) * 2 * ROUNDING)
        return np.asarray(np.maximum.accumulate(bound[::-1])[::-1])  # falls, whatever rounding did

    def noise(self, draw: Draw) -> Iterator[Array]:
        past = Window(self._band - 1)
        for step in range(self.steps):
            fresh = draw(step)
            total = fresh + past.weighted(self._inverse_column[1:])
            past.add(fresh)
            yield total

    @property
    def vectors(self) -> int:
        return self._band


@dataclass(frozen=True, slots=True)
class PrefixSums:
    """The square root of running sums, in closed form: the best Toeplitz factor for one participation. Public.

    Its inverse is not banded: noise is drawn again from its key for all earlier steps in every step, so memory is
    small and the time of T steps grows as T squared.

    Source: Fichtenberger, Henzinger & Upadhyay (2023), https://arxiv.org/abs/2202.11205; theory 5.11
    """

    def factor(self, steps: int) -> Factor:
        """The factor for so many steps."""
        _check.whole(1, steps=steps)
        return SquareRootFactor(int(steps))


@dataclass(frozen=True, slots=True)
class BandedInverse:
    """The banded inverse square root (BISR): the inverse of the square root of running sums, cut to a band. Public.

    Args:
        band: >= 1. How many steps one draw of noise is used in; 1 is independent noise.

    Source: Kalinin, McKenna, Upadhyay & Lampert (2025), https://arxiv.org/abs/2505.12128; theory 5.11
    """

    band: int

    def __post_init__(self) -> None:
        _check.whole(1, band=self.band)

    def factor(self, steps: int) -> Factor:
        """The factor for so many steps."""
        _check.whole(1, steps=steps)
        return BandedInverseFactor(int(steps), int(self.band))
