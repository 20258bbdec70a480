"""Kills a process that asks questions at random moments and checks the ledger after every kill. Prints one JSON object.

python benchmarks/crashes.py [--kills 500] [--seed N] [--engine spark]

On Spark a worker is killed alone (its Java goes on for a moment), with its Java, or its Java alone.
"""

import argparse
import json
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent / "tests" / "helpers"))
from crashes import campaign, campaign_on_spark
from sparks import NO_CODE, started


def main() -> None:
    """Run and print; an error says which promise broke."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--kills", type=int, default=500)
    parser.add_argument("--seed", type=int, default=None)
    parser.add_argument("--engine", choices=["duckdb", "spark"], default="duckdb")
    given = parser.parse_args()
    start = time.perf_counter()
    with tempfile.TemporaryDirectory() as folder:
        if given.engine == "spark":
            spark = started(folder, **NO_CODE)
            recorded, revealed = campaign_on_spark(folder, given.kills, given.seed, spark)
            spark.stop()
        else:
            recorded, revealed = campaign(folder, given.kills, given.seed)
    result = {
        "engine": given.engine,
        "kills": given.kills,
        "answers stored": recorded,
        "answers revealed": revealed,
        "answers without a charge, second charges, other answers under a key": 0,
        "seconds": round(time.perf_counter() - start, 1),
    }
    print(json.dumps(result, indent=1))


if __name__ == "__main__":
    main()
