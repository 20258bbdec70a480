"""Fashion-MNIST with 300 public images beside 10,000 private ones: four ways to use them, paired seeds.

    python experiments/utility/public_records.py            # the table of docs/training/public-records.md
    python experiments/utility/public_records.py --quick    # one seed of few images, nothing tuned

The ways: private images alone; public ones alone; a network trained on the public images first; public images mixed in,
alone and after that. Each way has six candidates for its settings, which are judged on 5,000 training images that are
in no other part; then five seeds are judged on the test file. A seed decides which images are public and which are
private, the first weights and the noise; all ways have the same.
"""

import argparse
import json
import sys
from math import sqrt
from pathlib import Path
from statistics import mean, stdev

import numpy as np
import torch
from torch import nn

sys.path.append(str(Path(__file__).parents[1]))
from data_sets import digits, folder

from almoner.training import Poisson, PublicRecords, Target, Trainer

PUBLIC, PRIVATE, HELD_OUT, BATCH, EPOCHS = 300, 10_000, 5_000, 500, 8
LOSS = nn.CrossEntropyLoss(reduction="none")
RATES, WEIGHTS = (0.5, 1.0, 2.0), (0.1, 0.3)
FIRST = "public first, then private"
WAYS = {
    FIRST: [{"first": 300, "lr": 0.1, "rate": rate} for rate in (0.125, 0.25, *RATES, 4.0)],
    "private alone": [{"rate": rate} for rate in (0.125, 0.25, *RATES, 4.0)],
    "public alone": [{"first": steps, "lr": lr} for steps in (100, 300, 1000) for lr in (0.05, 0.2)],
    "mixed": [{"rate": rate, "weight": weight} for rate in RATES for weight in WEIGHTS],
    "public first, then mixed": [
        {"first": 300, "lr": 0.1, "rate": rate / 2, "weight": weight} for rate in RATES for weight in WEIGHTS
    ],
}


def network():
    """The network of Opacus's MNIST example, with tanh in place of ReLU."""
    return nn.Sequential(
        nn.Conv2d(1, 16, 8, 2, 3), nn.Tanh(), nn.MaxPool2d(2, 1), nn.Conv2d(16, 32, 4, 2), nn.Tanh(),
        nn.MaxPool2d(2, 1), nn.Flatten(), nn.Linear(512, 32), nn.Tanh(), nn.Linear(32, 10),
    )  # fmt: skip


def on_public(module, x, y, steps, lr):
    """Plain training on public images."""
    optimizer, rng = torch.optim.SGD(module.parameters(), lr=lr, momentum=0.9), np.random.default_rng(0)
    for _ in range(steps):
        rows = rng.choice(len(y), 64, replace=False)
        optimizer.zero_grad()
        LOSS(module(x[rows]), y[rows]).mean().backward()
        optimizer.step()


def trained(public, private, epsilon, seed, *, first=0, lr=0.0, rate=None, weight=None):
    """The network, trained in one way."""
    torch.manual_seed(seed)
    module = network()
    on_public(module, *public, first, lr)
    if rate is not None:
        people = len(private[1])
        trainer = Trainer(
            module, LOSS, torch.optim.SGD(module.parameters(), lr=rate), Target(epsilon, 1e-5), max_grad_norm=1.0,
            divisor=people, sampling=Poisson(BATCH / people), epochs=EPOCHS, individual=False, seed=seed,
        )  # fmt: skip
        trainer.fit(*private, public=None if weight is None else PublicRecords(*public, weight=weight, batch_size=100))
    return module


def split(x, y, seed):
    """Public, private and held-out images of a seed; those held out are in no other part of any seed."""
    order = np.concatenate([np.random.default_rng(seed).permutation(len(y) - HELD_OUT), np.arange(len(y))[-HELD_OUT:]])
    parts = order[:PUBLIC], order[PUBLIC : PUBLIC + PRIVATE], order[-HELD_OUT:]
    return [(x[rows], y[rows]) for rows in parts]


def accuracy(module, x, y):
    with torch.no_grad():
        return 100 * float((module(x).argmax(1) == y).double().mean())


def main():
    """Tune each way, judge it, and print a line for each."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--epsilons", type=float, nargs="*", default=[0.5, 2.0])
    options = parser.parse_args()
    place = folder("fashion_mnist")
    files = [digits(place, part) for part in ("train", "t10k")]
    (x, y), test = [(torch.from_numpy(a / 255.0).float()[:, None], torch.from_numpy(b)) for a, b in files]
    if options.quick:
        keep = HELD_OUT + PUBLIC + 1_000
        x, y, test = x[-keep:], y[-keep:], (test[0][:1_000], test[1][:1_000])
    seeds = range(1, 2 if options.quick else 6)
    for epsilon in options.epsilons[: 1 if options.quick else None]:
        found = {}
        for way, candidates in WAYS.items():
            public, private, held_out = split(x, y, 0)
            if options.quick:
                best = {name: min(value, 20) for name, value in candidates[0].items()}
            else:
                best = max(
                    candidates, key=lambda each: accuracy(trained(public, private, epsilon, 0, **each), *held_out)
                )
            found[way] = [accuracy(trained(*split(x, y, seed)[:2], epsilon, seed, **best), *test) for seed in seeds]
            row = {"epsilon": epsilon, "way": way, "settings": best, "accuracies": found[way], "mean": mean(found[way])}
            less = [a - b for a, b in zip(found[way], found.get(FIRST, found[way]), strict=True)]
            if len(less) > 1:  # 95 % over five seeds
                row |= {"minus public first": mean(less), "half interval": 2.776 * stdev(less) / sqrt(len(less))}
            print(json.dumps(row), flush=True)


if __name__ == "__main__":
    main()
