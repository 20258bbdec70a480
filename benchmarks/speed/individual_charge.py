"""Time one charge of ten million people, and numpy.add(a, b, out=a) on two int64 arrays of the same size.

python benchmarks/speed/individual_charge.py [--json]

Prints the times of interleaved runs, their ratio, and how much memory a charge allocates, in arrays of that size.
"""

import argparse
import json
import tracemalloc
from statistics import median
from time import perf_counter

import numpy as np

from almoner import filters, individual, mechanisms

PEOPLE, RUNS = 10_000_000, 15


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", action="store_true")
    as_json = parser.parse_args().json
    step = mechanisms.Gaussian(sigma=1000.0, sensitivity=2.0)
    people = individual.Filter(PEOPLE, filters.Gaussian(epsilon=1.0, delta=1e-5))
    norms = np.random.default_rng(0).random(PEOPLE) * 2
    a, b = np.zeros(PEOPLE, np.int64), np.ones(PEOPLE, np.int64)
    charges, adds = [], []
    for _ in range(RUNS):
        start = perf_counter()
        people.charge(step, norms)
        charges.append(perf_counter() - start)
        start = perf_counter()
        np.add(a, b, out=a)
        adds.append(perf_counter() - start)
    tracemalloc.start()
    people.charge(step, norms)
    allocated = tracemalloc.get_traced_memory()[1] / (8 * PEOPLE)
    tracemalloc.stop()
    row = {
        "people": PEOPLE,
        "charge_ms": median(charges) * 1e3,
        "add_ms": median(adds) * 1e3,
        "ratio_of_medians": median(charges) / median(adds),
        "ratio_of_minima": min(charges) / min(adds),
        "allocated_arrays": allocated,
    }
    text = (
        "charge {charge_ms:.1f} ms, add {add_ms:.1f} ms, ratio {ratio_of_medians:.2f} "
        "(of minima {ratio_of_minima:.2f}); "
        "allocates {allocated_arrays:.2f} arrays"
    )
    print(json.dumps(row) if as_json else text.format(**row))


if __name__ == "__main__":
    main()
