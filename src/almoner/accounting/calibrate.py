"""Noise for a budget, and steps for a noise: the answer of the very filter that will be charged.

A budget is described by a fresh filter; nothing is charged to it. What is left of a used filter works as well.

>>> from almoner import filters
>>> budget = filters.Gaussian(epsilon=1.0, delta=1e-5)
>>> noise = sigma(budget, 100)
>>> round(noise, 4)
37.3063
>>> steps(budget, mechanisms.Gaussian(noise))
100
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache, partial
from math import exp, expm1, inf, log, log1p
from typing import Protocol

from almoner import _check, _search, filters, mechanisms
from almoner._search import first_true, last_whole
from almoner._units import as_float
from almoner.curves import gaussian
from almoner.curves._totals import tightest
from almoner.errors import ArgumentError, CalibrationFailed, Unsupported
from almoner.filters import Filter

__all__ = ["Calibration", "by_filter", "in_advance", "least", "most_rounds", "sigma", "steps"]

_MOST_STEPS = 2**40
_MOST_NOISE = 1e60  # that a mechanism may have
_FIXED_TOLERANCE, _FILTER_TOLERANCE = 1e-4, 1e-3  # relative: how finely noise is searched where questions take long
_FEW_PLACES = 2**16  # of the lattice while a search is far off
_Run = tuple[int | None, float | None, float, float]  # steps or noise multiplier, clip, sample rate
_FILTERS: tuple[Callable[..., Filter], ...] = (filters.Gaussian, filters.Zcdp, filters.Renyi, filters.Approximate)


class _Asked(Protocol):
    """Interface of a budget that can be asked whether a run fits."""

    def admits(self, mechanism: mechanisms.Mechanism, /) -> bool: ...


def sigma(budget: _Asked, steps: int, *, sensitivity: float = 1.0, sample_rate: float = 1.0) -> float:
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

    Guarantee: the budget admits that many steps with this noise. So does a person's account with that budget, where the
        price of a step is rounded up to units of 10^-15; but for sampled steps in ``Residue`` and ``Planned``.
    Source: the filter's own.
    """
    _check_budget(budget)
    _check.whole(1, steps=steps)
    _check.positive(sensitivity=sensitivity)

    def fits(sigma: float) -> bool:
        step = mechanisms.gaussian_step(min(sigma, _MOST_NOISE), sensitivity, sample_rate)
        run = mechanisms.Repeated(step, steps)
        return budget.admits(run, units=True) if isinstance(budget, Filter) else budget.admits(run)

    if sample_rate < 1 and isinstance(budget, filters.Residue | filters.Planned):
        return _by_steps(budget, steps, sensitivity, sample_rate)
    if not fits(min(_MOST_NOISE, sensitivity * 1e9 * as_float(steps))):
        why = "a step costs one unit of the account at least, and its noise is at most 1e60"
        raise CalibrationFailed(f"{budget!r} does not admit {steps} steps with any noise: {why}")
    return first_true(fits, start=sensitivity)


def _by_steps(budget: Filter, count: int, sensitivity: float, sample_rate: float) -> float:
    """Noise within a part in 5,000 of the least, where a question takes long: by the secant method for log steps."""
    epsilon, delta = float(budget.notion.epsilon or 1.0), float(budget.notion.delta or 0.5)
    square = gaussian.mu(epsilon=epsilon, delta=delta) ** 2
    start = -log(log1p(square / count / sample_rate**2)) / 2  # by the variance of the loss

    def surplus(log_sigma: float) -> float:
        step = mechanisms.gaussian_step(sensitivity * exp(log_sigma), sensitivity, sample_rate)
        return log(max(_most(budget, step), 0.5) / count)

    good, _ = _secant(surplus, start, aim=4e-5, near=min(1e-4, count * 1e-7), gap=2e-4)
    if good == inf:
        raise CalibrationFailed(f"{budget!r}: no noise was found that admits {count} steps")
    return sensitivity * exp(good)


def _secant(
    surplus: Callable[[float], float], start: float, *, aim: float, near: float, gap: float, slope: float = 2.0
) -> tuple[float, float]:
    """About the least place where a rising surplus is not negative, by the secant method; inf where none is found.

    The surplus was evaluated, and not negative, at the result, beside which its slope is returned, at first a guess.
    The search ends when it is at most ``near``, or when the place is known to within the gap.
    """
    place, good, bad, known = start, inf, -inf, dict[float, float]()
    for _ in range(60):
        value = known[place] = surplus(place)
        good, bad = (min(place, good), bad) if value >= 0 else (good, max(place, bad))
        if 0 <= value < near or good - bad < gap:
            break
        side = 1 if bad == -inf else -1  # of several places that are equally far off, the last ones tried
        nearest = sorted(known, key=lambda at: (abs(known[at]), side * at))[:2]
        if len(nearest) > 1:
            slope = (known[nearest[1]] - known[nearest[0]]) / (nearest[1] - nearest[0])
        place = nearest[0] + min(3.0, max(-3.0, (aim - known[nearest[0]]) / max(slope, 0.05)))
        if not bad < place < good:
            place = (good + bad) / 2 if good - bad < inf else nearest[0] + (0.5 if good == inf else -0.5)
    return good, slope


def _most(budget: Filter, step: mechanisms.Mechanism) -> int:
    try:
        return steps(budget, step)
    except CalibrationFailed:
        return _MOST_STEPS


def steps(budget: _Asked, mechanism: mechanisms.Mechanism) -> int:
    """Count the runs of a mechanism, one step, that fit into a budget, as of ``sigma``: the most that it admits.

    Raises:
        CalibrationFailed: 2**40 or more, as for a mechanism that costs nothing.

    Guarantee: the budget admits that many rounds.
    Source: the filter's own.
    """
    _check_budget(budget)
    return _most_rounds(budget.admits, partial(mechanisms.Repeated, mechanism), f"{mechanism!r} in {budget!r}")


def _most_rounds(
    admits: Callable[[mechanisms.Mechanism], bool], run: Callable[[int], mechanisms.Mechanism], what: str
) -> int:
    most = last_whole(lambda count: admits(run(count)), 0, _MOST_STEPS)
    if most == _MOST_STEPS:
        raise CalibrationFailed(f"more than {_MOST_STEPS - 1} rounds fit of {what}")
    return most


def most_rounds(run: Callable[[int], mechanisms.Mechanism], *, epsilon: float, delta: float) -> int:
    """Count the rounds of a part of a run that fit beside the rest, if all is fixed in advance.

    ``run`` makes the whole run with so many rounds of that part; epsilon and delta are of the whole, public.

    Raises:
        CalibrationFailed: the rest alone does not fit, or 2**40 rounds do.

    Guarantee: the run with so many rounds, or with none, fixed in advance, is (epsilon, delta)-DP.
    Source: theory 2.3, 3 and 7.2.
    """
    budget = _FixedInAdvance(epsilon=epsilon, delta=delta)
    most = _most_rounds(budget.admits, run, f"the unknown count within epsilon={epsilon!r} at delta={delta!r}")
    if not most and not budget.admits(run(0)):
        raise CalibrationFailed(f"the rest of the run alone costs more than epsilon={epsilon!r} at delta={delta!r}")
    return most


def least(
    run: Callable[[float], mechanisms.Mechanism],
    *,
    epsilon: float,
    delta: float,
    low: float = 1e-3,
    near: float = 1.0,
    high: float = 1e6,
) -> float:
    """The least number, such as a noise, with which a run that is fixed in advance fits; within 1e-4, from above.

    ``run`` makes the whole run with that number, and what it refuses does not fit; epsilon and delta are of the whole,
    public. The number is looked for between low and high, near a guess.

    Raises:
        CalibrationFailed: none up to ``high`` is enough.

    Guarantee: the run with this number, fixed in advance, is (epsilon, delta)-DP.
    Source: theory 2.3, 3 and 7.2.
    """
    budget = _FixedInAdvance(epsilon=epsilon, delta=delta)

    def fits(number: float) -> bool:
        try:
            made = run(number)
        except ArgumentError:
            return False
        return budget.admits(made)

    return _least(fits, "of the run", near=near, tolerance=_FIXED_TOLERANCE, low=low, high=high)


def _least(fits: Callable[[float], bool], what: str, *, high: float, **search: float) -> float:
    number = _search.least(fits, high=high, **search)
    if number == inf:
        raise CalibrationFailed(f"no number {what} up to {high:g} is enough")
    return number


@dataclass(frozen=True, slots=True)
class Calibration:
    """Noise and steps that fit into a budget, for one kind of filter or fixed in advance. Every field is public.

    Attributes:
        filter: the name of the filter's class; "fixed in advance" for a run without a filter.
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


class _FixedInAdvance:
    """Admits runs that are (epsilon, delta)-DP if their noise, rate and steps are fixed in advance."""

    def __init__(self, *, epsilon: float, delta: float) -> None:
        _check.positive(epsilon=epsilon)
        _check.between(0, 1, delta=delta)
        self.epsilon, self.delta = epsilon, delta

    def admits(self, run: mechanisms.Mechanism) -> bool:
        return tightest(run, delta=self.delta).epsilon <= self.epsilon

    def noise(self, count: int, clip: float, sample_rate: float) -> float:
        """The least noise, to the tolerance from above."""

        def run(place: float) -> mechanisms.Mechanism:
            return mechanisms.Repeated(mechanisms.gaussian_step(clip * exp(place), clip, sample_rate), count)

        start = min(max(-log(log1p(self._square() / count / sample_rate**2)) / 2, log(0.05)), log(1e5))
        noise = clip * exp(self._least(run, start, 2.0, aim=2e-5, near=4e-5, gap=_FIXED_TOLERANCE))
        if noise > 1e6 * clip:
            raise CalibrationFailed(f"{count} steps do not fit with any noise multiplier up to 1e6")
        return noise

    def _square(self) -> float:
        """The variance of the loss of a Gaussian run that just fits; a search begins with it."""
        return gaussian.mu(epsilon=min(self.epsilon, 1e6), delta=self.delta) ** 2

    def steps(self, noise: float, sample_rate: float) -> int:
        """The largest number of steps that fits, up to a part in a million; the clip is 1."""
        step = mechanisms.gaussian_step(noise, 1.0, sample_rate)
        if not self.admits(step):
            return 0

        def run(place: float) -> mechanisms.Mechanism:
            return mechanisms.Repeated(step, int(min(max(exp(-place), 1.0), _MOST_STEPS)))

        start = log(expm1(min(noise**-2, 500.0)) / self._square()) + 2 * log(sample_rate)
        start = min(max(start, -log(_MOST_STEPS)), 0.0)
        if start < -log(1e10) and self.admits(run(-log(_MOST_STEPS))):
            raise CalibrationFailed(f"more than {_MOST_STEPS - 1} rounds fit of {step!r}")
        few = int(exp(-self._least(run, start, 0.5, aim=5e-7, near=1e-6, gap=1e-6)))
        many = few + 1
        while few < 10**4 and self.admits(mechanisms.Repeated(step, many)):
            few, many = many, many + 1
        return few

    def _least(self, run: Callable[[float], mechanisms.Mechanism], start: float, slope: float, **to: float) -> float:
        """The least place whose run fits; the search begins where the run fits by rough losses."""

        def surplus(place: float, epsilon: Callable[[mechanisms.Mechanism], float]) -> float:
            return min(5.0, max(-5.0, log(self.epsilon / max(epsilon(run(place)), 1e-300))))

        def rough(made: mechanisms.Mechanism) -> float:
            return epsilon_at(mechanisms.leaves(made), delta=self.delta, places=_FEW_PLACES)

        from almoner.curves.losses import epsilon_at  # here: exact epsilons need none of it

        try:
            near, slope = _secant(partial(surplus, epsilon=rough), start, aim=0.02, near=0.05, gap=0.05, slope=slope)
        except Unsupported:
            near = inf
        exactly = partial(surplus, epsilon=lru_cache(lambda run: tightest(run, delta=self.delta).epsilon))
        return _secant(exactly, start if near == inf else near, **to, slope=slope)[0]


class _PlannedAs:
    """Admits what a fresh ``filters.Planned`` does whose plan is the step of which the run consists."""

    def __init__(self, *, epsilon: float, delta: float) -> None:
        self.epsilon, self.delta = epsilon, delta

    def admits(self, run: mechanisms.Mechanism) -> bool:
        step, _ = mechanisms.repeated(run)
        try:
            return filters.Planned(step, epsilon=self.epsilon, delta=self.delta).admits(run)
        except ArgumentError:  # the step does not fit once
            return False


def in_advance(
    *,
    epsilon: float,
    delta: float,
    steps: int | None = None,
    noise_multiplier: float | None = None,
    max_grad_norm: float = 1.0,
    sample_rate: float = 1.0,
) -> Calibration:
    """The least noise for a number of steps, or the steps for a noise, of a run that is fixed before it begins.

    Args: those of ``by_filter``. With sampling, noise is found to a relative 1e-4, from above.

    Guarantee: so many steps with this noise, if noise, rate and steps are fixed in advance, are (epsilon, delta)-DP.
    Source: theory 3.3 and 7.2.
    """
    budget = _FixedInAdvance(epsilon=epsilon, delta=delta)
    near = None if sample_rate == 1 else 1.0  # without sampling there is a formula
    asked = steps, noise_multiplier, max_grad_norm, sample_rate
    return _calibrated("fixed in advance", budget, asked, near, _FIXED_TOLERANCE)


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

    The plan of ``Planned`` is the step. For it and for ``Residue``, noise is found to a relative 1e-3, from above.

    Guarantee: each filter admits its number of steps with its noise.
    Source: the filters' own.
    """
    asked, fixed = (steps, noise_multiplier, max_grad_norm, sample_rate), _FixedInAdvance(epsilon=epsilon, delta=delta)
    quick = [kind(epsilon=epsilon, delta=delta) for kind in _FILTERS]
    rows = [_calibrated(type(budget).__name__, budget, asked) for budget in quick]
    near = _calibrated("", fixed, asked, 1.0, _FIXED_TOLERANCE).noise_multiplier or 1.0
    slow: tuple[_Asked, ...] = _PlannedAs(epsilon=epsilon, delta=delta), filters.Residue(epsilon=epsilon, delta=delta)
    rows += [_calibrated(name, budget, asked, near) for name, budget in zip(("Planned", "Residue"), slow, strict=True)]
    return tuple(rows)


def _calibrated(
    name: str, budget: _Asked, run: _Run, near: float | None = None, tolerance: float = _FILTER_TOLERANCE
) -> Calibration:
    """One row. Noise is searched to the last digit, or, near a guess of the noise multiplier, to a tolerance."""
    count, noise, clip, sample_rate = run
    _check.positive(max_grad_norm=clip)
    if (count is None) == (noise is None):
        raise ArgumentError("give either steps or noise_multiplier")
    _check.given(_check.noise, noise_multiplier=noise)
    try:
        if noise is None:
            least = _least_noise(budget, count or 0, sample_rate, near, tolerance, clip)
            return Calibration(name, least, least / clip, count, "")
        if isinstance(budget, _FixedInAdvance):
            most = budget.steps(noise, sample_rate)
        else:
            most = steps(budget, mechanisms.gaussian_step(noise, 1.0, sample_rate))
        return Calibration(name, noise * clip, noise, most, "")
    except (Unsupported, CalibrationFailed) as error:
        return Calibration(name, None if noise is None else noise * clip, noise, count, str(error))


def _least_noise(
    budget: _Asked, count: int, sample_rate: float, near: float | None, tolerance: float, clip: float
) -> float:
    if near is None:
        return sigma(budget, count, sensitivity=clip, sample_rate=sample_rate)
    _check.whole(1, steps=count)

    def fits(noise: float) -> bool:
        return budget.admits(mechanisms.Repeated(mechanisms.gaussian_step(noise, clip, sample_rate), count))

    if isinstance(budget, _FixedInAdvance):
        return budget.noise(count, clip, sample_rate)
    bounds = {"near": near * clip, "low": 1e-3 * clip, "high": 1e6 * clip}
    return _least(fits, f"for the noise of {count} steps", tolerance=tolerance, **bounds)


def _check_budget(budget: object) -> None:
    if not hasattr(budget, "admits"):
        raise ArgumentError(f"budget={budget!r} must be a filter, such as filters.Gaussian(epsilon=1.0, delta=1e-5)")
