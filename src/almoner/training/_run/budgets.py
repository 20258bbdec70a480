"""The budget of each person and the noise of the steps: as given, or chosen before any data are read."""

from contextlib import suppress
from dataclasses import dataclass
from math import inf, nextafter
from typing import Any, NamedTuple

from almoner import _check, filters, individual, mechanisms
from almoner._search import least
from almoner.accounting import calibrate
from almoner.errors import ArgumentError, CalibrationFailed, Unsupported
from almoner.individual import Filter as PersonFilter
from almoner.individual import Odometer as PersonOdometer
from almoner.training._card import Boundary

__all__ = ["Picked", "Target", "fresh_odometer", "picked", "recommended"]

TOLERANCE = 1e-3  # relative: how finely the noise is searched, from above


@dataclass(frozen=True, slots=True)
class Target:
    """A promise to each person, for which the best filter is chosen: ``filters.recommend`` names it for the steps.

    With accounts per person it is the best that these can have; the card says why. Public.

    Args:
        epsilon: > 0.
        delta: in (0, 1).
    """

    epsilon: float
    delta: float

    def __post_init__(self) -> None:
        _check.positive(epsilon=self.epsilon)
        _check.between(0, 1, delta=self.delta)


class Picked(NamedTuple):
    """A budget (None: there is an odometer alone), the reason for it, and the noise. Every field is public."""

    budget: filters.Filter | None
    why: str
    noise_multiplier: float
    odometer: Boundary | None = None  # a fresh odometer, where it stands in place of a budget


def picked(
    given: Any,
    *,
    steps: int | None,
    noise_multiplier: float | None,
    max_grad_norm: float,
    sample_rate: float | None = None,
    individual: bool = True,
) -> Picked:
    """The public budget of each person, a filter of its own, and the noise of a step over the clip.

    ``given`` is a fresh filter, accounts per person, private, a ``Target``, or a fresh odometer. ``steps`` must fit
    where no noise is given; None: as many as the budget admits. Without a noise multiplier the least that fits.

    Raises:
        ArgumentError, Unsupported: an argument breaks a rule; the odometer cannot be kept for each person.
        CalibrationFailed: no noise is enough.

    Guarantee: that of the budget; with noise that was searched, it admits so many steps.
    Source: the filter's own.
    """
    _check.positive(max_grad_norm=max_grad_norm)
    if noise_multiplier is not None:
        _check.positive(noise_multiplier=noise_multiplier)
        noise_multiplier = float(noise_multiplier)
    if steps is not None:
        _check.whole(1, steps=steps)
    elif individual or noise_multiplier is None:
        raise ArgumentError("steps=None needs individual=False and a noise_multiplier")
    if isinstance(given, Boundary):
        if noise_multiplier is None or steps is None:
            raise ArgumentError("steps and noise_multiplier must be given where there is an odometer and no budget")
        odometer = fresh_odometer(given)
        if individual:
            PersonOdometer(1, odometer)  # refuses those that cannot be kept for each person
        return Picked(None, "", noise_multiplier, odometer)
    if isinstance(given, Target):
        both, rate = (given.epsilon, given.delta), 1.0 if sample_rate is None else sample_rate
        if noise_multiplier is None and rate == 1:  # the filter does not depend on the noise
            budget, why = recommended(*both, mechanisms.Gaussian(1.0), per_person=individual)
            return Picked(budget, why, least_noise_multiplier(budget, steps or 1, max_grad_norm))
        if noise_multiplier is None:
            noise_multiplier = _least_sampled(*both, steps or 1, max_grad_norm, rate, individual)
        step = mechanisms.gaussian_step(noise_multiplier * max_grad_norm, max_grad_norm, rate)
        budget, why = recommended(*both, step, per_person=individual)
        return Picked(budget, why, float(noise_multiplier))
    budget = given.budget if isinstance(given, PersonFilter) else given
    if not isinstance(budget, filters.Filter) or budget.count:
        raise ArgumentError(
            f"budget={given!r} must be a fresh filter, training.Target(epsilon, delta), accounts per person, a fresh "
            "odometer, or training.OnLedger(...)"
        )
    own = budget.fresh()  # a resumed run may be given the filter that the run before it took
    if noise_multiplier is None:
        noise_multiplier = least_noise_multiplier(own, steps or 1, max_grad_norm, sample_rate=sample_rate or 1.0)
    return Picked(own, "", noise_multiplier)


def fresh_odometer(odometer: Boundary) -> Boundary:
    """An odometer of one's own, with the settings of one that was charged for nothing."""
    if not isinstance(odometer, Boundary) or odometer.count:
        raise ArgumentError(f"odometer={odometer!r} must be a fresh odometer")
    return odometer.fresh()


def least_noise_multiplier(budget: filters.Filter, steps: int, clip: float, *, sample_rate: float = 1.0) -> float:
    sigma = calibrate.sigma(budget, steps, sensitivity=clip, sample_rate=sample_rate)
    multiplier = sigma / clip
    while multiplier * clip < sigma:  # rounded down: then the last step would not fit
        multiplier = nextafter(multiplier, inf)
    return multiplier


def recommended(
    epsilon: float, delta: float, step: mechanisms.Mechanism, *, per_person: bool
) -> tuple[filters.Filter, str]:
    """The filter that ``filters.recommend`` names for a step, or the best one that accounts per person can have."""
    chosen = filters.recommend(epsilon=epsilon, delta=delta, plan=step)
    with suppress(Unsupported):
        if per_person:
            individual.Filter(1, chosen.budget)
        return chosen.budget, chosen.why
    others = filters.Residue(epsilon=epsilon, delta=delta), filters.Renyi(epsilon=epsilon, delta=delta, plan=step)
    best, count = max(((each, calibrate.steps(each, step)) for each in others), key=lambda pair: pair[1])
    why = f"{type(best).__name__}: of the filters that accounts per person can have, it admits the most, {count:,}."
    return best, why


def _least_sampled(epsilon: float, delta: float, steps: int, clip: float, rate: float, per_person: bool) -> float:
    near = calibrate.in_advance(epsilon=epsilon, delta=delta, steps=steps, sample_rate=rate).noise_multiplier

    def fits(noise_multiplier: float) -> bool:
        step = mechanisms.gaussian_step(noise_multiplier * clip, clip, rate)
        budget, _ = recommended(epsilon, delta, step, per_person=per_person)
        return budget.admits(mechanisms.Repeated(step, steps))

    multiplier = inf if near is None else least(fits, near=near, tolerance=TOLERANCE, low=1e-2, high=1e6)
    if multiplier == inf:
        raise CalibrationFailed(f"epsilon={epsilon!r}, delta={delta!r}: {steps} steps do not fit with any noise")
    return multiplier
