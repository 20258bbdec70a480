"""Lécuyer (2021), sections 5.1 and 5.2: his recorded runs, read by his odometer and by Almoner's.

    python experiments/lecuyer_2021/replay.py --data FOLDER    # half a minute on one core
    python experiments/lecuyer_2021/replay.py --quick          # one run of each kind; writes nothing

The paper's repository (m-lecuyer/adaptive_rdp) publishes noise, noisy count of right answers and test accuracy after
every epoch. Epsilon is a function of the noises, so both odometers can be read along his runs without training. FOLDER
holds ``lecuyer_runs`` with adaptive.csv, fine_tune.csv and fine_tune_falling_noise.csv; without --data it is in
ALMONER_DATA. Delta is 1e-6, the plan of our odometer is his: 50 epochs at noise multiplier 1. The counts' own price,
5e-5 of rho each, is left out, as in the paper; --counts charges it. Writes replay.json, replay.svg, replay.png and the
tables of replay.md in docs/experiments.
"""

import argparse
import csv
import json
import sys
from dataclasses import dataclass, field
from functools import cache
from itertools import groupby
from math import sqrt
from pathlib import Path
from typing import Any

import numpy as np
from scipy.special import stdtrit

from almoner import mechanisms, odometers
from almoner.curves import renyi
from almoner.report.figures import figure, styled
from almoner.training.callbacks import EarlyStopping

sys.path.append(str(Path(__file__).parents[1]))
import data_sets
import pages
from lecuyer_2021.odometer import CODE, DELTA, EPOCHS, RATE, STEPS, epoch

IMAGES, SIGMA, PATIENCE, GOOD = 50_000, 100.0, 3, 0.8
KINDS = {
    ("fine_tune", "all"): "whole network, noise 1",
    ("fine_tune_falling_noise", "all"): "whole network, falling noise",
    ("fine_tune", "last"): "last layer, noise 1",
    ("fine_tune_falling_noise", "last"): "last layer, falling noise",
}
FIRST = {"fine_tune": 1.0, "fine_tune_falling_noise": 2.0}
POLICIES = {"baseline": "noise 1, batch 512", "adapt_noise": "adaptive noise", "adapt_batch": "adaptive batch"}
PLAN = mechanisms.Repeated(epoch(1.0), EPOCHS)
COUNT = mechanisms.Gaussian(SIGMA, 1.0)
Rows = list[dict[str, str]]


@dataclass
class Recorded:
    """A recorded run as a callback sees it: it answers with the recorded counts, and stops when it is told to."""

    counts: list[float]
    history: dict[str, Any] = field(default_factory=dict)
    released: dict[mechanisms.Mechanism, int] = field(default_factory=dict)
    reason: str | None = None
    step: int = 0

    def noisy_sum(self, values: Any, *, sigma: float, name: str) -> float:
        return self.counts[self.step - 1]

    def next_step(self) -> mechanisms.Mechanism:
        return epoch(1.0)

    def stop(self, reason: str) -> None:
        self.reason = reason


def stops_improving(counts: list[float]) -> int:
    """The epoch after which ``EarlyStopping(patience=3)`` ends a run with these counts; all epochs if it does not."""
    run, rule = Recorded(counts), EarlyStopping(patience=PATIENCE, every=1, odometer=odometers.Renyi(delta=DELTA))
    while run.step < len(counts) and run.reason is None:
        run.step += 1
        rule(run)  # type: ignore[arg-type]
    return run.step


def read(folder: Path, name: str) -> dict[str, Rows]:
    """Rows of each run in one of his files."""
    with (folder / f"{name}.csv").open(encoding="utf-8", newline="") as stream:
        return {run: list(rows) for run, rows in groupby(csv.DictReader(stream), key=lambda row: row["run"])}


def settings(rows: Rows, first: float) -> list[tuple[float, float, int]]:
    """Noise, rate and steps of each epoch. A row has them as they were *after* its look, so they are the next epoch's.

    (His policies, let run on his counts, are at the row's noise after the row's count; 97 is the index of 98 steps.)
    """
    seen = [(float(row["sigma"]), float(row["batch_size"]) / IMAGES, int(row["steps_in_epoch"]) + 1) for row in rows]
    return [(first, RATE, STEPS), *seen[:-1]]


@cache
def curves(noises: tuple[float, ...], counts: bool = False) -> dict[str, list[float]]:
    """What each odometer says after each epoch of a fine-tuning run."""
    his = odometers.Lecuyer(delta=DELTA, sum_delta=0.0, orders=CODE, first=0.25)
    ours = odometers.Renyi(delta=DELTA, sum_delta=0.0, plan=PLAN)
    found: dict[str, list[float]] = {"his": [], "pathwise": [], "ex-post": []}
    for noise in noises:
        for odometer in (his, ours):
            odometer.charge(epoch(noise))
            if counts:
                odometer.charge(COUNT)
        found["his"].append(his.epsilon())
        found["pathwise"].append(ours.epsilon())
        found["ex-post"].append(ours.ex_post_epsilon())
    return {name: [round(value, 5) for value in values] for name, values in found.items()}


def fine_tuned(rows: Rows, first: float, counts: bool) -> dict[str, Any]:
    """Accuracies, odometers and both stopping rules of one run."""
    accuracy = [float(row["test_accuracy"]) for row in rows]
    good = next((number for number, value in enumerate(accuracy, 1) if value >= GOOD), None)
    return {
        "accuracy": accuracy,
        **curves(tuple(noise for noise, _, _ in settings(rows, first)), counts),
        "80 % at": good,
        "stops at": stops_improving([float(row["noisy_correct"]) for row in rows]),
    }


def adaptive(rows: Rows) -> dict[str, Any]:
    """Accuracy of a run under his filter, and what its epochs cost but the last, in which the filter ended it."""
    total = np.zeros(len(renyi.ORDERS))
    for noise, rate, steps in settings(rows, 1.0)[:-1]:
        total = total + steps * renyi.values(mechanisms.SampledGaussian(noise, 1.0, rate), renyi.ORDERS)
    accuracy = [float(row["test_accuracy"]) for row in rows]
    epsilon = float(renyi.mironov(total, renyi.ORDERS, delta=DELTA))
    return {"epochs": len(rows), "accuracy": accuracy[-1], "at epoch 100": accuracy[99], "epsilon": round(epsilon, 5)}


def replay(folder: Path, *, counts: bool = False, quick: bool = False) -> dict[str, Any]:
    """All runs in his files, by kind."""
    found: dict[str, Any] = {"fine-tuning": {}, "policies": {}}
    for (file, part), kind in KINDS.items():
        runs = [rows for name, rows in read(folder, file).items() if f"_{part}_" in name]
        found["fine-tuning"][kind] = [fine_tuned(rows, FIRST[file], counts) for rows in runs[: 1 if quick else None]]
    runs_of = read(folder, "adaptive")
    for start, kind in POLICIES.items():
        runs = [rows for name, rows in runs_of.items() if name.startswith(start)]
        found["policies"][kind] = [adaptive(rows) for rows in runs[: 1 if quick else None]]
    return found


def _mean(values: list[float], digits: int = 2, scale: float = 1.0) -> str:
    """Mean and 95 % interval by Student's t over the runs."""
    numbers = scale * np.asarray(values, float)
    if len(numbers) < 2:
        return f"{numbers[0]:.{digits}f}"
    half = float(stdtrit(len(numbers) - 1, 0.975)) * float(numbers.std(ddof=1)) / sqrt(len(numbers))
    return f"{numbers.mean():.{digits}f} ± {half:.{digits}f}"


def _range(values: list[float], digits: int = 2) -> str:
    low, high = (f"{value:.{digits}f}" for value in (min(values), max(values)))
    return low if low == high else f"{low} to {high}"


def _at(run: dict[str, Any], rule: str) -> dict[str, float]:
    return {name: run[name][run[rule] - 1] for name in ("accuracy", "his", "pathwise", "ex-post")}


def tables(results: dict[str, Any]) -> dict[str, str]:
    """Both stopping rules, and the runs under his filter, as Markdown."""
    tuned = results["fine-tuning"]
    good = [
        "| his runs (five each) | 80 % at epoch | his odometer | ours, pathwise | ours, ex-post |",
        "|---" * 5 + "|",
    ]
    ends = [
        "| his runs (five each) | stops at epoch | accuracy there, % | after 50 epochs, % | difference "
        "| his odometer | ours, ex-post | ours after 50 |",
        "|---" * 8 + "|",
    ]
    for kind, runs in tuned.items():
        reached = [run for run in runs if run["80 % at"]]
        there = [_at(run, "80 % at") for run in reached]
        epochs = _range([run["80 % at"] for run in reached], 0)
        cells = [_range([each[name] for each in there]) for name in ("his", "pathwise", "ex-post")]
        good.append(f"| {kind} | {epochs} | {' | '.join(cells)} |")
        there = [_at(run, "stops at") for run in runs]
        gained = [at["accuracy"] - run["accuracy"][-1] for at, run in zip(there, runs, strict=True)]
        cells = [
            _range([run["stops at"] for run in runs], 0),
            _mean([at["accuracy"] for at in there], 1, 100),
            _mean([run["accuracy"][-1] for run in runs], 1, 100),
            _mean(gained, 1, 100),
            _mean([at["his"] for at in there]),
            _mean([at["ex-post"] for at in there]),
            _range([run["ex-post"][-1] for run in runs]),
        ]
        ends.append(f"| {kind} | {' | '.join(cells)} |")
    under = [
        "| his runs under one filter | runs | epochs | accuracy at epoch 100, % | at the end, % | epsilon |",
        "|---" * 6 + "|",
    ]
    for kind, runs in results["policies"].items():
        cells = [
            str(len(runs)),
            _range([run["epochs"] for run in runs], 0),
            _mean([run["at epoch 100"] for run in runs], 1, 100),
            _mean([run["accuracy"] for run in runs], 1, 100),
            _range([run["epsilon"] for run in runs]),
        ]
        under.append(f"| {kind} | {' | '.join(cells)} |")
    return {name: "\n".join(lines) + "\n" for name, lines in (("good", good), ("table", ends), ("policies", under))}


@styled()
def draw(results: dict[str, Any]) -> Any:
    """Accuracy over epsilon: his odometer dashed, ours solid; a dot at 80 %, a square where the run stops improving."""
    picture = figure(10, 4.2)
    panels = picture.subplots(1, 2, sharey=True)
    for axes, noise in zip(panels, ("noise 1", "falling noise"), strict=True):
        for colour, part in (("C0", "whole network"), ("C1", "last layer")):
            for number, run in enumerate(results["fine-tuning"][f"{part}, {noise}"]):
                percent = 100 * np.asarray(run["accuracy"])
                for name, style in (("his", "--"), ("ex-post", "-")):
                    label = f"{part}, {'his odometer' if name == 'his' else 'ours, ex-post'}" if not number else None
                    axes.plot(run[name], percent, style, color=colour, lw=0.9, alpha=0.6, label=label)
                    for rule, mark in (("80 % at", "o"), ("stops at", "s")):
                        if run[rule]:
                            at = run[rule] - 1
                            fill = "white" if name == "his" else colour
                            axes.plot(run[name][at], percent[at], mark, color=colour, mfc=fill, ms=4.5, lw=0)
        axes.set(title=noise, xlabel=f"epsilon at delta = {DELTA:g}", ylim=(60, 87), xlim=(0, 7.5))
    panels[0].set_ylabel("test accuracy, %")
    panels[0].legend(loc="lower right")
    return picture


def main(arguments: list[str] | None = None) -> dict[str, Any]:
    """Read his runs, write the numbers, draw, and print the tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, help="the folder with lecuyer_runs; else ALMONER_DATA")
    parser.add_argument("--out", type=Path, default=pages.DOCS)
    parser.add_argument("--counts", action="store_true", help="charge the noisy counts, too; writes nothing")
    parser.add_argument("--quick", action="store_true", help="one run of each kind; writes nothing")
    parser.add_argument("--page", action="store_true", help="make tables and figure from the record alone")
    options = parser.parse_args(arguments)
    if options.page:
        results = json.loads((options.out / "replay.json").read_text(encoding="utf-8"))
    else:
        results = replay(data_sets.folder("lecuyer_runs", options.data), counts=options.counts, quick=options.quick)
    found = tables(results)
    print("\n".join(found.values()))
    if not options.quick and not options.counts:
        pages.save("replay", results, found["table"], draw(results), options.out)
        for name in ("good", "policies"):
            pages.insert(options.out / "replay.md", found[name], name)
    return results


if __name__ == "__main__":
    main()
