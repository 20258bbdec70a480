"""How many steps of a sampled Gaussian mechanism fit, with the number of steps fixed in advance: for comparison.

dp_accounting's privacy loss distribution, connected dots, on two grids: the numbers have settled. Run it with
``python tests/golden/residue_steps.py > tests/golden/residue_steps.json``; it takes half a minute.
"""

import json
import sys

from dp_accounting.pld import privacy_loss_distribution

SIGMA, SAMPLE_RATE, DELTA = 2.0, 0.01, 1e-5
INTERVALS = (1e-4, 2e-5)  # of the privacy loss grid


def most_steps(epsilon: float, interval: float) -> int:
    """The largest number of steps at which epsilon is not exceeded."""
    one = privacy_loss_distribution.from_gaussian_mechanism(
        SIGMA, sampling_prob=SAMPLE_RATE, value_discretization_interval=interval
    )
    few, many = 0, 400_000
    while many - few > 1:
        middle = (few + many) // 2
        fits = one.self_compose(middle).get_epsilon_for_delta(DELTA) <= epsilon
        few, many = (middle, many) if fits else (few, middle)
    return few


def main() -> None:
    """Print the table."""
    rows = [
        {"epsilon": epsilon, "steps": {str(interval): most_steps(epsilon, interval) for interval in INTERVALS}}
        for epsilon in (1.0, 3.0, 8.0)
    ]
    json.dump({"sigma": SIGMA, "sample_rate": SAMPLE_RATE, "delta": DELTA, "rows": rows}, sys.stdout, indent=1)


if __name__ == "__main__":
    main()
