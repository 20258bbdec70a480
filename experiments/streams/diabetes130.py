"""A model that is released again and again while patients come: who is charged for which release?

    python experiments/streams/diabetes130.py                       # everything on docs/experiments/training-streams.md
    python experiments/streams/diabetes130.py --quick               # 2,000 patients, one cell, one seed

Encounters of patients with diabetes, in the order of their numbers, are cut into D parts ("days"). After each day the
model takes one noisy step on that day's encounters and is released. (What is judged is the mean of the second half of
these models.) A patient is one person, with all encounters.

- everybody pays: each release is charged to all people, as without accounts: noise for D releases.
- cap by count: a patient's first m days count, later ones are dropped: noise for m releases.
- accounts: ``training.Stream`` with noise for m releases; each patient pays for their own gradient while they can.

Clip, rate and m are tuned for each rule with the same number of trials, on patients who are not judged. Runs are added
to runs.jsonl as soon as they are done; runs that are there are not repeated.
"""

import argparse
import csv
import gzip
import io
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from itertools import product
from math import sqrt
from pathlib import Path
from typing import Any

import numpy as np
import torch
from scipy import stats
from torch import nn

sys.path.insert(0, str(Path(__file__).parents[1]))
sys.path.insert(0, str(Path(__file__).parents[1] / "koskela_2023"))
import pages
from data_sets import folder
from groups import Data, diabetes130
from journal import record, recorded

from bursar import filters
from bursar.curves import gaussian
from bursar.report import figures
from bursar.training import Stream

HERE = Path(__file__).parent
DELTA = 1e-5
CELLS = ((0.3, 50), (0.3, 200), (1.0, 50), (1.0, 200))
RULES = ("everybody pays", "cap by count", "accounts")
RATES = (0.5, 1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0)
TUNING_SEEDS, SEEDS = 2, 10


@dataclass(frozen=True)
class Chosen:
    """The settings of a run. The rate is for the noisy sum of a day over the number of patients expected in a day."""

    clip: float
    rate: float
    releases: int
    """So many full contributions fit into a patient's budget."""


@dataclass(frozen=True)
class Days:
    """The encounters of each day, and patients to tune on and to judge by."""

    parts: tuple[tuple[torch.Tensor, torch.Tensor, list[int]], ...]
    patients: int
    tune: tuple[torch.Tensor, torch.Tensor]
    judge: tuple[torch.Tensor, torch.Tensor]


class Linear(nn.Module):
    """One score for each encounter."""

    def __init__(self, features: int) -> None:
        super().__init__()
        self.weights = nn.Linear(features, 1, bias=False)
        nn.init.zeros_(self.weights.weight)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """(n,) scores."""
        return self.weights(x).squeeze(1)


def numbers(given: Path | None) -> tuple[Any, Any, Any]:
    """The number, the patient and the label of each encounter, in the order of the file."""
    raw = gzip.decompress((folder("diabetes130", given) / "diabetic_data.csv.gz").read_bytes()).decode()
    rows = list(csv.DictReader(io.StringIO(raw)))
    patients = np.unique([row["patient_nbr"] for row in rows], return_inverse=True)[1]
    again = np.array([row["readmitted"] != "NO" for row in rows])
    return np.array([int(row["encounter_id"]) for row in rows]), patients, again


def cut(data: Data, order: Any, days: int, people: int | None = None) -> Days:
    """Cut the encounters into days; half of the patients set aside are for tuning, the others are judged."""
    order = order if people is None else order[data.people[order] < people]
    x, y = np.asarray(data.x.todense() if hasattr(data.x, "todense") else data.x), np.asarray(data.y)
    rows = np.array_split(order, days)
    parts = [(_tensor(x[each]), _tensor(y[each]), data.people[each].tolist()) for each in rows]
    test = np.asarray(data.x_test.todense() if hasattr(data.x_test, "todense") else data.x_test)
    first = np.asarray(data.groups_test["half"]) == 0
    tune, judge = ((_tensor(test[which]), _tensor(np.asarray(data.y_test)[which])) for which in (first, ~first))
    count = len(set(data.people[order].tolist()))
    return Days(tuple(parts), count, tune, judge)


def _tensor(values: Any) -> torch.Tensor:
    return torch.from_numpy(np.ascontiguousarray(values, dtype=np.float32))


def capped(days: Days, most: int) -> Iterator[tuple[torch.Tensor, torch.Tensor, list[int]]]:
    """Each patient's first days only."""
    seen: dict[int, int] = {}
    for x, y, people in days.parts:
        for person in set(people):
            seen[person] = seen.get(person, 0) + 1
        kept = torch.tensor([seen[person] <= most for person in people], dtype=torch.bool)
        yield x[kept], y[kept], [person for person, keep in zip(people, kept.tolist(), strict=True) if keep]


def run(days: Days, rule: str, chosen: Chosen, epsilon: float, seed: int) -> dict[str, float]:
    """Train once over all days: accuracy in percent of those to tune on and those to judge by, after the last day.

    The model is the mean of the iterates of the second half of the days, all of which are released anyway.
    """
    module = Linear(days.parts[0][0].shape[1])
    stream = Stream(
        module,
        nn.BCEWithLogitsLoss(reduction="none"),
        torch.optim.SGD(module.parameters(), lr=chosen.rate),
        filters.Gaussian(epsilon=epsilon, delta=DELTA),
        max_grad_norm=chosen.clip,
        noise_multiplier=sqrt(chosen.releases) / gaussian.mu(epsilon=epsilon, delta=DELTA) * (1 + 1e-9),
        divisor=days.patients / len(days.parts),
        seed=seed,
    )
    total, half = torch.zeros_like(module.weights.weight), len(days.parts) // 2
    for part in capped(days, chosen.releases) if rule == "cap by count" else days.parts:
        if stream.update(*part) > half:
            total += module.weights.weight.detach()
    with torch.no_grad():
        module.weights.weight.copy_(total / (len(days.parts) - half))
    return {name: _accuracy(module, *getattr(days, name)) for name in ("tune", "judge")}


def _accuracy(module: nn.Module, x: torch.Tensor, y: torch.Tensor) -> float:
    with torch.no_grad():
        return 100 * float(((module(x) > 0) == (y > 0)).double().mean())


def trials(rule: str, days: int) -> list[Chosen]:
    """24 settings for each rule."""
    if rule == "everybody pays":
        return [Chosen(clip, rate, days) for clip, rate in product((0.25, 0.5, 1.0), RATES)]
    return [Chosen(clip, rate, m) for clip, rate, m in product((0.5, 1.0), RATES[3:7], (1, 2, 4))]


def best(rows: list[dict[str, Any]], cell: tuple[float, int], rule: str) -> Chosen | None:
    """The settings with the best mean accuracy of those to tune on, over the tuning seeds."""
    tried: dict[Chosen, list[float]] = {}
    for row in rows:
        if row["tuning"] and (row["epsilon"], row["days"], row["rule"]) == (*cell, rule):
            tried.setdefault(Chosen(**row["settings"]), []).append(row["tune"])
    return max(tried, key=lambda chosen: float(np.mean(tried[chosen])), default=None)


def fill(path: Path, days_of: Any, cells: Any, *, tuning_seeds: int, seeds: int, grid: int | None = None) -> None:
    """Do the runs that are missing: first the tuning of a cell, then the seeds that are judged."""
    for cell, rule in product(cells, RULES):
        epsilon, count = cell
        rows = recorded(path)
        done = {(r["tuning"], r["seed"], Chosen(**r["settings"])) for r in rows if _is(r, cell, rule)}
        todo = [(True, 1000 + s, each) for s in range(tuning_seeds) for each in trials(rule, count)[:grid]]
        for planned in ("tune", "judge"):
            if planned == "judge":
                chosen = best(recorded(path), cell, rule)
                todo = [(False, seed, chosen) for seed in range(seeds)]
            for tuning, seed, settings in todo:
                if (tuning, seed, settings) in done:
                    continue
                found = run(days_of(count), rule, settings, epsilon, seed)
                kept = {"tune": found["tune"]} if tuning else found  # nobody looks at the judged people while tuning
                line = {"epsilon": epsilon, "days": count, "rule": rule, "tuning": tuning, "seed": seed}
                record(path, line | {"settings": asdict(settings)} | kept)


def _is(row: dict[str, Any], cell: tuple[float, int], rule: str) -> bool:
    return (row["epsilon"], row["days"], row["rule"]) == (*cell, rule)


def judged(rows: list[dict[str, Any]], cell: tuple[float, int], rule: str) -> Any:
    """Accuracies of the judged people, by seed."""
    found = {row["seed"]: row["judge"] for row in rows if not row["tuning"] and _is(row, cell, rule)}
    return np.array([found[seed] for seed in sorted(found)])


def interval(values: Any) -> str:
    """The mean, and its 95 % interval over seeds."""
    if len(values) < 2:
        return f"{np.mean(values):+.2f}"
    half = stats.t.ppf(0.975, len(values) - 1) * values.std(ddof=1) / np.sqrt(len(values))
    return f"{values.mean():+.2f} [{values.mean() - half:+.2f}, {values.mean() + half:+.2f}]"


def table(rows: list[dict[str, Any]], cells: Any) -> str:
    """Accuracies, and the differences with the same seeds, as Markdown."""
    lines = [
        f"| epsilon | days | {' | '.join(RULES)} | accounts against everybody pays | against the cap |",
        "|---" * 7 + "|",
    ]
    for cell in cells:
        each = [judged(rows, cell, rule) for rule in RULES]
        if not all(map(len, each)):
            continue
        shown = [f"{v.mean():.2f} ± {v.std(ddof=1) if len(v) > 1 else 0:.2f}" for v in each]
        gains = [interval(each[2] - other) for other in each[:2]]
        lines.append("| " + " | ".join([f"{cell[0]:g}", str(cell[1]), *shown, *gains]) + " |")
    lines += ["", "| epsilon | days | rule | clip | rate | m |", "|---|---|---|---|---|---|"]
    for cell, rule in product(cells, RULES):
        chosen = best(rows, cell, rule)
        if chosen is not None:
            last = "" if rule == "everybody pays" else str(chosen.releases)
            lines.append(f"| {cell[0]:g} | {cell[1]} | {rule} | {chosen.clip:g} | {chosen.rate:g} | {last} |")
    return "\n".join(lines) + "\n"


def summary(rows: list[dict[str, Any]], cells: Any) -> list[dict[str, Any]]:
    """One line for each cell and rule."""
    found = []
    for cell, rule in product(cells, RULES):
        values = judged(rows, cell, rule)
        if len(values):
            spread = float(values.std(ddof=1)) if len(values) > 1 else 0.0
            found.append(
                {"data": "diabetes130", "epsilon": cell[0], "releases": cell[1], "rule": rule}
                | {"seeds": len(values), "mean": round(float(values.mean()), 3), "std": round(spread, 3)}
            )
    return found


def draw(rows: list[dict[str, Any]], cells: Any) -> Any:
    """Accuracy by rule, a group of bars for each cell."""
    picture = figures.figure(8, 3.6)
    panel = picture.subplots()
    for place, rule in enumerate(RULES):
        values = [judged(rows, cell, rule) for cell in cells]
        heights = [v.mean() if len(v) else np.nan for v in values]
        spreads = [v.std(ddof=1) if len(v) > 1 else 0 for v in values]
        panel.bar(np.arange(len(cells)) + 0.27 * (place - 1), heights, 0.25, yerr=spreads, label=rule)
    panel.set_xticks(range(len(cells)), [f"epsilon {e:g}\n{d} releases" for e, d in cells])
    panel.set(ylabel="accuracy, percent", ylim=(50, 64), title="Readmission, one model released after each day")
    panel.legend(fontsize=8)
    return picture


def main() -> None:
    """Read the options."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, help="the folder of the data sets; else BURSAR_DATA")
    parser.add_argument("--out", type=Path, help="where runs and page are written; else beside this file, and docs")
    parser.add_argument("--seeds", type=int, default=SEEDS)
    parser.add_argument("--quick", action="store_true", help="2,000 patients, one cell, two settings, one seed")
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
    path = (given.out or HERE) / "runs.jsonl"
    cells = ((1.0, 20),) if given.quick else CELLS
    if not given.plot:
        data, order = loaded(given.data)
        made: dict[int, Days] = {}

        def days_of(count: int) -> Days:
            if count not in made:
                made[count] = cut(data, order, count, 2000 if given.quick else None)
            return made[count]

        quick = {"tuning_seeds": 1, "seeds": 1, "grid": 2}
        fill(path, days_of, cells, **(quick if given.quick else {"tuning_seeds": TUNING_SEEDS, "seeds": given.seeds}))
    rows = recorded(path)
    print(table(rows, cells))
    docs = pages.DOCS if given.out is None else given.out
    pages.save("training-streams", summary(rows, cells), table(rows, cells), draw(rows, cells), docs)
    (docs / "training-streams.json").replace(docs / "streams.json")


def loaded(given: Path | None) -> tuple[Data, Any]:
    """The data, and the rows to learn from in the order of their encounters' numbers."""
    data = diabetes130(given)
    encounters, patients, again = numbers(given)
    aside = np.random.default_rng(0).random(patients.max() + 1) < 0.2
    train = ~aside[patients]
    halves = np.random.default_rng(1).integers(0, 2, patients.max() + 1)[patients[~train]]
    data.groups_test["half"] = halves
    if not (np.array_equal(data.y > 0, again[train]) and np.array_equal(data.y_test > 0, again[~train])):
        raise SystemExit("diabetes130: the rows are not those that were expected")
    return data, np.argsort(encounters[train], kind="stable")


if __name__ == "__main__":
    main()
