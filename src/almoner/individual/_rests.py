"""Give people back what rounding up has cost them, as soon as it is a whole unit.

A step that costs a third is a third of a unit more in an account that holds whole units, and three of them would not
fit into a budget of one. What each person who paid the full price has paid too much is kept beside the account, in
fine units, and taken off the next full price. So a person who takes part fully can afford what a filter admits.

Names and symbols
    over    fine units by which the full price of a step is rounded up, public
    rest    (n, 1) int64 fine units, below one unit of the account, private: what was paid too much at least
    spare   fine units by which the limit of an account is rounded down, public: the rest that everybody starts with

Guarantee: units * 10**15 - rest + spare, in fine units, is never below the sum of the exact prices. So where units are
    within the limit, that sum is within the exact limit, limit * 10**15 + spare.
Source: theory 5.1; docs/proofs/individual-filter.md, "Whole units".
"""

from typing import Any

import numpy as np

from almoner import mechanisms
from almoner._arrays import Array, Library, Mask, to_numpy
from almoner._notions import MOST, Budget
from almoner._units import FINE, MEASURE
from almoner.errors import ArgumentError
from almoner.individual._accounts import with_rows
from almoner.individual._costs import Costs, TakingPart

__all__ = ["Rests"]

_GRAINS = FINE // MEASURE
"""Fine units in one of an account."""


class Rests:
    """Amounts that people have paid too much, in fine units. Made at the first step whose full price is rounded up."""

    def __init__(self, notion: Budget[Any], xp: Library, device: object, *, shares: bool) -> None:
        self._notion, self._xp, self._device = notion, xp, device
        self._start = 0 if shares else notion.person_spare()
        self._held: Array | None = None

    def over(self, step: mechanisms.Mechanism, costs: Costs) -> int:
        """Fine units by which the full price is rounded up; 0 where that is not kept.

        Of steps that charge by the norm it is kept only where a full payer would lose a round by it: it is slow.
        """
        if costs.full is None or len(costs.full) > 1 or not 0 < costs.full[0] < MOST:
            return 0
        leaf, count = mechanisms.repeated(step)
        over = self._notion.person_over(self._notion.person_round(leaf), count)
        if isinstance(costs, TakingPart) or not over:
            return over
        most = self._notion.person_limits()[0]
        exactly = costs.full[0] * _GRAINS - over
        loses = most // costs.full[0] < (most * _GRAINS + self._start) // exactly
        return over if loses else 0

    def of(self, where: slice | Array, people: int) -> Array:
        """(n, 1) rests in a block of rows, or in rows by number, of so many people in all."""
        held = self._held
        known = 0 if held is None else held.shape[0]
        if held is None or known < people:
            new = self._xp.full((people - known, 1), self._start, dtype=self._xp.int64, device=self._device)
            self._held = held = new if held is None else self._xp.concat([held, new])
        return held[where, ...] if isinstance(where, slice) else self._xp.take(held, where, axis=0)

    def lessen(self, cost: Array, full: int, over: int, rest: Array) -> tuple[Array, Array]:
        """(n, 1) costs less what was paid too much, and the rests of those who then pay."""
        whole = cost == full
        after = rest + self._xp.where(whole, over, 0)
        back = whole & (after >= _GRAINS)
        return cost - self._xp.astype(back, cost.dtype), after - self._xp.where(back, _GRAINS, 0)

    def keep(self, where: slice | Array, rest: Array) -> None:
        if self._held is not None:
            self._held = with_rows(self._held, where, rest, self._xp, self._device)

    def undo(self, people: Mask, over: int) -> Array:
        """Take back what was kept of one full price of (n, 1) people: units to add to those who have less than that."""
        rest = self.of(slice(None), people.shape[0]) - self._xp.where(people, over, 0)
        borrowed = rest < 0
        self._held = rest + self._xp.where(borrowed, _GRAINS, 0)
        return self._xp.astype(borrowed, self._xp.int64)

    def clear(self, where: slice | Array, people: int, lost: Mask) -> None:
        """Leave nothing to those, (k,), of a block of rows, or of rows by number, of so many people in all."""
        if self._held is not None or self._start:
            self.keep(where, self._xp.where(lost[:, None], 0, self.of(where, people)))

    def state(self) -> dict[str, list[int]]:
        return {} if self._held is None else {"rests": to_numpy(self._held)[:, 0].tolist()}

    def restore(self, state: dict[str, Any], people: int) -> None:
        """Take over saved rests, checked."""
        if "rests" not in state:
            return
        rests = np.asarray(state["rests"])
        if rests.dtype != np.int64 or rests.ndim != 1 or len(rests) > people:
            raise ArgumentError("state: rests must be whole numbers, one for each person")
        if np.any(rests < 0) or np.any(rests >= _GRAINS):
            raise ArgumentError("state: rests must be below one unit")
        self._held = self._xp.asarray(rests[:, None].copy(), device=self._device)
