"""How far everybody's epsilon is above the true one, against dp_accounting's privacy loss distributions.

    python benchmarks/losses_accuracy.py [--cases 60] [--seconds 600]

Random rates in [0.001, 1], relative noise in [0.5, 50], 1 to 100,000 steps, one to three buckets; delta 1e-10 to 1e-3.
The peer's optimistic and pessimistic estimates bracket the truth; the ratio printed is ours over its pessimistic one,
where that is at least 0.001 and at most 30: the true ratio is a little larger, by at most the bracket, which is printed
too where it is informative. Prints one JSON object. What the peer cannot do, and what is beyond our certified range
(inf), is counted.
"""

import argparse
import json
import logging
import sys
import time

import numpy as np

from bursar import individual

DELTAS = (1e-10, 1e-8, 1e-6, 1e-5, 1e-3)


def case(rng: np.random.Generator) -> tuple[list[float], list[int], float]:
    """Noise and steps of the buckets, and the rate: drawn again until epsilon at 1e-5 is between 0.001 and 30."""
    while True:
        rate = float(10 ** rng.uniform(-3, 0))
        buckets = int(rng.integers(1, 4))
        noise = sorted(float(z) for z in 10 ** rng.uniform(np.log10(0.5), np.log10(50), buckets))
        steps = [int(k) for k in 10 ** rng.uniform(0, 5, buckets) / buckets + 1]
        epsilon = individual.losses([steps], noise, sample_rate=rate, delta=1e-5)[0]
        if 1e-3 <= epsilon <= 30:
            return noise, steps, rate


def peer(noise: list[float], steps: list[int], rate: float, interval: float, pessimistic: bool) -> list[float]:
    """Epsilons of dp_accounting at all deltas."""
    from dp_accounting.pld import privacy_loss_distribution as pld

    total = None
    for z, count in zip(noise, steps, strict=True):
        one = pld.from_gaussian_mechanism(
            z, sampling_prob=rate, value_discretization_interval=interval, pessimistic_estimate=pessimistic
        ).self_compose(count)
        total = one if total is None else total.compose(one)
    return [total.get_epsilon_for_delta(delta) for delta in DELTAS]


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--cases", type=int, default=60)
    parser.add_argument("--seconds", type=float, default=600)
    asked = parser.parse_args()
    logging.disable(logging.WARNING)
    rng, start = np.random.default_rng(0), time.perf_counter()
    worst = dict.fromkeys(DELTAS, (0.0, None))
    below, infinite, compared, done = 0, 0, 0, 0
    while done < asked.cases and time.perf_counter() - start < asked.seconds:
        noise, steps, rate = case(rng)
        done += 1
        ours = individual.losses([steps], noise, sample_rate=rate, delta=list(DELTAS))[:, 0]
        # the peer rounds each step's loss to its interval: fine enough for the number of steps
        least = float(min(e for e in ours if e > 0))
        interval = float(np.clip(1e-3 * least, 1e-6, 1e-3))
        high = peer(noise, steps, rate, interval, True)
        low = peer(noise, steps, rate, interval, False)
        for delta, epsilon, above, under in zip(DELTAS, ours, high, low, strict=True):
            infinite += int(epsilon == np.inf)
            below += int(epsilon < under)
            if 1e-3 <= above <= 30 and epsilon < np.inf:
                compared += 1
                ratio = epsilon / above
                if ratio > worst[delta][0]:
                    worst[delta] = (float(ratio), [noise, steps, rate, float(above), float(under)])
        print(done, [round(pair[0], 5) for pair in worst.values()], below, file=sys.stderr, flush=True)
    result = {
        "cases": done,
        "epsilons compared": compared,
        "below the peer's optimistic estimate": below,
        "beyond our range": infinite,
        "worst ratio to the pessimistic estimate": {f"{delta:g}": pair for delta, pair in worst.items()},
        "seconds": round(time.perf_counter() - start, 1),
    }
    print(json.dumps(result, indent=1))


if __name__ == "__main__":
    main()
