"""The releases of a training run and the budget of every account, decided before anybody's data are touched."""

from dataclasses import dataclass
from math import sqrt
from typing import Any, TypeAlias

from almoner import _check, filters
from almoner._units import FINE, to_float
from almoner.accounting import calibrate
from almoner.errors import ArgumentError
from almoner.mechanisms import Gaussian
from almoner.training._accounts.counting import SquareRoot
from almoner.training._card import Card
from almoner.training._run.samplings import Sampling
from almoner.training._run.settings import Settings

__all__ = ["COUNT_SHARE", "Plan", "plan", "rate_of"]

COUNT_SHARE = 0.01
"""The share of each person's budget that a noisy count of the people costs, where their number is not public; and the
share that all noisy counts of those who dropped out cost together."""

TINY = 1e-12

MOST_RATE, MOST_RATE_WITHOUT_INTERCEPT = 4.0, 16.0
"""Learning rates that the rule of :func:`rate_of` does not exceed, however little noise there is. A constant feature,
which all people share, makes longer steps swing from one side to the other."""

Budget: TypeAlias = filters.Gaussian | filters.Zcdp

BUDGETS: dict[str, type[Budget]] = {"gaussian": filters.Gaussian, "zcdp": filters.Zcdp}


@dataclass(frozen=True, slots=True)
class Plan:
    """The most that will be released, and its price for each person. Every field is public."""

    budget: Budget  # a fresh filter that holds the whole budget: what is left of it is mu squared, or rho
    delta: float
    step: Gaussian
    count: Gaussian | None  # a noisy count of the people, where their number is not public
    drops: SquareRoot | None = None  # noisy counts of the people who dropped out, where they decide when to stop
    why: str = ""  # why the budget is this filter, where it was recommended

    def card(self, sampling: Sampling, *, divisor: float, individual: bool = True, **training: Any) -> Card:
        """The promise about what was trained, and its price; ``training``: further fields of the card."""
        settings = Settings(
            budget=self.budget.fresh(),
            why=self.why,
            max_grad_norm=self.step.sensitivity,
            noise_multiplier=self.step.sigma / self.step.sensitivity,
            divisor=divisor,
            steps=None,
            individual=individual,
            sampling=sampling,
            seeded=training["reproducible"],
        )
        counted = None if self.count is None else self.count.sigma
        return settings.card(delta=self.delta, sigma=self.step.sigma, count_sigma=counted, **training)


def plan(
    accounting: str,
    *,
    epsilon: float | None,
    delta: float,
    noise_multiplier: float | None,
    max_grad_norm: float,
    steps: int,
    counted: bool,
    drop_counts: int = 0,
) -> Plan:
    """Noise for a budget, or the budget that a noise amounts to. All of it is public.

    The accounting is "gaussian", which is what ``filters.recommend`` names for Gaussian steps, or "zcdp". With epsilon
    None the budget is what `steps` steps at the noise multiplier cost; with that None it is the smallest for which they
    fit, each with the whole clip of a person. A noisy count of the people, and all counts of who dropped out together,
    where they are asked for, cost COUNT_SHARE of the budget.

    Guarantee: all counts and `steps` steps together cost at most the budget, which implies (epsilon, delta)-DP; except
        where both epsilon and noise_multiplier are given: then the accounts refuse what does not fit.
    Source: theory 2.1, 3.2 and 3.3.
    """
    why = ""
    _check.one_of(list(BUDGETS), accounting=accounting)
    _check.between(0, 1, delta=delta)
    _check.positive(max_grad_norm=max_grad_norm)
    _check.whole(1, steps=steps)
    if noise_multiplier is not None:
        _check.positive(noise_multiplier=noise_multiplier)
    if epsilon is not None:
        _check.positive(epsilon=epsilon)
        budget = BUDGETS[accounting](epsilon=epsilon, delta=delta)
        recommended = filters.recommend(epsilon=epsilon, delta=delta, plan=Gaussian(1.0))
        why = recommended.why if type(recommended.budget) is type(budget) else ""
    elif noise_multiplier is not None:
        (price,) = _with_total(accounting, 1.0).notion.price(Gaussian(noise_multiplier * max_grad_norm, max_grad_norm))
        share = 1 - COUNT_SHARE * (counted + (drop_counts > 0))
        budget = _with_total(accounting, to_float(price, per=FINE) * steps / share * (1 + TINY) ** 3)
    else:
        raise ArgumentError("epsilon=None needs a noise_multiplier: one of the two must be given")
    planned, count, drops = budget.fresh(), None, None
    for_counts = _with_total(accounting, budget.left * COUNT_SHARE)
    if counted:
        count = Gaussian(calibrate.sigma(for_counts, 1))
        planned.charge(count)
    if drop_counts:
        worth = SquareRoot(drop_counts, 1.0).mechanism.sensitivity
        drops = SquareRoot(drop_counts, calibrate.sigma(for_counts, 1, sensitivity=worth))
        planned.charge(drops.mechanism)
    if noise_multiplier is None:
        sigma = calibrate.sigma(planned, steps, sensitivity=max_grad_norm)
    else:
        sigma = noise_multiplier * max_grad_norm
    return Plan(budget, delta, Gaussian(sigma, max_grad_norm), count, drops, why)


def rate_of(
    given: float | None, step: Gaussian, steps: int, divisor: float, *, momentum: float = 0.0, intercept: bool = True
) -> float:
    """The learning rate, public: what is given, or one at which the noise of all steps adds up to 1 in each parameter.

    Noise of standard deviation sigma on a sum moves each parameter by ``rate * sigma / (divisor * (1 - momentum))`` in
    a step, and all steps together by the square root of their number times that. With less noise for each person (more
    people, a larger epsilon) the model may go further. That 1 suits people whose features have a norm of 1 to 10 was
    found by experiment: docs/experiments/learning-rates.md. Three digits are kept; at most 4, or 16 without intercept.
    """
    if given is not None:
        return given
    most = MOST_RATE if intercept else MOST_RATE_WITHOUT_INTERCEPT
    return min(most, float(f"{(1 - momentum) * divisor / (step.sigma * sqrt(steps)):.3g}"))


def _with_total(accounting: str, total: float) -> Budget:
    """A fresh filter with this total: mu squared, or rho."""
    return filters.Gaussian(mu=sqrt(total)) if accounting == "gaussian" else filters.Zcdp(rho=total)
