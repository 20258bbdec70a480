"""Koskela, Tobaben & Honkela (2023), figure 1: each person's epsilon in DP-SGD on MNIST, Rényi against privacy losses.

    BURSAR_DATA=... python experiments/koskela_2023/figure1.py [--quick]

A network 784-64-10 in plain PyTorch; 50 epochs, Poisson sampling with 300 images a batch in the mean (q = 0.005), noise
multiplier 2, C = 5, delta = 1e-6. At the start of each epoch each person's gradient norm is computed. Until the next
epoch, a person's gradient is clipped to 1.2 times that norm (at least C/100, at most C), and the person pays at every
step for this bound, sampled or not (theory 5.6). Then the script computes, for 1000 random people, epsilon by Rényi DP,
by privacy loss distributions, and by the dominating Gaussian; and one person's curve of delta beside that of the
Gaussian.

The network is trained with a fixed seed so that the figure can be reproduced: it is not private. MNIST is public, and
so are the numbers here. Writes figure1.json and figure1.png beside this file. --quick (two epochs of 20 steps, 3000
images, 50 people) only prints.
"""

import argparse
import gzip
import json
import os
import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch

from bursar import individual, mechanisms
from bursar.curves import gaussian
from bursar.report import figures
from bursar.report.losses import side_by_side

HERE = Path(__file__).parent
NOISE, CLIP, RATE, DELTA, SLACK = 2.0, 5.0, 0.005, 1e-6, 1e-7
HIDDEN, FACTOR, LEAST, RATE_OF_LEARNING = 64, 1.2, 0.01, 0.1
FITTED = (0.01, 0.3)  # epsilons to which the paper's mu is fitted


@dataclass
class Run:
    """The size of a run."""

    epochs: int = 50
    steps: int = 200
    people: int = 60_000
    shown: int = 1000
    points: int = 200


QUICK = Run(epochs=2, steps=20, people=3000, shown=50, points=60)


def images(name: str) -> tuple[torch.Tensor, torch.Tensor]:
    """(n, 784) pixels in [0, 1] and (n,) labels of the ``train`` or ``t10k`` half."""
    folder = Path(os.environ.get("BURSAR_DATA", HERE.parents[2] / "shared" / "data")) / "mnist"
    with gzip.open(folder / f"{name}-images-idx3-ubyte.gz") as file:
        pixels = np.frombuffer(file.read(), np.uint8, offset=16).reshape(-1, 784)
    with gzip.open(folder / f"{name}-labels-idx1-ubyte.gz") as file:
        labels = np.frombuffer(file.read(), np.uint8, offset=8)
    return torch.from_numpy(pixels.astype(np.float32) / 255), torch.from_numpy(labels.astype(np.int64))


class Network:
    """784-64-10, relu, softmax, explicit gradients: those of a linear layer are outer products, like their norms."""

    def __init__(self, generator: torch.Generator) -> None:
        def layer(n: int, m: int) -> torch.Tensor:
            return torch.randn(n + 1, m, generator=generator) * (2 / n) ** 0.5

        self.first, self.second = layer(784, HIDDEN), layer(HIDDEN, 10)
        self.first[-1], self.second[-1] = 0.0, 0.0

    def backward(self, x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, ...]:
        """Inputs with a one at the end, derivatives of losses by outputs, layer by layer, and the norms (n,)."""
        one = torch.ones(len(x), 1)
        into = torch.cat([x, one], 1)
        middle = torch.relu(into @ self.first)
        hidden = torch.cat([middle, one], 1)
        top = torch.softmax(hidden @ self.second, 1)
        top[torch.arange(len(y)), y] -= 1
        low = (top @ self.second[:-1].T) * (middle > 0)
        squares = (top**2).sum(1) * (hidden**2).sum(1) + (low**2).sum(1) * (into**2).sum(1)
        return into, low, hidden, top, squares.sqrt()

    def step(self, x: torch.Tensor, y: torch.Tensor, bounds: torch.Tensor, generator: torch.Generator) -> None:
        """Clip each sampled person's gradient to that person's bound; add noise for C; divide by a fixed number."""
        into, low, hidden, top, norms = self.backward(x, y)
        scale = torch.clamp(bounds / torch.clamp(norms, min=1e-12), max=1.0)[:, None]
        for weights, inputs, errors in ((self.first, into, low), (self.second, hidden, top)):
            total = inputs.T @ (errors * scale)
            total += NOISE * CLIP * torch.randn(total.shape, generator=generator)
            weights -= RATE_OF_LEARNING / 300 * total

    def accuracy(self, x: torch.Tensor, y: torch.Tensor) -> float:
        """Share of correct answers."""
        hidden = torch.relu(x @ self.first[:-1] + self.first[-1])
        return float(((hidden @ self.second[:-1] + self.second[-1]).argmax(1) == y).float().mean())


def train(run: Run, *, seed: int = 0) -> tuple[individual.Losses, Network, np.ndarray]:
    """Train: the counts of each person's steps, the network, and the labels."""
    generator = torch.Generator().manual_seed(seed)
    x, y = images("train")
    x, y = x[: run.people], y[: run.people]
    network = Network(generator)
    counted = individual.Losses(run.people, least=NOISE, most=NOISE / LEAST, buckets=128)
    step = mechanisms.SampledGaussian(NOISE * CLIP, CLIP, RATE)
    for _ in range(run.epochs):
        norms = torch.cat([network.backward(a, b)[-1] for a, b in zip(x.split(5000), y.split(5000), strict=True)])
        bounds = torch.clamp(FACTOR * norms, LEAST * CLIP, CLIP)
        for _ in range(run.steps):
            rows = torch.nonzero(torch.rand(run.people, generator=generator) < RATE)[:, 0]
            network.step(x[rows], y[rows], bounds[rows], generator)
        paid = bounds.double().numpy() * (1 + 1e-6)  # larger than the rounding error of float32 in the clipping
        for _ in range(run.steps):
            counted.record(step, np.minimum(paid, CLIP))
    return counted, network, y.numpy()


def one_person(row: np.ndarray, noise: np.ndarray) -> dict[str, object]:
    """Delta at each epsilon: of the composition (upper bounds), of the dominating Gaussian, and of a fitted mu."""
    most = float(individual.losses(row[None], noise, sample_rate=RATE, delta=1e-9)[0])
    grid = np.linspace(0.0, most, 60)
    exact = individual.losses(row[None], noise, sample_rate=RATE, epsilon=grid.tolist())[:, 0]
    mu = float(individual.dominating_mu(row[None], noise, sample_rate=RATE, slack=SLACK)[0])
    fit = np.linspace(*FITTED, 30)
    wanted = individual.losses(row[None], noise, sample_rate=RATE, epsilon=fit.tolist())[:, 0]
    low, high = 1e-3, 10.0
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (low, middle) if np.all(gaussian.delta(middle, epsilon=fit) >= wanted) else (middle, high)
    return {
        "mu": mu,
        "mu fitted on [0.01, 0.3]": high,
        "epsilon": grid.tolist(),
        "composition": exact.tolist(),
        "dominating Gaussian": (SLACK + (1 - SLACK) * gaussian.delta(mu, epsilon=grid)).tolist(),
        "fitted Gaussian": gaussian.delta(high, epsilon=grid).tolist(),
    }


def figure(run: Run, *, seed: int = 0) -> dict[str, object]:
    """Train, count, and compute all numbers of the figure."""
    start = time.perf_counter()
    counted, network, labels = train(run, seed=seed)
    trained = time.perf_counter() - start
    chosen = np.random.default_rng(seed).choice(run.people, run.shown, replace=False)
    counts = counted.counts(RATE)[chosen].astype(np.int64)
    found = side_by_side(counts, counted.noise, sample_rate=RATE, delta=DELTA, dominating=True, points=run.points)
    middle = int(np.argsort(found["privacy loss distributions"])[run.shown // 2])
    levels = [0.05, 0.25, 0.5, 0.75, 0.95, 1.0]
    return {
        "steps": run.epochs * run.steps,
        "test accuracy": network.accuracy(*images("t10k")),
        "seconds of training": round(trained, 1),
        "levels": levels,
        "quantiles": {name: np.quantile(v, levels, method="higher").tolist() for name, v in found.items()},
        "Rényi over privacy loss distributions, median": float(
            np.median(found["Rényi"] / found["privacy loss distributions"])
        ),
        "people": {name: np.round(values, 5).tolist() for name, values in found.items()},
        "labels": labels[chosen].tolist(),
        "one person": one_person(counts[middle], counted.noise),
    }


def draw(data: dict, path: Path) -> None:
    """Plot histograms of the accountings on the left, and one person's curves on the right."""
    picture = figures.figure(12, 4.5)
    left, right = picture.subplots(1, 2)
    names = ("Rényi", "privacy loss distributions", "Gaussian")
    edges = np.linspace(0, max(map(max, (data["people"][name] for name in names))) * 1.001, 41)
    for name in names:
        left.hist(data["people"][name], bins=edges, histtype="step", lw=1.5, label=name)
    left.set(xlabel=f"epsilon at delta = {DELTA:g}", ylabel="people", title=f"{len(data['labels'])} random people")
    person = data["one person"]
    for name, style in (("composition", "k-"), ("dominating Gaussian", "C2--"), ("fitted Gaussian", "C3:")):
        right.semilogy(person["epsilon"], person[name], style, label=name)
    right.set(xlabel="epsilon", ylabel="delta", title="the median person")
    for axes in (left, right):
        axes.legend(fontsize=8)
        axes.grid(alpha=0.3)
    picture.savefig(path, dpi=120)


def main() -> None:
    """Compute, write and plot."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--quick", action="store_true")
    quick = parser.parse_args().quick
    data = figure(QUICK if quick else Run())
    if not quick:
        (HERE / "figure1.json").write_text(json.dumps(data) + "\n", encoding="utf-8")
        draw(data, HERE / "figure1.png")
    for name, values in data["quantiles"].items():
        print(f"{name:30}", *(f"{value:8.4f}" for value in values))
    person = data["one person"]
    print(
        "accuracy",
        data["test accuracy"],
        "seconds",
        data["seconds of training"],
        "mu",
        person["mu"],
        list(person.values())[1],
    )


if __name__ == "__main__":
    main()
