"""One account for questions and trainings: killed across both doors; and how long a ledger's upkeep takes.

    python benchmarks/crashes/account.py [kills] [--kills 500] [--seed N] [--server] [--ledger postgresql://...]
    python benchmarks/crashes/account.py upkeep [--people 100000] [--questions 200] [--pseudonyms]

Prints one JSON object. An account above the budget, a release without its charge, or a lost reservation stops the
kills with an error. The upkeep is that of a ledger in which every question charged all people.
"""

import argparse
import json
import random
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import pyarrow as pa

from almoner import filters, ledger
from almoner.queries import Count, Session

HELPER = Path(__file__).parents[2] / "tests" / "helpers" / "account_kills.py"
sys.path.append(str(HELPER.parent))
from servers import Server  # noqa: E402


def kills(count: int, seed: int | None, place: str | None) -> dict[str, object]:
    """Kill so many workers."""
    start = time.perf_counter()
    seed = random.randrange(10**6) if seed is None else seed
    with tempfile.TemporaryDirectory() as folder:
        arguments = [place or f"{folder}/l", folder, str(count), "4", str(seed)]
        command = [sys.executable, "-W", "ignore", str(HELPER), *arguments]
        run = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    seconds = round(time.perf_counter() - start, 1)
    return {"kills": count, "seed": seed, **json.loads(run.stdout), "undercharged or lost": 0, "seconds": seconds}


def upkeep(people: int, questions: int, *, pseudonyms: bool) -> dict[str, object]:
    """Seconds for statements, checks, a replay, backups, merging and erasing, and megabytes."""
    table = pa.table({"who": np.arange(people)})
    told: dict[str, object] = {"people": people, "questions": questions}
    with tempfile.TemporaryDirectory() as folder:
        where = Path(folder) / "l"
        budget = filters.Gaussian(epsilon=4.0, delta=1e-6)
        key = Path(folder) / "key" if pseudonyms else None
        with Session.open(table, person="who", budget=budget, ledger=where, pseudonyms=key, create=True) as session:
            start = time.perf_counter()
            for number in range(questions):
                session.analyst("ann").ask(Count(clip=1, rho=1e-5), key=str(number))
            told["seconds a question"] = round((time.perf_counter() - start) / questions, 3)
            for name, work in (
                ("statement", lambda: session.statement(people // 2)),
                ("verify", session.verify),
                ("verify with replay", lambda: session.verify(replay=True)),
                ("backup", lambda: ledger.backup(session.ledger, Path(folder) / "copy")),
                (
                    "restore of the backup elsewhere",
                    lambda: ledger.restore(Path(folder) / "copy", Path(folder) / "back"),
                ),
                ("erase one person", lambda: ledger.erase(session.ledger, people // 2)),
                ("compact", lambda: ledger.compact(session.ledger)),
                ("erase one person, compacted", lambda: ledger.erase(session.ledger, people // 3)),
            ):
                if name.startswith("erase") and not pseudonyms:  # names would stay in the record
                    continue
                size, start = where.stat().st_size, time.perf_counter()
                work()
                told[f"{name}, seconds"] = round(time.perf_counter() - start, 2)
                if name == "compact":
                    told["megabytes a question, before and after compact"] = [
                        round(each / 1e6 / questions, 3) for each in (size, where.stat().st_size)
                    ]
            start = time.perf_counter()
            session.ledger.witnessed_by(Path(folder).absolute() / "head")
            for number in range(10):
                session.analyst("bob").ask(Count(clip=1, rho=1e-5), key=f"witnessed {number}")
            told["seconds a question, with a witness"] = round((time.perf_counter() - start) / 10, 3)
    return told


def main() -> None:
    """Run and print."""
    parser = argparse.ArgumentParser()
    parser.add_argument("what", choices=["kills", "upkeep"], nargs="?", default="kills")
    parser.add_argument("--kills", type=int, default=500)
    parser.add_argument("--seed", type=int, default=None)
    parser.add_argument("--ledger", default=None)
    parser.add_argument("--server", action="store_true", help="kills: on a PostgreSQL server that is started for it")
    parser.add_argument("--people", type=int, default=100_000)
    parser.add_argument("--questions", type=int, default=200)
    parser.add_argument("--pseudonyms", action="store_true", help="upkeep: of a ledger that holds hashes of names")
    options = parser.parse_args()
    if options.what == "kills":
        server = Server() if options.server else None
        try:
            place = options.ledger if server is None else server.place()
            print(json.dumps(kills(options.kills, options.seed, place), indent=1))
        finally:
            if server is not None:
                server.stop()
    else:
        told = upkeep(options.people, options.questions, pseudonyms=options.pseudonyms)
        print(json.dumps(told, indent=1))


if __name__ == "__main__":
    main()
