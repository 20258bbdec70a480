"""Time quotes and answers over HTTP against the library's own, over a million people.

python benchmarks/service.py [--people 1000000] [--rounds 40] [--step 0.05]

First the library asks the same questions in this process; then `bursar serve` answers them in another one, over a
ledger of its own: quotes of four clients at once, answers of one client, and what another analyst waits while a
question with as many cells as are allowed is answered. Prints one JSON object; times are in seconds.
"""

import argparse
import json
import statistics
import sys
import tempfile
import threading
import time
from pathlib import Path

import httpx2
import pyarrow as pa
from pyarrow import parquet

sys.path.insert(0, str(Path(__file__).parent.parent / "tests" / "helpers"))
from bursar import filters
from bursar.queries import Count, Mean, Session
from bursar.service import hash_of, new_token
from service_processes import started

TOKENS = {name: new_token() for name in ("ann", "bob", "holder")}
POLICY = """
ledger = "served.ledger"
person = "who"
rho = 1.0
[tables.events]
data = "events.parquet"
columns = {{ place = {{}}, n = {{}} }}
[limits]
share = 1.0
least = 0
questions = 1000000
requests = 1000000
seconds = 86400
[analysts.ann]
token = "{ann}"
[analysts.bob]
token = "{bob}"
[holder]
token = "{holder}"
[service]
step = {step}
"""
PLACES = list(range(20))
COUNT = {"ask": "count", "by": {"place": PLACES}, "clip": 4, "sigma": 1000.0}
MEAN = {"ask": "mean", "column": "n", "low": 0, "high": 9, "sigma": 1000.0}
WIDE = {"ask": "count", "by": {"place": list(range(10_000))}, "clip": 4, "sigma": 1000.0}


def library(folder: Path, rounds: int) -> dict[str, list[float]]:
    """Seconds of quotes and answers in this process."""
    count, mean = Count(by={"place": PLACES}, clip=4, sigma=1000.0), Mean("n", 0, 9, sigma=1000.0)
    budget, times = filters.Zcdp(rho=1.0), {"quote": [], "answer": []}
    where = {"ledger": folder / "own.ledger", "person": "who"}
    with Session.open(folder / "events.parquet", budget=budget, **where) as session:
        ann = session.analyst("ann")
        ann.ask(count, key="first")
        for place in range(rounds):
            times["answer"].append(timed(lambda place=place: ann.ask(count, key=str(place))))
        for place in range(5 * rounds):
            times["quote"].append(timed(lambda place=place: ann.quote((count, mean)[place % 2])))
    return times


def timed(work) -> float:
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


class Client:
    """An analyst over HTTP."""

    def __init__(self, address: str, name: str) -> None:
        headers = {"authorization": f"Bearer {TOKENS[name]}"}
        self.http = httpx2.Client(base_url=address, headers=headers, timeout=600)

    def quote(self, question: dict[str, object]) -> None:
        self.http.post("/v1/quote", json=question).raise_for_status()

    def ask(self, question: dict[str, object], key: str) -> None:
        self.http.post("/v1/answers", json=question, headers={"idempotency-key": key}).raise_for_status()


def quotes(address: str, clients: int, seconds: float) -> float:
    """Quotes a second of several clients at once."""
    number, ends = [0] * clients, time.perf_counter() + seconds

    def ask(place: int) -> None:
        client = Client(address, ("ann", "bob")[place % 2])
        while time.perf_counter() < ends:
            client.quote((COUNT, MEAN)[number[place] % 2])
            number[place] += 1

    threads = [threading.Thread(target=ask, args=(place,)) for place in range(clients)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    return sum(number) / seconds


def held_up(address: str) -> dict[str, float]:
    """How long a question of 10,000 cells takes, and how long another analyst waits who asks in the middle of it."""
    ann, bob, wide = Client(address, "ann"), Client(address, "bob"), []
    asking = threading.Thread(target=lambda: wide.append(timed(lambda: ann.ask(WIDE, "wide"))))
    asking.start()
    time.sleep(0.2)
    quoted = timed(lambda: bob.quote(MEAN))
    asked = timed(lambda: bob.ask(MEAN, "beside"))
    asking.join()
    million = {**WIDE, "by": {"place": list(range(1000)), "n": list(range(1000))}}
    refused = timed(lambda: ann.http.post("/v1/answers", json=million, headers={"idempotency-key": "million"}))
    return {
        "10,000 cells": wide[0],
        "another's quote": quoted,
        "another's question": asked,
        "a million, refused": refused,
    }


def shown(times: list[float]) -> dict[str, float]:
    ordered = sorted(times)
    return {"median": statistics.median(ordered), "p99": ordered[min(len(ordered) - 1, int(0.99 * len(ordered)))]}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--people", type=int, default=1_000_000)
    parser.add_argument("--rounds", type=int, default=40)
    parser.add_argument("--step", type=float, default=0.05)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder, rows = Path(name), 4 * given.people
        who = pa.array((place % given.people for place in range(rows)), pa.int64())
        table = {"who": who, "place": [row % 20 for row in range(rows)], "n": [row % 10 for row in range(rows)]}
        parquet.write_table(pa.table(table), folder / "events.parquet")
        del table, who
        hashes = {name: hash_of(token) for name, token in TOKENS.items()}
        (folder / "policy.toml").write_text(POLICY.format(**hashes, step=given.step), encoding="utf-8")
        own = library(folder, given.rounds)
        with started(folder) as (process,):
            ann = Client(process.address, "ann")
            ann.ask(COUNT, "first")
            served = [timed(lambda place=place: ann.ask(COUNT, str(place))) for place in range(given.rounds)]
            result = {"people": given.people, "step": given.step, "library": {n: shown(t) for n, t in own.items()}}
            result["answers over HTTP"] = shown(served)
            result["p99 ratio"] = shown(served)["p99"] / shown(own["answer"])["p99"]
            result["median ratio"] = shown(served)["median"] / shown(own["answer"])["median"]
            result["quotes a second, 4 clients"] = quotes(process.address, 4, 10.0)
            result["held up"] = held_up(process.address)
    print(json.dumps(result, indent=2))


if __name__ == "__main__":
    main()
