"""What is left is the planned round itself, as often as it still fits, and change.

Names and symbols
    used     how often each mechanism of the plan was charged, or given for other rounds
    paid     change that was paid for other rounds; got: change that was given back
    slack    by how much the bound may fail on the way, in FAILURE units; it is paid from delta

Source: theory 4.11; docs/proofs/planned-filter.md
"""

from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property, lru_cache
from math import ceil, exp, floor, inf
from typing import ClassVar, Self

from bursar import _check, mechanisms
from bursar._units import FAILURE, exact, up
from bursar.curves import planned, renyi, residue
from bursar.errors import ArgumentError
from bursar.notions._notion import Totals
from bursar.notions._with_failures import WithFailures, default_share

__all__ = ["Planned"]

BLOCKS_LEFT = 16
"""A block takes about this part of what is left at most: larger blocks have better prices."""


@dataclass(frozen=True)
class _Left:
    """What an account has left."""

    plan: tuple[int, ...]  # of each mechanism of the plan
    change: int
    slack: int  # FAILURE units


@dataclass(frozen=True, kw_only=True)
class Planned(WithFailures[int]):
    """A planned round costs one planned round; every other round is bought with planned rounds and change.

    Totals: ``used`` of each mechanism of the plan, ``paid``, ``got``, ``slack``, failures. Where no sum_delta is named,
    a thousandth of delta may go to failures out of what pays for slack: planned rounds lose nothing by it.

    Guarantee: totals that hold are (epsilon, delta)-DP.
    Source: theory 4.11; docs/proofs/planned-filter.md.
    """

    plan: mechanisms.Mechanism
    reserve: float = 0.0
    measure: ClassVar[str] = "planned rounds"
    theorem: ClassVar[str] = "theory 4.11; docs/proofs/planned-filter.md"

    def __post_init__(self) -> None:
        super().__post_init__()
        _check.number(reserve=self.reserve)
        if not 0 <= self.reserve < 1:
            raise ArgumentError(f"reserve={self.reserve!r} must be in [0, 1), a share of the planned rounds")
        if not isinstance(self.plan, mechanisms.Mechanism) or not self.parts:
            raise ArgumentError(f"plan={self.plan!r} must be a mechanism with at least one round")

    @cached_property
    def parts(self) -> planned.Plan:
        """The mechanisms of one planned round, and how often each runs in it."""
        return tuple(mechanisms.leaves(self.plan).items())

    @cached_property
    def prices(self) -> planned.Prices:
        """Prices for the part of delta that is not set aside for failures."""
        share = float(exact(self.delta) - exact(self.sum_delta or 0.0)) * (1 - 2.0**-50)
        return _prices(self.parts, float(self.epsilon), share, float(self.reserve))

    @property
    def columns(self) -> int:
        return len(self.parts) + 4

    def price_of_round(self, leaf: mechanisms.Mechanism) -> Totals:
        return self.after((0,) * self.columns, leaf)

    def price(self, mechanism: mechanisms.Mechanism) -> Totals:
        """What a mechanism adds to the totals of a fresh account; what it adds to others is in ``after``."""
        return self.after((0,) * self.columns, mechanism)

    def after(self, totals: Totals, mechanism: mechanisms.Mechanism) -> Totals:
        if not isinstance(mechanism, mechanisms.Mechanism):
            raise ArgumentError(f"mechanism={mechanism!r} must be a mechanism")
        failures, paid, got = totals[-1], totals[-4], totals[-3]
        left: _Left | None = self._left(totals)
        spent = self._slack - totals[-2] - self._left(totals).slack  # for failures
        for leaf, count in mechanisms.leaves(mechanism).items():
            if left is not None:
                left, count = self._as_planned(left, leaf, count)
            if left is not None and count:
                failures += count * up(renyi.failure(leaf), per=FAILURE)
                before = left.change
                left = self._bought(left, renyi.without_failures(leaf), count)
                if left is not None:
                    paid, got = paid + max(before - left.change, 0), got + max(left.change - before, 0)
        if left is None:
            return (*(inf,) * (self.columns - 1), failures)
        used = [count * self.prices.rounds - one for (_, count), one in zip(self.parts, left.plan, strict=True)]
        return (*used, paid, got, self._slack - left.slack - spent, failures)

    def holds_for(self, totals: Totals, delta: Fraction) -> bool:
        if inf in totals:
            return False
        left = self._left(totals)
        return min(*left.plan, left.change, left.slack) >= 0

    def aside(self, totals: Totals) -> Fraction:
        return exact(default_share(self.delta, may_fail=False) if self.sum_delta is None else self.sum_delta)

    def settle(self, mechanism: mechanisms.Mechanism, after: Totals) -> tuple[Self, Totals]:
        return self, after  # the planned rounds are fixed from the start, and so is what is left for failures

    def spent(self, totals: Totals) -> int:
        """Planned rounds that do not fit any more."""
        return self.prices.rounds - self.left(totals)

    def left(self, totals: Totals) -> int:
        """Planned rounds that still fit."""
        return 0 if inf in totals else max(0, self._rounds(self._left(totals)))

    def asked(self, totals: Totals, mechanism: mechanisms.Mechanism) -> int | float:  # type: ignore[override]
        after = self.after(totals, mechanism)
        return inf if inf in after else self.left(totals) - self.left(after)

    def _converted(self, delta: float) -> float:
        prices, aside = self.prices, float(exact(self.sum_delta or 0.0)) + self._slack / FAILURE
        low, high = 0.0, float(self.epsilon)
        while (prices.delta(prices.rounds, prices.change, epsilon=high) + aside) * exp(planned.ERRORS) > delta:
            low, high = high, 2 * high
            if high > 1e3 * self.epsilon:
                return inf
        while high - low > 1e-6 * high and high > 1e-9 * self.epsilon:
            middle = (low + high) / 2
            bound = (prices.delta(prices.rounds, prices.change, epsilon=middle) + aside) * exp(planned.ERRORS)
            low, high = (low, middle) if bound <= delta else (middle, high)
        return high

    @cached_property
    def _slack(self) -> int:
        """Of the start, in FAILURE units."""
        return floor((exact(self.delta) - exact(self.sum_delta or 0.0)) * Fraction(self.prices.slack) * FAILURE)

    def _left(self, totals: Totals) -> _Left:
        rounds = self.prices.rounds
        plan = tuple(count * rounds - int(used) for (_, count), used in zip(self.parts, totals, strict=False))
        change = self.prices.change - int(totals[-4]) + int(totals[-3])
        failures = int(totals[-1]) if self.sum_delta is None else 0
        return _Left(plan, change, self._slack - int(totals[-2]) - failures)

    def _rounds(self, left: _Left) -> int:
        """Whole planned rounds."""
        return min(one // count for (_, count), one in zip(self.parts, left.plan, strict=True))

    def _given(self, left: _Left, rounds: int) -> tuple[int, ...]:
        """What is left of the plan's mechanisms after whole planned rounds were given."""
        return tuple(one - count * rounds for (_, count), one in zip(self.parts, left.plan, strict=True))

    def _as_planned(self, left: _Left, leaf: mechanisms.Mechanism, count: int) -> tuple[_Left, int]:
        """Rounds that are the plan's own, as far as there are any; and how many are not."""
        plan = list(left.plan)
        for place, (planned_leaf, _) in enumerate(self.parts):
            if leaf == planned_leaf:
                taken = min(count, max(0, plan[place]))
                plan[place] -= taken
                count -= taken
        return replace(left, plan=tuple(plan)), count

    def _bought(self, left: _Left, leaf: mechanisms.Mechanism, count: int) -> _Left | None:
        """What is left after a number of equal rounds; None where they do not fit.

        Equal rounds are paid in blocks, and blocks at one level are paid in one go.
        """
        block = 1 << max(0, min(count, self._rounds(left) // BLOCKS_LEFT).bit_length() - 1)
        while count:
            block = min(block, 1 << (count.bit_length() - 1))
            bought = self._some_bought(left, leaf, block, count // block)
            if bought is None and block == 1:
                return None
            if bought is None:
                block = 1
            else:
                left, count = bought[0], count - bought[1] * block
        return left

    def _some_bought(self, left: _Left, leaf: mechanisms.Mechanism, block: int, most: int) -> tuple[_Left, int] | None:
        """What is left after some equal blocks, at least one and at most so many; and how many."""
        prices, rounds = self.prices, self._rounds(left)
        level = planned.level(rounds)
        size = prices.size(leaf) * block
        share = min(1.0, size / (rounds * prices.worth + left.change + 1))
        slack, overhead = floor(left.slack * share / 2), prices.overhead(leaf) * block
        if not slack:
            return None
        slack = residue.ladder(slack)
        price = prices.price(leaf, block, level=level, slack=slack)
        most = min(most, left.slack // (slack + overhead))
        if price.change is not None and left.change >= price.change:
            blocks = min(most, left.change // price.change)
            if blocks:
                change = left.change - blocks * price.change
                return _Left(left.plan, change, left.slack - blocks * (slack + overhead)), blocks
        if price.rounds is None or rounds < price.rounds or not most:
            return None
        blocks = min(most, (rounds - planned.rounds_at(level)) // price.rounds + 1, rounds // price.rounds)
        if price.change is not None:  # the change that comes back buys the rest
            blocks = min(blocks, max(1, ceil((most * price.change - left.change) / (price.change + price.back))))
        change = left.change + blocks * price.back
        plan = self._given(left, blocks * price.rounds)
        return _Left(plan, change, left.slack - blocks * (slack + overhead)), blocks


@lru_cache(maxsize=32)
def _prices(plan: planned.Plan, epsilon: float, delta: float, reserve: float) -> planned.Prices:
    return planned.Prices(plan, epsilon=epsilon, delta=delta, reserve=reserve)
