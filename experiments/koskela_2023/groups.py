"""Koskela, Tobaben & Honkela (2023), section 6: what individual filtering does to groups, and at other clips.

    python experiments/koskela_2023/groups.py              # everything: some minutes on one core
    python experiments/koskela_2023/groups.py --quick      # 3000 people, 2 seeds: for continuous integration

1. Adult (by sex and race) and diabetes130 (by race and age; a patient is one person with all encounters): losses,
   accuracies and mean spends of each group when filtering starts (the first budget is used up) and at the end.
   Filtering continues for one and a half times the steps that each person can pay for at the full clip.
2. Adult with filtering (1.25 to 4 times the steps) against plain private gradient descent, at 0.5 to 5 times the best
   clip.

Prints the tables, and writes them to docs/experiments/groups.md. The paper uses MIMIC-III, which needs a licence
(`mimic.py` reads it); this script uses open data. The noise is seeded (a seed repeats a run on the same machine with
the same versions; elsewhere numbers differ within the spread of the seeds), and numbers by group are printed. For
private data neither may be done.
"""

import argparse
import gzip
import json
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from almoner import filters, individual, mechanisms
from almoner.curves import gaussian
from almoner.training import Descent, Everybody, LogisticGradients, descend, tables
from almoner.training.tables import Schema

sys.path.append(str(Path(__file__).parents[1]))
import pages
from data_sets import folder
from group_reports import Audience, GroupWatch, linear_measure

HERE, DOCS = Path(__file__).parent, pages.DOCS
DELTA = 1e-5
MULTIPLES = (0.5, 0.75, 1.0, 1.5, 2.0, 3.0, 5.0)
CLIPS = (0.125, 0.25, 0.35, 0.5, 0.7, 1.0)  # no gradient exceeds 1, so a larger clip only adds noise
LONGER = (1.25, 2.0, 4.0)


@dataclass(frozen=True)
class Data:
    """Training and test records of people."""

    x: Any
    y: Any
    """(rows,) labels, or (rows, labels) of 0 and 1."""
    people: Any
    """Whose each row is, or None where each row is a person."""
    x_test: Any
    y_test: Any
    groups: dict[str, Any]
    """Attribute -> the group of each person to learn from."""
    groups_test: dict[str, Any]
    """Attribute -> the group of each row to judge by."""

    @property
    def count(self) -> int:
        """The number of people in the training records."""
        return len(self.y) if self.people is None else int(self.people.max()) + 1


@dataclass(frozen=True)
class Settings:
    """How a model is trained. Rates are for the sum of clipped gradients over the number of people."""

    epsilon: float = 1.0
    steps: int = 200
    clip: float = 0.5
    rate: float = 16.0
    last: int = 300
    """Steps with filtering; plain gradient descent ends after `steps`."""

    def step(self) -> mechanisms.Gaussian:
        """One step, such that the planned number of steps at the full clip costs the whole budget."""
        mu = gaussian.mu(epsilon=self.epsilon, delta=DELTA)
        sigma = self.clip * np.sqrt(self.steps) / mu * (1 + 1e-9)
        return mechanisms.Gaussian(sigma=float(sigma), sensitivity=self.clip)


def adult(given: Path | None = None) -> Data:
    """Adult with plain features; by sex and race."""
    place, known = folder("adult", given), Schema.read(HERE.parent / "feldman_zrnic_2021" / "plain.toml")
    train = tables.read(place / "adult.data", known)
    test = tables.read(place / "adult.test", known, skip_rows=1)
    groups, groups_test = ({name: text(table, name) for name in ("sex", "race")} for table in (train, test))
    x, x_test = tables.encode(train, known), tables.encode(test, known)
    return Data(x, tables.labels(train, known), None, x_test, tables.labels(test, known), groups, groups_test)


def diabetes130(given: Path | None = None) -> Data:
    """Encounters of patients with diabetes; a fifth of the patients for testing; by race and (first) age."""
    known = Schema.read(HERE / "diabetes130.toml")
    with tempfile.TemporaryDirectory() as unpacked:
        path = Path(unpacked) / "diabetic_data.csv"
        path.write_bytes(gzip.decompress((folder("diabetes130", given) / "diabetic_data.csv.gz").read_bytes()))
        table = tables.read(path, known)
    x, y = tables.encode(table, known), tables.labels(table, known)
    people = np.unique(tables.owners(table, known), return_inverse=True)[1]
    aside = np.random.default_rng(0).random(people.max() + 1) < 0.2
    train = ~aside[people]
    _, first, renumbered = np.unique(people[train], return_index=True, return_inverse=True)
    labels = {"race": text(table, "race"), "age": ages(text(table, "age"))}
    return Data(
        x[train],
        y[train],
        renumbered,
        x[~train],
        y[~train],
        {name: values[train][first] for name, values in labels.items()},
        {name: values[~train] for name, values in labels.items()},
    )


def text(table: Any, name: str) -> Any:
    """A column as text, with missing entries named."""
    return np.array([entry or "not known" for entry in table[name].to_pylist()])


def ages(decades: Any) -> Any:
    """Decades in four groups."""
    return np.array(["under 40" if d < "[40" else d[1:3] + "s" if d < "[70" else "70 and over" for d in decades])


def part(data: Data, people: int) -> Data:
    """The first people with all their rows, and as many test rows."""
    rows = slice(people) if data.people is None else np.flatnonzero(data.people < people)
    return replace(
        data,
        x=data.x[rows],
        y=data.y[rows],
        people=None if data.people is None else data.people[rows],
        x_test=data.x_test[:people],
        y_test=data.y_test[:people],
        groups={name: labels[:people] for name, labels in data.groups.items()},
        groups_test={name: labels[:people] for name, labels in data.groups_test.items()},
    )


def by_group(data: Data, chosen: Settings, seed: int) -> list[dict[str, Any]]:
    """Losses, accuracies and spends by group, when filtering starts and at the end."""
    budget = filters.Gaussian(epsilon=chosen.epsilon, delta=DELTA)
    accounts = individual.Filter(data.count, budget)
    train = Audience(data.groups, linear_measure(data.x, data.y, intercept=False, people=data.people))
    test = Audience(data.groups_test, linear_measure(data.x_test, data.y_test, intercept=False))
    watch = GroupWatch(train, lambda: accounts.spent() / budget.mu**2, steps=chosen.last, test=test)
    _descend(data, accounts, chosen, chosen.last, seed, observe=watch.look)
    return watch.report().rows


def accuracy(data: Data, chosen: Settings, seed: int, *, filtered: bool, average: float = 0.5) -> float:
    """Percent correct on the test rows, with the mean of the second half of the iterates."""
    budget = filters.Gaussian(epsilon=chosen.epsilon, delta=DELTA)
    accounts = individual.Filter(data.count, budget) if filtered else Everybody(data.count, budget)
    steps = chosen.last if filtered else chosen.steps
    found = _descend(data, accounts, chosen, steps, seed, average=average)
    _, right = linear_measure(data.x_test, data.y_test, intercept=False)(found)
    return 100 * float(np.mean(right))


def _descend(
    data: Data, accounts: Any, chosen: Settings, steps: int, seed: int, *, average: float = 0.0, observe: Any = None
) -> Any:
    people = LogisticGradients(data.x, data.y, 2, intercept=False, people=data.people)
    return descend(
        people,
        people.start,
        accounts,
        chosen.step(),
        steps=steps,
        learning_rate=chosen.rate,
        divisor=data.count,
        noise=np.random.default_rng(seed),
        descent=Descent(average=average, momentum=0.0, pace=0.0),  # Feldman and Zrnic's Algorithm 8
        observe=observe,
    )


def averaged(runs: list[list[dict[str, Any]]]) -> list[dict[str, Any]]:
    """The mean of the rows of several seeds; a run in which filtering did not start has no row for it."""
    found: dict[tuple[str, ...], list[dict[str, Any]]] = {}
    for row in (row for run in runs for row in run):
        found.setdefault(tuple(row[k] for k in ("audience", "attribute", "group", "moment")), []).append(row)
    return [
        same[0]
        | {key: float(np.mean([row[key] for row in same])) for key in same[0] if isinstance(same[0][key], float)}
        for same in found.values()
    ]


def group_table(name: str, rows: list[dict[str, Any]]) -> str:
    """One line for each group: when filtering starts -> at the end."""
    lines = [
        f"**{name}**",
        "",
        "| attribute | group | people | share of the budget used | nothing left, % | loss (train) | "
        "accuracy (train), % | loss (test) | accuracy (test), % |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    at = {(r["audience"], r["attribute"], r["group"], r["moment"]): r for r in rows}
    for audience, attribute, group, moment in at:
        if audience == "train" and moment == "end":
            both = [
                [at.get((who, attribute, group, when), {}) for when in ("filtering starts", "end")]
                for who in ("train", "test")
            ]
            cells = [_arrow(both[0], "share", "{:.2f}"), _arrow(both[0], "used_up", "{:.1f}", 100)]
            for pair in both:
                cells += [_arrow(pair, "loss", "{:.3f}"), _arrow(pair, "accuracy", "{:.1f}", 100)]
            lines.append(f"| {attribute} | {group} | {both[0][1]['people']} | " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n"


def _arrow(pair: list[dict[str, Any]], key: str, form: str, times: float = 1.0) -> str:
    return " → ".join(form.format(times * row[key]) if key in row else "-" for row in pair)


def best_clip(data: Data, chosen: Settings, clips: tuple[float, ...]) -> float:
    """The clip at which plain gradient descent is best on a held-out fifth of the training people."""
    rows = np.random.default_rng(1).random(data.count) < 0.2
    fold = replace(data, x=data.x[~rows], y=data.y[~rows], x_test=data.x[rows], y_test=data.y[rows])
    score = {c: np.mean([accuracy(fold, replace(chosen, clip=c), s, filtered=False) for s in range(3)]) for c in clips}
    return max(score, key=lambda clip: score[clip])


def clipping(
    data: Data, chosen: Settings, seeds: int, multiples: tuple[float, ...], best: float
) -> list[dict[str, Any]]:
    """Filtered against plain at multiples of the best clip: means, and paired differences with their 95 % intervals."""
    rows = []
    for multiple in multiples:
        now = replace(chosen, clip=multiple * best)
        plain = np.array([accuracy(data, now, seed, filtered=False) for seed in range(seeds)])
        row: dict[str, Any] = {"multiple": multiple, "clip": now.clip, "plain": float(plain.mean()), "filtered": {}}
        for times in LONGER:
            longer = replace(now, last=round(times * now.steps))
            runs = np.array([accuracy(data, longer, seed, filtered=True) for seed in range(seeds)])
            row["filtered"][str(times)] = {
                "mean": float(runs.mean()),
                "difference": float((runs - plain).mean()),
                "half_width": float(pages.half_width(runs - plain)),
            }
        rows.append(row)
        print(f"clip {now.clip:.3g}: done", flush=True)
    return rows


def clip_table(rows: list[dict[str, Any]]) -> str:
    """One line for each clip."""
    heads = " | ".join(f"filtered, {times:g} k, %" for times in LONGER)
    lines = [f"| clip / best | clip | plain GD, % | {heads} |", "|---|---|---|" + "---|" * len(LONGER)]
    for row in rows:
        cells = " | ".join(
            f"{one['mean']:.2f} ({one['difference']:+.2f} ± {one['half_width']:.2f})"
            for one in row["filtered"].values()
        )
        lines.append(f"| {row['multiple']:g} | {row['clip']:.3g} | {row['plain']:.2f} | {cells} |")
    return "\n".join(lines) + "\n"


SETS: dict[str, tuple[str, Callable[[Path | None], Data]]] = {
    "adult": ("Adult", adult),
    "diabetes130": ("Diabetes 130-US hospitals", diabetes130),
}


def experiment(seeds: int, *, quick: bool, given: Path | None) -> dict[str, Any]:
    """Compute all numbers."""
    chosen = Settings(steps=40, last=80) if quick else Settings()
    results: dict[str, Any] = {"seeds": seeds, "epsilon": chosen.epsilon, "delta": DELTA}
    for name, (_, load) in SETS.items():
        data = part(load(given), 3000) if quick else load(given)
        results[name] = averaged([by_group(data, chosen, seed) for seed in range(seeds)])
        print(f"{name}: done", flush=True)
    data = part(adult(given), 3000) if quick else adult(given)
    best = 0.5 if quick else best_clip(data, chosen, CLIPS)
    results["clipping"] = clipping(data, chosen, seeds, (1.0, 5.0) if quick else MULTIPLES, best)
    return results


def main() -> None:
    """Run, print, and save."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="3000 people, 2 seeds, 2 clips")
    parser.add_argument("--page", action="store_true", help="make the tables from the record alone")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--data", type=Path, default=None, help="the folder of the data sets")
    parser.add_argument(
        "--out", type=Path, default=None, help="the folder of groups.json, and of groups.md if it exists"
    )
    given = parser.parse_args()
    if given.page:
        results = json.loads((DOCS / "groups.json").read_text(encoding="utf-8"))
    else:
        results = experiment(2 if given.quick else given.seeds, quick=given.quick, given=given.data)
    found = {name: group_table(title, results[name]) for name, (title, _) in SETS.items()}
    found["clipping"] = clip_table(results["clipping"])
    print("\n".join(found.values()))
    out = given.out or (None if given.quick else DOCS)
    if out is not None:
        out.mkdir(parents=True, exist_ok=True)
        (out / "groups.json").write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")
        for name, table in found.items():
            if (out / "groups.md").is_file():
                pages.insert(out / "groups.md", table, name)


if __name__ == "__main__":
    main()
