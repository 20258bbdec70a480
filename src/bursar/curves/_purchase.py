"""What a block of rounds costs beside planned rounds that are left: the search for the price.

The search proves nothing: only a price that ``Grid.covers`` says yes to is given.

Source: docs/proofs/planned-filter.md, sections 3 and 4
"""

from collections.abc import Callable, Hashable
from dataclasses import dataclass
from math import ceil, floor

from bursar import mechanisms
from bursar.curves.lattice import Grid

__all__ = ["CHANGE", "Plan", "Price", "bundle", "price_of_block"]

Plan = tuple[tuple[mechanisms.Mechanism, int], ...]
"""The mechanisms of one planned round, and how often each runs in it."""

CHANGE = "change"
"""The kind of the smallest round there is, on every grid of prices."""

DEAREST = 64  # times what its variance suggests: a price above that is not looked for


@dataclass(frozen=True, slots=True)
class Price:
    """What a block of rounds takes. Every field is public.

    Attributes:
        rounds: planned rounds that buy it; None where all that are left do not.
        back: change that is given back with them.
        change: the price in change alone; None where change does not buy it.
    """

    rounds: int | None
    back: int
    change: int | None


def bundle(plan: Plan, rounds: int) -> dict[Hashable, int]:
    """How often each mechanism runs in so many planned rounds."""
    return {mechanism: count * rounds for mechanism, count in plan}


def price_of_block(
    grid: Grid,
    plan: Plan,
    mechanism: mechanisms.Mechanism,
    count: int,
    *,
    rounds: int,
    size: float,
    worth: int,
    spare: float,
) -> Price:
    """The price of equal rounds beside planned rounds that are left.

    Args:
        grid: holds the plan's mechanisms, this one, and CHANGE.
        plan: one planned round.
        mechanism: one round.
        count: rounds in the block, >= 1.
        rounds: planned rounds that are left.
        size: the variance of the block's loss, in units of change: where the search begins.
        worth: the variance of one planned round's loss, in units of change.
        spare: by how much the curve may be larger after the purchase.

    Guarantee: after the purchase the curve is nowhere above the curve before it by more than ``spare``, in both
        directions, beside so many planned rounds and beside more.
    Source: docs/proofs/planned-filter.md, sections 3 and 4.
    """
    block: dict[Hashable, int] = {mechanism: count}

    def buys(change: int) -> bool:
        return grid.covers(block, {CHANGE: change}, bundle(plan, rounds), spare)

    def exchanges(given: int, back: int) -> bool:
        return grid.covers({**block, CHANGE: back}, bundle(plan, given), bundle(plan, rounds - given), spare)

    change = _least(buys, ceil(1.02 * size), ceil(DEAREST * size))
    given = _least(lambda some: exchanges(some, 0), ceil(size / worth), rounds)
    if given is None:
        return Price(None, 0, change)
    most = given * worth + 1
    refused = _least(lambda back: not exchanges(given, back), max(1, floor(most - 1 - size)), most)
    return Price(given, (refused or most) - 1, change)


def _least(holds: Callable[[int], bool], guess: int, most: int) -> int | None:
    """The least number in [1, most] for which this holds, if it holds from there on; None if it does not for most."""
    if most < 1:
        return None
    high = max(1, min(guess, most))
    low, step = 0, max(1, high // 32)
    if holds(high):
        while high - step > 0 and holds(high - step):
            high, step = high - step, 2 * step
        low = max(0, high - step)
    else:
        while not holds(high):
            if high >= most:
                return None
            low, high, step = high, min(most, high + step), 2 * step
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if holds(middle) else (middle, high)
    return high
