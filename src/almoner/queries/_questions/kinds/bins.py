"""Histograms, and what is read off them."""

from dataclasses import dataclass, field
from fractions import Fraction
from itertools import accumulate, pairwise
from math import ceil, floor, inf
from typing import Annotated, Any

from scipy.optimize import isotonic_regression

from almoner._check import told
from almoner._reading import Number, Numbers
from almoner.errors import ArgumentError
from almoner.queries._questions.bin_factor import BinFactor, separate_error, winning_factor
from almoner.queries._questions.field_types import LARGEST, ColumnName
from almoner.queries._questions.intervals import CONFIDENCE, Interval, NoiseBand, Whole, around, total_interval
from almoner.queries._questions.question import Question
from almoner.queries._questions.row_contributions import Bins, Per
from almoner.queries._questions.words import over_what

__all__ = ["Histogram", "Quantiles"]

_MOST_BINS = 4096
_MOST_STEPS = 2.0**40
_MOST_MIXED = 2.0**17 * (1 - 1e-9)  # so that noise in whole numbers of 2^-36 stays below 2^53
_EDGES = Numbers(
    2,
    _MOST_BINS + 1,
    -LARGEST,
    LARGEST,
    f"2 to {_MOST_BINS + 1} increasing numbers, within {LARGEST:g}",
    increasing=True,
)
_TAIL = (1 - CONFIDENCE) / 2


@dataclass(frozen=True, slots=True)
class _Binned(Question):
    column: ColumnName
    edges: Annotated[tuple[float, ...], _EDGES]

    @property
    def _per(self) -> Per:
        raise NotImplementedError

    def most_in_group(self) -> float | None:
        """A person is one row at most, unless rows count."""
        return None if self._per == "row" else 1.0

    def reported(self) -> bool:
        """True: the report is on what is taken away from each bin."""
        return True

    def bins(self) -> Bins:
        """One count for each bin."""
        return Bins(self.column, self.edges, self._per)

    def scales(self) -> dict[str, float]:
        """One count for each bin."""
        return {"count in each bin": 1.0}


@dataclass(frozen=True, slots=True)
class Histogram(_Binned):
    """Numbers of rows with an entry between two neighbouring edges; the outer bins also take what is beyond them.

    ``per="row"``: each row is 1 in its bin; a clip must be given. ``per="person"``: each of a person's rows is
    1/(their number), so that each person counts once. ``per="total"``: how many people have their rows' total there.
    """

    per: Per = field(default="row", kw_only=True)

    @property
    def _per(self) -> Per:
        return self.per

    @property
    def estimand(self) -> str:
        """Noun phrase for the quantity that the answer estimates."""
        return f"how often {over_what(self.column, self.per)} is in each bin"

    def several(self) -> tuple[str, list[str]]:
        """The bins, by their edges."""
        return "bin", [f"{low:.15g} to {high:.15g}" for low, high in pairwise(self.edges)]

    def width_depends_on_data(self) -> bool:
        """The noise alone."""
        return False

    def read(self, parts: list[float], noise: NoiseBand) -> tuple[Any, Any]:
        """The noisy counts, each with an interval of its own."""
        return parts, [around(value, noise.margin(1)) for value in parts]

    def truth(self, whole: Whole) -> Any:
        """The intervals of the counts without a clip."""
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
    per: Per = field(default="person", kw_only=True)
    step: Annotated[float, Number(1e-100, LARGEST)] | None = field(default=None, kw_only=True)
    """Declared: entries are multiples of it, and so are the quantiles: 1 for whole numbers. None for any numbers."""
    bounds_hold: bool = field(default=False, kw_only=True)
    """A declaration: no entry, or no total of ``per="total"``, is beyond the outer edges; for ``truth_intervals``."""
    correlated: bool = field(default=True, kw_only=True)
    """True if noise may be correlated over the bins. It then is where, whatever the data, that gives no more noise: see
    ``bin_factor``. False: each bin has noise of its own, as in a ``Histogram``."""

    @property
    def _per(self) -> Per:
        return self.per

    @property
    def estimand(self) -> str:
        """Noun phrase for the quantity that the answer estimates."""
        return f"quantiles of {over_what(self.column, self.per)}"

    def _check_kind(self) -> None:
        if self.step is not None and max(map(abs, (self.edges[0], self.edges[-1]))) > _MOST_STEPS * self.step:
            raise ArgumentError(f"{told(step=self.step)} must be at least the largest edge over {_MOST_STEPS:g}")

    def bin_factor(self) -> BinFactor | None:
        """The mixing of bins: for people of one weight each, where each test of each level then has no more noise.

        From 12 bins on for medians, 33 for quartiles. By the question alone; lengths then are sums over a group's bins.
        Not for rows, pure budgets and ``per_group``, and not where noise is above 2^17 people.
        """
        if not self.correlated or self.per == "row" or self.pure or self.per_group is not None:
            return None
        if not self.open and self.noise >= _MOST_MIXED:
            return None
        return winning_factor(len(self.edges) - 1, self.levels)

    def scales(self) -> dict[str, float]:
        """One count for each bin, or, where bins are mixed, the count of all."""
        factor = self.bin_factor()
        return _Binned.scales(self) if factor is None else {"count of all": factor.error(0.0, factor.bins)}

    def several(self) -> tuple[str, tuple[float, ...]]:
        """The levels."""
        return "level", self.levels

    def read(self, parts: list[float], noise: NoiseBand) -> tuple[Any, Any]:
        """A quantile for each level."""
        quantiles = [self._quantile(parts, noise, level) for level in self.levels]
        return [value for value, _ in quantiles], [interval for _, interval in quantiles]

    def truth(self, whole: Whole) -> Any:
        """The intervals of the quantiles without a clip; without an end where they may be beyond an outer edge."""
        intervals = []
        for level in self.levels:
            low, high = self._interval(whole.parts, whole.noise, level, whole.least)
            if not self.bounds_hold:
                low = -inf if low == self._first(0) else low
                high = inf if high == self._last(len(self.edges) - 2) else high
            intervals.append((low, high))
        return intervals

    def _first(self, place: int) -> float:
        """The least value in a bin."""
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
        """The value in a bin below which there is so much of it, if its values are equally frequent."""
        low, high = self._first(place), self._last(place)
        if self.step is None:
            return low + (high - low) * share
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
        beyond = [-level * total, *_rising([below - level * total for below in running], errors)]
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

        Args:
            counts: noisy, of the bins, or mixed.
            noise: on each.
            level: of the quantile.
            least: of the weights, up to 1, that rows have in the counts.

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

            if below - lower * total < -margin(
                lower
            ):  # less than the level is below: the quantile is not just below it
                left[edge - 1] = False
            elif below - upper * total > margin(upper):
                left[edge] = False
        places = [place for place in range(bins) if left[place]] or [0, bins - 1]
        return tuple(sorted((self._first(places[0]), self._last(places[-1]))))  # type: ignore[return-value]


def _rising(values: list[float], errors: list[float]) -> list[float]:
    """The numbers that do not fall and are nearest to some noisy ones, by squares, weighted by standard errors."""
    least = max(errors) * 1e-9 or 1.0  # of the last one at level 1, which has no noise
    weights = [1 / max(error, least) ** 2 for error in errors]
    found: list[float] = isotonic_regression(values, weights=weights).x.tolist()
    return found
