"""The figure of Whitehouse et al. (2023): odometers over 100 rounds of 0.1-DP, with the drift that their poster omits.

    python experiments/whitehouse_2023/odometers.py

Prints the bounds after 10 and 100 rounds, and writes odometers.json and odometers.png beside this file; takes about ten
seconds.
"""

import json
from pathlib import Path

from bursar import mechanisms, odometers
from bursar.compare import Bound, Comparison, optimum
from bursar.curves import approximate, renyi, zcdp
from bursar.report.odometers import draw

HERE = Path(__file__).parent
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


def main() -> None:
    """Compute, write, plot, and print the last round."""
    table = comparison()
    (HERE / "odometers.json").write_text(json.dumps(table.as_dict()) + "\n", encoding="utf-8")
    draw(table, HERE / "odometers.png", title=f"{ROUNDS} rounds of {EPSILON}-DP, delta = {DELTA:g}")
    for bound in table.bounds:
        print(f"{bound.name:32} {bound.promise:9} {bound.epsilons[9]:8.4f} {bound.epsilons[-1]:8.4f}")


if __name__ == "__main__":
    main()
