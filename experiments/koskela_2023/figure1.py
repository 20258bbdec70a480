"""Koskela, Tobaben & Honkela (2023), figure 1: each person's epsilon in DP-SGD on MNIST, Rényi against privacy losses.

    ALMONER_DATA=... python experiments/koskela_2023/figure1.py [--quick]
    python experiments/koskela_2023/figure1.py --draw    # table and picture again, from the recorded numbers

A network 784-64-10 in plain PyTorch; 50 epochs, Poisson sampling with 300 images a batch in the mean (q = 0.005), noise
multiplier 2, C = 5, delta = 1e-6. Sampled gradients are clipped to C. At *every* step the gradient norms of 1000 random
people are computed, sampled or not, and each of these people is charged for that norm, at most C. Then the script
computes each one's epsilon by Rényi DP, by privacy loss distributions, by the dominating Gaussian, and by the paper's
own accountant, which converts the Rényi DP of that Gaussian; and one person's delta beside that of the Gaussian.

For comparison the same people are also charged for 1.2 times the norm that they had at the start of each epoch, which
is what a program can do that does not compute all norms at every step.

The network is trained with a fixed seed, so it is not private; the seed repeats the figure on the same machine with
the same versions, and elsewhere up to roundings. MNIST is public, and so are the numbers here. Writes koskela.json,
.svg, .png and the table of koskela.md in docs/experiments. --quick (two epochs of 20 steps, 3000 images, 50 people)
only prints.
"""

import argparse
import json
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from almoner import individual, mechanisms
from almoner.curves import gaussian, zcdp
from almoner.report import figures
from almoner.report.losses import side_by_side

sys.path.append(str(Path(__file__).parents[1]))
import pages
from data_sets import digits, folder

HERE = Path(__file__).parent
NOISE, CLIP, RATE, DELTA, SLACK = 2.0, 5.0, 0.005, 1e-6, 1e-7
HIDDEN, FACTOR, RATE_OF_LEARNING, LEAST = 64, 1.2, 0.1, 1e-4  # norms below LEAST times C count as that
LEVELS = (0.0, 0.05, 0.25, 0.5, 0.75, 0.95, 1.0)
FITTED = (0.01, 0.3)  # epsilons to which the paper's mu is fitted
OF_THE_PAPER = "as in the paper, (5.1) and (5.3)"


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
    pixels, labels = digits(folder("mnist"), name)
    return torch.from_numpy(pixels.reshape(-1, 784).astype(np.float32) / 255), torch.from_numpy(labels)


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

    def step(self, x: torch.Tensor, y: torch.Tensor, generator: torch.Generator) -> None:
        """Clip each sampled person's gradient to C; add noise for C; divide by a fixed number."""
        into, low, hidden, top, norms = self.backward(x, y)
        scale = torch.clamp(CLIP / torch.clamp(norms, min=1e-12), max=1.0)[:, None]
        for weights, inputs, errors in ((self.first, into, low), (self.second, hidden, top)):
            total = inputs.T @ (errors * scale)
            total += NOISE * CLIP * torch.randn(total.shape, generator=generator)
            weights -= RATE_OF_LEARNING / 300 * total

    def accuracy(self, x: torch.Tensor, y: torch.Tensor) -> float:
        """Share of correct answers."""
        hidden = torch.relu(x @ self.first[:-1] + self.first[-1])
        return float(((hidden @ self.second[:-1] + self.second[-1]).argmax(1) == y).float().mean())


@dataclass
class Trained:
    """What a run leaves: the network, who was chosen, and the counts of these people's steps."""

    network: Network
    chosen: np.ndarray
    labels: np.ndarray
    every_step: individual.Losses
    once_an_epoch: individual.Losses


def train(run: Run, *, seed: int = 0) -> Trained:
    """Train, and charge the chosen people at every step, for their norm then and for that of the epoch's start."""
    generator = torch.Generator().manual_seed(seed)
    x, y = images("train")
    x, y = x[: run.people], y[: run.people]
    network = Network(generator)
    chosen = np.random.default_rng(seed).choice(run.people, run.shown, replace=False)
    shown_x, shown_y = x[torch.from_numpy(chosen)], y[torch.from_numpy(chosen)]
    every_step, once_an_epoch = (
        individual.Losses(run.shown, least=NOISE, most=NOISE / LEAST, buckets=256) for _ in range(2)
    )
    step = mechanisms.SampledGaussian(NOISE * CLIP, CLIP, RATE)
    for _ in range(run.epochs):
        first: Any = None
        for _ in range(run.steps):
            # a little above the rounding error of float32 in the norms
            norms = network.backward(shown_x, shown_y)[-1].double().numpy() * (1 + 1e-6)
            first = FACTOR * norms if first is None else first
            every_step.record(step, np.minimum(norms, CLIP))
            once_an_epoch.record(step, np.minimum(first, CLIP))
            rows = torch.nonzero(torch.rand(run.people, generator=generator) < RATE)[:, 0]
            network.step(x[rows], y[rows], generator)
    return Trained(network, chosen, y.numpy()[chosen], every_step, once_an_epoch)


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


def of_the_paper(by_gaussian: Any) -> list[float]:
    """Epsilons by the paper's accountant, from those by the Gaussian that dominates, (5.1): by its Rényi DP, (5.3)."""
    slack = DELTA / 10  # that of side_by_side; the paper has none
    rest = (DELTA - slack) / (1 - slack) * (1 - 1e-12)
    mu = np.array([gaussian.mu(epsilon=float(epsilon), delta=rest) for epsilon in by_gaussian])
    return np.round(zcdp.epsilon(mu**2 / 2, delta=rest), 5).tolist()


def with_the_paper(data: dict[str, Any]) -> dict[str, Any]:
    """The numbers of the figure, and beside them those of the paper's accountant."""
    people = data["people"] | {OF_THE_PAPER: of_the_paper(data["people"]["Gaussian"])}
    found = quantiles(np.array(people[OF_THE_PAPER]))
    at_clip = of_the_paper([data["at the clip"]["Gaussian"]])[0]
    return data | {
        "people": people,
        "quantiles": data["quantiles"] | {OF_THE_PAPER: found},
        "at the clip": data["at the clip"] | {OF_THE_PAPER: at_clip},
    }


def figure(run: Run, *, seed: int = 0) -> dict[str, Any]:
    """Train, count, and compute all numbers of the figure."""
    start = time.perf_counter()
    found = train(run, seed=seed)
    seconds = time.perf_counter() - start
    counts, noise = found.every_step.counts(RATE).astype(np.int64), found.every_step.noise
    epsilons = side_by_side(counts, noise, sample_rate=RATE, delta=DELTA, dominating=True, points=run.points)
    rough = side_by_side(
        found.once_an_epoch.counts(RATE).astype(np.int64), noise, sample_rate=RATE, delta=DELTA, dominating=False
    )
    exact, steps = epsilons["privacy loss distributions"], run.epochs * run.steps
    at_clip = side_by_side(np.array([[steps]]), [NOISE], sample_rate=RATE, delta=DELTA, dominating=True)
    middle = int(np.argsort(exact)[run.shown // 2])
    found_numbers = {
        "steps": steps,
        "test accuracy": found.network.accuracy(*images("t10k")),
        "seconds of training": round(seconds, 1),
        "levels": list(LEVELS),
        "quantiles": {name: quantiles(values) for name, values in epsilons.items()},
        "norm once an epoch": {name: quantiles(values) for name, values in rough.items()},
        "at the clip": {name: float(values[0]) for name, values in at_clip.items()},
        "people": {name: np.round(values, 5).tolist() for name, values in epsilons.items()},
        "labels": found.labels.tolist(),
        "one person": one_person(counts[middle], noise),
    }
    return with_the_paper(found_numbers)


def quantiles(values: np.ndarray) -> list[float]:
    """The quantiles that the page shows, from above."""
    return [float(value) for value in np.quantile(values, LEVELS, method="higher")]


def table(data: dict[str, Any]) -> str:
    """Quantiles over people of each accounting, as a Markdown table."""
    heads = ["least", *(f"{level:.0%}" for level in LEVELS[1:3]), "median", "75%", "95%", "most", "C at every step"]
    lines = ["| norms | accounting | " + " | ".join(heads) + " |", "|---" * (len(heads) + 2) + "|"]
    for norms, rows in (
        ("at every step", data["quantiles"]),
        ("1.2 times that at the epoch's start", data["norm once an epoch"]),
    ):
        for name, values in rows.items():
            bound = data["at the clip"].get(name)
            cells = [f"{value:.4f}" for value in values] + ["" if bound is None else f"{bound:.4f}"]
            lines.append(f"| {norms} | {name} | " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n"


@figures.styled()
def draw(data: dict[str, Any]) -> Any:
    """Histograms of the accountings on the left, and one person's curves on the right."""
    picture = figures.figure(12, 4.5)
    left, right = picture.subplots(1, 2)
    names = ("Rényi", "privacy loss distributions", "Gaussian", OF_THE_PAPER)
    edges = np.geomspace(
        min(data["people"]["privacy loss distributions"]) * 0.99, max(data["at the clip"].values()), 61
    )
    for name in names:
        left.hist(data["people"][name], bins=edges, histtype="step", lw=1.5, label=name)
    left.set_xscale("log")
    figures.one_two_five(left.xaxis)
    figures.thousands(left.yaxis)
    left.set(xlabel=f"epsilon at delta = {DELTA:g}", ylabel="people", title=f"{len(data['labels'])} random people")
    person = data["one person"]
    for name, style in (("composition", "C0-"), ("dominating Gaussian", "C1--"), ("fitted Gaussian", "C2:")):
        right.semilogy(person["epsilon"], person[name], style, label=name)
    right.set(xlabel="epsilon", ylabel="delta", title="the median person")
    for axes in (left, right):
        axes.legend()
    return picture


def main() -> None:
    """Compute, write and plot."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--draw", action="store_true", help="table and picture from the recorded numbers")
    given = parser.parse_args()
    if given.draw:
        data = with_the_paper(json.loads((pages.DOCS / "koskela.json").read_text(encoding="utf-8")))
    else:
        data = figure(QUICK if given.quick else Run())
    if not given.quick:
        pages.save("koskela", data, table(data), draw(data))
    print(table(data))
    shown = {name: data["one person"][name] for name in ("mu", "mu fitted on [0.01, 0.3]")}
    print("accuracy", data["test accuracy"], "seconds", data["seconds of training"], shown)


if __name__ == "__main__":
    main()
