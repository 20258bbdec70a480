"""The budget of each person in a stream, the noise that follows from it, and the accounts that it begins with."""

from almoner import _check, filters
from almoner.errors import ArgumentError
from almoner.individual import Filter as PersonFilter
from almoner.training._steps.arguments import settled_budget

__all__ = ["accounts_with_ids", "settled_stream"]


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
