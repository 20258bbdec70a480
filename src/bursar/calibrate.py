"""How much noise for a budget, and how many steps for a noise: the same answer as the filter that will be charged.

A budget is described by a fresh filter; nothing is charged to it. What is left of a used filter works as well.

>>> from bursar import filters
>>> budget = filters.Gaussian(epsilon=1.0, delta=1e-5)
>>> noise = sigma(budget, 100)
>>> round(noise, 4)
37.3063
>>> steps(budget, mechanisms.Gaussian(noise))
100
"""

from collections.abc import Callable
from dataclasses import dataclass
from math import exp, inf, log, log1p

from bursar import _check, filters, mechanisms
from bursar._search import first_true
from bursar.curves import gaussian
from bursar.errors import ArgumentError, CalibrationFailed, Unsupported
from bursar.filters import Filter

__all__ = ["Calibration", "by_filter", "sigma", "steps"]

_MOST_STEPS = 2**40
_MOST_NOISE = 1e60  # that a mechanism may have

_FILTERS: dict[str, Callable[..., Filter]] = {
    "Gaussian": filters.Gaussian,
    "Zcdp": filters.Zcdp,
    "Renyi": filters.Renyi,
    "Approximate": filters.Approximate,
}


def sigma(budget: Filter, steps: int, *, sensitivity: float = 1.0, sample_rate: float = 1.0) -> float:
    """The least Gaussian noise with which a number of steps fits into a budget.

    Args:
        budget: a filter, public; asked, never charged.
        steps: how many, >= 1.
        sensitivity: the L2 norm that each contribution is clipped to.
        sample_rate: in (0, 1]; below 1, Poisson sampling (then the budget must be one for Rényi curves).

    Returns:
        Standard deviation of the noise, absolute, in the sensitivity's unit, rounded up; as a noise multiplier,
        divide by the sensitivity. Of sampled steps in a ``Residue`` or ``Planned`` budget, within a part in 5,000.

    Raises:
        CalibrationFailed: no noise is enough.

    Guarantee: the budget admits that many steps with this noise.
    Source: the filter's own.
    """
    _check_budget(budget)
    _check.whole(1, steps=steps)
    _check.positive(sensitivity=sensitivity)

    def fits(sigma: float) -> bool:
        noise = min(sigma, _MOST_NOISE)
        return budget.admits(mechanisms.Repeated(mechanisms.gaussian_step(noise, sensitivity, sample_rate), steps))

    if sample_rate < 1 and isinstance(budget, filters.Residue | filters.Planned):
        return _by_steps(budget, steps, sensitivity, sample_rate)
    if not fits(min(_MOST_NOISE, sensitivity * 1e9 * steps)):
        why = "a step costs one unit of the account at least, and its noise is at most 1e60"
        raise CalibrationFailed(f"{budget!r} does not admit {steps} steps with any noise: {why}")
    return first_true(fits, start=sensitivity)


def _by_steps(budget: Filter, count: int, sensitivity: float, sample_rate: float) -> float:
    """Noise within a part in 5,000 of the least, where a question takes long: by the secant method for log steps."""
    epsilon, delta = float(budget.notion.epsilon or 1.0), float(budget.notion.delta or 0.5)
    square = gaussian.mu(epsilon=epsilon, delta=delta) ** 2
    log_sigma = -log(log1p(square / count / sample_rate**2)) / 2  # by the variance of the loss
    good, bad, known = inf, -inf, dict[float, float]()
    for _ in range(40):
        step = mechanisms.gaussian_step(sensitivity * exp(log_sigma), sensitivity, sample_rate)
        surplus = log(max(_most(budget, step), 0.5) / count)
        known[log_sigma] = surplus
        good, bad = (log_sigma, bad) if surplus >= 0 else (good, log_sigma)
        if 0 <= surplus < 1e-4 < count * 1e-7 or good - bad < 2e-4:
            break
        nearest = sorted(known, key=lambda at: abs(known[at]))[:2]
        slope = 2.0 if len(nearest) < 2 else (known[nearest[1]] - known[nearest[0]]) / (nearest[1] - nearest[0])
        log_sigma = nearest[0] + (4e-5 - known[nearest[0]]) / max(slope, 0.5)
        if not bad < log_sigma < good:
            log_sigma = (good + bad) / 2 if good - bad < inf else nearest[0] + (0.5 if good == inf else -0.5)
    if good == inf:
        raise CalibrationFailed(f"{budget!r}: no noise was found that admits {count} steps")
    return sensitivity * exp(good)


def _most(budget: Filter, step: mechanisms.Mechanism) -> int:
    try:
        return steps(budget, step)
    except CalibrationFailed:
        return _MOST_STEPS


def steps(budget: Filter, mechanism: mechanisms.Mechanism) -> int:
    """How often a mechanism fits into a budget.

    Args:
        budget: a filter, public; asked, never charged.
        mechanism: one step.

    Returns:
        The largest number of rounds that the budget admits.

    Raises:
        CalibrationFailed: more than 2**40, as for a mechanism that costs nothing.

    Guarantee: the budget admits that many rounds.
    Source: the filter's own.
    """
    _check_budget(budget)
    few, many = 0, 1
    while budget.admits(mechanisms.Repeated(mechanism, many)):
        few, many = many, many * 2
        if many > _MOST_STEPS:
            raise CalibrationFailed(f"{budget!r} admits more than {_MOST_STEPS} rounds of {mechanism!r}")
    while many - few > 1:
        middle = (few + many) // 2
        if budget.admits(mechanisms.Repeated(mechanism, middle)):
            few = middle
        else:
            many = middle
    return few


@dataclass(frozen=True, slots=True)
class Calibration:
    """Noise and steps that fit into the budget of one kind of filter. Every field is public.

    Attributes:
        filter: the name of the filter's class.
        sigma: standard deviation of the noise of a step, absolute; None where no noise is enough.
        noise_multiplier: the same divided by the clip.
        steps: how many steps fit; None where there is no number.
        note: why there is none; else empty.
    """

    filter: str
    sigma: float | None
    noise_multiplier: float | None
    steps: int | None
    note: str


def by_filter(
    *,
    epsilon: float,
    delta: float,
    steps: int | None = None,
    noise_multiplier: float | None = None,
    max_grad_norm: float = 1.0,
    sample_rate: float = 1.0,
) -> tuple[Calibration, ...]:
    """The least noise for a number of steps, or the steps for a noise, for each kind of filter side by side.

    Args:
        epsilon, delta: the budget of every filter, public.
        steps: how many must fit; or
        noise_multiplier: the standard deviation of the noise of a step, divided by the clip. Give one of the two.
        max_grad_norm: the clip: the L2 norm that each contribution is clipped to.
        sample_rate: in (0, 1]; below 1, Poisson sampling.

    Guarantee: each filter admits its number of steps with its noise.
    Source: the filters' own.
    """
    _check.positive(max_grad_norm=max_grad_norm)
    budgets = {name: kind(epsilon=epsilon, delta=delta) for name, kind in _FILTERS.items()}
    if steps is not None and noise_multiplier is None:
        return tuple(_least_noise(name, each, steps, max_grad_norm, sample_rate) for name, each in budgets.items())
    if noise_multiplier is not None and steps is None:
        _check.noise(noise_multiplier=noise_multiplier)
        noise = noise_multiplier, noise_multiplier * max_grad_norm
        return tuple(_most_steps(name, each, *noise, sample_rate) for name, each in budgets.items())
    raise ArgumentError("give either steps or noise_multiplier")


def _least_noise(name: str, budget: Filter, count: int, clip: float, sample_rate: float) -> Calibration:
    try:
        absolute = sigma(budget, count, sensitivity=clip, sample_rate=sample_rate)
    except (Unsupported, CalibrationFailed) as error:
        return Calibration(name, None, None, count, str(error))
    return Calibration(name, absolute, absolute / clip, count, "")


def _most_steps(name: str, budget: Filter, relative: float, absolute: float, sample_rate: float) -> Calibration:
    try:
        count = steps(budget, mechanisms.gaussian_step(relative, 1.0, sample_rate))
    except (Unsupported, CalibrationFailed) as error:
        return Calibration(name, absolute, relative, None, str(error))
    return Calibration(name, absolute, relative, count, "")


def _check_budget(budget: object) -> None:
    if not hasattr(budget, "admits"):
        raise ArgumentError(f"budget={budget!r} must be a filter, such as filters.Gaussian(epsilon=1.0, delta=1e-5)")
