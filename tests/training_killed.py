"""A training run to be killed: writes down what every person contributed to everything that was released.

    python tests/training_killed.py FOLDER

The folder holds the checkpoint and ``released.txt``: a line of squared norms for each step, written when a callback
has seen the step's parameters, that is, once they are released.
"""

import json
import os
import sys
from pathlib import Path

import numpy as np
import torch
from torch import nn

from bursar import filters, training

N, STEPS, SIGMA, SQUARES = 40, 60, 4.0, 6.0


def main(folder: Path) -> None:
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

    print("ready", flush=True)
    run = job.fit(x, y, callbacks=[publish], checkpoint=folder / "run", checkpoint_every=7, resume=True)
    spent = (np.asarray(job.accounts.spent()) * SIGMA**2).tolist()
    (folder / "spent.json").write_text(json.dumps({"spent": spent, "steps": run.step}), encoding="utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
