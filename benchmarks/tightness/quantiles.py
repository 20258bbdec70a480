"""Measure quantiles of real data against the truth and rivals, by edges and kind of budget: error, bias, width.

Counts of bins are exact; the noise, and the choices, are the library's own. Rivals have the published algorithm, in
NumPy: "edges" chooses one of the same edges by the exponential mechanism, as OpenDP does; "points" a place between two
entries, as Smith (2011) and diffprivlib do, with the number of people known and records replaced.
Run: ALMONER_DATA=/folder python benchmarks/tightness/quantiles.py [--runs 60] [--out results.json]; with --out, cases
that are in the file are not run again.
"""

import argparse
import csv
import gzip
import json
import os
from collections import defaultdict
from pathlib import Path

import numpy as np

from almoner import filters
from almoner.queries import Quantiles
from almoner.queries._questions.intervals import NoiseBand
from almoner.queries._questions.noise import STEPS, noisy, noisy_mixed

RNG = np.random.default_rng()


def weights(folder):
    """(n,) final weights of people in Adult."""
    lines = (folder / "adult/adult.data").read_text().splitlines()
    return np.array([float(line.split(",")[2]) for line in lines if line.strip()])


def spending(folder):
    """(n,) total medical spending of people in RAND HIE."""
    totals: dict[str, float] = defaultdict(float)
    with gzip.open(folder / "rand_hie/randhie.csv.gz", "rt") as file:
        for row in csv.DictReader(file):
            totals[row["zper"]] += float(row["meddol"])
    return np.array(list(totals.values()))


def ours(counts, edges, level, price, **options):
    """(value, low, high) of an answer about people's totals."""
    asked = Quantiles("v", edges, (level,), per="total", **price, **options)
    sums, factor, choice = [int(each) * STEPS for each in counts], asked.bin_factor(), asked.choice
    if choice is not None:
        released = choice.released(sums)
    else:
        released = noisy(sums, asked.mechanism) if factor is None else noisy_mixed(sums, factor, asked.mechanism)
    (value,), (interval,) = asked.read([each / STEPS for each in released], NoiseBand(asked.spread, asked.pure))
    return np.nan if value is None else value, *interval


def by_edges(counts, edges, level, price):
    """An edge, by the exponential mechanism: epsilon, or epsilon**2 / 8 of rho."""
    epsilon = price.get("epsilon") or np.sqrt(8 * price["rho"])
    below = np.concatenate([[0.0], np.cumsum(counts)])
    scores = -np.abs(below - level * below[-1]) * epsilon / 2 / max(level, 1 - level)
    return edges[np.argmax(scores + RNG.gumbel(size=len(edges)))], np.nan, np.nan


def by_points(values, edges, level, price):
    """A uniform place between two entries, chosen by the exponential mechanism; the sensitivity of ranks is 1."""
    epsilon = price.get("epsilon") or np.sqrt(8 * price["rho"])
    points = np.concatenate([[edges[0]], np.sort(np.clip(values, edges[0], edges[-1])), [edges[-1]]])
    with np.errstate(divide="ignore"):
        scores = np.log(np.diff(points)) - np.abs(np.arange(len(points) - 1) - level * len(values)) * epsilon / 2
    place = np.argmax(scores + RNG.gumbel(size=len(scores)))
    return RNG.uniform(points[place], points[place + 1]), np.nan, np.nan


def measured(draw, truth, runs):
    """Error, bias, share of intervals that cover and median width."""
    found = np.array([draw() for _ in range(runs)])
    off, (low, high) = found[:, 0] - truth, found[:, 1:].T
    covers = float(np.mean((low <= truth) & (truth <= high)))
    return [float(np.sqrt(np.nanmean(off**2))), float(np.nanmean(off)), covers, float(np.median(high - low))]


def main():
    """A row for each case, kind of budget and algorithm."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=60)
    parser.add_argument("--out", type=Path)
    given = parser.parse_args()
    folder = Path(os.environ["ALMONER_DATA"])
    fnlwgt, meddol = weights(folder), spending(folder)
    prices = {"epsilon": {"epsilon": 0.1}, "rho": {"rho": filters.Gaussian(epsilon=0.1, delta=1e-6).mu ** 2 / 2}}
    cases = [
        ("Adult fnlwgt", fnlwgt, level, range(0, 1_500_001, step), f"{step:,}")
        for level, steps in ((0.5, (50_000, 5_000, 500)), (0.9, (5_000, 500)))
        for step in steps
    ]
    for many in (24, 500):
        edges = [0, *np.geomspace(1, 40_000, many)]
        cases += [("RAND spending", meddol, 0.5, edges, f"{many}, a constant factor")]
    cases += [("RAND spending", meddol, 0.5, range(0, 40_001, step), f"{step}") for step in (100, 10)]
    known = json.loads(given.out.read_text()) if given.out and given.out.exists() else {}
    for name, values, level, edges, step in cases:
        edges, truth = tuple(map(float, edges)), np.sort(values)[int(np.ceil(level * values.size)) - 1]
        counts = np.histogram(np.clip(values, edges[0], edges[-1]), edges)[0].astype(float)
        for measure, price in prices.items():
            ways = {
                "default": lambda c=counts, e=edges, q=level, p=price: ours(c, e, q, p),
                "no interval": lambda c=counts, e=edges, q=level, p=price: ours(c, e, q, p, chosen=1.0),
                "counts": lambda c=counts, e=edges, q=level, p=price: ours(c, e, q, p, chosen=0.0),
                "edges": lambda c=counts, e=edges, q=level, p=price: by_edges(c, e, q, p),
                "points": lambda v=values, e=edges, q=level, p=price: by_points(v, e, q, p),
            }
            for way, draw in ways.items():
                case = f"{name}, {level} ({truth:,.0f}), bins of {step}, {measure}, {way}"
                if case not in known:
                    known[case] = measured(draw, truth, given.runs)
                    if given.out:
                        given.out.write_text(json.dumps(known, indent=1))
                error, bias, covers, width = known[case]
                print(
                    f"{case}: error {error:,.4g} (bias {bias:+,.4g}), covers {covers:.2f}, width {width:,.4g}",
                    flush=True,
                )


if __name__ == "__main__":
    main()
