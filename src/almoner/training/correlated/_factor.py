"""A factor C of correlated noise: its columns, what they cost a person, and how noise is made from it.

Names and symbols
    T, C          number of steps; the factor, (T, T), lower triangular and invertible; public
    place         the number of a step, from 0, in which a person takes part
    X             C'C, the inner products of columns

Released in step t is row t of C G + z, with G the sums and z independent noise; the optimizer uses C^-1 (C G + z) =
G + C^-1 z. A person of norms n_s at places s moves all rows together by at most the root of sum |X_rs| n_r n_s.

Source: theory 5.11; docs/proofs/correlated-noise.md
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from functools import cached_property
from math import sqrt

import numpy as np
from numpy.typing import NDArray

from almoner import _check
from almoner.errors import ArgumentError
from almoner.training.correlated._sensitivity import largest_pattern
from almoner.training.correlated._workload import Workload

__all__ = ["Array", "Draw", "Factor", "above"]

Array = NDArray[np.float64]
Draw = Callable[[int], Array]
"""The independent noise z of a step: called with the step, always with the same result."""


def above(value: float, terms: int = 1) -> float:
    """Above what a number >= 0 stands for, if it was computed from so many terms >= 0 (each a product, say)."""
    return value * (1 + (terms + 8) * 2.0**-52)


class Factor(ABC):
    """A factor C for a number of steps. Public."""

    steps: int

    @abstractmethod
    def columns(self, places: Sequence[int]) -> Array:
        """(T, len(places)) the columns of C at these places.

        Guarantee: C is exactly as given, or every entry of C is >= 0 and at most the entry given.
        Source: each factor's own.
        """

    @abstractmethod
    def noise(self, draw: Draw) -> Iterator[Array]:
        """Rows 0, 1, ... of C^-1 z, in order, where ``draw(s)`` is z_s."""

    @property
    @abstractmethod
    def vectors(self) -> int:
        """How many vectors as long as the parameters ``noise`` keeps."""

    def parameters(self) -> Array:
        """The numbers that noise is made with: factors of a kind that have the same ones are the same."""
        return self.columns([0])

    def inner_products(self, places: Sequence[int]) -> Array:
        """(k, k) for k places, bounds on how much the columns at two places overlap.

        Guarantee: entry (r, s) is at least the absolute value of the inner product of the two columns.
        Source: Higham (2002), section 3.1, on the rounding of inner products.
        """
        self._check_places(places)
        columns = self.columns(places)
        lengths = np.abs(columns).T @ np.abs(columns)
        products: Array = np.abs(columns.T @ columns) + lengths * ((self.steps + 8) * 2.0**-52)
        return np.where(lengths > 0, products, 0.0)

    def column_norm(self, place: int) -> float:
        """The length of a column, rounded up: what a contribution of norm 1 at this place costs, in all rows."""
        return above(sqrt(float(self.inner_products([place])[0, 0])))

    def sensitivity_at(self, places: Sequence[int]) -> float:
        """How far all rows together are moved by a person of norm 1 at each of these places.

        Guarantee: at least the root of the sum of squared row differences, however gradients are chosen from outputs.
        Source: docs/proofs/correlated-noise.md; Choquette-Choo et al. (2022), https://arxiv.org/abs/2211.06530
        """
        if not places:
            return 0.0
        return above(sqrt(above(float(self.inner_products(places).sum()), len(places) ** 2)))

    def sensitivity(self, *, separation: int, participations: int) -> float:
        """How far a person of norm 1 moves all rows together: at most so often, at places at least so far apart.

        Args:
            separation: public, >= 1. The least distance of two places.
            participations: public, >= 1.

        Returns:
            Exact but for rounding where columns at that distance do not overlap, and for Toeplitz factors that fall;
            else a bound: the largest sum, over the places, of the largest row that a pattern of places can choose.

        Guarantee: at least ``sensitivity_at`` of every such pattern, also where a person chooses places from outputs.
        Source: docs/proofs/correlated-noise.md; Choquette-Choo et al. (2023), https://arxiv.org/abs/2306.08153
        """
        _check.whole(1, separation=separation, participations=participations)
        products = self._all_products
        return above(sqrt(above(largest_pattern(products, separation, participations), self.steps)))

    @cached_property
    def _all_products(self) -> Array:
        return self.inner_products(range(self.steps))

    @cached_property
    def _inverse(self) -> Array:
        unit = np.eye(self.steps)
        return np.array(list(self.noise(lambda step: unit[step])))

    def inverse(self) -> Array:
        """(T, T) C^-1, as the noise is made with it."""
        return self._inverse.copy()

    def error(self, workload: Workload | None = None) -> float:
        """The root mean square, over the steps, of what noise adds to each number of an iterate, at sigma 1.

        Args:
            workload: what the optimizer makes of the sums; None: running sums.

        Multiply by a sensitivity to compare factors at equal privacy.
        """
        moves = (Workload() if workload is None else workload).matrix(self.steps)
        return float(np.linalg.norm(moves @ self._inverse)) / sqrt(self.steps)

    def _check_places(self, places: Sequence[int]) -> None:
        if len(set(places)) < len(places) or any(not 0 <= place < self.steps for place in places):
            raise ArgumentError(f"places={list(places)!r} must be different steps, from 0 to {self.steps - 1}")
