"""What a training run will release, and the budget of every account: decided before anybody's data are touched.

Names and symbols
    parameter   of the budget in the notion's own terms: mu, or rho
    total       what adds up: mu squared, or rho
    z           noise multiplier: the noise on a sum is z times the clip
"""

from collections.abc import Callable
from dataclasses import dataclass
from math import sqrt
from typing import Any

from bursar import _check, _units, calibrate, filters
from bursar.curves import gaussian, zcdp
from bursar.errors import ArgumentError
from bursar.mechanisms import Gaussian, Mechanism, Repeated

__all__ = ["NOTIONS", "Notion", "Plan", "plan"]

COUNT_SHARE = 0.01
"""The share of everybody's budget that a noisy count of the people costs, where their number is not public."""

TINY = 1e-12


@dataclass(frozen=True, slots=True)
class Notion:
    """A notion of privacy in which Gaussian steps add up. Every field is public."""

    name: str
    measure: str
    theorem: str
    budget: Callable[..., Any]
    """A fresh filter, from epsilon= and delta= or from a parameter."""
    parameter: Callable[[float], float]
    """The parameter of a total."""
    total: Callable[[float], float]
    """The total of a parameter."""
    cost: Callable[[Mechanism], Any]
    largest: Callable[[float, float], float]
    """The largest parameter that implies (epsilon, delta)."""
    epsilon: Callable[[float, float], float]
    """The epsilon of a parameter, at delta."""


NOTIONS = {
    "gaussian": Notion(
        name="Gaussian differential privacy, converted exactly",
        measure="mu squared",
        theorem=(
            "every step is a Gaussian mechanism, and squares of mu add up under full adaptivity (Koskela, Tobaben & "
            "Honkela 2023, Theorems 11 and 12; Smith & Thakurta 2022), (epsilon, delta) by their Corollary C.2; "
            "theory 4.3, 5.1 and 3.3"
        ),
        budget=lambda mu=None, **target: filters.Gaussian(mu=mu, **target),
        parameter=sqrt,
        total=lambda mu: mu * mu,
        cost=gaussian.cost,
        largest=lambda epsilon, delta: gaussian.mu(epsilon=epsilon, delta=delta),
        epsilon=lambda mu, delta: float(gaussian.epsilon(mu, delta=delta)),
    ),
    "renyi": Notion(
        name="zCDP, a Rényi bound at all orders at once",
        measure="rho",
        theorem=(
            "Rényi costs add up under full adaptivity against a budget fixed in advance (Feldman & Zrnic 2021, "
            "Theorem 4.5 and Remark 4.4), (epsilon, delta) by Canonne, Kamath & Steinke 2020, Proposition 12; "
            "theory 4.2, 5.1 and 3.2"
        ),
        budget=lambda rho=None, **target: filters.Zcdp(rho=rho, **target),
        parameter=lambda total: total,
        total=lambda rho: rho,
        cost=zcdp.cost,
        largest=lambda epsilon, delta: zcdp.rho(epsilon=epsilon, delta=delta),
        epsilon=lambda rho, delta: float(zcdp.epsilon(rho, delta=delta)),
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

    def budget(self) -> Any:
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
        steps: public. How often somebody may contribute the whole clip.
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
        one = _units.up(notion.cost(Gaussian(noise_multiplier * max_grad_norm, max_grad_norm))) / _units.MEASURE
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
    reached = epsilon if epsilon is not None else notion.epsilon(parameter, delta)
    return Plan(notion, parameter, reached, delta, given, Gaussian(sigma, max_grad_norm), count)


def check_worst_case(planned: Plan, steps: int) -> None:
    """Raise BudgetExceeded where steps that everybody pays in full do not fit; nothing is spent by asking."""
    budget = planned.budget()
    if planned.count is not None:
        budget.charge(planned.count)
    budget.charge(Repeated(planned.step, steps))
