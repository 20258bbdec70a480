"""Models that are released again and again while people come: who is charged for which release?

    python experiments/streams/releases.py                         # everything on docs/experiments/training-streams.md
    python experiments/streams/releases.py --only online_retail    # one data set
    python experiments/streams/releases.py --quick                 # few people, one cell, one seed; writes nothing

The records of a data set come in periods (see stream_data.py). After each period a linear model takes one noisy step
on that period's records and is released. What is judged is the mean of the second half of these models. All records of
a person are one person's.

- everybody pays: each release is charged to all people, as without accounts: noise for all releases.
- cap by count: a person's first m periods count, later ones are dropped: noise for m releases.
- accounts: ``training.Stream`` with noise for m releases; each person pays for their own gradient while they can.
- one release: nothing is released before the end; m noisy steps on the whole table.

Clip, rate and m are tuned for each rule with the same number of trials, on people who are not judged. Runs are added
to experiments/results/releases.jsonl as soon as they are done; runs that are there are not repeated.
"""

import argparse
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import asdict, astuple, dataclass, replace
from itertools import product
from math import sqrt
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

sys.path.insert(0, str(Path(__file__).parent))
sys.path.insert(0, str(Path(__file__).parents[1]))
import pages
from journal import record, recorded
from stream_data import Periods, stream

from almoner import filters
from almoner.curves import gaussian
from almoner.report import figures
from almoner.training import Stream

DELTA = 1e-5


@dataclass(frozen=True)
class Cell:
    """A data set, a promise, and how many models are released; with one, the whole table is used at once."""

    data: str
    epsilon: float
    releases: int

    @property
    def rules(self) -> tuple[str, ...]:
        """Who is charged."""
        return RULES if self.releases > 1 else (ONCE,)

    def has(self, row: dict[str, Any], rule: str) -> bool:
        """Whether a run is of this cell and rule."""
        return (row["data"], row["epsilon"], row["days"], row["rule"]) == (*astuple(self), rule)


DIABETES = tuple(Cell("diabetes130", *each) for each in product((0.3, 1.0), (50, 200)))
PERIODS = {"movielens_latest_small": 267, "online_retail": 54, "eicu_demo": 28}
CELLS = (
    *DIABETES,
    *(Cell(name, epsilon, n) for name, most in PERIODS.items() for n in (most, 1) for epsilon in (1.0, 4.0)),
)
SLOWER = {"diabetes130": 1.0, "movielens_latest_small": 1 / 32, "online_retail": 1 / 8, "eicu_demo": 1 / 2}
"""Rates that are tried with many releases are multiplied by this: fewer people need smaller steps."""

RULES = ("everybody pays", "cap by count", "accounts")
ONCE = "one release"
RATES = (0.5, 1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0)
TUNING_SEEDS = {"diabetes130": 2, "movielens_latest_small": 6, "online_retail": 6, "eicu_demo": 6}
"""Where there are few people to tune on, more runs are needed to tell settings apart."""
SEEDS = 10


@dataclass(frozen=True)
class Chosen:
    """The settings of a run. The rate is for the noisy sum of a period over the number of people expected in it."""

    clip: float
    rate: float
    releases: int
    """So many full contributions fit into a person's budget."""


class Linear(nn.Module):
    """One score for each record."""

    def __init__(self, features: int) -> None:
        super().__init__()
        self.weights = nn.Linear(features, 1, bias=False)
        nn.init.zeros_(self.weights.weight)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """(n,) scores."""
        return self.weights(x).squeeze(1)


def weighted(scores: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    """(n,) logistic losses times the weights."""
    return targets[:, 1] * nn.functional.binary_cross_entropy_with_logits(scores, targets[:, 0], reduction="none")


def capped(days: Periods, most: int) -> Iterator[tuple[torch.Tensor, torch.Tensor, list[int]]]:
    """Each person's first periods only."""
    seen: dict[int, int] = {}
    for x, y, people in days.parts:
        for person in set(people):
            seen[person] = seen.get(person, 0) + 1
        kept = torch.tensor([seen[person] <= most for person in people], dtype=torch.bool)
        yield x[kept], y[kept], [person for person, keep in zip(people, kept.tolist(), strict=True) if keep]


def run(periods: Periods, rule: str, chosen: Chosen, epsilon: float, seed: int) -> dict[str, float]:
    """Train once over all periods: accuracy in percent of those to tune on and those to judge by, after the last one.

    The model is the mean of the iterates of the second half of the periods, all of which are released anyway.
    """
    parts, expected = list(periods.parts), periods.people / len(periods.parts)
    if rule == "cap by count":
        parts = list(capped(periods, chosen.releases))
    elif rule == ONCE:
        xs, ys, people = zip(*parts, strict=True)
        parts = [(torch.cat(xs), torch.cat(ys), [each for part in people for each in part])] * chosen.releases
        expected = periods.people
    module = Linear(parts[0][0].shape[1])
    models = Stream(
        module,
        weighted,
        torch.optim.SGD(module.parameters(), lr=chosen.rate),
        filters.Gaussian(epsilon=epsilon, delta=DELTA),
        max_grad_norm=chosen.clip,
        noise_multiplier=sqrt(chosen.releases) / gaussian.mu(epsilon=epsilon, delta=DELTA) * (1 + 1e-9),
        seed=seed,
    )
    total, half = torch.zeros_like(module.weights.weight), len(parts) // 2
    for part in parts:
        if models.update(*part, divisor=expected) > half:
            total += module.weights.weight.detach()
    with torch.no_grad():
        module.weights.weight.copy_(total / (len(parts) - half))
    return {name: _accuracy(module, *getattr(periods, name)) for name in ("tune", "judge")}


def _accuracy(module: nn.Module, x: torch.Tensor, y: torch.Tensor) -> float:
    with torch.no_grad():
        right = (module(x) > 0) == (y[:, 0] > 0)
        return 100 * float((right * y[:, 1]).double().sum() / y[:, 1].double().sum())


def trials(rule: str, cell: Cell) -> list[Chosen]:
    """36 settings for each rule."""
    slower = SLOWER[cell.data]
    if rule == "everybody pays":
        return [Chosen(clip, rate * slower, cell.releases) for clip, rate in product((0.125, 0.25, 0.5, 1.0), RATES)]
    if rule == ONCE:
        return [Chosen(clip, rate, m) for clip, rate, m in product((0.5, 1.0), RATES[1:7], (5, 10, 20))]
    return [Chosen(clip, rate * slower, m) for clip, rate, m in product((0.5, 1.0), RATES[2:8], (1, 2, 4))]


def best(rows: list[dict[str, Any]], cell: Cell, rule: str) -> Chosen | None:
    """The settings with the best mean accuracy of those to tune on, over the tuning seeds."""
    tried: dict[Chosen, list[float]] = {}
    for row in rows:
        if row["tuning"] and cell.has(row, rule):
            tried.setdefault(Chosen(**row["settings"]), []).append(row["tune"])
    return max(tried, key=lambda chosen: float(np.mean(tried[chosen])), default=None)


def fill(path: Path, periods: Periods, cell: Cell, *, tuning_seeds: int, seeds: int, grid: int | None = None) -> None:
    """Do the runs of a cell that are missing: first the tuning, then the seeds that are judged."""
    for rule in cell.rules:
        done = {(r["tuning"], r["seed"], Chosen(**r["settings"])) for r in recorded(path) if cell.has(r, rule)}
        todo = [(True, 1000 + s, each) for s in range(tuning_seeds) for each in trials(rule, cell)[:grid]]
        for planned in ("tune", "judge"):
            if planned == "judge":
                chosen = best(recorded(path), cell, rule)
                todo = [(False, seed, chosen) for seed in range(seeds)]
            for tuning, seed, settings in todo:
                if (tuning, seed, settings) in done:
                    continue
                found = run(periods, rule, settings, cell.epsilon, seed)
                kept = {"tune": found["tune"]} if tuning else found  # nobody looks at the judged people while tuning
                line = {"data": cell.data, "epsilon": cell.epsilon, "days": cell.releases, "rule": rule}
                record(path, line | {"tuning": tuning, "seed": seed, "settings": asdict(settings)} | kept)


def judged(rows: list[dict[str, Any]], cell: Cell, rule: str) -> Any:
    """Accuracies of the judged people with the settings that were chosen, by seed."""
    chosen = best(rows, cell, rule)
    runs = (row for row in rows if not row["tuning"] and cell.has(row, rule))
    found = {row["seed"]: row["judge"] for row in runs if Chosen(**row["settings"]) == chosen}
    return np.array([found[seed] for seed in sorted(found)])


def shown(values: Any) -> str:
    """The mean and the standard deviation over seeds."""
    return f"{values.mean():.2f} ± {values.std(ddof=1) if len(values) > 1 else 0:.2f}" if len(values) else ""


def table(rows: list[dict[str, Any]]) -> str:
    """Accuracies, and the differences with the same seeds, as Markdown."""
    lines = [
        f"| data | epsilon | releases | {' | '.join((*RULES, ONCE))} | gain over everybody pays | over the cap |",
        "|---" * 9 + "|",
    ]
    for cell in (each for each in CELLS if each.releases > 1):
        each = [judged(rows, cell, rule) for rule in RULES]
        if not all(map(len, each)):
            continue
        once = judged(rows, replace(cell, releases=1), ONCE)
        gains = [pages.interval(each[2] - other) for other in each[:2]]
        start = [cell.data, f"{cell.epsilon:g}", str(cell.releases)]
        lines.append("| " + " | ".join([*start, *map(shown, [*each, once]), *gains]) + " |")
    lines += ["", "| data | epsilon | releases | rule | clip | rate | m |", "|---|---|---|---|---|---|---|"]
    for cell in CELLS:
        for rule in cell.rules:
            chosen = best(rows, cell, rule)
            if chosen is not None:
                last = "" if rule == "everybody pays" else str(chosen.releases)
                settings = f"{rule} | {chosen.clip:g} | {chosen.rate:g} | {last}"
                lines.append(f"| {cell.data} | {cell.epsilon:g} | {cell.releases} | {settings} |")
    return "\n".join(lines) + "\n"


def summary(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """One line for each cell and rule."""
    found = []
    for cell in CELLS:
        for rule in cell.rules:
            values = judged(rows, cell, rule)
            if len(values):
                spread = float(values.std(ddof=1)) if len(values) > 1 else 0.0
                found.append(
                    asdict(cell)
                    | {"rule": rule, "seeds": len(values)}
                    | {"mean": round(float(values.mean()), 3), "std": round(spread, 3)}
                )
    return found


@figures.styled()
def draw(rows: list[dict[str, Any]]) -> Any:
    """Accuracy by rule on diabetes130, a group of bars for each cell."""
    picture = figures.figure(8, 3.6)
    panel = picture.subplots()
    for place, rule in enumerate(RULES):
        values = [judged(rows, cell, rule) for cell in DIABETES]
        heights = [v.mean() if len(v) else np.nan for v in values]
        spreads = [v.std(ddof=1) if len(v) > 1 else 0 for v in values]
        panel.bar(np.arange(len(DIABETES)) + 0.27 * (place - 1), heights, 0.25, yerr=spreads, label=rule)
    labels = [f"epsilon {cell.epsilon:g}\n{cell.releases} releases" for cell in DIABETES]
    panel.set_xticks(range(len(DIABETES)), labels)
    panel.set(ylabel="accuracy, percent", ylim=(50, 64), title="Readmission, one model released after each day")
    panel.legend(ncols=3)
    return picture


def main() -> None:
    """Read the options."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="+", default=list(SLOWER), choices=list(SLOWER), help="data sets")
    parser.add_argument("--data", type=Path, help="the folder of the data sets; else ALMONER_DATA")
    parser.add_argument("--out", type=Path, help="where runs and page are written; else beside this file, and docs")
    parser.add_argument("--seeds", type=int, default=SEEDS)
    parser.add_argument("--quick", action="store_true", help="few people, one cell, two settings, one seed")
    parser.add_argument("--plot", action="store_true", help="only write the page from the recorded runs")
    given = parser.parse_args()
    torch.set_num_threads(1)
    if given.quick and given.out is None:
        with tempfile.TemporaryDirectory() as folder:
            given.out = Path(folder)
            work(given)
    else:
        work(given)


def work(given: argparse.Namespace) -> None:
    """Do what is missing, then write the page."""
    path = (given.out or pages.RESULTS) / "releases.jsonl"
    cells = [cell for cell in CELLS if cell.data in given.only]
    amount: dict[str, Any] = {"seeds": given.seeds}
    if given.quick:
        cells, amount = cells[2:3], {"tuning_seeds": 1, "seeds": 1, "grid": 2}
    made: dict[tuple[str, int], Periods] = {}
    for cell in [] if given.plot else cells:
        count = PERIODS.get(cell.data, cell.releases)
        if (cell.data, count) not in made:
            made[cell.data, count] = stream(cell.data, count, given.data, 2000 if given.quick else None)
        fill(path, made[cell.data, count], cell, **({"tuning_seeds": TUNING_SEEDS[cell.data]} | amount))
    rows = recorded(path)
    print(table(rows))
    docs = pages.DOCS if given.out is None else given.out
    pages.save("training-streams", summary(rows), table(rows), draw(rows), docs)
    (docs / "training-streams.json").replace(docs / "streams.json")


if __name__ == "__main__":
    main()
