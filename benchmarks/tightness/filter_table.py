"""Count the rounds that every filter admits, and the one that is recommended: the table of docs/filters.md.

python benchmarks/tightness/filter_table.py [--quick] [--grid FILE]

Prints a Markdown table in about two minutes; --quick prints three rows. --grid checks `filters.recommend` on the grid
of benchmarks/tightness/planned_rounds.py instead, which wrote FILE: the least part of the fixed number that it admits,
and how many points there are.
"""

import argparse
import json
import math
from pathlib import Path

import numpy as np

from almoner import filters, mechanisms
from almoner.accounting import calibrate
from almoner.curves import losses
from almoner.errors import ArgumentError, CalibrationFailed, Unsupported
from almoner.mechanisms import Composed, Gaussian, Laplace, Mechanism, Pure, Repeated, SampledGaussian

DELTA = 1e-5
ROWS: tuple[tuple[str, Mechanism, float], ...] = (
    ("noise 0.6, rate 0.001", SampledGaussian(0.6, 1.0, 0.001), 1.0),
    ("noise 0.8, rate 0.001", SampledGaussian(0.8, 1.0, 0.001), 1.0),
    ("noise 0.8, rate 0.01", SampledGaussian(0.8, 1.0, 0.01), 2.0),
    ("noise 1, rate 0.01", SampledGaussian(1.0, 1.0, 0.01), 2.0),
    ("noise 1, rate 0.01", SampledGaussian(1.0, 1.0, 0.01), 8.0),
    ("noise 2, rate 0.01", SampledGaussian(2.0, 1.0, 0.01), 1.0),
    ("noise 4, rate 0.1", SampledGaussian(4.0, 1.0, 0.1), 1.0),
    ("noise 2, rate 0.001", SampledGaussian(2.0, 1.0, 0.001), 1.0),
    ("Gaussian, noise 20", Gaussian(20.0), 1.0),
    ("Laplace, scale 20", Laplace(20.0), 1.0),
    ("pure, epsilon 0.01", Pure(0.01), 1.0),
    ("pure, epsilon 0.5", Pure(0.5), 2.0),
    ("ten sampled (noise 1, rate 0.01), one Laplace (scale 20)",
     Composed((Repeated(SampledGaussian(1.0, 1.0, 0.01), 10), Laplace(20.0))), 2.0),
)  # fmt: skip
QUICK = (2, 10, 11)


def admitted(make: object, plan: Mechanism) -> int | None:
    """Rounds of the plan that a filter admits; None where it has no price for them."""
    try:
        return calibrate.steps(make(), plan)  # type: ignore[operator]
    except ArgumentError:
        return 0
    except (Unsupported, CalibrationFailed):
        return None


def fixed(plan: Mechanism, epsilon: float, guess: int) -> int:
    """The largest number whose certified epsilon fits, were everything fixed in advance; at least the guess."""
    leaves = mechanisms.leaves(plan)

    def fits(rounds: int) -> bool:
        counts = np.array([[rounds * count for count in leaves.values()]])
        return float(losses.epsilons(counts, list(leaves), delta=DELTA)[0]) <= epsilon

    rounds = guess
    while fits(rounds + max(1, rounds // 1000)):
        rounds += max(1, rounds // 1000)
    return rounds


def row(name: str, plan: Mechanism, epsilon: float) -> list[str]:
    """One line of the table."""
    budget = {"epsilon": epsilon, "delta": DELTA}
    chosen = filters.recommend(**budget, plan=plan).budget
    counts = [
        admitted(lambda: filters.Planned(plan, **budget), plan),
        admitted(lambda: filters.Residue(**budget), plan),
        admitted(lambda: filters.Renyi(**budget, plan=plan), plan),
        admitted(lambda: filters.Renyi(**budget), plan),
        admitted(lambda: filters.Zcdp(**budget), plan),
        admitted(lambda: filters.Gaussian(**budget), plan),
    ]
    best = fixed(plan, epsilon, max(count or 0 for count in counts))
    cells = ["" if count is None else f"{count:,}" for count in [best, *counts]]
    return [name, f"{epsilon:g}", *cells, type(chosen).__name__]


HEAD = [
    "plan",
    "epsilon",
    "fixed in advance",
    "Planned",
    "Residue",
    "Renyi, plan",
    "Renyi",
    "Zcdp",
    "Gaussian",
    "recommended",
]


def grid(file: Path) -> dict[str, float]:
    """The least part of the fixed number that the recommended filter admits, on a grid that was measured."""
    least, points = math.inf, 0
    for line in file.read_text(encoding="utf-8").splitlines():
        point = json.loads(line)
        if not point["fixed"] or point["fixed"] > 10**6:
            continue
        step = mechanisms.gaussian_step(point["noise"], 1.0, point["rate"])
        budget = filters.recommend(epsilon=point["epsilon"], delta=point["delta"], plan=step).budget
        count = budget.left if isinstance(budget, filters.Planned) else calibrate.steps(budget, step)
        part = count / point["fixed"]
        least, points = min(least, part), points + 1
        if part < 0.995:
            print(json.dumps({**point, "recommended": type(budget).__name__, "part": part}), flush=True)
    return {"points": points, "least part": least}


def main() -> None:
    """Print the table, or the check on the grid."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--grid", type=Path, metavar="FILE")
    chosen = parser.parse_args()
    if chosen.grid:
        print(json.dumps(grid(chosen.grid)))
        return
    print(f"| {' | '.join(HEAD)} |\n|{'---|' * len(HEAD)}")
    for number, each in enumerate(ROWS):
        if not chosen.quick or number in QUICK:
            print(f"| {' | '.join(row(*each))} |", flush=True)


if __name__ == "__main__":
    main()
