"""Tables over different columns of one question, made to agree, with less noise: by generalised least squares.

Names and symbols
    S          a table: the columns that it has, of those grouped by; each column a has n_a keys
    T          an effect, columns of a table: what of its numbers is left if the mean along each of them is taken away
    n(S, T)    the product of n_a over the columns that S has and T has not

Source: docs/proofs/margins.md; effects are those of an analysis of variance, Scheffé (1959), chapter 4.
"""

from collections.abc import Sequence
from itertools import combinations
from math import prod, sqrt
from typing import Any

import numpy as np
from numpy.typing import NDArray

from almoner.errors import ArgumentError


def checked_sets(sets: Any) -> tuple[tuple[str, ...], ...]:
    listed = tuple(tuple(dict.fromkeys(each)) for each in sets)
    if isinstance(sets, str) or not listed or len(set(map(frozenset, listed))) < len(listed):
        raise ArgumentError("sets must be lists of columns of by=, each list once, as in [['ward', 'day'], ['ward']]")
    return listed


def places_of(sets: Sequence[Sequence[str]], columns: Sequence[str]) -> tuple[tuple[int, ...], ...]:
    """The tables by the places of their columns among those of ``by``."""
    if other := [*sorted({column for each in sets for column in each} ^ {*columns}), *columns[8:]]:
        raise ArgumentError(f"sets: {other[0]!r} must be a column of by=, of at most 8, and of one of the sets")
    return tuple(tuple(sorted(map(list(columns).index, each))) for each in sets)


def agreeing(
    parts: NDArray[np.float64], sets: Sequence[Sequence[int]], sizes: Sequence[int]
) -> tuple[NDArray[np.float64], list[float]]:
    """(The numbers that agree and are nearest to noisy ones, the share of its noise that is left on each).

    Args:
        parts: (cells of all tables, numbers of a cell), public; noise on all is independent and of one size.
        sets, sizes: the columns of each table, by place; the number of keys of each.

    Guarantee: linear in ``parts``, tables that agree stay as they are, and no other such rule has less noise.
    Source: docs/proofs/margins.md, Theorem 2.
    """
    shapes = [[sizes[a] if a in each else 1 for a in range(len(sizes))] for each in sets]
    ends = np.cumsum([prod(shape) for shape in shapes])[:-1]
    tables = [table.reshape(*shape, -1) for table, shape in zip(np.split(parts, ends), shapes, strict=True)]
    found = [np.zeros_like(table) for table in tables]
    squares = [0.0] * len(sets)
    for effect in {part for each in sets for size in range(len(each) + 1) for part in combinations(each, size)}:
        others = {place: set(each) - {*effect} for place, each in enumerate(sets) if {*effect} <= {*each}}
        cells = {place: prod(sizes[a] for a in each) for place, each in others.items()}
        sums = [tables[place].sum(axis=tuple(each), keepdims=True) / cells[place] for place, each in others.items()]
        weight, own = sum(1 / each for each in cells.values()), sum(sums)
        for a in effect:
            own = own - own.mean(axis=a, keepdims=True)
        for place, each in cells.items():
            found[place] += own / weight / each
            squares[place] += prod(1 - 1 / sizes[a] for a in effect) / weight / each**2
    left = [min(1.0, sqrt(square) * (1 + 1e-9)) for square in squares]  # rounded up
    shares = np.repeat(left, [prod(shape) for shape in shapes]).tolist()
    return np.concatenate([table.reshape(-1, parts.shape[1]) for table in found]), shares
