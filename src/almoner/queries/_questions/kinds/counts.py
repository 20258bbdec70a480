"""Counts: of rows and people, of bins and what is read off them, of public keys, and of lengths for choosing a clip."""

from dataclasses import dataclass, field
from fractions import Fraction
from itertools import accumulate, pairwise
from math import asinh, ceil, floor, inf, sinh, sqrt
from typing import Annotated, Any, Literal

from scipy.optimize import isotonic_regression

from almoner import _check
from almoner._check import told
from almoner._reading import Checked, Number, Numbers
from almoner.errors import ArgumentError
from almoner.queries._language.keys import Key, checked_keys
from almoner.queries._questions import row_contributions as terms
from almoner.queries._questions.choice import Choice, winning_choice
from almoner.queries._questions.field_types import LARGEST, ColumnName, KeyList
from almoner.queries._questions.intervals import CONFIDENCE, Interval, NoiseBand, Whole, around, total_interval
from almoner.queries._questions.noise import STEPS, BinFactor, separate_error, winning_factor
from almoner.queries._questions.question import Question, set_fields


@dataclass(frozen=True, slots=True)
class _Counted(Question[float]):
    """A question whose answer is one noisy count for each group."""

    _reported = True

    def truth(self, whole: Whole) -> Any:
        return total_interval(whole, 0) if self.reported() else None


@dataclass(frozen=True, slots=True)
class Count(_Counted):
    """Number of rows."""

    _about = "the number of rows"


@dataclass(frozen=True, slots=True)
class People(_Counted):
    """Number of people who have at least one row, in each group.

    With ``spare``, a price in rho: of those, how many can still pay that much afterwards. It tells an analyst when to
    stop trusting totals, and costs those who are counted what any count costs; ``pace`` is None then.
    """

    spare: Annotated[float, Number(1e-12, 1e3)] | None = None
    _once = True

    def _check_kind(self) -> None:
        if self.spare is not None:
            if self.pace not in (None, 1):
                raise ArgumentError(f"{told(pace=self.pace)}: with spare=, who cannot pay in full is left out")
            set_fields(self, pace=None)

    @property
    def estimand(self) -> str:
        return "the number of people with at least one row" + (" who can still pay" if self.spare_units else "")

    def row(self) -> tuple[terms.Coordinate, ...]:
        return (terms.AnyRow(),)

    def reported(self) -> bool:
        """With ``spare`` it is not about all people."""
        return self.spare is None


_MOST_BINS = 4096
_MOST_STEPS = 2.0**40
_MOST_MIXED = 2.0**17 * (1 - 1e-9)  # so that noise in whole numbers of 2^-36 stays below 2^53
_EDGES_RULE = f"2 to {_MOST_BINS + 1} increasing numbers, within {LARGEST:g}"
_EDGES = Numbers(2, _MOST_BINS + 1, -LARGEST, LARGEST, _EDGES_RULE, increasing=True)
_TAIL = (1 - CONFIDENCE) / 2


@dataclass(frozen=True, slots=True)
class _Binned(Question[list[float]]):
    column: ColumnName
    edges: Annotated[tuple[float, ...], _EDGES]
    _counts = "count in each bin"
    _reported = True

    @property
    def _over(self) -> str:
        return terms.over_what(self.column, self._per)

    def bins(self) -> terms.Bins:
        return terms.Bins(self.column, self.edges, self._per)


def spaced_edges(low: float, high: float, *, smallest: float | None = None, bins: int = 500) -> tuple[float, ...]:
    """Edges for ``Quantiles`` from public bounds: of even width, or, for amounts, by a constant factor away from 0.

    Args:
        low, high: the outer edges, public.
        smallest: a size above which widths grow with the entries, public, such as 1 for money; None for even widths.
        bins: how many.

    >>> [round(edge, 1) for edge in spaced_edges(0, 1000, smallest=1, bins=5)]
    [0, 2.2, 10.4, 47.8, 218.7, 1000]
    """
    _check.whole(1, bins=bins)
    if not -LARGEST <= low < high <= LARGEST or not (smallest is None or 1e-100 <= smallest <= LARGEST):
        raise ArgumentError(f"{told(low=low)} must be below {told(high=high)}, and {told(smallest=smallest)} above 0")
    size = high - low if smallest is None else smallest
    first, last = (low / size, high / size) if smallest is None else (asinh(low / size), asinh(high / size))
    places = (first + (last - first) * part / bins for part in range(1, bins))
    return low, *(size * (each if smallest is None else sinh(each)) for each in places), high


@dataclass(frozen=True, slots=True)
class Histogram(_Binned):
    """Numbers of rows with an entry between two neighbouring edges; the outer bins also take what is beyond them.

    ``per="row"``: each row is 1 in its bin; a clip must be given. ``per="person"``: each of a person's rows is
    1/(their number), so that each person counts once. ``per="total"``: how many people have their rows' total there.
    """

    per: terms.Per = field(default="row", kw_only=True)
    _about = "how often {0._over} is in each bin"

    def several(self) -> tuple[str, list[str]]:
        return "bin", [f"{low:.15g} to {high:.15g}" for low, high in pairwise(self.edges)]

    def truth(self, whole: Whole) -> Any:
        return [total_interval(whole, place) for place in range(len(whole.parts))]


@dataclass(frozen=True, slots=True)
class Quantiles(_Binned):
    """Quantiles of a column (0.5 is the median), read off noisy counts of bins; they lie between the outer edges.

    A value is where the noisy counts below the edges, made to rise by isotonic regression, pass the level. So noise in
    bins where nobody is moves it to neither side.

    ``per="person"``: half of the people's weight is below the median, where each of a person's rows has a weight of
    1/(their number). ``per="row"``: half of the rows; a clip must be given. ``per="total"``: half of people's totals.
    """

    levels: Annotated[tuple[float, ...], Numbers(1, 100, 0, 1, "1 to 100 numbers in [0, 1]")] = (0.5,)
    per: terms.Per = field(default="person", kw_only=True)
    step: Annotated[float, Number(1e-100, LARGEST)] | None = field(default=None, kw_only=True)
    """Declared: entries are multiples of it, and so are the quantiles: 1 for whole numbers. None for any numbers."""
    bounds_hold: bool = field(default=False, kw_only=True)
    """A declaration: no entry, or no total of ``per="total"``, is beyond the outer edges; for ``truth_intervals``."""
    correlated: bool = field(default=True, kw_only=True)
    """True if noise may be correlated over the bins. It then is where, whatever the data, that gives no more noise: see
    ``bin_factor``. False: each bin has noise of its own, as in a ``Histogram``."""
    chosen: Annotated[float, Number(0, 1)] = field(default=0.88, kw_only=True)
    """The share of the price for values, where values and intervals are chosen by the exponential mechanism: 1 for no
    intervals, 0 to read both off counts of bins. It is done where, whatever the data, values then have less noise."""
    width_varies = True
    _about = "quantiles of {0._over}"

    def _check_kind(self) -> None:
        if self.error is not None:
            set_fields(self, chosen=0.0)  # no answer tells beforehand how wide the interval of a choice will be
        if self.step is not None and max(map(abs, (self.edges[0], self.edges[-1]))) > _MOST_STEPS * self.step:
            raise ArgumentError(f"{told(step=self.step)} must be at least the largest edge over {_MOST_STEPS:g}")

    def bin_factor(self) -> BinFactor | None:
        """The mixing of bins: for people of one weight each, where each test of each level then has no more noise.

        From 12 bins on for medians, 33 for quartiles. By the question alone; lengths then are sums over a group's bins.
        Not for rows, pure budgets and ``per_group``, and not where noise is above 2^17 people.
        """
        mixed = self.correlated and not self.pure and (self.open or self.noise < _MOST_MIXED)
        if not mixed or self.per == "row" or self.per_group is not None or self.choice is not None:
            return None
        return winning_factor(len(self.edges) - 1, self.levels)

    def _choice(self) -> Choice | None:
        """For people of one weight each, without a report; by the question alone."""
        if not self.chosen or self.per == "row" or self.per_group is not None or self.report or self.report_scale:
            return None
        bins, wins = len(self.edges) - 1, winning_choice(len(self.edges) - 1, self.levels, self.chosen, self.pure)
        return Choice(bins, self.levels, self.chosen, self.noise, self.pure) if wins else None

    def scales(self) -> dict[str, float]:
        """One count for each bin; where bins are mixed, the count of all; people, where values are chosen."""
        if (choice := self.choice) is not None:
            return {"people beyond the quantile": max(choice.errors(level)[0] for level in self.levels) / self.spread}
        factor = self.bin_factor()
        return _Binned.scales(self) if factor is None else {"count of all": factor.error(0.0, factor.bins)}

    def several(self) -> tuple[str, tuple[float, ...]]:
        return "level", self.levels

    def read(self, parts: list[float], noise: NoiseBand) -> tuple[Any, Any]:
        if (choice := self.choice) is not None:
            cells = [divmod(round(part * self.steps), choice.cells) for part in parts[::2]]
            values = [self._inside(place, (part + 0.5) / choice.cells) for place, part in cells]
            return values, self._chosen_intervals(choice, parts)
        quantiles = [self._quantile(parts, noise, level) for level in self.levels]
        return [value for value, _ in quantiles], [interval for _, interval in quantiles]

    def truth(self, whole: Whole) -> Any:
        """The intervals of the quantiles without a clip; without an end where they may be beyond an outer edge."""
        choice, intervals = self.choice, list[Interval]()
        if choice is not None:
            if whole.least < 1:  # the ends were chosen for the people as they were shrunk
                return None
            found = self._chosen_intervals(choice, whole.parts)
        else:
            found = [self._interval(whole.parts, whole.noise, level, whole.least) for level in self.levels]
        for low, high in found:
            if not self.bounds_hold:
                low = -inf if low == self._first(0) else low
                high = inf if high == self._last(len(self.edges) - 2) else high
            intervals.append((low, high))
        return intervals

    def _chosen_intervals(self, choice: Choice, parts: list[float]) -> list[Interval]:
        """From the first to the last value of the bins that were chosen; all bins where no interval was paid for."""
        numbers = [round(part * self.steps) for part in parts]
        ends = [choice.interval(cell, width) for cell, width in zip(numbers[::2], numbers[1::2], strict=True)]
        ends = [(0, choice.bins)] * len(ends) if choice.share == 1 else ends
        return [(min(self._first(a), self._last(b - 1)), max(self._first(a), self._last(b - 1))) for a, b in ends]

    def _first(self, place: int) -> float:
        if self.step is None:
            return self.edges[place]
        return ceil(Fraction(self.edges[place]) / Fraction(self.step)) * self.step

    def _last(self, place: int) -> float:
        """The largest value in a bin; the last bin has its upper edge, too."""
        edge = self.edges[place + 1]
        if self.step is None:
            return edge
        steps = Fraction(edge) / Fraction(self.step)
        return (floor(steps) if place == len(self.edges) - 2 else ceil(steps) - 1) * self.step

    def _inside(self, place: int, share: float) -> float:
        """The value in a bin below which so much of it is: values, or in bins that grow logarithms, are as frequent."""
        low, high = self._first(place), self._last(place)
        if self.step is None:
            grown = place > 0 and low > 0 and high - low > 1.1 * (low - self.edges[place - 1])
            return min(low * (high / low) ** share, high) if grown else low + (high - low) * share
        values = round((high - low) / self.step) + 1
        return low + self.step * (max(1, ceil(share * values)) - 1) if values > 0 else high

    def _quantile(self, counts: list[float], noise: NoiseBand, level: float) -> tuple[float | None, Interval]:
        """A quantile by interpolation in the bin where it falls, and where it may be."""
        running, bins = self._running(counts), len(counts)
        total = running[-1]
        if total <= 0:
            return None, (self._first(0), self._last(bins - 1))
        interval = self._interval(counts, noise, level)
        errors = [self._error(bins, level, edge) for edge in range(1, bins + 1)]
        least = max(errors) * 1e-9 or 1.0  # of the last one at level 1, which has no noise
        weights = [1 / max(error, least) ** 2 for error in errors]
        # the numbers that do not fall and are nearest, by weighted squares, to the noisy ones
        rising = isotonic_regression([below - level * total for below in running], weights=weights).x.tolist()
        beyond = [-level * total, *rising]
        value = self._last(bins - 1)
        for place, (low, high) in enumerate(pairwise(beyond)):
            if high > 0 or (high == 0 and level > 0.5):
                value = self._inside(place, -low / (high - low) if low < high else 1.0)
                break
        return min(max(value, interval[0]), interval[1]), interval

    def _running(self, parts: list[float]) -> list[float]:
        """The noisy counts below each upper edge."""
        factor = self.bin_factor()
        return list(accumulate(parts)) if factor is None else factor.running(parts)

    def _error(self, bins: int, level: float, edge: int) -> float:
        """Standard error of (the count below an edge) - level * (all), in that of a released number."""
        factor = self.bin_factor()
        return separate_error(bins, level, edge) if factor is None else factor.error(level, edge)

    def _interval(self, counts: list[float], noise: NoiseBand, level: float, least: float = 1.0) -> Interval:
        """From the first to the last bin in which a test at its two edges leaves the quantile.

        Counts are noisy, of the bins, or mixed; rows have weights from ``least`` up to 1 in them.

        Guarantee: each end is on the wrong side with a probability of at most 2.5 %: the bin of the quantile is left
            out only if the test at one of its own edges errs.
        Source: docs/proofs/truth-intervals.md, Theorem 5; docs/proofs/running-counts.md, Theorem 2.
        """
        bins, running = len(counts), self._running(counts)
        total = running[-1]
        left = [True] * bins
        lower, upper = least * level / (least * level + 1 - level), level / (level + least * (1 - level))
        for edge in range(1, bins):
            below = running[edge - 1]

            def margin(level: float, edge: int = edge) -> float:
                return noise.quantile(_TAIL, self._error(bins, level, edge) * noise.standard_error)

            if below - lower * total < -margin(lower):  # less than the level is below: it is not just below it
                left[edge - 1] = False
            elif below - upper * total > margin(upper):
                left[edge] = False
        places = [place for place in range(bins) if left[place]] or [0, bins - 1]
        return tuple(sorted((self._first(places[0]), self._last(places[-1]))))  # type: ignore[return-value]


@dataclass(frozen=True, slots=True)
class Top(Question[list[tuple[Any, float]]]):
    """The k keys of a column with the most people, or rows, among public keys; from one noisy count for each key.

    The answer is a list of (key, noisy count), largest first; equal counts in the order of ``among``. The interval of
    each count holds for all keys together, so also for those that come out on top.
    """

    k: Annotated[int, Number(1, 1e6, whole=True)]
    column: ColumnName
    among: Annotated[tuple[Key, ...], Checked(lambda keys: keys, KeyList)]
    count: Literal["people", "rows"] = "people"
    _counts = "count of each key"
    _reported = True

    def _check_kind(self) -> None:
        set_fields(self, among=checked_keys("among", self.column, self.among))
        if self.k > len(self.among):
            raise ArgumentError(f"{told(k=self.k)} must be at most the number of keys, {len(self.among)}")

    @property
    def estimand(self) -> str:
        return f"the {self.k} of {len(self.among)} public keys of {self.column} with the most {self.count}"

    def row(self) -> tuple[terms.Coordinate, ...]:
        return (terms.AnyRow(),) if self.count == "people" else (terms.CountRows(),)

    def bins(self) -> terms.KeyCells:
        return terms.KeyCells(self.column, self.among)

    def several(self) -> tuple[str, tuple[Key, ...]]:
        return "key", ()

    def truth(self, whole: Whole) -> Any:
        """The intervals without a clip of the keys that came out on top; for all keys together."""
        margin = whole.noise.margin(len(whole.parts))
        ends = [around(whole.parts[place], margin) for place in self._places(whole.answered)]
        return [(low, max(high, high / whole.least)) for low, high in ends]

    def read(self, parts: list[float], noise: NoiseBand) -> tuple[Any, Any]:
        """The k largest noisy counts with their keys; and their intervals, for all keys together."""
        margin, places = noise.margin(len(parts)), self._places(parts)
        return [(self.among[place], parts[place]) for place in places], [around(parts[p], margin) for p in places]

    def _places(self, parts: list[float]) -> list[int]:
        return sorted(range(len(parts)), key=lambda place: (-parts[place], place))[: self.k]


SIZES = tuple(2.0 ** (place / 2) for place in range(-40, 121))
"""The sizes of entries at which their buckets end, on both sides of 0."""
_LENGTHS = tuple(2.0 ** (place / 2) for place in range(-20, 41))


@dataclass(frozen=True, slots=True)
class Lengths(Question):
    """Numbers of people by the length of their contribution to another question, in full rows, before its clip.

    Each person is in one bucket: the outer ones also take what is beyond them, and people who contribute nothing are in
    none. The buckets are half powers of two. ``of`` is the other question; its own clip and noise do not matter.
    """

    of: Annotated[Question, Checked(lambda of: of)] = field(kw_only=True)
    _counts = "people in each bucket"
    _once = True
    _about = "the number of people by the length of what they contribute to {0.of.estimand}"

    def _check_kind(self) -> None:
        if not isinstance(self.of, Question) or isinstance(self.of, Lengths) or self.of.open:
            raise ArgumentError("of must be a question with a clip and noise")
        if self.where is not None or self.by or self.per_group is not None:
            raise ArgumentError("of says which rows count; where=, by= and per_group= are its own")
        if self.of.pure != self.pure:
            raise ArgumentError("of must have the same kind of noise")
        set_fields(self, by=(), keys=())

    def bins(self) -> terms.Bins:
        return terms.Bins("", _LENGTHS)

    def several(self) -> tuple[str, list[str]]:
        return "length", [f"{low:.4g} to {high:.4g}" for low, high in pairwise(_LENGTHS)]


@dataclass(frozen=True, slots=True)
class Extremes(Question):
    """Numbers of people who have their largest entry of a column, and their smallest one, in each bucket of entries.

    The buckets are half powers of two, on both sides of 0; the outer ones also take what is beyond. A person is in two
    cells, one for the largest and one for the smallest entry, with a length of 1 together.
    """

    column: ColumnName = field(kw_only=True)
    _about = "the number of people by their largest, and by their smallest, {0.column}"
    _once = True

    def _check_kind(self) -> None:
        if self.by or self.per_group is not None:
            raise ArgumentError("by= and per_group= are for other questions")

    def bins(self) -> terms.EntryBuckets:
        return terms.EntryBuckets(self.column, (*(-size for size in reversed(SIZES)), *SIZES))

    def _steps(self) -> int:
        """Both cells of a person have length 1 together."""
        return STEPS // 2 if self.pure else floor(STEPS / sqrt(2))

    def scales(self) -> dict[str, float]:
        return {"people in each bucket": STEPS / self.steps}

    def several(self) -> tuple[str, list[str]]:
        listed = [f"{low:.4g} to {high:.4g}" for low, high in pairwise(self.bins().edges)]
        return "entry", [f"largest {each}" for each in listed] + [f"smallest {each}" for each in listed]
