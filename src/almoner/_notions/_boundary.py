"""Turn the totals of an odometer into a bound on the privacy loss that is right at every moment at once.

Names and symbols
    costs      what rounds add to the totals where they do not fail
    failures   the sum of the probabilities of failure, in FAILURE units
    excess     what the pathwise promise costs more than the ex-post one, for approximate rounds (theory 2.4)

The totals of an odometer are: costs, failures, excess of the costs, excess of the failures.
"""

from abc import abstractmethod
from dataclasses import dataclass, replace
from fractions import Fraction
from math import exp, expm1, inf, log1p
from typing import ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from almoner import _check, mechanisms
from almoner._arrays import NUMPY, Array, Library, Mask
from almoner._notions._notion import Notion, Totals
from almoner._notions._with_failures import check_share, default_share
from almoner._units import FAILURE, MEASURE, RANGE, as_float, budget, exact, times, up
from almoner.curves import approximate, renyi
from almoner.errors import Unsupported

STRETCH = 0.25  # the stretch of an approximate round's epsilon for the pathwise promise, as a share of it; theory 2.4
STEPS = 60  # steps of Newton's method for one account; every iterate is a bound
PERSON_STEPS = 4  # Newton steps for accounts per person: four are within 1e-6 of the root
MOST = RANGE // 2  # twice of it fits into int64; from here on, stored totals of people count as infinite


@dataclass(frozen=True, kw_only=True)
class PersonBound(Notion):
    """Interface of a running bound that accounts per person need; delta is that of its promise."""

    delta: float
    person_ex_post: ClassVar[bool] = True  # true if there is an ex-post promise
    person_repeats: ClassVar[bool] = True  # true if several rounds may be charged as one Repeated

    @property
    def person_size(self) -> int:
        """Units that one total must be able to hold besides infinity."""
        return 0

    @property
    @abstractmethod
    def person_columns(self) -> int:
        """Number of totals that an account of a person holds."""

    @abstractmethod
    def person_after(self, totals: Array, cost: Array, known: Mask, xp: Library) -> Array:
        """The totals of people, (n, m) int64 units with MOST for infinity, after a round. Private.

        ``cost`` is (n, k), >= 0, as priced by ``person_price``; who is not ``known``, (n,) bool, is charged infinity.
        """

    @abstractmethod
    def person_bound(self, totals: Array, *, delta: float, ex_post: bool, xp: Library) -> Array:
        """The bound of each person: totals (n, m) int64, private, units; (n,) nats, private, rounded up."""


@dataclass(frozen=True, kw_only=True)
class Boundary(PersonBound):
    """A notion with a bound on the realised loss at every moment at once.

    Attributes (public): delta of the promise; sum_delta, the part of it kept for rounds that may fail. None: what
    ``default_share`` says once the first round is charged, before there is a result. A part of delta that is left over
    on one path of the interaction may not be spent on another.
    """

    sum_delta: float | None = None

    def __post_init__(self) -> None:
        _check.between(0, 1, delta=self.delta)
        check_share(self.sum_delta, self.delta)

    @property
    @abstractmethod
    def width(self) -> int:
        """Number of costs."""

    @abstractmethod
    def costs(self, leaf: mechanisms.Mechanism) -> Totals:
        """Price one round that cannot fail: its part of each cost, in units, rounded up."""

    @abstractmethod
    def bound(
        self, costs: Array, /, *, delta: float, ex_post: bool = False, steps: int = STEPS, xp: Library = NUMPY
    ) -> Array:
        """The pathwise or the ex-post bound at costs (..., width) in nats: (...) nats, rounded up."""

    @property
    def columns(self) -> int:
        return 2 * self.width + 2

    def price_of_round(self, leaf: mechanisms.Mechanism) -> Totals:
        costs, failure = self.costs(renyi.without_failures(leaf)), int(up(renyi.failure(leaf), per=FAILURE))
        return self._failing(leaf, costs, failure) if failure else (*costs, 0, *(0,) * self.width, 0)

    def _failing(self, leaf: mechanisms.Mechanism, costs: Totals, failure: int) -> Totals:
        """Theory 2.4: ex-post, reveal all with probability delta; pathwise, an event of larger probability to avoid."""
        stretch = 0.0 if isinstance(leaf, mechanisms.PDP) else STRETCH
        epsilon, delta = map(as_float, approximate.cost(leaf))
        stretched, avoided = _pathwise(epsilon, delta, stretch)
        if stretched is None:
            return (*costs, failure, *(inf,) * self.width, FAILURE)
        paths = tuple(map(sum, zip(*(self.costs(part) for part in stretched), strict=True)))
        excess = (0 if cost == inf else max(0, path - cost) for path, cost in zip(paths, costs, strict=True))
        return (*costs, failure, *excess, max(0, int(up(avoided, per=FAILURE)) - failure))

    def after(self, totals: Totals, mechanism: mechanisms.Mechanism) -> Totals:
        price = self.price(mechanism)
        if price[self.width] and not self._kept(failing=True):
            cure = "give sum_delta=, the part of delta kept for such rounds, at the start"
            raise Unsupported(f"{mechanism!r} may fail: {cure}")
        return tuple([total + units for total, units in zip(totals, price, strict=True)])

    def settle(self, mechanism: mechanisms.Mechanism, after: Totals) -> tuple[Self, Totals]:
        if self.sum_delta is not None or not mechanisms.rounds(mechanism):
            return self, after
        return replace(self, sum_delta=default_share(self.delta, may_fail=bool(after[self.width]))), after

    def chosen(self) -> dict[str, float | None]:
        return {"sum_delta": self.sum_delta}

    def epsilon(self, totals: Totals, delta: float, *, ex_post: bool) -> float:
        """The bound at the totals of an odometer, nats, rounded up; infinite where the failures exceed their share."""
        _check.between(0, 1, delta=delta)
        costs, failures = totals[: self.width], totals[self.width]
        if not ex_post:
            failures += totals[-1]
            if failures:
                costs = tuple([cost + more for cost, more in zip(costs, totals[self.width + 1 : -1], strict=True)])
        kept = self._kept(failing=bool(failures))
        if failures > budget(kept * exact(delta), per=FAILURE):
            return inf
        bound = float(self.bound(as_floats(costs), delta=self.rest(delta, kept), ex_post=ex_post))
        return bound if bound >= 0 else inf

    def _kept(self, *, failing: bool) -> Fraction:
        """The share of delta for rounds that may fail."""
        if self.sum_delta is None:  # nothing was charged yet
            return exact(default_share(self.delta, may_fail=failing)) / exact(self.delta)
        return exact(self.sum_delta) / exact(self.delta)

    def rest(self, delta: float, kept: Fraction) -> float:
        """Part of delta that is left for the losses, rounded down."""
        return delta if not kept else float(np.nextafter(float((1 - kept) * exact(delta)), 0))

    @property
    def known_in_advance(self) -> bool:
        """True if nothing about the bound is left to be fixed by the first charge."""
        return True

    @property
    def person_columns(self) -> int:
        return self.width

    def person_price(self, leaf: mechanisms.Mechanism, count: int = 1) -> Totals:
        price = self.price(leaf)
        if price[self.width]:
            raise Unsupported(f"{leaf!r} may fail with probability delta, for which accounts per person have no budget")
        return tuple([times(count, units) for units in price[: self.person_columns]])

    def person_after(self, totals: Array, cost: Array, known: Mask, xp: Library) -> Array:
        total = totals + xp.where(known[:, None] & (cost < MOST), cost, MOST)
        return xp.where(total < MOST, total, MOST)

    def person_bound(self, totals: Array, *, delta: float, ex_post: bool, xp: Library) -> Array:
        costs = xp.where(totals >= MOST, inf, xp.astype(totals, xp.float64) * ((1 + 1e-15) / MEASURE))
        bounds = self.bound(costs, delta=delta, ex_post=ex_post, steps=PERSON_STEPS, xp=xp)
        return xp.where(xp.all(totals == 0, axis=1), 0.0, bounds)


def as_floats(totals: Totals) -> NDArray[np.float64]:
    """Units as float64 of the measure, rounded up."""
    floats = np.asarray([as_float(total) for total in totals])
    return np.where(floats > 0, floats / MEASURE * (1 + 6e-16), 0.0)


def _pathwise(
    epsilon: float, delta: float, stretch: float
) -> tuple[tuple[mechanisms.Mechanism, ...] | None, Fraction | float]:
    """Price an (epsilon, delta)-DP round outside of an event, whose probability is returned as well.

    With e = epsilon + t: the loss is above e with probability <= b = delta / (1 - e^-t), and below -e with
    probability <= b e^-e. Of probabilistic DP this holds with t = 0 and b = delta. Outside of both, with probability
    >= 1 - d, d = b (1 + e^-e), the round given that event is (e + s)-DP, s = -log(1 - d), and the loss is at most s
    above the loss of that; Zcdp(s) covers the s.
    """
    if epsilon == inf or delta >= 1:
        return None, inf
    t = stretch * max(epsilon, 0.1)
    wide = epsilon + t
    above = delta / -expm1(-t) if t else delta
    avoided = above * (1 + exp(-wide)) * (1 + 1e-14)
    if avoided >= 0.5:
        return None, inf
    shift = -log1p(-avoided) * (1 + 1e-14)
    return (mechanisms.Pure((wide + shift) * (1 + 1e-15)), mechanisms.Zcdp(shift)), avoided
