"""Koskela, Tobaben & Honkela (2023), section 6 and appendix E: who gains and who loses when filtering begins.

    python experiments/koskela_2023/section6.py                       # diabetes130, in place of MIMIC-III
    python experiments/koskela_2023/section6.py --paper-size          # 29,252 people, chosen by five seeds
    python experiments/koskela_2023/section6.py --benchmark FOLDER    # the files of the MIMIC-III benchmark
    python experiments/koskela_2023/section6.py --demo                # such files, generated from the open demo
    python experiments/koskela_2023/section6.py --quick               # seconds: for continuous integration

A network with one hidden layer tells 25 conditions of each patient. It is trained by full-batch gradient descent with
Adam and an account for each person (the paper's algorithm 1): 50 epochs until the first budget is used up, and 50 more.
Clip and rate are chosen by macro-averaged AUC-ROC on a fifth of the training people, without filtering: by one seed,
or with --paper-size by five, of which the last four judge the best four settings of the first; at other clips the rate
is chosen again in that way. Then five seeds run at the three budgets, at seven clips, and without a filter. The control
is plain descent planned for all 100 epochs, with the noise that the same budget then needs, and the same clip and rate.

Writes one line for each run to experiments/results/koskela-groups.jsonl, and goes on from there after a kill; then the
tables and pictures of koskela-groups.md. Noise is seeded: a seed repeats a run on the same machine with the same
versions; elsewhere numbers differ within the spread of the seeds. What is printed by group would be private for private
data.
"""

import argparse
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import phenotypes
import section6_page
import torch
from group_reports import Audience, GroupWatch
from groups import Data
from journal import record, recorded
from scipy.stats import rankdata
from torch import nn

from almoner import filters, individual
from almoner.curves import gaussian
from almoner.training import CallbackView, FullBatch, Trainer

DELTA, DECAY = 1e-5, 9.4e-4  # the weight decay of the authors' program
BUDGETS, MULTIPLES = (2.75, 0.5, 10.0), (5.0, 0.5, 3.0, 2.0, 1.5, 0.75)  # besides 1
RATES, TRIED_AGAIN = (0.02, 0.04, 0.08), 4
"""The learning rates of the grid, and how many of its settings are judged by more than their first seed."""

EDGES = 40
"""How many bars a histogram has, from 0 to the budget."""


@dataclass(frozen=True)
class Scale:
    """How many people, and how clip and rate are chosen; public."""

    name: str
    train: int
    test: int
    clips: tuple[float, ...]
    choosers: int
    """How many seeds judge the settings."""


USUAL = Scale("koskela-groups", phenotypes.TRAIN, phenotypes.TEST, (0.2, 0.4, 0.8), 1)
PAPER = Scale("koskela-paper", 29_252, 10_000, (0.1, 0.2, 0.4, 0.8, 1.6), 5)
"""As many people as the authors have stays, groups of 1,000 and 400, and a choice by five seeds."""

QUICK = Scale("koskela-groups", 1500, 600, (0.4,), 1)


@dataclass(frozen=True)
class Settings:
    """How a model is trained; public."""

    epsilon: float
    clip: float
    rate: float
    seed: int = 0
    epochs: int = 50
    """So many at the full clip use up the budget."""
    more: int = 50
    filtered: bool = True
    """False, for comparison: nobody is left out of the further epochs, which the budget then does not cover."""


def network(features: int, seed: int) -> nn.Sequential:
    """One hidden layer, half as wide as inputs and outputs together, as in the authors' program."""
    torch.manual_seed(seed)  # of the weights, which are public
    hidden = (features + 25) // 2
    return nn.Sequential(nn.Linear(features, hidden), nn.ReLU(), nn.Linear(hidden, 25))


def losses(output: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    """Cross-entropy of each record, the mean over the 25 labels."""
    return nn.functional.binary_cross_entropy_with_logits(output, targets, reduction="none").mean(1)


def auc(module: nn.Module, x: torch.Tensor, y: torch.Tensor) -> float:
    """Macro-averaged AUC-ROC, over the labels that occur both ways: from ranks, ties counted as half."""
    with torch.no_grad():
        ranks = rankdata(module(x).numpy(), axis=0)
    labels = y.numpy() == 1
    with_it = labels.sum(axis=0)
    without = len(labels) - with_it
    both = (with_it > 0) & (without > 0)
    pairs = np.where(labels, ranks, 0.0).sum(axis=0) - with_it * (with_it + 1) / 2
    return float(np.mean(pairs[both] / (with_it * without)[both]))


def measure(x: torch.Tensor, y: torch.Tensor, people: Any) -> Callable[[nn.Module], tuple[Any, Any]]:
    """Losses and shares of right labels: of each record, or the means over each person's records."""

    def found(module: nn.Module) -> tuple[Any, Any]:
        with torch.no_grad():
            output = module(x)
        right = ((output > 0) == (y > 0)).double().mean(1)
        pair = losses(output, y).double().numpy(), right.numpy()
        if people is None:
            return pair
        records = np.bincount(people)
        return np.bincount(people, pair[0]) / records, np.bincount(people, pair[1]) / records

    return found


class Curves:
    """What happens over a run: AUC-ROC, who takes part, and each group's losses and mean epsilon. Private.

    Args:
        budget: what is spent at most in mu squared; epsilons are looked up at the next of 1000 points up to it.
    """

    def __init__(
        self, trainer: Trainer, train: Audience, test: Audience, score: Callable[[nn.Module], float], *, budget: float
    ) -> None:
        self._trainer, self._train, self._test, self._score = trainer, train, test, score
        self._grid = np.linspace(0.0, budget * (1 + 1e-9), 1001)
        self._table = gaussian.epsilon(np.sqrt(self._grid), delta=DELTA)
        self._before: Any = 0.0
        self.rows: dict[str, Any] = {"epoch": [], "auc": [], "active": [], "train": {}, "test": {}, "mean epsilon": {}}
        self.epsilons: Any = None

    def __call__(self, run: CallbackView) -> None:
        """Count who takes part in each epoch; look at the rest ten times until filtering starts, and as often later."""
        spent = self._trainer.accounts.spent()
        if run.step:
            self.rows["active"].append(int(np.count_nonzero(spent > self._before)))
        if run.step and run.step % max(1, run.steps // 10) == 0:
            self.rows["epoch"].append(run.step)
            self.rows["auc"].append(round(self._score(run.module), 5))
            epsilons = self._table[np.searchsorted(self._grid, spent)]
            self._add("mean epsilon", self._train, epsilons)
            self._add("train", self._train, self._train.measure(run.module)[0])
            self._add("test", self._test, self._test.measure(run.module)[0])
            if run.step == run.steps:
                self.epsilons = epsilons
        self._before = spent

    def _add(self, name: str, audience: Audience, values: Any) -> None:
        labels = np.asarray(audience.groups["condition"])
        for group in np.unique(labels):
            mean = float(np.mean(values[labels == group]))
            self.rows[name].setdefault(str(group), []).append(round(mean, 5))


def trained(task: Data, chosen: Settings, *, curves: bool) -> dict[str, Any]:
    """One run, and what is known of it afterwards: its record."""
    start, budget = time.perf_counter(), filters.Gaussian(epsilon=chosen.epsilon, delta=DELTA)
    x, y, x_test = torch.from_numpy(task.x), torch.from_numpy(task.y).float(), torch.from_numpy(task.x_test)
    y_test = torch.from_numpy(task.y_test).float()
    module = network(x.shape[1], chosen.seed)
    noise = noise_multiplier(chosen.epsilon, chosen.epochs)
    trainer = Trainer(
        module,
        losses,
        torch.optim.Adam(module.parameters(), lr=chosen.rate, weight_decay=DECAY),
        budget if chosen.filtered else filters.Gaussian(mu=10 * budget.mu),
        max_grad_norm=chosen.clip,
        divisor=task.count,
        noise_multiplier=noise,
        steps=chosen.epochs,
        sampling=FullBatch(pace=0.0, spend_remainder=False, extra_steps=chosen.more),
        seed=chosen.seed,
    )
    people = None if task.people is None else torch.from_numpy(task.people)
    record = asdict(chosen) | {"noise_multiplier": round(noise, 4)}
    if not curves:
        trainer.fit(x, y, people)
        return record | {"auc": auc(module, x_test, y_test), "seconds": round(time.perf_counter() - start, 1)}
    train = Audience(task.groups, measure(x, y, task.people))
    test = Audience(task.groups_test, measure(x_test, y_test, None))
    most = budget.mu**2 * (1.0 if chosen.filtered else (chosen.epochs + chosen.more) / chosen.epochs)
    seen = Curves(trainer, train, test, lambda module: auc(module, x_test, y_test), budget=most)
    counted = individual.Losses(task.count, least=noise, most=1e4 * noise, buckets=1024)
    watch = GroupWatch(
        train,
        trainer.shares,
        steps=chosen.epochs + chosen.more,
        test=test,
        epsilons=lambda: counted.epsilon(delta=DELTA),
        start=chosen.epochs,
    )
    trainer.fit(x, y, people, watch=counted, callbacks=[seen, lambda run: watch.look(run.step, run.module)])
    bars = np.histogram(np.minimum(seen.epsilons, chosen.epsilon), bins=EDGES, range=(0.0, chosen.epsilon))[0]
    return record | {
        **seen.rows,
        "histogram": bars.tolist(),
        "near the budget": float(np.mean(seen.epsilons > 0.95 * chosen.epsilon)),
        "groups": [{k: v for k, v in row.items() if k != "accuracy"} for row in watch.report().rows],
        "seconds": round(time.perf_counter() - start, 1),
    }


def noise_multiplier(epsilon: float, epochs: int) -> float:
    """The noise over the clip with which so many full-batch steps at the clip cost epsilon; rounded up a little.

    The paper: 10.61 for 50 epochs of 2.75 at delta = 1e-5.
    """
    return float(np.sqrt(epochs) / gaussian.mu(epsilon=epsilon, delta=DELTA)) * (1 + 1e-9)


class Journal:
    """Finished runs in a file, one line each; a run that is there is not done again. A broken last line is removed."""

    def __init__(self, path: Path | None) -> None:
        self._path = path
        self.lines: list[dict[str, Any]] = [] if path is None else recorded(path)

    def get(self, key: dict[str, Any], make: Callable[[], dict[str, Any]]) -> dict[str, Any]:
        """The run with these entries, done now if it is not there."""
        for line in self.lines:
            if all(line.get(name) == value for name, value in key.items()):
                return line
        line = key | make()
        self.lines.append(line)
        if self._path is not None:
            record(self._path, line)
        print({k: v for k, v in line.items() if isinstance(v, int | float | str)}, flush=True)
        return line


def tuned(
    journal: Journal, fold: Data, epsilon: float, epochs: int, clips: tuple[float, ...], choosers: int
) -> list[tuple[float, float]]:
    """Clips and rates from the best on, by AUC-ROC on people held out from the training people, without filtering."""

    def score(pair: tuple[float, float], seed: int) -> float:
        run = Settings(epsilon, *pair, seed=100 + seed, epochs=epochs, more=0)
        key = {"kind": "tuning", "epsilon": epsilon, "clip": pair[0], "rate": pair[1], "seed": 100 + seed}
        return float(journal.get(key, lambda: trained(fold, run, curves=False))["auc"])

    rates = RATES if epochs == Settings.epochs else RATES[1:2]
    tried = sorted(((clip, rate) for clip in clips for rate in rates), key=lambda pair: -score(pair, 0))
    return sorted(tried[:TRIED_AGAIN], key=lambda pair: -sum(score(pair, seed) for seed in range(choosers)))


def experiment(task: Data, journal: Journal, scale: Scale, *, seeds: int, only: bool = False) -> None:
    """Tune, and run everything; with ``only``, the paper's budget at the best clip alone."""
    epochs, quick = (6, True) if scale is QUICK else (50, False)
    fold = phenotypes.held_out(task)

    def runs(epsilon: float, clip: float, rate: float, multiple: float, kind: str = "filtered") -> None:
        planned = kind == "planned"
        for seed in range(seeds):
            course = (2 * epochs, 0) if planned else (epochs, epochs)
            run = Settings(epsilon, clip, rate, seed, *course, kind != "nobody left out")
            key = {"kind": kind, "epsilon": epsilon, "multiple": multiple, "seed": seed}
            journal.get(key, lambda run=run: trained(task, run, curves=not planned))
        if kind == "filtered" and not only:
            runs(epsilon, clip, rate, multiple, kind="planned")

    best, rate = tuned(journal, fold, BUDGETS[0], epochs, scale.clips, scale.choosers)[0]
    runs(BUDGETS[0], best, rate, 1.0)
    runs(BUDGETS[0], best, rate, 1.0, kind="nobody left out")
    if only:
        return
    for epsilon in BUDGETS[1:]:
        runs(epsilon, *tuned(journal, fold, epsilon, epochs, scale.clips, scale.choosers)[0], 1.0)
    for multiple in (5.0, 0.5) if quick else MULTIPLES:
        clip = round(multiple * best, 6)
        runs(BUDGETS[0], *tuned(journal, fold, BUDGETS[0], epochs, (clip,), scale.choosers)[0], multiple)


def main() -> None:
    """Run what is missing, and write the page."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--benchmark", type=Path, default=None, help="the benchmark's data/phenotyping")
    parser.add_argument("--demo", action="store_true", help="files generated from the open MIMIC-III demo")
    parser.add_argument("--quick", action="store_true", help="1500 people, 6 + 6 epochs, 2 seeds, one setting")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--paper-size", action="store_true", help="29,252 people, clip and rate chosen by five seeds")
    parser.add_argument("--page", action="store_true", help="tables and pictures from the recorded runs alone")
    parser.add_argument("--data", type=Path, default=None, help="the folder of the data sets")
    parser.add_argument("--out", type=Path, default=None, help="where NAME.jsonl, tables and pictures are written")
    given = parser.parse_args()
    out = given.out or (None if given.quick else section6_page.pages.DOCS)
    scale = QUICK if given.quick else PAPER if given.paper_size else USUAL
    name = "koskela-benchmark" if given.benchmark else "koskela-demo" if given.demo else scale.name
    if out is not None:
        out.mkdir(parents=True, exist_ok=True)
    journal = Journal(None if out is None else section6_page.pages.results(out) / f"{name}.jsonl")
    if not given.page:
        if given.benchmark is not None:
            task = phenotypes.benchmark(given.benchmark)
        elif given.demo:
            task = phenotypes.demo(given.data, **({"train": 300, "test": 100} if given.quick else {}))
        else:
            task = phenotypes.diabetes130(given.data, train=scale.train, test=scale.test)
        experiment(task, journal, scale, seeds=2 if given.quick else given.seeds, only=given.demo)
    section6_page.write(journal.lines, out, name)


if __name__ == "__main__":
    main()
