"""Check what is given to an estimator: records, labels and whose each record is."""

import logging
from collections.abc import Sequence
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.utils.validation import validate_data

from almoner.errors import ArgumentError, DataError

__all__ = ["labels_of", "numbers_of", "validated"]

LOG = logging.getLogger("almoner.training")

_COLUMNS = 100
"""A table as people have it has no more columns than this; what has more was made by a program, such as features."""


def validated(model: Any, X: Any, *y: Any, reset: bool = True, least_rows: int = 1) -> Any:
    """scikit-learn's checks, without the two of its messages that quote records; tells once that nothing is scaled."""
    flat = isinstance(X, list | tuple) and bool(X) and not hasattr(X[0], "__len__")
    if flat or (not hasattr(X, "tocsr") and len(getattr(X, "shape", ())) == 1):
        raise ArgumentError("X: Expected 2D array, got 1D array instead. Reshape your data: a row for each record")
    try:
        valid = validate_data(
            model, X, *y, accept_sparse="csr", dtype=np.float64, reset=reset, ensure_min_samples=least_rows
        )
        if reset and not hasattr(X, "tocsr") and model.n_features_in_ <= _COLUMNS:
            _tell_of_scales()
        return valid
    except ValueError as error:
        if "could not convert" not in str(error):
            raise
    raise DataError("X must hold numbers: make categories columns of 0 and 1, from a public list of them")


@cache
def _tell_of_scales() -> None:
    """Tell, once in a process, what columns of other sizes come to.

    Public: it depends on the number of columns alone. That rows are long, or were clipped, would be told of people.
    """
    LOG.warning(
        "LogisticRegression takes X as it is, whatever it holds: of columns as people have them (an age, an income) "
        "nearly all is clipped, and the model can be no better than chance. Scale them by public bounds, low and high "
        "of each column: X = (2 * (X - low) / (high - low) - 1) / X.shape[1] ** 0.5 gives rows of norm 1 at most. "
        "It is said once, of scaled columns too"
    )


def labels_of(y: ArrayLike, declared: Sequence[Any] | NDArray[Any] | None) -> tuple[NDArray[Any], NDArray[np.intp]]:
    """The classes, which are those of the rows where none are declared, and the number of each row's class."""
    classes = np.unique(np.asarray(y if declared is None else declared))
    if len(classes) < 2:
        raise ArgumentError(f"classes must name at least two labels, not {len(classes)} class")
    if declared is not None and len(classes) != len(declared):
        raise ArgumentError("classes must name each label once")
    codes = np.minimum(np.searchsorted(classes, y), len(classes) - 1)
    if not np.array_equal(classes[codes], y):
        raise DataError(f"y must hold none but the {len(classes)} labels that classes names")
    return classes, codes


def numbers_of(groups: NDArray[Any], rows: int) -> NDArray[np.intp]:
    """The number of the person to whom each row belongs; a row of nobody could not be charged to anybody."""
    if len(groups) != rows:
        raise ArgumentError("groups must have one entry for each row of X")
    if any(owner is None or owner != owner for owner in groups.tolist()):
        raise DataError("groups must say of every row whose it is: None and NaN are nobody")
    try:
        return np.unique(groups, return_inverse=True)[1]
    except TypeError as mixed:
        raise ArgumentError("groups must be all of one kind: all numbers, or all text") from mixed
