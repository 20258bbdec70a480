"""Two classification tasks on real, public data, for demonstrations: UCI Adult and handwritten digits.

Needs scikit-learn (extra ``sklearn``).
"""

import os
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import ArrayLike, NDArray

from almoner import _extras
from almoner.training import tables
from almoner.training.tables import Schema

with _extras.need("sklearn", extra="sklearn"):
    from sklearn import datasets, linear_model

__all__ = ["Example", "adult", "digits"]

ADULT_SCHEMA = Path(__file__).parent / "adult.toml"


@dataclass(frozen=True, slots=True, eq=False)
class Example:
    """A classification task."""

    name: str
    classes: int
    """The labels are 0 to classes - 1."""
    train: tuple[ArrayLike, NDArray[np.int64]]
    """Features and labels to learn from."""
    test: tuple[ArrayLike, NDArray[np.int64]]
    """Features and labels to judge by."""

    def accuracy_without_privacy(self) -> float:
        """The test accuracy, in [0, 1], of scikit-learn's logistic regression."""
        return float(linear_model.LogisticRegression(C=10.0, max_iter=5000).fit(*self.train).score(*self.test))


def adult(folder: Path | None = None) -> Example | None:
    """UCI Adult: does a person earn more than 50,000 dollars a year? None without the files adult.data and adult.test.

    They are looked for in the folder, or in ALMONER_DATA or ../shared/data.
    """
    root = Path(os.environ.get("ALMONER_DATA", "../shared/data"))
    places = [folder] if folder else [root, root / "adult"]
    files = ("adult.data", "adult.test")
    folder = next((each for each in places if all((each / file).is_file() for file in files)), None)
    if folder is None:
        return None
    schema = Schema.read(ADULT_SCHEMA)
    parts = [tables.read(folder / f"adult.{part}", schema, skip_rows=part == "test") for part in ("data", "test")]
    train, test = ((tables.encode(part, schema), tables.labels(part, schema)) for part in parts)
    return Example("UCI Adult (census income)", 2, train, test)


def digits() -> Example:
    """Handwritten digits that scikit-learn brings along: 8 x 8 pixels from 0 to 16; every fourth is for the test."""
    x, y = datasets.load_digits(return_X_y=True)
    x, in_test = x / 64.0, np.arange(len(y)) % 4 == 3
    train, test = (x[~in_test], y[~in_test]), (x[in_test], y[in_test])
    return Example("handwritten digits (scikit-learn)", 10, train, test)
