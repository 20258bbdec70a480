"""Private image models without public data: a linear model on whitened scattering, or on patches for CIFAR-10.

    python experiments/utility/images.py tune            # settings, on the training file alone; resumes after a kill
    python experiments/utility/images.py test            # all training people; the test file is opened here alone, once
    python experiments/utility/images.py --quick         # made-up images, nothing is written into the tree

``--only mnist`` does one data set, ``--rules plain`` one rule. Features are kept in ``--work``. Each
run is a line of experiments/results/images.jsonl; what is there is not run again.
"""

import argparse
import sys
import time
from collections.abc import Iterator
from dataclasses import asdict
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import torch
from descents import PLAIN, RULES, Run, Setting, accuracies, descents
from torch import Tensor

sys.path.append(str(Path(__file__).parents[1]))
from data_sets import cifar10, digits, folder
from journal import record, recorded

from almoner.curves import gaussian
from almoner.training.images import image_classifier
from almoner.training.images.drawings import Drawings, Scenes, Shapes, Strokes
from almoner.training.images.features import cached

RESULTS = Path(__file__).parents[1] / "results"
DELTA, TUNE_SEED = 1e-5, 1000

DRAWINGS: dict[str, Drawings] = {"mnist": Strokes(3000), "fashion_mnist": Shapes(3000), "cifar10": Scenes(3000)}

HELD_OUT = 10_000
"""The last so many people of the training file judge settings; noise is scaled to the people that are left."""

DIMENSIONS = {"mnist": 500, "fashion_mnist": 500, "cifar10": 2000}
"""So many axes are kept."""

STEPS = {
    "mnist": {0.3: 40, 0.5: 50, 1.2: 90, 3.0: 150},
    "fashion_mnist": {0.5: 50, 1.0: 90, 3.0: 150},
    "cifar10": {1.0: 71, 2.0: 106, 3.0: 133, 8.0: 226},
}
"""Epsilon, and the planned number of steps."""

CLIPS = (0.35, 0.7)

RATES = {"mnist": (40.0, 100.0, 250.0), "fashion_mnist": (40.0, 100.0, 250.0), "cifar10": (100.0, 250.0, 500.0)}

SEEDS = 10


def trials(data: str, epsilon: float) -> list[Setting]:
    """The settings that are tried, the same for every rule."""
    return [Setting(STEPS[data][epsilon], *each) for each in product(CLIPS, RATES[data])]


def images(data: str, part: str, given: Path | None) -> tuple[Any, Tensor]:
    """uint8 images (n, [3,] height, width) and labels of a part: train or test."""
    if data == "cifar10":
        pixels, labels = cifar10(part, given)
        return np.ascontiguousarray(pixels.transpose(0, 3, 1, 2)), torch.from_numpy(labels)
    pixels, labels = digits(folder(data, given), {"train": "train", "test": "t10k"}[part])
    return pixels, torch.from_numpy(labels)


def features(data: str, pixels: Any, work: Path) -> Tensor:
    """(n, DIMENSIONS) of length 1, from the folder where they were made before; the first axes are those of fewer."""
    dimensions = None if data == "cifar10" else 1000
    transform = image_classifier.features_for(DRAWINGS[data], pixels.shape[-2:], dimensions=dimensions)
    kept = np.array(cached(transform, pixels, work)[:, : DIMENSIONS[data]])
    return torch.nn.functional.normalize(torch.from_numpy(kept))


def batches(runs: list[Run]) -> Iterator[list[Run]]:
    """Runs of the same number of steps and kind, at most ten at a time."""
    for key in sorted({(run.steps, run.rule in PLAIN) for run in runs}):
        same = [run for run in runs if (run.steps, run.rule in PLAIN) == key]
        yield from (same[start : start + 10] for start in range(0, len(same), 10))


def train(x: Tensor, y: Tensor, judge: tuple[Tensor, Tensor], runs: list[Run], people: int) -> Iterator[dict[str, Any]]:
    """A row for each run."""
    for batch in batches(runs):
        began = time.process_time()
        scores = accuracies(descents(x, y, batch, people=people), *judge)
        seconds = round((time.process_time() - began) / len(batch), 1)
        for run, accuracy in zip(batch, scores, strict=True):
            yield {
                "rule": run.rule,
                "seed": run.seed,
                "setting": asdict(run.setting),
                "accuracy": accuracy,
                "seconds": seconds,
            }


def cells(data: str, rules: list[str]) -> list[tuple[float, str]]:
    """Every epsilon and rule of a data set."""
    return list(product(STEPS[data], rules))


def tried(runs: list[dict[str, Any]], data: str, epsilon: float, rule: str) -> dict[Setting, float]:
    """Accuracy on the held-out people of the training file, for the trials that were made."""
    cell = ("tune", data, epsilon, rule)
    own = {
        Setting(**row["setting"]): row["accuracy"]
        for row in runs
        if (row["stage"], row["data"], row["epsilon"], row["rule"]) == cell
    }
    return {setting: own[setting] for setting in trials(data, epsilon) if setting in own}


def best(runs: list[dict[str, Any]], data: str, epsilon: float, rule: str) -> Setting | None:
    """The setting that judged best of all trials, or None where not all were made."""
    own = tried(runs, data, epsilon, rule)
    return max(own, key=own.__getitem__) if len(own) == len(trials(data, epsilon)) else None


def write(path: Path, row: dict[str, Any]) -> None:
    """Add a line."""
    record(path, row)
    print(*(row[name] for name in ("stage", "data", "epsilon", "rule", "seed", "accuracy", "setting")), flush=True)


def tune(data: str, given: argparse.Namespace) -> None:
    """Every trial of every rule that is not recorded yet, judged by people of the training file."""
    known = recorded(given.out)
    missing = []
    for epsilon, rule in cells(data, given.rules):
        done = tried(known, data, epsilon, rule)
        left = [setting for setting in trials(data, epsilon) if setting not in done]
        mu = gaussian.mu(epsilon=epsilon, delta=DELTA)
        if left:
            missing.append((epsilon, [Run(setting, mu, rule, TUNE_SEED) for setting in left]))
    if not missing:
        return
    pixels, labels = images(data, "train", given.data)
    x = features(data, pixels, given.work)
    kept = len(x) - HELD_OUT
    for epsilon, runs in missing:
        judged = train(x[:kept], labels[:kept], (x[kept:], labels[kept:]), runs, len(x))
        for row in list(judged):
            write(given.out, {"stage": "tune", "data": data, "epsilon": epsilon, **row})


def test(data: str, given: argparse.Namespace) -> None:
    """The best settings on all training people; the test file is opened once, after everything is chosen."""
    known = recorded(given.out)
    done = {(row["data"], row["epsilon"], row["rule"], row["seed"]) for row in known if row["stage"] == "test"}
    plan = []
    for epsilon, rule in cells(data, given.rules):
        setting, mu = best(known, data, epsilon, rule), gaussian.mu(epsilon=epsilon, delta=DELTA)
        seeds = [seed for seed in range(SEEDS) if (data, epsilon, rule, seed) not in done]
        if setting is not None and seeds:
            plan.append((epsilon, [Run(setting, mu, rule, seed) for seed in seeds]))
    if not plan:
        return
    pixels, labels = images(data, "train", given.data)
    x = features(data, pixels, given.work)
    test_pixels, test_labels = images(data, "test", given.data)
    judge = features(data, test_pixels, given.work), test_labels
    for epsilon, runs in plan:
        for row in train(x, labels, judge, runs, len(x)):
            write(given.out, {"stage": "test", "data": data, "epsilon": epsilon, **row})


def quick() -> None:
    """Made-up features, one short run of each rule."""
    draw = torch.Generator().manual_seed(0)
    y = torch.randint(10, (500,), generator=draw)
    x = torch.nn.functional.normalize(torch.randn(10, 20, generator=draw)[y] + torch.randn(500, 20, generator=draw))
    for row in train(x, y, (x, y), [Run(Setting(8, 0.5, 20.0), 5.0, rule, 0) for rule in RULES], len(x)):
        print(row["rule"], row["accuracy"])


def main() -> None:
    """Tune or test."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("stage", nargs="?", default="test", choices=("tune", "test"))
    parser.add_argument("--only", nargs="+", default=list(STEPS), choices=list(STEPS))
    parser.add_argument("--rules", nargs="+", default=list(RULES), choices=list(RULES))
    parser.add_argument("--data", type=Path, help="the folder of the data sets; else ALMONER_DATA")
    parser.add_argument("--work", type=Path, default=Path("utility-features"), help="a folder for features, private")
    parser.add_argument("--out", type=Path, default=RESULTS / "images.jsonl", help="where runs are recorded")
    parser.add_argument("--quick", action="store_true", help="made-up records; nothing is written")
    given = parser.parse_args()
    if given.quick:
        quick()
        return
    for data in given.only:
        {"tune": tune, "test": test}[given.stage](data, given)


if __name__ == "__main__":
    main()
