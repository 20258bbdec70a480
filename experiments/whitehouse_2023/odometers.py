"""The figure of Whitehouse et al. (2023): odometers over 100 rounds of 0.1-DP, with the drift that their poster omits.

    python experiments/whitehouse_2023/odometers.py

Prints the bounds after 10 and 100 rounds, and writes whitehouse.json, whitehouse.svg, whitehouse.png and the table of
whitehouse.md in docs/experiments; takes about ten seconds.
"""

import argparse
import sys
from pathlib import Path
from typing import Any

from bursar import mechanisms, odometers
from bursar.compare import Bound, Comparison, optimum
from bursar.curves import approximate, renyi, zcdp
from bursar.report.odometers import draw

sys.path.append(str(Path(__file__).parents[1]))
import pages

SHOWN = (1, 3, 10, 30, 100)
ROUNDS, EPSILON, DELTA, PEOPLE = 100, 0.1, 1e-6, 100_000


def curves() -> dict[str, tuple[str, odometers.Odometer]]:
    """The odometers of the figure, and Bursar's."""
    plan = mechanisms.Repeated(mechanisms.Pure(EPSILON), ROUNDS)
    return {
        "Rogers et al.": ("pathwise", odometers.Rogers(delta=DELTA, people=PEOPLE)),
        "mixture, with drift": ("pathwise", odometers.Mixture(delta=DELTA, sum_delta=0.0, plan=plan)),
        "stitched, with drift": ("pathwise", odometers.Stitched(delta=DELTA, sum_delta=0.0)),
        "Lécuyer": ("pathwise", odometers.Lecuyer(delta=DELTA, sum_delta=0.0)),
        "Rényi": ("pathwise", odometers.Renyi(delta=DELTA, sum_delta=0.0)),
        "Rényi, planned": ("pathwise", odometers.Renyi(delta=DELTA, sum_delta=0.0, plan=plan)),
        "Rényi ": ("ex-post", odometers.Renyi(delta=DELTA, sum_delta=0.0)),
        "Rényi, planned ": ("ex-post", odometers.Renyi(delta=DELTA, sum_delta=0.0, plan=plan)),
    }


def comparison() -> Comparison:
    """Every curve at every round."""
    step, rounds = mechanisms.Pure(EPSILON), tuple(range(1, ROUNDS + 1))
    runs = [mechanisms.Repeated(step, count) for count in rounds]
    bounds = [
        Bound("basic composition", "fixed", tuple(approximate.of(run).epsilon for run in runs)),
        Bound("optimum, rounds fixed in advance", "fixed", tuple(optimum(step, k, DELTA) for k in rounds)),
        Bound("Rényi, rounds fixed in advance", "fixed", tuple(renyi.of(run).epsilon(delta=DELTA) for run in runs)),
        Bound("zCDP, rounds fixed in advance", "fixed", tuple(zcdp.of(run).epsilon(delta=DELTA) for run in runs)),
    ]
    for name, (promise, odometer) in curves().items():
        values = []
        for _ in rounds:
            odometer.charge(step)
            values.append(odometer.epsilon() if promise == "pathwise" else odometer.ex_post_epsilon())
        bounds.append(Bound(name.strip(), promise, tuple(values)))
    return Comparison(step, DELTA, rounds, tuple(bounds))


def table(numbers: dict[str, Any]) -> str:
    """The bounds after some rounds as a Markdown table."""
    lines = [
        "| bound | promise | " + " | ".join(f"{count} round{'s' * (count > 1)}" for count in SHOWN) + " |",
        "|---" * (len(SHOWN) + 2) + "|",
    ]
    for bound in numbers["bounds"]:
        values = " | ".join(f"{bound['epsilons'][count - 1]:.3f}" for count in SHOWN)
        lines.append(f"| {bound['name']} | {bound['promise']} | {values} |")
    return "\n".join(lines) + "\n"


def main() -> None:
    """Compute, write, plot, and print some rounds."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=pages.DOCS)
    out = parser.parse_args().out
    bounds = comparison()
    text = table(bounds.as_dict())
    print(text)
    pages.save("whitehouse", bounds.as_dict(), text, out=out)
    for kind in ("svg", "png"):
        draw(bounds, out / f"whitehouse.{kind}", title=f"{ROUNDS} rounds of {EPSILON}-DP, delta = {DELTA:g}")


if __name__ == "__main__":
    main()
