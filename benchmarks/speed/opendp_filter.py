"""The filter around OpenDP measurements beside OpenDP's own: the reproducer of its issue 2909, in the same run.

    python benchmarks/speed/opendp_filter.py [queries]

A release draws OpenDP's noise with either filter. What a filter adds to that, its accounting, is measured alone: ours
by charging without a release, OpenDP's as the time of its releases less that of the noise. The number of queries is
doubled up to the one that is given, as in the reproducer: a quadratic filter takes four times as long each time.
"""

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")

import sys
import time

import opendp.prelude as dp

from almoner import filters
from almoner.interop.opendp import Filtered


def run(release, queries):
    """Processor seconds of so many releases."""
    start = time.process_time()
    for _ in range(queries):
        release()
    return time.process_time() - start


def measured(queries):
    """Seconds by what is done, each with a filter of its own."""
    domain, metric = dp.vector_domain(dp.atom_domain(T=float, nan=False)), dp.l2_distance(T=float)
    query, data = dp.m.make_gaussian(domain, metric, scale=1000.0), [0.0] * 4

    def odometer():
        return dp.c.make_fully_adaptive_composition(domain, metric, dp.zero_concentrated_divergence())

    def looked_at():
        counting(query)
        counting.privacy_loss(1.0)

    counting, theirs = odometer()(data), dp.c.make_privacy_filter(odometer(), 1.0, 1e9)(data)
    alone = odometer()(data)
    ours = Filtered(filters.Zcdp(rho=1.0), data, d_in=1.0, domain=domain, metric=metric)
    charged = Filtered(filters.Zcdp(rho=1.0), data, d_in=1.0, domain=domain, metric=metric)
    return {
        "noise alone": run(lambda: query(data), queries),
        "charges alone, Almoner": run(lambda: charged.budget.charge(charged._price(query)), queries),
        "filter, Almoner": run(lambda: ours(query), queries),
        "filter, OpenDP": run(lambda: theirs(query), queries),
        "odometer, OpenDP": run(lambda: alone(query), queries),
        "odometer and its loss each time, OpenDP": run(looked_at, queries),
    }


def main(most):
    dp.enable_features("contrib")
    for queries in (most // 8, most // 4, most // 2, most):
        seconds = measured(queries)
        print(f"{queries} queries:")
        for name, each in seconds.items():
            print(f"  {name}: {each:.4f} s")
    added = seconds["filter, OpenDP"] - seconds["noise alone"]
    both = seconds["filter, OpenDP"] / seconds["filter, Almoner"]
    print(
        f"accounting alone: {added / seconds['charges alone, Almoner']:.0f} times as fast; with the noise: {both:.1f}"
    )


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 2000)
