"""A factor C of correlated noise: its columns, what they cost a person, and the noise that is made from it.

Names and symbols
    T, C          number of steps; the factor, (T, T), lower triangular and invertible; public
    place         the number of a step, from 0, in which a person takes part
    X             C'C, the inner products of columns
    own           squared length of the place's column, rounded up; public
    cross         (m,) sum over earlier places r of the person of |X_rs| n_r, rounded up; private
    n             (m,) the norm of the person's clipped gradient; private
    price         the norm that an account is charged for: price^2 = own n^2 + 2 cross n

Released in step t is row t of C G + z, with G the sums and z independent noise; the optimizer uses C^-1 (C G + z) =
G + C^-1 z. A person of norms n_s at places s moves all rows together by at most the root of sum |X_rs| n_r n_s.

A contribution commits a person to a price: its whole column, with overlaps with the person's own. After every place the
squared prices add up to sum |X_rs| n_r n_s over the places so far: at least what all rows, also the later ones, tell of
the person if nothing more is contributed. So tails are paid in advance.

Source: theory 5.11; docs/proofs/correlated-noise.md
"""

import secrets
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from math import sqrt

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import toeplitz

from almoner import _audit_hook, _check
from almoner.errors import ArgumentError

KEYS = 2**128
SLACK = 2.0**-50

Array = NDArray[np.float64]
Draw = Callable[[int], Array]  # the independent noise z of a step: called with the step, always with the same result


def above(value: float, terms: int = 1) -> float:
    """Above what a number >= 0 stands for, if it was computed from so many terms >= 0 (each a product, say)."""
    return value * (1 + (terms + 8) * 2.0**-52)


@dataclass(frozen=True, slots=True)
class Workload:
    """Gradient descent with momentum and a schedule of learning rates. Public.

    It is what a factor is made good for, and nothing that the guarantee depends on: training may differ from it.

    Args:
        momentum: in [0, 1). The buffer is momentum times itself plus the gradient.
        rates: the learning rate of each step, each > 0; None: 1 in every step.
    """

    momentum: float = 0.0
    rates: tuple[float, ...] | None = None

    def __post_init__(self) -> None:
        _check.within(0, 1, momentum=self.momentum)
        if self.momentum == 1:
            raise ArgumentError("momentum=1 must be below 1")
        if self.rates is not None:
            object.__setattr__(self, "rates", tuple(self.rates))
            for rate in self.rates:
                _check.positive(rates=rate)

    def matrix(self, steps: int) -> Array:
        """(steps, steps) A, lower triangular: entry (t, s) is how far a unit in the sum of step s moves iterate t.

        Raises:
            ArgumentError: there are fewer rates than steps.
        """
        _check.whole(1, steps=steps)
        if self.rates is not None and len(self.rates) < steps:
            raise ArgumentError(f"rates: {len(self.rates)} learning rates must be at least steps={steps!r}")
        rates = np.ones(steps) if self.rates is None else np.asarray(self.rates[:steps], dtype=np.float64)
        powers = np.cumprod([1.0] + [self.momentum] * (steps - 1))
        return np.cumsum(rates[:, None] * toeplitz(powers, np.zeros(steps)), axis=0)


class Factor(ABC):
    """A factor C for a number of steps. Public."""

    steps: int
    vectors: int  # the number of vectors, each as long as the parameters, that ``noise`` keeps

    @abstractmethod
    def column(self, place: int) -> Array:
        """(k,) the first entries of a column of C, from the diagonal down; those below are 0."""

    def columns(self, places: Sequence[int]) -> Array:
        """(T, len(places)) the columns of C at these places.

        Guarantee: C is exactly as given, or every entry of C is >= 0 and at most the entry given.
        """
        if len(set(places)) < len(places) or any(not 0 <= place < self.steps for place in places):
            raise ArgumentError(f"places={list(places)!r} must be different steps, from 0 to {self.steps - 1}")
        found = np.zeros((self.steps, len(places)))
        for number, place in enumerate(places):
            entries = self.column(place)
            found[place : place + len(entries), number] = entries
        return found

    @abstractmethod
    def noise(self, draw: Draw) -> Iterator[Array]:
        """Rows 0, 1, ... of C^-1 z, in order, where ``draw(s)`` is z_s."""

    def parameters(self) -> Array:
        """The numbers that noise is made with: factors of a kind that have the same ones are the same."""
        return self.columns([0])

    def inner_products(self, places: Sequence[int]) -> Array:
        """(k, k) for k places, bounds on how much the columns at two places overlap.

        Guarantee: entry (r, s) is at least the absolute value of the inner product of the two columns.
        Source: Higham (2002), section 3.1, on the rounding of inner products.
        """
        columns = self.columns(places)
        lengths = np.abs(columns).T @ np.abs(columns)
        products: Array = np.abs(columns.T @ columns) + lengths * ((self.steps + 8) * 2.0**-52)
        return np.where(lengths > 0, products, 0.0)

    def column_norm(self, place: int) -> float:
        """The length of a column, rounded up: what a contribution of norm 1 at this place costs, in all rows."""
        return above(sqrt(float(self.inner_products([place])[0, 0])))

    def sensitivity_at(self, places: Sequence[int]) -> float:
        """The distance that a person of norm 1 at each of these places moves all rows together.

        Guarantee: at least the root of the sum of squared row differences, however gradients are chosen from outputs.
        Source: docs/proofs/correlated-noise.md; Choquette-Choo et al. (2022), https://arxiv.org/abs/2211.06530
        """
        if not places:
            return 0.0
        return above(sqrt(above(float(self.inner_products(places).sum()), len(places) ** 2)))

    def sensitivity(self, *, separation: int, participations: int) -> float:
        """The most that a person of norm 1 moves all rows together: at most so often, at places at least so far apart.

        It is exact but for rounding where columns at that distance do not overlap, and for Toeplitz factors that fall;
        else a bound: each row's heaviest pattern of places, then the heaviest pattern of rows.

        Guarantee: at least ``sensitivity_at`` of every such pattern, also where a person chooses places from outputs.
        Source: docs/proofs/correlated-noise.md; Choquette-Choo et al. (2023), https://arxiv.org/abs/2306.08153
        """
        _check.whole(1, separation=separation, participations=participations)
        products, steps = self._all_products, np.arange(self.steps)
        participations = min(participations, -(-self.steps // separation))
        apart = np.where(np.abs(np.subtract.outer(steps, steps)) >= separation, products, 0.0)
        rows = np.diag(products) + heaviest_places(apart, separation, participations - 1)
        largest = float(heaviest_places(rows[None, :], separation, participations)[0])
        return above(sqrt(above(largest, self.steps)))

    @cached_property
    def _all_products(self) -> Array:
        return self.inner_products(range(self.steps))

    @cached_property
    def inverse(self) -> Array:
        """(T, T) C^-1, as the noise is made with it."""
        unit = np.eye(self.steps)
        return np.array(list(self.noise(lambda step: unit[step])))

    def error(self, workload: Workload | None = None) -> float:
        """The root mean square, over the steps, of what noise adds to each number of an iterate, at sigma 1.

        Multiply by a sensitivity to compare at equal privacy. The workload is of the optimizer; None: running sums.
        """
        moves = (Workload() if workload is None else workload).matrix(self.steps)
        return float(np.linalg.norm(moves @ self.inverse)) / sqrt(self.steps)


def heaviest_places(weights: Array, separation: int, participations: int) -> Array:
    """(m,) for each row of weights (m, T), >= 0, the largest sum over at most so many places so far apart."""
    best = np.zeros((weights.shape[0], weights.shape[1] + 1))  # column t: of places below t
    for _ in range(participations):
        taken = weights.copy()  # a place, and the best of one place fewer among those far enough below it
        taken[:, separation:] += best[:, 1 : weights.shape[1] - separation + 1]
        best = np.concatenate([np.zeros((weights.shape[0], 1)), np.maximum.accumulate(taken, axis=1)], axis=1)
    return best[:, -1]


class Window:
    """So many vectors, of which each new one takes the place of the oldest; zeros where there was none yet."""

    def __init__(self, length: int) -> None:
        self._length, self._added = length, 0
        self._vectors: Array | None = None

    def add(self, vector: Array) -> None:
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


def price(own: float, cross: Array, norms: Array) -> Array:
    """(m,) private: what an account is charged for a contribution, in the unit of norms, rounded up; NaN stays NaN.

    Guarantee: its square is at least own n^2 + 2 cross n.
    Source: docs/proofs/correlated-noise.md
    """
    found: Array = np.sqrt(norms * (own * norms + 2 * cross)) * (1 + SLACK)
    return np.where((norms > 0) & ~(found > 0), np.inf, found)  # a product that vanished is no price


def largest_norm(own: float, cross: Array, allowance: Array) -> Array:
    """(m,) private: the largest contribution whose price is at most the allowance, rounded down."""
    square = allowance * allowance
    divisor = cross + np.sqrt(cross * cross + own * square)
    found: Array = np.divide(square, divisor, out=np.zeros_like(square), where=divisor > 0)
    return found * (1 - 8 * SLACK)


class Pattern:
    """The places of one batch, in order, and what the columns there overlap, for contributions up to a clip. Public."""

    def __init__(self, factor: Factor, places: Sequence[int], clip: float) -> None:
        self.places = tuple(places)
        self._products = factor.inner_products(self.places)
        self._clip = clip

    def own(self, turn: int) -> float:
        """The squared length of the column at the batch's place number ``turn``, rounded up."""
        return float(self._products[turn, turn])

    def cross(self, turn: int, past: Array) -> Array:
        """(m,) private: how past contributions, norms (m, turn), overlap with this place, rounded up."""
        if not turn or not self._products[turn, :turn].any():
            return np.zeros(past.shape[0])
        return (past @ self._products[turn, :turn]) * (1 + (turn + 4) * 2.0**-52)

    def most(self, turn: int) -> float:
        """The price of a contribution at the clip after contributions at the clip: the sensitivity of the step."""
        cross = self.cross(turn, np.full((1, turn), self._clip))
        return above(float(price(self.own(turn), cross, np.array([self._clip]))[0]), 32)

    def together(self) -> float:
        """The whole charge of a person who contributes the clip at every place, as one norm, rounded up."""
        return above(sqrt(sum(self.most(turn) ** 2 for turn in range(len(self.places)))), len(self.places) + 32)


class Noise:
    """The rows of C^-1 z for independent standard normal z of a key. Secret, as the key is: it takes the noise off.

    Guarantee: the noise of step t is row t of C^-1 z up to the rounding of double precision, with z from a generator
        that has used no part of its stream twice.
    Source: theory 5.11; Salmon et al. (2011) on Philox, a generator whose state is a counter
    """

    def __init__(self, factor: Factor, size: int, *, key: int | None = None) -> None:
        _check.whole(1, size=size)
        self.factor, self._size = factor, int(size)  # C. Public.
        self._keys: list[tuple[int, int | None]] = [(0, _checked(key))]
        self._rows: Iterator[Array] = factor.noise(self.draw)
        self.step = 0  # the number of steps whose noise was given

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
        """(size,) the correlated noise of the next step, at sigma 1; ArgumentError after the last one of the factor."""
        if self.step >= self.factor.steps:
            raise ArgumentError(f"steps={self.factor.steps!r} are all that the factor has noise for")
        row = next(self._rows)
        self.step += 1
        return row

    def normal(self, mean: float, sigma: float, size: int) -> Array:
        """(size,) the noise of the next step as a generator of normal numbers gives it. SECRET."""
        if size != self._size:
            raise ArgumentError(f"size={size!r} must be that of the noise, {self._size}")
        return mean + sigma * self.next()

    def part(self) -> _audit_hook.Part:
        """Which row of which factor comes next: public."""
        return _audit_hook.Part(self, "rows", factor=self.factor, step=self.step)

    def go_on(
        self, keys: Sequence[tuple[int, int | None]], step: int, *, key: int | None = None, afresh: bool = False
    ) -> None:
        """Be where another noise of the same factor and size was, by its keys and step, with a fresh key from there on.

        Rows before are made again, to the last bit. ``afresh``: begin a new mechanism with this step, of the columns
        and rows of C from it on: a step that may have been released and is taken again holds nothing of rows before.
        """
        before: list[tuple[int, int | None]] = [(0, None)] if afresh else [pair for pair in keys if pair[0] < step]
        self._keys = [*before, (step, _checked(key))]
        self._rows, self.step = self.factor.noise(self.draw), 0
        while self.step < step:
            self.next()


def _checked(key: int | None) -> int:
    key = secrets.randbits(128) if key is None else key
    if isinstance(key, bool) or not isinstance(key, int) or not 0 <= key < KEYS:
        raise ArgumentError("key must be a whole number in [0, 2^128)")  # not its value
    return key
