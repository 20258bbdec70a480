"""Lécuyer (2021), section 5.1: adaptive noise and batches on CIFAR-10, against fixed DP-SGD at the same budget.

    python experiments/lecuyer_2021/policies.py                  # all images: a linear model on scattering features
    python experiments/lecuyer_2021/policies.py --size full      # his setting, ResNet9: for a GPU, used when present
    python experiments/lecuyer_2021/policies.py --size full --epochs 30    # the same with a plan of so many epochs
    python experiments/lecuyer_2021/policies.py --quick          # a tiny net, for continuous integration

DP-SGD with Poisson sampling; a Rényi filter charges the worst case for each person. The budget is what the fixed run
costs: its epochs at noise multiplier 1. Every run continues until the filter refuses, so the number of steps shows what
the policies save or spend; their questions are paid from the same budget. Each finished run is added to
experiments/results/policies.jsonl at once, and a run that is there is not repeated. The tables and the figure are made
from that file (--page alone makes them again). The noise is seeded, so these models are not private: experiments on
public data. A seed repeats a run on the same machine with the same versions; elsewhere roundings differ, and numbers do
within the spread of the seeds.
"""

import argparse
import os
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from almoner import filters, mechanisms, training
from almoner.curves import renyi
from almoner.report import figures
from almoner.training.gradients.augmentations import Views, shifted_and_flipped
from almoner.training.images import features

HERE = Path(__file__).parent
sys.path += [str(HERE), str(HERE.parent)]
import journal  # noqa: E402
import lecuyers_policies  # noqa: E402
import pages  # noqa: E402
from data_sets import cifar10  # noqa: E402
from resnet9 import resnet9  # noqa: E402

MEAN, STD = (0.4914, 0.4822, 0.4465), (0.2470, 0.2435, 0.2616)  # published
POLICIES = ("fixed", "adaptive noise", "adaptive batch")


@dataclass(frozen=True)
class Size:
    """The size of an experiment."""

    model: str
    """resnet9, or linear on scattering features."""
    people: int
    tests: int
    width: int
    """Channels of the first layer of the ResNet9."""
    batch: int
    """Expected size of a batch of the fixed run."""
    epochs: int
    """Of the fixed run."""
    learning_rate: float
    sigma: float
    """The noise on a count of right answers."""
    epochs_left: int
    every: int
    """Epochs between two looks."""
    noise_multiplier: float = 1.0
    noise_by: float = 0.1
    batch_by: int = 128
    least_batch: int = 256
    delta: float = 1e-5
    clip: float = 1.0

    @property
    def rate(self) -> float:
        """The sample rate of the fixed run."""
        return self.batch / self.people

    @property
    def epoch(self) -> int:
        """Steps of an epoch of the fixed run."""
        return round(1 / self.rate)


SIZES = {
    "quick": Size(
        model="resnet9", people=600, tests=300, width=4, batch=60, epochs=3, learning_rate=0.5, sigma=20.0,
        epochs_left=0, every=1, batch_by=15, least_batch=30,
    ),
    "narrow": Size(
        model="resnet9", people=4000, tests=2000, width=8, batch=160, epochs=12, learning_rate=0.5, sigma=40.0,
        epochs_left=3, every=1, batch_by=40, least_batch=80,
    ),
    "features": Size(
        model="linear", people=50_000, tests=10_000, width=0, batch=512, epochs=100, learning_rate=0.05, sigma=100.0,
        epochs_left=50, every=10,
    ),
    "full": Size(
        model="resnet9", people=50_000, tests=10_000, width=64, batch=512, epochs=100, learning_rate=0.05, sigma=100.0,
        epochs_left=50, every=10, delta=1e-6,
    ),
}  # fmt: skip


def data(size: Size, *, quick: bool = False) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Training and test images, or features, and labels; the quick form takes both from the smaller test file."""
    x_test, y_test = cifar10("test")
    x, y = (x_test[size.tests :], y_test[size.tests :]) if quick else cifar10("train")
    prepare = _scattered if size.model == "linear" else scaled
    return (
        prepare(x[: size.people]),
        torch.from_numpy(y[: size.people]),
        prepare(x_test[: size.tests]),
        torch.from_numpy(y_test[: size.tests]),
    )


def scaled(pixels: Any) -> Tensor:
    scaled = (pixels.astype(np.float32) / 255 - np.float32(MEAN)) / np.float32(STD)
    return torch.from_numpy(np.ascontiguousarray(scaled.transpose(0, 3, 1, 2)))


class Pooled(nn.Module):
    """Scattering features, averaged over 2 x 2 windows and normalised by groups: 3,888 numbers for each image."""

    def __init__(self) -> None:
        super().__init__()
        self.scattering = features.Scattering((32, 32))
        self.norm = nn.GroupNorm(27, 243, affine=False)

    def forward(self, images: Tensor) -> Tensor:
        """(records, 3888)"""
        pooled = nn.functional.avg_pool2d(self.scattering(images).flatten(1, -3), 2)
        return self.norm(pooled).flatten(1)


def _scattered(pixels: Any) -> Tensor:
    folder = Path(os.environ.get("ALMONER_FEATURES", "~/.cache/almoner/features")).expanduser()
    cached = features.cached(Pooled(), np.ascontiguousarray(pixels.transpose(0, 3, 1, 2)), folder)
    return torch.from_numpy(np.array(cached))


def accuracy(module: nn.Module, x: Tensor, y: Tensor) -> float:
    """Share of correct answers, in percent."""
    device = next(module.parameters()).device
    with torch.no_grad():
        pairs = zip(x.split(500), y.split(500), strict=True)
        right = [(module(a.to(device)).argmax(1).cpu() == b.cpu()).sum() for a, b in pairs]
    return 100 * float(torch.stack(right).sum()) / len(y)


def policy(name: str, size: Size) -> list[Any]:
    """The callbacks of a row."""
    common: dict[str, Any] = {
        "every": size.every,
        "epoch": size.epoch,
        "sigma": size.sigma,
        "epochs_left": size.epochs_left,
    }
    if name == "adaptive noise":
        return [lecuyers_policies.AdaptiveNoise(by=size.noise_by, **common)]
    if name == "adaptive batch":
        by, least = size.batch_by / size.people, size.least_batch / size.people
        return [lecuyers_policies.AdaptiveBatch(by=by, least=least, **common)]
    return []


def planned_epsilon(plan: mechanisms.Mechanism, delta: float) -> float:
    """The epsilon of a whole plan, rounded up to a budget of a Rényi filter that admits it."""
    low, high = 0.0, 64.0
    while high - low > 1e-3:
        middle = (low + high) / 2
        if filters.Renyi(epsilon=middle, delta=delta, plan=plan).admits(plan):
            high = middle
        else:
            low = middle
    return high


@cache
def price(step: mechanisms.Mechanism) -> Any:
    """The Rényi curve of one release."""
    return renyi.values(step, renyi.ORDERS)


def spent(released: Any, delta: float) -> float:
    """The epsilon of what was released, by Rényi costs, as if it had been fixed in advance."""
    total = sum(times * price(step) for step, times in released.items())
    return float(renyi.mironov(total, renyi.ORDERS, delta=delta)) if released else 0.0


def passes(released: Any) -> float:
    """How often each person was sampled, in the mean."""
    return float(sum(times * step.sample_rate for step, times in released.items() if hasattr(step, "sample_rate")))


def run(
    name: str, size: Size, known: tuple[Tensor, Tensor, Tensor, Tensor], seed: int, *, seconds: float = np.inf
) -> dict[str, Any]:
    """Train until the filter refuses, or, where there is not so much time, until so many seconds are over."""
    device = "cuda" if torch.cuda.is_available() else "cpu"
    x, y, x_test, y_test = known if size.model == "linear" else tuple(part.to(device) for part in known)
    torch.manual_seed(seed)
    module = (nn.Linear(x.shape[1], 10) if size.model == "linear" else resnet9(size.width)).to(device)
    step = mechanisms.SampledGaussian(size.noise_multiplier, 1.0, size.rate)
    plan = mechanisms.Repeated(step, size.epochs * size.epoch)
    epsilon = planned_epsilon(plan, size.delta)
    looks: list[list[float]] = []
    start = time.perf_counter()

    def look(now: Any) -> None:
        if now.step % (size.epoch * size.every) == 0:
            about = [now.step, now.noise_multiplier, now.sample_rate, accuracy(module, x_test, y_test)]
            looks.append([*about, passes(now.released), spent(now.released, size.delta)])
            seconds_so_far = time.perf_counter() - start
            print(f"  {name}, seed {seed}: step {now.step}, {looks[-1][3]:.1f} %, {seconds_so_far:.0f} s", flush=True)
        if now.step % size.epoch == 0 and time.perf_counter() - start > seconds:
            now.stop("the time is over")

    crops = Views(shifted_and_flipped(4), count=1, seed=seed)
    compute = None if size.model == "linear" else training.Compute(views=crops)
    trainer = training.Trainer(
        module,
        nn.CrossEntropyLoss(reduction="none"),
        torch.optim.SGD(module.parameters(), lr=size.learning_rate, momentum=0.9),
        filters.Renyi(epsilon=epsilon, delta=size.delta, plan=plan),
        max_grad_norm=size.clip,
        divisor=size.people,
        individual=False,
        noise_multiplier=size.noise_multiplier,
        sampling=training.Poisson(size.rate),
        compute=compute,
        seed=seed,
    )
    done = trainer.fit(x, y, callbacks=[*policy(name, size), look])
    return {
        "size": asdict(size),
        "policy": name,
        "seed": seed,
        "epsilon": epsilon,
        "most_noise": max([size.noise_multiplier, *(now[1] for now in looks)]),
        "least_rate": min([size.rate, *(now[2] for now in looks)]),
        "last_noise_multiplier": done.noise_multiplier,
        "last_sample_rate": done.sample_rate,
        "steps": done.step,
        "epochs": passes(done.released),
        "questions": len(done.answers),
        "spent": spent(done.released, size.delta),
        "ended": done.reason,
        "accuracy": accuracy(module, x_test, y_test),
        "looks": looks,
        "seconds": time.perf_counter() - start,
        "machine": journal.machine(),
    }


def of(model: str, results: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The runs of a model."""
    return [row for row in results if row["size"]["model"] == model]


def table(results: list[dict[str, Any]]) -> str:
    """The results as a Markdown table: the mean, the least and the largest over the seeds."""
    columns: dict[str, Callable[[list[dict[str, Any]]], str]] = {
        "policy": lambda rows: rows[0]["policy"],
        "seeds": lambda rows: str(len(rows)),
        "test accuracy, %: mean (least, largest)": lambda rows: spread([row["accuracy"] for row in rows], 2),
        "epochs": lambda rows: mean(rows, "epochs", 0),
        "steps": lambda rows: mean(rows, "steps", 0),
        "noise multiplier at most": lambda rows: f"{max(row['most_noise'] for row in rows):.1f}",
        "sample rate at least": lambda rows: f"{min(row['least_rate'] for row in rows):.4f}",
        "questions": lambda rows: mean(rows, "questions", 0),
        "epsilon of what was released": lambda rows: mean(rows, "spent", 2),
        "ended": lambda rows: ", ".join(sorted({row["ended"] for row in rows})),
        "minutes a run": lambda rows: f"{np.mean([row['seconds'] for row in rows]) / 60:.1f}",
    }
    if not all("spent" in row for row in results):
        del columns["epsilon of what was released"]
    kinds = [[row for row in results if row["policy"] == label] for label in POLICIES]
    lines = [f"| {' | '.join(columns)} |", "|---" * len(columns) + "|"]
    lines += [f"| {' | '.join(cell(rows) for cell in columns.values())} |" for rows in kinds if rows]
    return "\n".join(lines) + "\n"


def spread(values: list[float], digits: int = 1) -> str:
    """The mean, the least and the largest, if there are any."""
    if not values:
        return "-"
    ends = f" ({min(values):.{digits}f}, {max(values):.{digits}f})" if len(values) > 1 else ""
    return f"{np.mean(values):.{digits}f}{ends}"


def mean(rows: list[dict[str, Any]], name: str, digits: int) -> str:
    """The mean of a number over runs."""
    return f"{np.mean([row[name] for row in rows]):.{digits}f}"


@figures.styled()
def draw(results: list[dict[str, Any]], out: Path) -> None:
    """Accuracy, budget, noise and sample rate over the epochs, as the paper's figures 1(a) to 1(d)."""
    picture = figures.figure(10, 6)
    axes = picture.subplots(2, 2, sharex=True).ravel()
    colours = dict(zip(POLICIES, ("C2", "C0", "C1"), strict=True))
    panels = {"test accuracy, %": 3, "epsilon spent": 5, "noise multiplier": 1, "sample rate": 2}
    for axis, (text, place) in zip(axes, panels.items(), strict=True):
        for row in results:
            label = f"{row['policy']}, one line for each run" if row["seed"] == 0 else None
            looks = row["looks"][1:]  # at first nothing is learnt, and nothing spent
            style = {"drawstyle": "steps-post"} if place in (1, 2) else {}
            values = [look[place] for look in looks]
            axis.plot([look[4] for look in looks], values, color=colours[row["policy"]], lw=1, label=label, **style)
            if place == 5 and row["policy"] == "fixed":
                axis.axhline(row["spent"], color="0.5", ls=":", lw=1)
        axis.set(title=text)
    for axis in axes[2:]:
        axis.set_xlabel("epochs")
    handles, labels = axes[0].get_legend_handles_labels()
    picture.legend(handles, labels, loc="outside lower center", ncols=max(1, len(labels)))
    pages.save_picture(picture, "policies", out)


def show(results: list[dict[str, Any]], out: Path) -> None:
    """The tables of the page and the picture of the network's runs."""
    out.mkdir(parents=True, exist_ok=True)
    tables = {"table": of("linear", results), "network": of("resnet9", results)}
    for name, rows in tables.items() if out == pages.DOCS else [("table", results)]:
        pages.insert(out / "policies.md", table(rows), name)
    draw(of("resnet9", results), out)


def main(arguments: list[str] | None = None) -> list[dict[str, Any]]:
    """Run what is not recorded, print, and save."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="a tiny net on some test images; writes nothing by itself")
    parser.add_argument("--size", choices=[name for name in SIZES if name != "quick"], default="features")
    parser.add_argument("--epochs", type=int, help="of the fixed run; looks are as many, and the last half has none")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--only", default="", help='runs whose name has this text: "adaptive noise, 0"')
    parser.add_argument("--seconds", type=float, default=np.inf, help="end a run after so many, where time is short")
    parser.add_argument("--page", action="store_true", help="make tables and figure from the record alone")
    parser.add_argument("--out", type=Path, default=None, help="the folder of policies.jsonl and policies.md")
    options = parser.parse_args(arguments)
    size = SIZES["quick" if options.quick else options.size]
    if options.epochs:
        every = max(1, round(options.epochs * size.every / size.epochs))
        left = options.epochs * size.epochs_left // size.epochs
        size = replace(size, epochs=options.epochs, every=every, epochs_left=left)
    out = options.out or (None if options.quick else pages.DOCS)
    record = None if out is None else pages.results(out) / "policies.jsonl"
    results = [] if record is None else journal.recorded(record)
    if not options.page:
        known = None
        for seed in range(1 if options.quick else options.seeds):
            for name in POLICIES:
                kind = {"size": asdict(size), "policy": name, "seed": seed}
                if options.only not in f"{name}, {seed}" or any(kind.items() <= row.items() for row in results):
                    continue
                known = data(size, quick=options.quick) if known is None else known
                results.append(run(name, size, known, seed, seconds=options.seconds))
                if record is not None:
                    record.parent.mkdir(parents=True, exist_ok=True)
                    journal.record(record, results[-1])
    print(table([row for row in results if row["size"] == asdict(size)]))
    if out is not None:
        show(results, out)
    return results


if __name__ == "__main__":
    main()
