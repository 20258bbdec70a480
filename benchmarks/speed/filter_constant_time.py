"""Measure whether a filter's millionth charge takes as long as its first.

python benchmarks/speed/filter_constant_time.py [--json]

Prints, for each filter, the median time of the first and of the last thousand charges, and their ratio.
"""

import argparse
import json
from statistics import median
from time import perf_counter

from almoner import filters, mechanisms

KINDS = {
    "Gaussian": (lambda: filters.Gaussian(epsilon=8.0, delta=1e-6), mechanisms.Gaussian(sigma=1e4), 1_000_000),
    "Zcdp": (lambda: filters.Zcdp(epsilon=8.0, delta=1e-6), mechanisms.Gaussian(sigma=1e4), 1_000_000),
    "Renyi": (lambda: filters.Renyi(epsilon=8.0, delta=1e-6), mechanisms.Gaussian(sigma=1e4), 1_000_000),
}


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", action="store_true")
    as_json, rows = parser.parse_args().json, []
    for name, (make, mechanism, charges) in KINDS.items():
        account, times = make(), []
        for _ in range(charges):
            start = perf_counter()
            account.charge(mechanism)
            times.append(perf_counter() - start)
        first, last = median(times[1:1001]) * 1e6, median(times[-1000:]) * 1e6
        rows.append({"filter": name, "first_us": first, "last_us": last, "ratio": last / first})
    if as_json:
        print(json.dumps(rows))
    else:
        for row in rows:
            print("{filter:10} first {first_us:7.2f} us, millionth {last_us:7.2f} us, ratio {ratio:.2f}".format(**row))


if __name__ == "__main__":
    main()
