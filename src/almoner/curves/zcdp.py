"""zCDP: one number that adds up.

Names and symbols
    rho    ρ    zCDP parameter, nats, >= 0
    delta  δ    failure probability, in (0, 1)
    alpha  α    Rényi order, > 1; lam = alpha - 1

Source: Bun & Steinke (2016), https://arxiv.org/abs/1605.02065
"""

from dataclasses import dataclass
from fractions import Fraction
from math import inf, log, log1p, sqrt

import numpy as np
from numpy.typing import ArrayLike, NDArray

from almoner import _check, mechanisms
from almoner._search import edge, last_true
from almoner._units import as_float, exact, times
from almoner.curves._grid import discrete
from almoner.errors import Unsupported

__all__ = ["Zcdp", "best_order", "cost", "delta", "epsilon", "mironov", "of", "rho"]

_GOLDEN = (sqrt(5) - 1) / 2
_GUARD = 2e-15  # relative, on the sum of the magnitudes of the terms added up: over ten times their rounding


@dataclass(frozen=True, slots=True)
class Zcdp:
    """The guarantee "rho-zCDP". Every field is public.

    >>> round((Zcdp(0.02) + Zcdp(0.03)).epsilon(delta=1e-5), 3)
    1.308
    """

    rho: float

    def __post_init__(self) -> None:
        _check.within(0, inf, rho=self.rho)

    def __add__(self, other: "Zcdp") -> "Zcdp":
        total = self.rho + other.rho
        return Zcdp(float(np.nextafter(total, inf)) if self.rho and other.rho else total)

    def epsilon(self, *, delta: float) -> float:
        """An epsilon that holds at delta, rounded up; inf when rho is inf.

        Guarantee: every rho-zCDP mechanism is (epsilon, delta)-DP.
        Source: theory 3.2; Canonne, Kamath & Steinke (2020), Prop. 12.
        """
        return float(epsilon(self.rho, delta=delta))

    def delta(self, *, epsilon: float) -> float:
        """A delta that holds at epsilon, rounded up.

        Guarantee: every rho-zCDP mechanism is (epsilon, delta)-DP.
        Source: theory 3.2; Canonne, Kamath & Steinke (2020), Prop. 12.
        """
        return float(delta(self.rho, epsilon=epsilon))


def of(mechanism: mechanisms.Mechanism) -> Zcdp:
    """The zCDP guarantee of a mechanism.

    Guarantee: the mechanism is rho-zCDP, at most; rho is rounded up.
    Source: theory 2.1, 2.3, 2.5, 2.7.

    >>> of(mechanisms.Repeated(mechanisms.Gaussian(sigma=10.0), 4))
    Zcdp(rho=0.020000000000000004)
    """
    total = cost(mechanism)
    return Zcdp(float(np.nextafter(as_float(total), inf)) if total else 0.0)


def cost(mechanism: mechanisms.Mechanism) -> Fraction | float:
    """Price a mechanism: rho that it adds to a zCDP total, exactly (inf where it has no finite rho).

    Guarantee: the mechanism is rho-zCDP, whatever came before it.
    Source: theory 2.1 (Gaussian), 2.3 (pure DP), 2.5 (bounded range), 2.7 (discrete Gaussian).
    """
    return sum((times(count, _cost(leaf)) for leaf, count in mechanisms.leaves(mechanism).items()), Fraction(0))


def _cost(leaf: mechanisms.Mechanism) -> Fraction | float:
    match leaf:
        case mechanisms.Gaussian() | mechanisms.DiscreteGaussian():
            return (exact(leaf.sensitivity) / exact(leaf.sigma)) ** 2 / 2
        case mechanisms.Laplace():
            return (exact(leaf.sensitivity) / exact(leaf.scale)) ** 2 / 2
        case mechanisms.Pure() | mechanisms.RandomizedResponse():
            return inf if leaf.epsilon == inf else exact(leaf.epsilon) ** 2 / 2
        case mechanisms.Exponential():
            return inf if leaf.eta == inf else exact(leaf.eta) ** 2 / 8
        case mechanisms.Zcdp():
            return inf if leaf.rho == inf else exact(leaf.rho)
        case mechanisms.Paired() if not discrete.failure(leaf):
            return discrete.rho(leaf)
    raise Unsupported(f"{type(leaf).__name__} has no useful zCDP cost; use a Rényi curve, as `filters.Renyi`")


def epsilon(rho: ArrayLike, /, *, delta: float) -> NDArray[np.float64]:
    """An epsilon (...), nats, >= 0, that holds at delta, in (0, 1), for each person's rho (...), private or public.

    It is rounded up. A rho that is negative or NaN counts as infinite.

    Guarantee: every rho-zCDP mechanism is (epsilon, delta)-DP.
    Source: theory 3.2; Canonne, Kamath & Steinke (2020), Prop. 12, minimised over all orders.
    """
    _check.between(0, 1, delta=delta)
    rhos = _check.floats(rho=rho)
    known = (rhos >= 0) & (rhos < inf)
    best = np.maximum(_best(np.where(known & (rhos > 0), rhos, 1.0), delta)[1], 0.0)
    return np.where(rhos == 0, 0.0, np.where(known, best, inf))


def best_order(rho: float, /, *, delta: float) -> float:
    """The Rényi order that converts a budget of rho best; a good centre for orders and weights."""
    _check.positive(rho=rho)
    _check.between(0, 1, delta=delta)
    return 1 + float(np.exp(_best(_check.floats(rho=rho), delta)[0]))


def _best(rho: NDArray[np.float64], delta: float) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Golden-section search for the best order, as log lam, and its bound: quasi-convex, and valid at every order."""
    middle = 0.5 * (log(max(-log(delta), 1e-3)) - np.log(rho))
    low, high = middle - 8.0, middle + 8.0
    inner, outer = high - _GOLDEN * (high - low), low + _GOLDEN * (high - low)
    f_inner, f_outer = _at_order(rho, inner, delta), _at_order(rho, outer, delta)
    for _ in range(50):
        left = f_inner < f_outer
        high, low = np.where(left, outer, high), np.where(left, low, inner)
        fresh = np.where(left, high - _GOLDEN * (high - low), low + _GOLDEN * (high - low))
        f_fresh = _at_order(rho, fresh, delta)
        inner, outer = np.where(left, fresh, outer), np.where(left, inner, fresh)
        f_inner, f_outer = np.where(left, f_fresh, f_outer), np.where(left, f_inner, f_fresh)
    return np.where(f_inner < f_outer, inner, outer), np.minimum(f_inner, f_outer)


def _at_order(rho: NDArray[np.float64], log_lam: NDArray[np.float64], delta: float) -> NDArray[np.float64]:
    lam = np.exp(log_lam)
    alpha = 1 + lam
    slope, shift, tail = alpha * rho, -np.log1p(1 / lam), -(np.log(alpha) + log(delta)) / lam  # shift: log(1 - 1/alpha)
    rounding = slope + np.abs(shift) + np.abs(tail) + alpha / lam  # the last: the logarithms of alpha and delta
    bound: NDArray[np.float64] = slope + shift + tail + _GUARD * rounding
    return bound


def delta(rho: ArrayLike, /, *, epsilon: float) -> NDArray[np.float64]:
    """A delta (...), in [0, 1], that holds at epsilon, nats, >= 0, for each person's rho (...), private or public.

    It is rounded up. A rho that is negative or NaN counts as infinite.

    Guarantee: every rho-zCDP mechanism is (epsilon, delta)-DP.
    Source: theory 3.2; Canonne, Kamath & Steinke (2020), Prop. 12.
    """
    _check.within(0, inf, epsilon=epsilon)
    rhos = _check.floats(rho=rho)
    known = (rhos >= 0) & (rhos < inf)
    safe = np.where(known & (rhos > 0), rhos, 1.0)
    if epsilon == inf:
        return np.where(known, 0.0, 1.0)
    low, high = np.full_like(safe, -20.0), np.full_like(safe, 45.0)  # logarithm of lam; the slope below increases in it
    for _ in range(80):
        middle = (low + high) / 2
        alpha = 1 + np.exp(middle)
        rising = (2 * alpha - 1) * safe - epsilon + np.log1p(-1 / alpha) > 0
        low, high = np.where(rising, low, middle), np.where(rising, middle, high)
    lam = np.exp(low)
    alpha = 1 + lam
    slope, shift = alpha * safe - epsilon, np.log1p(-1 / alpha)
    size = lam * (alpha * safe + epsilon + np.abs(shift)) + np.log(alpha)
    log_delta = lam * (slope + shift) - np.log(alpha) + _GUARD * size
    bound = np.exp(np.minimum(log_delta, 0.0)) * (1 + 1e-15) + 1e-320  # never 0, which would be a pure promise
    return np.where(rhos == 0, 0.0, np.where(known, np.minimum(bound, 1.0), 1.0))


def rho(*, epsilon: float, delta: float) -> float:
    """The largest rho that implies (epsilon, delta)-DP, rounded down; epsilon in nats, > 0, delta in (0, 1), public.

    Guarantee: every rho-zCDP mechanism is (epsilon, delta)-DP.
    Source: theory 3.2 and 4.7.

    >>> round(rho(epsilon=1.0, delta=1e-6), 6)
    0.024356
    """
    _check.positive(epsilon=epsilon)
    _check.between(0, 1, delta=delta)

    def fits(r: float) -> bool:
        return Zcdp(r).epsilon(delta=delta) <= epsilon

    about = _largest(epsilon, delta)
    for width in (1e-12, 1e-8, 1e-4):
        low, high = about * (1 - width), about * (1 + width)
        if 0 < low < high < inf and fits(low) and not fits(high):
            return edge(fits, low, high)
    return last_true(fits, start=epsilon)


def _largest(epsilon: float, delta: float) -> float:
    """The largest rho over the orders, solved for it: about ``rho``, rounded anyhow."""
    center, width, best = 0.0, 60.0, 0.0
    for _ in range(7):
        lam = np.exp(center + np.linspace(-width, width, 241))
        values = (epsilon + np.log1p(1 / lam) + np.log((1 + lam) * delta) / lam) / (1 + lam)
        place = int(np.argmax(values))
        best, center, width = float(values[place]), float(np.log(lam[place])), width / 60
    return best


def mironov(*, epsilon: float, delta: float) -> float:
    """The largest rho that implies (epsilon, delta)-DP by Mironov's conversion, smaller than ``rho``: closed form.

    Guarantee: every rho-zCDP mechanism is (epsilon, delta)-DP.
    Source: theory 4.7 and 3.1; Feldman & Zrnic (2021), Thm 4.7.
    """
    _check.positive(epsilon=epsilon)
    _check.between(0, 1, delta=delta)
    ell = -log(delta) if delta < 0.5 else -log1p(delta - 1)
    return (epsilon / (sqrt(ell + epsilon) + sqrt(ell))) ** 2 * (1 - 1e-14)
