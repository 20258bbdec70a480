"""The budget of a training run for which only epsilon and delta are given: chosen before any data are read."""

from dataclasses import dataclass
from math import inf, nextafter

from almoner import _check, filters, individual, mechanisms
from almoner._search import least
from almoner.accounting import calibrate
from almoner.errors import ArgumentError, CalibrationFailed, Unsupported

__all__ = ["Recommended", "least_noise_multiplier", "recommended", "with_noise"]

TOLERANCE = 1e-3  # relative: how finely the noise is searched, from above


@dataclass(frozen=True, slots=True)
class Recommended:
    """A budget (None: there is none), the reason for it, and the noise. Every field is public."""

    budget: filters.Filter | None
    why: str
    noise_multiplier: float


def with_noise(
    *,
    epsilon: float | None,
    delta: float | None,
    steps: int | None,
    noise_multiplier: float | None,
    max_grad_norm: float,
    sample_rate: float | None,
    per_person: bool,
) -> Recommended:
    """The recommended budget, and the given noise or the least with which so many steps fit.

    Args:
        epsilon, delta: public; both are needed.
        steps: public; how many must fit, where no noise is given.
        noise_multiplier: public; the noise of a step over the clip.
        max_grad_norm: public; the clip.
        sample_rate: public; None: all people in every step.
        per_person: public; whether each person has an account.

    Guarantee: that of the budget; with noise that was searched, it admits so many steps.
    Source: the filter's own.

    Raises:
        ArgumentError: epsilon or delta is missing or breaks a rule.
        CalibrationFailed: no noise is enough.
    """
    if epsilon is None or delta is None:
        raise ArgumentError("give a budget, or both epsilon= and delta=")
    _check.positive(epsilon=epsilon)
    _check.between(0, 1, delta=delta)
    target, rate = (epsilon, delta), 1.0 if sample_rate is None else sample_rate
    if noise_multiplier is None and rate == 1:  # the filter does not depend on the noise
        budget, why = recommended(*target, mechanisms.Gaussian(1.0), per_person=per_person)
        noise_multiplier = least_noise_multiplier(budget, steps or 1, max_grad_norm)
        return Recommended(budget, why, noise_multiplier)
    if noise_multiplier is None:
        noise_multiplier = _least_sampled(*target, steps or 1, max_grad_norm, rate, per_person)
    _check.positive(noise_multiplier=noise_multiplier)
    step = mechanisms.gaussian_step(noise_multiplier * max_grad_norm, max_grad_norm, rate)
    budget, why = recommended(*target, step, per_person=per_person)
    return Recommended(budget, why, float(noise_multiplier))


def least_noise_multiplier(
    budget: filters.Filter, steps: int, max_grad_norm: float, *, sample_rate: float = 1.0
) -> float:
    """The least noise multiplier with which so many steps fit a budget."""
    sigma = calibrate.sigma(budget, steps, sensitivity=max_grad_norm, sample_rate=sample_rate)
    multiplier = sigma / max_grad_norm
    while multiplier * max_grad_norm < sigma:  # rounded down: then the last step would not fit
        multiplier = nextafter(multiplier, inf)
    return multiplier


def recommended(
    epsilon: float, delta: float, step: mechanisms.Mechanism, *, per_person: bool
) -> tuple[filters.Filter, str]:
    """The filter that ``filters.recommend`` names for a step, or the best one that accounts per person can have."""
    chosen = filters.recommend(epsilon=epsilon, delta=delta, plan=step)
    if not per_person or _can_be_personal(chosen.budget):
        return chosen.budget, chosen.why
    others = filters.Residue(epsilon=epsilon, delta=delta), filters.Renyi(epsilon=epsilon, delta=delta, plan=step)
    best, count = max(((each, calibrate.steps(each, step)) for each in others), key=lambda pair: pair[1])
    return (
        best,
        f"{type(best).__name__}: of the filters that accounts per person can have, it admits the most, {count:,}.",
    )


def _can_be_personal(budget: filters.Filter) -> bool:
    try:
        individual.Filter(1, budget)
    except Unsupported:
        return False
    return True


def _least_sampled(
    epsilon: float, delta: float, steps: int, max_grad_norm: float, rate: float, per_person: bool
) -> float:
    near = calibrate.in_advance(epsilon=epsilon, delta=delta, steps=steps, sample_rate=rate).noise_multiplier

    def fits(noise_multiplier: float) -> bool:
        step = mechanisms.gaussian_step(noise_multiplier * max_grad_norm, max_grad_norm, rate)
        budget, _ = recommended(epsilon, delta, step, per_person=per_person)
        return budget.admits(mechanisms.Repeated(step, steps))

    multiplier = inf if near is None else least(fits, near=near, tolerance=TOLERANCE, low=1e-2, high=1e6)
    if multiplier == inf:
        raise CalibrationFailed(f"epsilon={epsilon!r}, delta={delta!r}: {steps} steps do not fit with any noise")
    return multiplier
