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

from bursar import _check, mechanisms
from bursar._search import first_true
from bursar.errors import ArgumentError, CalibrationFailed
from bursar.filters import Filter

__all__ = ["sigma", "steps"]

_MOST_STEPS = 2**40


def sigma(budget: Filter, steps: int, *, sensitivity: float = 1.0, sample_rate: float = 1.0) -> float:
    """The least Gaussian noise with which a number of steps fits into a budget.

    Args:
        budget: a filter, public; asked, never charged.
        steps: how many, >= 1.
        sensitivity: the L2 norm that each contribution is clipped to.
        sample_rate: in (0, 1]; below 1, Poisson sampling (then the budget must be one for Rényi curves).

    Returns:
        Standard deviation of the noise, absolute, in the sensitivity's unit, rounded up; as a noise multiplier,
        divide by the sensitivity.

    Raises:
        CalibrationFailed: no noise is enough.

    Guarantee: the budget admits that many steps with this noise.
    Source: the filter's own.
    """
    _check_budget(budget)
    _check.whole(1, steps=steps)
    _check.positive(sensitivity=sensitivity)

    def fits(sigma: float) -> bool:
        step: mechanisms.Mechanism = mechanisms.Gaussian(sigma, sensitivity)
        if sample_rate != 1:
            step = mechanisms.SampledGaussian(sigma, sensitivity, sample_rate)
        return budget.admits(mechanisms.Repeated(step, steps))

    if not fits(sensitivity * 1e9 * steps):
        raise CalibrationFailed(f"{budget!r} does not admit {steps} steps with any noise")
    return first_true(fits, start=sensitivity)


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


def _check_budget(budget: object) -> None:
    if not hasattr(budget, "admits"):
        raise ArgumentError(f"budget={budget!r} must be a filter, such as filters.Gaussian(epsilon=1.0, delta=1e-5)")
