"""Measure how often simulated adversaries exceed each odometer, at delta = 0.05: a table of docs/odometers.md.

    python benchmarks/tightness/crossings.py

The adversaries are those of tests/helpers/odometer_adversaries.py, with 20,000 runs of 250 rounds for each of three
strategies. The table shows the worst strategy's rate, which must be below delta. Pathwise: the share of runs whose loss
is ever above the bound. Ex-post: E[(1 - e^(bound-L))_+].
"""

import sys
from pathlib import Path

import numpy as np

from almoner import odometers

sys.path.insert(0, str(Path(__file__).parents[2] / "tests" / "helpers"))
from odometer_adversaries import MENUS, POLICIES, TIE, crossings, table

DELTA, ROUNDS, RUNS = 0.05, 250, 20_000
ODOMETERS = {
    "Renyi": lambda: odometers.Renyi(delta=DELTA),
    "Renyi, planned": lambda: odometers.Renyi(delta=DELTA, plan=1.0, sum_delta=0.0),
    "Gaussian": lambda: odometers.Gaussian(delta=DELTA),
    "Gaussian, planned": lambda: odometers.Gaussian(delta=DELTA, plan=1.0),
    "Line": lambda: odometers.Line(delta=DELTA, plan=1.0),
    "Mixture": lambda: odometers.Mixture(delta=DELTA),
    "Stitched": lambda: odometers.Stitched(delta=DELTA, start=0.01),
    "Lecuyer": lambda: odometers.Lecuyer(delta=DELTA),
    "Rogers": lambda: odometers.Rogers(delta=DELTA, people=1000),
}
ANY = ("Renyi", "Renyi, planned", "Lecuyer")


def worst(name: str, menu: str, *, ex_post: bool) -> float:
    """The largest rate of the three strategies."""
    bounds, rates = table(ODOMETERS[name](), MENUS[menu], ROUNDS, ex_post=ex_post), []
    for seed, policy in enumerate(POLICIES.values()):
        loss, bound = crossings(bounds, MENUS[menu], policy, ROUNDS, RUNS, seed, margin=0.2 if ex_post else 0.0)
        worth = -np.expm1(np.minimum(bound - loss, 0.0)) if ex_post else loss > bound + TIE
        rates.append(float(np.mean(worth)))
    return max(rates)


def main() -> None:
    """Print the table in Markdown."""
    print("| odometer | " + " | ".join(menu.replace("_", " ") for menu in MENUS) + " |")
    print("| --- |" + " ---: |" * len(MENUS))
    for name in ODOMETERS:
        cells = []
        for menu in MENUS:
            if menu in ("sampled", "left_out") and name not in ANY:
                cells.append("")
                continue
            rates = [worst(name, menu, ex_post=False)]
            if name.split(",")[0] in ("Renyi", "Gaussian", "Line"):
                rates.append(worst(name, menu, ex_post=True))
            cells.append(" / ".join(f"{rate:.3f}" for rate in rates))
        print(f"| {name} | " + " | ".join(cells) + " |", flush=True)


if __name__ == "__main__":
    main()
