"""Budget whose remainder is the planned round itself, as often as it still fits, and small change.

Names and symbols
    used     how often each mechanism of the plan was charged, or given for other rounds
    paid     change that was paid for other rounds; got: change that was given back
    slack    by how much the bound may fail on the way, in FAILURE units; it is paid from delta

Source: theory 4.11; docs/proofs/planned-filter.md
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property, lru_cache, partial
from math import ceil, exp, floor, inf
from typing import ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from almoner import _check, mechanisms
from almoner._arrays import Array, Library, Mask
from almoner._notions._notion import READ, ByRemainder, Totals, no_failures
from almoner._notions._with_failures import WithFailures, default_share
from almoner._units import FAILURE, RANGE, exact, up
from almoner.curves import _residue, planned, renyi, tradeoff
from almoner.curves.planned import _table as planned_table
from almoner.errors import ArgumentError, Unsupported

BLOCKS_LEFT = 16  # a block takes about this part of what is left at most: larger blocks have better prices
SMALLER_BLOCKS = 8  # where a block has no price, one so many times smaller is tried
MORE_SLACK, LARGEST_SLACK = 64, 1 / 64
"""Where the slack of a block is less than rounding, it may be so many times larger, up to this part of what is left."""

MORE_SLACK_ONCE, LARGEST_SLACK_ONCE = 4, 1 / 4
"""Both for a plan that is there once: few rounds are bought beside it, for large parts of its change."""


@dataclass(frozen=True)
class _Left:
    plan: tuple[int, ...]  # of each mechanism of the plan
    change: int
    slack: int  # FAILURE units


@dataclass(frozen=True, kw_only=True)
class Planned(ByRemainder, WithFailures[int]):
    """A planned round costs one planned round; every other round is bought with planned rounds and change.

    Totals: ``used`` of each mechanism of the plan, ``paid``, ``got``, ``slack``, failures. Where no sum_delta is named,
    a thousandth of delta may go to failures out of what pays for slack: planned rounds lose nothing by it.

    Guarantee: totals that hold are (epsilon, delta)-DP.
    Source: theory 4.11; docs/proofs/planned-filter.md.
    """

    plan: mechanisms.Mechanism
    reserve: float = 0.0
    once: bool = False  # the plan is there once, and all that it leaves is change
    measure: ClassVar[str] = "planned rounds"
    theorem: ClassVar[str] = "theory 4.11; docs/proofs/planned-filter.md"

    def __post_init__(self) -> None:
        super().__post_init__()
        _check.number(reserve=self.reserve)
        if not 0 <= self.reserve < 1 or (self.once and self.reserve):
            told = "must be in [0, 1), a share of the planned rounds, and 0 beside counts"
            raise ArgumentError(f"reserve={self.reserve!r} {told}")
        if not isinstance(self.plan, mechanisms.Mechanism) or not self.parts:
            raise ArgumentError(f"plan={self.plan!r} must be a mechanism with at least one round")

    @cached_property
    def parts(self) -> planned.Plan:
        """The mechanisms of one planned round, and how often each runs in it."""
        return tuple(mechanisms.leaves(self.plan).items())

    @property
    def counts(self) -> tuple[int, ...]:
        """Count the runs of each mechanism in one planned round."""
        return tuple(count for _, count in self.parts)

    @cached_property
    def prices(self) -> planned.Prices:
        """Prices for the part of delta that is not set aside for failures."""
        share = float(exact(self.delta) - exact(self.sum_delta or 0.0)) * (1 - 2.0**-50)
        return _prices(self.parts, float(self.epsilon), share, float(self.reserve), self.once)

    @cached_property
    def sellers(self) -> tuple[planned.Prices, ...]:
        """Prices by what is given for a round: a whole planned round, or one kind of a plan that is there once."""
        return tuple(map(self.prices.of_kind, range(len(self.parts)))) if self.once else (self.prices,)

    def _whole_rounds(self, plan: Sequence[int]) -> int:
        """Planned rounds in what is there of each mechanism: whole ones; of a plan that is there once, single ones."""
        return sum(plan) if self.once else min(one // count for one, count in zip(plan, self.counts, strict=True))

    @property
    def columns(self) -> int:
        return len(self.parts) + 4

    def after(self, totals: Totals, mechanism: mechanisms.Mechanism) -> Totals:
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

    def holds_for(self, totals: Totals, delta: Fraction) -> bool:  # noqa: ARG002 - WithFailures has it
        if inf in totals:
            return False
        left = self._left(totals)
        return min(*left.plan, left.change, left.slack) >= 0

    def aside(self, totals: Totals) -> Fraction:  # noqa: ARG002 - WithFailures has it
        return exact(default_share(self.delta, may_fail=False) if self.sum_delta is None else self.sum_delta)

    def settle(self, mechanism: mechanisms.Mechanism, after: Totals) -> tuple[Self, Totals]:  # noqa: ARG002 - Notion has it
        return self, after  # the planned rounds are fixed from the start, and so is what is left for failures

    def spent(self, totals: Totals) -> int:
        """Planned rounds that do not fit any more."""
        return self._whole_rounds(self.person_most) - self.left(totals)

    def left(self, totals: Totals) -> int:
        """Planned rounds that still fit."""
        return 0 if inf in totals else max(0, self._whole_rounds(self._left(totals).plan))

    def asked(self, totals: Totals, mechanism: mechanisms.Mechanism) -> int | float:  # type: ignore[override]
        after = self.after(totals, mechanism)
        return inf if inf in after else self.left(totals) - self.left(after)

    def too_much(self, totals: Totals, mechanism: mechanisms.Mechanism) -> str:
        spent, left = self.spent(totals), self.left(totals)
        asked, of_what = mechanisms.leaves(mechanism), list(self.parts) if self.once else self.plan
        plan = f"the plan is {spent + left} rounds of {of_what!r}"
        if not left:
            return f"{plan}, and all of them are used"
        if not self.once and asked.keys() <= dict(self.parts).keys():
            needed = max(-(-count // dict(self.parts)[leaf]) for leaf, count in asked.items())
            return f"{plan}, of which {left} {_are(left)} left, and this takes {needed}"
        return (
            f"{plan}, of which {left} {_are(left)} left. Another mechanism is admitted in place of planned rounds that "
            f"are proven to reveal as much about a person; for this one that is not proven of all {left} together"
        )

    def person_limits(self) -> tuple[int, ...]:
        """Number of times each mechanism of the plan is there; change at the start, of which more is got on the way."""
        if self.sum_delta or self.reserve:
            raise Unsupported("accounts per person hold planned rounds alone: make Planned without reserve, sum_delta")
        return (*self.person_most, planned_table.opening(self.prices, float(self.epsilon)) if self.once else 0, 0)

    @property
    def person_most(self) -> tuple[int, ...]:
        """Number of times each mechanism of the plan is there at the start."""
        return tuple(count * self.prices.rounds for count in self.counts)

    def person_nothing_left(self) -> tuple[int, ...]:
        return self.person_limits()

    def person_holds(self, spent: NDArray[np.int64]) -> bool:
        used, paid, got = spent[:, :-2], spent[:, -2], spent[:, -1]
        *start, change, _ = self.person_limits()
        units = np.max(used, axis=0, initial=0) <= np.asarray(start)
        most_got = used @ np.asarray(planned_table.worths(self.prices), np.int64)
        return bool(np.all(spent >= 0) and np.all(units) and np.all(paid <= got + change) and np.all(got <= most_got))

    def person_units(self) -> dict[str, float]:
        start = {"start": self.person_limits()[-2]} if self.once else {}
        return {**self.prices.units(), **start, "share": planned_table.SHARE, "rule": planned_table.RULE}

    def person_left(self, spent: Array, xp: Library) -> Array:
        """Whole planned rounds; single ones of a plan that is there once."""
        each = (1,) * len(self.parts) if self.once else self.counts
        pairs = enumerate(zip(self.person_most, each, strict=True))
        columns = [(most - spent[:, column]) // count for column, (most, count) in pairs]
        return xp.astype((xp.sum if self.once else xp.min)(xp.stack(columns, axis=1), axis=1), xp.float64)

    def person_spent(self, spent: Array, opening: Array, xp: Library) -> Array:
        """Planned rounds that do not fit any more."""
        return self.person_left(opening, xp) - self.person_left(spent, xp)

    def person_opening(self, shares: NDArray[np.float64]) -> NDArray[np.int64]:
        """A share of the planned rounds, whole ones or of each kind, rounded down; all change at the start or none."""
        limits = np.asarray(self.person_limits(), np.int64)
        each = np.asarray((1,) * len(limits) if self.once else (*self.counts, 1, 1), np.int64)
        kept = each * np.floor(shares[:, None] * (limits // each) * (1 - 2.0**-50)).astype(np.int64)
        kept[:, -2:] = 0
        return limits - np.where(shares[:, None] == 1, limits, kept)

    def person_epsilon(self, opening: tuple[int, ...], delta: float, *, at_most: float | None = None) -> float:
        left = tuple(most - used for most, used in zip(self.person_most, opening, strict=False))
        if left == self.person_most:
            return self.statement(delta).epsilon
        own = inf if delta < self.delta else float(self.epsilon)
        if not any(left):
            return 0.0
        if at_most is not None:
            return at_most if self._bound(left, 0, at_most) <= delta else inf
        return min(own, self._least_epsilon(left, 0, delta))

    def person_curve(self, opening: tuple[int, ...]) -> tradeoff.Curve:
        return tradeoff.from_epsilons(lambda delta: self.person_epsilon(opening, delta), points=READ)

    def person_fits(self, spent: Array, cost: Array, xp: Library) -> tuple[Array, Mask]:
        fits = xp.all(cost < RANGE, axis=1)
        after = spent + xp.where(fits[:, None], cost, 0)
        *start, change, _ = self.person_limits()
        limits = xp.asarray(start, dtype=xp.int64, device=spent.device)
        fits = fits & xp.all(after[:, :-2] <= limits, axis=1) & (after[:, -2] <= after[:, -1] + change)
        return xp.where(fits[:, None], after, spent), fits

    def person_round(self, leaf: mechanisms.Mechanism) -> mechanisms.Mechanism:
        """A round of the plan as the plan has it."""
        if isinstance(leaf, mechanisms.SampledGaussian) and leaf.sample_rate == 1:
            leaf = mechanisms.Gaussian(leaf.sigma, leaf.sensitivity)
        for planned_leaf, _ in self.parts:
            if isinstance(planned_leaf, mechanisms.SampledGaussian) and planned_leaf.sample_rate == 1:
                gaussian = mechanisms.Gaussian(planned_leaf.sigma, planned_leaf.sensitivity)
                leaf = planned_leaf if leaf == gaussian else leaf
        return leaf

    def person_table(self, leaf: mechanisms.Mechanism) -> planned_table.Table:
        """For accounts per person: the prices of one round of the largest norm, by what is left.

        Guarantee: an account that spends at most ``person_limits()`` by these prices is (epsilon, delta)-DP.
        Source: theory 4.11, 4.12; docs/proofs/planned-filter.md, sections 6 and 7.
        """
        if leaf not in dict(self.parts):
            no_failures(leaf, "an account per person")
        return self.person_tables(leaf)[0](top=True)

    def person_tables(self, leaf: mechanisms.Mechanism) -> list[Callable[..., planned_table.Table]]:
        """Makers of price tables of all norms, for accounts per person; the first prices in rounds of the own kind.

        Guarantee: that of ``person_table``.
        """
        if not self.once:
            return [partial(planned_table.table, self.prices, leaf)]
        start = self.person_limits()[-2]
        places = planned_table.sellers(self.prices, leaf)
        return [partial(planned_table.table, self.prices, leaf, place, start) for place in places]

    def _converted(self, delta: float) -> float:
        return self._least_epsilon(self.person_most, self.prices.change, delta)

    def _bound(self, left: tuple[int, ...], change: int, epsilon: float) -> float:
        """The delta at epsilon of an account that starts with so much; where it is whole, of a person's too."""
        aside = float(exact(self.sum_delta or 0.0)) + self._slack / FAILURE
        found = self.prices.delta(left, change, epsilon=epsilon)
        if change and self.once and not self.sum_delta:
            found = max(found, planned_table.delta(self.prices, left, self.person_limits()[-2], epsilon))
        return (found + aside) * exp(planned.ERRORS) * (1 + 1e-12)

    def _least_epsilon(self, left: tuple[int, ...], change: int, delta: float) -> float:
        """About the least epsilon with this delta, rounded up."""
        low, high = 0.0, float(self.epsilon)
        while self._bound(left, change, high) > delta:
            low, high = high, 2 * high
            if high > 1e3 * self.epsilon:
                return inf
        while high - low > 1e-6 * high and high > 1e-9 * self.epsilon:
            middle = (low + high) / 2
            low, high = (low, middle) if self._bound(left, change, middle) <= delta else (middle, high)
        return high

    @cached_property
    def _slack(self) -> int:
        """Of the start, in FAILURE units."""
        return floor((exact(self.delta) - exact(self.sum_delta or 0.0)) * Fraction(self.prices.slack) * FAILURE)

    def _left(self, totals: Totals) -> _Left:
        plan = tuple(most - int(used) for most, used in zip(self.person_most, totals, strict=False))
        change = self.prices.change - int(totals[-4]) + int(totals[-3])
        return _Left(plan, change, self._slack - int(totals[-2]) - (int(totals[-1]) if self.sum_delta is None else 0))

    def _largest(self, plan: Sequence[int]) -> int:
        """Which seller's rounds, of what is left, have the largest variance in all: they are given for other rounds."""
        if not self.once:
            return 0
        return max(range(len(plan)), key=lambda place: (plan[place] * self.sellers[place].worth, -place))

    def _rounds(self, left: _Left) -> int:
        return left.plan[self._largest(left.plan)] if self.once else self._whole_rounds(left.plan)

    def _given(self, left: _Left, rounds: int) -> tuple[int, ...]:
        """Remainder of the plan's mechanisms after rounds of the seller were given."""
        place = self._largest(left.plan)
        units = [int(at == place) for at in range(len(left.plan))] if self.once else self.counts
        return tuple(one - count * rounds for count, one in zip(units, left.plan, strict=True))

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
        """Remainder after equal rounds, paid in blocks, those at one level in one go; None where they do not fit."""
        most = left.change // ceil(self.prices.size(leaf) + 1) if self.once else 0
        block = 1 << max(0, min(count, max(self._rounds(left), most) // BLOCKS_LEFT).bit_length() - 1)
        while count:
            block = min(block, 1 << (count.bit_length() - 1))
            bought = self._some_bought(left, leaf, block, count // block)
            if bought is None and block == 1:
                return None
            if bought is None:
                block = max(1, block // SMALLER_BLOCKS)
            else:
                left, count = bought[0], count - bought[1] * block
        return left

    def _some_bought(self, left: _Left, leaf: mechanisms.Mechanism, block: int, most: int) -> tuple[_Left, int] | None:
        """Remainder after some equal blocks, at least one and at most so many; and the number of blocks.

        Their slack is in proportion to their size; where rounding takes more than that, it is larger.
        """
        rounds = left.plan if self.once else (self._rounds(left),)
        worth = sum(count * seller.worth for count, seller in zip(rounds, self.sellers, strict=True))
        slack = floor(left.slack * min(1.0, self.prices.size(leaf) * block / (worth + left.change + 1)) / 2)
        more, largest = (MORE_SLACK_ONCE, LARGEST_SLACK_ONCE) if self.once else (MORE_SLACK, LARGEST_SLACK)
        while slack:
            bought = self._bought_with(left, leaf, block, most, _residue.ladder(slack))
            if bought is not None or slack * (more if self.once else 1) >= floor(left.slack * largest):
                return bought
            slack = min(slack * more, floor(left.slack * largest))
        return None

    def _bought_with(
        self, left: _Left, leaf: mechanisms.Mechanism, block: int, most: int, slack: int
    ) -> tuple[_Left, int] | None:
        prices, rounds = self.sellers[self._largest(left.plan)], self._rounds(left)
        beside = planned.rounds_at(planned.level(left.change)) if self.once else 0
        level, overhead = planned.level(rounds), prices.overhead(leaf) * block
        most = min(most, left.slack // (slack + overhead))
        payment, about = None, prices.size(leaf) * block
        if left.change >= about:
            payment = prices.payment(leaf, block, level=level, slack=slack, beside=beside)
            about = inf if payment is None else payment
        if payment is not None and left.change >= payment:
            blocks = min(most, left.change // payment, (left.change - beside) // payment + 1)
            if blocks:
                change = left.change - blocks * payment
                return _Left(left.plan, change, left.slack - blocks * (slack + overhead)), blocks
        exchange = prices.exchange(leaf, block, level=level, slack=slack) if most else None
        if exchange is None or rounds < exchange[0]:
            return None
        given, back = exchange
        blocks = min(most, (rounds - planned.rounds_at(level)) // given + 1, rounds // given)
        if about < inf:  # the change that comes back buys the rest
            blocks = min(blocks, max(1, ceil((most * about - left.change) / (about + back))))
        plan, change = self._given(left, blocks * given), left.change + blocks * back
        return _Left(plan, change, left.slack - blocks * (slack + overhead)), blocks


def _are(number: int) -> str:
    return "is" if number == 1 else "are"


@lru_cache(maxsize=32)
def _prices(plan: planned.Plan, epsilon: float, delta: float, reserve: float, once: bool) -> planned.Prices:
    return planned.Prices(plan, epsilon=epsilon, delta=delta, reserve=reserve, once=once)
