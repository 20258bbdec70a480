"""docs/experiments/utility.md, .json and .svg from the recorded runs of images.py and tables.py.

python experiments/utility/utility_page.py
"""

import argparse
import sys
from math import sqrt
from pathlib import Path
from typing import Any

import numpy as np

from almoner.curves import gaussian
from almoner.report import figures

sys.path.append(str(Path(__file__).parents[1]))
import journal
import pages

DELTA, HELD_OUT = 1e-5, 10_000
NAMES = {
    "mnist": "MNIST",
    "fashion_mnist": "Fashion-MNIST",
    "cifar10": "CIFAR-10",
    "adult": "Adult",
    "diabetes130": "diabetes130",
}
PEOPLE = {"mnist": 60_000, "fashion_mnist": 60_000, "cifar10": 50_000}
IMAGES = tuple(PEOPLE)

PUBLISHED = {
    ("mnist", 0.3): [(93.18, "FZ")],
    ("mnist", 0.5): [(94.90, "FZ")],
    ("mnist", 1.2): [(96.56, "FZ")],
    ("mnist", 3.0): [(97.71, "FZ"), (98.70, "TB")],
    ("fashion_mnist", 1.0): [(88.38, "DPSUR")],
    ("fashion_mnist", 3.0): [(89.7, "TB"), (89.71, "DPSUR")],
    ("cifar10", 1.0): [(60.88, "RR"), (72.48, "RandP")],
    ("cifar10", 2.0): [(66.96, "RR")],
    ("cifar10", 3.0): [(67.0, "TB"), (69.3, "TB, CNN"), (70.83, "DPSUR")],
    ("cifar10", 8.0): [(72.40, "RR"), (78.74, "De")],
}
"""Accuracy in percent, and whose: the table of sources on the page says more."""


def of(runs: list[dict[str, Any]], *cell: Any) -> list[dict[str, Any]]:
    """The runs of a stage, data set, epsilon and rule."""
    return [row for row in runs if (row["stage"], row["data"], row["epsilon"], row["rule"]) == cell]


def cell(runs: list[dict[str, Any]], data: str, epsilon: float, rule: str) -> dict[int, float]:
    """Accuracy by seed."""
    return {row["seed"]: row["accuracy"] for row in of(runs, "test", data, epsilon, rule)}


def cells(runs: list[dict[str, Any]]) -> list[tuple[str, float, str]]:
    """Data, epsilon and rule of all test runs, in the order of the page."""
    found = {(row["data"], row["epsilon"], row["rule"]) for row in runs if row["stage"] == "test"}
    order = {rule: place for place, rule in enumerate(("plain", "planned", "paced", "filtered"))}
    return sorted(found, key=lambda each: (list(NAMES).index(each[0]), each[1], order[each[2]]))


def summary(runs: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Mean and standard deviation over seeds."""
    made = []
    for data, epsilon, rule in cells(runs):
        values = list(cell(runs, data, epsilon, rule).values())
        spread = float(np.std(values, ddof=1)) if len(values) > 1 else 0.0
        made.append(
            {
                "data": NAMES[data],
                "epsilon": epsilon,
                "rule": rule,
                "seeds": len(values),
                "mean": round(float(np.mean(values)), 3),
                "std": round(spread, 3),
            }
        )
    return made


def with_tuning(data: str, epsilon: float, tried: int) -> float:
    """Epsilon if every trial were paid for as a release of its own: squared mu of the trials and of the run add up."""
    mu, kept = float(gaussian.mu(epsilon=epsilon, delta=DELTA)), 1 - HELD_OUT / PEOPLE[data]
    return float(gaussian.epsilon(mu * sqrt(1 + tried / kept**2), delta=DELTA))


def table(runs: list[dict[str, Any]]) -> str:
    """Plain descent against published numbers."""
    lines = [
        "| data | epsilon | accuracy, % | seeds | clip, rate, steps | trials | epsilon, trials paid | published, % |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for row, (data, epsilon, rule) in zip(summary(runs), cells(runs), strict=True):
        if rule != "plain" or data not in IMAGES:
            continue
        chosen = of(runs, "test", data, epsilon, rule)[0]["setting"]
        tried = len(of(runs, "tune", data, epsilon, rule))
        published = ", ".join(f"{value:.2f} ({who})" for value, who in PUBLISHED.get((data, epsilon), [])) or "-"
        lines.append(
            f"| {NAMES[data]} | {epsilon:g} | **{row['mean']:.2f}** ± {row['std']:.2f} | {row['seeds']} "
            f"| {chosen['clip']:g}, {chosen['rate']:g}, {chosen['steps']} | {tried} "
            f"| {with_tuning(data, epsilon, tried):.2f} | {published} |"
        )
    return "\n".join(lines) + "\n"


def rules_table(runs: list[dict[str, Any]]) -> str:
    """Paced budgets and Algorithm 8 against plain descent, and against what is planned for as many steps."""
    lines = [
        "| data | epsilon | rule | clip, rate | accuracy, % | seeds | against plain [95 %] | against planned [95 %] "
        "| held-out, one seed |",
        "|---" * 9 + "|",
    ]
    for row, (data, epsilon, rule) in zip(summary(runs), cells(runs), strict=True):
        if not cell(runs, data, epsilon, "paced"):
            continue
        own = cell(runs, data, epsilon, rule)
        plain, planned = (gain(own, cell(runs, data, epsilon, other)) for other in ("plain", "planned"))
        tuned = {each: max_of(runs, data, epsilon, each) for each in ("plain", rule)}
        held_out = "" if rule == "plain" else f"{tuned[rule] - tuned['plain']:+.2f}"
        chosen = of(runs, "test", data, epsilon, rule)[0]["setting"]
        lines.append(
            f"| {NAMES[data]} | {epsilon:g} | {rule} | {chosen['clip']:g}, {chosen['rate']:g} "
            f"| {row['mean']:.2f} ± {row['std']:.2f} | {row['seeds']} | {plain if rule != 'plain' else ''} "
            f"| {planned if rule in ('paced', 'filtered') else ''} | {held_out} |"
        )
    return "\n".join(lines) + "\n"


def gain(own: dict[int, float], other: dict[int, float]) -> str:
    """The mean of differences, paired by seed, with its 95 % interval; nothing where there are none."""
    return pages.interval([own[seed] - other[seed] for seed in own if seed in other])


def bases(runs: list[dict[str, Any]]) -> str:
    """The same features and models without privacy."""
    lines = ["| data | without privacy, the same features and model, % |", "|---|---|"]
    lines += [f"| {NAMES[row['data']]} | {row['accuracy']:.2f} |" for row in runs if row["stage"] == "without privacy"]
    return "\n".join(lines) + "\n"


def max_of(runs: list[dict[str, Any]], data: str, epsilon: float, rule: str) -> float:
    """Accuracy of the best trial on the held-out people of the training file."""
    return float(max(row["accuracy"] for row in of(runs, "tune", data, epsilon, rule)))


@figures.styled()
def draw(runs: list[dict[str, Any]]) -> Any:
    """Accuracy over epsilon, with published numbers."""
    shown = [data for data in IMAGES if any(each[0] == data for each in cells(runs))]
    picture = figures.figure(3.6 * len(shown), 3.4)
    for axes, data in zip(np.atleast_1d(picture.subplots(1, len(shown))), shown, strict=True):
        own = [row for row in summary(runs) if (row["data"], row["rule"]) == (NAMES[data], "plain")]
        axes.plot([row["epsilon"] for row in own], [row["mean"] for row in own], "o-", label="this page")
        others = [(epsilon, value) for (name, epsilon), each in PUBLISHED.items() if name == data for value, _ in each]
        axes.plot(*zip(*others, strict=True), "x", color=figures.INK, label="published")
        axes.set(xlabel="epsilon (delta 1e-5)", title=NAMES[data], xscale="log")
        axes.set_xticks(sorted({row["epsilon"] for row in own}))
        axes.set_xticklabels([f"{each:g}" for each in sorted({row["epsilon"] for row in own})])
        axes.minorticks_off()
        axes.legend()
    picture.supylabel("accuracy on test images, percent", fontsize=9)
    return picture


def recorded() -> list[dict[str, Any]]:
    """The runs of images.py and of tables.py."""
    files = (pages.RESULTS / f"{name}.jsonl" for name in ("images", "tables"))
    return [run for file in files for run in journal.recorded(file)]


def main() -> None:
    """Make the page's tables, its record and its picture."""
    argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter).parse_args()
    runs = recorded()
    pages.save("utility", summary(runs), table(runs), draw(runs))
    pages.insert(pages.DOCS / "utility.md", rules_table(runs), "rules")
    pages.insert(pages.DOCS / "utility.md", bases(runs), "without privacy")


if __name__ == "__main__":
    main()
