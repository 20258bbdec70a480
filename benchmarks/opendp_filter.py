"""The filter around OpenDP measurements beside OpenDP's own: the reproducer of its issue 2909, in the same run.

    python benchmarks/opendp_filter.py [queries]

A release costs what OpenDP's noise costs in either; what a filter adds is the rest.
"""

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")

import sys
import time

import opendp.prelude as dp

from bursar import filters
from bursar.interop.opendp import Filtered

LAST = 50


def run(release, queries):
    """(Processor seconds of all releases, of one of the last.)"""
    start = time.process_time()
    for number in range(queries):
        if number == queries - LAST:
            late = time.process_time()
        release()
    end = time.process_time()
    return end - start, (end - late) / LAST


def main(queries):
    dp.enable_features("contrib")
    domain, metric = dp.vector_domain(dp.atom_domain(T=float, nan=False)), dp.l2_distance(T=float)
    query, data = dp.m.make_gaussian(domain, metric, scale=1000.0), [0.0] * 4
    theirs = dp.c.make_privacy_filter(
        dp.c.make_fully_adaptive_composition(domain, metric, dp.zero_concentrated_divergence()), 1.0, 1e9
    )(data)
    ours = Filtered(filters.Zcdp(rho=1.0), data, d_in=1.0, domain=domain, metric=metric)
    alone = run(lambda: query(data), queries)
    charged = run(lambda: ours.budget.charge(ours._price(query)), queries)
    bursar = run(lambda: ours(query), queries)
    opendp = run(lambda: theirs(query), queries)
    for name, (total, last) in {"noise alone": alone, "Bursar": bursar, "OpenDP": opendp}.items():
        print(f"{name}: {queries} queries in {total:.3f} s, one of the last in {1e6 * last:.0f} microseconds")
    own = opendp[1] - alone[1]
    print(
        f"a charge of ours: {1e6 * charged[1]:.1f} microseconds; OpenDP's filter adds {1e6 * own:.0f} to a last query"
    )
    print(f"ratios: all {opendp[0] / bursar[0]:.1f}, what the filter adds to a last query {own / charged[1]:.0f}")


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 2000)
