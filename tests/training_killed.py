"""Training runs that are killed at random moments, each by a parent that has loaded everything already.

    python tests/training_killed.py FOLDER KILLS

Each run has a folder with its checkpoint and ``released.txt``: a line of squared norms, everybody's contributions, for
each step, written when a callback has seen the step's parameters, that is, once they are released.
"""

import json
import os
import random
import signal
import sys
import time
from pathlib import Path

import numpy as np
import torch
from torch import nn

from bursar import filters, training

N, STEPS, SIGMA, SQUARES = 40, 30, 4.0, 3.0


def train(folder: Path, ready: int) -> None:
    """Train until killed, or to the end."""
    torch.set_num_threads(1)
    torch.manual_seed(0)
    x = torch.randn(N, 3)
    y = (x[:, 0] > 0).long()
    module = nn.Linear(3, 2)
    contributed = []
    original = training.Gradients.sums

    def noting(self, inputs, targets, weigh, people=None, watch=None):
        squares = np.zeros(N)

        def note(chosen, norms):
            weights = weigh(chosen, norms)
            squares[chosen.numpy()] = (weights * norms).numpy() ** 2
            return weights

        found = original(self, inputs, targets, note, people=people, watch=watch)
        contributed.append(squares)
        return found

    training.Gradients.sums = noting
    job = training.Trainer(
        module,
        nn.CrossEntropyLoss(reduction="none"),
        torch.optim.SGD(module.parameters(), lr=0.5, momentum=0.5),
        filters.Gaussian(mu=SQUARES**0.5 / SIGMA),
        max_grad_norm=1.0,
        noise_multiplier=SIGMA,
        divisor=N,
        steps=STEPS,
    )
    released = os.open(folder / "released.txt", os.O_WRONLY | os.O_APPEND | os.O_CREAT)

    def publish(run):
        for squares in contributed:
            os.write(released, (json.dumps(squares.tolist()) + "\n").encode())
        contributed.clear()

    os.write(ready, b"!")
    run = job.fit(x, y, callbacks=[publish], checkpoint=folder / "run", checkpoint_every=7, resume=True)
    spent = (np.asarray(job.accounts.spent()) * SIGMA**2).tolist()
    (folder / "spent.json").write_text(json.dumps({"spent": spent, "steps": run.step}), encoding="utf-8")


def start(folder: Path) -> int:
    """A child that trains; returns when it is about to begin."""
    here, there = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            train(folder, there)
        except BaseException as error:
            print(repr(error), file=sys.stderr, flush=True)
            os._exit(1)
        os._exit(0)
    os.close(there)
    os.read(here, 1)
    os.close(here)
    return child


def main(folder: Path, kills: int) -> None:
    """Five kills for each run, then to its end."""
    torch.set_num_threads(1)
    torch.optim.SGD(
        [torch.zeros(1)]
    )  # what torch loads with the first optimizer, so that no child spends its life on it
    chance, number = random.Random(5), 0
    while kills > 0:
        run = folder / str(number)
        run.mkdir()
        for _ in range(5):
            child = start(run)
            time.sleep(chance.random() * 0.08)
            os.kill(child, signal.SIGKILL)
            kills -= os.WIFSIGNALED(os.waitpid(child, 0)[1])
        if os.waitpid(start(run), 0)[1] != 0:
            raise SystemExit("a resumed run failed")
        number += 1


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]))
