"""Killing a process that asks questions, at random moments, and checking what is left. Used by tests and benchmarks.

With DuckDB, one process forks a worker for each kill. With Spark, each worker is a process with its own Java; it is
killed alone, so that its Java goes on for a moment, or together with its Java, or its Java alone.
"""

import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from contextlib import suppress
from pathlib import Path

import pyarrow as pa

from almoner import filters
from almoner.errors import AlmonerError, LedgerError
from almoner.ledger import Ledger, verify
from almoner.queries import Count, Session, Sum
from almoner.queries._questions.noise import noisy

PEOPLE = 3000
RHO_EACH = 2e-6


def table():
    """Everybody has one to five rows."""
    people = [i for i in range(PEOPLE) for _ in range(1 + i % 5)]
    return pa.table({"who": people, "n": [i % 7 for i in range(len(people))]})


def opened(ledger, spark=None):
    data = table() if spark is None else spark.createDataFrame(table())
    return Session.open(data, person="who", budget=filters.Zcdp(rho=1.0), ledger=ledger, create=True)


def asked(number):
    """Question number so and so: cheap, never the same price twice in a row."""
    if number % 2:
        return Sum("n", 0, 6, where="n > 1", clip=2, rho=RHO_EACH)
    return Count(clip=3, by={"n": [0, 1, 2]}, rho=2 * RHO_EACH)


def work(ledger, out, spark=None):
    """Ask questions for ever, each key once; write down each answer when it is revealed."""
    with opened(ledger, spark) as session:
        analyst = session.analyst("worker")
        number = len(analyst.answers())
        print("ready", flush=True)
        with Path(out).open("a", encoding="utf-8") as file:
            while True:
                found = analyst.ask(asked(number), key=f"question {number}", anyway=True)
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


def work_on_spark(ledger, out):
    """Start Spark, wait for a line, then work; without Java there is no work any more."""
    from sparks import NO_CODE, started

    spark = started(Path(ledger).parent / "spark", **NO_CODE)
    with tempfile.TemporaryDirectory() as folder, opened(Path(folder) / "l", spark) as session:
        for number in range(2):  # the first questions of a fresh Java take many times as long
            start = time.perf_counter()
            session.analyst("warm").ask(asked(number), key=str(number), anyway=True)
    print(time.perf_counter() - start, flush=True)
    sys.stdin.readline()
    try:
        work(ledger, out, spark)
    except (AlmonerError, OSError):
        os._exit(1)


def kill_spark_once(worker, questions, victim):
    """Let a worker work for about so many questions, then kill "driver", "java" or "both"; returns when it is gone."""
    seconds = questions * float(worker.stdout.readline() or "nan")  # how long one question takes here and now
    worker.stdin.write("\n")
    worker.stdin.flush()
    while worker.stdout.readline().strip() not in ("ready", ""):
        pass
    time.sleep(seconds)
    javas = [int(each) for each in Path(f"/proc/{worker.pid}/task/{worker.pid}/children").read_text().split()]
    for pid in {"driver": [worker.pid], "java": javas, "both": [worker.pid, *javas]}[victim]:
        os.kill(pid, signal.SIGKILL)
    worker.wait()


def spark_worker(ledger, out):
    """A process that starts Spark now and waits."""
    from sparks import dies_with_its_parent

    return subprocess.Popen(
        [sys.executable, __file__, str(ledger), str(out), "spark"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        start_new_session=True,
        preexec_fn=dies_with_its_parent,
    )


def campaign_on_spark(folder, kills, seed, spark, each=None, most=3.0):
    """``campaign`` with a Spark session for the last check; checks between kills need none."""
    chance = random.Random(seed)
    ledger, out = Path(folder) / "people.ledger", Path(folder) / "revealed.txt"
    opened(ledger, spark).close()
    result, waiting = (0, 0), [spark_worker(ledger, out)]
    try:
        for kill in range(kills):
            if kill + 1 < kills:
                waiting.append(spark_worker(ledger, out))
            worker = waiting[0]
            kill_spark_once(worker, chance.uniform(0, most), chance.choice(["driver", "driver", "both", "java"]))
            result = check(ledger, out)
            if each:
                each(kill, result)
            finish(waiting.pop(0))
    finally:
        for worker in waiting:
            finish(worker)
    return replayed(ledger, result, spark)


def finish(worker):
    """Nothing of a worker is left running."""
    with suppress(ProcessLookupError):
        os.killpg(worker.pid, signal.SIGKILL)
    worker.wait()
    worker.stdin.close()
    worker.stdout.close()


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
    with Ledger.open(ledger) as book:
        problems = [finding.what for finding in verify(book) if not finding.holds]
        recorded = book.entries("answered")
        keys = [entry.public["key"] for entry in recorded]
        if keys != [f"question {number}" for number in range(len(keys))]:
            problems.append("keys are missing or double")
        stored = {str(number): str(entry.public["released"]) for number, entry in enumerate(recorded)}
        shown = revealed(out)
        if any(stored.get(number) != released for number, released in shown.items()):
            problems.append("an answer was revealed that is not stored, or another one is")
        expected = sum(asked(number).price for number in range(len(keys)))
        if book.spent(4) > expected or len(recorded) - len(shown) < 0:
            problems.append("more was charged than asked")
        # person 4 has five rows, so every question costs that person something
        if len(book.charges(4)) != len(recorded):
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
    return replayed(ledger, result)


def replayed(ledger, result, spark=None):
    """Every key gives what is stored, and costs nothing; charging everything again gives the same accounts."""
    with opened(ledger, spark) as session:
        analyst, before = session.analyst("worker"), session.ledger.spent(4)
        for number in range(result[0]):
            stored = session.ledger.find(f"question {number}").public["released"]
            if analyst.ask(asked(number), key=f"question {number}", anyway=True).released != stored:
                raise LedgerError("another answer under the same key")
        if session.ledger.spent(4) != before or not all(finding.holds for finding in session.verify(replay=True)):
            raise LedgerError("the replay differs")
    return result


if __name__ == "__main__":
    (work_on_spark if sys.argv[3:] == ["spark"] else nursery)(*sys.argv[1:3])
