"""Several processes that write to one ledger on a PostgreSQL server at once, and what must hold of what they leave.

Every writer asks its own questions and, in an order of its own, questions that all ask under the same keys. A
writer whose connection is lost opens the ledger again and asks with the same key, as the error says.
"""

import os
import random
import signal
import sys
import time
import traceback
from collections import Counter
from pathlib import Path

import pyarrow as pa

from almoner import filters
from almoner.errors import LedgerError
from almoner.ledger import verify
from almoner.queries import Count, People, Session, Sum
from almoner.queries._questions.noise import noisy

PEOPLE = 60
RHO = 0.5


def table():
    """Person i has one to five rows."""
    people = [i for i in range(PEOPLE) for _ in range(1 + i % 5)]
    return pa.table({"who": people, "n": [i % 7 for i in range(len(people))]})


def opened(uri):
    return Session.open(table(), person="who", budget=filters.Zcdp(rho=RHO), ledger=uri, threads=1, create=True)


def asked(number):
    """Question number so and so; together they cost everybody far more than the budget."""
    return (
        Count(clip=5, rho=0.01),
        Sum("n", 0, 6, clip=3, rho=0.004),
        People(rho=0.02),
    )[number % 3]


def persistent(uri, work, patience=60):
    """Work with a session; opens it again whenever the ledger was lost."""
    end = time.monotonic() + patience
    while True:
        try:
            with opened(uri) as session:
                return work(session)
        except LedgerError:
            if time.monotonic() > end:
                raise
            time.sleep(0.05)


def answer(session, key):
    """The answer under a key, which says who asks and which question."""
    name, _, number = key.partition(" ")
    return session.analyst(name).ask(asked(int(number)), key=key, anyway=True).released


def write(uri, out, keys):
    """Ask under keys, one after another, and write down every answer as it is revealed."""
    todo = list(keys)

    def work(session):
        with Path(out).open("a", encoding="utf-8") as file:
            while todo:
                file.write(f"{todo[0]}\t{answer(session, todo[0])}\n")
                file.flush()
                todo.pop(0)

    persistent(uri, work)


def keys_of(name, own, common):
    """A writer's own keys and the common ones, in an order of its own."""
    keys = [f"{name} {number}" for number in range(own)] + [f"common {number}" for number in range(common)]
    random.Random(name).shuffle(keys)
    return keys


def spawn(work, *arguments):
    """Fork a process that works; returns its number. Nothing may be open in the parent."""
    child = os.fork()
    if child:
        return child
    code = 1
    try:
        work(*arguments)
        code = 0
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stderr.flush()
        os._exit(code)


def revealed(folder):
    """{key: {answers}} of all complete lines that writers wrote."""
    found = {}
    for path in Path(folder).glob("*.out"):
        for line in path.read_text(encoding="utf-8").split("\n")[:-1]:
            key, _, released = line.partition("\t")
            found.setdefault(key, set()).add(released)
    return found


def check(uri, folder):
    """What must hold at any time; returns {key: answer} as recorded."""
    with opened(uri) as session:
        findings = session.verify(replay=True)
        problems = [finding.what for finding in findings if not finding.holds]
        entries = session.ledger.entries("answered")
        times = Counter(entry.public["key"] for entry in entries)
        problems += [f"{key} was answered {count} times" for key, count in times.items() if count > 1]
        stored = {entry.public["key"]: str(entry.public["released"]) for entry in entries}
        for key, answers in revealed(folder).items():
            if answers != {stored.get(key)}:
                problems.append(f"{key}: what was revealed is not what is stored")
        spent = [session.ledger.spent(person) for person in range(PEOPLE)]
        if max(spent) > session.ledger.budget_units:
            problems.append("somebody is over budget")
        totals = [sum(units for _, units in session.ledger.charges(person)) for person in range(PEOPLE)]
        if totals != spent:
            problems.append("accounts and charges differ")
        if problems:
            raise LedgerError("; ".join(problems))
        return stored


def race(uri, folder, writers=4, own=40, common=40):
    """All writers at once, nobody is killed; returns what is recorded."""
    opened(uri).close()
    noisy([0], asked(0).mechanism)  # load what the children need
    names = [chr(ord("a") + number) for number in range(writers)]
    children = [spawn(write, uri, Path(folder) / f"{name}.out", keys_of(name, own, common)) for name in names]
    codes = [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children]
    if any(codes):
        raise LedgerError(f"a writer failed: {codes}")
    return check(uri, folder)


def campaign(uri, folder, server, kills, crashes, seed=None, writers=4, each=None):
    """Writers are killed at random moments and replaced, and the server too; then everything is replayed.

    Args:
        uri, folder: the ledger, and where writers write down answers.
        server: whose power is cut now and then.
        kills: how often a writer is killed.
        crashes: how often the server is killed, or stopped at once.
    """
    chance = random.Random(seed)
    opened(uri).close()
    noisy([0], asked(0).mechanism)
    names = [chr(ord("a") + number) for number in range(writers)]
    start = dict.fromkeys(names, 0)

    def begin(name):
        start[name] += 1
        keys = keys_of(name, 300, 300)
        return spawn(write, uri, Path(folder) / f"{name}{start[name]}.out", keys)

    children = {name: begin(name) for name in names}
    events = ["kill"] * kills + ["crash"] * crashes
    chance.shuffle(events)
    try:
        for place, event in enumerate(events):
            time.sleep(chance.uniform(0, 0.4))
            if event == "kill":
                name = chance.choice(sorted(children))
                os.kill(children[name], signal.SIGKILL)
                os.waitpid(children[name], 0)
                children[name] = begin(name)
            else:
                (server.kill if chance.random() < 0.5 else server.crash)()
                server.start()
            if each:
                each(place, event)
    finally:
        for child in children.values():
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
    stored = check(uri, folder)
    with opened(uri) as session:
        before = [session.ledger.spent(person) for person in range(PEOPLE)]
        for key, told in stored.items():
            if str(answer(session, key)) != told:
                raise LedgerError("another answer under the same key")
        if before != [session.ledger.spent(person) for person in range(PEOPLE)]:
            raise LedgerError("a key was charged twice")
        if not all(finding.holds for finding in verify(session.ledger)):
            raise LedgerError("the ledger does not check")
    return len(stored), len(revealed(folder))
