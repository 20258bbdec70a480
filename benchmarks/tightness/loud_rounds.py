"""Attack people's planned accounts with rounds that are not planned, over random plans, budgets and rounds.

python benchmarks/tightness/loud_rounds.py [--triples 300] [--largest-grid 32768] [--out FILE]

Each line of FILE is one triple: what a fresh account admits, what the filter of one account admits, and the largest
delta found over the promised one, by a closed form and by an adversary who switches once by the loss so far. A run that
was killed goes on where it was. Ends with an error if anything is above the promise. Takes some seconds a triple, and a
minute on the largest grids.
"""

import argparse
import itertools
import json
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from almoner import filters, mechanisms

ROOT = Path(__file__).parents[2]
sys.path[:0] = [str(ROOT / "tests" / "helpers"), str(ROOT / "experiments")]

import journal  # noqa: E402

import loud_rounds  # noqa: E402


def triples(
    count: int, largest: int
) -> Iterator[tuple[mechanisms.Mechanism, float, float, mechanisms.Mechanism, float]]:
    """Triples that were once sold for too little, and random ones whose losses fit on a grid of this size, by seed."""
    for sigma, rate, epsilon, delta, noise in loud_rounds.ATTACKED:
        yield mechanisms.SampledGaussian(sigma, 1.0, rate), epsilon, delta, mechanisms.Gaussian(noise), 1.0
    for seed in itertools.count():
        triple = loud_rounds.random_triple(np.random.default_rng(seed))
        if filters.Planned(triple[0], epsilon=triple[1], delta=triple[2]).notion.prices.grid.size <= largest:
            yield triple
            count -= 1
        if not count:
            return


def main() -> None:
    """Play, record and summarise."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--triples", type=int, default=300)
    parser.add_argument("--largest-grid", type=int, default=2**15)
    parser.add_argument("--out", type=Path, default=ROOT / "experiments" / "results" / "loud_rounds.jsonl")
    options = parser.parse_args()
    known = {run["triple"]: run for run in journal.recorded(options.out)}
    for triple in triples(options.triples, options.largest_grid):
        if repr(triple) not in known:
            run = {"triple": repr(triple), **loud_rounds.played(*triple)}
            journal.record(options.out, run)
            known[run["triple"]] = run
    runs = list(known.values())
    largest = {part: max(run[part] or 0.0 for run in runs) for part in ("alone", "switch")}
    more = sum(run["people"] > 0 and not run["one"] for run in runs)
    fewer = sum(run["people"] == 0 and run["one"] for run in runs)
    sold = sum(run["people"] > 0 for run in runs)
    print(
        json.dumps({"triples": len(runs), "admitted": sold, "largest": largest, "only people": more, "only one": fewer})
    )
    if max(largest.values()) > 1:
        sys.exit("a delta above the promise was found")


if __name__ == "__main__":
    main()
