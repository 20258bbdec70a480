"""Feldman & Zrnic (2021), section 5.1: which size Delta the filters of their odometer should have.

    python experiments/feldman_zrnic_2021/restarts.py            # a second
    python experiments/feldman_zrnic_2021/restarts.py --quick    # few sizes; nothing is written

Algorithm 5 opens filters of size Delta one after the other, and says (number opened) times Delta. A large Delta is
coarse: the filter that is open counts whole. A small one is loose: what a full filter has left over is lost at every
restart. Shows the reading over Delta for people with different contributions to the run of MNIST at 0.3 (noise 170,
order 63, 125 steps), and where ``FeldmanZrnic.for_plan`` puts Delta. Nothing is random, and no data are read.
"""

import argparse
import sys
from math import sqrt
from pathlib import Path

import numpy as np

from almoner import mechanisms, odometers
from almoner.report.figures import figure, styled

sys.path.append(str(Path(__file__).parents[1]))
import pages

DELTA, ALPHA, SIGMA, STEPS = 1e-5, 63.0, 170.0, 125
LARGEST = ALPHA / (2 * SIGMA**2)
"""Price of a full contribution to one round; the paper's Delta, 0.00109."""


def people(steps=STEPS):
    """Name -> (steps,) share of a full contribution's price that this person pays in each round."""
    rounds = np.arange(steps)
    return {
        "all of the clip": np.ones(steps),
        "0.6 of its price": np.full(steps, 0.6),
        "0.1 of its price": np.full(steps, 0.1),
        "learned early: from 1 to 0.002": np.maximum(0.002, np.exp(-rounds / 20)),
    }


def reading(shares, size):
    """The RDP that Algorithm 5 says after all rounds; sizes below a full contribution are refused."""
    odometer = odometers.FeldmanZrnic(delta=DELTA, alpha=ALPHA, step=size)
    odometer.check(mechanisms.Gaussian(SIGMA))
    for share in shares:
        odometer.charge(mechanisms.Gaussian(SIGMA, sqrt(share)))
    return {"filters": odometer.filters, "rdp": odometer.total, "epsilon": odometer.epsilon()}


def chosen():
    """The sizes to compare, by name: the paper's, and those for the plan, by the share that people use of it."""
    plan, kind = mechanisms.Repeated(mechanisms.Gaussian(SIGMA), STEPS), odometers.FeldmanZrnic
    found = {"one round, the paper's": LARGEST * (1 + 1e-9)}
    for share in (1.0, 0.1):
        made = kind.for_plan(plan, delta=DELTA, share=share).state()["parameters"]
        found[f"for_plan, share {share:g}"] = made["step"] * ALPHA / made["alpha"]  # at the order of this page
    return found | {"the whole plan": STEPS * LARGEST * (1 + 1e-9)}


def compare(points):
    """The readings over a grid of sizes and at the chosen ones, for each person."""
    grid = LARGEST * (1 + 1e-9) * np.geomspace(1, STEPS, points)
    result = {"sizes": [float(size) for size in grid], "chosen": chosen(), "people": {}}
    for name, shares in people().items():
        paid = float(LARGEST * np.sum(shares))
        result["people"][name] = {
            "paid": paid,
            "grid": [reading(shares, size)["rdp"] for size in grid],
            "at": {each: reading(shares, size) for each, size in result["chosen"].items()},
        }
    return result


def table(result):
    """A row a person: the sum paid, and the odometer's readings at the chosen sizes."""
    names = list(result["chosen"])
    sizes = " | ".join(f"{name} ({size:.5f})" for name, size in result["chosen"].items())
    lines = [
        f"| contribution to each round | paid, RDP | {sizes} | least, at Delta |",
        "|---" * (4 + len(names) - 1) + "|",
    ]
    for name, one in result["people"].items():
        cells = [f"{found['rdp']:.4f} ({found['filters']})" for found in (one["at"][each] for each in names)]
        best = int(np.argmin(one["grid"]))
        least = f"{one['grid'][best]:.4f}, {result['sizes'][best]:.5f}"
        lines.append(f"| {name} | {one['paid']:.4f} | {' | '.join(cells)} | {least} |")
    return "\n".join(lines) + "\n"


@styled()
def picture(result):
    """The reading over the size, as a multiple of what was paid."""
    image = figure(9, 5)
    panel = image.subplots()
    for name, one in result["people"].items():
        panel.plot(result["sizes"], np.asarray(one["grid"]) / one["paid"], label=f"{name}: paid {one['paid']:.3g}")
    for place, (name, size) in enumerate(result["chosen"].items()):
        panel.axvline(size, linewidth=0.8, color="gray")
        panel.annotate(name, (size, 0.98 - 0.05 * (place % 2)), xycoords=("data", "axes fraction"), rotation=0,
                       ha="left" if place < 3 else "right", va="top", fontsize=8)  # fmt: skip
    panel.set(xscale="log", yscale="log", ylim=(0.95, 12), xlabel="Delta, the size of a filter (RDP of order 63)")
    panel.set_yticks([1, 1.5, 2, 3, 5, 10], ["1", "1.5", "2", "3", "5", "10"])
    panel.set_ylabel("what the odometer says, in multiples of what was paid")
    panel.legend(loc="center left", fontsize=8)
    return image


def main():
    """Compare, and save; print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="few sizes; nothing is written")
    parser.add_argument("--out", type=Path, default=pages.DOCS)
    given = parser.parse_args()
    result = compare(5 if given.quick else 120)
    if not given.quick:
        pages.save("odometer-sizes", result, table(result), picture(result), out=given.out)
    print(table(result))


if __name__ == "__main__":
    main()
