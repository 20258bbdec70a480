"""Sums, means and variances of a column's entries between bounds."""

from dataclasses import dataclass, field
from math import floor, hypot, sqrt
from typing import Any

from almoner._check import told
from almoner.errors import ArgumentError
from almoner.queries._questions.field_types import LARGEST, Bounds, ColumnName, End
from almoner.queries._questions.intervals import (
    Interval,
    NoiseBand,
    Whole,
    around,
    mean_interval,
    total_interval,
    variance_interval,
)
from almoner.queries._questions.prices import STEPS
from almoner.queries._questions.question import Question, set_fields
from almoner.queries._questions.row_contributions import AnyRow, Coordinate, CountRows, Entry, Per
from almoner.queries._questions.words import over_what

__all__ = ["Mean", "Sum", "Variance"]


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
        """The bounds that are to be chosen, with some numbers that could stand there."""
        return {
            name: end for name, end in zip(("low", "high"), self.ends, strict=True) if getattr(self, name) == "auto"
        }

    def left_out(self) -> tuple[str, ...]:
        """The bounds that the data set says."""
        return tuple(name for name in ("low", "high") if getattr(self, name) is None)

    @property
    def ends(self) -> tuple[float, float]:
        """The bounds; some numbers in place of those that are to be chosen, for the shape of the question."""
        low, high = self.low, self.high
        if low is None or low == "auto":
            return (-1.0, 1.0) if high is None or high == "auto" else (high - 1.0 - abs(high), high)
        return low, (low + 1.0 + abs(low) if high is None or high == "auto" else high)

    def reported(self) -> bool:
        """True if the bounds take away nothing: the report is then on what the clip and the pace take away."""
        return self.bounds_hold


def _check_widest(asked: "Sum | Mean") -> None:
    """Refuse declared bounds of all entries that make no sense; called before the rest of the question is checked."""
    if asked.widest is None:
        return
    if asked.bounds_hold:
        raise ArgumentError(f"{told(widest=asked.widest)}: with bounds_hold=True nothing is outside low and high")
    if isinstance(asked, Mean) and asked.per == "total":
        raise ArgumentError(f"{told(widest=asked.widest)} is for entries, not for totals: declare bounds_hold=True")


def _beyond(asked: "Sum | Mean") -> float:
    """Largest distance of entries from the bounds, by what is declared; 0 where none is outside."""
    if asked.widest is None:
        return 0.0
    low, high = asked.ends
    beyond = max(low - asked.widest[0], asked.widest[1] - high, 0.0)
    if 0 < beyond < 1e-9 * max(abs(low), abs(high), high - low):
        raise ArgumentError(f"{told(widest=asked.widest)} is too close to {told(low=low)} and {told(high=high)}")
    return beyond


def _taken(asked: "Sum | Mean", per: Per) -> tuple[Entry, ...]:
    """Coordinates of what the bounds take away, where that is reported."""
    beyond = _beyond(asked)
    return (Entry(asked.column, *asked.ends, scale=beyond, per=per, widest=asked.widest),) if beyond else ()


def _steps_of(asked: Question) -> int:
    """A row with all numbers at their largest has length 1."""
    numbers = len(asked.row())
    return STEPS // numbers if asked.pure else floor(STEPS / sqrt(numbers))


@dataclass(frozen=True, slots=True)
class _Averaged(_Bounded):
    per: Per = field(default="person", kw_only=True)

    def most_in_group(self) -> float | None:
        """A person is one row at most, unless rows count."""
        return None if self.per == "row" else 1.0

    @property
    def _over(self) -> str:
        """Noun phrase for what is averaged."""
        return over_what(self.column, self.per, f", clipped to [{self.low}, {self.high}]")

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

    def _check_kind(self) -> None:
        _check_widest(self)
        _Bounded._check_kind(self)

    @property
    def estimand(self) -> str:
        """Noun phrase for the quantity that the answer estimates."""
        return f"{self.whole_estimand}, each entry clipped to [{self.low}, {self.high}]"

    @property
    def whole_estimand(self) -> str:
        """Noun phrase for what is estimated if entries were not clamped to the bounds."""
        return f"the sum of {self.column} over rows"

    @property
    def full(self) -> float:
        """The largest entry there may be."""
        return max(map(abs, self.ends))

    def row(self) -> tuple[Coordinate, ...]:
        """The entry, as a part of the largest; and what the bounds take away, where that is reported."""
        return Entry(self.column, *self.ends, scale=self.full), *_taken(self, "row")

    def reported(self) -> bool:
        """True if the bounds take away nothing, or what they take away is reported."""
        return self.bounds_hold or self.widest is not None

    def _steps(self) -> int:
        return _steps_of(self)

    def scales(self) -> dict[str, float]:
        """The sum, and that of what the bounds take away."""
        step, beyond = STEPS / self.steps, _beyond(self)
        return {"sum": step * self.full} | ({"sum of what the bounds take away": step * beyond} if beyond else {})

    def width_depends_on_data(self) -> bool:
        """The noise alone."""
        return False

    def read(self, parts: list[float], noise: NoiseBand) -> tuple[Any, Any]:
        """The noisy sum, in the units of the column."""
        return parts[0] * self.full, around(parts[0] * self.full, noise.margin(1) * self.full)

    def truth(self, whole: Whole) -> Any:
        """The interval of the sum without clip and bounds; of both signs only where a pace took nothing away."""
        if not self.reported():
            return None
        low, high = self.ends
        if self.widest is not None:
            low, high = min(low, self.widest[0]), max(high, self.widest[1])
        if len(whole.parts) > 1:
            whole = whole.with_added(_beyond(self) / self.full)
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

    def _check_kind(self) -> None:
        _check_widest(self)
        _Averaged._check_kind(self)

    @property
    def estimand(self) -> str:
        """Noun phrase for the quantity that the answer estimates."""
        return f"the mean of {self._over}"

    @property
    def whole_estimand(self) -> str:
        """Noun phrase for what is estimated if entries were not clamped to the bounds."""
        return f"the mean of {over_what(self.column, self.per)}"

    def row(self) -> tuple[Coordinate, ...]:
        """The count, the sum of differences from the middle, and what the bounds take away, where that is reported."""
        return self._count(), self._from_middle(), *_taken(self, self.per)

    def reported(self) -> bool:
        """True if the bounds take away nothing, or what they take away is reported."""
        return self.bounds_hold or self.widest is not None

    def _steps(self) -> int:
        return _steps_of(self)

    def scales(self) -> dict[str, float]:
        """The count, the sum of differences, and that of what the bounds take away."""
        full, beyond = STEPS / self.steps, _beyond(self)
        both = {"count": full, "sum of differences from the middle": full * self.half}
        return both | ({"sum of what the bounds take away": full * beyond} if beyond else {})

    def read(self, parts: list[float], noise: NoiseBand) -> tuple[Any, Any]:
        """The quotient, and its interval within the noise."""
        count, total = parts[:2]
        if count <= 0:
            return None, self.ends
        return self.middle + self.half * _clip(total / count), self._in_units(mean_interval(count, total, noise))

    def truth(self, whole: Whole) -> Any:
        """The interval of the mean without clip and bounds."""
        if not self.reported():
            return None
        count, total, *taken = whole.parts
        if not taken:
            return self._in_units(mean_interval(count, total, whole.noise, least=whole.least))
        (low, high), ratio = self.ends, _beyond(self) / self.half
        first, last = self.widest or (low, high)
        ends = (min(first, low) - self.middle) / self.half, (max(last, high) - self.middle) / self.half
        total += ratio * taken[0]
        reach = hypot(1, ratio)
        return self._in_units(mean_interval(count, total, whole.noise, least=whole.least, reach=reach, ends=ends))

    def _in_units(self, interval: Interval) -> Interval:
        """In the units of the column."""
        return self.middle + self.half * interval[0], self.middle + self.half * interval[1]


@dataclass(frozen=True, slots=True)
class Variance(_Averaged):
    """The variance of a column, entries clipped to [low, high]: noisy count, sum and sum of squares, paid once.

    ``per`` is as for ``Mean``. Per person it is the variance of the entries of people drawn at random, each with one of
    their rows drawn at random: it has the differences between a person's own rows in it.
    """

    @property
    def estimand(self) -> str:
        """Noun phrase for the quantity that the answer estimates."""
        return f"the variance of {self._over}"

    def row(self) -> tuple[Coordinate, ...]:
        """The count, the sum of differences from the middle and the sum of their squares."""
        return self._count(), self._from_middle(), self._from_middle(power=2)

    @property
    def whole_estimand(self) -> str:
        """Noun phrase for what is estimated if entries were not clamped to the bounds."""
        return f"the variance of {over_what(self.column, self.per)}"

    def _steps(self) -> int:
        return _steps_of(self)

    def scales(self) -> dict[str, float]:
        """The count and the two sums."""
        full = STEPS / self.steps
        return {
            "count": full,
            "sum of differences from the middle": full * self.half,
            "sum of their squares": full * self.half**2,
        }

    def read(self, parts: list[float], noise: NoiseBand) -> tuple[Any, Any]:
        """The variance, and its interval within the noise."""
        count, total, squares = parts
        scale = self.half**2
        if count <= 0:
            return None, (0.0, scale)
        value = max(0.0, min(1.0, squares / count - _clip(total / count) ** 2))
        low, high = variance_interval(count, total, squares, noise)
        return value * scale, (low * scale, high * scale)

    def truth(self, whole: Whole) -> Any:
        """The interval of the variance without a clip."""
        if not self.bounds_hold:
            return None
        count, total, squares = whole.parts
        low, high = variance_interval(count, total, squares, whole.noise, least=whole.least)
        return low * self.half**2, high * self.half**2


def _clip(value: float) -> float:
    return max(-1.0, min(1.0, value))
