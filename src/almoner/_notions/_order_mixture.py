"""The Rényi totals at many orders at once, judged by a mixture with weights fixed in advance.

With totals S(a), lam = a - 1 and weights w, M(l) = sum_a w_a exp(lam_a (l - S(a))) has mean at most 1 along the
realised loss l, and

    G(S, u) = sup over l > u of (1 - e^(u - l)) / M(l)

bounds the delta that the totals still allow at epsilon = u. log((1 - e^-t) / M(u + t)) is concave in t, so the
supremum is where its derivative 1 / (e^t - 1) - (mean of lam) vanishes, and a tangent bounds it from above.

Source: theory 1.5 and 4.4 (corrected); docs/proofs/whole-curve-filter.md
"""

from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property, lru_cache
from math import floor, inf
from operator import le
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from almoner import mechanisms
from almoner._arrays import Array, Library, Mask, to_numpy
from almoner._notions._additive import coarse, in_units
from almoner._notions._boundary import MOST
from almoner._notions._notion import Totals, no_failures
from almoner._notions._with_failures import WithFailures
from almoner._units import FAILURE, FINE, MEASURE, budget, times, to_float, up
from almoner.curves import approximate, renyi
from almoner.errors import Unsupported

Floats = NDArray[np.float64]


def certain(leaf: mechanisms.Mechanism) -> Fraction | float:
    """The most that the loss of a round can be where it does not fail: epsilon for pure mechanisms, else infinite."""
    try:
        return approximate.cost(leaf)[0]
    except Unsupported:
        return inf


@dataclass(frozen=True, kw_only=True)
class OrderMixture(WithFailures[Floats]):
    """Any mechanism with a Rényi curve. Totals: one at each order, the sum of pure epsilons, and failures.

    Guarantee: totals that hold are (epsilon, delta)-DP.
    Source: theory 4.4 (corrected); docs/proofs/whole-curve-filter.md.
    """

    orders: tuple[float, ...]
    weights: tuple[float, ...]
    measure: ClassVar[str] = "Rényi divergence at each order"
    theorem: ClassVar[str] = "theory 4.4 (corrected); docs/proofs/whole-curve-filter.md"

    @property
    def columns(self) -> int:
        return len(self.orders) + 2

    def price_of_round(self, leaf: mechanisms.Mechanism) -> Totals:
        values = map(float, renyi.values(leaf, self.orders))
        curve = [up(Fraction(value) if value < inf else inf, per=FINE) for value in values]
        return (*curve, up(certain(leaf), per=FINE), up(renyi.failure(leaf), per=FAILURE))

    def holds_for(self, totals: Totals, delta: Fraction) -> bool:
        """The quick tests first: one order alone (theory 4.4, sufficient), or pure composition, decides."""
        if any(map(le, totals, self.thresholds(delta))):
            return True
        return self.allowed_delta(totals) <= float(delta) * (1 - 1e-15)

    def spent(self, totals: Totals) -> Floats:
        return np.array([to_float(total, per=FINE) for total in totals[:-1]])

    def left(self, totals: Totals) -> Floats:
        thresholds = self.thresholds(self.share(totals))
        return np.array([to_float(t - s, per=FINE, down=True) for t, s in zip(thresholds, totals[:-1], strict=True)])

    def too_much(self, totals: Totals, mechanism: mechanisms.Mechanism) -> str:
        delta = self.allowed_delta(self.after(totals, mechanism))
        needed = f"delta={delta:.4g}" if delta < 1 else "a delta of 1 or more"
        share = float(self.share(totals))
        return f"with it epsilon={self.epsilon:g} would need {needed}, and the budget has {share:.4g}"

    def allowed_delta(self, totals: Totals) -> float:
        """The delta that the totals at the orders may use at epsilon, rounded up; failures are not in it."""
        curve = np.array([to_float(total, per=FINE) for total in totals[:-2]])
        return float(allowed_delta(curve, self._lam, self._log_weights, float(self.epsilon)))

    def delta_used(self, totals: Totals) -> float:
        """The delta, rounded up, that these totals use at epsilon, if nothing more is charged."""
        pure = totals[-2] <= budget(self.epsilon, per=FINE)
        return to_float(totals[-1], per=FAILURE) + (0.0 if pure else self.allowed_delta(totals))

    @cached_property
    def thresholds(self) -> Callable[[Fraction], tuple[int, ...]]:
        """For a part of delta: the units at which each order alone decides; last, pure composition."""
        return lru_cache(maxsize=4)(self._threshold_units)

    def after_in_units(self, totals: Totals, mechanism: mechanisms.Mechanism) -> Totals:
        return in_units(self, totals, mechanism, len(self.orders))

    def person_price(self, leaf: mechanisms.Mechanism, count: int = 1) -> Totals:
        no_failures(leaf, "an account per person")
        return coarse(tuple([times(count, units) for units in self.price(leaf)[:-2]]))

    def person_opening(self, shares: Floats) -> NDArray[np.int64]:  # noqa: ARG002 - Notion has it
        others = "filters.RenyiOrder, RenyiCurve, Zcdp, Gaussian, Residue or Planned"
        raise Unsupported(f"a mixture of orders has no shares: take {others}")

    def person_limits(self) -> tuple[int, ...]:
        return tuple([units // (FINE // MEASURE) for units in self.thresholds(Fraction(self.delta))[:-1]])

    def person_fits(self, spent: Array, cost: Array, xp: Library) -> tuple[Array, Mask]:
        half = xp.asarray(MOST, dtype=xp.int64, device=spent.device)
        after = xp.minimum(spent + xp.minimum(cost, half), half)
        limits = xp.asarray(self.person_limits(), dtype=xp.int64, device=spent.device)
        fits = xp.any(after <= limits, axis=1)
        doubtful = to_numpy(~fits)
        if doubtful.any():
            verdict, totals = to_numpy(fits).copy(), to_numpy(after)[doubtful]
            curves = np.where(totals < MOST, totals / MEASURE * (1 + 1e-15), inf)
            delta = allowed_delta(curves, self._lam, self._log_weights, float(self.epsilon))
            verdict[doubtful] = delta <= self.delta * (1 - 1e-15)
            fits = xp.asarray(verdict, device=spent.device)
        return xp.where(fits[:, None], after, spent), fits

    def person_rounds(self, spent: Array, cost: Array, asked: Array, xp: Library) -> tuple[Array, Array]:
        """All rounds in which one order alone decides, at once; then those of the mixture, one by one."""
        half = xp.asarray(MOST, dtype=xp.int64, device=spent.device)
        limits = xp.asarray(self.person_limits(), dtype=xp.int64, device=spent.device)
        room = xp.where(spent <= limits, (limits - spent) // xp.where(cost > 0, cost, 1), 0)
        done = xp.minimum(asked, xp.max(room, axis=1))
        # a total that would reach MOST stays there, and no product overflows
        fits = cost <= (half - spent) // xp.where(done > 0, done, 1)[:, None]
        after = xp.where(fits, spent + done[:, None] * xp.where(fits, cost, 0), half)
        after, doubtful = xp.where(done[:, None] > 0, after, spent), xp.nonzero(asked > done)[0]
        while len(doubtful):
            after[doubtful], paid = self.person_fits(after[doubtful], cost[doubtful], xp)
            done[doubtful] = done[doubtful] + xp.astype(paid, xp.int64)
            doubtful = doubtful[paid & (done[doubtful] < asked[doubtful])]
        return after, done

    @cached_property
    def _lam(self) -> Floats:
        return np.asarray(self.orders) - 1

    @cached_property
    def _log_weights(self) -> Floats:
        return np.asarray(np.log(np.asarray(self.weights)))

    def _threshold_units(self, delta: Fraction) -> tuple[int, ...]:
        shares = [float(delta) * float(np.exp(log_weight)) * (1 - 1e-15) for log_weight in self._log_weights]
        alone = [
            floor(Fraction(renyi.budget(order, epsilon=self.epsilon, delta=share)) * FINE) if share > 1e-300 else -1
            for order, share in zip(self.orders, shares, strict=True)
        ]
        return (*alone, budget(self.epsilon, per=FINE))


def allowed_delta(totals: Floats, lam: Floats, log_weights: Floats, epsilon: float) -> Floats:
    """G(S, epsilon), rounded up, for totals (..., m), inf allowed; weights (m,) add up to at most 1.

    Guarantee: G(S, epsilon) is at most the value, which is inf where every total is infinite.
    Source: theory 4.4.
    """
    rows = totals.shape[:-1]
    low = np.full(rows, np.log1p(1 / lam.max()))
    high = np.full(rows, np.log1p(1 / lam.min()))
    low, high = low * (1 - 1e-9), high * (1 + 1e-9)
    for _ in range(48):
        middle = np.sqrt(low * high)
        rising = 1 / np.expm1(middle) - _mixture(middle, totals, lam, log_weights, epsilon)[1]
        low, high = np.where(rising > 0, middle, low), np.where(rising > 0, high, middle)
    log_m, mean, size = _mixture(low, totals, lam, log_weights, epsilon)
    slope = np.maximum(1 / np.expm1(low) - mean, 0.0)
    # 1e-15 (size + 20): an exponent log w + lam (u - S) is off by less than 4 units of 1.1e-16 of the sizes of its
    # parts; in log M these errors are averaged with the terms, as in ``size``; exp, log and sum make less than 2e-14
    log_g = np.log(-np.expm1(-low)) - log_m + slope * (high - low) + 1e-15 * (size + 20)
    with np.errstate(over="ignore"):
        return np.where(np.isnan(log_g), np.inf, np.exp(log_g))


def _mixture(
    t: Floats, totals: Floats, lam: Floats, log_weights: Floats, epsilon: float
) -> tuple[Floats, Floats, Floats]:
    """Log M(epsilon + t), the mean of lam under its terms, and the size of the numbers that were added up."""
    with np.errstate(over="ignore"):
        exponents = log_weights + lam * ((epsilon + t)[..., None] - totals)
    top = exponents.max(axis=-1, keepdims=True)
    with np.errstate(invalid="ignore", over="ignore"):
        terms = np.exp(exponents - top)
        total = terms.sum(axis=-1)
        finite = np.where(np.isfinite(totals), totals, 0.0)
        size = (terms * (lam * ((epsilon + t)[..., None] + finite) - log_weights)).sum(axis=-1) / total
        return top[..., 0] + np.log(total), (terms * lam).sum(axis=-1) / total, size


def around(best: float, *, share: float) -> tuple[Floats, Floats]:
    """Lam (62,), the best lam* first, and weights (62,) that add up to at most 1 (theory 4.4): a share of it at lam*.

    The rest goes to 61 geometric points, lam*/30 to 3000 lam*, falling as lam*/lam above and as (lam/lam*)**3 below.
    The exponentials of the weights' logarithms add up to at most 1 too: each is off by less than 2e-15 of itself.
    """
    grid = best * np.geomspace(1 / 30, 3000, 61)
    fall = np.where(grid > best, best / grid, (grid / best) ** 3)
    return np.append(best, grid), np.append(share, (1 - share) * fall / fall.sum()) / (1 + 4e-15)


def default_weights(best: float, *, share: float = 0.5) -> tuple[Floats, Floats]:
    """Orders and weights ``around`` the best one; orders above 20 are whole, which are quickest to compute."""
    lam, weights = around(best, share=share)
    orders = np.where(1 + lam > 20, np.round(1 + lam), 1 + lam)
    unique, place = np.unique(orders, return_inverse=True)
    merged: Floats = np.bincount(place, weights=weights).astype(np.float64)
    return unique, merged
