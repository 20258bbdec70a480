"""Search for the price of a block of rounds beside planned rounds that are left.

The search looks roughly and proves nothing: only a price that ``Grid.covers`` says yes to is given.

Source: docs/proofs/planned-filter.md, sections 3 and 4
"""

from collections.abc import Callable, Hashable
from dataclasses import dataclass
from math import ceil, inf

import numpy as np
from numpy.typing import NDArray

from almoner import mechanisms
from almoner._units import exact
from almoner.curves._loss_grid import Grid

Floats = NDArray[np.float64]
Bundles = tuple[dict[Hashable, int], dict[Hashable, int], dict[Hashable, int]]

Plan = tuple[tuple[mechanisms.Mechanism, int], ...]
"""The mechanisms of one planned round, and how often each runs in it."""

CHANGE = "change"  # the kind of the smallest round there is, on every grid of prices
DEAREST = 64  # no price is looked for above so many times what the variance suggests
BLOCK_DIVISOR = 4  # a block of several rounds may cost at most a quarter of the planned rounds that are left
MOST_GIVEN = 1000  # planned rounds that one block may cost beyond DEAREST
FINENESS = 500  # a rough search finds the least number to within one in so many
CERTIFICATES = 5  # certificates tried for one price, each for a gap larger by the errors of the one before
TRIED = 5  # numbers of planned rounds tried: what a rough search found, and 1, 3, 7 ... more
TURNS = 60  # most steps of a rough search


@dataclass(frozen=True, slots=True)
class Price:
    """Price of a block of rounds. Every field is public."""

    rounds: int | None  # planned rounds that buy it; None where all that are left do not
    back: int  # change that is given back with them
    change: int | None  # the price in change alone; None where change does not buy it


def bundle(plan: Plan, rounds: int) -> dict[Hashable, int]:
    """Count the runs of each mechanism in so many planned rounds."""
    return {mechanism: count * rounds for mechanism, count in plan}


def no_louder(mechanism: mechanisms.Mechanism, planned: mechanisms.Mechanism) -> bool:
    """True if a round is a planned one with as much noise or more, a rate as small or smaller, an epsilon as small.

    Guarantee: True only if in both directions the curve of the round is nowhere above that of the planned one: it may
        be charged as one, without slack, whatever else is left.
    Source: theory 2.1 to 2.3 and 2.6; docs/proofs/planned-odometer.md, section 4.
    """
    match mechanism, planned:
        case (mechanisms.Laplace(), mechanisms.Laplace()):
            less = exact(mechanism.sensitivity) * exact(planned.scale)
            return less <= exact(planned.sensitivity) * exact(mechanism.scale)
        case (mechanisms.Pure() | mechanisms.RandomizedResponse(), mechanisms.Pure() | mechanisms.RandomizedResponse()):
            return mechanism.epsilon <= planned.epsilon
        case (
            mechanisms.Gaussian() | mechanisms.SampledGaussian(),
            mechanisms.Gaussian() | mechanisms.SampledGaussian(),
        ):
            ours, theirs = (getattr(one, "sample_rate", 1.0) for one in (mechanism, planned))
            less_shift = exact(mechanism.sensitivity) * exact(planned.sigma)
            return ours <= theirs and less_shift <= exact(planned.sensitivity) * exact(mechanism.sigma)
    return False


def payment_for_block(
    grid: Grid, block: dict[Hashable, int], context: dict[Hashable, int], *, size: float, spare: float, beside: int = 0
) -> int | None:
    """Change that buys a block of rounds beside a context; None where none is found.

    Args:
        grid: holds the kinds of the block and of the context, and CHANGE.
        size: the variance of the block's loss, in units of change: where the search begins.
        spare: by how much the curve may be larger after the purchase.
        beside: change that there is before the payment; 0 leaves it out of account.

    Guarantee: after the purchase the curve is nowhere above the curve before it by more than ``spare``, in both
        directions, beside this context and beside more.
    Source: docs/proofs/planned-filter.md, sections 3 and 4.
    """
    there = {kind: count for kind, count in context.items() if count}  # the error bounds count a kind of which none is

    def bought(change: int) -> Bundles:
        return block, {CHANGE: change}, {**there, CHANGE: max(beside - change, 0)} if beside else context

    def look(spare: float) -> int | None:
        return _least(lambda change: grid.rough_gaps(*bought(change)), spare, ceil(1.02 * size), int(most))

    most = min(ceil(DEAREST * size), beside or inf)
    return _certified(grid, bought, look, int(most), spare, step=1 + int(size / FINENESS) if beside else 1)


def exchange_of_block(
    grid: Grid, block: dict[Hashable, int], plan: Plan, rounds: int, *, size: float, worth: int, spare: float
) -> tuple[int, int] | None:
    """Planned rounds that buy a block, and change that is given back with them; None where those left do not buy it.

    Arguments as of ``payment_for_block``; worth, the variance of one planned round's loss in units of change.

    Guarantee: as of ``payment_for_block``.
    Source: docs/proofs/planned-filter.md, sections 3 and 4.
    """

    def bought(given: int, net: int) -> Bundles:
        less: dict[Hashable, int] = {**block, CHANGE: given * worth - net}
        return less, bundle(plan, given), bundle(plan, rounds - given)

    def least_net(given: int, known: Floats | None) -> int | None:
        def look(spare: float) -> int | None:
            guess = min(most, max(ceil(1.02 * size), most - worth))
            return _least(lambda net: grid.rough_gaps(*bought(given, net)), spare, guess, most, known)

        most = given * worth
        return _certified(grid, lambda net: bought(given, net), look, most, spare)

    looked = dict[int, Floats]()

    def without_back(given: int) -> Floats:
        looked[given] = grid.rough_gaps(*bought(given, given * worth))
        return looked[given]

    most = rounds if sum(block.values()) == 1 else rounds // BLOCK_DIVISOR  # smaller blocks are there otherwise
    dearest = min(most, ceil(DEAREST * size / worth) + MOST_GIVEN)
    least = _least(without_back, spare, ceil(size / worth), dearest)
    for turn in range(TRIED) if least is not None else ():
        given = min((least or 1) + (1 << turn) - 1, rounds)
        net = least_net(given, looked.get(given))
        if net is not None:
            return given, given * worth - net
    return None


def _certified(
    grid: Grid,
    bought: Callable[[int], Bundles],
    look: Callable[[float], int | None],
    most: int,
    spare: float,
    step: int = 1,
) -> int | None:
    """A price up to ``most`` that is certified; None where none was found.

    What a rough look finds may fail by the errors that it does not count: the next look is for that much less.
    """
    number, error = look(spare), 0.0
    for turn in range(CERTIFICATES):
        if number is None or number > most:
            return None
        if grid.covers(*bought(number), spare):
            return number
        if number >= most:
            return None
        error = max(1.05 * grid.doubt(*bought(number)), 2 * error)
        if not error < spare:
            return None
        number = max(look(spare - error) or most, min(number + (step << turn), most))
    return None


def _least(
    gaps_at: Callable[[int], Floats], spare: float, guess: int, most: int, at_most: Floats | None = None
) -> int | None:
    """About the least number in [1, most] at which no gap is below minus ``spare``; None where one is at ``most``.

    The secant method for all points at once, between a number that is too small and one that is not. No proof.
    Args: at_most, the gaps at ``most`` where they are known and not below.
    """
    if most < 1:
        return None
    low, high, number = 0, most + (at_most is None), max(1, min(guess, most))
    before = None if at_most is None else (most, at_most + spare)
    for turn in range(TURNS if low < high - 1 else 0):
        gap = gaps_at(number) + spare
        low, high = (low, number) if gap.min() >= 0 else (number, high)
        if low >= most:
            return None
        if high <= most and high - low <= max(1, low // FINENESS):
            return high
        near = number + (-1 if high == number else 1) * max(1, number // 32)
        known = before is not None and before[0] != number and len(before[1]) == len(gap)
        wanted = _secant(before, (number, gap)) if before is not None and known else near
        if (turn > 4 and turn % 2) or not low < wanted < high:
            wanted = min(2 * low, most) if high > most else (low + high) / 2
        before = number, gap
        number = min(max(ceil(wanted), low + 1), high - 1)
    return high if high <= most else None


def _secant(before: tuple[int, Floats], after: tuple[int, Floats]) -> float:
    """The least number at which no gap is negative, were they affine in it; inf where that is nowhere."""
    slope = (after[1] - before[1]) / (after[0] - before[0])
    with np.errstate(divide="ignore", invalid="ignore"):
        wanted = np.where(slope > 0, after[0] - after[1] / slope, np.where(after[1] < 0, inf, 0.0))
    return float(wanted.max())
