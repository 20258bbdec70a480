"""Odometers as other papers state them, to compare with; none is recommended.

Names and symbols
    V       the sum of epsilon squared (of mu squared, twice the sum of rho)
    drift   V/2: what the loss is expected to be at most; without it the boundaries are crossed in the long run. Of
            Rogers et al.: the sum of epsilon (e^epsilon - 1) / 2 (for zCDP rounds, the sum of rho)
    r       scale of the mixture
    v0      start of the stitching, > 0, fixed in advance
    A       Lécuyer's orders; lam = alpha - 1. For every order there is a row of Rényi filters that double in size
    f       number of the filter that still holds the total, from 1
    people  n_d, the number of people in the data set: a public number
    step    Δ: size of every filter opened after another, in the measure that adds up; or Δ_1, Δ_2, ... fixed in advance
    K       number of such filters opened so far

Restarts hold for a *number of filters* fixed in advance: "up to the moment at which filter K is full". They are no
bound at a moment that was chosen from the results, and they need every round to fit into one filter. The constants of
Rogers et al. are second-hand: we quote them and do not vouch for them.

Source: theory 6.6 (Corrected); Whitehouse, Ramdas, Rogers & Wu (2023), https://arxiv.org/abs/2203.05481
    theory 6.4; Lécuyer (2021), https://arxiv.org/abs/2103.01379, Theorem 2, equation 5 and section 4.5
    theory 6.7; Rogers, Roth, Ullman & Vadhan (2016), https://arxiv.org/abs/1605.08294
    theory 6.2; Feldman & Zrnic (2021), https://arxiv.org/abs/2008.11193, Algorithm 5; Koskela, Tobaben & Honkela
    (2023), https://arxiv.org/abs/2209.15596, appendix C.5
"""

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from math import ceil, e, inf, log, log2, nextafter, sqrt
from typing import ClassVar, Self

import numpy as np

from almoner import _check, mechanisms
from almoner._arrays import Array, Library, Mask, to_numpy
from almoner._notions import MOST, Boundary, PersonBound, Totals, no_failures
from almoner._units import MEASURE, budget, times, to_float, up
from almoner.curves import approximate, gaussian, renyi
from almoner.errors import ArgumentError, BudgetExceeded, Unsupported
from almoner.odometers import _roots
from almoner.odometers._normal import Clock, planned, tuned
from almoner.odometers._odometer import Counting, Odometer

__all__ = ["FeldmanZrnic", "GaussianRestarts", "Lecuyer", "Mixture", "Rogers", "Stitched"]


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


class Mixture(Odometer):
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


class Stitched(Odometer):
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
        _check.given(_check.positive, start=start)
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
    """For any mechanism with a Rényi curve. For comparison: ``odometers.Renyi`` is below it with its default orders.

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
        _check.each(_check.between, 1, inf, order=orders)
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
        return approximate.square_and_drift(leaf)

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


@dataclass(frozen=True, kw_only=True)
class FiltersInARow(PersonBound):
    """Totals: filters opened, and units used of the last one."""

    sizes: tuple[int, ...]  # units that the filters hold in turn; the last is that of all later ones
    person_ex_post: ClassVar[bool] = False
    person_repeats: ClassVar[bool] = False

    @property
    def columns(self) -> int:
        return 2

    @abstractmethod
    def together(self, filters: int, *, delta: float) -> float:
        """The epsilon of so many filters at delta, rounded up."""

    def size_of(self, number: int) -> int:
        """The units that a filter holds; the first has number 1."""
        return self.sizes[min(number, len(self.sizes)) - 1]

    def size_of_all(self, filters: int) -> int:
        """The units that so many filters hold together."""
        return sum(self.sizes[:filters]) + max(0, filters - len(self.sizes)) * self.sizes[-1]

    def after(self, totals: Totals, mechanism: mechanisms.Mechanism) -> Totals:
        self.price(mechanism)  # refused before anything is counted
        opened, used = map(int, totals)
        for leaf, count in mechanisms.in_order(mechanism):
            opened, used = self._several(leaf, count, opened, used)
        return opened, used

    def _several(self, leaf: mechanisms.Mechanism, count: int, opened: int, used: int) -> tuple[int, int]:
        """The totals after count equal rounds; filters that are too small for one stay empty, and count as opened."""
        cost, open_size = self.price(leaf)[0], self.size_of(opened) if opened else 0
        largest = max(open_size - used, *self.sizes[opened:], self.sizes[-1])
        if cost > largest:
            words = f"{leaf!r} costs {to_float(cost)!r}, more than a filter of step={to_float(largest)!r} holds"
            left = to_float(self.size_of(max(opened, 1)) - used, down=True)
            raise BudgetExceeded(words, asked=to_float(cost), spent=to_float(used), left=left)
        units = int(cost)
        if not units or not count:
            return opened, used
        here = min(count, (open_size - used) // units)
        count, used = count - here, used + here * units
        while count and opened < len(self.sizes):
            opened += 1
            here = min(count, self.size_of(opened) // units)
            count, used = count - here, here * units
        if not count:
            return opened, used
        each = self.sizes[-1] // units
        if not each:
            words = f"{count} rounds of {leaf!r} are left over: they cost more than a filter of the last step holds"
            raise BudgetExceeded(words, asked=to_float(count * units), spent=to_float(used), left=0.0)
        more = -(-count // each)
        return opened + more, (count - (more - 1) * each) * units

    @property
    def person_size(self) -> int:
        """Where all filters have one size: that."""
        if len(self.sizes) > 1:
            raise Unsupported("accounts per person need restarts of one size")
        return self.sizes[0]

    @property
    def person_columns(self) -> int:
        return 2

    def person_price(self, leaf: mechanisms.Mechanism, count: int = 1) -> Totals:
        return (times(count, self.price(leaf)[0]),)

    def person_after(self, totals: Array, cost: Array, known: Mask, xp: Library) -> Array:
        """Algorithm 6; a cost above the size counts as infinite."""
        opened, used, cost, size = totals[:, 0], totals[:, 1], cost[:, 0], self.person_size
        fits = (opened > 0) & (used + xp.where(cost < size, cost, size) <= size)
        lost = ~known | (cost > size) | (opened >= MOST)
        used = xp.where(cost == 0, used, xp.where(fits, used + cost, cost))
        opened = xp.where(lost, MOST, opened + xp.astype((cost > 0) & ~fits, xp.int64))
        return xp.stack((opened, xp.where(lost, 0, used)), axis=1)

    def person_bound(self, totals: Array, *, delta: float, ex_post: bool, xp: Library) -> Array:  # noqa: ARG002 - PersonBound has it
        kinds, which = np.unique(to_numpy(totals[:, 0]), return_inverse=True)
        values = [inf if opened >= MOST else self.together(int(opened), delta=delta) for opened in kinds]
        return xp.asarray(np.asarray(values)[which], device=totals.device)


class Restarts(Counting[FiltersInARow]):
    """Filters of one size, opened one after the other."""

    _SAVED = ("totals",)

    @property
    def filters(self) -> int:
        """Number of filters opened. Public."""
        return int(self._totals[0])

    @property
    def total(self) -> float:
        """The sizes of the filters opened, added up; rounded up. Public."""
        return to_float(self._notion.size_of_all(self.filters))

    def epsilon(self, *, delta: float | None = None) -> float:
        """The bound at the end of the filter that is open now, for a number of filters fixed in advance."""
        chosen = self.delta if delta is None else delta
        _check.between(0, 1, delta=chosen)
        return self._notion.together(self.filters, delta=chosen)

    def ex_post_epsilon(self, *, delta: float | None = None) -> float:  # noqa: ARG002 - odometers have it
        """There is none: nothing is promised at moments chosen from the results."""
        raise Unsupported(f"{type(self).__name__} makes no ex-post promise; use odometers.Renyi")

    def _saved(self) -> dict[str, list[int | float]]:
        return {"totals": list(self._totals)}

    def _restore(self, *parts: Totals) -> None:
        (self._totals,) = parts
        if len(self._totals) != 2:
            raise ArgumentError("state: totals must be a pair")


@dataclass(frozen=True, kw_only=True)
class RenyiFilters(FiltersInARow):
    """Rényi filters at one order."""

    alpha: float

    def price_of_round(self, leaf: mechanisms.Mechanism) -> Totals:
        no_failures(leaf, "an odometer of restarts")
        return up(renyi.cost(leaf, self.alpha)), 0

    def together(self, filters: int, *, delta: float) -> float:
        total = to_float(self.size_of_all(filters))
        return float(renyi.epsilon([total], [self.alpha], delta=delta)) if total else 0.0


@dataclass(frozen=True, kw_only=True)
class GaussianFilters(FiltersInARow):
    """Gaussian filters."""

    def price_of_round(self, leaf: mechanisms.Mechanism) -> Totals:
        return up(gaussian.cost(leaf)), 0

    def together(self, filters: int, *, delta: float) -> float:
        squared = Fraction(self.size_of_all(filters), MEASURE)
        mu = nextafter(nextafter(sqrt(squared), inf), inf) if squared else 0.0
        return float(gaussian.epsilon(mu, delta=delta))


class FeldmanZrnic(Restarts):
    """Feldman & Zrnic's Algorithm 5: Rényi filters at one order, of one size. For comparison.

    ``epsilon()`` promises: for a number K fixed in advance, everything up to the moment at which filter K is full is
    (alpha, K step)-Rényi-DP, and so (epsilon, delta)-DP; of several sizes, their sum takes the place of K step. It
    promises nothing at a moment chosen from the results, so there is no ex-post bound, and it is not a bound on the
    realised loss at all times.

    Args:
        delta: failure probability, in (0, 1).
        alpha: the order, > 1.
        step: the size of every filter; a round that costs more is refused. Or the sizes, fixed in advance, of one
            filter after the other, the last for all later ones: Lécuyer's doubling ones, for example.

    >>> odometer = FeldmanZrnic(alpha=63.0, step=0.00109, delta=1e-5)
    >>> odometer.charge(mechanisms.Repeated(mechanisms.Gaussian(sigma=170.0), 104))
    >>> odometer.filters, round(odometer.total, 5)
    (104, 0.11336)

    Guarantee: the promise above, for a number of filters fixed in advance.
    Source: theory 6.2; Feldman & Zrnic (2021), Algorithm 5.
    """

    def __init__(self, *, delta: float, alpha: float, step: float | Sequence[float]) -> None:
        _check.between(1, inf, alpha=alpha)
        notion = RenyiFilters(delta=delta, sizes=_sizes(delta, step), alpha=alpha)
        super().__init__(notion, delta=delta, step=_listed(step), alpha=alpha)

    @classmethod
    def for_plan(cls, plan: mechanisms.Mechanism, *, delta: float, share: float = 1.0) -> Self:
        """The odometer whose order and size suit a plan.

        A filter of m rounds at the largest cost r leaves less than r of itself unused, and the open one counts whole.
        So the odometer of a person who pays s in all stands at no more than s m / (m - 1) + m r, which is least at
        m = 1 + sqrt(s / r).

        Args:
            plan: public. All rounds that may be run; the rounds of the largest cost set the size.
            delta: failure probability, in (0, 1).
            share: public, in (0, 1]. s as a share of what the plan costs at full contributions: small where most people
                contribute little.

        Raises:
            Unsupported: a round has no cost at one order.

        Guarantee: that of the class; the choice is made from public facts.
        Source: Feldman & Zrnic (2021), section 5.1, which asks how Delta should be chosen.

        >>> odometer = FeldmanZrnic.for_plan(mechanisms.Repeated(mechanisms.Gaussian(170.0), 104), delta=1e-5)
        >>> odometer.charge(mechanisms.Repeated(mechanisms.Gaussian(170.0), 104))
        >>> odometer.filters  # of 12 rounds each
        9
        """
        _check.between(0, 1, delta=delta)
        _check.positive(share=share)
        _check.within(0, 1, share=share)
        leaves = list(mechanisms.in_order(plan))

        def total(alpha: float) -> float:
            return float(sum(count * renyi.cost(leaf, alpha) for leaf, count in leaves))

        orders = [float(alpha) for alpha in renyi.ORDERS]
        alpha = min(orders, key=lambda order: float(renyi.epsilon([total(order)], [order], delta=delta)))
        largest = max((renyi.cost(leaf, alpha) for leaf, _ in leaves), default=0)
        if not 0 < largest < inf:
            raise ArgumentError(f"plan={plan!r} costs nothing, or has no bound, at every order")
        rounds = 1 + ceil(sqrt(share * total(alpha) / largest))
        return cls(delta=delta, alpha=alpha, step=to_float(int(up(largest)) * rounds))


class GaussianRestarts(Restarts):
    """Koskela, Tobaben & Honkela's restarts: Gaussian filters of one size. Gaussian mechanisms only. For comparison.

    Promises the same as ``FeldmanZrnic``, with sqrt(K step)-GDP in the place of (alpha, K step)-Rényi-DP.

    Args:
        delta: failure probability, in (0, 1).
        step: the size of every filter, in mu squared, or the sizes, as of ``FeldmanZrnic``: the steps of B_1, B_2, ....

    >>> odometer = GaussianRestarts(step=0.25, delta=1e-5)
    >>> odometer.charge(mechanisms.Repeated(mechanisms.Gaussian(sigma=20.0), 400))
    >>> odometer.filters, round(odometer.epsilon(), 3)
    (4, 4.377)

    Guarantee: the promise of ``FeldmanZrnic``, for a number of filters fixed in advance.
    Source: theory 6.2; Koskela, Tobaben & Honkela (2023), appendix C.5.
    """

    def __init__(self, *, delta: float, step: float | Sequence[float]) -> None:
        notion = GaussianFilters(delta=delta, sizes=_sizes(delta, step))
        super().__init__(notion, delta=delta, step=_listed(step))


def _sizes(delta: float, step: float | Sequence[float]) -> tuple[int, ...]:
    _check.between(0, 1, delta=delta)
    steps = step if isinstance(step, Sequence) else (step,)
    if not steps:
        raise ArgumentError("step must be one size or several, not none")
    for one in steps:
        _check.positive(step=one)
        if not budget(one):
            raise ArgumentError(f"step={one!r} must be at least one unit, 1e-15")
    return tuple(budget(one) for one in steps)


def _listed(step: float | Sequence[float]) -> float | list[float]:
    return list(step) if isinstance(step, Sequence) else step
