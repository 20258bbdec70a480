"""The ResNet9 of Lécuyer's program, for CIFAR-10."""

from torch import Tensor, nn


class Residual(nn.Module):
    """x + body(x)."""

    def __init__(self, body: nn.Module) -> None:
        super().__init__()
        self.body = body

    def forward(self, x: Tensor) -> Tensor:
        """The sum."""
        return x + self.body(x)


class Times(nn.Module):
    """What comes in, times a public number."""

    def __init__(self, factor: float) -> None:
        super().__init__()
        self.factor = factor

    def forward(self, x: Tensor) -> Tensor:
        """The product."""
        return self.factor * x


def resnet9(width: int) -> nn.Module:
    """The ResNet9 of his program (width 64) at any width: no biases, GroupNorm for BatchNorm, and an eighth comes out.

    (The paper says LayerNorm; his program has Opacus convert the layers, which gives GroupNorm of 32 groups.)
    """

    def block(entering: int, leaving: int, *, pool: bool = False) -> nn.Sequential:
        conv = nn.Conv2d(entering, leaving, 3, padding=1, bias=False)
        norm = nn.GroupNorm(min(32, leaving), leaving)
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
        nn.Linear(8 * w, 10, bias=False),
        Times(0.125),
    )
