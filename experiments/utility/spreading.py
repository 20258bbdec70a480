"""What a model becomes when people go on after the planned steps: plain descent, Algorithm 8, and paced budgets.

    python experiments/utility/spreading.py                       # everything on docs/experiments/spreading.md
    python experiments/utility/spreading.py --quick --out FOLDER  # 2,000 people, one seed

Each run is added to experiments/results/spreading.jsonl as soon as it is done; runs that are there are not repeated.
"""

import argparse
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

sys.path += [str(Path(__file__).parents[1]), str(Path(__file__).parents[1] / "koskela_2023")]
import pages
from groups import Data, Settings, adult, diabetes130, part
from journal import record, recorded

from almoner import filters, individual, mechanisms
from almoner.curves import gaussian
from almoner.report import figures
from almoner.training import Descent, LogisticGradients, descend

if TYPE_CHECKING:
    from matplotlib.figure import Figure

DELTA = 1e-5

SETTINGS = {
    "adult": Settings(epsilon=0.3, steps=200, clip=0.5, rate=16.0),
    "diabetes130": Settings(epsilon=0.3, steps=101, clip=0.45, rate=16.0),
}
"""Fixed in advance: nothing was tuned on these runs."""

RULES = {
    "plain": (1.0, 1.0),
    "Algorithm 8, a quarter more": (1.25, 0.0),
    "Algorithm 8, twice as many": (2.0, 0.0),
    "paced, a quarter more": (1.25, 1.0),
    "paced, twice as many": (2.0, 1.0),
    "plain, planned for a quarter more": (1.25, 1.0),
    "plain, planned for twice as many": (2.0, 1.0),
}
"""Steps over planned steps, and the pace. The last two are the controls: their noise is planned for all their steps."""


def run(data: Data, chosen: Settings, rule: str, seed: int) -> dict[str, Any]:
    """Train once: accuracy in percent on the test people after every tenth step, and who is out of budget by label."""
    times, pace = RULES[rule]
    steps, mu = round(times * chosen.steps), gaussian.mu(epsilon=chosen.epsilon, delta=DELTA)
    gradients = LogisticGradients(data.x, data.y, 2, intercept=False, people=data.people)
    accounts = individual.Filter(data.count, filters.Gaussian(mu=mu))
    sigma = chosen.clip * np.sqrt(steps if "planned" in rule else chosen.steps) / mu * (1 + 1e-9)
    curve, out = [], []
    label = data.y if data.people is None else data.y[np.unique(data.people, return_index=True)[1]]

    def look(number: int, parameters: Any) -> None:
        if number % 10 and number != steps:
            return
        right = (np.asarray(data.x_test @ parameters).ravel() > 0) == data.y_test
        curve.append([number, 100 * float(np.mean(right))])
        spent = np.asarray(accounts.left()) < 1e-6 * mu**2
        out.append([number, *(100 * float(np.mean(spent[label == kind])) for kind in (0, 1))])

    descend(
        gradients,
        gradients.start,
        accounts,
        mechanisms.Gaussian(float(sigma), chosen.clip),
        steps=steps,
        learning_rate=chosen.rate,
        divisor=float(data.count),
        noise=np.random.default_rng(seed),
        descent=Descent(average=0.0, momentum=0.0, pace=pace),
        observe=look,
    )
    return {"rule": rule, "seed": seed, "accuracy": curve[-1][1], "curve": curve, "out_of_budget": out}


def missing(path: Path, names: list[str], seeds: int) -> Iterator[tuple[str, str, int]]:
    """The runs that are not recorded yet."""
    done = {(row["data"], row["rule"], row["seed"]) for row in recorded(path)}
    for seed in range(seeds):
        for name in names:
            yield from ((name, rule, seed) for rule in RULES if (name, rule, seed) not in done)


def table(recorded: list[dict[str, Any]]) -> str:
    """Mean accuracy by data and rule, and the difference to plain descent with the same seeds, as Markdown."""
    lines = ["| data | rule | accuracy | against plain [95 % over seeds] |", "|---|---|---|---|"]
    for name in SETTINGS:
        by_rule = {
            rule: {row["seed"]: row["accuracy"] for row in recorded if (row["data"], row["rule"]) == (name, rule)}
            for rule in RULES
        }
        for rule, accuracy in by_rule.items():
            if not accuracy:
                continue
            gain = [accuracy[seed] - by_rule["plain"][seed] for seed in accuracy if seed in by_rule["plain"]]
            against = "" if rule == "plain" else pages.interval(gain)
            lines.append(f"| {name} | {rule} | {np.mean(list(accuracy.values())):.2f} | {against} |")
    return "\n".join(lines)


@figures.styled()
def draw(recorded: list[dict[str, Any]]) -> "Figure":
    """Accuracy over steps on diabetes130, and who is out of budget; the mean over seeds."""
    picture = figures.figure(10, 4.2)
    left, right = picture.subplots(1, 2)
    for rule, style in zip(RULES, ("C2-", "C1-", "C1:", "C0-", "C0:", "C3-", "C3:"), strict=True):
        runs = [row for row in recorded if (row["data"], row["rule"]) == ("diabetes130", rule)]
        left.plot(*np.mean([row["curve"] for row in runs], axis=0).T, style, label=rule)
    left.set(xlabel="step", ylabel="accuracy on test people, percent", title="diabetes130, epsilon 0.3")
    eight = [row for row in recorded if (row["data"], row["rule"]) == ("diabetes130", "Algorithm 8, twice as many")]
    out = np.mean([row["out_of_budget"] for row in eight], axis=0)
    right.plot(out[:, 0], out[:, 1], "C0-", label="label: not readmitted")
    right.plot(out[:, 0], out[:, 2], "C1-", label="label: readmitted")
    right.set(xlabel="step", ylabel="percent of people", title="out of budget under Algorithm 8")
    right.legend()
    picture.legend(*left.get_legend_handles_labels(), loc="outside lower center", ncols=4)
    return picture


def main() -> None:
    """Do what is missing, then print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, help="the folder of the data sets; else ALMONER_DATA")
    parser.add_argument("--out", type=Path, default=pages.RESULTS, help="where runs are recorded")
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--quick", action="store_true", help="2,000 people and one seed")
    given = parser.parse_args()
    path, loaded = given.out / "spreading.jsonl", {}
    for name, rule, seed in missing(path, list(SETTINGS), 1 if given.quick else given.seeds):
        if name not in loaded:
            data = {"adult": adult, "diabetes130": diabetes130}[name](given.data)
            loaded[name] = part(data, 2000) if given.quick else data
        row = {"data": name, **run(loaded[name], SETTINGS[name], rule, seed)}
        record(path, row)
        print(name, rule, seed, f"{row['accuracy']:.2f}", flush=True)
    pages.save_picture(draw(recorded(path)), "spreading", pages.DOCS if given.out == pages.RESULTS else given.out)
    print(table(recorded(path)))


if __name__ == "__main__":
    main()
