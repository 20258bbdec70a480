"""Budgets that compare sums with limits: Gaussian, zCDP, Rényi orders, and (epsilon, delta) itself.

Names and symbols
    limit    the units that a total may reach, FINE of them in one of the measure
    alpha    α    Rényi order
"""

from dataclasses import dataclass
from functools import cached_property
from math import inf, nextafter, sqrt
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from bursar import mechanisms
from bursar._units import FINE, to_float, up
from bursar.curves import approximate, gaussian, renyi, zcdp
from bursar.notions._notion import Additive, Scalar, Totals, no_failures

__all__ = ["Basic", "Gaussian", "RenyiCurve", "RenyiOrder", "Zcdp"]


@dataclass(frozen=True, kw_only=True)
class Gaussian(Scalar):
    """Gaussian differential privacy: the total is mu squared, and exact.

    Guarantee: totals within the limit are mu-GDP with mu squared equal to the limit.
    Source: theory 4.3.
    """

    measure: ClassVar[str] = "mu squared"
    theorem: ClassVar[str] = "theory 4.3; Koskela, Tobaben & Honkela (2023), Thm 11; Smith & Thakurta (2022)"

    def price_of_round(self, leaf: mechanisms.Mechanism) -> Totals:
        return (up(gaussian.cost(leaf), per=FINE),)

    def total(self, limits: tuple[int, ...]) -> gaussian.Gaussian:
        return gaussian.Gaussian(nextafter(sqrt(to_float(limits[0], per=FINE)), inf))


@dataclass(frozen=True, kw_only=True)
class Zcdp(Scalar):
    """zCDP: the total is rho.

    Guarantee: totals within the limit are rho-zCDP with rho equal to the limit.
    Source: theory 4.2 and 3.2.
    """

    measure: ClassVar[str] = "rho"
    theorem: ClassVar[str] = "theory 4.2 and 3.2; Feldman & Zrnic (2021), Remark 4.4"

    def price_of_round(self, leaf: mechanisms.Mechanism) -> Totals:
        no_failures(leaf, "Zcdp")
        return (up(zcdp.cost(leaf), per=FINE),)

    def total(self, limits: tuple[int, ...]) -> zcdp.Zcdp:
        return zcdp.Zcdp(to_float(limits[0], per=FINE))


@dataclass(frozen=True, kw_only=True)
class RenyiOrder(Scalar):
    """Rényi differential privacy at one order.

    Guarantee: totals within the limit are (alpha, rho)-RDP with rho equal to the limit.
    Source: theory 4.1.
    """

    alpha: float
    measure: ClassVar[str] = "Rényi divergence at the order"
    theorem: ClassVar[str] = "theory 4.1; Feldman & Zrnic (2021), Thm 4.3; Lécuyer (2021), Thm 1"

    def price_of_round(self, leaf: mechanisms.Mechanism) -> Totals:
        no_failures(leaf, "RenyiOrder")
        return (up(renyi.cost(leaf, self.alpha), per=FINE),)

    def total(self, limits: tuple[int, ...]) -> renyi.Renyi:
        return renyi.Renyi((self.alpha,), (to_float(limits[0], per=FINE),))


@dataclass(frozen=True, kw_only=True)
class RenyiCurve(Additive[NDArray[np.float64]]):
    """Rényi differential privacy at several orders, each with a limit.

    Guarantee: totals within the limits have at most this Rényi curve.
    Source: theory 4.2.
    """

    orders: tuple[float, ...]
    values: tuple[int, ...]
    measure: ClassVar[str] = "Rényi divergence at each order"
    theorem: ClassVar[str] = "theory 4.2; Feldman & Zrnic (2021), Thm 4.3 at each order"

    @property
    def limits(self) -> tuple[int, ...]:
        return self.values

    def spent(self, totals: Totals) -> NDArray[np.float64]:
        return np.array([to_float(total, per=FINE) for total in totals])

    def left(self, totals: Totals) -> NDArray[np.float64]:
        pairs = zip(self.limits, totals, strict=True)
        return np.array([to_float(most - total, per=FINE, down=True) for most, total in pairs])

    def price_of_round(self, leaf: mechanisms.Mechanism) -> Totals:
        no_failures(leaf, "RenyiCurve")
        return tuple([up(cost, per=FINE) for cost in renyi.costs(leaf, self.orders)])

    def total(self, limits: tuple[int, ...]) -> renyi.Renyi:
        return renyi.Renyi(self.orders, tuple([to_float(limit, per=FINE) for limit in limits]))


@dataclass(frozen=True, kw_only=True)
class Basic(Additive[tuple[float, float]]):
    """(epsilon, delta) itself, by basic composition: both add up.

    Guarantee: totals within the limits are (epsilon, delta)-DP.
    Source: theory 4.5.
    """

    limit: int
    failures: int = 0
    theorem: ClassVar[str] = "Rogers, Roth, Ullman & Vadhan (2016), section 3; theory 4.5"

    @cached_property
    def limits(self) -> tuple[int, ...]:
        return self.limit, self.failures

    def spent(self, totals: Totals) -> tuple[float, float]:
        return to_float(totals[0], per=FINE), to_float(totals[1], per=FINE)

    def left(self, totals: Totals) -> tuple[float, float]:
        epsilon, delta = (most - total for most, total in zip(self.limits, totals, strict=True))
        return to_float(epsilon, per=FINE, down=True), to_float(delta, per=FINE, down=True)

    def total(self, limits: tuple[int, ...]) -> approximate.Approximate:
        return approximate.Approximate(to_float(limits[0], per=FINE), to_float(limits[1], per=FINE))

    def price_of_round(self, leaf: mechanisms.Mechanism) -> Totals:
        epsilon, delta = approximate.cost(leaf)
        return up(epsilon, per=FINE), up(delta, per=FINE)
