"""From five classes of CIFAR-10, which are treated as public, to the other five: the images and the network."""

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

HERE = Path(__file__).parent
sys.path += [str(HERE), str(HERE.parent)]
from data_sets import cifar10  # noqa: E402
from policies import scaled  # noqa: E402

BY_RECORD = nn.CrossEntropyLoss(reduction="none")


@dataclass(frozen=True)
class Images:
    """(n, 3, 32, 32) images scaled by public constants, or features of them, and labels 0 to 4."""

    x: Tensor
    y: Tensor

    def first(self, count: int) -> "Images":
        """The first images."""
        return Images(self.x[:count], self.y[:count])

    def after(self, count: int) -> "Images":
        """All but the first."""
        return Images(self.x[count:], self.y[count:])

    def through(self, module: nn.Module) -> "Images":
        """Features: what a module makes of the images."""
        with torch.no_grad():
            return Images(torch.cat([module(part) for part in self.x.split(1000)]), self.y)


def load(public: int, people: int, tests: int, *, quick: bool) -> tuple[Images, Images, Images]:
    """So many public images, private training images and private test images; quick: all from the smaller file."""
    test = cifar10("test")
    train = test if quick else cifar10("train")

    def half(pixels: Any, labels: Any, *, last: bool) -> Images:
        chosen = (labels >= 5) == last
        return Images(scaled(pixels[chosen]), torch.from_numpy(labels[chosen] % 5))

    private, judging = half(*train, last=True), half(*test, last=True)
    if quick:
        judging = judging.after(len(judging.y) - tests)
    return half(*train, last=False).first(public), private.first(people), judging.first(tests)


def network(width: int) -> nn.Sequential:
    """Averages over 2 x 2 pixels, two convolutions with strides, and a linear layer."""
    w = width
    return nn.Sequential(
        nn.AvgPool2d(2), nn.Conv2d(3, w, 3, 2, 1), nn.ReLU(), nn.Conv2d(w, 2 * w, 3, 2, 1), nn.ReLU(), nn.Flatten(),
        nn.Linear(32 * w, 5),
    )  # fmt: skip


def pretrained(public: Images, *, width: int, epochs: int) -> nn.Sequential:
    """A network trained on public images without privacy, half of them mirrored."""
    torch.manual_seed(0)
    module = network(width)
    optimizer = torch.optim.Adam(module.parameters())
    batches = -(-len(public.y) // 128)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 4e-3, total_steps=epochs * batches)
    for _ in range(epochs):
        for rows in torch.randperm(len(public.y)).split(128):
            mirrored = torch.rand(len(rows), 1, 1, 1) < 0.5
            x = torch.where(mirrored, public.x[rows].flip(3), public.x[rows])
            optimizer.zero_grad()
            BY_RECORD(module(x), public.y[rows]).mean().backward()
            optimizer.step()
            schedule.step()
    return module
