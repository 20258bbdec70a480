"""Training runs that are killed at random moments, each forked from a parent that has loaded everything already.

    python tests/helpers/training_killed.py FOLDER KILLS

Each run has a folder with its checkpoint and ``released.txt``: a line of squared norms, everybody's contributions, for
each step, written when a callback has seen the step's parameters, that is, once they are released. The system kills
after a random time, by the clock (which finds waits for the disk) or of the processor (which finds the steps also
where the machine is busy).
"""

import json
import os
import random
import signal
import sys
from pathlib import Path

import numpy as np
import torch
from torch import nn

from almoner import filters, training

N, STEPS, SIGMA, SQUARES = 40, 30, 4.0, 3.0


def train(folder: Path, timer: int, seconds: float) -> None:
    """Train until killed, or to the end; 0 seconds: to the end."""
    torch.set_num_threads(1)
    torch.manual_seed(0)
    x = torch.randn(N, 3)
    y = (x[:, 0] > 0).long()
    module = nn.Linear(3, 2)
    contributed = []
    original = training.Gradients.sums

    def noting(self, inputs, targets, weigh, people=None, observe=None):
        squares = np.zeros(N)

        def note(chosen, norms):
            weights = weigh(chosen, norms)
            squares[chosen.numpy()] = (weights * norms).numpy() ** 2
            return weights

        found = original(self, inputs, targets, note, people=people, observe=observe)
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

    signal.setitimer(timer, seconds)
    run = job.fit(x, y, callbacks=[publish], checkpoint=folder / "run", checkpoint_every=7, resume=True)
    spent = (np.asarray(job.accounts.spent()) * SIGMA**2).tolist()
    (folder / "spent.json").write_text(json.dumps({"spent": spent, "steps": run.step}), encoding="utf-8")


def status(folder: Path, timer: int = signal.ITIMER_REAL, seconds: float = 0.0) -> int:
    """How a child that trains ended."""
    child = os.fork()
    if child == 0:
        try:
            train(folder, timer, seconds)
        except BaseException as error:
            print(repr(error), file=sys.stderr, flush=True)
            os._exit(1)
        os._exit(0)
    return os.waitpid(child, 0)[1]


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
        for timer in (
            signal.ITIMER_REAL,
            signal.ITIMER_PROF,
            signal.ITIMER_PROF,
            signal.ITIMER_REAL,
            signal.ITIMER_PROF,
        ):
            kills -= os.WIFSIGNALED(status(run, timer, 1e-3 + chance.random() * 0.08))
        if status(run) != 0:
            raise SystemExit("a resumed run failed")
        number += 1


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]))
