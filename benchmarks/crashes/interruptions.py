"""Interrupt a DP-SGD run again and again, and let it go on: what Ctrl-C, SIGTERM and kill -9 cost.

    python benchmarks/crashes/interruptions.py [--runs 7] [--each 5] [--every N] [--work 0.15] [--data FOLDER] [--quick]

A run of 60 sampled steps on Adult, of a linear module with an account for each person, is ended so many times, after a
random step and a random part of the next one, and goes on from its folder; some runs by Ctrl-C, some by SIGTERM, some
by kill -9, and as many undisturbed ones beside them. A parent that has loaded everything forks those that train. Steps
of this small module take about as long as saving; --work makes them longer, as steps of larger ones are. --quick: two
interruptions of each kind. Prints one JSON object: for each kind the accuracy on Adult's test people, the mean share of
a budget that is used, and the steps that were charged and not taken, for each interruption.
"""

import argparse
import json
import mmap
import os
import random
import signal
import sys
import tempfile
import time
import traceback
from pathlib import Path
from statistics import mean, stdev

import numpy as np
import torch
from torch import nn

from almoner import filters, training
from almoner.training import demo_tables

STEPS, RATE = 60, 0.05
KINDS = {"undisturbed": None, "Ctrl-C": signal.SIGINT, "SIGTERM": signal.SIGTERM, "kill -9": signal.SIGKILL}

Data = tuple[torch.Tensor, torch.Tensor]


def adult(folder: Path) -> tuple[Data, Data]:
    """Training and test people."""
    told = demo_tables.adult(folder)
    return tuple((torch.tensor(x.toarray()), torch.tensor(np.asarray(y)).long()) for x, y in (told.train, told.test))


def trained(
    data: Data, judges: Data, folder: Path, every: int | None, steps: int = STEPS, callbacks: tuple = ()
) -> dict[str, float]:
    """Train, or go on, to the end; accuracy in percent, share of the budget, steps, and steps charged and not taken."""
    module = nn.Linear(data[0].shape[1], 2, bias=False).double()
    nn.init.zeros_(module.weight)
    trainer = training.Trainer(
        module,
        nn.CrossEntropyLoss(reduction="none"),
        torch.optim.SGD(module.parameters(), lr=4.0),
        filters.RenyiOrder(alpha=4.0, epsilon=8.0, delta=1e-5),
        max_grad_norm=1.0,
        divisor=len(data[0]),
        steps=steps,
        sampling=training.Poisson(RATE, refresh_every=10),
    )
    run = trainer.fit(*data, folder=training.RunFolder(folder, every=every, resume=True), callbacks=callbacks)
    right = (module(judges[0]).argmax(1) == judges[1]).double().mean().item()
    lost = sum(run.released.values()) - run.step
    return {"accuracy": 100 * right, "share": float(trainer.shares().mean()), "steps": run.step, "lost": lost}


class Process:
    """A forked process that trains; ``step`` is the last one that it has taken."""

    def __init__(self, data: Data, judges: Data, folder: Path, given: argparse.Namespace) -> None:
        self._seen, self._given = mmap.mmap(-1, 1), given
        sys.stdout.flush()
        self.number = os.fork()
        if not self.number:
            self._train(data, judges, folder)

    def _train(self, data: Data, judges: Data, folder: Path) -> None:
        def told(run: object) -> None:
            self._seen[0] = run.step + 1
            until = time.process_time() + self._given.work
            while time.process_time() < until:
                pass

        try:
            end = trained(data, judges, folder / "run", self._given.every, callbacks=(told,))
            (folder / "end.json").write_text(json.dumps(end))
            os._exit(0)
        except KeyboardInterrupt:
            os._exit(130)
        except BaseException:
            traceback.print_exc()
            sys.stderr.flush()
        os._exit(1)

    def ended(self, after: int, by: signal.Signals | None, wait: float) -> bool:
        """Wait for a step, and so many seconds, and end it then; True if it had come to its own end before."""
        while not (found := os.waitpid(self.number, os.WNOHANG))[0]:
            if by is not None and self._seen[0] > after:
                time.sleep(wait)
                os.kill(self.number, by)
                by = None
            time.sleep(0.0005)
        status = os.waitstatus_to_exitcode(found[1])
        if status not in (0, 130, -signal.SIGTERM, -signal.SIGKILL):
            raise SystemExit(f"a training ended with status {status}")
        return status == 0


def interrupted(
    data: Data, judges: Data, by: signal.Signals | None, given: argparse.Namespace, chance: random.Random
) -> dict[str, float]:
    """One run that is ended so many times, at random places in order, and then goes on to its end."""
    places = sorted(chance.randrange(1, STEPS - 1) for _ in range(0 if by is None else given.each))
    with tempfile.TemporaryDirectory() as place:
        done = 0
        for after in places:
            wait = chance.uniform(0, 0.03 + given.work)
            done += not Process(data, judges, Path(place), given).ended(after, by, wait)
        if not (Path(place) / "end.json").exists():
            Process(data, judges, Path(place), given).ended(STEPS, None, 0.0)
        return json.loads((Path(place) / "end.json").read_text()) | {"interruptions": done}


def measured(data: Data, judges: Data, given: argparse.Namespace) -> dict[str, dict[str, float]]:
    """Every kind in turns; how it compares with the undisturbed runs."""
    found: dict[str, list[dict]] = {kind: [] for kind in given.kinds.split(",")}
    for number in range(given.runs):
        for kind in found:
            chance = random.Random(f"{given.seed} {number} {kind}")
            found[kind].append(interrupted(data, judges, KINDS[kind], given, chance))
            print(kind, found[kind][-1], file=sys.stderr, flush=True)
    result = {}
    for kind, rows in found.items():
        times = sum(row["interruptions"] for row in rows)
        accuracy = [row["accuracy"] for row in rows]
        result[kind] = {
            "interruptions": times,
            "accuracy": round(mean(accuracy), 2),
            "standard deviation": round(stdev(accuracy), 2) if len(rows) > 1 else None,
            "share": round(mean(row["share"] for row in rows), 4),
            "steps": min(row["steps"] for row in rows),
            "charged, not taken, for each": round(sum(row["lost"] for row in rows) / max(times, 1), 2),
        }
    return result


def main() -> None:
    """Run, and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--runs", type=int, default=7)
    parser.add_argument("--each", type=int, default=5)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--data", type=Path, default=Path(os.environ.get("ALMONER_DATA", "data")) / "adult")
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--every", type=int, default=None, help="steps between two saves")
    parser.add_argument("--work", type=float, default=0.0, help="seconds of the processor that each step takes longer")
    parser.add_argument("--kinds", default=",".join(KINDS))
    given = parser.parse_args()
    torch.set_num_threads(1)
    data, judges = adult(given.data)
    with tempfile.TemporaryDirectory() as folder:
        trained(data, judges, Path(folder), None, steps=2)  # loads, in the parent, what a first training loads
    if given.quick:
        given.runs, given.each = 1, 2
    print(json.dumps(measured(data, judges, given), indent=1))


if __name__ == "__main__":
    main()
