"""Time questions on Spark against its own GROUP BY per person: with one worker and two, and beside DuckDB.

python benchmarks/speed/queries_spark.py workers [--events 20000000] [--people 1000000] [--rounds 3]
python benchmarks/speed/queries_spark.py duckdb [--events 5000000] [--people 200000]

``workers`` starts a standalone cluster on loopback, with one worker and then with two. Each worker is pinned to its own
core (also for compiling and garbage collection), as if it were a machine; driver and master share these cores. The time
of a question includes the charge of each person, the noise and the commit; Spark's own GROUP BY per person, and then by
group, is timed in turns with it. Prints one JSON object.
"""

import argparse
import json
import os
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[2] / "tests" / "helpers"))
from almoner import filters
from almoner.queries import Count, Session, Sum
from sparks import cluster, started

QUESTIONS = {
    "count": Count(clip=30, sigma=1000.0),
    "sum": Sum("v", low=0, high=100, clip=30, sigma=1000.0),
    "count by 7 days": Count(clip=10, sigma=1000.0, by={"day": list(range(7))}),
}


def events(path: Path, rows: int, people: int) -> None:
    """A folder of Parquet files: random events of random people."""
    import duckdb

    path.mkdir()
    parts = 16
    with duckdb.connect() as connection:
        for part in range(parts):
            connection.execute(
                f"COPY (SELECT (hash(i) % {people})::BIGINT AS person, (hash(i + 77) % 28)::INTEGER AS day, "
                f"(hash(i * 3) % 1000) / 10.0::DOUBLE AS v FROM range({rows * part // parts}, "
                f"{rows * (part + 1) // parts}) t(i)) TO '{path}/part-{part}.parquet'"
            )


def opened(data: Any, ledger: Path) -> Session:
    """A session with a budget that is sufficient for all questions."""
    return Session.open(data, person="person", budget=filters.Zcdp(rho=100.0), ledger=ledger, create=True)


def ask(session: Session, name: str, turn: object) -> float:
    """Seconds of one question."""
    start = time.perf_counter()
    session.analyst("benchmark").ask(QUESTIONS[name], key=f"{name} {turn}")
    return time.perf_counter() - start


PER_PERSON = {  # cut off, or Spark leaves the people out
    "count": "SELECT sum(least(x, 30)) FROM (SELECT person, count(*) AS x FROM {data} GROUP BY person)",
    "sum": "SELECT sum(least(x, 3000)) FROM (SELECT person, sum(v) AS x FROM {data} GROUP BY person)",
    "count by 7 days": "SELECT day, sum(least(x, 10)) FROM (SELECT person, day, count(*) AS x FROM {data} "
    "WHERE day < 7 GROUP BY person, day) GROUP BY day",
}


def own(spark: Any, data: Any, name: str) -> float:
    """Seconds of the same without privacy, one person at a time first."""
    start = time.perf_counter()
    spark.sql(PER_PERSON[name], data=data).collect()
    return time.perf_counter() - start


def several(session: Session, rounds: int, spark: Any = None, data: Any = None) -> dict[str, tuple[float, float]]:
    """Median seconds of each question, and without privacy on Spark, in turns; after one to warm up."""
    found = {}
    for name in QUESTIONS:
        times = [
            (ask(session, name, turn), 0.0 if spark is None else own(spark, data, name)) for turn in range(rounds + 1)
        ]
        found[name] = (statistics.median(one for one, _ in times[1:]), statistics.median(one for _, one in times[1:]))
    return found


def workers(folder: Path, options: argparse.Namespace) -> dict[str, object]:
    """Compare one worker with two."""
    data = folder / "events"
    events(data, options.events, options.people)
    seconds = {}
    for number in (1, 2):
        place = folder / f"cluster{number}"
        place.mkdir()
        with cluster(place, number, pinned=True) as master:
            spark = started(
                place,
                master,
                **{
                    "spark.executor.memory": "1400m",
                    "spark.sql.shuffle.partitions": "8",
                    "spark.scheduler.minRegisteredResourcesRatio": "1.0",
                    "spark.scheduler.maxRegisteredResourcesWaitingTime": "60s",
                },
            )
            rows = spark.read.parquet(str(data))
            with opened(rows, place / "people.ledger") as session:
                seconds[number] = several(session, options.rounds, spark, rows)
            spark.stop()
    return {
        name: {
            "one worker, s": round(seconds[1][name][0], 2),
            "two workers, s": round(seconds[2][name][0], 2),
            "times as fast": round(seconds[1][name][0] / seconds[2][name][0], 2),
            "times its own GROUP BY per person": [round(seconds[n][name][0] / seconds[n][name][1], 2) for n in (1, 2)],
        }
        for name in QUESTIONS
    }


def against_duckdb(folder: Path, options: argparse.Namespace) -> dict[str, object]:
    """Compare Spark in local mode with DuckDB on the same files."""
    data = folder / "events"
    events(data, options.events, options.people)
    spark = started(folder)
    rows = spark.read.parquet(str(data))
    with opened(rows, folder / "spark") as session:
        ours = several(session, options.rounds, spark, rows)
    spark.stop()
    with opened(data, folder / "duckdb") as session:
        theirs = several(session, options.rounds)
    return {
        name: {
            "Spark, s": round(ours[name][0], 2),
            "its own GROUP BY per person, s": round(ours[name][1], 2),
            "times": round(ours[name][0] / ours[name][1], 2),
            "DuckDB, s": round(theirs[name][0], 2),
        }
        for name in QUESTIONS
    }


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser()
    parser.add_argument("what", choices=["workers", "duckdb"], nargs="?", default="workers")
    parser.add_argument("--events", type=int, default=20_000_000)
    parser.add_argument("--people", type=int, default=1_000_000)
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    before = os.getloadavg()[0]
    with tempfile.TemporaryDirectory() as folder:
        measured = {"workers": workers, "duckdb": against_duckdb}[options.what](Path(folder), options)
    result: dict[str, object] = {"events": options.events, "people": options.people}
    result["load of the machine before"] = round(before, 1)
    print(json.dumps({**result, **measured}, indent=1))


if __name__ == "__main__":
    main()
