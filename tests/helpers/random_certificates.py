"""Certificates of random runs, each proven by the checker, and corrupted ones, each refused.

    python tests/helpers/random_certificates.py [SECONDS]

Runs of one to four kinds of rounds, with parameters, counts and deltas over several orders of magnitude; every third
certificate is corrupted besides, and changed to claim more with a digest that fits. A claim of more may be true, and is
wrong where it is below what no proof can go below. Prints one JSON object; the exit code is 1 where a certificate was
not accepted, a corrupted file or a wrong claim was, or a check took a second of processor time or longer.
"""

import json
import sys
import time
from collections import Counter
from fractions import Fraction
from math import floor
from random import Random

import numpy as np

from almoner import mechanisms as m
from almoner.accounting import certificates
from almoner.curves import losses
from almoner.errors import Unsupported
from corruptions import checker, corrupted, refused, stronger

__all__ = ["certificate", "false", "main", "run"]

PARAMETERS = ("sigma", "sensitivity", "sample_rate", "scale", "epsilon", "delta", "rho")
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


def false(claim):
    """Whether a claim is below what holds at its delta, by a lower bound on what is true."""
    known = [
        (
            m.from_fields(
                {"kind": each["kind"], **{n: float(Fraction(v)) for n, v in each.items() if n in PARAMETERS}}
            ),
            each,
        )
        for each in claim["rounds"]
    ]
    kinds, counts = [leaf for leaf, _ in known], np.array([[each["count"] for _, each in known]])
    if any(isinstance(leaf, m.Zcdp) for leaf in kinds):
        return True  # of what is not known, a claim of more is not believed
    least = losses.epsilons(counts, kinds, delta=float(claim["delta"]), lower=True)[0]
    return float(claim["epsilon"]) < least


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
        seconds = time.process_time() - start
        slowest[made["kind"]] = max(slowest[made["kind"]], seconds)
        count[f"{made['kind']}: a second or longer"] += seconds >= LIMIT
        count[f"{made['kind']}: {'accepted' if accepted else 'REFUSED'}"] += 1
        wrong += [] if accepted else [made]
        if count["asked"] % 3 == 0:
            broken, claim = corrupted(made, random), random.choice(list(stronger(made)))[1]
            count["corrupted"] += 1
            wrong += [] if refused(check, broken) else [broken]
            believed = not refused(check, claim)
            count["claims of more: accepted, and true" if believed else "claims of more: refused"] += 1
            wrong += [claim] if believed and false(claim) else []
    print(
        json.dumps({"counts": dict(sorted(count.items())), "slowest check, s": dict(slowest), "wrong": wrong}, indent=1)
    )
    return int(bool(wrong) or max(slowest.values()) >= LIMIT)


if __name__ == "__main__":
    sys.exit(main(float(sys.argv[1]) if len(sys.argv) > 1 else 600.0))
