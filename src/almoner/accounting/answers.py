"""Which epsilon holds for a run: fixed in advance, within a filter's budget, or read from an odometer.

>>> step = mechanisms.SampledGaussian(sigma=1.1, sample_rate=0.01)
>>> fixed, within_a_filter, stopped = of_run(step, rounds=1000, delta=1e-5)
>>> fixed.bound, round(fixed.epsilon, 2)
('privacy loss distributions', 1.52)
>>> within_a_filter.bound, round(within_a_filter.epsilon, 2)
('filters.Planned', 1.52)
"""

from dataclasses import dataclass
from functools import partial
from math import inf, log, sqrt
from operator import itemgetter

from almoner import _check, _search, mechanisms
from almoner.curves import gaussian, renyi
from almoner.curves._totals import tightest
from almoner.errors import ArgumentError, Unsupported

__all__ = ["Answer", "of_run"]

TOLERANCE = 1e-3  # relative: how finely the smallest epsilon that a filter needs is searched, from above


@dataclass(frozen=True, slots=True)
class Answer:
    """The epsilon of a run under one condition. Every field is public.

    Attributes:
        promise: "fixed", "filter" or "ex-post" (of an odometer).
        bound: the notion of privacy, the filter or the odometer that gives it.
        epsilon: nats, rounded up.
        holds: the condition under which it holds, in words.
    """

    promise: str
    bound: str
    epsilon: float
    holds: str


def of_run(mechanism: mechanisms.Mechanism, *, rounds: int, delta: float) -> tuple[Answer, Answer, Answer]:
    """The epsilon of a run of equal rounds under three conditions, of which one is what you need.

    Args:
        mechanism: one round, public.
        rounds: how many, >= 1; also the plan of the filter and of the odometer.
        delta: the failure probability, in (0, 1).

    Returns:
        Three answers, of which none is above the next. The first needs mechanism and number of rounds to be fixed
        before the first result. The second is the smallest epsilon, to 0.1 % from above, whose filter admits the run:
        rounds may depend on results. The third is the ex-post bound of an odometer at the end of the run, where results
        may decide which round is last. An answer under a stronger condition also holds under a weaker one, so where
        that bound is the smaller one, it is given there too, under its own name.

    Raises:
        Unsupported: there is no bound of such a kind for the mechanism.

    Guarantee: each epsilon holds under the condition of its line; all three are upper bounds for a run that was fixed
        in advance.
    Source: theory 3, 4, 6.1 and 7.2.
    """
    _check.whole(1, rounds=rounds)
    run = mechanisms.Repeated(mechanism, rounds)
    best = tightest(run, delta=delta)
    gaussian_only = _of_gaussians(run, delta, best.epsilon)
    within, stopped = gaussian_only or (_within_a_filter(mechanism, run, delta, best.epsilon), _stopped(run, delta))
    within = min(within, ("odometers.Capped", stopped[1]), key=itemgetter(1))  # a filter, which admits the run
    fixed = min((best.notion, best.epsilon), within, key=itemgetter(1))
    return (
        Answer("fixed", *fixed, "noise, sample rate and steps were fixed before the run"),
        Answer("filter", *within, "a filter with this budget was charged before each step"),
        Answer("ex-post", *stopped, "an odometer counted each step, and results decided when to stop"),
    )


_Bound = tuple[str, float]  # the name of a notion, a filter or an odometer, and its epsilon


def _of_gaussians(run: mechanisms.Mechanism, delta: float, epsilon: float) -> tuple[_Bound, _Bound] | None:
    """Of Gaussian noise both are formulas: being adaptive costs nothing, and a line is an order fixed in advance."""
    try:
        mu = gaussian.of(run, dominated=False).mu
    except Unsupported:
        return None
    stopped = epsilon
    if 0 < mu < inf:
        order = 1 + sqrt(-2 * log(delta)) / mu
        stopped = float(renyi.epsilon([float(renyi.cost(run, order))], [order], delta=delta))
    return ("filters.Gaussian", epsilon), ("odometers.Line, planned", stopped)


def _within_a_filter(mechanism: mechanisms.Mechanism, run: mechanisms.Mechanism, delta: float, near: float) -> _Bound:
    near = near if near < inf else 1.0

    def admits(epsilon: float) -> bool:
        from almoner import filters  # here: Gaussian noise needs none of them

        return filters.Renyi(epsilon=epsilon, delta=delta, plan=mechanism).admits(run)

    try:
        planned = partial(plan_fits, mechanism, run, delta)
        return "filters.Planned", _search.least(planned, near=near, tolerance=TOLERANCE)
    except Unsupported:
        pass  # no loss distribution is known, or there are too many rounds
    return "filters.Renyi, planned", _search.least(admits, near=near, tolerance=TOLERANCE)


def plan_fits(plan: mechanisms.Mechanism, run: mechanisms.Mechanism, delta: float, epsilon: float) -> bool:
    """True if ``filters.Planned`` admits a run; Unsupported where it takes none of so many rounds, or of this kind."""
    from almoner import filters
    from almoner.curves import planned

    if mechanisms.rounds(run) > planned.MOST_ROUNDS:
        raise Unsupported(f"a plan has at most {planned.MOST_ROUNDS} rounds")
    try:
        return filters.Planned(plan, epsilon=epsilon, delta=delta).admits(run)
    except ArgumentError:  # the plan does not fit once
        return False


def _stopped(run: mechanisms.Mechanism, delta: float) -> _Bound:
    from almoner import odometers

    odometer = odometers.Renyi(delta=delta, plan=run)
    odometer.charge(run)
    return "odometers.Renyi, planned", odometer.ex_post_epsilon()
