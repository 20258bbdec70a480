"""Kill services, and their server, while analysts ask: every key has one answer, charged once.

python benchmarks/crashes/service_kills.py [--questions 10000] [--clients 8] [--kills 200] [--server-kills 20] [--seed]

Two `almoner serve` over one ledger on a PostgreSQL server of its own. Two analysts ask half of the questions each; all
clients of an analyst ask the same keys, each in an order of its own, and again until they are answered. The two
processes and the server are killed at random moments, spread over the questions. Prints one JSON object.
"""

import argparse
import json
import random
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2] / "tests" / "helpers"))
from almoner.ledger import Ledger
from servers import Server
from service_load import checked, load
from service_processes import started
from services import COUNT, POLICY, service_folder

LIMITS = "[limits]\nleast = 0\nquestions = 1000000\nseconds = 86400\nrequests = 1000000\n"
QUESTION = {**COUNT, "sigma": 1000}


def killed(server: Server, processes, told, events: list[tuple[float, int | None]]) -> dict[str, int]:
    """Kill a process or the server whenever so many answers have come; how often each was killed."""
    counts = {"processes": 0, "server": 0}
    for after, which in events:
        while sum(map(len, told.values())) < after:
            time.sleep(0.01)
        time.sleep(random.uniform(0, 0.05))
        if which is None:
            server.kill()
            server.start()
            counts["server"] += 1
            continue
        if processes[which].running.poll() is None:
            processes[which].kill()
        processes[which].begin()
        counts["processes"] += 1
    return counts


def result(questions: int, clients: int, kills: int, server_kills: int) -> dict[str, object]:
    """Ask, kill, and check."""
    keys = [str(key) for key in range(questions // 2)]
    told = {(who, key): [] for who in ("ann", "bob") for key in keys}
    requests = len(told) * (clients // 2)
    whom = [*(place % 2 for place in range(kills)), *[None] * server_kills]
    random.shuffle(whom)
    events = list(zip(sorted(random.uniform(0, 0.95 * requests) for _ in whom), whom, strict=True))
    server, start = Server(), time.perf_counter()
    try:
        place = server.place()
        before, _, after = POLICY.partition("[analysts.ann]")
        policy = (
            before.partition("[limits]")[0].replace('"people.ledger"', f'"{place}"') + LIMITS + "[analysts.ann]" + after
        )
        with tempfile.TemporaryDirectory() as folder, started(service_folder(Path(folder), policy), 2) as processes:
            turn = iter(range(10**12))
            asking = load(lambda: processes[next(turn) % 2].address, keys, told, each=clients // 2, question=QUESTION)
            counts = killed(server, processes, told, events)
            for each in asking:
                each.join()
        seconds = time.perf_counter() - start
        checked(place, told, each=clients // 2)
        with Ledger.open(place, create=False) as book:
            answers = len(book.entries("answered"))
    finally:
        server.stop()
    wrong = {"answers that differ, are missing, or were charged twice": 0}  # else it has stopped before
    return {"answers": answers, "requests": requests, "killed": counts, **wrong, "seconds": round(seconds, 1)}


def main() -> None:
    """Parse the options, and print the result."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--questions", type=int, default=10_000)
    parser.add_argument("--clients", type=int, default=8)
    parser.add_argument("--kills", type=int, default=200)
    parser.add_argument("--server-kills", type=int, default=20)
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    random.seed(given.seed)
    print(json.dumps(result(given.questions, given.clients, given.kills, given.server_kills)))


if __name__ == "__main__":
    main()
