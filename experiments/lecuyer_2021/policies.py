"""Lécuyer (2021), section 5: adaptive noise and adaptive batches on CIFAR-10, against fixed DP-SGD at the same budget.

    python experiments/lecuyer_2021/policies.py            # a narrow net, some of the images: minutes on one core
    python experiments/lecuyer_2021/policies.py --quick    # a tiny net, for continuous integration
    python experiments/lecuyer_2021/policies.py --full     # full width, all images: for a GPU, used when present

A ResNet9 with GroupNorm and DP-SGD with Poisson sampling; a Rényi filter charges the worst case for each person. Every
run continues until the filter refuses, so the number of steps shows what the policies save or spend. Prints a Markdown
table, and writes it to docs/experiments/policies.md with all numbers in policies.json. The noise is seeded so that the
table can be reproduced: these models are experiments on public data, and not private.
"""

import argparse
import json
import os
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from bursar import calibrate, filters, mechanisms, training
from bursar.errors import DataError
from bursar.training import policies

HERE = Path(__file__).parent
DOCS = HERE.parents[1] / "docs" / "experiments"
MEAN, STD = (0.4914, 0.4822, 0.4465), (0.2470, 0.2435, 0.2616)  # published


@dataclass(frozen=True)
class Size:
    """The size of an experiment."""

    people: int
    tests: int
    width: int
    rate: float
    epochs: int
    epsilon: float
    learning_rate: float
    sigma: float
    """The noise on a count of right answers."""
    epochs_left: int
    every: int
    """Epochs between two looks."""
    delta: float = 1e-5
    clip: float = 1.0

    @property
    def epoch(self) -> int:
        """Steps of an epoch at the rate of the baseline."""
        return round(1 / self.rate)


QUICK = Size(
    people=600,
    tests=300,
    width=4,
    rate=0.1,
    epochs=3,
    epsilon=8.0,
    learning_rate=0.5,
    sigma=20.0,
    epochs_left=0,
    every=1,
)
NARROW = Size(
    people=4000, tests=2000, width=8, rate=0.04, epochs=12, epsilon=8.0, learning_rate=0.5, sigma=40.0, epochs_left=3,
    every=1,
)  # fmt: skip
FULL = Size(
    people=50_000, tests=10_000, width=64, rate=512 / 50_000, epochs=150, epsilon=8.0, learning_rate=0.5, sigma=100.0,
    epochs_left=50, every=10,
)  # fmt: skip


class Residual(nn.Module):
    """x + body(x)."""

    def __init__(self, body: nn.Module) -> None:
        super().__init__()
        self.body = body

    def forward(self, x: Tensor) -> Tensor:
        """The sum."""
        return x + self.body(x)


def resnet9(width: int) -> nn.Module:
    """The usual ResNet9 (width 64) with GroupNorm in place of BatchNorm, at any width that is a multiple of 4."""

    def block(entering: int, leaving: int, *, pool: bool = False) -> nn.Sequential:
        conv = nn.Conv2d(entering, leaving, 3, padding=1)
        norm = nn.GroupNorm(min(32, leaving // 2), leaving)
        return nn.Sequential(conv, norm, nn.ReLU(), *([nn.MaxPool2d(2)] if pool else []))

    w = width
    return nn.Sequential(
        block(3, w),
        block(w, 2 * w, pool=True),
        Residual(nn.Sequential(block(2 * w, 2 * w), block(2 * w, 2 * w))),
        block(2 * w, 4 * w, pool=True),
        block(4 * w, 8 * w, pool=True),
        Residual(nn.Sequential(block(8 * w, 8 * w), block(8 * w, 8 * w))),
        nn.MaxPool2d(4),
        nn.Flatten(),
        nn.Linear(8 * w, 10),
    )


def data(size: Size, *, quick: bool) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Training and test images and labels; the quick form takes both from the test file, which is smaller."""
    file = Path(os.environ.get("BURSAR_DATA", HERE.parents[2] / "shared" / "data")) / "cifar10" / "cifar10.npz"
    if not file.is_file():
        raise DataError(f"{file} does not exist; set BURSAR_DATA")
    with np.load(file) as z:
        x_test, y_test = z["test_x"], z["test_y"]
        x, y = (x_test[size.tests :], y_test[size.tests :]) if quick else (z["train_x"], z["train_y"])
    return (
        _images(x[: size.people]),
        torch.from_numpy(y[: size.people].astype(np.int64)),
        _images(x_test[: size.tests]),
        torch.from_numpy(y_test[: size.tests].astype(np.int64)),
    )


def _images(pixels: Any) -> Tensor:
    scaled = (pixels.astype(np.float32) / 255 - np.float32(MEAN)) / np.float32(STD)
    return torch.from_numpy(np.ascontiguousarray(scaled.transpose(0, 3, 1, 2)))


def accuracy(module: nn.Module, x: Tensor, y: Tensor) -> float:
    """Share of correct answers, in percent."""
    device = next(module.parameters()).device
    with torch.no_grad():
        right = [
            (module(a.to(device)).argmax(1).cpu() == b).sum() for a, b in zip(x.split(500), y.split(500), strict=True)
        ]
    return 100 * float(torch.stack(right).sum()) / len(y)


def policy(name: str, size: Size, noise: float) -> list[Any]:
    """The callbacks of a row."""
    common: dict[str, Any] = {
        "every": size.every,
        "epoch": size.epoch,
        "sigma": size.sigma,
        "epochs_left": size.epochs_left,
    }
    if name == "adaptive noise":
        return [policies.AdaptiveNoise(by=0.1 * noise, least=0.5 * noise, **common)]
    if name == "adaptive batch":
        return [policies.AdaptiveBatch(by=0.1 * size.rate, least=0.5 * size.rate, **common)]
    return []


def run(name: str, size: Size, known: tuple[Tensor, Tensor, Tensor, Tensor], seed: int) -> dict[str, Any]:
    """Train until the filter refuses."""
    x, y, x_test, y_test = known
    device = "cuda" if torch.cuda.is_available() else "cpu"
    torch.manual_seed(seed)
    module = resnet9(size.width).to(device)
    steps = size.epochs * size.epoch
    guess = mechanisms.SampledGaussian(1.0, 1.0, size.rate)
    budget = filters.Renyi(epsilon=size.epsilon, delta=size.delta, plan=mechanisms.Repeated(guess, steps))
    noise = calibrate.sigma(budget, steps, sample_rate=size.rate)
    looks: list[list[float]] = []

    def look(now: Any) -> None:
        if now.step % (size.epoch * size.every) == 0:
            looks.append([now.step, now.noise_multiplier, now.sample_rate, accuracy(module, x_test, y_test)])
            print(f"  {name}: step {now.step}, {looks[-1][3]:.1f} %", flush=True)

    trainer = training.Trainer(
        module,
        nn.CrossEntropyLoss(reduction="none"),
        torch.optim.SGD(module.parameters(), lr=size.learning_rate, momentum=0.9),
        budget,
        max_grad_norm=size.clip,
        divisor=size.people,
        individual=False,
        noise_multiplier=noise,
        sample_rate=size.rate,
        seed=seed,
    )
    start = time.perf_counter()
    done = trainer.fit(x, y, callbacks=[*policy(name, size, noise), look])
    images = sum(times * step.sample_rate for step, times in done.released.items() if hasattr(step, "sample_rate"))
    return {
        "policy": name,
        "seed": seed,
        "noise_multiplier": noise,
        "last_noise_multiplier": done.noise_multiplier,
        "last_sample_rate": done.sample_rate,
        "steps": done.step,
        "epochs": images,  # expected number of times that each person was sampled
        "questions": len(done.answers),
        "ended": done.reason,
        "accuracy": accuracy(module, x_test, y_test),
        "looks": looks,
        "seconds": time.perf_counter() - start,
    }


def table(results: list[dict[str, Any]]) -> str:
    """The results as a Markdown table."""
    lines = [
        "| policy | seed | noise multiplier: first, last | sample rate at the end | steps | epochs | questions | "
        "test accuracy, % | seconds |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    lines += [
        f"| {r['policy']} | {r['seed']} | {r['noise_multiplier']:.3f}, {r['last_noise_multiplier']:.3f} | "
        f"{r['last_sample_rate']:.4f} | {r['steps']} | {r['epochs']:.2f} | {r['questions']} | {r['accuracy']:.2f} | "
        f"{r['seconds']:.0f} |"
        for r in results
    ]
    return "\n".join(lines) + "\n"


def record(name: str, size: Any, results: list[dict[str, Any]], text: str, out: Path) -> None:
    """Write the numbers as JSON, and the table between the marks of an existing page or into a new page."""
    out.mkdir(parents=True, exist_ok=True)
    numbers = {"size": asdict(size), "rows": results}
    (out / f"{name}.json").write_text(json.dumps(numbers, indent=1) + "\n", encoding="utf-8")
    page, begin, end = out / f"{name}.md", "<!-- table: begin -->\n", "<!-- table: end -->"
    before, after = begin, end + "\n"
    if page.is_file():
        whole = page.read_text(encoding="utf-8")
        before, after = whole.split(begin)[0] + begin, end + whole.split(end)[1]
    page.write_text(before + text + after, encoding="utf-8")


def main(arguments: list[str] | None = None) -> list[dict[str, Any]]:
    """Run, print, and save."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="a tiny net on some test images")
    parser.add_argument("--full", action="store_true", help="full width and all images")
    parser.add_argument("--width", type=int, default=None, help="channels of the first layer, a multiple of 4")
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--out", type=Path, default=None, help="the folder of policies.json and policies.md")
    given = parser.parse_args(arguments)
    size = QUICK if given.quick else FULL if given.full else NARROW
    if given.width is not None:
        size = Size(**(asdict(size) | {"width": given.width}))
    known = data(size, quick=given.quick)
    names = ("fixed", "adaptive noise", "adaptive batch")
    results = [run(name, size, known, seed) for seed in range(given.seeds) for name in names]
    text = table(results)
    print(text)
    out = given.out or (None if given.quick or given.full else DOCS)
    if out is not None:
        record("policies", size, results, text, out)
    return results


if __name__ == "__main__":
    main()
