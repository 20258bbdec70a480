"""Running counts with noise whose law is known in advance: a binary tree, and the square root of the running sums.

Both are a product A = L R of triangular matrices, with A x the running sums of x. Released is A x + L z, with z
independent noise; what a person who moves one entry of x by one unit pays is the longest column of R.

Names and symbols
    steps     T   how many counts there are; public
    sigma         standard deviation of each entry of z; public

Source: theory 5.8; docs/proofs/dropouts.md.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from math import floor, fsum, log2, sqrt

import numpy as np
from numpy.typing import NDArray

from almoner import _check, mechanisms
from almoner.training.correlated._kinds import square_root_series

__all__ = ["Counter", "SquareRoot", "Tree", "rounded"]


class Counter(ABC):
    """A running count over a number of steps: exact sums plus noise whose law is known in advance. Public."""

    steps: int
    sigma: float

    @property
    @abstractmethod
    def mechanism(self) -> mechanisms.Gaussian:
        """The price of one person's drop at most, whenever it happens."""

    @abstractmethod
    def standard_error(self, step: int) -> float:
        """The standard deviation of the count after a step, 1 to steps."""

    @abstractmethod
    def errors(self, noise: np.random.Generator) -> Iterator[float]:
        """The noise of the counts after steps 1, 2, ..., steps; secret until it is added to the counts."""


@dataclass(frozen=True)
class Tree(Counter):
    """A running count by a binary tree: each noisy node sums a block of steps, each count a few nodes.

    Args:
        steps: public, T >= 1.
        sigma: public, > 0. The standard deviation of each node's noise.

    Guarantee: all counts together cost a person who drops once at most what ``mechanism`` costs, the Gaussian
        mechanism of mu squared = (floor(log2 T) + 1) / sigma^2; a person who does not drop pays nothing.
    Source: theory 5.8; Chan, Shi & Song (2011); Dwork, Naor, Pitassi & Rothblum (2010), section 4.
    """

    steps: int
    sigma: float

    def __post_init__(self) -> None:
        _check.whole(1, steps=self.steps)
        _check.noise(sigma=self.sigma)

    @property
    def mechanism(self) -> mechanisms.Gaussian:
        """All nodes that one drop can be in, at most floor(log2 T) + 1, as one mechanism."""
        return mechanisms.Gaussian(sigma=self.sigma, sensitivity=_root_above(int(self.steps).bit_length()))

    def standard_error(self, step: int) -> float:
        """Sigma times the root of the number of nodes: of the ones in the step's binary digits."""
        _check.within(1, self.steps, step=step)
        return self.sigma * sqrt(int(step).bit_count())

    def errors(self, noise: np.random.Generator) -> Iterator[float]:
        """One draw per step, for the node that ends there; a count is the sum of at most log2 T + 1 nodes."""
        nodes = [0.0] * int(self.steps).bit_length()
        for step in range(1, self.steps + 1):
            nodes[(step & -step).bit_length() - 1] = noise.normal(0.0, self.sigma)
            yield fsum(node for level, node in enumerate(nodes) if step >> level & 1)


@dataclass(frozen=True)
class SquareRoot(Counter):
    """A running count by the square root of the matrix of running sums: less noise than a tree at the same price.

    Args:
        steps: public, T >= 1.
        sigma: public, > 0. The standard deviation of the noise before it is correlated.

    Guarantee: all counts together cost a person who drops once at most what ``mechanism`` costs, the Gaussian
        mechanism of mu squared = (c_0^2 + ... + c_{T-1}^2) / sigma^2, c_k = binomial(2k, k) / 4^k: 2.5 / sigma^2 at
        100 steps, 4.7 / sigma^2 at 100,000; a person who does not drop pays nothing.
    Source: theory 5.8; Fichtenberger, Henzinger & Upadhyay (2023), https://arxiv.org/abs/2202.11205; for adaptive
        inputs Denisov et al. (2022), https://arxiv.org/abs/2202.08312, Thm 2.1.
    """

    steps: int
    sigma: float

    def __post_init__(self) -> None:
        _check.whole(1, steps=self.steps)
        _check.noise(sigma=self.sigma)

    @cached_property
    def _coefficients(self) -> NDArray[np.float64]:
        """c_0, ..., c_{T-1}: the first column of the square root."""
        return square_root_series(self.steps)

    @cached_property
    def _squares(self) -> NDArray[np.float64]:
        """Sums of squares of the first 1, ..., T coefficients."""
        return np.cumsum(self._coefficients**2)

    @property
    def mechanism(self) -> mechanisms.Gaussian:
        """The longest column of the square root, which is the first, as one mechanism; rounded up."""
        # each coefficient is off by at most two units in the last place, its square by five
        square = fsum(self._coefficients**2) * (1 + 8 * 2.0**-53)
        return mechanisms.Gaussian(sigma=self.sigma, sensitivity=_root_above(square))

    def standard_error(self, step: int) -> float:
        """Sigma times the length of a row of the square root."""
        _check.within(1, self.steps, step=step)
        return self.sigma * sqrt(self._squares[step - 1])

    def errors(self, noise: np.random.Generator) -> Iterator[float]:
        """Each is a sum over all draws so far, which are stored."""
        draws = np.zeros(self.steps)
        for step in range(self.steps):
            draws[step] = noise.normal(0.0, self.sigma)
            yield float(draws[: step + 1] @ self._coefficients[step::-1])


def rounded(value: float, sigma: float) -> float:
    """A noisy number, rounded to a multiple of about a millionth of the noise's standard deviation sigma.

    The last digits of a floating-point sum may reveal the exact value that noise was added to. Rounding removes them,
    and is post-processing.
    """
    grid = 2.0 ** (floor(log2(sigma)) - 20)
    return round(value / grid) * grid


def _root_above(square: float) -> float:
    """A float whose square, in exact arithmetic, is not below the number."""
    root = sqrt(square)
    while Fraction(root) ** 2 < Fraction(square):
        root = float(np.nextafter(root, np.inf))
    return root
