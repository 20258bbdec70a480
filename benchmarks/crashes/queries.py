"""Kill a process that asks questions at random times, and check the ledger after each kill.

    python benchmarks/crashes/queries.py [--kills 500] [--seed N] [--engine spark]

Prints one JSON object: the number of answers stored, and of answers revealed before the kill. An answer without a
charge, a second charge, or a second answer under one key stops the run with an error. With Spark, the script kills the
worker (its Java process runs on for a moment), the worker and its Java process, or the Java process alone.
"""

import argparse
import json
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2] / "tests" / "helpers"))
from crashes import campaign, campaign_on_spark
from sparks import NO_CODE, started


def main() -> None:
    """Run and print; raise an error that names the violated guarantee."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--kills", type=int, default=500)
    parser.add_argument("--seed", type=int, default=None)
    parser.add_argument("--engine", choices=["duckdb", "spark"], default="duckdb")
    options = parser.parse_args()
    start = time.perf_counter()
    with tempfile.TemporaryDirectory() as folder:
        if options.engine == "spark":
            spark = started(folder, **NO_CODE)
            recorded, revealed = campaign_on_spark(folder, options.kills, options.seed, spark)
            spark.stop()
        else:
            recorded, revealed = campaign(folder, options.kills, options.seed)
    result = {
        "engine": options.engine,
        "kills": options.kills,
        "answers stored": recorded,
        "answers revealed": revealed,
        "answers without a charge, second charges, other answers under a key": 0,
        "seconds": round(time.perf_counter() - start, 1),
    }
    print(json.dumps(result, indent=1))


if __name__ == "__main__":
    main()
