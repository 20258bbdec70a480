"""Histograms, and what is read off them."""

from dataclasses import dataclass, field
from itertools import pairwise
from math import hypot, sqrt
from typing import Any

from bursar import _check
from bursar.errors import ArgumentError
from bursar.queries._kinds._intervals import total_interval
from bursar.queries._kinds._words import over_what
from bursar.queries._missing import Missing
from bursar.queries._noise_bands import CONFIDENCE, Interval, NoiseBand, around
from bursar.queries._question import Question, check_column, checked_numbers, set_fields
from bursar.queries._rows import PER, Bins, Per

__all__ = ["Histogram", "Quantiles"]

_MOST_BINS = 4096
_TAIL = (1 - CONFIDENCE) / 2


@dataclass(frozen=True, slots=True)
class _Binned(Question):
    column: str
    edges: tuple[float, ...]

    def __post_init__(self) -> None:
        check_column(self.column)
        edges = tuple(float(edge) for edge in checked_numbers("edges", self.edges))
        set_fields(self, edges=edges)
        _check.one_of(PER, per=self._per)
        if not 2 <= len(edges) <= _MOST_BINS + 1 or not all(a < b for a, b in pairwise(edges)):
            raise ArgumentError(f"edges must be 2 to {_MOST_BINS + 1} increasing numbers")
        Question.__post_init__(self)

    @property
    def _per(self) -> Per:
        raise NotImplementedError

    def most_in_group(self) -> float | None:
        """A person is one row at most, unless rows count."""
        return None if self._per == "row" else 1.0

    def reported(self) -> bool:
        """The rows in each bin that a clip takes away."""
        return True

    def bins(self) -> Bins:
        """One count for each bin."""
        return Bins(self.column, self.edges, self._per)

    def scales(self) -> dict[str, float]:
        """One count for each bin."""
        return {"count in each bin": 1.0}


@dataclass(frozen=True, slots=True)
class Histogram(_Binned):
    """How many rows have an entry between two neighbouring edges; the outer bins also take what is beyond them.

    ``per="row"``: each row is 1 in its bin; a clip must be given. ``per="person"``: each of a person's rows is
    1/(their number), so that each person counts once. ``per="total"``: how many people have their rows' total there.
    """

    per: Per = field(default="row", kw_only=True)

    @property
    def _per(self) -> Per:
        return self.per

    @property
    def estimand(self) -> str:
        """What the answer is about, in words."""
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

    def truth(self, parts: list[float], noise: NoiseBand, missing: Missing | None) -> Any:
        """The intervals of the counts without a clip."""
        return [total_interval(value, noise, missing, place) for place, value in enumerate(parts)]


@dataclass(frozen=True, slots=True)
class Quantiles(_Binned):
    """Quantiles of a column (0.5 is the median), read off a noisy histogram; they lie between the outer edges.

    ``per="person"``: half of the people's weight is below the median, where each of a person's rows has a weight of
    1/(their number). ``per="row"``: half of the rows; a clip must be given. ``per="total"``: half of people's totals.
    """

    levels: tuple[float, ...] = (0.5,)
    per: Per = field(default="person", kw_only=True)

    @property
    def _per(self) -> Per:
        return self.per

    @property
    def estimand(self) -> str:
        """What the answer is about, in words."""
        return f"quantiles of {over_what(self.column, self.per)}"

    def __post_init__(self) -> None:
        levels = tuple(float(level) for level in checked_numbers("levels", self.levels))
        set_fields(self, levels=levels)
        if not 1 <= len(levels) <= 100:
            raise ArgumentError("levels must be 1 to 100 numbers")
        for level in levels:
            _check.within(0, 1, level=level)
        _Binned.__post_init__(self)

    def several(self) -> tuple[str, tuple[float, ...]]:
        """The levels."""
        return "level", self.levels

    def read(self, parts: list[float], noise: NoiseBand) -> tuple[Any, Any]:
        """A quantile for each level."""
        quantiles = [self._quantile(parts, noise, level) for level in self.levels]
        return [value for value, _ in quantiles], [interval for _, interval in quantiles]

    def truth(self, parts: list[float], noise: NoiseBand, missing: Missing | None) -> Any:
        """The intervals of the quantiles without a clip; None for one that may be beyond the outer edges."""
        error = noise.standard_error
        if missing is not None:  # what was clipped and what is missing, added: all of it, with the noise of both
            parts = [part + mass for part, mass in zip(parts, missing.masses, strict=True)]
            error = hypot(error, missing.standard_error)
        intervals = [self._interval(parts, NoiseBand(error, noise.pure), level) for level in self.levels]
        return [each if self._inner(each) else None for each in intervals]

    def _inner(self, interval: Interval) -> bool:
        return self.edges[0] < interval[0] and interval[1] < self.edges[-1]

    def _quantile(self, counts: list[float], noise: NoiseBand, level: float) -> tuple[float | None, Interval]:
        """A quantile by interpolation in the bin where it falls, and where it may be."""
        edges, interval = self.edges, self._interval(counts, noise, level)
        positive = [max(0.0, count) for count in counts]
        if not sum(positive):
            return None, (edges[0], edges[-1])
        wanted, value = level * sum(positive), edges[-1]
        for place, count in enumerate(positive):
            if count and wanted <= count:
                value = edges[place] + (edges[place + 1] - edges[place]) * wanted / count
                break
            wanted -= count
        return min(max(value, interval[0]), interval[1]), interval

    def _interval(self, counts: list[float], noise: NoiseBand, level: float) -> Interval:
        """From the first to the last bin in which a test at its two edges leaves the quantile.

        Guarantee: each end is on the wrong side with a probability of at most 2.5 %: the bin of the quantile is left
            out only if the test at one of its own edges errs.
        Source: docs/proofs/truth-intervals.md, Theorem 4.
        """
        edges, bins = self.edges, len(counts)
        below, total = 0.0, sum(counts)
        left = [True] * bins
        for edge in range(1, bins):
            below += counts[edge - 1]
            errors = sqrt((1 - level) ** 2 * edge + level**2 * (bins - edge)) * noise.standard_error
            excess, margin = below - level * total, noise.quantile(_TAIL, errors)
            if excess < -margin:  # less than the level is below the edge: the quantile is not just below it
                left[edge - 1] = False
            elif excess > margin:
                left[edge] = False
        places = [place for place in range(bins) if left[place]]
        return (edges[places[0]], edges[places[-1] + 1]) if places else (edges[0], edges[-1])
