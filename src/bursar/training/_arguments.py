"""Checks of a trainer's arguments, and the values that follow from them; before any private data are read."""

import inspect
import math
from collections.abc import Iterable, Sequence

import torch
from torch import nn

from bursar import _check, calibrate, filters
from bursar.errors import ArgumentError
from bursar.training._loop import Callback

__all__ = ["check_optimizer", "check_options", "checked_callbacks", "least_noise_multiplier", "refresh_interval"]


def check_options(
    *,
    max_grad_norm: float,
    divisor: float,
    slack: float,
    steps: int | None,
    extra_steps: int,
    noise_multiplier: float | None,
    individual: bool,
) -> None:
    _check.positive(max_grad_norm=max_grad_norm, divisor=divisor, slack=slack)
    _check.whole(0, extra_steps=extra_steps)
    if steps is not None:
        _check.whole(1, steps=steps)
    elif individual or noise_multiplier is None:
        raise ArgumentError("steps=None needs individual=False and a noise_multiplier")


def refresh_interval(refresh_every: int | None, sample_rate: float | None) -> int:
    """After how many steps bounds are assigned anew; the arguments checked."""
    if sample_rate is None:
        return 1
    _check.positive(sample_rate=sample_rate)
    _check.within(0, 1, sample_rate=sample_rate)
    refresh_every = max(1, round(1 / sample_rate)) if refresh_every is None else refresh_every
    _check.whole(1, refresh_every=refresh_every)
    return refresh_every


def checked_callbacks(callbacks: Iterable[Callback]) -> Sequence[Callback]:
    listed = tuple(callbacks) if isinstance(callbacks, Iterable) else (None,)
    if not all(map(callable, listed)):
        raise ArgumentError("callbacks must be a list of functions of the run")
    return listed


def check_optimizer(optimizer: object, parameters: list[nn.Parameter]) -> None:
    """Refuse an optimizer that would leave a parameter where it is: its noisy gradients would be paid for in vain."""
    if not isinstance(optimizer, torch.optim.Optimizer):
        raise ArgumentError(f"optimizer={optimizer!r} must be a torch.optim.Optimizer of the module's parameters")
    if isinstance(optimizer, torch.optim.SparseAdam):
        raise ArgumentError("optimizer=SparseAdam takes sparse gradients only, and noise is in every coordinate")
    asked = inspect.signature(optimizer.step).parameters.get("closure")
    if asked is not None and asked.default is inspect.Parameter.empty:
        raise ArgumentError(
            f"optimizer={type(optimizer).__name__} computes the loss again within a step, which nobody has paid for: "
            "use one whose step needs no closure"
        )
    moved = {id(parameter) for group in optimizer.param_groups for parameter in group["params"]}
    missing = sum(id(parameter) not in moved for parameter in parameters)
    if missing:
        raise ArgumentError(
            f"optimizer: {missing} of the module's {len(parameters)} trained parameters are not among those it moves; "
            "make it of module.parameters(), or call requires_grad_(False) on what must stay as it is"
        )


def least_noise_multiplier(
    noise_multiplier: float | None,
    budget: filters.Filter,
    *,
    steps: int | None,
    max_grad_norm: float,
    sample_rate: float | None,
) -> float:
    """The noise multiplier that is given, or else the least with which so many steps fit the budget."""
    if noise_multiplier is not None:
        _check.positive(noise_multiplier=noise_multiplier)
        return float(noise_multiplier)
    sigma = calibrate.sigma(budget, steps or 1, sensitivity=max_grad_norm, sample_rate=sample_rate or 1.0)
    multiplier = sigma / max_grad_norm
    while multiplier * max_grad_norm < sigma:  # rounded down: then the last step would not fit
        multiplier = math.nextafter(multiplier, math.inf)
    return multiplier
