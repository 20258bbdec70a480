"""Sums, means and variances of a column's entries between bounds, and ratios of two sums or counts."""

from dataclasses import dataclass, field
from math import hypot, inf, sqrt
from typing import Any

from almoner._check import told
from almoner.errors import ArgumentError
from almoner.queries._questions.field_types import LARGEST, Bounds, ColumnName, End, Filter
from almoner.queries._questions.intervals import (
    Interval,
    NoiseBand,
    Whole,
    around,
    mean_interval,
    total_interval,
    variance_interval,
)
from almoner.queries._questions.noise import STEPS
from almoner.queries._questions.question import Question, set_fields
from almoner.queries._questions.row_contributions import AnyRow, Coordinate, CountRows, Entry, Matching, Per, over_what

__all__ = ["Mean", "Ratio", "Sum", "Variance"]


@dataclass(frozen=True, slots=True)
class _Bounded(Question):
    column: ColumnName
    low: End | None = None
    high: End | None = None
    bounds_hold: bool = field(default=False, kw_only=True)
    """A declaration: every entry, or every total of ``per="total"``, is within the bounds; for ``truth_intervals``."""

    middle: float = field(init=False, repr=False, compare=False)
    """Between the bounds."""
    half: float = field(init=False, repr=False, compare=False)
    """From the middle to a bound."""

    def _check_kind(self) -> None:
        if self._widest is not None:
            shown = told(widest=self._widest)
            if self.bounds_hold:
                raise ArgumentError(f"{shown}: with bounds_hold=True nothing is outside low and high")
            if self._per == "total":
                raise ArgumentError(f"{shown} is for entries, not for totals: declare bounds_hold=True")
        if {"auto", None} & {self.low, self.high}:  # the bounds follow before it is asked: see ``Question.open``
            set_fields(self, middle=0.0, half=1.0)
            return
        low, high = self.ends
        if not -LARGEST <= low < high <= LARGEST:
            raise ArgumentError(f"{told(low=low)} and {told(high=high)} must be increasing, within {LARGEST:g}")
        if not high - low > max(1e-100, 1e-9 * max(abs(low), abs(high))):
            raise ArgumentError(f"{told(low=low)} and {told(high=high)} are too close to each other")
        set_fields(self, middle=low / 2 + high / 2, half=high / 2 - low / 2)

    def auto_bounds(self) -> dict[str, float]:
        return {
            name: end for name, end in zip(("low", "high"), self.ends, strict=True) if getattr(self, name) == "auto"
        }

    def left_out(self) -> tuple[str, ...]:
        return tuple(name for name in ("low", "high") if getattr(self, name) is None)

    @property
    def ends(self) -> tuple[float, float]:
        """The bounds; some numbers in place of those that are to be chosen, for the shape of the question."""
        low, high = self.low, self.high
        if low is None or low == "auto":
            return (-1.0, 1.0) if high is None or high == "auto" else (high - 1.0 - abs(high), high)
        return low, (low + 1.0 + abs(low) if high is None or high == "auto" else high)

    @property
    def _widest(self) -> tuple[float, float] | None:
        """Bounds of all entries, by what is declared."""
        widest: tuple[float, float] | None = getattr(self, "widest", None)
        return widest

    def reported(self) -> bool:
        """True if the bounds take away nothing, or what they take away is reported: a report is on the rest, too."""
        return self.bounds_hold or self._widest is not None

    def _beyond(self) -> float:
        """Largest distance of entries from the bounds, by what is declared; 0 where none is outside."""
        if self._widest is None:
            return 0.0
        low, high = self.ends
        beyond = max(low - self._widest[0], self._widest[1] - high, 0.0)
        if 0 < beyond < 1e-9 * max(abs(low), abs(high), high - low):
            raise ArgumentError(f"{told(widest=self._widest)} is too close to {told(low=low)} and {told(high=high)}")
        return beyond

    def _taken(self) -> tuple[Entry, ...]:
        """Coordinates of what the bounds take away, where that is reported."""
        beyond = self._beyond()
        return (Entry(self.column, *self.ends, scale=beyond, per=self._per, widest=self._widest),) if beyond else ()


@dataclass(frozen=True, slots=True)
class _Averaged(_Bounded):
    per: Per = field(default="person", kw_only=True)
    width_varies = True

    @property
    def estimand(self) -> str:
        over = over_what(self.column, self.per, f", clipped to [{self.low}, {self.high}]")
        return f"the {type(self).__name__.lower()} of {over}"

    @property
    def whole_estimand(self) -> str:
        return f"the {type(self).__name__.lower()} of {over_what(self.column, self.per)}"

    def _count(self) -> Coordinate:
        return CountRows() if self.per == "row" else AnyRow()

    def _from_middle(self, power: int = 1) -> Entry:
        """The entry as its difference from the middle, in halves."""
        return Entry(self.column, *self.ends, self.middle, self.half, power, self.per)


@dataclass(frozen=True, slots=True)
class Sum(_Bounded):
    """The sum of a column, each entry clipped to [low, high]; a full row is an entry of max(|low|, |high|)."""

    widest: Bounds | None = field(default=None, kw_only=True)
    """A declaration: no entry is outside these. What [low, high] takes away is reported, for ``truth_intervals``."""

    @property
    def estimand(self) -> str:
        return f"{self.whole_estimand}, each entry clipped to [{self.low}, {self.high}]"

    @property
    def whole_estimand(self) -> str:
        return f"the sum of {self.column} over rows"

    @property
    def full(self) -> float:
        """The largest entry there may be."""
        return max(map(abs, self.ends))

    def row(self) -> tuple[Coordinate, ...]:
        return Entry(self.column, *self.ends, scale=self.full), *self._taken()

    def scales(self) -> dict[str, float]:
        step, beyond = STEPS / self.steps, self._beyond()
        return {"sum": step * self.full} | ({"sum of what the bounds take away": step * beyond} if beyond else {})

    def read(self, parts: list[float], noise: NoiseBand) -> tuple[Any, Any]:
        return parts[0] * self.full, around(parts[0] * self.full, noise.margin(1) * self.full)

    def truth(self, whole: Whole) -> Any:
        """The interval of the sum without clip and bounds; of both signs only where a pace took nothing away."""
        if not self.reported():
            return None
        low, high = self.ends
        if self.widest is not None:
            low, high = min(low, self.widest[0]), max(high, self.widest[1])
        if len(whole.parts) > 1:
            whole = whole.with_added(self._beyond() / self.full)
        if low < 0 < high:
            total = around(whole.parts[0] * self.full, whole.noise.margin(1) * self.full)
            return total if whole.least == 1 else None
        sign = -1.0 if high <= 0 else 1.0
        least, most = total_interval(whole.times(sign), 0)
        return tuple(sorted((sign * least * self.full, sign * most * self.full)))


@dataclass(frozen=True, slots=True)
class Mean(_Averaged):
    """The mean of a column, entries clipped to [low, high]: a noisy sum over a noisy count, paid once.

    ``per="person"``: each person has one weight: the mean over people of the mean of each person's rows.
    ``per="row"``: each row has one weight; a clip must be given. ``per="total"``: the mean over people of the total of
    each person's rows, the total clipped to [low, high].
    """

    widest: Bounds | None = field(default=None, kw_only=True)
    """A declaration: no entry is outside these. What [low, high] takes away is reported, for ``truth_intervals``."""

    def row(self) -> tuple[Coordinate, ...]:
        """The count, the sum of differences from the middle, and what the bounds take away, where that is reported."""
        return self._count(), self._from_middle(), *self._taken()

    def scales(self) -> dict[str, float]:
        full, beyond = STEPS / self.steps, self._beyond()
        both = {"count": full, "sum of differences from the middle": full * self.half}
        return both | ({"sum of what the bounds take away": full * beyond} if beyond else {})

    def read(self, parts: list[float], noise: NoiseBand) -> tuple[Any, Any]:
        count, total = parts[:2]
        if count <= 0:
            return None, self.ends
        return self.middle + self.half * _clip(total / count), self._in_units(mean_interval(count, total, noise))

    def truth(self, whole: Whole) -> Any:
        if not self.reported():
            return None
        count, total, *taken = whole.parts
        if not taken:
            return self._in_units(mean_interval(count, total, whole.noise, least=whole.least))
        (low, high), ratio = self.ends, self._beyond() / self.half
        first, last = self.widest or (low, high)
        ends = (min(first, low) - self.middle) / self.half, (max(last, high) - self.middle) / self.half
        total += ratio * taken[0]
        reach = hypot(1, ratio)
        return self._in_units(mean_interval(count, total, whole.noise, least=whole.least, reach=reach, ends=ends))

    def _in_units(self, interval: Interval) -> Interval:
        return self.middle + self.half * interval[0], self.middle + self.half * interval[1]


@dataclass(frozen=True, slots=True)
class Variance(_Averaged):
    """The variance of a column, entries clipped to [low, high]: noisy count, sum and sum of squares, paid once.

    ``per`` is as for ``Mean``. Per person it is the variance of the entries of people drawn at random, each with one of
    their rows drawn at random: it has the differences between a person's own rows in it.
    """

    def row(self) -> tuple[Coordinate, ...]:
        return self._count(), self._from_middle(), self._from_middle(power=2)

    def scales(self) -> dict[str, float]:
        full = STEPS / self.steps
        return {
            "count": full,
            "sum of differences from the middle": full * self.half,
            "sum of their squares": full * self.half**2,
        }

    def read(self, parts: list[float], noise: NoiseBand) -> tuple[Any, Any]:
        count, total, squares = parts
        scale = self.half**2
        if count <= 0:
            return None, (0.0, scale)
        value = max(0.0, min(1.0, squares / count - _clip(total / count) ** 2))
        low, high = variance_interval(count, total, squares, noise)
        return value * scale, (low * scale, high * scale)

    def truth(self, whole: Whole) -> Any:
        if not self.bounds_hold:
            return None
        count, total, squares = whole.parts
        low, high = variance_interval(count, total, squares, whole.noise, least=whole.least)
        return low * self.half**2, high * self.half**2


def _clip(value: float) -> float:
    return max(-1.0, min(1.0, value))


@dataclass(frozen=True, slots=True)
class Ratio(Question):
    """The sum of one column over the sum of another, or over a count: both are released with noise, and paid once.

    Each part is a column whose entries are clipped to its bounds, or a count of rows where no column is given; a part
    with a filter of its own takes the rows that match it. Rows in which a column of either part has no entry are in
    neither part. A full row is one in which both parts are as large as they can be.

    Examples: revenue per unit is ``Ratio("amount", "units", numerator_bounds=(0, 100), denominator_bounds=(0, 50))``;
    the share of rows that were cancelled is ``Ratio(numerator_where="cancelled")``.
    """

    numerator: ColumnName | None = None
    denominator: ColumnName | None = None
    numerator_bounds: Bounds | None = None
    denominator_bounds: Bounds | None = None
    numerator_where: Filter | None = None
    denominator_where: Filter | None = None
    bounds_hold: bool = False
    """A declaration: every entry is within the bounds of its part; for ``truth_intervals``."""
    width_varies = True

    def _check_kind(self) -> None:
        for part in ("numerator", "denominator"):
            column, bounds = getattr(self, part), getattr(self, f"{part}_bounds")
            if column is None and bounds is not None:
                raise ArgumentError(f"{told(**{f'{part}_bounds': bounds})} are for a column: give {part}=")
            if column is not None and bounds is None:
                raise ArgumentError(f"{told(**{part: column})} needs {part}_bounds=(low, high)")
            if bounds is not None and max(map(abs, bounds)) < 1e-100:
                raise ArgumentError(f"{told(**{f'{part}_bounds': bounds})} must not both be so near 0")

    @property
    def estimand(self) -> str:
        return f"{_words(self.numerator, self.numerator_where)} over {_words(self.denominator, self.denominator_where)}"

    def row(self) -> tuple[Coordinate, ...]:
        return (
            _part(self.numerator, self.numerator_bounds, self.numerator_where),
            _part(self.denominator, self.denominator_bounds, self.denominator_where),
        )

    def scales(self) -> dict[str, float]:
        full = STEPS / self.steps
        return {"numerator": full * _full(self.numerator_bounds), "denominator": full * _full(self.denominator_bounds)}

    def reported(self) -> bool:
        """True if the bounds take away nothing: the report is then on what is taken away from both parts."""
        return self.bounds_hold or (self.numerator is None and self.denominator is None)

    def truth(self, whole: Whole) -> Any:
        """The interval of the ratio without a clip; after a pace, only where neither part can be negative."""
        if not self.reported():
            return None
        _, (low, high) = self.read(whole.parts, whole.noise)
        if whole.least == 1:
            return low, high
        if any(bounds is not None and bounds[0] < 0 for bounds in (self.numerator_bounds, self.denominator_bounds)):
            return None
        return max(0.0, low) * whole.least, max(0.0, high) / whole.least

    def read(self, parts: list[float], noise: NoiseBand) -> tuple[Any, Any]:
        """The quotient, and the quotients that the noise allows (Fieller); None where the denominator may be 0."""
        above, below = parts
        scale = _full(self.numerator_bounds) / _full(self.denominator_bounds)
        positive = self.denominator_bounds is None or self.denominator_bounds[0] >= 0
        if below == 0 or (positive and below < 0):
            return None, (-inf, inf)
        low, high = _fieller(above, below, noise.margin(1))
        return above / below * scale, (low * scale, high * scale)


def _fieller(above: float, below: float, margin: float) -> Interval:
    """All r for which above - r * below is within the margin of what its noise, sqrt(1 + r**2) times one, allows.

    Guarantee: for independent Gaussian noise of equal spread on both, it holds the true quotient with the probability
        that the margin has for one of them.
    Source: Fieller (1954), "Some problems in interval estimation".
    """
    leading = below * below - margin * margin
    if leading <= 0:
        return -inf, inf
    root = margin * sqrt(max(0.0, above * above + leading))
    ends = (above * below - root) / leading, (above * below + root) / leading
    return min(ends), max(ends)


def _full(bounds: Bounds | None) -> float:
    """The largest entry of a part in a row; 1 for a count."""
    return 1.0 if bounds is None else max(abs(bounds[0]), abs(bounds[1]))


def _part(column: str | None, bounds: Bounds | None, where: str | None) -> Coordinate:
    if column is None or bounds is None:
        return CountRows() if where is None else Matching(where, CountRows())
    entry = Entry(column, *bounds, scale=_full(bounds))
    return entry if where is None else Matching(where, entry)


def _words(column: str | None, where: str | None) -> str:
    what = "the number of rows" if column is None else f"the sum of {column}, clipped to its bounds"
    return what if where is None else f"{what} with {where}"
