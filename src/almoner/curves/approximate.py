"""(epsilon, delta) itself: what a mechanism promises alone, and basic composition, in which both add up.

Names and symbols
    epsilon  ε    nats, >= 0
    delta    δ    failure probability, in [0, 1]

Source: Dwork & Roth (2014), Thm 3.16; fully adaptive: Rogers, Roth, Ullman & Vadhan (2016), section 3
"""

from dataclasses import dataclass
from fractions import Fraction
from math import expm1, inf

import numpy as np

from almoner import _check, mechanisms
from almoner._units import Units, as_float, exact, times, up
from almoner.curves import zcdp
from almoner.curves._grid import discrete
from almoner.errors import Unsupported

__all__ = ["Approximate", "cost", "of"]

Pair = tuple[Fraction | float, Fraction]


@dataclass(frozen=True, slots=True)
class Approximate:
    """The guarantee "(epsilon, delta)-DP". Every field is public."""

    epsilon: float
    delta: float

    def __post_init__(self) -> None:
        _check.within(0, inf, epsilon=self.epsilon)
        _check.within(0, 1, delta=self.delta)


def of(mechanism: mechanisms.Mechanism) -> Approximate:
    """The (epsilon, delta) of a mechanism, by basic composition of its parts.

    Guarantee: the mechanism is (epsilon, delta)-DP; both are rounded up.
    Source: theory 2.2 to 2.5; Dwork & Roth (2014), Thm 3.16.

    >>> of(mechanisms.Repeated(mechanisms.Laplace(scale=10.0), 3))
    Approximate(epsilon=0.30000000000000004, delta=0.0)
    """
    epsilon, delta = (float(np.nextafter(as_float(each), inf)) if each else 0.0 for each in cost(mechanism))
    return Approximate(epsilon, min(1.0, delta))


def cost(mechanism: mechanisms.Mechanism) -> Pair:
    """Price a mechanism: (epsilon, delta) that it adds to both totals, exactly.

    Guarantee: the mechanism is (epsilon, delta)-DP, whatever came before it.
    Source: theory 2.2 (Laplace), 2.3 (pure), 2.4 (approximate), 2.5 (bounded range).
    """
    epsilon: Fraction | float = Fraction(0)
    delta = Fraction(0)
    for leaf, count in mechanisms.leaves(mechanism).items():
        one, failure = _cost(leaf)
        epsilon, delta = epsilon + times(count, one), delta + count * failure
    return epsilon, delta


def _cost(leaf: mechanisms.Mechanism) -> Pair:
    match leaf:
        case mechanisms.Laplace():
            return exact(leaf.sensitivity) / exact(leaf.scale), Fraction(0)
        case mechanisms.Pure() | mechanisms.RandomizedResponse():
            return _finite(leaf.epsilon), Fraction(0)
        case mechanisms.Exponential():
            return _finite(leaf.eta), Fraction(0)
        case mechanisms.Approximate():
            return _finite(leaf.epsilon), exact(leaf.delta)
        case mechanisms.Paired():
            return discrete.largest_loss(leaf), discrete.failure(leaf)
    raise Unsupported(
        f"{type(leaf).__name__} has no epsilon without a choice of delta; use filters.Renyi or `filters.Zcdp`"
    )


def _finite(epsilon: float) -> Fraction | float:
    return inf if epsilon == inf else exact(epsilon)


def square_and_drift(mechanism: mechanisms.Mechanism) -> tuple[Units, Units]:
    """Price one round for Rogers et al., in units, rounded up: its terms of V and of the drift of the loss.

    V is the sum of epsilon squared, the drift that of epsilon (e^epsilon - 1) / 2; of zCDP rounds 2 rho, and rho.

    Guarantee: given the past, the loss is at most the drift in the mean, and sub-Gaussian around it with variance V.
    Source: theory 6.7; Rogers et al. (2016), https://arxiv.org/abs/1605.08294; Hoeffding's lemma for pure mechanisms,
        the definition for zCDP.
    """
    try:
        epsilon, _ = cost(mechanism)
    except Unsupported:
        rho = zcdp.cost(mechanism)
        return up(2 * rho), up(rho)
    if epsilon == inf:
        return inf, inf
    value = float(epsilon) * (1 + 1e-15)
    return up(exact(epsilon) ** 2), up(value * expm1(value) / 2 * (1 + 1e-15)) if value < 700 else inf
