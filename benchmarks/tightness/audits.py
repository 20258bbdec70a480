"""Replay audits of every door with twenty people each, a long session, and the canaries; one core.

python benchmarks/tightness/audits.py            # all
python benchmarks/tightness/audits.py doors      # only: doors, session or canaries
"""

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")

import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2] / "tests" / "helpers"))

import numpy as np

from almoner import audit, filters
from almoner.curves import gaussian
from pipelines import DOORS, asked_of, records, session, table

DELTA = 1e-5


def doors(people=20):
    """Findings in each door, and how tight its accounts are."""
    for name, door in DOORS.items():
        start = time.process_time()
        report = door(people)
        tight = "-" if report.tightest is None else f"{report.tightest:.4f}"
        seconds = time.process_time() - start
        print(
            f"{name}: {len(report.findings)} findings, {report.calls} releases, {report.people} people, "
            f"revealed of paid {tight}, {seconds:.1f} s of processor time",
            flush=True,
        )


def long_session():
    """Fifty questions, each chosen by the answer before; people removed one after another, and on two threads."""
    pipeline = session(lambda: filters.Gaussian(epsilon=5.0, delta=1e-6), questions=50, rho=0.004)
    for people, threads in ((2, 1), (20, 1), (20, 2)):
        start, wall = time.process_time(), time.perf_counter()
        report = asked_of(table(records()), pipeline, people, fresh=False, replaced=None, threads=threads)
        used, passed = time.process_time() - start, time.perf_counter() - wall
        print(
            f"50 adaptive questions, {people} people, threads: {threads}: {len(report.findings)} findings, "
            f"{report.calls} releases, {used:.1f} s of processor time, {passed:.1f} s passed",
            flush=True,
        )


def canaries(mu, noise=1.0):
    """The lower bounds of one run of a Gaussian worst case."""
    shares = []
    for seed in range(10):
        rng = np.random.default_rng(seed)
        result = audit.one_run(
            lambda included, rng=rng: included * mu + noise * rng.normal(size=len(included)),
            canaries=100_000,
            guesses=4_000,
            seed=seed,
        )
        shares.append(gaussian.epsilon(result.mu(), delta=DELTA) / gaussian.epsilon(mu, delta=DELTA))
    print(f"one run, mu = {mu:g}, noise times {noise:g}: epsilon {min(shares):.3f} to {max(shares):.3f} of the claim")


if __name__ == "__main__":
    wanted = sys.argv[1:] or ["doors", "session", "canaries"]
    if "session" in wanted:
        long_session()
    if "canaries" in wanted:
        for mu in (0.5, 1.0, 2.0):
            canaries(mu)
        canaries(1.0, noise=1 / 3)
    if "doors" in wanted:
        doors()
