"""Private fine-tuning from public Fashion-MNIST to MNIST, stopped early, with an odometer that says what it cost.

    python experiments/lecuyer_2021/finetune.py            # some minutes on one core
    python experiments/lecuyer_2021/finetune.py --quick    # few people, few steps, for continuous integration

A network is trained on Fashion-MNIST without privacy, because that data set is treated as public, and then on MNIST by
DP-SGD with Poisson sampling. The noise decreases, and the run stops when a noisy count says that enough training images
are classified correctly. A second run starts from random parameters. Prints a Markdown table, and writes it to
docs/experiments/finetune.md with all numbers in finetune.json. The noise is seeded so that the table can be reproduced:
these models are experiments on public data, and not private.
"""

import argparse
import gzip
import importlib.util
import os
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from bursar import filters, mechanisms, odometers, training
from bursar.errors import DataError
from bursar.training import policies

HERE = Path(__file__).parent
DATA = Path(os.environ.get("BURSAR_DATA", HERE.parents[2] / "shared" / "data"))
BY_RECORD = nn.CrossEntropyLoss(reduction="none")


def beside(name: str) -> Any:
    """Another program of this folder, as a module."""
    spec: Any = importlib.util.spec_from_file_location(f"lecuyer_{name}", HERE / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # dataclasses look up their module
    spec.loader.exec_module(module)
    return module


@dataclass(frozen=True)
class Size:
    """The size of an experiment."""

    public: int
    """Images of Fashion-MNIST."""
    epochs: int
    """Over these."""
    people: int
    """Images of MNIST."""
    rate: float
    steps: int
    """What the budget is planned for."""
    every: int
    """Steps between two looks at the noisy count."""
    target: float
    """The share of training images that must be right."""
    sigma: float
    first: float = 1.5
    """The noise multiplier at the start; it falls to ``least``."""
    least: float = 1.0
    factor: float = 0.9
    learning_rate: float = 0.5
    delta: float = 1e-5
    clip: float = 1.0


QUICK = Size(public=2000, epochs=1, people=1000, rate=0.1, steps=20, every=5, target=0.3, sigma=30.0)
WHOLE = Size(public=60_000, epochs=1, people=60_000, rate=0.005, steps=400, every=40, target=0.93, sigma=100.0)


def images(name: str, file: str, count: int | None = None) -> tuple[Tensor, Tensor]:
    """(n, 1, 28, 28) images scaled by public constants, and labels."""
    folder = DATA / name
    if not folder.is_dir():
        raise DataError(f"{folder} does not exist; set BURSAR_DATA")
    with gzip.open(folder / f"{file}-images-idx3-ubyte.gz") as stream:
        pixels = np.frombuffer(stream.read(), np.uint8, offset=16).reshape(-1, 1, 28, 28)[:count]
    with gzip.open(folder / f"{file}-labels-idx1-ubyte.gz") as stream:
        labels = np.frombuffer(stream.read(), np.uint8, offset=8)[:count]
    return torch.from_numpy(pixels.astype(np.float32) / 127.5 - 1), torch.from_numpy(labels.astype(np.int64))


def network() -> nn.Module:
    """Two convolutions with strides, and two linear layers."""
    return nn.Sequential(
        nn.Conv2d(1, 16, 5, 2, 2), nn.GroupNorm(4, 16), nn.ReLU(), nn.Conv2d(16, 32, 5, 2, 2), nn.GroupNorm(8, 32),
        nn.ReLU(), nn.MaxPool2d(2, 1), nn.Flatten(), nn.Linear(32 * 36, 32), nn.ReLU(), nn.Linear(32, 10),
    )  # fmt: skip


def pretrained(size: Size) -> nn.Module:
    """A network trained on Fashion-MNIST without privacy, with a new last layer."""
    x, y = images("fashion_mnist", "train", size.public)
    torch.manual_seed(0)
    module = network()
    optimizer = torch.optim.Adam(module.parameters(), lr=1e-3)
    for _ in range(size.epochs):
        for rows in torch.randperm(len(y)).split(128):
            optimizer.zero_grad()
            BY_RECORD(module(x[rows]), y[rows]).mean().backward()
            optimizer.step()
    last: Any = list(module)[-1]
    nn.init.zeros_(last.weight)
    nn.init.zeros_(last.bias)
    return module


def plan(size: Size) -> mechanisms.Mechanism:
    """What is released if the run does not stop early: all steps, with their noise, and all questions."""
    noise, counts = size.first, dict[float, int]()
    for step in range(size.steps):
        if step and step % size.every == 0:
            noise = max(size.least, noise * size.factor)
        counts[noise] = counts.get(noise, 0) + 1
    steps = [mechanisms.Repeated(mechanisms.SampledGaussian(z, 1.0, size.rate), k) for z, k in counts.items()]
    return mechanisms.Composed(
        (*steps, mechanisms.Repeated(mechanisms.Gaussian(size.sigma, 1.0), size.steps // size.every))
    )


def run(name: str, module: nn.Module, size: Size, seed: int, epsilon: float) -> dict[str, Any]:
    """Fine-tune until the target, the budget, or the plan ends."""
    x, y = images("mnist", "train", size.people)
    test = images("mnist", "t10k")
    odometer = odometers.Renyi(delta=size.delta, plan=plan(size))
    stopping = policies.EarlyStopping(
        target=size.target * size.people, every=size.every, odometer=odometer, sigma=size.sigma
    )
    decreasing = policies.DecreasingNoise(factor=size.factor, every=size.every, least=size.least)
    trainer = training.Trainer(
        module,
        BY_RECORD,
        torch.optim.SGD(module.parameters(), lr=size.learning_rate, momentum=0.5),
        filters.Renyi(epsilon=epsilon, delta=size.delta, plan=plan(size)),
        max_grad_norm=size.clip,
        divisor=size.people,
        steps=size.steps,
        individual=False,
        noise_multiplier=size.first,
        sample_rate=size.rate,
        seed=seed,
    )
    start = time.perf_counter()
    done = trainer.fit(x, y, callbacks=[stopping, decreasing])
    accuracy = beside("policies").accuracy(module, *test)
    return {
        "start": name,
        "seed": seed,
        "step": done.step,
        "ended": done.reason,
        "noise_multiplier": done.noise_multiplier,
        "counts": [[step, answer / size.people] for step, _, answer in done.answers],
        "accuracy": accuracy,
        "budget": epsilon,
        "ex_post_epsilon": stopping.odometer.ex_post_epsilon(),
        "pathwise_epsilon": stopping.odometer.epsilon(),
        "seconds": time.perf_counter() - start,
    }


def table(results: list[dict[str, Any]], size: Size) -> str:
    """The results as a Markdown table."""
    lines = [
        "| start | seed | stopped at step | of | why | test accuracy, % | budget, epsilon | odometer, ex-post | "
        "odometer, pathwise | seconds |",
        "|---|---|---|---|---|---|---|---|---|---|",
    ]
    lines += [
        f"| {r['start']} | {r['seed']} | {r['step']} | {size.steps} | {r['ended']} | {r['accuracy']:.2f} | "
        f"{r['budget']:.3f} | {r['ex_post_epsilon']:.3f} | {r['pathwise_epsilon']:.3f} | {r['seconds']:.0f} |"
        for r in results
    ]
    return "\n".join(lines) + "\n"


def main(arguments: list[str] | None = None) -> list[dict[str, Any]]:
    """Run, print, and save."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="few people, few steps")
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--out", type=Path, default=None, help="the folder of finetune.json and finetune.md")
    given = parser.parse_args(arguments)
    size = QUICK if given.quick else WHOLE
    epsilon = beside("policies").planned_epsilon(plan(size), size.delta)
    print(f"planned for epsilon {epsilon:.3f}", flush=True)
    results = []
    for seed in range(given.seeds):
        learnt = pretrained(size)
        torch.manual_seed(seed)
        for name, module in (("Fashion-MNIST", learnt), ("random", network())):
            results.append(run(name, module, size, seed, epsilon))
            print(f"{name}: step {results[-1]['step']}, {results[-1]['accuracy']:.2f} %", flush=True)
    text = table(results, size)
    print(text)
    out = given.out or (None if given.quick else HERE.parents[1] / "docs" / "experiments")
    if out is not None:
        beside("policies").record("finetune", size, results, text, out)
    return results


if __name__ == "__main__":
    main()
