"""Fixed batches, and kinds of factors: the square root of running sums, a banded inverse, and banded ones (BandMF).

Names and symbols
    A, C, b       workload and factor, (T, T); b is the band: entries more than b - 1 below the diagonal are 0
    f             |A C^-1|^2, the noise of all iterates together; minimised over C with columns of length 1
    diagonals     (b, T): diagonal d of C, column by column; 0 where the column has ended
    c, r          first columns of C and of its inverse; for the square root, series of (1 - x)^(-1/2), (1 - x)^(1/2)
    u             2^-53, the rounding of one operation

Source: Choquette-Choo et al. (2023), https://arxiv.org/abs/2306.08153, section 4; theory 5.11;
docs/proofs/correlated-noise.md
"""

from abc import abstractmethod
from collections.abc import Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property, lru_cache, partial
from hashlib import blake2b
from typing import Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import solve_banded
from scipy.optimize import minimize

from almoner import _check
from almoner.errors import ArgumentError
from almoner.training.correlated._factor import Array, Draw, Factor, Window, Workload

MOST_STEPS = 4096
ITERATIONS = 300
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

    def __init__(self, steps: int, band: int) -> None:
        self.steps, self.vectors = steps, min(band, steps)
        self._series = square_root_series(self.vectors)
        self._inverse_column = np.concatenate([[1.0], -self._series[1:] / (2 * np.arange(1, self.vectors) - 1)])

    @cached_property
    @abstractmethod
    def first_column(self) -> Array:
        """(T,) entries that are at least those of the first column of C, which fall and are >= 0."""

    def column(self, place: int) -> Array:
        return self.first_column[: self.steps - place]

    def sensitivity(self, *, separation: int, participations: int) -> float:
        """As in ``Factor``: exact but for rounding, because the earliest and densest pattern moves the rows the most.

        Source: docs/proofs/correlated-noise.md; Kalinin & Lampert (2024), https://arxiv.org/abs/2405.13763, Thm 2
        """
        _check.whole(1, separation=separation, participations=participations)
        return self.sensitivity_at(range(0, self.steps, separation)[:participations])


class SquareRootFactor(Toeplitz):
    """The square root of running sums: C C = A."""

    def __init__(self, steps: int) -> None:
        super().__init__(steps, steps)
        self.vectors = 1

    @cached_property
    def first_column(self) -> Array:
        # the entries of the inverse are off by 3 u of themselves, those of its inverse by less than 12 u
        return np.asarray((self._series + 16 * ROUNDING) * (1 + 4 * ROUNDING))

    def noise(self, draw: Draw) -> Iterator[Array]:
        for step in range(self.steps):
            yield sum((self._inverse_column[step - s] * draw(s) for s in range(step)), draw(step))


class BandedInverseFactor(Toeplitz):
    """The factor whose inverse has the first entries of that of the square root, and zeros below them."""

    @cached_property
    def first_column(self) -> Array:
        back = -self._inverse_column[:0:-1]  # > 0: so every entry is a sum of positive terms
        column = np.zeros(self.steps)
        column[0] = 1.0
        for k in range(1, self.steps):
            low = max(0, k - len(back))
            column[k] = column[low:k] @ back[len(back) - (k - low) :]
        # each entry adds the rounding of at most band + 2 operations to that of the entries before it
        bound = column * (1 + (self.vectors + 2) * np.arange(self.steps) * 2 * ROUNDING)
        return np.asarray(np.maximum.accumulate(bound[::-1])[::-1])  # falls, whatever rounding did

    def noise(self, draw: Draw) -> Iterator[Array]:
        past = Window(self.vectors - 1)
        for step in range(self.steps):
            fresh = draw(step)
            total = fresh + past.weighted(self._inverse_column[1:])
            past.add(fresh)
            yield total


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


class BandedFactor(Factor):
    """A factor by its diagonals (b, T), the first > 0; columns that are ``band`` steps apart do not overlap. Public."""

    def __init__(self, diagonals: Array) -> None:
        self.band, self.steps = diagonals.shape
        self.vectors = self.band
        self._diagonals = np.where(_inside(*diagonals.shape), np.asarray(diagonals, dtype=np.float64), 0.0)
        if not (np.isfinite(self._diagonals).all() and (self._diagonals[0] > 0).all()):
            raise ArgumentError("diagonals must be finite, the first of them above 0")

    def parameters(self) -> Array:
        return self._diagonals.copy()

    def column(self, place: int) -> Array:
        return self._diagonals[: min(self.band, self.steps - place), place]

    def noise(self, draw: Draw) -> Iterator[Array]:
        past, back = Window(self.band - 1), np.arange(1, self.band)
        for step in range(self.steps):
            entries = np.where(back <= step, self._diagonals[back, step - back], 0.0)  # of this row
            total = (draw(step) - past.weighted(entries)) / self._diagonals[0, step]
            past.add(total)
            yield total


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

    options = {"maxiter": ITERATIONS, "maxcor": 20, "ftol": 1e-12, "gtol": 1e-9}
    found = minimize(objective, start.ravel(), jac=True, method="L-BFGS-B", options=options)
    unit = _unit_columns(found.x.reshape(band, steps) * inside)
    return BandedFactor(unit * np.sign(unit[0]))  # a column may have any sign


def _noise_and_slope(diagonals: Array, moves: Array) -> tuple[float, Array]:
    """F and its derivative by each entry of the band."""
    band, steps = diagonals.shape
    solve = partial(solve_banded, (band - 1, 0), diagonals, check_finite=False)
    inverse = solve(np.eye(steps))  # scipy's form for lower bands is the same: diagonals by columns
    product = moves @ inverse  # A C^-1
    turned = np.ascontiguousarray(product.T)
    twice = np.ascontiguousarray(solve(turned))  # C^-1 (A C^-1)', whose transpose is A C^-1 C^-T
    slope = np.zeros((band, steps))
    for d in range(band):
        slope[d, : steps - d] = -2 * np.einsum("jk,jk->j", turned[d:], twice[: steps - d])
    return float((product**2).sum()), slope


def _unit_columns(diagonals: Array) -> Array:
    return np.asarray(diagonals / np.sqrt((diagonals**2).sum(axis=0)))


def _inside(band: int, steps: int) -> Array:
    """(band, steps) 1 where the entry lies in the matrix, else 0."""
    return np.where(np.arange(band)[:, None] + np.arange(steps)[None, :] < steps, 1.0, 0.0)


@dataclass(frozen=True, slots=True)
class FixedBatches:
    """Batches by each person's own id or records: adding or removing a person moves no other person. Public.

    With m batches, batch j takes part in steps j, j + m, j + 2 m, ...: each person once in m steps, m steps apart. How
    many people are in a batch varies and is private; sums are divided by a fixed public number.

    Args:
        size: >= 1. How many people are expected in a batch.
        order: "hash": a batch is the keyed hash of a person's id, or of the person's own records.
        key: makes another division into batches; not secret: nothing in the guarantee is random but the noise.
        noise: in training, the factor of the noise, Banded, BandedInverse or PrefixSums; None: independent noise. Steps
            are those of single batches, and the noise multiplier is that of the noise before it is correlated.
        pace, spend_remainder: in training, as for ``training.FullBatch``.

    Guarantee: a person's batch is a function of that person's own id or records and of public numbers.
    Source: theory 5.2, 5.11
    """

    size: int
    order: Literal["hash"] = "hash"
    key: str = "fixed batches"
    noise: Banded | BandedInverse | PrefixSums | None = field(default=None, kw_only=True)
    pace: float = field(default=1.0, kw_only=True)
    spend_remainder: bool = field(default=True, kw_only=True)

    extra_steps: ClassVar[int] = 0
    rate: ClassVar[None] = None

    def described(self) -> dict[str, Any]:
        """The settings that a resumed run must share. Public."""
        return {"pace": self.pace, "spend_remainder": self.spend_remainder}

    def __post_init__(self) -> None:
        _check.within(0, 1, pace=self.pace)
        if self.noise is not None and not isinstance(self.noise, Banded | BandedInverse | PrefixSums):
            raise ArgumentError(f"noise={self.noise!r} must be Banded, BandedInverse or PrefixSums")
        _check.whole(1, size=self.size)
        _check.one_of(("hash",), order=self.order)
        _check.name(key=self.key)

    def count(self, people: float) -> int:
        """The number of batches for a public number of people; ArgumentError where one is larger than all together."""
        _check.positive(people=people)
        if self.size > people:
            raise ArgumentError(f"size={self.size!r} must be at most the public number of people, {people:g}")
        return max(1, round(people / self.size))

    def of_ids(self, ids: Iterable[Hashable], *, count: int) -> NDArray[np.int64]:
        """(n,) private: the batch of each person, from the person's id.

        Args:
            ids: (n,) private: whole numbers, strings or bytes that do not depend on who else is there. The number of a
                row in a list of those who are present does: it moves when another person is removed.
            count: public, >= 1. How many batches there are.
        """
        _check.whole(1, count=count)
        return np.array([self._hash(_as_bytes(each)) % count for each in ids], dtype=np.int64)

    def of_records(
        self, records: Sequence[NDArray[Any]], people: NDArray[np.int64] | None, *, count: int, n: int
    ) -> NDArray[np.int64]:
        """(n,) private: the batch of each person, from all of the person's records together, in any order.

        Records are arrays with the records on the first axis, private; ``people`` (records,) say whose each is, 0 to n
        - 1, private; None: each is a person. Someone without records is in batch 0 of so many.
        """
        _check.whole(1, count=count)
        rows = [np.ascontiguousarray(part).reshape(len(part), -1).view(np.uint8) for part in records]
        digests = np.array([self._hash(*parts) for parts in zip(*rows, strict=True)], dtype=np.uint64)
        if people is not None:
            totals = np.zeros(n, dtype=np.uint64)
            np.add.at(totals, people, digests)  # modulo 2^64
            digests = totals
        return (digests % np.uint64(count)).astype(np.int64)

    def _hash(self, *parts: Any) -> int:
        digest = blake2b(digest_size=8, key=blake2b(self.key.encode(), digest_size=32).digest())
        for part in parts:
            digest.update(part)
        return int.from_bytes(digest.digest(), "big")


def _as_bytes(value: Hashable) -> bytes:
    """A spelling that no other id has."""
    if isinstance(value, str):
        return b"text " + value.encode()
    if isinstance(value, bytes):
        return b"bytes " + value
    if isinstance(value, int | np.integer) and not isinstance(value, bool):
        return b"number " + str(int(value)).encode()
    raise ArgumentError("ids must be whole numbers, strings or bytes")
