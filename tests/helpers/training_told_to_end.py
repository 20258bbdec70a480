"""A training that is told to end by SIGTERM at random moments, and goes on from its folder until it is done.

    python tests/helpers/training_told_to_end.py FOLDER

It prints how each process ended. A parent that has loaded everything forks them.
"""

import os
import random
import signal
import sys
import time
from pathlib import Path

import torch
from torch import nn

from almoner import filters, training

STEPS = 400


def train(folder: Path) -> None:
    """Train on forty people whose gradients are all longer than the clip."""
    torch.set_num_threads(1)
    torch.manual_seed(0)
    x = torch.randn(40, 3)
    module = nn.Linear(3, 2)
    job = training.Trainer(
        module,
        nn.CrossEntropyLoss(reduction="none"),
        torch.optim.SGD(module.parameters(), lr=0.5),
        filters.Gaussian(mu=2.0),
        max_grad_norm=1e-4,
        noise_multiplier=40.0,
        divisor=40,
        steps=STEPS,
    )
    job.fit(
        x,
        (x[:, 0] > 0).long(),
        folder=training.RunFolder(folder, resume=True),
        callbacks=[lambda run: time.sleep(1e-3)],
    )


def main(folder: Path) -> None:
    """At most thirty signals, then to the end."""
    torch.optim.SGD([torch.zeros(1)])  # what torch loads with the first optimizer
    chance = random.Random(3)
    for attempt in range(31):
        child = os.fork()
        if not child:
            try:
                train(folder)
            except BaseException as error:
                print(repr(error), file=sys.stderr, flush=True)
                os._exit(1)
            os._exit(0)
        if attempt < 30:
            deadline = time.monotonic() + 0.1 + chance.random() * 0.2
            while time.monotonic() < deadline and not (folder / "state.pt").exists():
                time.sleep(1e-3)  # the first one gets as far as its first checkpoint
            time.sleep(chance.random() * 0.2)
            os.kill(child, signal.SIGTERM)
        end = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        print(end, flush=True)
        if end == 0:
            return


if __name__ == "__main__":
    main(Path(sys.argv[1]))
