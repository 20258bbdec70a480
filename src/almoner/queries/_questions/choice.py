"""Choose quantiles, and an interval around each, by the exponential mechanism on counts of bins.

Names and symbols
    b        how many bins there are; their edges have the numbers 0 to b
    level    of a quantile, l, in (0, 1); M is the larger one of l and 1 - l
    excess   (the weight of people below an edge) - l * (all of it); between edges, on a straight line
    eta      how far, at most, a person with one full row moves logarithms of probabilities apart

A person of weight r moves each excess by at most M r, so losses by 2 M r from each other. A value costs its share of
the price, an interval the rest, and both are divided by the levels: epsilons add up, and squares of eta do.

Source: docs/proofs/chosen-quantiles.md; McSherry & Talwar (2007); Smith (2011), https://doi.org/10.1145/1993636.1993743
"""

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from itertools import accumulate, pairwise
from math import ceil, floor, inf, isqrt, log, sqrt

from almoner import _audit_hook, noise
from almoner.mechanisms import Exponential
from almoner.queries._questions.intervals import CONFIDENCE, NoiseBand
from almoner.queries._questions.noise import STEPS, separate_error, winning_factor

_CELLS = 4096
_ETA = Fraction("1.5957")  # below sqrt(8 / pi): a range of eta is (eta * sqrt(pi / 8))-GDP
_ROOT = 2**40


@dataclass(frozen=True, slots=True)
class Choice:
    """Choices in each group, for one price. Every field is public.

    Fields:
        share: of the price that is for values, in (0, 1]; 1 for no intervals.
        noise: the price as ``Question.noise`` has it: a full row costs 1/noise of epsilon, or 1/(2 noise**2) of rho.
    """

    bins: int
    levels: tuple[float, ...]
    share: float
    noise: float
    pure: bool

    @property
    def cells(self) -> int:
        """Parts of each bin, one of which is chosen."""
        return max(4, _CELLS // self.bins)

    @property
    def eta(self) -> Fraction:
        """Of all that is chosen of a group."""
        return (1 if self.pure else _ETA) / Fraction(self.noise)

    def rate(self, level: float, *, value: bool) -> Fraction:
        """The factor on losses, in full rows, at the share of a level's value, or of its interval; rounded down."""
        part = (Fraction(self.share) if value else 1 - Fraction(self.share)) / len(self.levels)
        part = part if self.pure else Fraction(isqrt(floor(part * _ROOT**2)), _ROOT)
        return self.eta * part / (2 * max(Fraction(level), 1 - Fraction(level)))

    def room(self, level: float) -> float:
        """The excess that an interval's ends are sought at, on both sides, in full rows.

        Guarantee: an interval leaves the quantile out with a probability of at most 5 %.
        Source: docs/proofs/chosen-quantiles.md, Theorem 3.
        """
        _, _, narrower = _widths(self.bins)
        return log(max(1.0, narrower / (1 - CONFIDENCE))) / float(self.rate(level, value=False)) * (1 + 1e-9)

    def released(self, sums: Sequence[int]) -> list[int]:
        """For each group and level the number of a cell, and of a width (``interval``); from its b sums, private.

        Guarantee: for a person whose weights in a group add up to r full rows, at most, it is (r / noise)-DP under a
            pure price; else (r / noise)-GDP, and so (r**2 / (2 noise**2))-zCDP. Groups add up as vectors do.
        Source: docs/proofs/chosen-quantiles.md, Theorems 1 and 2.
        """
        mechanism, told = Exponential(eta=float(self.eta / STEPS)), []
        for start in range(0, len(sums), self.bins):
            counts = [int(each) for each in sums[start : start + self.bins]]

            def release(counts: list[int] = counts) -> list[int]:
                return [each for level in self.levels for each in self._of_level(counts, level)]

            told += _audit_hook.released(release, exact=counts, mechanism=mechanism)
        return told

    def _of_level(self, counts: list[int], level: float) -> tuple[int, int]:
        """(The number of a cell, that of a width) for one level."""
        share, cells = Fraction(level), self.cells
        below = list(accumulate(counts, initial=0))
        excess = [each * share.denominator - below[-1] * share.numerator for each in below]
        unit = STEPS * share.denominator
        line = [low * cells + (high - low) * part for low, high in pairwise(excess) for part in range(cells)]
        line.append(excess[-1] * cells)
        losses = [max(0, low, -high) for low, high in pairwise(line)]
        cell = noise.choice(losses, self.rate(level, value=True) / (unit * cells))
        if self.share == 1:
            return cell, 0
        widths, weights, _ = _widths(self.bins)
        ends = [self.interval(cell, place) for place in range(len(widths))]
        sure = [min(excess[last], -excess[first]) for first, last in ends]
        room = ceil(self.room(level) * unit)
        losses = [max(0, room - high, low - room) for low, high in pairwise([sure[0], *sure])]
        losses[0], losses[-1] = max(0, room - sure[0]), max([0] + [each - room for each in sure[:-1]])
        return cell, noise.choice(losses, self.rate(level, value=False) / unit, weights=weights)

    def interval(self, cell: int, width: int) -> tuple[int, int]:
        """The edges of an interval: those of the cell's bin, and so many more bins on each side."""
        place, more = cell // self.cells, _widths(self.bins)[0][width]
        return max(0, place - more), min(self.bins, place + 1 + more)

    def errors(self, level: float) -> tuple[float, float]:
        """Of a value the standard error, of an interval the half-width, in full rows, where people are not sparse."""
        whole = inf if self.share == 1 else 1.3 * self.room(level)
        return sqrt(2) / float(self.rate(level, value=True)), whole


@lru_cache(maxsize=64)
def winning_choice(bins: int, levels: tuple[float, ...], share: float, pure: bool) -> bool:
    """True where choosing beats counts of bins: errors of values below 2/3, these times widths of intervals below 3.

    In people, at the root mean square over the edges, for each level; by public numbers alone.
    """
    choice, factor = Choice(bins, levels, share, 1.0, pure), None if pure else winning_factor(bins, levels)
    band = NoiseBand(sqrt(2) if pure else 1.0, pure)
    for level in levels:
        each = [separate_error(bins, level, e) if factor is None else factor.error(level, e) for e in range(1, bins)]
        if not each or not 1e-6 <= level <= 1 - 1e-6 or share < 0.01:
            return False
        counts = sqrt(sum(error**2 for error in each) / len(each)) * band.standard_error
        value, half = choice.errors(level)
        width = 1.0 if share == 1 else half / band.quantile((1 - CONFIDENCE) / 2, counts)
        if value > counts / 1.5 or value * width > 3 * counts:
            return False
    return True


@lru_cache(maxsize=64)
def _widths(bins: int) -> tuple[list[int], list[int], float]:
    """(Bins beside the chosen one on each side, increasing, up to all; a weight of each; all narrower over each)."""
    widths, step = [0], 2
    while widths[-1] < bins - 1:
        widths.append(min(bins - 1, max(widths[-1] + 1, round(2 ** (step / 2)) - 1)))
        step += 1
    weights = [each + 1 for each in widths]
    return widths, weights, max(below / each for below, each in zip(accumulate([0, *weights]), weights, strict=False))
