"""Prices of a round for people whose accounts hold planned rounds and change.

Names and symbols
    left      how often each mechanism of the plan is left; whole, planned rounds that are left
    change    what is left of it: got, less paid
    cost      (n, m + 2): how many of each mechanism of the plan, change paid, change got; all of them grow

Source: theory 4.11, 5.1; docs/proofs/planned-filter.md, section 6
"""

from dataclasses import dataclass
from functools import reduce
from typing import cast

import numpy as np
from numpy.typing import NDArray

from almoner._arrays import Array, Library, Mask
from almoner._units import RANGE
from almoner.curves.planned._table import NEVER, Table

__all__ = ["FromPlan"]


@dataclass(slots=True)
class _Left:
    """Remainders of some people, and what they have paid; changed in place, round by round."""

    mechanisms: list[Array]
    change: Array
    paid: Array
    got: Array
    todo: Array


@dataclass(frozen=True, slots=True)
class _Prices:
    """Prices at each person's norm and level."""

    level: Array
    given: Array
    back: Array
    change: Array
    sold: Mask  # whether it is sold for planned rounds
    paid: Mask  # whether it is sold for change


@dataclass(frozen=True, slots=True, eq=False)
class FromPlan:
    """Prices on a grid of norms and of planned rounds that are left; norms are rounded up, what is left down.

    A person who has the price in change pays in change, and any other exchanges planned rounds.
    """

    table: Table
    plan: tuple[int, ...]  # how often each mechanism runs in a planned round; 0 for those that prices do not look at
    start: tuple[int, ...]  # how often each is there at the start
    times: int  # rounds one after the other
    sensitivity: float | None
    full: None = None

    @property
    def grid(self) -> NDArray[np.float64]:
        """The norms of the table."""
        return self.table.norms

    def __call__(self, given: Array, spent: Array, xp: Library) -> tuple[Array, Mask]:
        """RANGE for a person who cannot pay. Rounds with the same price are paid in one go."""
        norms = xp.astype(given, xp.float64, copy=False)
        known = (norms >= 0) & (norms <= float(self.grid[-1]))
        row = xp.searchsorted(xp.asarray(self.grid, device=given.device), xp.where(known, norms, 0.0))
        columns, nothing = len(self.plan), xp.zeros_like(spent[:, 0])
        todo = xp.where(known & (row > 0), min(self.times, self.table.most + 1), 0)
        mine = [count - spent[:, column] for column, count in enumerate(self.start)]
        left = _Left(mine, spent[:, columns + 1] - spent[:, columns], nothing, nothing, todo)
        lost = cast(Mask, xp.zeros_like(known))
        while bool(xp.any(left.todo > 0)):
            prices = self._prices(row, left, xp)
            self._pay(left, prices, xp)
            lost = lost | self._exchange(left, prices, xp)
        after = [count - one for count, one in zip(self.start, left.mechanisms, strict=True)]
        used = [one - spent[:, column] for column, one in enumerate(after)]
        cost = xp.stack([*used, left.paid, left.got], axis=1)
        return xp.where(lost[:, None], RANGE, cost), known

    def allowance(self, left: Array, xp: Library) -> Array | None:  # noqa: ARG002 - Costs has it
        return None

    def _prices(self, row: Array, left: _Left, xp: Library) -> _Prices:
        device = row.device
        there = [one // count for one, count in zip(left.mechanisms, self.plan, strict=True) if count]
        whole = reduce(xp.minimum, there)
        levels = xp.asarray(self.table.levels, device=device)
        column = xp.searchsorted(levels, whole, side="right") - 1
        place = row * len(self.table.levels) + column
        given, back, change = (
            xp.take(xp.asarray(part.ravel(), device=device), place)
            for part in (self.table.given, self.table.back, self.table.change)
        )
        sold, paid = (given > 0) & (given < NEVER), (change > 0) & (change < NEVER)
        return _Prices(xp.take(levels, column), xp.where(sold, given, 1), back, xp.where(paid, change, 1), sold, paid)

    def _pay(self, left: _Left, prices: _Prices, xp: Library) -> None:
        """As many rounds as the change that each person has pays for."""
        runs = xp.where(prices.paid, xp.minimum(left.change // prices.change, left.todo), 0)
        left.change, left.paid = left.change - runs * prices.change, left.paid + runs * prices.change
        left.todo = left.todo - runs

    def _exchange(self, left: _Left, prices: _Prices, xp: Library) -> Mask:
        """Exchange until the level changes, with what the change pays for in between; who cannot go on.

        The last exchange is not followed by payments: the level may be another one then.
        """
        unit = [
            (one, count, each) for one, count, each in zip(left.mechanisms, self.plan, self.table.unit, strict=True)
        ]
        price, back = prices.change, prices.back
        # times t with t + (change + (t - 1) back) // price <= todo, where change is below the price; at this price
        # nobody pays for more rounds than all change buys and all units do, and no product overflows
        payable = (xp.zeros_like(price) + self.table.most) // price + sum(self.start) + 1
        todo = xp.minimum(left.todo, payable)
        last = -(-((todo + 1) * price - left.change + back) // (price + back)) - 1
        times = xp.where(prices.paid, last, left.todo)
        for one, count, each in unit:
            if each:
                taken = prices.given * each
                times = xp.minimum(times, xp.minimum(one // taken, (one - prices.level * count) // taken + 1))
        times = xp.where(prices.sold & (left.todo > 0), times, 0)
        lost: Mask = (left.todo > 0) & (times <= 0)
        times = xp.where(lost, 0, times)
        runs = xp.where(prices.paid & (times > 0), (left.change + (times - 1) * back) // price, 0)
        left.mechanisms = [one - times * prices.given * each for one, _, each in unit]
        left.got, left.paid = left.got + times * back, left.paid + runs * price
        left.change = left.change + times * back - runs * price
        left.todo = xp.where(lost, 0, left.todo - times - runs)
        return lost
