"""Bounds for a run of planned rounds that hold whenever it is stopped: what stopping is worth, by going backwards.

Names and symbols
    K_1 < K_2 < ...   checkpoints, in planned rounds
    law         of one planned round, on an even grid of losses
    e_j, c_j    at checkpoint j: an epsilon, and a factor >= 1
    V_j(l)      what stopping at checkpoint j or later is worth at most, at a loss l now:
                V_j(l) = max(c_j (1 - exp(e_j - l))_+, E[V_{j+1}(l + loss of the rounds between)])
    level       theta: the part of delta whose epsilons for fixed numbers of rounds are the e_j

Up to checkpoint j the bound is e_j with c_j = 1 (ex-post), or e_j - log(1 - 1/c_j) (pathwise). The promise holds with
probability V_0(0), and an adversary who stops best reaches it: the level is the largest at which V_0(0) fits delta.

``Exchanges`` has the prices of rounds that are not planned: a block of equal rounds is bought for planned rounds, with
change given back, or for change alone, if beside the context (planned rounds left before the next checkpoint) what is
left and the block are nowhere easier to tell apart than what there was. The price is valid beside any larger context.

Source: docs/proofs/planned-odometer.md; docs/proofs/planned-filter.md, sections 3 and 4; theory 1.5 and 6.1.
"""

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from math import ceil, exp, floor, inf, log, log1p, log2

import numpy as np
from numpy.typing import NDArray
from scipy import fft

from almoner import _check, mechanisms
from almoner._units import FAILURE
from almoner.curves._loss_grid import TILTS, Grid, Law, Spectrum, change, laws, log_sums, power, spread
from almoner.curves.planned._prices import CHANGE, Plan, Price, bundle, exchange_of_block, payment_for_block, rounds_at
from almoner.errors import ArgumentError

Floats = NDArray[np.float64]
Values = NDArray[np.floating]
Kind = type[np.floating]

MOST_ROUNDS = 10**6
"""Most planned rounds of a plan."""

PER_OCTAVE = 6  # checkpoints between one power of two and the next
END = 0.3  # part of delta that the end of the plan has for itself, at least
BEYOND = 0.25  # part of the plan by which the last checkpoint lies beyond it, for rounds that are not planned
SLACK = 0.01
"""Part of delta that pays for rounds that are not planned."""

ERRORS = 1e-4
"""Relative errors that rounds that are not planned may add up to: paid in proportion with the slack."""

STEP = 0.15  # step of the grid in standard deviations of a planned round's loss, where the largest size allows it
MEDIUM_SIZE, LARGEST_SIZE = 2**15, 2**17  # of transforms and grids; beyond the former the step is first doubled
OUTSIDE = 1e-18  # mass of losses that may lie outside a grid's window
PRECISE = np.longdouble  # numbers of 64 bits or more, as the machine has it
FACTORS = (2.0, 3.0, 5.0, 8.0, 13.0, 21.0, 34.0, 55.0)  # choice for c_j of the pathwise bound
FINENESS = 16  # levels between one power of two and the next
LEVELS = 12 * FINENESS  # levels tried, down to 2**-12
_TILTS = np.asarray(TILTS)
_PARTS = np.linspace(log(1e-7), 0.0, 121)  # logarithms of the parts of delta at which curves are tabulated


def checkpoints(rounds: int) -> tuple[int, ...]:
    """Numbers of planned rounds at which bounds change: all of the first few, then geometric; ``rounds`` among them."""
    last = rounds + ceil(BEYOND * rounds) + 16
    places = {rounds, last}
    at = 1
    while at < last:
        places.add(at)
        at = max(at + 1, floor(at * 2 ** (1 / PER_OCTAVE)))
    return tuple(sorted(places))


@dataclass(frozen=True, slots=True)
class Bounds:
    """Bounds up to each checkpoint, nats. Every field is public.

    Attributes:
        epsilons: (j,) the bound while at most so many planned rounds were run.
        level: the part of delta whose epsilons for fixed numbers they are.
    """

    epsilons: tuple[float, ...]
    level: float


@dataclass(frozen=True, slots=True)
class _Window:
    """Where what stopping is worth is tabulated: losses from ``low`` steps on; above and below it is padded."""

    low: int
    length: int
    above: int
    below: int

    @property
    def size(self) -> int:
        """Of transforms: the next power of two."""
        return 1 << (self.length + self.above + self.below - 1).bit_length()


class Side:
    """One direction of one planned round on the grid: its transform, and what its tails weigh."""

    def __init__(self, parts: Sequence[tuple[Law, int]], step: float) -> None:
        self.parts = parts
        self.leak = 1.01 * sum(count * law.leak for law, count in parts)
        self.error = sum(count * law.error for law, count in parts)
        self.up, self.down = np.zeros(len(_TILTS)), np.zeros(len(_TILTS))
        for law, count in parts:
            places = step * (law.first + np.arange(len(law.weights)))
            with np.errstate(divide="ignore"):
                logs = np.log(law.weights)
            self.up += count * np.concatenate([log_sums(logs[None] + tilt * places) for tilt in _TILTS])
            self.down += count * np.concatenate([log_sums(logs[None] - tilt * places) for tilt in _TILTS])

    def reach(self, rounds: int, outside: float) -> tuple[float, float]:
        """Losses between which all but so much of the mass lies, on either side: Chernoff's inequality."""
        low, high = rounds * self.down - log(outside), rounds * self.up - log(outside)
        return -float((low / _TILTS).min()), float((high / _TILTS).min())

    def above(self, rounds: int, loss: float) -> float:
        """A bound on the mass above a loss."""
        return exp(min(0.0, float((rounds * self.up - _TILTS * loss).min())))

    def spectrum(self, size: int, kind: Kind) -> Spectrum:
        """The Fourier coefficients of one planned round."""
        product: Spectrum = np.ones(size // 2 + 1, dtype=np.result_type(kind, np.complex64))
        for law, count in self.parts:
            folded = np.zeros(size, kind)
            np.add.at(folded, (law.first + np.arange(len(law.weights))) % size, law.weights)
            product = product * power(fft.rfft(folded), count)
        return product


class Run:
    """A run of planned rounds, whose bounds hold at every moment at once. All of it is public.

    Args:
        plan: the mechanisms of one planned round, and how often each runs in it.
        rounds: how many planned rounds there are, in [1, 10**6].
        delta: in (0, 1); what the bounds may use together.

    Attributes:
        checkpoints: the numbers of planned rounds up to which the bounds hold; beyond the last there is none.
        step: of the grid of losses, nats.
        cut: the mass of a law's ends that is left out.

    Raises:
        Unsupported: a mechanism of the plan has no privacy loss distribution here.
    """

    def __init__(self, plan: Plan, rounds: int, *, delta: float) -> None:
        _check.whole(1, rounds=rounds)
        _check.between(0, 1, delta=delta)
        if rounds > MOST_ROUNDS:
            raise ArgumentError(f"rounds={rounds!r} must be at most {MOST_ROUNDS}")
        self.plan, self.rounds, self.delta = plan, rounds, delta
        self.checkpoints = checkpoints(rounds)
        self.cut = 1e-7 * delta / self.checkpoints[-1]
        self.step = 1e-3
        for _ in range(2):
            self.step = STEP * max(self.variance, 1e-24) ** 0.5
        self._sides, self._window = self._fitted()
        fine = 2 * self.step
        while self._window.size > (MEDIUM_SIZE if self.step < fine else LARGEST_SIZE):
            self.step *= 1.15
            self._sides, self._window = self._fitted()

    @cached_property
    def ex_post(self) -> Bounds:
        """Bounds U with E[(1 - exp(U - L))_+] <= delta, less the slack, at every stopping time; L the realised loss.

        Guarantee: the value, relative errors included, is at most delta (1 - SLACK) (1 - 2 ERRORS).
        Source: docs/proofs/planned-odometer.md, sections 2 and 5.
        """
        return self._solved(np.ones(len(self.checkpoints)))

    @cached_property
    def pathwise(self) -> Bounds:
        """Bounds U with P(the loss is ever at or above U) <= delta, less the slack.

        Guarantee: the value, relative errors included, is at most delta (1 - SLACK) (1 - 2 ERRORS).
        Source: docs/proofs/planned-odometer.md, sections 3 and 5.
        """
        usual = [self._epsilons(0.1, np.full(len(self.checkpoints), factor)) - log1p(-1 / factor) for factor in FACTORS]
        return self._solved(np.asarray(FACTORS)[np.argmin(usual, axis=0)])

    @property
    def slack(self) -> float:
        """Slack that all comparisons of curves for rounds that are not planned may use together."""
        return SLACK * self.delta / (2 * max(FACTORS)) * (1 - 2.0**-40)

    @property
    def variance(self) -> float:
        """Of the loss of one planned round, on the grid; a rule of thumb, no bound."""
        laws_of = ((laws(one, self.step, 1e-20)[0], count) for one, count in self.plan)
        return sum(count * spread(law, self.step) ** 2 for law, count in laws_of)

    def _fitted(self) -> tuple[tuple[Side, Side], _Window]:
        """Both directions on a grid of this step, and a window for them; outside of it bounds are only looser."""
        parts = [(laws(one, self.step, self.cut), count) for one, count in self.plan]
        sides = tuple(Side([(both[side], count) for both, count in parts], self.step) for side in (0, 1))
        last, gaps = self.checkpoints[-1], set(np.diff((0, *self.checkpoints)).tolist())
        low = min(0.0, *(side.reach(last, 1e-4)[0] for side in sides))
        high = max(0.0, *(side.reach(last, 1e-6 * self.delta)[1] for side in sides))
        above = max(side.reach(gap, 1e-7 * self.delta)[1] for side in sides for gap in gaps)
        below = max(-side.reach(gap, 1e-6 * self.delta)[0] for side in sides for gap in gaps)
        low_place = floor(low / self.step) - 1
        length = ceil(high / self.step) + 2 - low_place
        window = _Window(
            low_place, length, ceil(max(above, 0.0) / self.step) + 2, ceil(max(below, 0.0) / self.step) + 2
        )
        return (sides[0], sides[1]), window

    def _solved(self, factors: Floats) -> Bounds:
        """The largest level that is proven to fit, near the largest that looks as if it fits."""
        room = self.delta * (1 - SLACK) * (1 - 2 * ERRORS)
        guess = floor(-FINENESS * log2(0.1))
        quick = [self._value(2.0 ** (-guess / FINENESS), factors, side, precise=False) for side in (0, 1)]
        order = (0, 1) if quick[0] >= quick[1] else (1, 0)
        value = max(quick)
        for _ in range(4):  # the value is nearly in proportion with the level
            move = round(FINENESS * log2(max(value, 1e-300) / room))
            if not move or guess + move not in range(LEVELS):
                break
            guess += move
            value = self._value(2.0 ** (-guess / FINENESS), factors, order[0], precise=False)
        for steps in range(guess, LEVELS):
            level = 2.0 ** (-steps / FINENESS)
            if all(self._value(level, factors, side, precise=True) <= room for side in order):
                return Bounds(tuple(self._bounds(level, factors).tolist()), level)
        raise ArgumentError("delta must be at least about 1e-12 for bounds that follow a plan: take odometers.Renyi")

    def _bounds(self, level: float, factors: Floats) -> Floats:
        bounds = self._epsilons(level, factors) - np.log1p(-1 / np.where(factors > 1, factors, inf))
        least = np.minimum.accumulate(bounds[::-1])[::-1]  # what holds up to a later checkpoint holds before it
        return np.asarray(least + 4e-12 * (1 + least))

    def _value(self, level: float, factors: Floats, side: int, *, precise: bool) -> float:
        """V_0(0) in one direction, with bounds on all errors."""
        epsilons, window, half = self._epsilons(level, factors), self._window, self._sides[side]
        losses = self.step * (window.low + np.arange(window.length))
        top, error, kind = float(factors.max()), 0.0, PRECISE if precise else np.float64
        value: Values = np.zeros(window.length, kind)
        for at in range(len(self.checkpoints) - 1, -1, -1):
            gap = self.checkpoints[at] - (self.checkpoints[at - 1] if at else 0)
            gain = factors[at] * -np.expm1(np.minimum(epsilons[at] - losses, 0.0))
            padded: Values = np.empty(window.size, kind)
            padded[: window.length] = np.maximum(value, gain * (1 + 2.0**-50))
            padded[window.length :] = padded[0]
            padded[window.length : window.size - window.below] = top
            mean, doubt = _mean(padded, self._power_of(side, gap, precise), self._larger(side, precise), gap)
            error += doubt + top * half.above(gap, self.step * (window.size - window.length - window.below))
            value = np.maximum(mean[: window.length], 0.0) + top * gap * half.leak
        return (float(value[-window.low]) + error) * exp(self.checkpoints[-1] * half.error) * (1 + 1e-12)

    def _epsilons(self, level: float, factors: Floats) -> Floats:
        """The epsilon of each checkpoint at its part of delta, from tables; no bound."""
        part = np.full(len(self.checkpoints), level)
        part[self.checkpoints.index(self.rounds)] = max(level, END)
        wanted = np.log(part / factors)
        epsilons = np.array([np.interp(one, _PARTS, row) for one, row in zip(wanted, self._curves, strict=True)])
        if (factors == 1).all():  # what holds up to a later checkpoint holds before it
            return np.asarray(np.minimum.accumulate(epsilons[::-1])[::-1])
        return epsilons

    @cached_property
    def _curves(self) -> Floats:
        """(j, parts) epsilons of so many rounds fixed in advance, the larger direction, about; no bound."""
        window = self._window
        losses = self.step * (window.low + np.arange(window.length))
        down = np.exp(-np.clip(losses, -650.0, 650.0))
        up = np.where(losses < 640.0, 1 / down, 0.0)  # above, all mass counts
        rows = np.zeros((2, len(self.checkpoints), len(_PARTS)))
        for side in (0, 1):
            product: Spectrum = np.ones(1, np.complex128)
            before = 0
            for at, rounds in enumerate(self.checkpoints):
                product, before = product * self._power_of(side, rounds - before, False), rounds
                density = np.roll(fft.irfft(product, window.size), -window.low)[: window.length]
                mass, weighed = (np.cumsum(one[::-1])[::-1] for one in (density, density * down))
                curve = np.maximum.accumulate((mass - weighed * up)[::-1])
                rows[side, at] = np.maximum(np.interp(self.delta * np.exp(_PARTS), curve, losses[::-1]), 0.0)
        return np.asarray(rows.max(axis=0))

    @cached_property
    def _power_of(self) -> Callable[[int, int, bool], Spectrum]:
        """The Fourier coefficients of so many planned rounds in one direction, in long precision or not."""

        def of(side: int, rounds: int, precise: bool) -> Spectrum:
            if rounds > 1:
                return power(self._power_of(side, 1, precise), rounds)
            return self._sides[side].spectrum(self._window.size, PRECISE if precise else np.float64)

        return lru_cache(maxsize=512)(of)

    @cached_property
    def _larger(self) -> Callable[[int, bool], Floats]:
        """Bounds on the sizes of the true coefficients of one planned round."""

        def larger(side: int, precise: bool) -> Floats:
            parts, kind = sum(count for _, count in self.plan), PRECISE if precise else np.float64
            size = np.abs(self._power_of(side, 1, precise)).astype(np.float64)
            return np.asarray(size + 2 * parts * _gamma(self._window.size, kind))

        return lru_cache(larger)


def _mean(padded: Values, several: Spectrum, larger: Floats, rounds: int) -> tuple[Values, float]:
    """At each place the mean of the values over so many planned rounds from there, and a bound on the error.

    Errors: of the coefficients of the rounds, of the transform of the values, and of the transform back.
    """
    size, kind = len(padded), padded.dtype.type
    gamma, twice = _gamma(size, kind), np.full(len(several), 2.0)
    twice[[0, -1]] = 1.0
    coefficients = fft.rfft(padded)
    lengths = np.abs(coefficients).astype(np.float64)
    product = coefficients * np.conj(several)
    doubt = 4 * gamma * rounds * float((twice * larger ** (rounds - 1) * lengths).sum()) / size
    weight = float((twice * larger ** (2 * rounds)).sum()) ** 0.5 / size**0.5
    doubt += gamma * weight * float((padded.astype(np.float64) ** 2).sum()) ** 0.5
    doubt += gamma * float((twice * np.abs(product).astype(np.float64)).sum()) / size
    return np.asarray(fft.irfft(product, size)), 1.01 * doubt


def _gamma(size: int, kind: Kind) -> float:
    return 8 * (2 + log2(size)) * float(np.finfo(kind).eps)


class Exchanges:
    """Prices of rounds that are not planned, for one run. All of it is public, and nothing in it is spent.

    ``worth`` is the variance of one planned round's loss in units of change. A rule of thumb, no bound.
    """

    def __init__(self, run: Run) -> None:
        self._run = run
        self.worth = max(1, round(run.variance / run.step**2))
        self._priced = lru_cache(maxsize=2**12)(self._price)

    def price(self, mechanism: mechanisms.Mechanism, count: int, *, level: int, slack: int) -> Price:
        """The price of a block beside at least ``planned.rounds_at(level)`` planned rounds before the checkpoint.

        Arguments as of ``Prices.payment``; the round cannot fail.

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
