"""The boundaries of Whitehouse et al., with the drift that their poster leaves out, of Lécuyer, and of Rogers et al.

Names and symbols
    V       the sum of epsilon squared (of mu squared, twice the sum of rho)
    drift   V/2: what the loss is expected to be at most; without it the boundaries are crossed in the long run. Of
            Rogers et al.: the sum of epsilon (e^epsilon - 1) / 2 (for zCDP rounds, the sum of rho)
    r       scale of the mixture
    v0      start of the stitching, > 0, fixed in advance
    A       Lécuyer's orders; lam = alpha - 1. For every order there is a row of Rényi filters that double in size
    f       number of the filter that still holds the total, from 1
    people  n_d, the number of people in the data set: a public number

The constants of Rogers et al. are second-hand: we quote them and do not vouch for them.

Source: theory 6.6 (Corrected); Whitehouse, Ramdas, Rogers & Wu (2023), https://arxiv.org/abs/2203.05481
    theory 6.4; Lécuyer (2021), https://arxiv.org/abs/2103.01379, Theorem 2, equation 5 and section 4.5
    theory 6.7; Rogers, Roth, Ullman & Vadhan (2016), https://arxiv.org/abs/1605.08294
"""

from dataclasses import dataclass, replace
from fractions import Fraction
from math import e, inf, log, log2
from typing import Self

import numpy as np

from almoner import _check, mechanisms
from almoner._arrays import Array, Library
from almoner._notions import Boundary, Totals
from almoner._units import to_float, up
from almoner.curves import _rogers, renyi
from almoner.errors import ArgumentError
from almoner.odometers import _roots
from almoner.odometers._normal import Clock, Clocked, planned, tuned
from almoner.odometers._odometer import Odometer


@dataclass(frozen=True, kw_only=True)
class ClosedMixture(Clock):
    """A normal mixture of one scale, in closed form."""

    scale: float

    def at_clock(self, clock: Array, *, delta: float, ex_post: bool, steps: int, xp: Library) -> Array:  # noqa: ARG002 - Clock has it
        total = clock + self.scale
        log_ratio = 0.5 * xp.log(total / self.scale) - log(2.0) - log(delta)  # > 0, as delta < 1/2
        level = log_ratio + xp.log1p(xp.exp(-log_ratio))
        return _zero_at_start(clock, clock / 2 + xp.sqrt(2.0 * total * level), xp)


@dataclass(frozen=True, kw_only=True)
class Stitches(Clock):
    """Stitched straight lines from ``start`` on; None until the first round that costs anything."""

    start: float | None

    def settle(self, mechanism: mechanisms.Mechanism, after: Totals) -> tuple[Self, Totals]:
        notion, after = super().settle(mechanism, after)
        if notion.start is not None:
            return notion, after
        costs = (self.price(leaf)[0] for leaf, _ in mechanisms.in_order(mechanism))
        first = next((cost for cost in costs if 0 < cost < inf), None)
        return (notion if first is None else replace(notion, start=to_float(first))), after

    def chosen(self) -> dict[str, float | None]:
        return {"sum_delta": self.sum_delta, "start": self.start}

    @property
    def known_in_advance(self) -> bool:
        return self.start is not None

    def at_clock(self, clock: Array, *, delta: float, ex_post: bool, steps: int, xp: Library) -> Array:  # noqa: ARG002 - Clock has it
        start = self.start or 1.0  # the clock has not moved then, or is infinite
        time = xp.where(clock > start, clock, start)
        level = xp.log(xp.log(2.0 * time / start)) + 0.72 * (log(5.2) - log(delta))
        return _zero_at_start(clock, clock / 2 + 1.7 * xp.sqrt(time * level), xp)


class Mixture(Clocked):
    """A mixture boundary in closed form, for pure, approximate and zCDP mechanisms. For comparison.

    ``epsilon()`` promises: with probability at least 1 - delta, the realised loss is at no time above the bound of its
    time. ``ex_post_epsilon()`` is the same number: the pathwise promise implies the ex-post one. Neither says that
    "the run is (bound, delta)-DP". ``odometers.Gaussian`` is smaller.

    Args:
        delta: failure probability, in (0, 1/2).
        plan: the V, or the mechanism, at whose end the bound should be small.
        sum_delta: delta'', as of ``odometers.Renyi``.

    >>> odometer = Mixture(delta=1e-6)
    >>> odometer.charge(mechanisms.Repeated(mechanisms.Pure(0.1), 100))
    >>> round(odometer.epsilon(), 3)
    6.038

    Guarantee: the pathwise promise above.
    Source: theory 6.6; Whitehouse et al. (2023), with the drift V/2 added.
    """

    def __init__(
        self, *, delta: float, plan: mechanisms.Mechanism | float = 1.0, sum_delta: float | None = None
    ) -> None:
        _check.between(0, 0.5, delta=delta)
        chosen = planned(plan)
        notion = ClosedMixture(delta=delta, sum_delta=sum_delta, scale=tuned(chosen, delta))
        super().__init__(notion, delta=delta, sum_delta=sum_delta, plan=chosen)


class Stitched(Clocked):
    """A stitched boundary in closed form, for pure, approximate and zCDP mechanisms. For comparison.

    Promises the same as ``Mixture``: ``epsilon()`` pathwise, ``ex_post_epsilon()`` the same number.

    Args:
        delta: failure probability, in (0, 1).
        start: v0, fixed in advance; by default the V of the first round that costs anything, which is known before
            there is a result (the poster's epsilon_1 squared).
        sum_delta: delta'', as of ``odometers.Renyi``.

    >>> odometer = Stitched(delta=1e-6)
    >>> odometer.charge(mechanisms.Repeated(mechanisms.Pure(0.1), 1000))
    >>> round(odometer.epsilon(), 3)
    24.504

    Guarantee: the pathwise promise of ``Mixture``.
    Source: theory 6.6; Howard et al. (2021), polynomial stitching with s = 1.4, eta = 2; Whitehouse et al. (2023), with
    the drift V/2 added.
    """

    def __init__(self, *, delta: float, start: float | None = None, sum_delta: float | None = None) -> None:
        if start is not None:
            _check.positive(start=start)
        notion = Stitches(delta=delta, sum_delta=sum_delta, start=start)
        super().__init__(notion, delta=delta, sum_delta=sum_delta, start=start)


def _zero_at_start(clock: Array, bound: Array, xp: Library) -> Array:
    return xp.where(clock == 0, 0.0, _roots.raised(bound, xp=xp))


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


@dataclass(frozen=True, kw_only=True)
class SquareAndDrift(Boundary):
    """Costs: V and the drift."""

    people: int

    @property
    def width(self) -> int:
        return 2

    def costs(self, leaf: mechanisms.Mechanism) -> Totals:
        return _rogers.prices(leaf)

    def rest(self, delta: float, kept: Fraction) -> float:  # noqa: ARG002 - Boundary has it
        return delta  # the authors' formula is written for the whole delta

    def bound(self, costs: Array, /, *, delta: float, **_: object) -> Array:
        totals = np.asarray(costs)
        square, drift = totals[..., 0], totals[..., 1]
        floor = 1.0 / self.people**2
        middle = 2 * np.sqrt(square * (log(110 * e) + 2 * log(log(self.people) / delta)))
        growth = 1 + np.log1p(square / floor) / 2
        outside = np.sqrt(2 * (floor + square) * growth * log(4 * log2(self.people) / delta))
        bound = drift + np.where((square >= floor) & (square <= 1 + 1e-14), middle, outside)
        return np.where(square == 0, 0.0, np.asarray(_roots.raised(bound)))


class Rogers(Odometer):
    """For pure, approximate and zCDP mechanisms; with constants that we quote and do not vouch for. For comparison.

    Promises the same as ``Mixture``, according to its authors.

    Args:
        delta: failure probability, in (0, 1/e), the range of the theorem. Half of it is kept for rounds with a delta of
            their own.
        people: the number of people in the data set, public, >= 3: it sets where the bound starts.

    >>> odometer = Rogers(delta=1e-6, people=10_000)
    >>> odometer.charge(mechanisms.Repeated(mechanisms.Pure(0.1), 100))
    >>> round(odometer.epsilon(), 3)
    12.818

    Guarantee: the pathwise promise of ``Mixture``, second-hand.
    Source: theory 6.7; Rogers et al. (2016), Theorem 6.5.
    """

    def __init__(self, *, delta: float, people: int, sum_delta: float | None = None) -> None:
        _check.whole(3, people=people)
        _check.between(0, 1 / e, delta=delta)
        share = delta / 2 if sum_delta is None else sum_delta
        notion = SquareAndDrift(delta=delta, sum_delta=share, people=int(people))
        super().__init__(notion, delta=delta, sum_delta=share, people=int(people))
