"""Count the steps of DP-SGD that filters admit, and what bounds for fixed parameters allow: a table and a figure.

python benchmarks/tightness/adaptive_steps.py         # counts, and writes docs/experiments/adaptive_steps.json
python benchmarks/tightness/adaptive_steps.py --draw  # draws docs/experiments/adaptive_steps.svg from it, prints
                                                        # the table of docs/residue.md

Sampled Gaussian steps at rate 0.01, epsilon = 1, delta = 1e-5. The central limit theorem's number is what
mu = q sqrt(n (exp(1 / sigma^2) - 1)) allows (Bu, Dong, Long & Su 2020): an approximation and no bound.
"""

import json
import sys
from math import expm1, floor
from pathlib import Path

import numpy as np

from almoner import filters, mechanisms
from almoner.accounting import calibrate
from almoner.curves import gaussian, losses
from almoner.report import figures

EPSILON, DELTA, RATE = 1.0, 1e-5, 0.01
SIGMAS = (1.0, 1.25, 1.5, 2.0, 2.5, 3.0, 4.0)
FOLDER = Path(__file__).parents[2] / "docs" / "experiments"
NAMES = {
    "fixed": "fixed in advance, certified",
    "planned": "filters.Planned, certified",
    "residue": "filters.Residue, certified",
    "renyi": "filters.Renyi, proven",
    "clt": "central limit theorem, not certified",
}


def fixed(step: mechanisms.Mechanism) -> int:
    """The most steps whose certified epsilon is at most EPSILON, if their number is fixed in advance."""
    few, many = 0, 1
    while fits(step, many):
        few, many = many, 2 * many
    while many - few > 1:
        middle = (few + many) // 2
        few, many = (middle, many) if fits(step, middle) else (few, middle)
    return few


def fits(step: mechanisms.Mechanism, steps: int) -> bool:
    """Whether so many steps are certified at (EPSILON, DELTA)."""
    return bool(losses.epsilons(np.array([[steps]]), [step], delta=DELTA)[0] <= EPSILON)


def clt(sigma: float) -> int:
    """What the central limit theorem allows; no bound."""
    return floor(gaussian.mu(epsilon=EPSILON, delta=DELTA) ** 2 / (RATE**2 * expm1(1 / sigma**2)))


def count() -> list[dict[str, float]]:
    """One row for each sigma."""
    rows = []
    for sigma in SIGMAS:
        step = mechanisms.SampledGaussian(sigma, 1.0, RATE)
        rows.append(
            {
                "sigma": sigma,
                "fixed": fixed(step),
                "planned": filters.Planned(step, epsilon=EPSILON, delta=DELTA).left,
                "residue": calibrate.steps(filters.Residue(epsilon=EPSILON, delta=DELTA), step),
                "renyi": calibrate.steps(filters.Renyi(epsilon=EPSILON, delta=DELTA), step),
                "clt": clt(sigma),
            }
        )
        print(rows[-1], flush=True)
    return rows


def table(rows: list[dict[str, float]]) -> list[str]:
    """The lines of the table in Markdown."""
    lines = ["| sigma | " + " | ".join(NAMES.values()) + " |", "|---:" * (1 + len(NAMES)) + "|"]
    return lines + [f"| {row['sigma']:g} | " + " | ".join(f"{int(row[key]):,}" for key in NAMES) + " |" for row in rows]


@figures.styled()
def draw(rows: list[dict[str, float]]) -> None:
    """Each number as a share of what is certified for a number of steps fixed in advance."""
    picture = figures.figure(7, 4.5)
    panel = picture.subplots()
    for key, name in NAMES.items():
        shares = [row[key] / row["fixed"] for row in rows]
        style = {"clt": ":"}.get(key, "-")
        panel.plot([row["sigma"] for row in rows], shares, style, marker=".", label=name)
    panel.set(xlabel="noise multiplier sigma", ylabel="steps, as a share of those fixed in advance", ylim=(0, None))
    panel.set_title(f"rate {RATE:g}, epsilon = {EPSILON:g}, delta = {DELTA:g}")
    panel.legend()
    figures.save(picture, FOLDER / "adaptive_steps.svg")


if __name__ == "__main__":
    recorded = FOLDER / "adaptive_steps.json"
    if "--draw" in sys.argv:
        rows = json.loads(recorded.read_text(encoding="utf-8"))
        draw(rows)
        print("\n".join(table(rows)))
    else:
        recorded.write_text(json.dumps(count(), indent=1) + "\n", encoding="utf-8")
