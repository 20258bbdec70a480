"""Measure quantiles of real data against the truth, by edges and kind of budget: root mean squared error and bias.

Counts of bins are exact; the noise is drawn with NumPy and a fixed seed, by the law of an answer's noise up to
rounding.
Run: ALMONER_DATA=/folder python benchmarks/tightness/quantiles.py [--runs 40]
"""

import argparse
import csv
import gzip
import os
from collections import defaultdict
from pathlib import Path

import numpy as np

from almoner import filters
from almoner.queries import Quantiles
from almoner.queries._questions.intervals import NoiseBand


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


def errors(values, edges, level, price, runs):
    """(root mean squared error, bias, share of intervals that cover) of a quantile of people's totals."""
    asked = Quantiles("v", tuple(map(float, edges)), (level,), per="total", **price)
    counts = np.histogram(np.clip(values, edges[0], edges[-1]), edges)[0].astype(float)
    factor, rng = asked.bin_factor(), np.random.default_rng(1)
    base = counts if factor is None else np.convolve(np.array(factor.column) / 2**16, counts)[: counts.size]
    draw, band = (rng.laplace if asked.pure else rng.normal), NoiseBand(asked.spread, asked.pure)
    truth = np.sort(values)[int(np.ceil(level * values.size)) - 1]
    found, covered = [], []
    for _ in range(runs):
        (value,), ((low, high),) = asked.read((base + draw(0, asked.noise, counts.size)).tolist(), band)
        found.append(np.nan if value is None else value - truth)
        covered.append(low <= truth <= high)
    return truth, np.sqrt(np.nanmean(np.square(found))), np.nanmean(found), np.mean(covered)


def main():
    """A row of the table in docs/queries.md for each case."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=40)
    runs = parser.parse_args().runs
    folder = Path(os.environ["ALMONER_DATA"])
    fnlwgt, meddol = weights(folder), spending(folder)
    prices = ({"epsilon": 0.1}, {"rho": filters.Gaussian(epsilon=0.1, delta=1e-6).mu ** 2 / 2})
    cases = [
        ("Adult fnlwgt", fnlwgt, level, range(0, 1_500_001, step), f"{step:,}")
        for level, steps in ((0.5, (50_000, 5_000, 500)), (0.9, (5_000, 500)))
        for step in steps
    ]
    cases += [("RAND spending", meddol, 0.5, [0, *np.geomspace(1, 40_000, 24)], "24, a constant factor")]
    cases += [("RAND spending", meddol, 0.5, range(0, 40_001, step), f"{step}") for step in (100, 10)]
    print("| data, level (truth) | bins of | epsilon | covers | rho | covers |\n|---|---|---|---|---|---|")
    for name, values, level, edges, step in cases:
        cells = []
        for price in prices:
            truth, error, bias, covers = errors(values, list(edges), level, price, runs)
            cells += [f"{error:,.4g} ({bias:+,.4g})", f"{covers:.2f}"]
        print(f"| {name}, {level} ({truth:,.0f}) | {step} | {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    main()
