"""Checks of a trainer's arguments, and the values that follow from them; before any private data are read."""

import inspect
from collections.abc import Iterable, Sequence

import torch
from torch import nn

from almoner import _check, filters
from almoner.errors import ArgumentError, Unsupported
from almoner.individual import Filter as PersonFilter
from almoner.individual import Losses
from almoner.individual import Odometer as PersonOdometer
from almoner.mechanisms import Gaussian, SampledGaussian
from almoner.training._accounts.counted import fresh_odometer
from almoner.training._card import Boundary
from almoner.training._run.fixed_batches import BatchPlan, noise_for
from almoner.training._run.loop import Callback
from almoner.training._run.recommended_budget import Recommended, least_noise_multiplier, with_noise
from almoner.training._run.settings import Settings

__all__ = [
    "accounts_with_ids",
    "check_first_step",
    "check_losses",
    "check_optimizer",
    "check_options",
    "checked_callbacks",
    "refresh_interval",
    "settled_budget",
    "settled_odometer",
    "settled_stream",
]


def check_options(
    *,
    max_grad_norm: float,
    divisor: float,
    slack: float,
    extra_steps: int,
    pace: float,
) -> None:
    _check.positive(max_grad_norm=max_grad_norm, divisor=divisor, slack=slack)
    _check.whole(0, extra_steps=extra_steps)
    _check.within(0, 1, pace=pace)


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


def check_losses(losses: Losses | None, count: int, settings: Settings) -> None:
    """Refuse counts of losses that are not fresh, not of so many people, or too coarse for the noise."""
    if losses is None:
        return
    if settings.batches is not None:
        raise Unsupported("losses are not counted together with batches=")
    if not isinstance(losses, Losses) or losses.n != count or losses.rates:
        raise ArgumentError("losses must be fresh individual.Losses of as many people as the records are of")
    if losses.noise[0] > settings.noise_multiplier:
        raise ArgumentError(
            f"losses: its least={losses.noise[0]:g} must be at most the noise multiplier {settings.noise_multiplier:g}"
        )


def check_first_step(settings: Settings, people: PersonFilter | None) -> None:
    """Refuse a budget or an odometer that has no price for the steps, before anything else is done.

    Raises:
        Unsupported: names the step.
    """
    sigma, clip = settings.noise_multiplier * settings.max_grad_norm, settings.max_grad_norm
    sensitivity, rate = settings.sensitivity(clip), settings.sample_rate
    step = Gaussian(sigma, sensitivity) if rate is None else SampledGaussian(sigma, clip, rate)
    if people is not None:
        people.check(step)
    elif settings.budget is not None:
        settings.budget.admits(step)
    if settings.odometer is not None:
        settings.odometer.check(step)


def settled_odometer(odometer: Boundary | None, *, individual: bool) -> Boundary | None:
    """A fresh odometer of the trainer's own, if one is given, that can be kept for each person where that is asked."""
    if odometer is None:
        return None
    fresh = fresh_odometer(odometer)
    if individual:
        PersonOdometer(1, fresh)  # refuses those that cannot be kept for each person
    return fresh


def settled_budget(
    budget: filters.Filter | PersonFilter | None,
    *,
    epsilon: float | None,
    delta: float | None,
    steps: int | None,
    noise_multiplier: float | None,
    max_grad_norm: float,
    sample_rate: float | None,
    individual: bool,
    with_odometer: bool,
    plan: BatchPlan | None = None,
) -> Recommended:
    """The public budget of each person, a filter of its own, and the noise: as given, or for epsilon and delta.

    With a plan of fixed batches the whole run is one round, of the most that a person can contribute to all of it.

    The budget is None where there is an odometer, and neither a budget nor epsilon is given.
    """
    if plan is not None:
        one = settled_budget(
            budget,
            epsilon=epsilon,
            delta=delta,
            steps=1,
            noise_multiplier=noise_multiplier,
            max_grad_norm=plan.together,
            sample_rate=None,
            individual=individual,
            with_odometer=False,
        )
        return noise_for(plan, one, given=noise_multiplier, clip=max_grad_norm)
    if steps is not None:
        _check.whole(1, steps=steps)
    elif individual or noise_multiplier is None:
        raise ArgumentError("steps=None needs individual=False and a noise_multiplier")
    if with_odometer and budget is None and epsilon is None and delta is None:
        if noise_multiplier is None or steps is None:
            raise ArgumentError("steps and noise_multiplier must be given where there is an odometer and no budget")
        _check.positive(noise_multiplier=noise_multiplier)
        return Recommended(None, "", float(noise_multiplier))
    if budget is None:
        return with_noise(
            epsilon=epsilon,
            delta=delta,
            steps=steps,
            noise_multiplier=noise_multiplier,
            max_grad_norm=max_grad_norm,
            sample_rate=sample_rate,
            per_person=individual,
        )
    if epsilon is not None or delta is not None:
        raise ArgumentError("give either a budget, or epsilon= and delta=")
    return _given_budget(budget, steps or 1, noise_multiplier, max_grad_norm, sample_rate or 1.0)


def _given_budget(
    budget: filters.Filter | PersonFilter,
    steps: int,
    noise_multiplier: float | None,
    max_grad_norm: float,
    sample_rate: float,
) -> Recommended:
    """The caller's budget as a filter of the run's own, and the noise that was given or the least that fits."""
    given = budget.budget if isinstance(budget, PersonFilter) else budget
    if not isinstance(given, filters.Filter) or given.count:
        raise ArgumentError(f"budget={budget!r} must be a fresh filter, or accounts per person")
    own = given.fresh()  # a resumed run may be given the filter that the run before it took
    if noise_multiplier is not None:
        _check.positive(noise_multiplier=noise_multiplier)
        return Recommended(own, "", float(noise_multiplier))
    return Recommended(own, "", least_noise_multiplier(own, steps, max_grad_norm, sample_rate=sample_rate))


def settled_stream(
    budget: filters.Filter | PersonFilter | None,
    *,
    epsilon: float | None = None,
    delta: float | None = None,
    updates: int | None,
    noise_multiplier: float | None,
    max_grad_norm: float,
    bounded: bool = False,
) -> tuple[filters.Filter | None, str, float]:
    """Each person's budget, why it is this filter, and the noise multiplier; the arguments checked.

    The budget is None where there is an odometer (``bounded``), and neither a budget nor epsilon is given.
    """
    _check.positive(max_grad_norm=max_grad_norm)
    if (updates is None) == (noise_multiplier is None):
        raise ArgumentError("give either updates= or noise_multiplier=")
    if bounded and noise_multiplier is None and budget is None and epsilon is None:
        raise ArgumentError("noise_multiplier must be given where there is an odometer and no budget")
    chosen = settled_budget(
        budget,
        epsilon=epsilon,
        delta=delta,
        steps=1 if updates is None else updates,
        noise_multiplier=noise_multiplier,
        max_grad_norm=max_grad_norm,
        sample_rate=None,
        individual=True,
        with_odometer=bounded,
    )
    if chosen.budget is None and not bounded:
        raise ArgumentError("give a budget, or both epsilon= and delta=")
    return chosen.budget, chosen.why, chosen.noise_multiplier


def accounts_with_ids(budget: filters.Filter | PersonFilter | None, public: filters.Filter) -> PersonFilter:
    """The caller's accounts, or fresh ones for people who are named by ids."""
    if not isinstance(budget, PersonFilter):
        return PersonFilter([], public.fresh())
    budget.missing([])  # refuses accounts that are rows
    return budget
