"""Plain descent, paced budgets and Algorithm 8 on Adult and diabetes130, each tuned with the same number of trials.

    python experiments/utility/tables.py           # settings on the training people, then the test people; resumes
    python experiments/utility/tables.py --quick   # 1,000 people, few steps; nothing is written into the tree

Logistic regression on full batches by the library's ``descend``. A fifth of the training people judge the settings,
with the noise scaled to the others. ``--only adult --epsilon 0.3`` does one cell. Each run is a line of
experiments/results/tables.jsonl.
"""

import argparse
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product
from math import sqrt
from pathlib import Path
from typing import Any

import numpy as np
from descents import PLAIN, RULES, planned

sys.path += [str(Path(__file__).parents[1]), str(Path(__file__).parents[1] / "koskela_2023")]
from data_sets import folder
from groups import Data, diabetes130, part
from journal import record, recorded

from almoner import filters, individual, mechanisms
from almoner.curves import gaussian
from almoner.training import Descent, Everybody, LogisticGradients, demo_tables, descend

RESULTS = Path(__file__).parents[1] / "results"
DELTA, TUNE_SEED = 1e-5, 1000

CELLS = {"adult": (0.3, 0.5, 1.0, 1.2), "diabetes130": (0.3,)}
STEPS = {"adult": 400, "diabetes130": 200}
CLIPS = {"adult": (0.5, 0.7), "diabetes130": (0.45, 0.7)}
RATES = {"adult": (24.0, 48.0, 96.0), "diabetes130": (8.0, 16.0, 32.0)}
NO_NOISE = 1e6
"""The mu of the figure without privacy: so little noise, and no clip."""


@dataclass(frozen=True)
class Setting:
    """How a model is trained; the model is the mean of the second half of the iterates."""

    steps: int
    clip: float
    rate: float


def trials(data: str) -> list[Setting]:
    """The settings that are tried, the same for every rule and epsilon."""
    return [Setting(STEPS[data], *each) for each in product(CLIPS[data], RATES[data])]


def load(name: str, given: Path | None) -> Data:
    """The people of a data set."""
    if name == "diabetes130":
        return diabetes130(given)
    adult = demo_tables.adult(folder("adult", given))
    (x, y), (x_test, y_test) = adult.train, adult.test
    return Data(x, y, None, x_test, y_test, {}, {})


def held_out(data: Data) -> Data:
    """Four fifths of the training people, judged by the others: the last rows of Adult, random patients of diabetes130.

    The numbers of patients follow time, so that the last ones are not like the others.
    """
    if data.people is None:
        first, people = np.arange(len(data.y)) < int(0.8 * data.count), None
    else:
        first = (np.random.default_rng(1).random(data.count) < 0.8)[data.people]
        people = np.unique(data.people[first], return_inverse=True)[1]
    return Data(data.x[first], data.y[first], people, data.x[~first], data.y[~first], {}, {})


def run(data: Data, chosen: Setting, mu: float, rule: str, seed: int) -> float:
    """Train once: accuracy in percent on the test people."""
    times, pace = RULES[rule]
    gradients = LogisticGradients(data.x, data.y, 2, intercept=False, people=data.people)
    budget = filters.Gaussian(mu=mu * (1 + 1e-9))
    accounts = Everybody(data.count, budget) if rule in PLAIN else individual.Filter(data.count, budget)
    found = descend(
        gradients,
        gradients.start,
        accounts,
        mechanisms.Gaussian(chosen.clip * sqrt(planned(rule, chosen.steps)) / mu, chosen.clip),
        steps=round(times * chosen.steps),
        learning_rate=chosen.rate,
        divisor=float(data.count),
        noise=np.random.default_rng(seed),
        descent=Descent(average=0.5, momentum=0.0, pace=pace),
    )
    right = (np.asarray(data.x_test @ found).ravel() > 0) == data.y_test
    return round(100 * float(np.mean(right)), 3)


def best(runs: list[dict[str, Any]], *cell: Any) -> Setting:
    """The setting that judged best."""
    own = [row for row in runs if (row["stage"], row["data"], row["epsilon"], row["rule"]) == ("tune", *cell)]
    return Setting(**max(own, key=lambda row: row["accuracy"])["setting"])


def missing(path: Path, name: str, epsilons: list[float], seeds: int) -> Iterator[tuple[str, float, str, int, Setting]]:
    """The runs that are not recorded yet, all trials of a cell before its test runs."""
    for epsilon, rule in product(epsilons, RULES):
        cell = (name, epsilon, rule)
        planned = [("tune", TUNE_SEED, setting) for setting in trials(name)]
        for stage, seed, setting in planned:
            if not recorded_in(path, stage, cell, seed, setting):
                yield stage, epsilon, rule, seed, setting
        setting = best(recorded(path), *cell)
        for seed in range(seeds):
            if not recorded_in(path, "test", cell, seed, setting):
                yield "test", epsilon, rule, seed, setting


def recorded_in(path: Path, stage: str, cell: tuple[str, float, str], seed: int, setting: Setting) -> bool:
    """Whether a run is there."""
    return any(
        (row["stage"], row["data"], row["epsilon"], row["rule"], row["seed"]) == (stage, *cell, seed)
        and row["setting"] == vars(setting)
        for row in recorded(path)
    )


def without_privacy(name: str, data: Data, path: Path, steps: int) -> None:
    """The same features and the same model without clip and noise."""
    if any((row["stage"], row["data"]) == ("without privacy", name) for row in recorded(path)):
        return
    chosen = Setting(steps, 10.0, max(RATES[name]))
    write(path, "without privacy", name, None, "plain", 0, chosen, run(data, chosen, NO_NOISE, "plain", 0))


def write(path: Path, stage: str, *values: Any) -> None:
    """Add a line."""
    names = ("data", "epsilon", "rule", "seed", "setting", "accuracy")
    row = {"stage": stage, **dict(zip(names, values, strict=True))}
    row["setting"] = vars(row["setting"])
    record(path, row)
    print(*row.values(), flush=True)


def main() -> None:
    """Do what is missing."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="+", default=list(CELLS), choices=list(CELLS))
    parser.add_argument("--epsilon", nargs="+", type=float, help="these rows only")
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--data", type=Path, help="the folder of the data sets; else ALMONER_DATA")
    parser.add_argument("--out", type=Path, default=RESULTS / "tables.jsonl", help="where runs are recorded")
    parser.add_argument("--quick", action="store_true", help="1,000 people and few steps; nothing is written")
    given = parser.parse_args()
    for name in given.only:
        data = load(name, given.data)
        if given.quick:
            few, quick = part(data, 1000), Setting(10, 0.5, 16.0)
            print(name, *(f"{rule} {run(held_out(few), quick, 5.0, rule, 0):.1f}" for rule in RULES))
            continue
        without_privacy(name, data, given.out, 10 * STEPS[name])
        inner = held_out(data)
        for stage, epsilon, rule, seed, setting in missing(given.out, name, given.epsilon or CELLS[name], given.seeds):
            mu, people = float(gaussian.mu(epsilon=epsilon, delta=DELTA)), data
            if stage == "tune":
                mu, people = mu * data.count / inner.count, inner
            write(given.out, stage, name, epsilon, rule, seed, setting, run(people, setting, mu, rule, seed))


if __name__ == "__main__":
    main()
