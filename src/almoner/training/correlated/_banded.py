"""Banded factors, made good for a workload by numerical optimisation (BandMF).

Names and symbols
    A, C, b       workload and factor, (T, T); b is the band: entries more than b - 1 below the diagonal are 0
    f             |A C^-1|^2, the noise of all iterates together; minimised over C with columns of length 1
    diagonals     (b, T): diagonal d of C, column by column; 0 where the column has ended

Source: Choquette-Choo et al. (2023), https://arxiv.org/abs/2306.08153, section 4; theory 5.11
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from scipy.linalg import solve_banded
from scipy.optimize import minimize

from almoner import _check
from almoner.errors import ArgumentError
from almoner.training.correlated._factor import Array, Draw, Factor
from almoner.training.correlated._toeplitz import square_root_series
from almoner.training.correlated._window import Window
from almoner.training.correlated._workload import Workload

__all__ = ["Banded", "BandedFactor"]

MOST_STEPS = 4096
ITERATIONS = 300


class BandedFactor(Factor):
    """A banded factor, given by its diagonals.

    Args:
        diagonals: (b, T), public: diagonal d of C, column by column. The first is > 0.
    """

    def __init__(self, diagonals: Array) -> None:
        self.steps = diagonals.shape[1]
        self._diagonals = np.where(_inside(*diagonals.shape), np.asarray(diagonals, dtype=np.float64), 0.0)
        if not (np.isfinite(self._diagonals).all() and (self._diagonals[0] > 0).all()):
            raise ArgumentError("diagonals must be finite, the first of them above 0")

    @property
    def band(self) -> int:
        """b: columns that are b steps apart do not overlap."""
        return len(self._diagonals)

    def parameters(self) -> Array:
        return self._diagonals.copy()

    def columns(self, places: Sequence[int]) -> Array:
        self._check_places(places)
        found = np.zeros((self.steps, len(places)))
        for column, place in enumerate(places):
            end = min(self.band, self.steps - place)
            found[place : place + end, column] = self._diagonals[:end, place]
        return found

    def noise(self, draw: Draw) -> Iterator[Array]:
        past, back = Window(self.band - 1), np.arange(1, self.band)
        for step in range(self.steps):
            entries = np.where(back <= step, self._diagonals[back, step - back], 0.0)  # of this row
            total = (draw(step) - past.weighted(entries)) / self._diagonals[0, step]
            past.add(total)
            yield total

    @property
    def vectors(self) -> int:
        return self.band


@dataclass(frozen=True, slots=True)
class Banded:
    """A banded factor with columns of length 1 and the least noise for a workload (BandMF). Public.

    Args:
        band: >= 1. Rows of the mechanism have so many entries; 1 is independent noise. Where people take part at
            places at least ``band`` apart, their places do not overlap, and each costs them by itself.
        workload: momentum and learning rates of the optimizer; None: running sums.

    The optimisation is deterministic, over (band, steps) numbers, and the result is kept; 1,000 steps take seconds to
    a minute. Where it stops early, noise is larger and the guarantee is the same.

    Source: Choquette-Choo et al. (2023), https://arxiv.org/abs/2306.08153; theory 5.11
    """

    band: int
    workload: Workload | None = None

    def __post_init__(self) -> None:
        _check.whole(1, band=self.band)
        if self.workload is not None and not isinstance(self.workload, Workload):
            raise ArgumentError(f"workload={self.workload!r} must be a Workload, or None for running sums")

    def factor(self, steps: int) -> Factor:
        """The factor for so many steps: at most 4,096, but for band 1. A band above the steps is one of as many."""
        _check.whole(1, steps=steps)
        if self.band == 1:
            return BandedFactor(np.ones((1, int(steps))))
        if steps > MOST_STEPS:
            raise ArgumentError(f"steps={steps!r} must be at most {MOST_STEPS:,} with Banded: use BandedInverse")
        return _optimised(min(self.band, steps), int(steps), Workload() if self.workload is None else self.workload)


@lru_cache(maxsize=16)
def _optimised(band: int, steps: int, workload: Workload) -> BandedFactor:
    """The factor of the least noise that the optimisation finds, from the square root of running sums, cut."""
    moves = workload.matrix(steps)
    start = np.repeat(square_root_series(band)[:, None], steps, axis=1)
    inside = _inside(band, steps)
    scale = _noise_and_slope(_unit_columns(start * inside), moves)[0]

    def objective(flat: Array) -> tuple[float, Array]:
        raw = flat.reshape(band, steps) * inside
        lengths = np.sqrt((raw**2).sum(axis=0))
        unit = raw / lengths
        noise, slope = _noise_and_slope(unit, moves)
        along = (slope * unit).sum(axis=0)  # the part of the slope that changes lengths alone
        return noise / scale, ((slope - along * unit) / lengths * inside / scale).ravel()

    found = minimize(
        objective,
        start.ravel(),
        jac=True,
        method="L-BFGS-B",
        options={"maxiter": ITERATIONS, "maxcor": 20, "ftol": 1e-12, "gtol": 1e-9},
    )
    unit = _unit_columns(found.x.reshape(band, steps) * inside)
    return BandedFactor(unit * np.sign(unit[0]))  # a column may have any sign


def _noise_and_slope(diagonals: Array, moves: Array) -> tuple[float, Array]:
    """F and its derivative by each entry of the band."""
    band, steps = diagonals.shape
    inverse = _solve(diagonals, np.eye(steps))  # scipy's form for lower bands is the same: diagonals by columns
    product = moves @ inverse  # A C^-1
    turned = np.ascontiguousarray(product.T)
    twice = np.ascontiguousarray(_solve(diagonals, turned))  # C^-1 (A C^-1)', whose transpose is A C^-1 C^-T
    slope = np.zeros((band, steps))
    for d in range(band):
        slope[d, : steps - d] = -2 * np.einsum("jk,jk->j", turned[d:], twice[: steps - d])
    return float((product**2).sum()), slope


def _solve(diagonals: Array, right: Array) -> Array:
    return np.asarray(solve_banded((diagonals.shape[0] - 1, 0), diagonals, right, check_finite=False))


def _unit_columns(diagonals: Array) -> Array:
    return np.asarray(diagonals / np.sqrt((diagonals**2).sum(axis=0)))


def _inside(band: int, steps: int) -> Array:
    """(band, steps) 1 where the entry lies in the matrix, else 0."""
    return np.where(np.arange(band)[:, None] + np.arange(steps)[None, :] < steps, 1.0, 0.0)
