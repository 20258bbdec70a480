"""What a training run will release, and the budget of every account: decided before anybody's data are touched.

Names and symbols
    parameter   of the budget in the notion's own terms: mu, or rho
    total       what adds up: mu squared, or rho
    z           noise multiplier: the noise on a sum is z times the clip
"""

from collections.abc import Callable
from dataclasses import dataclass
from math import sqrt

from bursar import _check, _units, calibrate, filters
from bursar.errors import ArgumentError
from bursar.mechanisms import Gaussian, Mechanism, Repeated

__all__ = ["NOTIONS", "Notion", "Plan", "plan"]

COUNT_SHARE = 0.01
"""The share of each person's budget that a noisy count of the people costs, where their number is not public."""

TINY = 1e-12


@dataclass(frozen=True, slots=True)
class Notion:
    """A notion of privacy in which Gaussian steps add up. Every field is public."""

    name: str
    theorem: str
    budget: Callable[..., filters.Gaussian | filters.Zcdp]
    """A fresh filter, from epsilon= and delta= or from a parameter."""
    parameter: Callable[[float], float]
    """The parameter of a total."""
    total: Callable[[float], float]
    """The total of a parameter."""

    @property
    def measure(self) -> str:
        """What adds up."""
        return self.budget(1.0).notion.measure

    def price(self, step: Mechanism) -> float:
        """What a step adds to a total, rounded up."""
        return self.budget(1.0).notion.price(step)[0] / _units.MEASURE

    def largest(self, epsilon: float, delta: float) -> float:
        """The largest parameter that implies (epsilon, delta)."""
        budget = self.budget(epsilon=epsilon, delta=delta)
        return budget.mu if isinstance(budget, filters.Gaussian) else budget.rho


NOTIONS = {
    "gaussian": Notion(
        name="Gaussian differential privacy, converted exactly",
        theorem=(
            "every step is a Gaussian mechanism, and squares of mu add up under full adaptivity (Koskela, Tobaben & "
            "Honkela 2023, Theorems 11 and 12; Smith & Thakurta 2022), (epsilon, delta) by their Corollary C.2; "
            "theory 4.3, 5.1 and 3.3"
        ),
        budget=lambda mu=None, **target: filters.Gaussian(mu=mu, **target),
        parameter=sqrt,
        total=lambda mu: mu * mu,
    ),
    "renyi": Notion(
        name="zCDP, a Rényi bound at all orders at once",
        theorem=(
            "Rényi costs add up under full adaptivity against a budget fixed in advance (Feldman & Zrnic 2021, "
            "Theorem 4.5 and Remark 4.4), (epsilon, delta) by Canonne, Kamath & Steinke 2020, Proposition 12; "
            "theory 4.2, 5.1 and 3.2"
        ),
        budget=lambda rho=None, **target: filters.Zcdp(rho=rho, **target),
        parameter=lambda total: total,
        total=lambda rho: rho,
    ),
}


@dataclass(frozen=True, slots=True)
class Plan:
    """What will be released at most, and what it may cost each person. Every field is public."""

    notion: Notion
    parameter: float
    epsilon: float
    delta: float
    given: bool
    """Whether epsilon was given, rather than the noise that it follows from."""
    step: Gaussian
    count: Gaussian | None
    """A noisy count of the people, where their number is not public."""

    def budget(self) -> filters.Gaussian | filters.Zcdp:
        """A fresh filter that holds the whole budget."""
        if self.given:
            return self.notion.budget(epsilon=self.epsilon, delta=self.delta)
        return self.notion.budget(self.parameter)

    @property
    def total(self) -> float:
        """What each person may spend, in the notion's measure."""
        return self.notion.total(self.parameter)


def plan(
    accounting: str,
    *,
    epsilon: float | None,
    delta: float,
    noise_multiplier: float | None,
    max_grad_norm: float,
    steps: int,
    counted: bool,
) -> Plan:
    """Noise for a budget, or the budget that a noise amounts to.

    Args:
        accounting: "gaussian" or "renyi".
        epsilon: public, nats; None: what `steps` steps at the noise multiplier cost.
        delta: public, in (0, 1).
        noise_multiplier: public; None: the smallest for which `steps` steps fit the budget.
        max_grad_norm: public. The clip.
        steps: public. How often a person may contribute the whole clip.
        counted: public. Whether a noisy count of the people comes first; it costs COUNT_SHARE of the budget.

    Guarantee: a count and `steps` steps together cost at most the budget, which implies (epsilon, delta)-DP; except
        where both epsilon and noise_multiplier are given: then the accounts refuse what does not fit.
    Source: theory 2.1, 3.2 and 3.3.
    """
    _check.one_of(list(NOTIONS), accounting=accounting)
    _check.between(0, 1, delta=delta)
    _check.positive(max_grad_norm=max_grad_norm)
    _check.whole(1, steps=steps)
    notion = NOTIONS[accounting]
    if noise_multiplier is not None:
        _check.positive(noise_multiplier=noise_multiplier)
    if epsilon is not None:
        _check.positive(epsilon=epsilon)
        parameter = notion.largest(epsilon, delta)
    elif noise_multiplier is not None:
        one = notion.price(Gaussian(noise_multiplier * max_grad_norm, max_grad_norm))
        share = 1 - COUNT_SHARE if counted else 1.0
        parameter = notion.parameter(one * steps / share * (1 + TINY)) * (1 + TINY)
    else:
        raise ArgumentError("epsilon=None needs a noise_multiplier: one of the two must be given")
    given = epsilon is not None
    planned = notion.budget(epsilon=epsilon, delta=delta) if given else notion.budget(parameter)
    count = None
    if counted:
        share = notion.parameter(notion.total(parameter) * COUNT_SHARE)
        count = Gaussian(calibrate.sigma(notion.budget(share), 1))
        planned.charge(count)
    if noise_multiplier is None:
        sigma = calibrate.sigma(planned, steps, sensitivity=max_grad_norm)
    else:
        sigma = noise_multiplier * max_grad_norm
    reached = epsilon if epsilon is not None else notion.budget(parameter).epsilon(delta=delta)
    return Plan(notion, parameter, reached, delta, given, Gaussian(sigma, max_grad_norm), count)


def check_worst_case(planned: Plan, steps: int) -> None:
    """Raise BudgetExceeded where steps that all people pay in full do not fit; nothing is spent by asking."""
    budget = planned.budget()
    if planned.count is not None:
        budget.charge(planned.count)
    budget.charge(Repeated(planned.step, steps))
