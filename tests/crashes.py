"""Killing a process that asks questions, at random moments, and checking what is left. Used by tests and benchmarks."""

import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pyarrow as pa

from bursar import filters
from bursar.errors import LedgerError
from bursar.queries import Count, Session, Sum
from bursar.queries._noise import noisy

PEOPLE = 3000
RHO_EACH = 2e-6


def table():
    """Everybody has one to five rows."""
    people = [i for i in range(PEOPLE) for _ in range(1 + i % 5)]
    return pa.table({"who": people, "n": [i % 7 for i in range(len(people))]})


def opened(ledger):
    return Session.open(table(), person="who", budget=filters.Zcdp(rho=1.0), ledger=ledger)


def asked(number):
    """Question number so and so: cheap, never the same price twice in a row."""
    if number % 2:
        return Sum("n", 0, 6, where="n > 1", clip=2, rho=RHO_EACH)
    return Count(clip=3, by={"n": [0, 1, 2]}, rho=2 * RHO_EACH)


def work(ledger, out):
    """Ask questions for ever, each key once; write down each answer when it is revealed."""
    with opened(ledger) as session:
        analyst = session.analyst("worker")
        number = len(analyst.answers())
        print("ready", flush=True)
        with Path(out).open("a", encoding="utf-8") as file:
            while True:
                found = analyst.ask(asked(number), key=f"question {number}")
                file.write(f"{number} {found.released}\n")
                file.flush()
                number += 1


def nursery(ledger, out):
    """Fork a worker for each line that is read: the libraries are loaded once, and nothing is open."""
    noisy([0], asked(0).mechanism)
    print("loaded", flush=True)
    for _ in sys.stdin:
        child = os.fork()
        if child == 0:
            work(ledger, out)
        print(child, flush=True)
        os.waitpid(child, 0)
        print("gone", flush=True)


def kill_once(workers, seconds):
    """Start a worker, kill it that long after it is ready (or after its start, if negative)."""
    workers.stdin.write("\n")
    workers.stdin.flush()
    child, ready = None, seconds < 0
    while child is None or not ready:
        line = workers.stdout.readline().strip()
        ready, child = ready or line == "ready", child or (int(line) if line.isdecimal() else None)
    time.sleep(abs(seconds))
    os.kill(child, signal.SIGKILL)
    while workers.stdout.readline().strip() != "gone":
        pass


def revealed(out):
    """{number: answer} of the complete lines that workers wrote; refuses two answers to one question."""
    found = {}
    for line in Path(out).read_text(encoding="utf-8").split("\n")[:-1] if Path(out).exists() else ():
        number, _, released = line.partition(" ")
        if number in found and found[number] != released:
            raise ValueError(f"question {number} was answered twice")
        found[number] = released
    return found


def check(ledger, out):
    """What must hold after a crash; returns (answers recorded, answers revealed)."""
    with opened(ledger) as session:
        problems = [finding.what for finding in session.verify() if not finding.holds]
        recorded = session.ledger.entries("answered")
        keys = [entry.public["key"] for entry in recorded]
        if keys != [f"question {number}" for number in range(len(keys))]:
            problems.append("keys are missing or double")
        stored = {str(number): str(entry.public["released"]) for number, entry in enumerate(recorded)}
        shown = revealed(out)
        if any(stored.get(number) != released for number, released in shown.items()):
            problems.append("an answer was revealed that is not stored, or another one is")
        expected = sum(asked(number).price for number in range(len(keys)))
        if session.ledger.spent(4) > expected or len(recorded) - len(shown) < 0:
            problems.append("more was charged than asked")
        # person 4 has five rows, so every question costs that person something
        if len(session.ledger.charges(4)) != len(recorded):
            problems.append("an answer without its charge")
        if problems:
            raise LedgerError("; ".join(problems))
        return len(recorded), len(shown)


def campaign(folder, kills, seed, each=None):
    """Kill that often at random moments, checking after every kill; returns the last check."""
    chance = random.Random(seed)
    ledger, out = Path(folder) / "people.ledger", Path(folder) / "revealed.txt"
    opened(ledger).close()
    result = (0, 0)
    workers = subprocess.Popen(
        [sys.executable, __file__, str(ledger), str(out)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    try:
        workers.stdout.readline()
        for kill in range(kills):
            kill_once(workers, chance.uniform(0, 0.25) if chance.random() < 0.9 else -chance.uniform(0, 0.1))
            result = check(ledger, out)
            if each:
                each(kill, result)
    finally:
        workers.stdin.close()
        workers.wait()
        workers.stdout.close()
    with opened(ledger) as session:  # replay: every key gives what is stored, and costs nothing
        analyst, before = session.analyst("worker"), session.ledger.spent(4)
        for number in range(result[0]):
            stored = session.ledger.find(f"question {number}").public["released"]
            if analyst.ask(asked(number), key=f"question {number}").released != stored:
                raise LedgerError("another answer under the same key")
        if session.ledger.spent(4) != before or not all(finding.holds for finding in session.verify(replay=True)):
            raise LedgerError("the replay differs")
    return result


if __name__ == "__main__":
    nursery(sys.argv[1], sys.argv[2])
