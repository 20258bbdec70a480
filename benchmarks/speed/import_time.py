"""Measure how long `import almoner` takes in a fresh process.

python benchmarks/speed/import_time.py [--json]

Prints the median seconds of a process that imports nothing, and of processes that import NumPy, Almoner, or its rooms.
"""

import argparse
import json
import subprocess
import sys
from statistics import median
from time import perf_counter

RUNS = 15


def seconds(code: str) -> float:
    """Seconds that one fresh process takes."""
    start = perf_counter()
    subprocess.run([sys.executable, "-c", code], check=True)
    return perf_counter() - start


def main() -> None:
    """Print the medians over interleaved runs."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", action="store_true")
    as_json = parser.parse_args().json
    codes = {
        "nothing": "pass",
        "almoner": "import almoner",
        "numpy": "import numpy",
        "accounting": "from almoner import filters, odometers, individual",
    }
    times = {name: [] for name in codes}
    for _ in range(RUNS):
        for name, code in codes.items():
            times[name].append(seconds(code))
    row = {f"{name}_s": median(each) for name, each in times.items()}
    print(json.dumps(row) if as_json else ", ".join(f"{name} {value:.3f}" for name, value in row.items()))


if __name__ == "__main__":
    main()
