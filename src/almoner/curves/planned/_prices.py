"""Prices of rounds for an account whose remainder is the planned round itself, composed as often as is left.

Names and symbols
    plan       the mechanisms of one planned round, and how often each runs in it
    rounds     k, planned rounds that are left
    change     w, rounds of the smallest kind there is (randomised response of one grid step) that are left
    block      several equal rounds that are paid together
    slack      by how much the bound may fail on the way, in FAILURE units; it is paid from delta

What is still promised at a loss l is the privacy curve of k planned rounds and w of change, at epsilon - l. A planned
round takes one k, with no slack. Any other round is *bought*: for change, or for planned rounds with change given back,
if what is left beside the round bought is no easier to tell apart than what there was. A price that is valid beside
some planned rounds is valid beside more: prices are worked out on a falling grid of k. The search for a price proves
nothing: only one that ``Grid.covers`` says yes to is given.

Source: theory 4.11; docs/proofs/planned-filter.md
"""

from collections.abc import Callable, Hashable
from copy import copy
from dataclasses import dataclass
from functools import cached_property, lru_cache, partial
from math import ceil, expm1, floor, inf, log2
from typing import Self

import numpy as np
from numpy.typing import NDArray

from almoner import _check, mechanisms
from almoner._units import FAILURE, exact
from almoner.curves._loss_grid import Grid, Law, Untilted, change, laws, spread
from almoner.curves._residue import secant
from almoner.curves.planned._rounds import Estimate, first_estimate, largest, tilted_estimate
from almoner.errors import ArgumentError

SLACK = 0.01
"""Part of delta that pays for slack, where that costs less than LOST of the planned rounds."""

LEAST_SLACK = 1e-5
"""Least part of delta that pays for slack."""

MOST_ROUNDS = 10**7
"""Most planned rounds of a plan; no more are looked for."""

LOST = 0.002  # largest part of the planned rounds that is given up for slack
ROUNDS_PRECISION = 5000  # the number of planned rounds at the start is found to within one in so many
TILTED, EACH = 1e-8, 1e-14  # a delta below this, or below this for each planned round, is counted under a tilt
LEAST_DELTA = 1e-20  # smaller deltas are refused: slack is counted in units of about this
ERRORS = 1e-5  # relative errors that rounds outside the plan may add up to: paid in proportion with the slack
MAX_WIDENING = 0.002  # largest relative growth of the variance of a planned round's loss by the grid
MAX_WIDENING_FEW = 0.0004  # the same for plans of at most FEW rounds
MAX_WIDENING_ONCE = 0.00005  # the same for a plan that is there once: of it, a part of a round is a round
FEW = 400  # planned rounds up to which the grid is made finer, where its largest size allows it
LEAK = 1e-3  # mass of all planned rounds together that counts as infinite, as a part of the most slack
SMALLEST_SIZE, FINEST_SIZE = 13, 18  # sizes of the grid, as powers of two
OUTSIDE = 1e-17  # mass of the plan's losses that may lie outside the window
MARGIN, NARROW = 1.3, 1.1  # factor by which the window is wider than the plan needs; under a tilt
FAR, MANY = 1e-14, 25 * 10**4  # OUTSIDE under a tilt; rounds above which the finest grid is twice as fine
PER_OCTAVE = 4  # levels of k between one power of two and the next

Floats = NDArray[np.float64]
Purchase = tuple[dict[Hashable, int], dict[Hashable, int], dict[Hashable, int]]
Bundles = Callable[[int], dict[Hashable, int]]

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


class Prices:
    """Prices of rounds for one plan and one budget. All of it is public, and nothing in it is spent.

    Args:
        plan: the mechanisms of one planned round, and how often each runs in it.
        epsilon, delta: nats, > 0, and in (0, 1).
        reserve: in [0, 1): the share of the planned rounds that is turned into change at the start.
        once: the plan is there once, and all that it leaves of the budget is change.

    Attributes:
        rounds: how many planned rounds there are at the start.
        change: how much change there is at the start.
        slack: the part of delta that pays for slack, at most ``SLACK``.
        plan, grid, cut: as given; where purchases are certified; mass that laws leave out at either end.
        worth: the variance of one planned round's loss in units of change. A rule of thumb, no bound.

    Guarantee: an account that starts with ``rounds`` and ``change``, gives one planned round for each planned round and
        what :meth:`payment` or :meth:`exchange` says for others, is (epsilon, delta)-DP at every stopping time, if the
        slacks add up to at most ``slack`` times delta.
    Source: theory 4.11; docs/proofs/planned-filter.md.

    Raises:
        ArgumentError: not even one planned round fits.
        Unsupported: a mechanism of the plan has no privacy loss distribution here.
    """

    def __init__(self, plan: Plan, *, epsilon: float, delta: float, reserve: float = 0.0, once: bool = False) -> None:
        if delta < LEAST_DELTA:
            raise ArgumentError(
                f"plan={plan!r} does not fit once: delta={delta!r} is below {LEAST_DELTA:g}, which is too small"
            )
        self.plan, self._delta, self._epsilon = plan, delta, epsilon
        leak = LEAK * SLACK * delta
        about = first_estimate(plan, epsilon=epsilon, delta=delta, most=MOST_ROUNDS, outside=OUTSIDE, leak=leak)
        self._far = delta < max(TILTED, EACH * about.rounds)
        far = partial(tilted_estimate, plan, epsilon=epsilon, delta=delta, most=MOST_ROUNDS, outside=FAR, leak=leak)
        about = far() if self._far else about
        self.grid, self.cut = self._fitted(about, leak, once)
        if self._far and not once:  # a grid counts many rounds better than the estimate, also where it is too narrow
            fit = self._roughly_fitting(delta, epsilon, max(about.rounds, 1), MOST_ROUNDS, self._beside(0))
            if fit > 1.05 * about.rounds + 2:
                about = far(fit=fit)
                self.grid, self.cut = self._fitted(about, leak, once)
        self.worth = max(1, round(sum(count * self.size(one) for one, count in plan)))
        target, most = delta * (1 - ERRORS) * (1 - 1e-12), min(MOST_ROUNDS, 2 * about.rounds + 20)
        full, self.slack = self._start(target, epsilon, max(about.rounds, 1), 1 if once else most)
        if once and not full:
            raise ArgumentError(self._too_large(target * (1 - LEAST_SLACK), epsilon))
        self.change = self._room(target * (1 - self.slack), epsilon) if once else floor(reserve * full * self.worth)
        self.rounds = full
        if self.change and not once:
            kept = max(1, floor((1 - reserve) * full))
            self.rounds = self._fitting(target * (1 - self.slack), epsilon, kept, full, self._beside(self.change))
        if not self.rounds:
            beside = f" beside reserve={reserve!r}" if full else ""
            raise ArgumentError(f"plan={plan!r} does not fit once into epsilon={epsilon!r}, delta={delta!r}{beside}")
        if self._far:  # what a tilted unit of slack is worth at the start, and a little more
            self.grid.promise(self._beside(self.change)(self.rounds), epsilon, delta)
        leaks = [count * max(law.leak for law in self._laws(one)) for one, count in plan]
        self._leaks = expm1(min(1.01 * self.rounds * sum(leaks), 700.0))
        self._remember()

    def of_kind(self, place: int) -> Self:
        """Prices of an account whose rounds are those of one mechanism of a plan that is there once.

        Guarantee: valid beside all else that is left of the plan; the slack is that of the whole plan.
        Source: theory 4.12; docs/proofs/planned-filter.md, section 7.
        """
        mechanism, count = self.plan[place]
        kind = copy(self)
        kind.plan, kind.rounds, kind.change = ((mechanism, 1),), count * self.rounds, 0
        kind.worth = max(1, round(self.size(mechanism)))
        kind._remember()
        return kind

    @property
    def all_slack(self) -> float:
        """The probability that pays for slack: the part ``slack`` of delta, rounded down."""
        return self.slack * self._delta * (1 - 2.0**-40)

    def spare(self, slack: float) -> float:
        """By how much the curves of a purchase may differ, for it to use at most so much slack beside all else."""
        return slack / (1 + self._leaks) * (1 - 2.0**-20)

    def units(self) -> dict[str, float | int]:
        """Unit in which small change is counted: one for all accounts that share saved states."""
        grid = self.grid
        return {"step": grid.step, "size": grid.size, "low": grid.low, "rounds": self.rounds, "change": self.change}

    def delta(self, left: tuple[int, ...], change: int, *, epsilon: float) -> float:
        """Bound delta at an epsilon for so many of each mechanism of the plan and so much change.

        Guarantee: not below the delta of their composition, in either direction.
        Source: docs/proofs/planned-filter.md, sections 4 and 7.
        """
        kinds: dict[Hashable, int] = {one: count for (one, _), count in zip(self.plan, left, strict=True)}
        found = self.grid.delta({**kinds, CHANGE: change}, epsilon)
        near = not self._far or epsilon == self._epsilon
        return found if near else min(found, self._plain.delta({**kinds, CHANGE: change}, epsilon))

    @cached_property
    def _plain(self) -> Grid:
        """The grid without a tilt: sharper at epsilons that are far from the budget's, and for some loud rounds."""
        grid = Untilted(self.grid)
        for mechanism, _ in self.plan:
            grid.add(mechanism, self._laws(mechanism))
        grid.add(CHANGE, change(self.grid.step))
        return grid

    def payment(
        self, mechanism: mechanisms.Mechanism, count: int, *, level: int, slack: int, beside: int = 0
    ) -> int | None:
        """The price of a block in change alone; None where change does not buy it.

        Args:
            mechanism: one round (no Repeated, no Composed); its own failure probability is in the price.
            count: rounds in the block, >= 1.
            level: public; at least ``rounds_at(level)`` planned rounds are left.
            slack: units of FAILURE, > 0; see :meth:`overhead` for what else the block takes of it.
            beside: change that there is before the payment; 0 leaves it out of account.

        Guarantee: valid with this slack at every state with at least so many planned rounds, and so much change.
        Source: theory 4.11; docs/proofs/planned-filter.md, sections 1 to 4.
        """
        _check.whole(1, count=count, slack=slack)
        return self._paid(mechanism, count, level, slack, beside)

    def exchange(
        self, mechanism: mechanisms.Mechanism, count: int, *, level: int, slack: int
    ) -> tuple[int, int] | None:
        """Planned rounds that buy a block, and change that is given back; None where those left do not buy it.

        Arguments as of :meth:`payment`.

        Guarantee: valid with this slack at every state with at least so many planned rounds.
        Source: theory 4.11; docs/proofs/planned-filter.md, sections 1 to 4.
        """
        _check.whole(1, count=count, slack=slack)
        return self._exchanged(mechanism, count, level, slack)

    def size(self, mechanism: mechanisms.Mechanism) -> float:
        """The variance of a round's loss in units of change: about its price while much is left. No bound."""
        if self._far:  # the logarithm of exp(t loss), which adds up, in place of the variance
            self._know(mechanism)
            scales = [[float(self.grid.scale({kind: 1}, side)) for kind in (mechanism, CHANGE)] for side in (0, 1)]
            return max(one / other for one, other in scales)
        return float(spread(self._laws(mechanism)[0], self.grid.step) ** 2 / self.grid.step**2)

    def overhead(self, mechanism: mechanisms.Mechanism) -> int:
        """Units of FAILURE that a round takes from the slack for the relative error of its numbers."""
        self._know(mechanism)
        return ceil(self.grid.error(mechanism) / ERRORS * self.slack * self._delta * FAILURE)

    def _remember(self) -> None:
        self._paid = lru_cache(maxsize=2**12)(self._payment)
        self._exchanged = lru_cache(maxsize=2**12)(self._exchange)

    def _payment(self, mechanism: mechanisms.Mechanism, count: int, level: int, slack: int, beside: int) -> int | None:
        self._know(mechanism)
        block: dict[Hashable, int] = {mechanism: count}
        context = bundle(self.plan, rounds_at(level))
        sums = {"size": count * self.size(mechanism), "spare": self.spare(slack / FAILURE)}
        found = [payment_for_block(grid, block, context, beside=beside, **sums) for grid in self._grids]
        return min((change for change in found if change is not None), default=None)

    def _exchange(self, mechanism: mechanisms.Mechanism, count: int, level: int, slack: int) -> tuple[int, int] | None:
        self._know(mechanism)
        block, here = dict[Hashable, int]({mechanism: count}), rounds_at(level)
        sums = {"size": count * self.size(mechanism), "spare": self.spare(slack / FAILURE)}
        found = [exchange_of_block(grid, block, self.plan, here, worth=self.worth, **sums) for grid in self._grids]
        return min((pair for pair in found if pair), key=lambda pair: pair[0] * self.worth - pair[1], default=None)

    @property
    def _grids(self) -> tuple[Grid, ...]:
        return (self.grid, self._plain) if self._far else (self.grid,)

    def _know(self, mechanism: mechanisms.Mechanism) -> None:
        for grid in self._grids:
            if mechanism not in grid:
                grid.add(mechanism, self._laws(mechanism))

    def _laws(self, mechanism: mechanisms.Mechanism) -> tuple[Law, Law]:
        return laws(mechanism, self.grid.step, self.cut, self._far)

    def _start(self, target: float, epsilon: float, guess: int, most: int) -> tuple[int, float]:
        """Find the number of planned rounds at the start, and the part of delta that pays for slack.

        All but LOST of the rounds that fit are kept: the slack is what they leave of delta, at most ``SLACK``.
        """
        full = self._fitting(target * (1 - LEAST_SLACK), epsilon, min(guess, most), most, self._beside(0))
        kept = ceil((1 - LOST) * full)
        left = 1 - self.delta(tuple(bundle(self.plan, kept).values()), 0, epsilon=epsilon) / target
        if left < SLACK or kept == full:
            return kept, min(SLACK, max(LEAST_SLACK, left))
        return self._fitting(target * (1 - SLACK), epsilon, full, full, self._beside(0)), SLACK

    def _beside(self, change: int) -> Bundles:
        return lambda rounds: {**bundle(self.plan, rounds), CHANGE: change}

    def _room(self, target: float, epsilon: float) -> int:
        """The most change that fits beside the plan, once."""
        one: dict[Hashable, int] = {**bundle(self.plan, 1)}
        if self.delta(tuple(one.values()), 1, epsilon=epsilon) > target:
            return 0
        most = 2 * self.grid.size**2  # of its variance the window holds less
        return self._fitting(target, epsilon, self.worth, most, lambda change: {**one, CHANGE: change})

    def _too_large(self, target: float, epsilon: float) -> str:
        """Tell the largest scale at which a plan fits."""

        def scaled(part: int) -> dict[Hashable, int]:
            return {one: count * part // 1000 for one, count in self.plan}

        part = self._fitting(target, epsilon, 900, 999, scaled)
        counts = [count for count in scaled(part).values() if isinstance(count, int)]
        fits = f"counts of {counts} fit ({part / 10:g} %)" if any(counts) else "no part of it does"
        return f"plan={list(self.plan)!r} does not fit into epsilon={epsilon!r}, delta={self._delta!r}: {fits}"

    def _fitting(self, target: float, epsilon: float, guess: int, most: int, bundle_of: Bundles) -> int:
        """The largest number whose bundle fits, to one in ROUNDS_PRECISION; at most ``most``.

        The search looks roughly; the number that it finds is certified, and smaller ones where that fails.
        """
        rounds = self._roughly_fitting(target, epsilon, guess, most, bundle_of)
        fewer = max(1, rounds // ROUNDS_PRECISION)
        while rounds and self.grid.delta(bundle_of(rounds), epsilon) > target:
            rounds, fewer = max(0, rounds - fewer), 2 * fewer
        return rounds

    def _roughly_fitting(self, target: float, epsilon: float, guess: int, most: int, bundle_of: Bundles) -> int:
        looks = {"guess": guess, "most": most, "to": ROUNDS_PRECISION}
        return largest(lambda rounds: self.grid.rough_delta(bundle_of(rounds), epsilon), target, **looks)

    def _fitted(self, about: Estimate, leak: float, once: bool) -> tuple[Grid, float]:
        """A grid whose window holds the planned rounds, and the mass of a law's ends that it leaves out."""
        cut = leak / (ceil(1.02 * about.rounds) + 2)
        margin = NARROW if self._far else MARGIN
        low, high, size = margin * about.ends[0] - 0.05, margin * about.ends[1] + 0.05, 2**SMALLEST_SIZE
        finest = FINEST_SIZE + (about.rounds > MANY)
        widened = MAX_WIDENING_ONCE if once else MAX_WIDENING if about.rounds > FEW else MAX_WIDENING_FEW
        while size < 2**finest and about.widened((high - low) / size) > 1 + widened:
            size *= 2
        step = (high - low) / size
        grid = Grid(step, floor(low / step), size, about.tilts, about.under)
        for mechanism, _ in self.plan:
            grid.add(mechanism, laws(mechanism, step, cut, self._far))
        grid.add(CHANGE, change(step))
        return grid, cut


def rounds_at(level: int) -> int:
    """Planned rounds at a level: 2**(level / 4), rounded down; none below level 0."""
    return floor(2.0 ** (level / PER_OCTAVE)) if level >= 0 else 0


def level(rounds: int) -> int:
    """The highest level with at most so many planned rounds; -1 with none."""
    if rounds < 1:
        return -1
    guess = floor(PER_OCTAVE * log2(rounds + 1)) + 1
    while rounds_at(guess) > rounds:
        guess -= 1
    return guess


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

    def bought(change: int) -> Purchase:
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

    def bought(given: int, net: int) -> Purchase:
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
    bought: Callable[[int], Purchase],
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
        wanted = secant(*before, number, gap) if before is not None and known else near
        if (turn > 4 and turn % 2) or not low < wanted < high:
            wanted = min(2 * low, most) if high > most else (low + high) / 2
        before = number, gap
        number = min(max(ceil(wanted), low + 1), high - 1)
    return high if high <= most else None
