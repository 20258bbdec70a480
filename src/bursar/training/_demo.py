"""The demonstration: real data without privacy, with private gradient descent, and with a budget for every person."""

import os
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from bursar.training._card import Card
from bursar.training._logistic import tables
from bursar.training._logistic.schema import Schema
from bursar.training._private_report import HolderReport

__all__ = ["Demo", "Line", "adult_folder", "run"]

ADULT_SCHEMA = Path(__file__).parent / "adult.toml"

ADULT = {"max_grad_norm": 0.7, "learning_rate": 48.0, "steps": 400, "extra_steps": 100}
DIGITS = {"max_grad_norm": 1.5, "learning_rate": 4.0, "steps": 50, "extra_steps": 25}
"""Settings, tuned on splits of the training data; for Adult see experiments/feldman_zrnic_2021."""


@dataclass(frozen=True, slots=True)
class Line:
    """One way to train, and how well it did on the test data, in percent."""

    method: str
    epsilon: float | None
    """What one run promises; None: nothing."""
    accuracy: float
    spread: float
    """Standard deviation over the runs."""
    runs: int
    seconds: float
    """Of one run."""


@dataclass(frozen=True, slots=True, eq=False)
class Demo:
    """What the demonstration found."""

    data: str
    people: int
    delta: float
    lines: list[Line]
    card: Card
    """Of the last run with individual accounts; public."""
    holder_report: HolderReport
    """Of that run. PRIVATE: for the data holder."""

    def to_dict(self) -> dict[str, Any]:
        """Everything public."""
        lines = [asdict(line) for line in self.lines]
        return {
            "data": self.data,
            "people": self.people,
            "delta": self.delta,
            "lines": lines,
            "card": self.card.to_dict(),
        }


def adult_folder(given: Path | None = None) -> Path | None:
    """Where UCI Adult is: as given, else under BURSAR_DATA, else under ../shared/data; None where it is not."""
    root = Path(os.environ.get("BURSAR_DATA", "../shared/data"))
    for folder in [given] if given else [root, root / "adult"]:
        if (folder / "adult.data").is_file() and (folder / "adult.test").is_file():
            return folder
    return None


def run(
    folder: Path | None = None,
    *,
    epsilon: float = 1.0,
    delta: float = 1e-5,
    runs: int = 5,
    told: Callable[[str, int, int], None] = lambda method, done, of: None,
) -> Demo:
    """Train in the three ways.

    Args:
        folder: where adult.data and adult.test are; None: handwritten digits, which scikit-learn brings along.
        epsilon, delta: what each private run promises. Each run is a release of its own.
        runs: how many models of each private kind are trained, with fresh noise.
        told: called before each model with the method, how many models are done, and of how many.
    """
    from bursar.training import LogisticRegression  # isort: skip  # asks for scikit-learn if that is missing
    from sklearn.linear_model import LogisticRegression as NoPrivacy

    name, classes, settings, learn, judge = _digits() if folder is None else _adult(folder)
    people, models = len(learn[1]), 2 * runs + 1
    told("no privacy", 0, models)
    start = time.perf_counter()
    accuracy = 100 * NoPrivacy(C=10.0, max_iter=5000).fit(*learn).score(*judge)
    lines = [Line("no privacy", None, accuracy, 0.0, 1, time.perf_counter() - start)]
    for individual in (False, True):
        method = "private, a budget for every person" if individual else "private gradient descent"
        found, start = [], time.perf_counter()
        for number in range(runs):
            told(method, 1 + individual * runs + number, models)
            model = LogisticRegression(
                epsilon=epsilon, delta=delta, individual=individual, classes=range(classes), n_people=people, **settings
            )
            found.append(100 * model.fit(*learn).score(*judge))
        seconds = (time.perf_counter() - start) / runs
        spread = float(np.std(found, ddof=1)) if runs > 1 else 0.0
        lines.append(Line(method, epsilon, float(np.mean(found)), spread, runs, seconds))
    return Demo(name, people, delta, lines, model.card_, model.holder_report_)


def _adult(folder: Path) -> tuple[str, int, dict[str, Any], Any, Any]:
    """UCI Adult: does somebody earn more than 50,000 dollars a year?"""
    schema = Schema.read(ADULT_SCHEMA)
    parts = [tables.read(folder / f"adult.{part}", schema, skip_rows=part == "test") for part in ("data", "test")]
    learn, judge = ((tables.encode(part, schema), tables.labels(part, schema)) for part in parts)
    return "UCI Adult (census income)", 2, {**ADULT, "fit_intercept": False}, learn, judge


def _digits() -> tuple[str, int, dict[str, Any], Any, Any]:
    """Handwritten digits, 8 x 8 points of ink from 0 to 16 by their making; every fourth is kept to judge by."""
    from sklearn.datasets import load_digits

    x, y = load_digits(return_X_y=True)
    x = x / 64.0
    kept = np.arange(len(y)) % 4 == 3
    return "handwritten digits (scikit-learn)", 10, DIGITS, (x[~kept], y[~kept]), (x[kept], y[kept])
