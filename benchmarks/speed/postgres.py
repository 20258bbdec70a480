"""Time the same question with its ledger in a file, with keyed hashes there, and on a PostgreSQL server of its own.

python benchmarks/speed/postgres.py [--people 100000 1000000] [--rounds 5]
python benchmarks/speed/postgres.py --many 1000       # whether the thousandth question takes as long as the first
python benchmarks/speed/postgres.py --writers 4       # concurrent questions of several processes
python benchmarks/speed/postgres.py --kills 500       # kills writers, and the server, at random times

Each person has four events; a question charges each person, draws the noise and commits. The server has its default
settings, except 64 MB of shared buffers, and commits to the disk. Prints one JSON object; times are medians, after a
first question that creates the accounts. Processor time is that of this process, without the server's.
"""

import argparse
import json
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa

sys.path.insert(0, str(Path(__file__).parents[2] / "tests" / "helpers"))
import writers
from almoner import filters
from almoner.queries import Count, Session
from servers import Server

QUESTION = Count(clip=4, sigma=1000.0)


def timed(session: Session, keys: list[str], clock: Callable[[], float] = time.perf_counter) -> list[float]:
    """Seconds of each question."""
    times, analyst = [], session.analyst("benchmark")
    for key in keys:
        start = clock()
        analyst.ask(QUESTION, key=key)
        times.append(clock() - start)
    return times


def sizes(server: Server, folder: Path, people: list[int], rounds: int) -> dict[str, object]:
    """Seconds of a question, for each number of people and each kind of ledger."""
    result: dict[str, object] = {}
    for count in people:
        rows = pa.table({"person": [number % count for number in range(4 * count)]})
        measured = {}
        places = {"file": folder / f"{count}.ledger", "hashes": folder / f"{count}.hashes", "server": server.place()}
        for name, place in places.items():
            options = {"person": "person", "budget": filters.Zcdp(rho=10.0), "create": True, "ledger": place}
            options["pseudonyms"] = folder / f"{count}.key" if name == "hashes" else None
            with Session.open(rows, **options) as session:
                first, *others = timed(session, [str(number) for number in range(rounds + 1)])
                measured[name] = {
                    "first question, s": round(first, 3),
                    "a question, s": round(statistics.median(others), 3),
                    "processor s": round(
                        statistics.median(timed(session, [f"more {n}" for n in range(rounds)], time.process_time)), 3
                    ),
                }
                if not all(finding.holds for finding in session.verify()):
                    raise SystemExit("the ledger's checks failed")
        result[f"{count} people"] = measured
    return result


def many(server: Server, questions: int, people: int = 10_000) -> dict[str, object]:
    """Seconds of a question with a ledger that has answered many, and with a new ledger, in turns."""
    rows = pa.table({"person": list(range(people))})
    options = {"person": "person", "budget": filters.Zcdp(rho=100.0), "create": True, "threads": 1}
    with (
        Session.open(rows, ledger=server.place(), **options) as old,
        Session.open(rows, ledger=server.place(), **options) as new,
    ):
        timed(old, [str(number) for number in range(questions)])
        timed(new, [str(number) for number in range(5)])
        times = [(timed(old, [f"last {turn}"])[0], timed(new, [f"first {turn}"])[0]) for turn in range(40)]
    last, first = (statistics.median(column) for column in zip(*times, strict=True))
    return {
        "people": people,
        "questions before": questions,
        "a question after them, s": round(last, 4),
        "a question over a new ledger, s": round(first, 4),
        "times": round(last / first, 2),
    }


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--people", type=int, nargs="+", default=[100_000, 1_000_000])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--many", type=int)
    parser.add_argument("--writers", type=int)
    parser.add_argument("--kills", type=int)
    options = parser.parse_args()
    server, start = Server(), time.perf_counter()
    try:
        with tempfile.TemporaryDirectory() as folder:
            if options.many:
                result = many(server, options.many)
            elif options.writers:
                stored = writers.race(server.place(), folder, writers=options.writers, own=50, common=50)
                asked, seconds = options.writers * 100, time.perf_counter() - start
                result = {"writers": options.writers, "questions asked": asked, "answers stored": len(stored)}
                result["seconds"] = round(seconds, 1)
            elif options.kills:
                crashes = options.kills // 10
                recorded, revealed = writers.campaign(server.place(), folder, server, options.kills - crashes, crashes)
                result = {"writers killed": options.kills - crashes, "server killed or stopped at once": crashes}
                result |= {"answers stored": recorded, "answers revealed": revealed}
                result["answers without a charge, second charges, other answers under a key"] = 0
                result["seconds"] = round(time.perf_counter() - start, 1)
            else:
                result = sizes(server, Path(folder), options.people, options.rounds)
        print(json.dumps(result, indent=1))
    finally:
        server.stop()


if __name__ == "__main__":
    main()
