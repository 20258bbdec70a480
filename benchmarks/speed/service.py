"""Time quotes and answers over HTTP against the library's own, over a million people.

python benchmarks/speed/service.py [--people 1000000] [--rounds 40] [--step 0.05]

The library, in this process, and `almoner serve`, in another one with a ledger of its own, answer the same questions in
turns. Then come a batch of 60 questions, repeats of one analyst beside questions of another, quotes of four clients at
once in turns with a Starlette that reads a body and sends one as long, and what another analyst waits while a question
with as many cells as are allowed is answered. Prints one JSON object; times are in seconds.
"""

import argparse
import json
import os
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from contextlib import suppress
from http.client import HTTPConnection
from pathlib import Path

import numpy as np
import pyarrow as pa
from pyarrow import parquet

sys.path.insert(0, str(Path(__file__).parents[2] / "tests" / "helpers"))
from almoner import filters
from almoner.queries import Count, Mean, Session
from almoner.service import hash_of, new_token
from service_processes import Process, free_ports, started

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
[holders.steward]
token = "{holder}"
may = ["metrics", "console", "statements", "verify", "policy"]
[service]
step = {step}
"""
PLACES = list(range(20))
COUNT = {"ask": "count", "by": {"place": PLACES}, "clip": 4, "sigma": 1000.0}
MEAN = {"ask": "mean", "column": "n", "low": 0, "high": 9, "sigma": 1000.0}
WIDE = {"ask": "count", "by": {"place": list(range(10_000))}, "clip": 4, "sigma": 1000.0}


def compared(folder: Path, ann: "Client", rounds: int) -> tuple[dict[str, list[float]], list[float]]:
    """Seconds of the library's quotes and answers in this process, and of answers over HTTP, in turns."""
    count, mean = Count(by={"place": PLACES}, clip=4, sigma=1000.0), Mean("n", 0, 9, sigma=1000.0)
    budget, own, served = filters.Zcdp(rho=1.0), {"quote": [], "answer": []}, []
    where = {"ledger": folder / "own.ledger", "person": "who"}
    with Session.open(folder / "events.parquet", budget=budget, **where, create=True) as session:
        analyst = session.analyst("ann")
        analyst.ask(count, key="first")
        ann.ask(COUNT, "first")
        for place in range(rounds):
            own["answer"].append(timed(lambda place=place: analyst.ask(count, key=str(place))))
            served.append(timed(lambda place=place: ann.ask(COUNT, str(place))))
        for place in range(5 * rounds):
            own["quote"].append(timed(lambda place=place: analyst.quote((count, mean)[place % 2])))
    return own, served


def batches(address: str, process: int, rounds: int) -> dict[str, dict[str, float]]:
    """Sixty questions as one batch, and one after the other, in turns: seconds, and the server's processor's."""
    ann, took = Client(address, "ann"), {"batch": [], "one by one": []}

    def measured(name: str, work) -> None:
        before = processor(process)
        took[name].append((timed(work), processor(process) - before))

    for place in range(rounds):
        tiles = [{**COUNT, "where": f"n <> {tile % 9}", "sigma": 1000.0 + tile + place / 100} for tile in range(60)]
        questions = {f"batch {place} {tile}": each for tile, each in enumerate(tiles)}
        measured("batch", lambda asked=questions: ann.post("/v1/batch", {"questions": asked}, 200))
        alone = [(each, f"alone {place} {tile}") for tile, each in enumerate(tiles)]
        measured("one by one", lambda asked=alone: [ann.ask(*each) for each in asked])
    return {
        name: dict(zip(("seconds", "processor seconds"), map(statistics.median, zip(*each, strict=True)), strict=True))
        for name, each in took.items()
    }


def repeats(address: str, process: int, seconds: float) -> dict[str, float]:
    """Answers a second that bob repeats by their key, while ann asks new questions all the time; and those of ann.

    Then what each repeat takes of the server's processor, while nobody else asks.
    """
    bob, ends, asked = Client(address, "bob"), threading.Event(), []

    def ask() -> None:
        ann = Client(address, "ann")
        while not ends.is_set():
            asked.append(timed(lambda: ann.ask({**COUNT, "where": f"n < {len(asked) % 9}"}, f"beside {len(asked)}")))

    bob.ask(COUNT, "repeated")
    asking, times = threading.Thread(target=ask), []
    asking.start()
    began = time.perf_counter()

    def repeat() -> None:
        bob.post("/v1/answers", COUNT, 200, **{"idempotency-key": "repeated"})

    while time.perf_counter() < began + seconds:
        times.append(timed(repeat))
    ends.set()
    asking.join()
    before = processor(process)
    for _ in range(200):
        repeat()
    told = {"a second": len(times) / seconds, **shown(times), "new ones beside": len(asked) / seconds}
    return told | {"processor seconds each": (processor(process) - before) / 200}


def timed(work) -> float:
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


class Client:
    """An analyst over HTTP, on one connection."""

    def __init__(self, address: str, name: str) -> None:
        self.http = HTTPConnection(address.removeprefix("http://"), timeout=600)
        self.headers = {"authorization": f"Bearer {TOKENS[name]}", "content-type": "application/json"}

    def post(self, path: str, question: dict[str, object], status: int, **headers: str) -> None:
        self.http.request("POST", path, json.dumps(question), self.headers | headers)
        response = self.http.getresponse()
        body = response.read()
        if response.status != status:
            raise RuntimeError(body)

    def quote(self, question: dict[str, object]) -> None:
        self.post("/v1/quote", question, 200)

    def ask(self, question: dict[str, object], key: str) -> None:
        self.post("/v1/answers", question, 201, **{"idempotency-key": key})


def processor(process: int) -> float:
    """Seconds of processor time that a process has taken."""
    fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def quotes(address: str, process: int, clients: int, seconds: float) -> dict[str, float]:
    """Quotes a second of several clients at once, and what each takes of the server's processor."""
    before = processor(process)
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
    taken = processor(process) - before
    return {"a second": sum(number) / seconds, "processor seconds each": taken / sum(number)}


BARE = """
import json, sys, uvicorn
from starlette.applications import Starlette
from starlette.responses import Response
from starlette.routing import Route

async def quote(request):
    await request.json()
    return Response(json.dumps({"words": "x" * %d}), media_type="application/json")

uvicorn.run(Starlette(routes=[Route("/v1/quote", quote, methods=["POST"])]), port=int(sys.argv[1]), log_level="error")
"""


def quotes_beside_bare(process: Process, rounds: int = 3) -> dict[str, object]:
    """Quotes of four clients, in turns with a bare Starlette under the same server; the ratio of requests a second."""
    client = Client(process.address, "ann")
    client.http.request("POST", "/v1/quote", json.dumps(COUNT), client.headers)
    length, (port,) = len(client.http.getresponse().read()), free_ports(1)
    bare = subprocess.Popen([sys.executable, "-c", BARE % length, str(port)])
    try:
        for _ in range(100):
            with suppress(OSError):
                socket.create_connection(("127.0.0.1", port)).close()
                break
            time.sleep(0.1)
        turns = [
            (quotes(process.address, process.running.pid, 4, 4.0), quotes(f"http://127.0.0.1:{port}", bare.pid, 4, 4.0))
            for _ in range(rounds)
        ]
    finally:
        bare.kill()
    names = ("a second", "processor seconds each")
    told = {
        who: {name: statistics.median(turn[place][name] for turn in turns) for name in names}
        for place, who in enumerate(("service", "bare"))
    }
    ratios = [ours["a second"] / theirs["a second"] for ours, theirs in turns]
    return {**told, "ratio": statistics.median(ratios), "ratios": sorted(ratios)}


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
    refused = timed(lambda: ann.post("/v1/answers", million, 422, **{"idempotency-key": "million"}))
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
        row = np.arange(rows)
        table = pa.table({"who": row % given.people, "place": row % 20, "n": row % 10})
        parquet.write_table(table, folder / "events.parquet")
        hashes = {name: hash_of(token) for name, token in TOKENS.items()}
        (folder / "policy.toml").write_text(POLICY.format(**hashes, step=given.step), encoding="utf-8")
        with started(folder) as (process,):
            own, served = compared(folder, Client(process.address, "ann"), given.rounds)
            result = {"people": given.people, "step": given.step, "library": {n: shown(t) for n, t in own.items()}}
            result["answers over HTTP"] = shown(served)
            result["p99 ratio"] = shown(served)["p99"] / shown(own["answer"])["p99"]
            result["median ratio"] = shown(served)["median"] / shown(own["answer"])["median"]
            result["60 questions"] = batches(process.address, process.running.pid, max(1, given.rounds // 10))
            result["repeats beside questions"] = repeats(process.address, process.running.pid, 10.0)
            result["quotes of 4 clients"] = quotes_beside_bare(process)
            result["held up"] = held_up(process.address)
    print(json.dumps(result, indent=2))


if __name__ == "__main__":
    main()
