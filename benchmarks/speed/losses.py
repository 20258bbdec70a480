"""Time the epsilons of a million people, and one person's epsilon with dp_accounting.

python benchmarks/speed/losses.py [--people 1000000] [--peer]

Prints one JSON object with seconds and epsilons. dp_accounting runs only with --peer.
"""

import argparse
import json
import resource
import time

import numpy as np

from almoner import individual


def crowd(people: int, buckets: int, steps: int) -> tuple[np.ndarray, np.ndarray]:
    """Counts in which each person's steps fall into neighbouring buckets, as those of a slowly changing norm do."""
    rng = np.random.default_rng(0)
    noise = np.geomspace(2.0, 40.0, buckets)
    counts = np.zeros((people, buckets), np.int32)
    first = rng.integers(0, buckets, people)
    left = np.full(people, steps)
    for turn in range(8):
        part = left if turn == 7 else rng.integers(0, left + 1)
        counts[np.arange(people), (first + turn) % buckets] += part.astype(np.int32)
        left = left - part
    return counts, noise


def peer(row: np.ndarray, noise: np.ndarray, delta: float) -> tuple[float, float]:
    """Seconds and epsilon of dp_accounting for the composition of one person's buckets."""
    from dp_accounting.pld import privacy_loss_distribution as pld

    start = time.perf_counter()
    total = None
    for z, count in zip(noise, row, strict=True):
        if count:
            one = pld.from_gaussian_mechanism(float(z), sampling_prob=0.005, value_discretization_interval=1e-4)
            one = one.self_compose(int(count))
            total = one if total is None else total.compose(one)
    return time.perf_counter() - start, total.get_epsilon_for_delta(delta)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--people", type=int, default=1_000_000)
    parser.add_argument("--peer", action="store_true")
    asked = parser.parse_args()
    counts, noise = crowd(asked.people, 50, 10_000)
    start = time.perf_counter()
    individual.losses(counts[:: max(1, asked.people // 2000)], noise, sample_rate=0.005, delta=1e-5)
    first = time.perf_counter() - start
    start = time.perf_counter()
    epsilons = individual.losses(counts, noise, sample_rate=0.005, delta=1e-5)
    seconds = time.perf_counter() - start
    result = {
        "people": asked.people,
        "precomputation and 2000 people, s": round(first, 2),
        "all people, cached, s": round(seconds, 2),
        "peak memory, GB": round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20, 2),
        "least and largest epsilon": [float(epsilons.min()), float(epsilons.max())],
    }
    if asked.peer:
        times, ours, theirs = [], [], []
        for person in range(0, asked.people, max(1, asked.people // 3)):
            took, epsilon = peer(counts[person], noise, 1e-5)
            times.append(took)
            theirs.append(epsilon)
            ours.append(float(epsilons[person]))
        result |= {"peer, s per person": times, "peer's epsilon": theirs, "ours": ours}
        result["times faster per person"] = round(float(np.mean(times)) / (seconds / asked.people))
    print(json.dumps(result, indent=1))


if __name__ == "__main__":
    main()
