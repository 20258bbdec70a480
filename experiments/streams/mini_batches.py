"""Mini-batches at equal epsilon: DP-SGD with Poisson samples against fixed batches with correlated noise.

    python experiments/streams/mini_batches.py                # settings on training people, then test people; resumes
    python experiments/streams/mini_batches.py --only adult   # one data set
    python experiments/streams/mini_batches.py --quick        # made-up people, few steps; nothing is written

A linear model by ``Trainer`` on Adult's indicators, and on scattering features of MNIST, 512 people expected in a step,
momentum 0.9, the moving average of the iterates. Each rule gets the same number of trials, judged by a part of the
training people with the noise scaled to the others. Each run is a line of
experiments/results/mini_batches.jsonl.
"""

import argparse
import sys
from collections.abc import Callable
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

sys.path += [str(Path(__file__).parents[1]), str(Path(__file__).parents[1] / "utility")]
import images
import pages
import tables
from journal import record, recorded

from almoner import filters, odometers, training
from almoner.curves import gaussian
from almoner.training import FixedBatches, callbacks
from almoner.training.correlated import BandedInverse

PAGE = pages.DOCS / "mini-batches.md"
Make = Callable[..., training.Trainer]

DELTA, SIZE, MOMENTUM, BAND = 1e-5, 512, 0.9, 32
EPSILONS = (0.5, 2.0, 8.0)
CLIP = {"adult": 0.5, "mnist": 0.7}
RATES = {"adult": (0.5, 2.0, 8.0), "mnist": (0.5, 2.0, 8.0)}
SAME = ((5, 1.0), (20, 1.0), (50, 1.0))
"""Epochs, and the noise over the least with which everybody can pay the full clip in all of them."""
RULES = {
    "DP-SGD": SAME,
    "fixed, independent": SAME,
    "fixed, banded": SAME,
    "accounts, banded": ((20, 0.8), (20, 0.6), (50, 0.8)),
}
TUNE_SEED, SEEDS = 1000, 5


class Data(NamedTuple):
    """People's records and labels, and those of the people who judge."""

    x: Tensor
    y: Tensor
    x_test: Tensor
    y_test: Tensor


class Setting(NamedTuple):
    """What is tried: the learning rate, the epochs, and the noise over the planned one."""

    rate: float
    epochs: int
    louder: float


def trials(name: str, rule: str) -> list[Setting]:
    """Nine for every rule."""
    return [Setting(rate, *each) for rate, each in product(RATES[name], RULES[rule])]


def load(name: str, given: argparse.Namespace) -> tuple[Data, Data]:
    """All training people with the test people, and a part of the training people with the others."""
    if name == "adult":
        whole = tables.load(name, given.data)
        inner = tables.held_out(whole)
        return tensors(whole), tensors(inner)
    parts = []
    for part in ("train", "test"):
        pixels, labels = images.images(name, part, given.data)
        parts += [images.features(name, pixels, given.work), labels]
    x, y, kept = parts[0], parts[1], len(parts[0]) - images.HELD_OUT
    return Data(*parts), Data(x[:kept], y[:kept], x[kept:], y[kept:])


def tensors(data: Any) -> Data:
    """Arrays, dense or sparse, as tensors."""
    x, x_test = (np.asarray(part.todense(), dtype=np.float32) for part in (data.x, data.x_test))
    return Data(torch.from_numpy(x), label(data.y), torch.from_numpy(x_test), label(data.y_test))


def label(y: Any) -> Tensor:
    """Labels as whole numbers."""
    return torch.from_numpy(np.asarray(y).astype(np.int64))


def run(data: Data, clip: float, rule: str, chosen: Setting, epsilon: float, people: int, seed: int) -> float:
    """Train once: accuracy in percent on those who judge.

    Args:
        people: the number of people for whom epsilon is planned; with fewer in the data the noise shrinks with them.
    """
    module = nn.Linear(data.x.shape[1], int(data.y.max()) + 1, bias=False)
    nn.init.zeros_(module.weight)
    count, share, mean = round(people / SIZE), len(data.x) / people, callbacks.MovingAverage(0.99)

    def trainer(**how: Any) -> training.Trainer:
        optimizer = torch.optim.SGD(module.parameters(), lr=chosen.rate, momentum=MOMENTUM)
        common = {"max_grad_norm": clip, "divisor": float(len(data.x)), "steps": count * chosen.epochs, "seed": seed}
        return training.Trainer(module, nn.CrossEntropyLoss(reduction="none"), optimizer, **common, **how)

    if rule == "DP-SGD":
        private = sampled(trainer, epsilon, count, share)
    else:
        private = fixed(trainer, rule, chosen.louder, epsilon, share)
    private.fit(data.x, data.y, callbacks=[mean])
    with torch.no_grad():
        right = mean.module(data.x_test).argmax(-1) == data.y_test
    return round(100 * float(right.double().mean()), 3)


def sampled(trainer: Make, epsilon: float, count: int, share: float) -> training.Trainer:
    """DP-SGD with exact accounting: the noise that all people's epsilon needs, times the share of them."""
    how = {"sampling": training.Poisson(1 / count), "individual": False}
    planned = trainer(budget=training.Target(epsilon, DELTA), **how)
    if share == 1:
        return planned
    noise = planned.noise_multiplier * share
    return trainer(budget=odometers.Renyi(delta=DELTA), noise_multiplier=noise, **how)


def fixed(trainer: Make, rule: str, louder: float, epsilon: float, share: float) -> training.Trainer:
    """Fixed batches: the budget divided by the share of people, so that the noise is multiplied by it."""
    mu = float(gaussian.mu(epsilon=epsilon, delta=DELTA)) / share
    noise = BandedInverse(band=BAND) if "banded" in rule else None
    how = {
        "sampling": FixedBatches(round(SIZE * share), noise=noise),
        "individual": rule.startswith("accounts"),
    }
    planned = trainer(budget=filters.Gaussian(mu=mu), **how)
    if louder == 1:
        return planned
    return trainer(budget=filters.Gaussian(mu=mu), noise_multiplier=planned.noise_multiplier * louder, **how)


def rows_of(runs: list[dict[str, Any]], **cell: Any) -> list[dict[str, Any]]:
    """The runs of a cell."""
    return [row for row in runs if cell.items() <= row.items()]


def best(runs: list[dict[str, Any]], **cell: Any) -> Setting:
    """The setting that judged best."""
    return Setting(*max(rows_of(runs, stage="tune", **cell), key=lambda row: row["accuracy"])["setting"])


def do_missing(name: str, given: argparse.Namespace) -> None:
    """Every trial on a part of the training people, then the best settings on the test people."""
    whole, inner = load(name, given)
    for epsilon, rule in product(EPSILONS, RULES):
        cell = {"data": name, "epsilon": epsilon, "rule": rule}
        plan = [("tune", setting, TUNE_SEED) for setting in trials(name, rule)]
        plan += [("test", None, seed) for seed in range(given.seeds)]
        for stage, setting, seed in plan:
            setting = best(recorded(given.out), **cell) if setting is None else setting
            row = {"stage": stage, **cell, "seed": seed, "setting": list(setting)}
            if not rows_of(recorded(given.out), **row):
                data = inner if stage == "tune" else whole
                found = run(data, CLIP[name], rule, setting, epsilon, len(whole.x), seed)
                record(given.out, row | {"accuracy": found})
                print(*row.values(), found, flush=True)


def table(runs: list[dict[str, Any]]) -> str:
    """The table of the page: accuracy of every rule, and its paired difference from DP-SGD."""
    first, *others = RULES
    lines = [
        f"| data | epsilon | {first}, % | " + " | ".join(f"{rule}, %" for rule in others) + " |",
        "|---|---|---|" + "---|" * len(others),
    ]
    for name, epsilon in sorted({(row["data"], row["epsilon"]) for row in runs if row["stage"] == "test"}):
        own = {rule: accuracies(runs, data=name, epsilon=epsilon, rule=rule) for rule in RULES}
        if min(map(len, own.values())) < 2:
            continue
        gains = [f"{own[rule].mean():.2f} ({pages.interval(own[rule] - own[first])})" for rule in others]
        cells = [f"{own[first].mean():.2f}", *gains]
        lines.append(f"| {name} | {epsilon:g} | {' | '.join(cells)} |")
    return "\n".join(lines)


def accuracies(runs: list[dict[str, Any]], **cell: Any) -> np.ndarray:
    """(seeds,) on the test people."""
    own = sorted(rows_of(runs, stage="test", **cell), key=lambda row: row["seed"])
    return np.array([row["accuracy"] for row in own])


def quick() -> None:
    """Made-up people, a few steps of each rule."""
    draw = torch.Generator().manual_seed(0)
    x = torch.nn.functional.normalize(torch.randn(4000, 5, generator=draw))
    data = Data(x, (x[:, 0] > 0).long(), x, (x[:, 0] > 0).long())
    for rule, each in RULES.items():
        print(rule, run(data, 0.5, rule, Setting(8.0, 2, each[0][1]), 8.0, 20_000, 0))


def main() -> None:
    """Do what is missing, and write the page's table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="+", default=list(CLIP), choices=list(CLIP))
    parser.add_argument("--seeds", type=int, default=SEEDS)
    parser.add_argument("--data", type=Path, help="the folder of the data sets; else ALMONER_DATA")
    parser.add_argument("--work", type=Path, default=Path("utility-features"), help="a folder for features, private")
    parser.add_argument(
        "--out", type=Path, default=pages.RESULTS / "mini_batches.jsonl", help="where runs are recorded"
    )
    parser.add_argument("--quick", action="store_true", help="made-up people and few steps; nothing is written")
    given = parser.parse_args()
    if given.quick:
        quick()
        return
    for name in given.only:
        do_missing(name, given)
    pages.insert(PAGE, table(recorded(given.out)) + "\n")


if __name__ == "__main__":
    main()
