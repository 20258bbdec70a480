"""Prices of a round for people whose accounts hold planned rounds and change.

Names and symbols
    left      how often each mechanism of the plan is left
    change    what is left of it: what was there at the start, and got, less paid
    cost      (n, m + 2): how many of each mechanism of the plan, change paid, change got; all of them grow

Source: theory 4.11, 5.1; docs/proofs/planned-filter.md, sections 6 and 7
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, cast

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
    """Prices at each person's norm and context."""

    context: list[Array]  # valid while so many are left
    given: list[Array]
    back: Array
    change: Array
    sold: Mask  # for planned rounds that are there
    paid: Mask  # for change

    def or_else(self, other: "_Prices", stuck: Mask, xp: Library) -> "_Prices":
        """Prices of the other for those who are stuck at these; valid until either context changes."""

        def chosen(one: Any, two: Any) -> Any:
            return xp.where(stuck, two, one)

        return _Prices(
            list(map(xp.maximum, self.context, other.context)),
            list(map(chosen, self.given, other.given)),
            *(chosen(getattr(self, part), getattr(other, part)) for part in ("back", "change", "sold", "paid")),
        )


@dataclass(frozen=True, slots=True, eq=False)
class FromPlan:
    """Prices on a grid of norms and of planned rounds that are left; norms are rounded up, what is left down.

    A person who has the price in change pays in change, and any other exchanges planned rounds. Who can do neither by
    the first table looks at the next; it is built when somebody does.
    """

    tables: tuple[Callable[[], Table], ...]
    start: tuple[int, ...]  # how often each mechanism is there at the start, and change
    times: int  # rounds one after the other
    sensitivity: float | None
    full: None = None

    @property
    def grid(self) -> NDArray[np.float64]:
        return self.tables[0]().norms

    def __call__(self, given: Array, spent: Array, xp: Library) -> tuple[Array, Mask]:
        """RANGE for a person who cannot pay. Rounds with the same price are paid in one go."""
        norms = xp.astype(given, xp.float64, copy=False)
        known = (norms >= 0) & (norms <= float(self.grid[-1]))
        row = xp.searchsorted(xp.asarray(self.grid, device=given.device), xp.where(known, norms, 0.0))
        *counts, start = self.start
        nothing, columns = xp.zeros_like(spent[:, 0]), len(counts)
        todo = xp.where(known & (row > 0), min(self.times, self.tables[0]().most + 1), 0)
        mine = [count - spent[:, column] for column, count in enumerate(counts)]
        changed = spent.shape[1] > columns  # an account of one number holds no change
        change = start + spent[:, columns + 1] - spent[:, columns] if changed else nothing
        left = _Left(mine, change, nothing, nothing, todo)
        lost = cast(Mask, xp.zeros_like(known))
        while bool(xp.any(left.todo > 0)):
            prices, once = self._prices(self.tables[0](), row, left, xp), cast(Mask, xp.zeros_like(known))
            for table in self.tables[1:]:
                stuck = (left.todo > 0) & ~prices.sold & ~(prices.paid & (left.change >= prices.change))
                if bool(xp.any(stuck)):
                    once = once | (stuck & prices.paid)  # the change that comes back may pay by the table before
                    prices = prices.or_else(self._prices(table(), row, left, xp), stuck, xp)
            # as many rounds as the change that each person has pays for
            runs = xp.where(prices.paid, xp.minimum(left.change // prices.change, left.todo), 0)
            left.change, left.paid = left.change - runs * prices.change, left.paid + runs * prices.change
            left.todo = left.todo - runs
            lost = lost | self._exchange(left, prices, once, xp)
        after = [count - one for count, one in zip(counts, left.mechanisms, strict=True)]
        used = [one - spent[:, column] for column, one in enumerate(after)]
        cost = xp.stack([*used, left.paid, left.got] if changed else used, axis=1)
        return xp.where(lost[:, None], RANGE, cost), known

    def allowance(self, left: Array, xp: Library) -> Array | None:  # noqa: ARG002 - Costs has it
        return None

    def _prices(self, table: Table, row: Array, left: _Left, xp: Library) -> _Prices:
        contexts, column = xp.asarray(table.contexts, device=row.device), xp.zeros_like(row)
        if len(left.mechanisms) == 1:
            column = xp.searchsorted(contexts[:, 0], left.mechanisms[0], side="right") - 1
        else:
            there = xp.stack(left.mechanisms, axis=1)
            for at in range(1, len(table.contexts)):
                column = xp.where(xp.all(there >= contexts[at, ...], axis=1), at, column)
        place, parts = row * len(table.contexts) + column, (table.given, table.back, table.change)
        units, back, change = (xp.take(xp.asarray(part.ravel(), device=row.device), place) for part in parts)
        sold, paid = (units > 0) & (units < NEVER), (change > 0) & (change < NEVER)
        given = [xp.where(sold, units, 1) * each for each in table.unit]
        for one, many in zip(left.mechanisms, given, strict=True):
            sold = sold & (one >= many)
        least = [xp.take(contexts[:, at], column) for at in range(len(given))]
        return _Prices(least, given, back, xp.where(paid, change, 1), sold, paid)

    def _exchange(self, left: _Left, prices: _Prices, once: Mask, xp: Library) -> Mask:
        """Exchange until the context changes, with what change pays for in between, not after; who cannot go on."""
        price, back = prices.change, prices.back
        # times t with t + (change + (t - 1) back) // price <= todo, where change is below the price; at this price
        # nobody pays for more rounds than all change buys and all units do, and no product overflows
        payable = (xp.zeros_like(price) + self.tables[0]().most) // price + sum(self.start[:-1]) + 1
        todo = xp.minimum(left.todo, payable)
        last = -(-((todo + 1) * price - left.change + back) // (price + back)) - 1
        times = xp.where(prices.paid, last, left.todo)
        for one, taken, least in zip(left.mechanisms, prices.given, prices.context, strict=True):
            each = xp.where(taken > 0, taken, 1)
            most = xp.minimum(one // each, (one - least) // each + 1)
            times = xp.where(taken > 0, xp.minimum(times, most), times)
        times = xp.where(prices.sold & (left.todo > 0), xp.where(once & (times > 1), 1, times), 0)
        lost: Mask = (left.todo > 0) & (times <= 0)
        times = xp.where(lost, 0, times)
        runs = xp.where(prices.paid & (times > 0), (left.change + (times - 1) * back) // price, 0)
        left.mechanisms = [one - times * taken for one, taken in zip(left.mechanisms, prices.given, strict=True)]
        left.got, left.paid = left.got + times * back, left.paid + runs * price
        left.change = left.change + times * back - runs * price
        left.todo = xp.where(lost, 0, left.todo - times - runs)
        return lost
