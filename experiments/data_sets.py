"""Where the public data sets are, and how their images are read."""

import gzip
import os
from pathlib import Path
from typing import Any

import numpy as np

from almoner.errors import DataError


def folder(name: str, given: Path | None = None) -> Path:
    """The folder of a data set: in the folder that is given, in ALMONER_DATA, or in shared/data beside the project."""
    place = (given or Path(os.environ.get("ALMONER_DATA", Path(__file__).parents[2] / "shared" / "data"))) / name
    if not place.is_dir():
        raise DataError(f"{place} does not exist; set ALMONER_DATA, or give --data")
    return place


def digits(place: Path, part: str) -> tuple[Any, Any]:
    """(n, 28, 28) uint8 pixels and (n,) labels of MNIST or Fashion-MNIST, from their folder; part: train or t10k."""

    def read(kind: str, offset: int) -> Any:
        with gzip.open(place / f"{part}-{kind}-ubyte.gz") as stream:
            return np.frombuffer(stream.read(), np.uint8, offset=offset)

    return read("images-idx3", 16).reshape(-1, 28, 28), read("labels-idx1", 8).astype(np.int64)


def cifar10(part: str, given: Path | None = None) -> tuple[Any, Any]:
    """(n, 32, 32, 3) uint8 pixels and (n,) labels of CIFAR-10; part: train or test."""
    with np.load(folder("cifar10", given) / "cifar10.npz") as arrays:
        return arrays[f"{part}_x"], arrays[f"{part}_y"].astype(np.int64)
