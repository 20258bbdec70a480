"""Covariances and least squares, from one noisy matrix of second moments."""

from dataclasses import dataclass, field
from itertools import combinations_with_replacement, product
from math import inf, sqrt
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from almoner._check import told
from almoner.errors import ArgumentError
from almoner.queries._questions.field_types import Column, ColumnName, Columns
from almoner.queries._questions.intervals import Interval, NoiseBand, Whole, around
from almoner.queries._questions.noise import STEPS
from almoner.queries._questions.question import Question, Told
from almoner.queries._questions.row_contributions import AnyRow, Coordinate, CountRows, Entry, Product, over_what

Matrix = NDArray[np.float64]
_FIRM = 20  # a count is firm from so many margins on: products of two noises are small beside one of them


@dataclass(frozen=True, slots=True)
class _Moments(Question[Told]):
    bounds_hold: bool = field(default=False, kw_only=True)
    """A declaration: every entry is within its bounds; for ``truth_intervals``."""
    per: Literal["person", "row"] = field(default="row", kw_only=True)
    width_varies = True

    @property
    def bounded(self) -> tuple[Column, ...]:
        return tuple(getattr(self, "columns"))  # noqa: B009 - a field of each question, in its own place

    def row(self) -> tuple[Coordinate, ...]:
        """The count, the entries as differences from the middle in halves, and the products of each two of them."""
        middles = [(column, _middle(column), _half(column)) for column in self.bounded]
        entries = [Entry(*column, middle, half, per=self.per) for column, middle, half in middles]
        count = CountRows() if self.per == "row" else AnyRow()
        return count, *entries, *(Product(*pair) for pair in combinations_with_replacement(entries, 2))

    @property
    def _weights(self) -> str:
        return over_what("", self.per)

    def truth(self, whole: Whole) -> Any:
        """The intervals without a clip; only where a pace took nothing away."""
        return self.read(whole.parts, whole.noise)[1] if self.bounds_hold and whole.least == 1 else None

    def scales(self) -> dict[str, float]:
        full = STEPS / self.steps
        pairs = combinations_with_replacement(self.bounded, 2)
        products = {f"sum of {a[0]} times {b[0]}": full * _half(a) * _half(b) for a, b in pairs}
        sums = {f"sum of {each[0]} from the middle": full * _half(each) for each in self.bounded}
        return {"count": full} | sums | products

    def _matrix(self, parts: list[float]) -> Matrix:
        """The noisy second moments of (1, scaled entries), symmetric."""
        size = len(self.bounded) + 1
        matrix = np.empty((size, size))
        # the row's order is that of the upper triangle: the count and the entries are its first line
        matrix[np.triu_indices(size)] = parts
        return np.triu(matrix) + np.triu(matrix, 1).T


@dataclass(frozen=True, slots=True)
class Covariance(_Moments[list[list[float]] | None]):
    """The covariance matrix of columns, each entry clipped to its bounds: {column: (low, high)}.

    ``per="row"``: each row counts alike; a clip must be given. ``per="person"``: each person has one weight, which
    their rows in the group share equally.

    Rows in which one of the columns has no entry count nowhere. The answer is a list of lists in the order of the
    columns, and so are its intervals, each of 95 %; ``correlations`` reads correlations off it.
    """

    columns: Columns
    _about = "covariances of entries clipped to their bounds{0._weights}"

    def read(self, parts: list[float], noise: NoiseBand) -> tuple[Any, Any]:
        """The matrix, and how far noise may have moved each entry; None where there is no count."""
        moments, size = self._matrix(parts), len(self.bounded)
        halves = [_half(column) for column in self.bounded]
        values = [[0.0] * size for _ in halves]
        intervals: list[list[Interval]] = [[(0.0, 0.0)] * size for _ in halves]
        for i, j in product(range(size), repeat=2):
            scale, least = halves[i] * halves[j], 0.0 if i == j else -1.0
            value, (low, high) = _covariance(moments, i + 1, j + 1, noise)
            values[i][j] = min(1.0, max(least, value)) * scale
            intervals[i][j] = max(least, low) * scale, min(1.0, high) * scale
        return (values if moments[0, 0] > 0 else None), intervals

    def several(self) -> tuple[str, list[str]]:
        return "columns", [f"{a[0]}, {b[0]}" for a, b in product(self.bounded, repeat=2)]

    def correlations(self, value: list[list[float]] | None) -> list[list[float | None]] | None:
        """The correlation matrix that belongs to a value of an answer: what it says needs no more budget.

        None in place of an entry where a noisy variance is not positive; entries are within [-1, 1].
        """
        if value is None:
            return None
        spreads = [sqrt(row[place]) for place, row in enumerate(value)]
        return [
            [
                1.0 if i == j else None if not a * b else max(-1.0, min(1.0, value[i][j] / (a * b)))
                for j, b in enumerate(spreads)
            ]
            for i, a in enumerate(spreads)
        ]


@dataclass(frozen=True, slots=True)
class Regression(_Moments[list[float] | None]):
    """The least squares of a column on the others, each entry clipped to its bounds; ``per`` is as for ``Covariance``.

    The answer is a list: the intercept, and the coefficient of each other column in the order of ``columns``, in the
    units of the columns; its intervals are of 95 % each, for the noise on the matrix of second moments. None where the
    columns other than the target are too close to collinear for that noise.
    """

    target: ColumnName
    columns: Columns
    _about = "least squares of {0.target} on bounded entries{0._weights}"

    def _check_kind(self) -> None:
        names = [name for name, _, _ in self.bounded]
        if self.target not in names or len(names) < 2:
            raise ArgumentError(f"{told(target=self.target)} must be one of the columns, beside at least one other")

    def several(self) -> tuple[str, list[str]]:
        return "coefficient", ["intercept", *self.features]

    @property
    def features(self) -> list[str]:
        """The columns but the target, in the order of the coefficients."""
        return [name for name, _, _ in self.bounded if name != self.target]

    def read(self, parts: list[float], noise: NoiseBand) -> tuple[Any, Any]:
        moments, names = self._matrix(parts), [name for name, _, _ in self.bounded]
        target = 1 + names.index(self.target)
        others = [place for place in range(len(names) + 1) if place != target]
        left, right = moments[np.ix_(others, others)], moments[others, target]
        weakest = float(np.linalg.eigvalsh(left)[0])
        largest_noise = noise.standard_error * (2 * sqrt(len(others)) + 3)
        if weakest <= 2 * largest_noise:
            return None, [(-inf, inf)] * len(others)
        scaled: Matrix = np.linalg.solve(left, right).astype(np.float64)
        units = self._units(target)
        moved: Matrix = units @ _moves(left, scaled)
        # noise on the matrix itself: of second order, within this factor
        factor = noise.z(1) * noise.standard_error / (1 - largest_noise / weakest)
        margins = factor * np.sqrt((moved**2).sum(1))
        values = units @ scaled
        values[0] += _middle(self.bounded[target - 1])
        pairs = zip(values.tolist(), margins.tolist(), strict=True)
        return values.tolist(), [around(value, margin) for value, margin in pairs]

    def _units(self, target: int) -> Matrix:
        """(p, p): coefficients in the units of the columns from those of scaled entries, but for the middle."""
        column = self.bounded[target - 1]
        features = [each for each in self.bounded if each != column]
        units = np.diag([_half(column), *(_half(column) / _half(each) for each in features)])
        for place, each in enumerate(features, start=1):
            units[0, place] = -units[place, place] * _middle(each)
        return units


def _covariance(moments: Matrix, i: int, j: int, noise: NoiseBand) -> tuple[float, Interval]:
    count, first, second, both = (float(each) for each in (moments[0, 0], moments[0, i], moments[0, j], moments[i, j]))
    if count <= 0:
        return 0.0, (-1.0, 1.0)
    value = both / count - first * second / count**2
    margin = noise.margin(4)
    if count - margin <= 0:
        return value, (-1.0, 1.0)
    if count >= _FIRM * margin:
        moves = [1.0, -2 * first / count] if i == j else [1.0, -second / count, -first / count]
        moves.append(-both / count + 2 * first * second / count**2)
        return value, around(value, noise.margin(1) * sqrt(sum(move * move for move in moves)) / count)
    return value, _range_of_covariance(count, first, second, both, margin)


def _range_of_covariance(count: float, first: float, second: float, both: float, margin: float) -> Interval:
    """The least and the largest covariance that sums within a margin of these give."""
    # with t = 1/count: both t - first second t^2, monotone in both, linear in each sum, a parabola in t
    low_t, high_t = 1 / (count + margin), 1 / (count - margin)
    corners = []
    for a, b, q in product(around(first, margin), around(second, margin), around(both, margin)):
        peak = q / (2 * a * b) if a * b else inf
        corners += [q * t - a * b * t * t for t in (low_t, high_t, min(max(peak, low_t), high_t))]
    return min(corners), max(corners)


def _moves(left: Matrix, scaled: Matrix) -> Matrix:
    """(p, noises): how far a coefficient moves with each noisy number of the normal equations, to first order."""
    inverse = np.linalg.inv(left)
    size = len(scaled)
    columns = [inverse[:, i] for i in range(size)]  # of the right side
    columns += [-inverse[:, i] * scaled[i] for i in range(size)]
    for i in range(size):
        columns += [-(inverse[:, i] * scaled[j] + inverse[:, j] * scaled[i]) for j in range(i + 1, size)]
    return np.stack(columns, axis=1)


def _half(column: Column) -> float:
    return column[2] / 2 - column[1] / 2


def _middle(column: Column) -> float:
    return column[1] / 2 + column[2] / 2
