"""What a round costs an account whose remainder is the planned round itself, composed as often as is left.

Names and symbols
    plan       the mechanisms of one planned round, and how often each runs in it
    rounds     k, planned rounds that are left
    change     w, rounds of the smallest kind there is (randomised response of one grid step) that are left
    slack      by how much the bound may fail on the way; it is paid from delta

The delta that is still promised at a loss l is the curve of "k planned rounds and w of change", at epsilon - l. A
planned round takes one k, with no slack. Any other round is *bought*: for change, or for planned rounds with change
given back, if what is left and the round bought are no easier to tell apart than what there was. A price that is valid
beside some planned rounds is valid beside more: prices are worked out on a falling grid of k.

Source: docs/proofs/planned-filter.md; theory 4.11.
"""

from collections.abc import Callable, Hashable
from dataclasses import dataclass
from math import ceil, floor, log2, sqrt

from bursar import mechanisms
from bursar._units import FAILURE
from bursar.curves import gaussian
from bursar.curves.lattice import Grid, Law, change, laws, reach, spread

__all__ = ["CHANGE", "MOST", "Price", "Prices", "at"]

Plan = tuple[tuple[mechanisms.Mechanism, int], ...]

CHANGE = "change"
"""The name of the smallest round in a bundle."""

MOST = 10**7
"""More planned rounds than this are not looked for."""

_FINE = 0.1  # step of the grid, as a part of the standard deviation of one planned round's loss
_OUTSIDE = 1e-17  # mass that may lie outside the window
_PER_OCTAVE = 4  # levels of k between one power of two and the next


@dataclass(frozen=True, slots=True)
class Price:
    """What one round, or a block of equal rounds, takes. Every field is public.

    Attributes:
        rounds: planned rounds that are given for it.
        back: change that is given back with them.
        change: the price in change alone; None where change does not buy it.
    """

    rounds: int | None
    back: int
    change: int | None


class Prices:
    """Prices of rounds, for one plan at one (epsilon, delta). All public; nothing in it is spent.

    Attributes:
        rounds: how many planned rounds fit, if nothing else is run.
        worth: the variance of one planned round's loss in units of change: a rule of thumb, no bound.

    Guarantee: an account that starts with ``rounds`` planned rounds and ``change`` of change, gives one planned round
        for each planned round and prices of :meth:`price` for all others, with slacks that add up to at most
        ``slack``, is (epsilon, delta)-DP at every stopping time.
    Source: theory 4.11; docs/proofs/planned-filter.md.
    """

    def __init__(self, plan: Plan, epsilon: float, delta: float) -> None:
        self._plan = plan
        self._slack = 1e-2 * delta
        variance = sum(count * spread(both[0], 1e-4) ** 2 for both, count in _parts(plan, 1e-4, 1e-20))
        most = min(MOST, ceil(1.2 * gaussian.mu(epsilon=epsilon, delta=delta) ** 2 / max(variance, 1e-300)) + 10)
        self._cut = 1e-3 * self._slack / most
        self._grid = _fitted(plan, most, 2.0**-3, 13, self._cut)
        coarse = self._rounds(epsilon, delta, most)
        self._cut = 1e-3 * self._slack / (2 * coarse + 2)
        self._grid = _fitted(plan, ceil(1.02 * coarse) + 2, _FINE * sqrt(variance), 18, self._cut)
        self.rounds = self._rounds(epsilon, delta, ceil(1.5 * coarse) + 10)
        self.worth = max(1, round(variance / self._grid.step**2))

    def _bundle(self, rounds: int) -> dict[Hashable, int]:
        return {mechanism: count * rounds for mechanism, count in self._plan}

    def _rounds(self, epsilon: float, delta: float, most: int) -> int:
        """The most planned rounds that fit."""
        few, many = 0, most + 1
        while many - few > 1:
            middle = (few + many) // 2
            if self._grid.delta(self._bundle(middle), epsilon) <= delta:
                few = middle
            else:
                many = middle
        return few

    def delta(self, rounds: int, change: int, epsilon: float) -> float:
        """An upper bound on the delta at any epsilon of what is left."""
        return self._grid.delta({**self._bundle(rounds), CHANGE: change}, epsilon)

    def price(self, mechanism: mechanisms.Mechanism, count: int, level: int, slack: int) -> Price:
        """The price of a number of equal rounds, at every state with at least ``at(level)`` planned rounds left."""
        if mechanism not in self._grid:
            self._grid.add(mechanism, laws(mechanism, self._grid.step, self._cut))
        spare = slack / FAILURE * (1 - 2.0**-40)
        block = {mechanism: count}
        here = at(level)
        size = count * spread(laws(mechanism, self._grid.step, self._cut)[0], self._grid.step) ** 2 / self._grid.step**2

        def bought(change: int) -> bool:
            return self._grid.covers(block, {CHANGE: change}, self._bundle(here), spare)

        def exchanged(rounds: int, back: int) -> bool:
            context = self._bundle(here - rounds)
            return self._grid.covers({**block, CHANGE: back}, self._bundle(rounds), context, spare)

        alone = _least(bought, ceil(size), 40 * ceil(size) + 40)
        rounds = _least(lambda j: exchanged(j, 0), ceil(size / self.worth), here) if here else None
        if rounds is None:
            return Price(None, 0, alone)
        guess = max(0, floor(rounds * self.worth - size))
        over = _least(lambda c: not exchanged(rounds, c), guess, rounds * self.worth + 1)
        return Price(rounds, (over if over is not None else rounds * self.worth + 1) - 1, alone)


def at(level: int) -> int:
    """Planned rounds at a level: 2**(level / 4), rounded down."""
    return floor(2.0 ** (level / _PER_OCTAVE))


def _least(holds: Callable[[int], bool], guess: int, most: int) -> int | None:
    """The least number in [1, most] for which this holds (from there on), near a guess; None if there is none."""
    high = max(1, min(guess, most))
    step = max(1, high // 32)
    low = 0
    if holds(high):
        while high - step > 0 and holds(high - step):
            high -= step
            step *= 2
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


def _parts(plan: Plan, step: float, cut: float) -> list[tuple[tuple[Law, Law], int]]:
    return [(laws(mechanism, step, cut), count) for mechanism, count in plan]


def _fitted(plan: Plan, rounds: int, step: float, finest: int, cut: float) -> Grid:
    """A grid whose window holds so many planned rounds; the step at most this if the finest size allows it."""
    parts = [(both, count * rounds) for both, count in _parts(plan, 1e-3, cut)]
    low = min(reach([(both[side], count) for both, count in parts], 1e-3, _OUTSIDE)[0] for side in (0, 1))
    high = max(reach([(both[side], count) for both, count in parts], 1e-3, _OUTSIDE)[1] for side in (0, 1))
    low, high = 1.3 * low - 0.05, 1.3 * high + 0.05
    size = min(2 ** max(14, ceil(log2((high - low) / step))), 2**finest)
    step = (high - low) / size
    grid = Grid(step, floor(low / step), size)
    for mechanism, _ in plan:
        grid.add(mechanism, laws(mechanism, step, cut))
    grid.add(CHANGE, change(step))
    return grid
