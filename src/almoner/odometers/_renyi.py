"""Bound the loss by a mixture over Rényi orders that is fixed before the first query.

Names and symbols
    alpha    α    Rényi order, > 1; lam = alpha - 1
    weights  w    one for each order, > 0, sum 1: how much of the bet goes to which order
    S             totals at the orders, nats
    L             the realised privacy loss

M = sum_a w_a e^(lam_a (L - S_a)) is a non-negative supermartingale that starts at 1: each term is one, because a
round's Rényi cost bounds the conditional expectation of e^(lam dL). Both boundaries are read off it.

Source: theory 6.3; docs/proofs/odometers.md
"""

from dataclasses import dataclass
from itertools import pairwise
from math import inf, log

import numpy as np
from numpy.typing import NDArray

from almoner import _check, mechanisms
from almoner._arrays import NUMPY, Array, Library
from almoner._notions import STEPS, Boundary, Totals, as_floats, certain, default_weights
from almoner._units import up
from almoner.curves import renyi
from almoner.errors import ArgumentError
from almoner.odometers import _roots
from almoner.odometers._odometer import Odometer

_DEFAULT = tuple(float(1 + lam) for lam in np.geomspace(0.05, 500.0, 41))
_WHOLE = 19.0  # whole orders are the quickest to compute: of larger lam only those are looked at
_SEARCH = np.array([lam if lam < _WHOLE else round(lam) for lam in np.geomspace(1e-3, 1e5, 41)])
_FOCUS = 0.8  # share of the weight at the order that the plan needs


@dataclass(frozen=True, kw_only=True)
class Orders(Boundary):
    """A mixture over orders. Costs: the Rényi cost at each order, and the most that the loss can ever be."""

    orders: tuple[float, ...]
    weights: tuple[float, ...]

    @property
    def width(self) -> int:
        return len(self.orders) + 1

    def costs(self, leaf: mechanisms.Mechanism) -> Totals:
        return (*(up(float(value)) for value in renyi.values(leaf, self.orders)), up(certain(leaf)))

    def bound(
        self, costs: Array, /, *, delta: float, ex_post: bool = False, steps: int = STEPS, xp: Library = NUMPY
    ) -> Array:
        """Either bound at costs (..., m) of the orders, or (..., m + 1) with the most that the loss can ever be."""
        curve, most = costs[..., : len(self.orders)], costs[..., len(self.orders) :]
        lam = xp.asarray(np.asarray(self.orders) - 1, device=costs.device)
        exponent = xp.asarray(np.log(self.weights), device=costs.device) + log(delta) - lam * curve
        solve = _roots.exponentials_ex_post if ex_post else _roots.exponentials
        bound = solve(exponent, lam, steps=steps, xp=xp)
        return xp.minimum(bound, most[..., 0]) if most.shape[-1] else bound

    @property
    def person_columns(self) -> int:
        return len(self.orders)


class Renyi(Odometer):
    """For any mechanism with a Rényi curve; the default.

    Promises, for every adversary who chooses mechanisms, their noise and the moment to stop from earlier results:

    - ``epsilon()``: with probability at least 1 - delta, the realised loss is at no time above the bound of its time.
    - ``ex_post_epsilon()``: for every stopping time T and event E, P(E) <= E_Q[e^(bound at T) 1_E] + delta. So "stop
      before it exceeds epsilon" is (epsilon, delta)-DP, for all epsilon at once.

    Does not promise: that "the run is (bound, delta)-DP" when the bound is a number that came out of the run; nor
    anything for orders, weights or a plan that were chosen after seeing a result.

    Args:
        delta: failure probability, in (0, 1).
        orders: Rényi orders, each > 1; by default 41 geometric ones from 1.05 to 501.
        weights: one for each order, > 0; they are divided by their sum. By default equal.
        plan: what will probably be run, a mechanism, or a number: the sum of mu squared. Most of the weight then goes
            to the order that it needs. The promises hold whatever happens; near the plan the bound is smaller.
        sum_delta: the part of delta kept for rounds with a delta of their own; by default half if the first mechanism
            charged may fail, otherwise a thousandth. Once their sum is above it, the bounds are infinite.

    Mechanisms of pure epsilon-DP are never above the plain sum of their epsilons.

    >>> odometer = Renyi(delta=1e-5)
    >>> for _ in range(400):
    ...     odometer.charge(mechanisms.Gaussian(sigma=20.0))
    >>> round(odometer.epsilon(), 2), round(odometer.ex_post_epsilon(), 2)
    (5.88, 5.34)

    Guarantee: both promises above.
    Source: theory 6.1, 6.3.
    """

    def __init__(
        self,
        *,
        delta: float,
        orders: tuple[float, ...] | None = None,
        weights: tuple[float, ...] | None = None,
        plan: mechanisms.Mechanism | float | None = None,
        sum_delta: float | None = None,
    ) -> None:
        _check.between(0, 1, delta=delta)
        if plan is not None:
            if orders is not None or weights is not None:
                raise ArgumentError("plan and orders or weights exclude each other: the plan chooses them")
            orders, weights = around_plan(plan, delta)
        grid = _orders(orders)
        notion = Orders(delta=delta, sum_delta=sum_delta, orders=grid, weights=_weights(weights, len(grid)))
        given = {name: None if x is None else list(x) for name, x in (("orders", orders), ("weights", weights))}
        super().__init__(notion, delta=delta, sum_delta=sum_delta, **given)
        self._mixture = notion

    @property
    def orders(self) -> tuple[float, ...]:
        """The orders. Public."""
        return self._mixture.orders

    @property
    def weights(self) -> tuple[float, ...]:
        """Their weights, which sum to one. Public."""
        return self._mixture.weights

    @property
    def totals(self) -> tuple[float, ...]:
        """The totals at the orders, nats, rounded up; inf at orders that are lost. Public."""
        return tuple(map(float, as_floats(self._totals[: len(self.orders)])))


def _orders(orders: tuple[float, ...] | None) -> tuple[float, ...]:
    if orders is None:
        return _DEFAULT
    grid = tuple(float(order) for order in orders)
    _check.each(_check.between, 1, inf, order=grid)
    if not grid or any(a >= b for a, b in pairwise(grid)):
        raise ArgumentError(f"orders={orders!r} must increase strictly and not be empty")
    return grid


def _weights(weights: tuple[float, ...] | None, count: int) -> tuple[float, ...]:
    if weights is None:
        weights = (1.0,) * count
    if len(weights) != count:
        raise ArgumentError(f"weights={weights!r} must be as many as orders, {count}")
    _check.each(_check.positive, weight=weights)
    total = sum(weights) * (1 + 1e-14)  # so that they sum to one at most, rounding or not
    return tuple(float(weight / total) for weight in weights)


def around_plan(plan: mechanisms.Mechanism | float, delta: float) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Orders and weights for a plan: most at the order that is best for it, the rest falling off on both sides."""
    if not isinstance(plan, mechanisms.Mechanism):
        _check.positive(plan=plan)

    def best_of(lam: NDArray[np.float64]) -> int:
        curve = renyi.values(plan, 1 + lam) if isinstance(plan, mechanisms.Mechanism) else (1 + lam) * (plan / 2)
        return int(np.argmin(curve + np.log1p(-1 / (1 + lam)) - np.log((1 + lam) * delta) / lam))

    place = best_of(_SEARCH)
    around = np.geomspace(_SEARCH[max(place - 1, 0)], _SEARCH[min(place + 1, len(_SEARCH) - 1)], 15)
    near = np.where(around > _WHOLE, np.round(around), around)
    orders, weights = default_weights(float(near[best_of(near)]), share=_FOCUS)
    return tuple(map(float, orders)), tuple(map(float, weights))
