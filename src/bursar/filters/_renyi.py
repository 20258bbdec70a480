"""The whole-curve filter: all orders at once."""

from collections.abc import Sequence
from fractions import Fraction
from functools import lru_cache
from math import floor, inf

import numpy as np
from numpy.typing import NDArray

from bursar import _check, mechanisms
from bursar._units import FAILURE, MEASURE, RANGE, Units, budget, to_float, up
from bursar.curves import approximate, order_mixture, renyi, zcdp
from bursar.errors import ArgumentError, Unsupported
from bursar.filters._account import WithFailures, refuse_failures

__all__ = ["Renyi"]


class Renyi(WithFailures):
    """Any mechanism: admit while a mixture over all orders, with weights fixed in advance, still allows it.

    "Go on while *some* order has budget left" is wrong: which order that is depends on the results, and an adversary
    reaches almost twice the delta. The mixture is right, and costs little: the default weights admit 92 to 100 % of
    what the best single order in hindsight would.

    Args (keyword-only, public): epsilon; delta; plan, the mechanism that will be charged most often, on whose best
    order the weights are centred (default: the best order for Gaussian noise; a plan matters for small sample rates,
    whose best orders are much lower); or orders and weights themselves (weights > 0; they are scaled to add up to 1).
    All are fixed before the first charge, and any mechanism may still be charged, whatever the plan. sum_delta, the
    part of delta for mechanisms that may fail (default: half if the first mechanism charged may fail, otherwise
    nothing; fixed from the first charge on). ``spent`` and ``left`` are (m + 1,) arrays in nats: at each order, and
    last the plain sum of the epsilons of pure mechanisms.

    Guarantee: the whole adaptive interaction is (epsilon, delta)-DP.
    Source: theory 4.4 (corrected); docs/proofs/whole-curve-filter.md.
    """

    def __init__(
        self,
        *,
        epsilon: float,
        delta: float,
        orders: Sequence[float] | None = None,
        weights: Sequence[float] | None = None,
        plan: mechanisms.Mechanism | None = None,
        sum_delta: float | None = None,
    ) -> None:
        _check.positive(epsilon=epsilon)
        _check.between(0, 1, delta=delta)
        if plan is not None:
            if orders is not None or weights is not None:
                raise ArgumentError("give either plan= or orders= and weights=")
            grid, shares = order_mixture.default_weights(_best_order(plan, epsilon, delta) - 1, share=0.9)
            orders, weights = tuple(map(float, grid)), tuple(map(float, shares))
        grid, shares = _chosen(epsilon, delta, orders, weights)
        self.orders: tuple[float, ...] = tuple(map(float, grid))
        self._lam, self._log_weights = grid - 1, np.log(shares)
        self._thresholds = lru_cache(maxsize=4)(self._thresholds_for)
        super().__init__(
            (0,) * (len(grid) + 2), epsilon=epsilon, delta=delta, orders=orders, weights=weights, sum_delta=sum_delta
        )

    @property
    def spent(self) -> NDArray[np.float64]:
        """(m + 1,) the Rényi totals at each order, then the sum of pure epsilons; nats, rounded up. Public."""
        return self._shown(self._spent)

    @property
    def left(self) -> NDArray[np.float64]:
        """(m + 1,) what is left at each order if that order alone decides, nats, rounded down. Public."""
        thresholds = self._thresholds(self._share())
        return np.array([to_float(t - s, down=True) for t, s in zip(thresholds, self._spent[:-1], strict=True)])

    def allowed_delta(self) -> float:
        """The delta, rounded up, that what was charged so far may use at epsilon: at most ``delta``. Public.

        Guarantee: if nothing more is charged whatever happens, the interaction is (epsilon, this)-DP.
        Source: theory 4.4.
        """
        pure = self._spent[-2] <= budget(self._parameters["epsilon"])
        return to_float(self._spent[-1], per=FAILURE) + (0.0 if pure else self._mixture(self._spent))

    def person_budget(self) -> tuple[int, ...]:
        """For accounts per person: the units at which each order alone decides."""
        return self._thresholds(Fraction(self._parameters["delta"]))[:-1]

    def person_price(self, leaf: mechanisms.Mechanism) -> tuple[Units, ...]:
        """For accounts per person: the units that one round adds at each order."""
        refuse_failures(leaf, renyi.failure(leaf), "an account per person")
        return self._price(leaf)[:-2]

    def person_mixture(self, totals: NDArray[np.int64]) -> NDArray[np.bool_]:
        """For accounts per person: whether totals (n, m), in units, still fit by the mixture of all orders.

        Totals of half of RANGE or more count as infinite.
        """
        curves = np.where(totals < RANGE // 2, totals / MEASURE * (1 + 1e-15), inf)
        delta = order_mixture.allowed_delta(curves, self._lam, self._log_weights, float(self._parameters["epsilon"]))
        verdict: NDArray[np.bool_] = delta <= self._parameters["delta"] * (1 - 1e-15)
        return verdict

    def _share(self) -> Fraction:
        return Fraction(self._parameters["delta"]) - self._set_aside(self._spent)

    def _shown(self, totals: tuple[Units, ...]) -> NDArray[np.float64]:
        return np.array([to_float(total) for total in totals[:-1]])

    def _holds(self, totals: tuple[Units, ...], delta: Fraction) -> bool:
        """The quick tests first: one order alone (theory 4.4, sufficient), or pure composition, decides."""
        if any(total <= most for total, most in zip(totals[:-1], self._thresholds(delta), strict=True)):
            return True
        return self._mixture(totals) <= float(delta) * (1 - 1e-15)

    def _mixture(self, totals: tuple[Units, ...]) -> float:
        curve = np.array([to_float(total) for total in totals[:-2]])
        return float(
            order_mixture.allowed_delta(curve, self._lam, self._log_weights, float(self._parameters["epsilon"]))
        )

    def _too_much(self, mechanism: mechanisms.Mechanism) -> str:
        delta = self._mixture(self._after(mechanism))
        return (
            f"at epsilon={self.epsilon:g} the losses would need delta={delta:.4g}, and have {float(self._share()):.4g}"
        )

    def _thresholds_for(self, delta: Fraction) -> tuple[int, ...]:
        """Units at which each order alone decides, given its weight; last, pure composition."""
        epsilon = self._parameters["epsilon"]
        alone = [
            renyi.budget(order, epsilon=epsilon, delta=float(delta) * np.exp(log_weight) * (1 - 1e-15))
            for order, log_weight in zip(self.orders, self._log_weights, strict=True)
        ]
        return (*(floor(Fraction(most) * MEASURE) for most in alone), budget(epsilon))

    def _price_of(self, mechanism: mechanisms.Mechanism) -> tuple[Units, ...]:
        composite = self._composite(mechanism)
        if composite:
            return composite
        curve = tuple(up(Fraction(value) if value < inf else inf) for value in renyi.values(mechanism, self.orders))
        return (*curve, up(_pure(mechanism)), up(renyi.failure(mechanism), per=FAILURE))


def _pure(mechanism: mechanisms.Mechanism) -> Fraction | float:
    try:
        return approximate.cost(mechanism)[0]
    except Unsupported:
        return inf


def _best_order(plan: mechanisms.Mechanism, epsilon: float, delta: float) -> float:
    """The order that alone admits the most rounds of a plan."""
    lam = np.geomspace(0.3, 3000, 80)
    orders = 1 + np.where(lam > 15, np.round(lam), lam)
    alone = np.array([renyi.budget(order, epsilon=epsilon, delta=delta) for order in orders])
    return float(orders[int(np.argmax(alone / renyi.values(plan, orders)))])


def _chosen(
    epsilon: float, delta: float, orders: Sequence[float] | None, weights: Sequence[float] | None
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    if (orders is None) != (weights is None):
        raise ArgumentError("give both orders= and weights=, or neither")
    if orders is None or weights is None:
        rho = zcdp.rho(epsilon=epsilon, delta=delta)
        return order_mixture.default_weights(zcdp.best_order(rho, delta=delta) - 1)
    grid, shares = np.asarray(orders, np.float64), np.asarray(weights, np.float64)
    if grid.ndim != 1 or grid.shape != shares.shape or not grid.size:
        raise ArgumentError(f"orders={orders!r} and weights={weights!r} must be equally long lists")
    if not np.all((grid > 1) & (grid < inf)) or not np.all((shares > 0) & (shares < inf)):
        raise ArgumentError(f"orders={orders!r} must be finite and > 1, weights={weights!r} finite and > 0")
    return grid, shares / shares.sum() * (1 - 1e-15)
