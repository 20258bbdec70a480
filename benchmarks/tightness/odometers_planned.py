"""Odometers with a plan, against the exact epsilon of as many rounds fixed in advance: a table of docs/odometers.md.

    python benchmarks/tightness/odometers_planned.py

delta = 1e-5. "Renyi" has its defaults, "Renyi, planned" a plan of exactly so many rounds. "Planned" is one odometer
with a plan of 10,000 rounds, "Planned, to the end" has a plan of exactly so many. Each cell: ex-post / pathwise, as
multiples of the exact epsilon.
"""

import numpy as np

from almoner import individual, mechanisms, odometers
from almoner.accounting.compare import optimum

DELTA, ROUNDS = 1e-5, (10, 100, 1_000, 10_000)
STEPS = {
    "sampled Gaussian, z = 1, q = 0.01": mechanisms.SampledGaussian(1.0, 1.0, 0.01),
    "sampled Gaussian, z = 0.8, q = 0.001": mechanisms.SampledGaussian(0.8, 1.0, 0.001),
    "pure, epsilon = 0.01": mechanisms.Pure(0.01),
}


def exact(step: mechanisms.Mechanism, rounds: int) -> float:
    """The certified epsilon of so many rounds fixed in advance."""
    if isinstance(step, mechanisms.Pure):
        return optimum(step, rounds, DELTA)
    return float(individual.losses(np.array([[rounds]]), (step,), delta=DELTA)[0])


def lines() -> list[str]:
    """The lines of the table in Markdown."""
    table = [
        "| round | rounds | exact, fixed | Renyi | Renyi, planned | Planned | Planned, to the end |",
        "| --- | ---: | ---: | ---: | ---: | ---: | ---: |",
    ]
    for name, step in STEPS.items():
        whole, before = odometers.Planned(mechanisms.Repeated(step, ROUNDS[-1]), delta=DELTA), 0
        for rounds in ROUNDS:
            run = mechanisms.Repeated(step, rounds)
            whole.charge(mechanisms.Repeated(step, rounds - before))
            others = (
                odometers.Renyi(delta=DELTA),
                odometers.Renyi(delta=DELTA, plan=run),
                whole,
                odometers.Planned(run, delta=DELTA),
            )
            cells, before, epsilon = [], rounds, exact(step, rounds)
            for odometer in others:
                if odometer is not whole:
                    odometer.charge(run)
                cells.append(f"{odometer.ex_post_epsilon() / epsilon:.2f} / {odometer.epsilon() / epsilon:.2f}")
            table.append(f"| {name} | {rounds:,} | {epsilon:.4g} | {' | '.join(cells)} |")
    return table


if __name__ == "__main__":
    print("\n".join(lines()))
