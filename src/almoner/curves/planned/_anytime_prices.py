"""Prices of rounds that are not planned, for a run of planned rounds whose bounds hold at every moment.

Names and symbols
    context   planned rounds that are left before the next checkpoint
    change    rounds of the smallest kind there is: randomised response of one step of the run's grid
    block     several equal rounds that are paid together
    slack     by how much a comparison of curves may fail, in FAILURE units

A block is bought for planned rounds, with change given back, or for change alone, if beside the context what is left
and the block are nowhere easier to tell apart than what there was. The price is valid beside any larger context.

Source: docs/proofs/planned-odometer.md, section 4; docs/proofs/planned-filter.md, sections 3 and 4
"""

from collections.abc import Hashable
from functools import lru_cache
from math import ceil, floor

from almoner import _check, mechanisms
from almoner._units import FAILURE
from almoner.curves._loss_grid import Grid, change, laws, spread
from almoner.curves.planned._anytime import ERRORS, Run
from almoner.curves.planned._prices import rounds_at
from almoner.curves.planned._round_price import CHANGE, Price, bundle, exchange_of_block, payment_for_block
from almoner.curves.planned._tails import Side

OUTSIDE = 1e-18  # mass of losses that may lie outside a grid's window
LARGEST_SIZE = 2**17  # largest size of a grid; what needs a larger one has no price


class Exchanges:
    """Prices of rounds that are not planned, for one run. All of it is public, and nothing in it is spent.

    Attributes:
        worth: the variance of one planned round's loss in units of change. A rule of thumb, no bound.
    """

    def __init__(self, run: Run) -> None:
        self._run = run
        self.worth = max(1, round(run.variance / run.step**2))
        self._priced = lru_cache(maxsize=2**12)(self._price)

    def price(self, mechanism: mechanisms.Mechanism, count: int, *, level: int, slack: int) -> Price:
        """The price of a block beside at least ``planned.rounds_at(level)`` planned rounds before the checkpoint.

        Args:
            mechanism: one round (no Repeated, no Composed) that cannot fail.
            count: rounds in the block, >= 1.
            level: public.
            slack: units of FAILURE, > 0; see :meth:`overhead` for what else the block takes of it.

        Guarantee: in both directions and at every real e, the curve after the exchange is at most the curve before it
            plus the slack, beside this context and every larger one.
        Source: docs/proofs/planned-odometer.md, section 4.
        """
        _check.whole(1, count=count, slack=slack)
        return self._priced(mechanism, count, level, slack)

    def size(self, mechanism: mechanisms.Mechanism) -> float:
        """The variance of a round's loss in units of change: about its price beside a large context. No bound."""
        return spread(laws(mechanism, self._run.step, self._run.cut)[0], self._run.step) ** 2 / self._run.step**2

    def overhead(self, mechanism: mechanisms.Mechanism, slack: int) -> int:
        """Units that a round takes from the whole slack for the relative error of its numbers."""
        error = max(law.error for law in laws(mechanism, self._run.step, self._run.cut))
        return ceil(error / ERRORS * slack)

    def _price(self, mechanism: mechanisms.Mechanism, count: int, level: int, slack: int) -> Price:
        here, block = rounds_at(level), dict[Hashable, int]({mechanism: count})
        grid, plan = self._grid(mechanism, count, here), self._run.plan
        if grid is None:
            return Price(None, 0, None)
        size, spare = count * self.size(mechanism), slack / FAILURE * (1 - 2.0**-20)
        given, back = exchange_of_block(grid, block, plan, here, size=size, worth=self.worth, spare=spare) or (None, 0)
        return Price(given, back, payment_for_block(grid, block, bundle(plan, here), size=size, spare=spare))

    def _grid(self, mechanism: mechanisms.Mechanism, count: int, rounds: int) -> Grid | None:
        """A grid of the run's step whose window holds these rounds; None where it would be too large."""
        step, cut = self._run.step, self._run.cut
        kinds = {one: (laws(one, step, cut), often * rounds) for one, often in self._run.plan}
        both, planned = kinds.get(mechanism, (laws(mechanism, step, cut), 0))
        kinds[mechanism] = both, planned + count
        sides = [Side([(pair[side], often) for pair, often in kinds.values()], step) for side in (0, 1)]
        ends = [side.reach(1, OUTSIDE) for side in sides]
        low = floor(min(0.0, *(end[0] for end in ends)) / step) - 2
        size = 1 << (ceil(max(0.0, *(end[1] for end in ends)) / step) + 2 - low).bit_length()
        if size > LARGEST_SIZE:
            return None
        grid = Grid(step, low, size)
        for kind, (pair, _) in kinds.items():
            grid.add(kind, pair)
        grid.add(CHANGE, change(step))
        return grid
