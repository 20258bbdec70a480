"""Adaptive sessions on neighbouring tables, and what an adversary gets out of them. Prints one JSON object.

python benchmarks/queries_audit.py [--sessions 1000]
"""

import argparse
import json
import math
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent / "tests" / "queries"))
from test_audit import RHO, ROUNDS, audit


def main() -> None:
    """Run and print: the distance must not be above the budget's; it says what is certain to five standard errors."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--sessions", type=int, default=1000, help="in each of the two worlds")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        distance, share = audit(Path(folder) / "l", given.sessions)
    result = {
        "sessions": 2 * given.sessions,
        "questions in each": ROUNDS,
        "budget, as a distance in standard deviations": round(math.sqrt(2 * RHO), 4),
        "distance found, less five standard errors": round(distance, 4),
        "distance found": round(distance + 5 * math.sqrt(2 / given.sessions), 4),
        "share of the promised noise's variance": round(share, 4),
        "kept": distance <= math.sqrt(2 * RHO),
    }
    print(json.dumps(result, indent=1))


if __name__ == "__main__":
    main()
