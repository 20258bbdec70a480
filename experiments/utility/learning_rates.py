"""The learning rate that LogisticRegression takes by itself, beside fixed ones.

    python experiments/utility/learning_rates.py           # everything on the page; resumes after a kill
    python experiments/utility/learning_rates.py --quick   # 300 people, few steps; nothing is written

Default settings (200 steps, a clip of 1, the mean of the last half), delta 1e-5. Four fifths of the training people
train, the others judge; nobody of a test file is touched. Three seeds of noise, the same for all rates. Each run is a
line of experiments/results/learning_rates.jsonl.
"""

import argparse
import sys
from collections.abc import Iterator
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np

sys.path += [str(Path(__file__).parents[1]), str(Path(__file__).parents[1] / "koskela_2023")]
import data_sets
import pages
from journal import record, recorded
from tables import Data, held_out, load, part

from almoner.training import Descent, LogisticRegression, demo_tables

PAGE = pages.DOCS / "learning-rates.md"

DELTA, SEEDS = 1e-5, 3
EPSILONS = (0.3, 1.0, 3.0)
RULE, MOMENTUM = "rule", "rule, momentum 0.8"
RATES = (0.5, 1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0)
FIXED = (4.0, 16.0)
"""Rates that have a column of their own on the page."""
WITHOUT = ", no intercept"
SETS = {
    "Adult": lambda folder: load("adult", folder),
    "Adult, 4,000 people": lambda folder: part(load("adult", folder), 4000),
    "Adult, 600 people": lambda folder: part(load("adult", folder), 600),
    "diabetes130": lambda folder: load("diabetes130", folder),
    "digits": lambda folder: digits(1.0),
    "digits, four times as bright": lambda folder: digits(4.0),
    "MNIST, pixels, 5,000 people": lambda folder: pixels(folder, 5000),
}
ROWS = [*SETS, *(name + WITHOUT for name in SETS if not name.startswith("digits"))]


def data_of(name: str, folder: Path | None) -> Data:
    """The people who train and those who judge."""
    return held_out(SETS[name.removesuffix(WITHOUT)](folder))


def digits(times: float) -> Data:
    """Handwritten digits of scikit-learn, with all features multiplied."""
    x, y = demo_tables.digits().train
    return Data(times * np.asarray(x), y, None, np.empty(0), np.empty(0), {}, {})


def pixels(folder: Path | None, count: int) -> Data:
    """The first images of MNIST, pixels from 0 to 1."""
    images, labels = data_sets.digits(data_sets.folder("mnist", folder), "train")
    return Data(images[:count].reshape(count, -1) / 255.0, labels[:count], None, np.empty(0), np.empty(0), {}, {})


def run(data: Data, rate: float | None, epsilon: float, seed: int, **settings: Any) -> dict[str, float]:
    """Train once: accuracy in percent on the people who judge, and the learning rate."""
    model = LogisticRegression(
        epsilon=epsilon,
        delta=DELTA,
        learning_rate=rate,
        classes=range(1 + int(data.y.max())),
        n_people=data.count,
        seed=seed,
        **settings,
    ).fit(data.x, data.y, groups=data.people)
    score = 100 * model.score(data.x_test, data.y_test)
    return {"learning_rate": round(float(model.learning_rate_), 3), "accuracy": round(score, 3)}


def norm(x: Any) -> float:
    """The median norm of a record."""
    squares = x.multiply(x) if hasattr(x, "multiply") else x**2
    return float(np.median(np.sqrt(np.asarray(squares.sum(axis=1)))))


def cells() -> Iterator[tuple[float, float | str, int]]:
    """Epsilon, rate and seed of every run on one data set."""
    yield from product(EPSILONS, (RULE, MOMENTUM, *RATES), range(SEEDS))


def do_missing(path: Path, folder: Path | None, only: list[str]) -> None:
    """Do the runs that are not recorded."""
    for name in only:
        done = {(row["epsilon"], row["rate"], row["seed"]) for row in recorded(path) if row["data"] == name}
        left = [cell for cell in cells() if cell not in done]
        if not left:
            continue
        data = data_of(name, folder)
        about = {"data": name, "people": data.count, "norm": round(norm(data.x), 2)}
        for epsilon, rate, seed in left:
            settings = {"descent": Descent(momentum=0.8)} if rate == MOMENTUM else {}
            intercept = not name.endswith(WITHOUT)
            given_rate = None if isinstance(rate, str) else rate
            found = run(data, given_rate, epsilon, seed, fit_intercept=intercept, **settings)
            record(path, {**about, "epsilon": epsilon, "rate": rate, "seed": seed, **found})
            print(name, epsilon, rate, seed, found["accuracy"], flush=True)


def table(runs: list[dict[str, Any]]) -> str:
    """The table of the page."""
    lines = [
        "| people | how many | norm | epsilon | "
        + " | ".join(f"{rate:g}, %" for rate in FIXED)
        + " | the rule's rate | the rule, % | with momentum 0.8, % | best fixed rate | with it, % |",
        "|---|---|---|---|" + "---|" * (len(FIXED) + 5),
    ]
    for name, epsilon in product(ROWS, EPSILONS):
        own = [row for row in runs if (row["data"], row["epsilon"]) == (name, epsilon)]
        if {row["rate"] for row in own} < {RULE, MOMENTUM, *RATES}:
            continue
        means = {rate: float(np.mean([row["accuracy"] for row in own if row["rate"] == rate])) for rate in RATES}
        ruled = [row for row in own if row["rate"] == RULE]
        mean, fast = (
            float(np.mean([row["accuracy"] for row in own if row["rate"] == each])) for each in (RULE, MOMENTUM)
        )
        best = max(means, key=means.__getitem__)
        cells = [name, f"{own[0]['people']:,}", f"{own[0]['norm']:.1f}", f"{epsilon:g}"]
        cells += [f"{means[rate]:.2f}" for rate in FIXED]
        cells += [f"{ruled[0]['learning_rate']:.3g}", f"{mean:.2f}", f"{fast:.2f}", f"{best:g}", f"{means[best]:.2f}"]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def main() -> None:
    """Do what is missing, and write the page's table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="+", default=ROWS, choices=ROWS)
    parser.add_argument("--data", type=Path, help="the folder of the data sets; else ALMONER_DATA")
    parser.add_argument(
        "--out", type=Path, default=pages.RESULTS / "learning_rates.jsonl", help="where runs are recorded"
    )
    parser.add_argument("--quick", action="store_true", help="300 people and ten steps; nothing is written")
    given = parser.parse_args()
    if given.quick:
        few = held_out(part(digits(1.0), 300))
        for rate in (None, *FIXED):
            print(rate, run(few, rate, 3.0, 0, steps=10))
        return
    do_missing(given.out, given.data, given.only)
    pages.insert(PAGE, table(recorded(given.out)) + "\n")


if __name__ == "__main__":
    main()
