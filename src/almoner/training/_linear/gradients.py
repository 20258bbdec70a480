"""Each person's gradient of the logistic or the softmax loss of a linear model, dense or sparse.

Names and symbols
    x             (rows, features) the records; private
    y             (rows,) class numbers, 0 .. classes - 1; private
    people        (rows,) the number of the person to whom each row belongs, 0 .. n - 1; private

A person's gradient is the sum over that person's rows; for one row it is an outer product, and its norm the product
of two norms, so nothing of size n times features is ever built.
"""

from collections.abc import Sequence
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from scipy.special import expit, softmax

__all__ = ["LogisticGradients", "Matrix", "probabilities", "scores"]

Array = NDArray[np.float64]
Matrix: TypeAlias = "Array | sparse.csr_matrix"

CHUNK = 2**22
"""At most this many float64 of per-person gradients are held at once (32 MiB)."""

CANCELLED = 2.0**-24
"""Rows of one person may cancel: the norm is at least this share of what it would be if they did not. In the sum over
all people they are then not so large that the others' rows are rounded away."""


class LogisticGradients:
    """Per-person gradients of the logistic loss (two classes, one column) or the softmax loss (one column a class).

    Args:
        x: (rows, features) float64 array or CSR matrix, private.
        y: (rows,) integers, private.
        classes: public. Number of classes; for two, the parameters have one column, as in scikit-learn.
        intercept: public. Whether the parameters end with a row that multiplies a constant 1.
        people: (rows,) integers, private; None where every row is a person.
    """

    def __init__(
        self,
        x: Matrix,
        y: NDArray[np.int64] | Sequence[int],
        classes: int,
        *,
        intercept: bool,
        people: NDArray[np.int64] | Sequence[int] | None = None,
    ) -> None:
        records: Any = x
        if sparse.issparse(x) and not records.has_canonical_format:
            records = x.copy()
            records.sum_duplicates()  # the norm of a row needs each feature once
        self._y = np.asarray(y)
        self._columns = 1 if classes == 2 else classes
        self._intercept = intercept
        self._lengths = np.hypot(_lengths(records), float(intercept))
        self._broken = ~np.isfinite(self._lengths)
        self._x = _without(records, self._broken) if self._broken.any() else records
        self._people = None if people is None else np.asarray(people)
        if self._people is not None:
            self._rows_of = np.argsort(self._people, kind="stable")
            self._starts = np.concatenate([[0], np.cumsum(np.bincount(self._people))])
        self._residuals: Array = np.zeros((len(self._y), self._columns))

    @property
    def start(self) -> Array:
        """Parameters of zero: (features, or one more with an intercept; columns), public."""
        return np.zeros((self._x.shape[1] + self._intercept, self._columns))

    @property
    def people(self) -> int:
        """The number of people; private."""
        return len(self._y) if self._people is None else len(self._starts) - 1

    def norms(self, parameters: Array) -> Array:
        """L2 norms (n,) of each person's gradient, private, at these parameters, which become the current ones."""
        logits = scores(self._x, parameters, intercept=self._intercept)
        if self._columns == 1:
            self._residuals = expit(logits) - self._y[:, None]
        else:
            self._residuals = softmax(logits, axis=1)
            self._residuals[np.arange(len(self._y)), self._y] -= 1.0
        if self._people is None:
            return np.asarray(_lengths(self._residuals) * self._lengths)
        return self._grouped_norms()

    def weighted_sum(self, weights: Array) -> Array:
        """The sum over people of weight times gradient, private."""
        weights = weights if self._people is None else weights[self._people]
        residuals = np.where(weights[:, None] > 0, self._residuals * weights[:, None], 0.0)
        total = np.asarray(self._x.T @ residuals)
        return np.asarray(np.vstack([total, residuals.sum(axis=0)])) if self._intercept else total

    def _grouped_norms(self) -> Array:
        """Norms of sums over each person's rows: people times features, a chunk of people at a time."""
        n, rows = self.people, len(self._y)
        size = max(1, CHUNK // max(1, self._x.shape[1]))
        norms = np.zeros(n)
        for column in range(self._columns):
            values = self._residuals[self._rows_of, column]
            gather = sparse.csr_matrix((values, self._rows_of, self._starts), shape=(n, rows))
            if self._intercept:
                norms = np.hypot(norms, np.asarray(gather.sum(axis=1)).ravel())
            for low in range(0, n, size):
                part = slice(low, low + size)
                norms[part] = np.hypot(norms[part], _lengths(gather[part] @ self._x))
        each = _lengths(self._residuals) * np.where(self._broken, 0.0, self._lengths)
        largest = np.bincount(np.asarray(self._people), each, minlength=n)  # the norms if no rows cancelled
        norms = np.asarray(np.hypot(norms, CANCELLED * largest))
        norms[np.asarray(self._people)[self._broken]] = np.nan  # a row that is not finite: that person is out
        return norms


def _lengths(x: Any) -> Array:
    """L2 norms of rows; each row is scaled before it is squared, so that nothing underflows or overflows."""
    with np.errstate(invalid="ignore"):  # infinite over infinite: not a number, as it should be
        if not sparse.issparse(x):
            most = np.abs(x).max(axis=1, initial=0.0)
            if x.shape[1] == 1:
                return np.asarray(most)
            scaled = x / np.where(most > 0, most, 1.0)[:, None]
            return np.asarray(np.sqrt(np.einsum("ij,ij->i", scaled, scaled)) * most)
        most = np.zeros(x.shape[0])
        rows = np.repeat(np.arange(x.shape[0]), np.diff(x.indptr))
        np.maximum.at(most, rows, np.abs(x.data))
        squares = (x.data / np.where(most > 0, most, 1.0)[rows]) ** 2
        return np.asarray(np.sqrt(np.bincount(rows, squares, minlength=x.shape[0])) * most)


def _without(x: Matrix, rows: NDArray[np.bool_]) -> Matrix:
    """A copy with some rows set to zero."""
    copy: Any = x.copy()
    if sparse.issparse(x):
        copy.data[np.repeat(rows, np.diff(copy.indptr))] = 0.0
    else:
        copy[rows] = 0.0
    without: Matrix = copy
    return without


def probabilities(scores: Array) -> Array:
    """(rows, classes) from scores (rows, classes), or (rows, 1) for two classes."""
    if scores.shape[1] == 1:
        return np.hstack([expit(-scores), expit(scores)])
    return np.asarray(softmax(scores, axis=1))


def scores(x: Matrix, parameters: Array, *, intercept: bool) -> Array:
    """Records times parameters: (rows, columns)."""
    if not intercept:
        return np.asarray(x @ parameters)
    return np.asarray(np.asarray(x @ parameters[:-1]) + parameters[-1])
