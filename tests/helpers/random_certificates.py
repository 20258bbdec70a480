"""Certificates of random runs, each proven by the checker, and corrupted ones, each refused.

    python tests/helpers/random_certificates.py [SECONDS]

Runs of one to four kinds of rounds, with parameters, counts and deltas over several orders of magnitude; every third
certificate is corrupted besides. Prints one JSON object; the exit code is 1 where one was not accepted, a corrupted one
was, or a check took a second or longer.
"""

import json
import sys
import time
from collections import Counter
from math import floor
from random import Random

from bursar import certificates
from bursar import mechanisms as m
from bursar.errors import Unsupported
from corruptions import checker, corrupted, refused, stronger

__all__ = ["certificate", "main", "run"]

LIMIT = 1.0
"""Processor seconds that a check may take."""


def between(random, low, high):
    """Evenly on a logarithmic scale."""
    return low * (high / low) ** random.random()


def rounds_of(random, kind):
    """Rounds of one kind, whose number is such that they reveal something and not everything."""
    spend, noise, rate = between(random, 0.05, 1.5), between(random, 0.7, 200.0), between(random, 1e-3, 0.2)
    size = between(random, 0.1, 10.0)
    step, one = {
        "Gaussian": lambda: (m.Gaussian(noise * size, size), 1 / noise),
        "SampledGaussian": lambda: (m.SampledGaussian(noise * size, size, rate), 2 * rate / noise),
        "Laplace": lambda: (m.Laplace(noise * size, size), 1 / noise),
        "Pure": lambda: (m.Pure(1 / noise), 1 / noise),
        "RandomizedResponse": lambda: (m.RandomizedResponse(1 / noise), 1 / noise),
        "Approximate": lambda: (m.Approximate(1 / noise, between(random, 1e-12, 1e-8)), 1 / noise),
        "Zcdp": lambda: (m.Zcdp(1 / noise**2), 1.5 / noise),
    }[kind]()
    return m.Repeated(step, max(1, floor((spend / one) ** 2)))


GAUSSIAN, RENYI = ["Gaussian"], ["Gaussian", "SampledGaussian", "Zcdp"]
LOSSES = ["Gaussian", "SampledGaussian", "Laplace", "Pure", "RandomizedResponse", "Approximate"]
TURNS = 3 * ["gaussian", "renyi", "renyi"] + ["losses"]


def run(random, kind):
    """(A run, its Rényi order or None, delta) of which a certificate of this kind is asked for."""
    kinds = {"gaussian": GAUSSIAN, "renyi": RENYI, "losses": LOSSES}[kind]
    parts = tuple(rounds_of(random, random.choice(kinds)) for _ in range(random.choice([1, 1, 2, 4])))
    order = floor(between(random, 2, 64)) if kind == "renyi" else None
    return m.Composed(parts), order, between(random, 1e-10, 1e-3)


def certificate(random, kind):
    """A random certificate, or None where it is refused with a reason."""
    asked, order, delta = run(random, kind)
    try:
        return certificates.of_run(asked, delta=delta, order=order)
    except Unsupported:
        return None


def main(seconds, seed=0):
    """Make and check until the time is over; of each ten three are Gaussian, six Rényi and one on a grid."""
    check, random, end = checker(), Random(seed), time.monotonic() + seconds
    count, slowest, wrong = Counter(), Counter(), []
    while time.monotonic() < end:
        asked = TURNS[count["asked"] % len(TURNS)]
        count["asked"] += 1
        made = certificate(random, asked)
        if made is None:
            count[f"{asked}: not made, with a reason"] += 1
            continue
        start = time.process_time()
        accepted = not refused(check, json.loads(json.dumps(made)))
        slowest[made["kind"]] = max(slowest[made["kind"]], time.process_time() - start)
        count[f"{made['kind']}: {'accepted' if accepted else 'REFUSED'}"] += 1
        wrong += [] if accepted else [made]
        if count["asked"] % 3 == 0:
            broken = [corrupted(made, random), random.choice(list(stronger(made)))[1]]
            believed = [each for each in broken if not refused(check, each)]
            count["corrupted or stronger: refused"] += 2 - len(believed)
            count["corrupted or stronger: ACCEPTED"] += len(believed)
            wrong += believed
    print(
        json.dumps({"counts": dict(sorted(count.items())), "slowest check, s": dict(slowest), "wrong": wrong}, indent=1)
    )
    return int(bool(wrong) or max(slowest.values()) >= LIMIT)


if __name__ == "__main__":
    sys.exit(main(float(sys.argv[1]) if len(sys.argv) > 1 else 600.0))
