"""Measure what accounts for each person add to training: DP-SGD with assigned bounds, and full-batch gradient descent.

    python benchmarks/speed/training_accounts.py            # everything
    python benchmarks/speed/training_accounts.py --quick    # fewer people
    python benchmarks/speed/training_accounts.py --sampled 1000000 0.001    # many people, few of them in a step
    python benchmarks/speed/training_accounts.py --epochs 1                 # default trainer against Opacus

Both comparisons run the same Trainer with individual=True and individual=False, in turns, on synthetic people of
MNIST's shape with the MNIST network of benchmarks/speed/training.py. DP-SGD samples at rate 0.015 and refreshes bounds
once an epoch: the first refresh computes the norms of all people, later ones of the people who were not sampled since.
Prints the best times of the rounds and their ratios. --sampled: a linear model and the default budget, in seconds of
the processor: the median step, the bringing up to date of all accounts, and both with the refresh spread over an epoch.
--epochs: whole runs at batch 256 and Target(3, 1e-5), in seconds of the processor, each in a process of its own that
has trained with Opacus before: plain training, Opacus (`pip install opacus==1.6.0`), the trainer at the worst case,
and the trainer as it is by default, with accounts.
"""

import argparse
import json
import subprocess
import sys
import time
import warnings
from contextlib import suppress
from itertools import pairwise
from statistics import median

import torch
from torch import nn
from training import mnist

from almoner import filters
from almoner.training import Poisson, Target, Trainer

RATE = 0.015


def people(count):
    """Synthetic people: a pattern for each class, and noise."""
    generator = torch.Generator().manual_seed(1)
    targets = torch.randint(10, (count,), generator=generator)
    patterns = torch.randn(10, 1, 28, 28, generator=generator)
    return patterns[targets] + torch.randn(count, 1, 28, 28, generator=generator), targets


def stamps(records, individual, steps, budget, **options):
    """Seconds since the start after each step of one run; the first entry is before the first step."""
    torch.manual_seed(0)
    module = mnist()
    trainer = Trainer(
        module,
        nn.CrossEntropyLoss(reduction="none"),
        torch.optim.SGD(module.parameters(), lr=0.1),
        budget.fresh(),
        max_grad_norm=1.0,
        divisor=len(records[1]),
        steps=steps,
        individual=individual,
        seed=0,
        **options,
    )
    taken = []
    trainer.fit(*records, callbacks=[lambda run: taken.append(time.perf_counter())])
    return [stamp - taken[0] for stamp in taken]


def sampled(records, epochs, rounds):
    """DP-SGD: the best time of each epoch over the rounds, with and without accounts for each person."""
    every = round(1 / RATE)
    best = {True: [float("inf")] * epochs, False: [float("inf")] * epochs}
    for _ in range(rounds):
        for individual, times in best.items():
            budget = filters.RenyiOrder(alpha=8, epsilon=8.0, delta=1e-5)
            at = stamps(records, individual, every * epochs, budget, noise_multiplier=1.5, sampling=Poisson(RATE))
            for epoch in range(epochs):
                times[epoch] = min(times[epoch], at[every * (epoch + 1)] - at[every * epoch])
    return best[True], best[False]


def full_batch(records, steps, rounds):
    """Gradient descent: the best time of a step, with and without accounts for each person."""
    best = {True: float("inf"), False: float("inf")}
    for _ in range(rounds):
        for individual in best:
            at = stamps(records, individual, steps, filters.Gaussian(epsilon=1.0, delta=1e-5))
            best[individual] = min(best[individual], *(b - a for a, b in pairwise(at)))
    return best[True], best[False]


class Enough(Exception):
    """Ends a run."""


def of_many(count, rate, individual, steps):
    """Seconds of the processor: a step, the first step beyond that, with its refresh, and settling all accounts."""
    torch.manual_seed(0)
    module, taken = nn.Linear(8, 2), []
    trainer = Trainer(
        module,
        nn.CrossEntropyLoss(reduction="none"),
        torch.optim.SGD(module.parameters(), lr=0.1),
        Target(epsilon=1.0, delta=1e-6),
        max_grad_norm=1.0,
        divisor=count,
        steps=10_000,
        individual=individual,
        sampling=Poisson(rate),
    )

    def stamp(_):
        taken.append(time.process_time())
        if len(taken) > steps:
            raise Enough

    with suppress(Enough):
        trainer.fit(torch.randn(count, 8), torch.randint(2, (count,)), callbacks=[stamp])
    first, *others = [after - before for before, after in pairwise(taken)]
    began = time.process_time()
    if individual:
        trainer.accounts.left()
    return median(others), first - median(others), time.process_time() - began


def sampled_of_many(count, rate, rounds, steps):
    """A step of many people with accounts and without, in turns."""
    rows = {True: [], False: []}
    for _ in range(rounds):
        for individual, each in rows.items():
            each.append(of_many(count, rate, individual, steps))
    (own, refresh, settled), (worst, *_) = ([min(part) for part in zip(*each, strict=True)] for each in rows.values())
    whole = (own + (refresh + settled) * rate) / worst
    print(
        f"DP-SGD, {count:,} people, rate {rate}: a step {1e3 * own:.2f} ms with accounts, {1e3 * worst:.2f} ms without"
    )
    print(f"  ratio {own / worst:.2f}; a refresh {refresh:.2f} s, settling all {settled:.2f} s; with both {whole:.2f}")


def whole_run(engine, records, epochs):
    """Seconds of the processor for so many epochs at batch 256."""
    x, y = records
    torch.manual_seed(0)
    module, by_record = mnist(), nn.CrossEntropyLoss(reduction="none")
    optimizer, target = torch.optim.SGD(module.parameters(), lr=0.1), Target(3.0, 1e-5)
    began = time.process_time()
    if engine in ("default", "worst case"):
        how = {"batch_size": 256, "epochs": epochs, "individual": engine == "default"}
        Trainer(module, by_record, optimizer, target, max_grad_norm=1.0, divisor=len(y), **how).fit(x, y)
        return time.process_time() - began
    batches = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(x, y), 256, shuffle=True)
    if engine == "Opacus":
        from opacus import PrivacyEngine

        budget = {"target_epsilon": target.epsilon, "target_delta": target.delta, "epochs": epochs}
        module, optimizer, batches = PrivacyEngine(accountant="prv").make_private_with_epsilon(
            module=module, optimizer=optimizer, data_loader=batches, max_grad_norm=1.0, **budget
        )
    for _ in range(epochs):
        for inputs, targets in batches:
            optimizer.zero_grad()
            by_record(module(inputs), targets).mean().backward()
            optimizer.step()
    return time.process_time() - began


def of_engine(engine, epochs, count):
    """Print the seconds of one engine in this process."""
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    whole_run("Opacus", people(512), 1)  # what is loaded and compiled once is in no figure
    print(whole_run(engine, people(count), epochs))


def against_opacus(epochs, count, rounds):
    """Seconds of each engine, in turns, and the ratio of the default trainer to Opacus."""
    taken = {engine: [] for engine in ("plain", "Opacus", "worst case", "default")}
    for _ in range(rounds):
        for engine, seconds in taken.items():
            command = [sys.executable, __file__, "--engine", engine, "--epochs", str(epochs), "--people", str(count)]
            seconds.append(float(subprocess.run(command, check=True, capture_output=True, text=True).stdout))
    print(f"{epochs} epochs of {count:,} people at batch 256, seconds of the processor: median (all)")
    for engine, seconds in taken.items():
        print(f"  {engine:12}{median(seconds):7.2f}  ({', '.join(f'{each:.2f}' for each in seconds)})")
    print(f"  default / Opacus: {median(taken['default']) / median(taken['Opacus']):.2f}")


def main():
    """Print both comparisons, and the figures as JSON on the last line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--sampled", nargs=2, metavar=("PEOPLE", "RATE"))
    parser.add_argument("--steps", type=int, default=60, help="of --sampled")
    parser.add_argument("--epochs", type=int)
    parser.add_argument("--people", type=int, default=20_000, help="of --epochs")
    parser.add_argument("--engine", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.engine:
        of_engine(options.engine, options.epochs, options.people)
        return
    if options.epochs:
        against_opacus(options.epochs, options.people, options.rounds)
        return
    if options.sampled:
        torch.set_num_threads(1)
        sampled_of_many(int(options.sampled[0]), float(options.sampled[1]), options.rounds, options.steps)
        return
    records = people(2_000 if options.quick else 20_000)
    own, worst = sampled(records, 2 if options.quick else 4, 1 if options.quick else options.rounds)
    print(f"DP-SGD, {len(records[1])} people, rate {RATE}, {torch.get_num_threads()} threads: seconds an epoch")
    for name, times in (("accounts per person", own), ("worst case", worst)):
        print(f"  {name:20}" + "".join(f"{seconds:8.2f}" for seconds in times))
    print("  ratio               " + "".join(f"{a / b:8.2f}" for a, b in zip(own, worst, strict=True)))
    print(f"  whole run: {sum(own) / sum(worst):.2f} times", flush=True)
    mine, theirs = full_batch(records, 4, 2 if options.quick else 2 * options.rounds)
    print(f"full batch: {mine:.3f} s a step with accounts, {theirs:.3f} s without: {mine / theirs - 1:+.1%}")
    print(json.dumps({"dp_sgd": sum(own) / sum(worst), "epochs": [own, worst], "full_batch": mine / theirs}))


if __name__ == "__main__":
    main()
