"""Compare the planned rounds that filters.Planned admits with the number that fits when everything is fixed in advance.

python benchmarks/tightness/planned_rounds.py [--out FILE] [--quick] [--dp-accounting MOST]

For each point of a grid of sampled Gaussians and budgets, cheapest first: *fixed*, the largest number of rounds whose
certified epsilon (`curves.losses`, an upper bound) is within the budget, and the part of it that `Planned` admits. With
--dp-accounting also the number by the pessimistic estimate of that library, up to MOST rounds. Fixed numbers take
about half an hour: each is appended to FILE (default: planned_rounds.jsonl) as a JSON line when it is known, and a
number that FILE has is not computed again. What `Planned` admits is always measured, in about ten seconds; the lines
that are printed have both. --quick takes a few cells. Points with more than a million rounds, or none, are left out.
"""

import argparse
import json
import math
import time
from collections.abc import Callable, Iterator
from itertools import product
from pathlib import Path

import numpy as np

from almoner import filters, mechanisms
from almoner.curves import losses
from almoner.errors import ArgumentError

RATES = (1e-4, 1e-3, 1e-2, 0.1, 1.0)
NOISES = (0.5, 0.6, 0.8, 1.0, 2.0, 4.0, 20.0)
EPSILONS = (0.3, 1.0, 2.0, 8.0)
DELTAS = (1e-5, 1e-7)
QUICK = (
    (0.001, 0.6, 1.0, 1e-5),
    (0.01, 0.8, 2.0, 1e-5),
    (0.1, 2.0, 2.0, 1e-7),
    (0.01, 0.5, 8.0, 1e-5),
    (1.0, 4.0, 2.0, 1e-5),
)
MOST = 10**6

Point = tuple[float, float, float, float]


def most(fits: Callable[[int], bool], guess: int) -> int:
    """The largest number that fits, searched for around a guess; steps of a thousandth where it is large."""
    low, high, step = 0, max(guess, 1), max(1, guess // 500)
    if fits(high):
        while fits(high):
            low, high, step = high, high + step, 2 * step
    else:
        while high - step > 0 and not fits(high - step):
            high, step = high - step, 2 * step
        low = max(0, high - step)
    while high - low > max(1, low // 2000):
        middle = (low + high) // 2
        low, high = (middle, high) if fits(middle) else (low, middle)
    return low


def fixed(step: mechanisms.Mechanism, epsilon: float, delta: float, guess: int) -> int:
    """By the certified upper bound of privacy loss distributions."""
    return most(lambda n: float(losses.epsilons(np.array([[n]]), [step], delta=delta)[0]) <= epsilon, guess)


def by_dp_accounting(rate: float, noise: float, epsilon: float, delta: float, guess: int) -> int:
    """By the pessimistic estimate of dp_accounting, at intervals of a ten-thousandth."""
    from dp_accounting.pld import privacy_loss_distribution as pld

    one = pld.from_gaussian_mechanism(noise, sampling_prob=rate, value_discretization_interval=1e-4)
    return most(lambda n: bool(one.self_compose(n).get_epsilon_for_delta(delta) <= epsilon), guess)


def roughly(point: Point) -> float:
    """How many rounds there are, by the variance of the loss: for the order of the points."""
    rate, noise, epsilon, _ = point
    return (epsilon / rate) ** 2 / math.expm1(min(1 / noise**2, 700.0))


def admitted(point: Point) -> tuple[int, float]:
    """The planned rounds of a fresh `Planned`, and the seconds of the processor that it took to be built."""
    rate, noise, epsilon, delta = point
    start = time.process_time()
    try:
        rounds = filters.Planned(mechanisms.gaussian_step(noise, 1.0, rate), epsilon=epsilon, delta=delta).left
    except ArgumentError:
        rounds = 0
    return rounds, time.process_time() - start


def fixed_numbers(point: Point, guess: int, oracle: int) -> dict[str, float | int | None]:
    """What FILE keeps of a point."""
    rate, noise, epsilon, delta = point
    step = mechanisms.gaussian_step(noise, 1.0, rate)
    best = fixed(step, epsilon, delta, math.ceil(guess * 1.002)) if guess <= 1.2 * MOST else None
    row = {"rate": rate, "noise": noise, "epsilon": epsilon, "delta": delta, "fixed": best}
    if best and best <= oracle:
        row["dp_accounting"] = by_dp_accounting(rate, noise, epsilon, delta, best)
    return row


def rows(points: list[Point], out: Path, oracle: int) -> Iterator[dict[str, float | int | None]]:
    """A line for each point; those that FILE lacks are appended to it."""
    done = [json.loads(line) for line in out.read_text(encoding="utf-8").splitlines()] if out.exists() else []
    known = {(row["rate"], row["noise"], row["epsilon"], row["delta"]): row for row in done}
    for point in sorted(points, key=roughly):
        rounds, seconds = admitted(point)
        if point not in known:
            known[point] = fixed_numbers(point, rounds, oracle)
            with out.open("a", encoding="utf-8") as file:
                file.write(json.dumps(known[point]) + "\n")
        best = known[point]["fixed"]
        part = rounds / best if best else None
        yield {**known[point], "planned": rounds, "ratio": part, "seconds": round(seconds, 4)}


def main() -> None:
    """Measure, print, and say how small the part is at least."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--out", type=Path, default=Path("planned_rounds.jsonl"))
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--dp-accounting", type=int, default=0, metavar="MOST")
    chosen = parser.parse_args()
    points = list(QUICK) if chosen.quick else list(product(RATES, NOISES, EPSILONS, DELTAS))
    ratios, built = [], []
    for row in rows(points, chosen.out, chosen.dp_accounting):
        print(json.dumps(row), flush=True)
        built.append(row["seconds"])
        if row["fixed"] and row["fixed"] <= MOST:
            ratios.append(row["ratio"])
    times = {"median": sorted(built)[len(built) // 2], "largest": max(built)}
    print(json.dumps({"points": len(ratios), "least ratio": min(ratios, default=None), "seconds to build": times}))


if __name__ == "__main__":
    main()
