"""Audit the guarantee: measure how well an adversary tells adaptive sessions on neighbouring tables apart.

python benchmarks/tightness/queries_audit.py [--sessions 1000]

Prints one JSON object: the distance between the two worlds in standard deviations, as found and less five standard
errors, beside the distance that the budget allows. "kept" must be true.
"""

import argparse
import json
import math
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2] / "tests" / "queries"))
from test_audit import RHO, ROUNDS, audit


def main() -> None:
    """Run and print; the distance less five standard errors must not be above the budget's."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--sessions", type=int, default=1000, help="in each of the two worlds")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        distance, share = audit(Path(folder) / "l", options.sessions)
    result = {
        "sessions": 2 * options.sessions,
        "questions in each": ROUNDS,
        "budget, as a distance in standard deviations": round(math.sqrt(2 * RHO), 4),
        "distance found, less five standard errors": round(distance, 4),
        "distance found": round(distance + 5 * math.sqrt(2 / options.sessions), 4),
        "share of the promised noise's variance": round(share, 4),
        "kept": distance <= math.sqrt(2 * RHO),
    }
    print(json.dumps(result, indent=1))


if __name__ == "__main__":
    main()
