"""Lécuyer's odometer: for every order a row of Rényi filters that double in size.

Names and symbols
    A       the orders; lam = alpha - 1
    f       number of the filter that still holds the total, from 1

Source: theory 6.4; Lécuyer (2021), https://arxiv.org/abs/2103.01379, Theorem 2, equation 5 and section 4.5
"""

from dataclasses import dataclass
from math import log

import numpy as np

from almoner import _check, mechanisms
from almoner._arrays import Array
from almoner._notions import Boundary, Totals
from almoner._units import up
from almoner.curves import renyi
from almoner.errors import ArgumentError
from almoner.odometers import _roots
from almoner.odometers._odometer import Odometer

__all__ = ["Lecuyer"]

_ORDERS = (*(1 + j / 4 for j in range(1, 37)), 16.0, 32.0)


@dataclass(frozen=True, kw_only=True)
class DoublingFilters(Boundary):
    """For each order a row of Rényi filters. Costs: the Rényi cost at each order."""

    orders: tuple[float, ...]
    first: float

    @property
    def width(self) -> int:
        return len(self.orders)

    def costs(self, leaf: mechanisms.Mechanism) -> Totals:
        lam = np.asarray(self.orders, np.float64) - 1
        return tuple(up(float(value)) for value in renyi.values(leaf, 1 + lam))

    def bound(self, costs: Array, /, *, delta: float, **_: object) -> Array:
        totals, lam = np.asarray(costs), np.asarray(self.orders, np.float64) - 1
        size = self.first * (log(2 * lam.size) - log(self.delta)) / lam  # fixed with the odometer's own delta
        with np.errstate(divide="ignore"):
            filters = np.maximum(np.ceil(np.log2(totals / size)), 0.0)  # doublings
        filters = filters + (totals > np.exp2(filters) * size)  # where the logarithm was rounded down
        bounds = np.exp2(filters) * size + (log(2 * lam.size) - log(delta) + 2 * np.log1p(filters)) / lam
        return _roots.raised(np.min(np.where(bounds >= 0, bounds, np.inf), axis=-1))


class Lecuyer(Odometer):
    """For any mechanism with a Rényi curve. For comparison: ``odometers.Renyi`` is smaller everywhere.

    Promises the same as ``Mixture``: ``epsilon()`` pathwise, ``ex_post_epsilon()`` the same number.

    Args:
        delta: failure probability, in (0, 1).
        orders: Rényi orders, each > 1; by default those of the paper's section 4.5.
        first: size of the first filter as a share of log(2 |A| / delta) / lam: 1 in the paper, a quarter in the code
            that came with it.
        sum_delta: as of ``odometers.Renyi``.

    >>> odometer = Lecuyer(delta=1e-5)
    >>> odometer.charge(mechanisms.Repeated(mechanisms.Gaussian(sigma=20.0), 400))
    >>> round(odometer.epsilon(), 3)
    6.338

    Guarantee: the pathwise promise of ``Mixture``.
    Source: theory 6.4; Lécuyer (2021), Theorem 2.
    """

    def __init__(
        self, *, delta: float, orders: tuple[float, ...] = _ORDERS, first: float = 1.0, sum_delta: float | None = None
    ) -> None:
        for order in orders:
            _check.between(1, np.inf, order=order)
        if not orders:
            raise ArgumentError("orders must not be empty")
        _check.positive(first=first)
        notion = DoublingFilters(delta=delta, sum_delta=sum_delta, orders=tuple(map(float, orders)), first=first)
        super().__init__(notion, delta=delta, sum_delta=sum_delta, orders=list(orders), first=first)
