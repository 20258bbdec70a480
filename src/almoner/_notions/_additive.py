"""Budgets that compare sums with limits: Gaussian, zCDP, Rényi orders, and (epsilon, delta) itself.

Names and symbols
    limit    the units that a total may reach, FINE of them in one of the measure
    alpha    α    Rényi order
"""

from abc import abstractmethod
from dataclasses import dataclass
from functools import cached_property
from math import inf, nextafter, sqrt
from operator import le
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from almoner import mechanisms
from almoner._notions._notion import Budget, Measure, Notion, Totals, no_failures
from almoner._units import FINE, MEASURE, times, to_float, up
from almoner.curves import approximate, gaussian, renyi, tradeoff, zcdp
from almoner.errors import Unsupported

Total = gaussian.Gaussian | zcdp.Zcdp | renyi.Renyi | approximate.Approximate  # a promise, in a notion of ``curves``
_GRAINS = FINE // MEASURE  # fine units in one that accounts of people hold


def coarse(prices: Totals) -> Totals:
    """Prices in fine units as accounts of people hold them: rounded up."""
    return tuple([units if units == inf else -(-int(units) // _GRAINS) for units in prices])


def fine(units: Totals) -> tuple[Any, ...]:
    """Convert what accounts of people hold to fine units."""
    return tuple([each if each == inf else each * _GRAINS for each in units])


def in_units(notion: Notion, totals: Totals, mechanism: mechanisms.Mechanism, columns: int) -> Totals:
    """Totals in fine units once each round is charged as in accounts of people, which hold the first ``columns``."""
    for leaf, count in mechanisms.leaves(mechanism).items():
        price = notion.price(leaf)
        price = (*fine(coarse(price[:columns])), *price[columns:])
        totals = tuple([total + times(count, units) for total, units in zip(totals, price, strict=True)])
    return totals


class Additive(Budget[Measure]):
    """Budgets whose totals, in fine units, must each stay within a limit of their own."""

    @property
    @abstractmethod
    def limits(self) -> tuple[int, ...]:
        """The units that each total may reach."""

    @property
    def columns(self) -> int:
        return len(self.limits)

    def holds(self, totals: Totals) -> bool:
        return all(map(le, totals, self.limits))

    def person_price(self, leaf: mechanisms.Mechanism, count: int = 1) -> Totals:
        return coarse(tuple([times(count, units) for units in self.price(leaf)]))

    def after_in_units(self, totals: Totals, mechanism: mechanisms.Mechanism) -> Totals:
        return in_units(self, totals, mechanism, self.columns)

    def person_limits(self) -> tuple[int, ...]:
        return tuple([units // _GRAINS for units in self.limits])

    def person_over(self, leaf: mechanisms.Mechanism, count: int) -> int:
        price = times(count, self.price(leaf)[0])
        return 0 if price == inf else -int(price) % _GRAINS

    def person_spare(self) -> int:
        return self.limits[0] % _GRAINS

    def person_curve(self, opening: tuple[int, ...]) -> tradeoff.Curve:
        return super().person_curve(opening) if any(opening) else self.curve()

    def _beside(self, opening: tuple[int, ...]) -> tuple[int, ...]:
        return fine(super()._beside(opening))

    @abstractmethod
    def total(self, limits: tuple[int, ...]) -> Total:
        """The promise of totals within these limits, in fine units, as a value of ``curves``."""

    def _converted(self, delta: float) -> float:
        return self._left_converted(self.limits, delta)

    def _curve(self) -> tradeoff.Curve:
        return self._left_curve(self.limits)

    def _left_converted(self, left: tuple[int, ...], delta: float) -> float:
        total = self.total(left)
        if isinstance(total, approximate.Approximate):
            return total.epsilon if delta >= total.delta else inf
        return total.epsilon(delta=delta)

    def _left_curve(self, left: tuple[int, ...]) -> tradeoff.Curve:
        return tradeoff.of(self.total(left))


@dataclass(frozen=True, kw_only=True)
class Scalar(Additive[float]):
    """Budgets with one total."""

    limit: int

    @cached_property
    def limits(self) -> tuple[int, ...]:
        return (self.limit,)

    def holds(self, totals: Totals) -> bool:
        return totals[0] <= self.limit

    def spent(self, totals: Totals) -> float:
        return to_float(totals[0], per=FINE)

    def left(self, totals: Totals) -> float:
        return to_float(self.limit - totals[0], per=FINE, down=True)


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
    person_powers: ClassVar[dict[type[mechanisms.Mechanism], int]] = {**Notion.person_powers, mechanisms.Laplace: 2}
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
    person_powers: ClassVar[dict[type[mechanisms.Mechanism], int]] = {mechanisms.Laplace: 1}
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

    def person_price(self, leaf: mechanisms.Mechanism, count: int = 1) -> Totals:
        no_failures(leaf, "Basic for accounts of people")
        return super().person_price(leaf, count)[:1]

    def person_limits(self) -> tuple[int, ...]:
        if self.failures:
            why = "accounts of people with a filters.Basic hold epsilons alone"
            cure = f"write filters.Basic(epsilon={self.epsilon!r}), with delta=0"
            raise Unsupported(f"delta={self.delta!r}: {why}; {cure}")
        return super().person_limits()[:1]

    def after_in_units(self, totals: Totals, mechanism: mechanisms.Mechanism) -> Totals:
        return in_units(self, totals, mechanism, 1)

    def _beside(self, opening: tuple[int, ...]) -> tuple[int, ...]:
        return (*super()._beside(opening), 0)
