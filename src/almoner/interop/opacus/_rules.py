"""Rules that accountants, engine and optimizer share: the sample rate that is charged, refusals, and what fits."""

import logging

from opacus.optimizers import AdaClipDPOptimizer, DPOptimizer

from almoner import filters, mechanisms
from almoner.accounting import calibrate
from almoner.errors import Unsupported

__all__ = [
    "ADAPTIVE",
    "RAND_ON_EMPTY",
    "SHUFFLED",
    "forget_gradients",
    "rate",
    "refuse_accumulation",
    "refuse_adaptive",
    "steps_that_fit",
]

LOG = logging.getLogger("almoner.interop.opacus")

COINS = 2.0**-23  # a float32 draw falls below q with probability at most q + COINS
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
    """The probability with which Opacus's float32 draw falls below the sample rate, rounded up."""
    return min(1.0, float(sample_rate) + COINS)


def refuse_accumulation(optimizer: DPOptimizer) -> None:
    """Refuse steps that add up the gradients of several batches."""
    if optimizer.accumulated_iterations != 1:
        raise Unsupported("gradients of several Poisson batches in one step have no price here: step after each batch")


def refuse_adaptive(optimizer: DPOptimizer) -> None:
    """Refuse adaptive clipping, which releases more than the noisy sum."""
    if isinstance(optimizer, AdaClipDPOptimizer):
        raise Unsupported(ADAPTIVE)


def forget_gradients(optimizer: DPOptimizer) -> None:
    """Delete all gradients: the noisy sum of a step that was not paid for must not be readable."""
    for p in optimizer.params:
        p.grad = p.summed_grad = p.grad_sample = None


def steps_that_fit(budget: filters.Filter, step: mechanisms.Mechanism, batches: int) -> int:
    """Number of steps that a budget admits, at most an epoch; less than an epoch is logged as a warning."""
    if budget.admits(mechanisms.Repeated(step, batches)):
        return batches
    steps = calibrate.steps(budget, step)
    LOG.warning("only %d steps of %r fit into %r: less than an epoch of %d", steps, step, budget, batches)
    return steps
