"""Measure how far each person's epsilon is above the true one, bracketed by dp_accounting's privacy loss distributions.

    python benchmarks/tightness/losses_accuracy.py [--few] [--cases 60] [--seconds 600]

The cases have random rates in [0.001, 1], relative noise in [0.5, 50], 1 to 100,000 steps and one to three buckets, at
delta from 1e-10 to 1e-3. With --few, they are a grid instead: 1, 2, 3, 5, 7, 10 and 30 steps of one relative noise,
and (except for one step) of two. dp_accounting's optimistic and pessimistic estimates bracket the true epsilon, and one
step of one noise has a closed form.

Prints one JSON object with two ratios: Almoner's epsilon over the pessimistic and over the optimistic estimate, for
cases where the latter is at least 0.001 and the former at most 30. The ratio to the true epsilon is between them. Cases
beyond the certified range (inf) are counted.
"""

import argparse
import itertools
import json
import logging
import sys
import time
from collections.abc import Iterator

import numpy as np
from scipy.optimize import brentq
from scipy.special import log_ndtr

from almoner import individual

DELTAS = (1e-10, 1e-8, 1e-6, 1e-5, 1e-3)


Case = tuple[list[float], list[int], float]


def few() -> Iterator[Case]:
    """The cases with few steps: constant and mixed relative noise."""
    rates, noise = (0.001, 0.004, 0.02, 0.1, 0.5, 0.95), (0.5, 0.7, 1.0, 1.5, 4.0, 20.0, 50.0)
    cases: list[Case] = []
    for steps, rate, z in itertools.product((1, 2, 3, 5, 7, 10, 30), rates, noise):
        cases.append(([z], [steps], rate))
        if steps > 1:
            cases.append(([z, 1.7 * z], [steps // 3 + 1, steps - steps // 3 - 1], rate))
    for place in np.random.default_rng(0).permutation(len(cases)):  # so that the first cases are a random sample
        yield cases[place]


def drawn(cases: int) -> Iterator[Case]:
    """The random cases."""
    rng = np.random.default_rng(1)
    for _ in range(cases):
        yield case(rng)


def closed(z: float, q: float, delta: float) -> float:
    """Epsilon of one step for removal (the larger direction): the root of its closed form."""

    def excess(epsilon: float) -> float:
        x = z * z * np.log((np.expm1(epsilon) + q) / q) + 0.5
        near, far = log_ndtr(-x / z), log_ndtr((1 - x) / z)
        return float(q * np.exp(far) - (np.expm1(epsilon) + q) * np.exp(near) - delta)

    return 0.0 if excess(0.0) <= 0 else float(brentq(excess, 0.0, 100.0, xtol=1e-15, rtol=1e-13))


def case(rng: np.random.Generator) -> Case:
    """Noise and steps of the buckets, and the rate; redrawn until epsilon at delta = 1e-5 is between 0.001 and 30."""
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
    parser.add_argument("--few", action="store_true")
    parser.add_argument("--cases", type=int, default=60)
    parser.add_argument("--seconds", type=float, default=600)
    asked = parser.parse_args()
    logging.disable(logging.WARNING)
    start = time.perf_counter()
    worst: dict[str, dict[float, tuple[float, object]]] = {
        name: dict.fromkeys(DELTAS, (0.0, None)) for name in ("pessimistic", "optimistic")
    }
    below, infinite, compared, done = 0, 0, 0, 0
    for noise, steps, rate in few() if asked.few else drawn(asked.cases):
        if time.perf_counter() - start > asked.seconds:
            break
        done += 1
        ours = individual.losses([steps], noise, sample_rate=rate, delta=list(DELTAS))[:, 0]
        low, high = bracket(noise, steps, rate, ours)
        for delta, epsilon, above, under in zip(DELTAS, ours, high, low, strict=True):
            infinite += int(epsilon == np.inf)
            below += int(epsilon < under)
            if under >= 1e-3 and above <= 30 and epsilon < np.inf:
                compared += 1
                for name, truth in (("pessimistic", above), ("optimistic", under)):
                    if epsilon / truth > worst[name][delta][0]:
                        worst[name][delta] = (float(epsilon / truth), [noise, steps, rate, float(above), float(under)])
        if done % 10 == 0:
            print(
                done, [round(pair[0], 5) for pair in worst["pessimistic"].values()], below, file=sys.stderr, flush=True
            )
    result = {
        "cases": done,
        "epsilons compared": compared,
        "below the optimistic estimate": below,
        "beyond the certified range": infinite,
        "seconds": round(time.perf_counter() - start, 1),
    }
    for name, each in worst.items():
        result[f"worst ratio to the {name} estimate"] = {f"{delta:g}": pair for delta, pair in each.items()}
    print(json.dumps(result, indent=1))


def bracket(noise: list[float], steps: list[int], rate: float, ours: np.ndarray) -> tuple[list[float], list[float]]:
    """Epsilons just below and just above the true ones."""
    if steps == [1]:
        true = [closed(noise[0], rate, delta) for delta in DELTAS]
        return [e * (1 - 1e-9) for e in true], true
    # dp_accounting rounds each step's loss to its interval, which must be fine enough for the number of steps
    least = float(min((e for e in ours if e >= 1e-3), default=1e-3))
    interval = float(np.clip(1e-3 * least, 2e-6, 1e-3))
    return peer(noise, steps, rate, interval, False), peer(noise, steps, rate, interval, True)


if __name__ == "__main__":
    main()
