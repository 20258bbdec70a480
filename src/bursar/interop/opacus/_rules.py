"""What both ways from Opacus share: the price of a round, and what is refused."""

from typing import Any

from opacus.optimizers import AdaClipDPOptimizer

from bursar.errors import Unsupported

__all__ = [
    "ADAPTIVE",
    "RAND_ON_EMPTY",
    "SHUFFLED",
    "forget_gradients",
    "rate",
    "refuse_accumulation",
    "refuse_adaptive",
]

COINS = 2.0**-23  # a float32 coin falls below q with probability at most q + COINS
SHUFFLED = "data_loader: {}: only Poisson samples have a price, so make_private needs poisson_sampling=True"
RAND_ON_EMPTY = (
    "data_loader: rand_on_empty=True puts an invented record into empty batches only, so that adding one person "
    "changes the sum by up to twice the clip: use rand_on_empty=False"
)


ADAPTIVE = (
    "clipping: adaptive clipping also releases how many gradients were below the clip, which one person changes by 1 "
    "and Opacus prices as 1/2, and divides by the private size of the batch: use clipping='flat' or 'per_layer'"
)


def rate(sample_rate: float) -> float:
    """The probability with which a float32 coin falls below the rate, rounded up."""
    return min(1.0, float(sample_rate) + COINS)


def refuse_accumulation(optimizer: Any) -> None:
    """One batch, one step."""
    if optimizer.accumulated_iterations != 1:
        raise Unsupported("gradients of several Poisson batches in one step have no price here: step after each batch")


def refuse_adaptive(optimizer: Any) -> None:
    """More is released than the noisy sum."""
    if isinstance(optimizer, AdaClipDPOptimizer):
        raise Unsupported(ADAPTIVE)


def forget_gradients(optimizer: Any) -> None:
    """Nobody shall find the noisy sum of a step that was not paid for."""
    for p in optimizer.params:
        p.grad = p.summed_grad = p.grad_sample = None
