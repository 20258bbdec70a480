"""Koskela, Tobaben & Honkela (2023), appendix E: clip and rate by Bayesian search, beside a grid.

    python experiments/koskela_2023/search.py            # 30 trials and 5 runs: a minute and a half
    python experiments/koskela_2023/search.py --quick    # few people, 3 trials, 2 seeds; nothing is written

The paper's library, Optuna, looks for the clip and the rate with the best macro-averaged AUC-ROC on a fifth of the
training people, after 50 epochs without filtering (tree-structured Parzen estimators, both on a logarithmic scale). The
grid is that of ``section6.py``: nine settings, judged in the same way on the same people. Then five seeds are trained
with what the search found, on all training people, as those of the grid were: the differences are paired.

Writes one line for each run to experiments/results/koskela-search.jsonl, and goes on from there after a kill; then the
table of koskela-groups.md. The guarantee of a model does not cover the choice of clip and rate, as in the paper.
"""

import argparse
from pathlib import Path
from typing import Any

import numpy as np
import optuna
import phenotypes
from groups import Data
from section6 import BUDGETS, Journal, Settings, trained
from section6_page import pages

EPSILON = BUDGETS[0]
CLIPS, RATES = (0.05, 5.0), (0.001, 0.3)
TRIALS = 30


def search(journal: Journal, fold: Data, *, trials: int, epochs: int) -> tuple[float, float]:
    """The best clip and rate of so many trials, each of which is chosen by those before it."""
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    study = optuna.create_study(direction="maximize", sampler=optuna.samplers.TPESampler(seed=0))
    for number in range(trials):
        trial = study.ask()  # the same as before a kill, since what it follows from is the same
        clip = trial.suggest_float("clip", *CLIPS, log=True)
        rate = trial.suggest_float("rate", *RATES, log=True)
        run = Settings(EPSILON, clip, rate, seed=100, epochs=epochs, more=0)
        key = {"kind": "search", "trial": number, "clip": clip, "rate": rate}
        study.tell(trial, journal.get(key, lambda run=run: trained(fold, run, curves=False))["auc"])
    return float(study.best_params["clip"]), float(study.best_params["rate"])


def experiment(task: Data, journal: Journal, *, trials: int, seeds: int, epochs: int) -> None:
    """Search, then train with what was found."""
    clip, rate = search(journal, phenotypes.held_out(task), trials=trials, epochs=epochs)
    for seed in range(seeds):
        run = Settings(EPSILON, clip, rate, seed, epochs, epochs)
        journal.get({"kind": "searched", "seed": seed}, lambda run=run: trained(task, run, curves=True))


def table(lines: list[dict[str, Any]], grid: list[dict[str, Any]]) -> str:
    """What the search and the grid of section6.py found, and the models that were trained with it."""
    found = [line for line in lines if line["kind"] == "searched"]
    kept = [
        line for line in grid if (line["kind"], line["epsilon"], line.get("multiple")) == ("filtered", EPSILON, 1.0)
    ]
    epochs = found[0]["epochs"]
    rows = [
        "| chosen by | trials | clip | rate | AUC-ROC of the best trial, % | AUC-ROC after 50 epochs, % | "
        "against the grid [95 %] | after 100, with filtering, % | against the grid [95 %] | seeds |",
        "|---|---|---|---|---|---|---|---|---|---|",
    ]
    for name, runs, tried in (
        ("a grid", kept, [each for each in grid if each["kind"] == "tuning" and each["epsilon"] == EPSILON]),
        ("Bayesian search", found, [each for each in lines if each["kind"] == "search"]),
    ):
        cells = []
        for epoch in (epochs, 2 * epochs):
            own, other = at(runs, epoch), at(kept, epoch)
            seeds = sorted(set(own) & set(other))
            gain = np.array([own[seed] - other[seed] for seed in seeds])
            cells += [f"{np.mean(list(own.values())):.2f}", "" if runs is kept else pages.interval(gain)]
        tried = [each for each in tried if name != "a grid" or each["clip"] in GRID_CLIPS]
        best = max(each["auc"] for each in tried)
        rows.append(
            f"| {name} | {len(tried)} | {runs[0]['clip']:.3g} | {runs[0]['rate']:.3g} | {100 * best:.2f} "
            f"| {' | '.join(cells)} | {len(runs)} |"
        )
    return "\n".join(rows) + "\n"


GRID_CLIPS = (0.2, 0.4, 0.8)
"""Other clips were tried at one multiple of the best each, which is no part of the choice."""


def at(runs: list[dict[str, Any]], epoch: int) -> dict[int, float]:
    """The AUC-ROC of each seed at an epoch, in percent."""
    return {run["seed"]: 100 * run["auc"][run["epoch"].index(epoch)] for run in runs}


def main() -> None:
    """Run what is missing, and write the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="few people, 3 trials, 2 seeds; nothing is written")
    parser.add_argument("--page", action="store_true", help="make the table from the recorded runs alone")
    parser.add_argument("--data", type=Path, default=None, help="the folder of the data sets")
    parser.add_argument("--out", type=Path, default=pages.DOCS, help="a folder for koskela-search.jsonl and the page")
    given = parser.parse_args()
    if given.quick:
        task, journal = phenotypes.diabetes130(given.data, train=1000, test=400), Journal(None)
        experiment(task, journal, trials=3, seeds=2, epochs=10)
        best = max((line for line in journal.lines if line["kind"] == "search"), key=lambda line: line["auc"])
        print(best)
        return
    journal = Journal(pages.results(given.out) / "koskela-search.jsonl")
    if not given.page:
        task = phenotypes.diabetes130(given.data, train=phenotypes.TRAIN)
        experiment(task, journal, trials=TRIALS, seeds=5, epochs=50)
    text = table(journal.lines, Journal(pages.RESULTS / "koskela-groups.jsonl").lines)
    print(text)
    pages.insert(given.out / "koskela-groups.md", text, "search")


if __name__ == "__main__":
    main()
