"""Kill a process that asks and trains on one ledger, at random moments, and check both doors after each kill.

    python tests/helpers/account_kills.py LEDGER FOLDER KILLS SECONDS SEED

Each worker goes on where the last was killed: it asks a question, then trains a model, from its folder if there is
one, and so on. It writes down every answer that it was told and, for every training step whose parameters a callback
has seen, that is, once they are released, everybody's squared contribution: what was really spent.
"""

import json
import os
import random
import signal
import sys
from fractions import Fraction
from pathlib import Path

import numpy as np
import pyarrow as pa
import torch
from torch import nn

from almoner import filters, training
from almoner.errors import LedgerError
from almoner.ledger import verify
from almoner.queries import Count, Session

N, STEPS, SIGMA = 30, 12, 4.0
NAMES = [f"p{number}" for number in range(N)]


def opened(place):
    table = pa.table({"who": [name for row, name in enumerate(NAMES) for _ in range(1 + row % 3)]})
    return Session.open(table, person="who", budget=filters.Gaussian(mu=4.0), ledger=place, threads=1, create=True)


def note(folder, line):
    descriptor = os.open(folder / "released.txt", os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    os.write(descriptor, (json.dumps(line) + "\n").encode())
    os.close(descriptor)


def train(session, folder, key):
    """One model, from its folder if there is one."""
    torch.manual_seed(0)
    x = torch.randn(N, 3)
    module, squares = nn.Linear(3, 2), np.zeros(N)
    original = training.Gradients.sums

    def noting(self, inputs, targets, weigh, people=None, observe=None):
        def seen(chosen, norms):
            weights = weigh(chosen, norms)
            squares[chosen.numpy()] = (weights * norms).numpy() ** 2
            return weights

        return original(self, inputs, targets, seen, people=people, observe=observe)

    def publish(run):
        if squares.any():
            note(folder, {"key": key, "squares": squares.tolist()})
            squares[:] = 0

    training.Gradients.sums = noting
    try:
        job = training.Trainer(
            module,
            nn.CrossEntropyLoss(reduction="none"),
            torch.optim.SGD(module.parameters(), lr=0.5),
            training.OnLedger(session.ledger, key, at_most=filters.Gaussian(mu=STEPS**0.5 / SIGMA)),
            max_grad_norm=1.0,
            noise_multiplier=SIGMA,
            divisor=N,
            steps=STEPS,
        )
        kept = training.RunFolder(folder / key, every=5, resume=True)
        job.fit(x, (x[:, 0] > 0).long(), NAMES, callbacks=[publish], folder=kept)
    finally:
        training.Gradients.sums = original
    note(folder, {"model": key})


def work(place, folder, timer, seconds, early):
    """Ask and train until killed, so many seconds after the ledger is open; or, early, after the start."""
    torch.set_num_threads(1)
    if early:
        signal.setitimer(timer, seconds)
    with opened(place) as session:
        signal.setitimer(timer, seconds)
        while True:
            states = {each.key: each.state for each in session.ledger.consumers.values()}
            number = sum(state == "settled" for state in states.values())
            for question in range(number, number + 2):
                key = f"question {question}"
                told = session.analyst("ann").ask(Count(clip=3, rho=0.002, pace=1, anyway=True), key=key)
                note(folder, {"answer": key, "released": list(told.released)})
            train(session, folder, f"model {number}")


def check(place, folder):
    """Raise where anything is undercharged, lost, or above the budget; (models, steps, answers)."""
    lines = (folder / "released.txt").read_text(encoding="utf-8").split("\n")[:-1]
    lines = [json.loads(line) for line in lines]
    with opened(place) as session:
        book = session.ledger
        problems = [each.what for each in verify(book) if not each.holds]
        rows = book.store.run("SELECT person, spent FROM ledger.accounts")
        spent = {book.accounts.named(person): units for person, units in rows}
        problems += ["above the budget"] if max(spent.values(), default=0) > book.budget_units else []
        stored = {entry.public["key"]: entry.public["released"] for entry in book.entries("answered")}
        charged = {}
        for entry in book.entries():
            if entry.kind in ("training", "settled"):
                key = entry.public.get("training") if entry.kind == "settled" else entry.public["key"]
                for person, units in book.accounts.units_of(entry.number).items():
                    charged.setdefault(key, dict.fromkeys(NAMES, 0))[person] += units
        states = {each.key: each.state for each in book.consumers.values()}
    really = {}
    for line in lines:
        if "answer" in line and stored.get(line["answer"]) != line["released"]:
            problems.append(f"{line['answer']} was revealed and is not stored")
        if "model" in line and states.get(line["model"]) != "settled":
            problems.append(f"{line['model']} was released and is not settled")
        if "squares" in line:
            really.setdefault(line["key"], []).append(line["squares"])
    for key, steps in really.items():
        for row, name in enumerate(NAMES):
            cost = sum(Fraction(step[row]) for step in steps) / (2 * Fraction(SIGMA) ** 2) * 10**15
            if cost > charged.get(key, {}).get(name, 0) * (1 + Fraction(1, 10**9)):
                problems.append(f"{key}: somebody is undercharged")
    if problems:
        raise SystemExit(f"the guarantee is violated: {sorted(set(problems))}")
    return sum("model" in line for line in lines), sum(map(len, really.values())), len(stored)


def in_a_child(job, *arguments):
    """The exit status of a forked process that does this job."""
    child = os.fork()
    if child == 0:
        code = 1
        try:
            job(*arguments)
            code = 0
        except SystemExit as stopped:
            print(stopped, file=sys.stderr, flush=True)
        except LedgerError as error:
            print(repr(error), file=sys.stderr, flush=True)
        finally:
            os._exit(code)
    return os.waitpid(child, 0)[1]


def report(place, folder):
    found = dict(zip(("models", "steps", "answers"), check(place, folder), strict=True))
    (folder / "found.json").write_text(json.dumps(found), encoding="utf-8")


def campaign(place, folder, kills, seconds, seed):
    """Kill so many workers, each after up to so many seconds, and check after each; the last counts, printed."""
    chance, folder = random.Random(seed), Path(folder)
    (folder / "released.txt").touch()
    for number in range(kills):
        timer = chance.choice([signal.ITIMER_REAL, signal.ITIMER_PROF])  # the clock, or the processor
        after = chance.uniform(0.01, seconds)
        status = in_a_child(work, place, folder, timer, after, chance.random() < 0.1)
        if not os.WIFSIGNALED(status):
            raise SystemExit(f"worker {number} ended by itself")
        if in_a_child(report, place, folder):
            raise SystemExit(f"after kill {number}")
    print((folder / "found.json").read_text(encoding="utf-8"))


if __name__ == "__main__":
    ledger, out, count, most, start = sys.argv[1:]
    campaign(ledger if "://" in ledger else Path(ledger), out, int(count), float(most), int(start))
