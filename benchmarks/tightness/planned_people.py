"""Compute how many steps a person can take part in with a planned account: a table of docs/individual.md.

python benchmarks/tightness/planned_people.py

Takes half a minute. Prints one JSON object: steps at each norm, and the seconds (of the processor) that a table took.
"""

import json
import time

import numpy as np

from almoner import filters, individual, mechanisms

DELTA = 1e-5
PLANS = ((0.001, 0.8, 1.0), (0.005, 2.0, 1.0), (0.01, 1.0, 2.0))  # sample rate, sigma, epsilon
NORMS = (1.0, 0.9, 0.7, 0.5, 0.2)


def most(accounts: individual.Filter, step: mechanisms.Mechanism, norm: float, high: int = 2**26) -> int:
    """The largest number of steps that fits, by bisection."""
    low = 0
    while high - low > 1:
        middle = (low + high) // 2
        fits = accounts.admits(mechanisms.Repeated(step, middle), np.array([norm]))[0]
        low, high = (middle, high) if fits else (low, middle)
    return low


def main() -> None:
    """Measure and print."""
    measured = {}
    for rate, sigma, epsilon in PLANS:
        step = mechanisms.SampledGaussian(sigma, 1.0, rate)
        accounts = individual.Filter(1, filters.Planned(step, epsilon=epsilon, delta=DELTA))
        start = time.process_time()
        accounts.admits(step, np.ones(1))
        seconds = time.process_time() - start
        steps = {norm: most(accounts, step, norm) for norm in NORMS}
        measured[f"q={rate}, sigma={sigma}, epsilon={epsilon}"] = {"steps": steps, "table, s": round(seconds, 2)}
    print(json.dumps(measured, indent=1))


if __name__ == "__main__":
    main()
