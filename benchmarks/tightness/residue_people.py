"""Compute how many steps a person can take part in, for each kind of account: the table of docs/individual.md.

python benchmarks/tightness/residue_people.py

Takes two minutes. Prints one JSON object: the number of steps at each norm, and the seconds that the table took.
"""

import json
import time

import numpy as np

from almoner import filters, individual, mechanisms

EPSILON, DELTA = 1.0, 1e-5
STEP = mechanisms.SampledGaussian(sigma=2.0, sensitivity=1.0, sample_rate=0.005)
NORMS = (1.0, 0.5, 0.2)


def most(fits: object, high: int = 2**26) -> int:
    """The largest number of steps that fits, by bisection."""
    low = 0
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if fits(middle) else (low, middle)  # type: ignore[operator]
    return low


def from_accounts(make: object) -> dict[float, int]:
    """Steps of a person at each norm, in an individual.Filter with this budget."""
    accounts = individual.Filter(len(NORMS), make())  # type: ignore[operator]
    return {
        norm: most(lambda k, row=row: accounts.admits(mechanisms.Repeated(STEP, k), np.array([NORMS[row]]), [row])[0])
        for row, norm in enumerate(NORMS)
    }


def fixed_in_advance() -> dict[float, int]:
    """Steps whose privacy loss distribution is within the budget: the most for any account, without adaptivity."""
    return {
        norm: most(
            lambda k, norm=norm: individual.losses([[k]], [2.0 / norm], sample_rate=0.005, delta=DELTA)[0] <= EPSILON,
            10**7,
        )
        for norm in NORMS
    }


def main() -> None:
    """Measure and print."""
    best = max(
        (filters.RenyiOrder(alpha=float(a), epsilon=EPSILON, delta=DELTA) for a in range(12, 65)),
        key=lambda budget: budget.notion.person_limits()[0] / budget.notion.person_price(STEP)[0],
    )
    start = time.perf_counter()
    residue = from_accounts(lambda: filters.Residue(epsilon=EPSILON, delta=DELTA))
    seconds = time.perf_counter() - start
    steps = {
        f"RenyiOrder, alpha {best.alpha:g}": from_accounts(
            lambda: filters.RenyiOrder(alpha=best.alpha, epsilon=EPSILON, delta=DELTA)
        ),
        "Renyi, planned": from_accounts(lambda: filters.Renyi(epsilon=EPSILON, delta=DELTA, plan=STEP)),
        "Residue": residue,
        "fixed in advance": fixed_in_advance(),
    }
    print(json.dumps({"steps at each norm": steps, "the table and all of Residue, s": round(seconds, 1)}, indent=1))


if __name__ == "__main__":
    main()
