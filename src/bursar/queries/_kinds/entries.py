"""Sums, means and variances of a column's entries between bounds."""

from dataclasses import dataclass, field
from math import floor, sqrt
from typing import Any, Literal

from bursar import _check
from bursar.errors import ArgumentError
from bursar.queries._kinds._intervals import mean_interval, total_interval, variance_interval
from bursar.queries._kinds._words import over_what
from bursar.queries._missing import Missing
from bursar.queries._noise_bands import Interval, NoiseBand, around
from bursar.queries._prices import STEPS
from bursar.queries._question import LARGEST, Question, check_column, make_plain, set_fields
from bursar.queries._rows import PER, AnyRow, Coordinate, CountRows, Entry, Per

__all__ = ["Mean", "Sum", "Variance"]


@dataclass(frozen=True, slots=True)
class _Bounded(Question):
    column: str
    low: float | Literal["auto"]
    high: float | Literal["auto"]
    bounds_hold: bool = field(default=False, kw_only=True)
    """A declaration: every entry, or every total of ``per="total"``, is within the bounds; for ``truth_intervals``."""

    middle: float = field(init=False, repr=False, compare=False)
    """Between the bounds."""
    half: float = field(init=False, repr=False, compare=False)
    """From the middle to a bound."""

    def __post_init__(self) -> None:
        check_column(self.column)
        make_plain(self, "low", "high")
        if not isinstance(self.bounds_hold, bool):
            raise ArgumentError(f"bounds_hold={self.bounds_hold!r} must be True or False")
        if "auto" in (self.low, self.high):  # the bounds follow before it is asked: see ``Question.open``
            set_fields(self, middle=0.0, half=1.0)
            Question.__post_init__(self)
            return
        low, high = self.ends
        _check.number(low=low, high=high)
        if not -LARGEST <= low < high <= LARGEST:
            raise ArgumentError(f"low={low!r} and high={high!r} must be increasing, within {LARGEST:g}")
        if not high - low > max(1e-100, 1e-9 * max(abs(low), abs(high))):
            raise ArgumentError(f"low={low!r} and high={high!r} are too close to each other")
        set_fields(self, middle=low / 2 + high / 2, half=high / 2 - low / 2)
        Question.__post_init__(self)

    def auto_bounds(self) -> dict[str, float]:
        """Those that are to be chosen, with some numbers that could stand there."""
        return {
            name: end for name, end in zip(("low", "high"), self.ends, strict=True) if getattr(self, name) == "auto"
        }

    @property
    def ends(self) -> tuple[float, float]:
        """The bounds; some numbers in place of those that are to be chosen, for the shape of the question."""
        low, high = self.low, self.high
        if low == "auto":
            return (-1.0, 1.0) if high == "auto" else (high - 1.0 - abs(high), high)
        return low, (low + 1.0 + abs(low) if high == "auto" else high)

    def reported(self) -> bool:
        """What a clip takes away, if the bounds take away nothing."""
        return self.bounds_hold


@dataclass(frozen=True, slots=True)
class _Averaged(_Bounded):
    per: Per = field(default="person", kw_only=True)

    def __post_init__(self) -> None:
        _check.one_of(PER, per=self.per)
        _Bounded.__post_init__(self)

    def most_in_group(self) -> float | None:
        """A person is one row at most, unless rows count."""
        return None if self.per == "row" else 1.0

    @property
    def _over(self) -> str:
        """What is averaged, in words."""
        return over_what(self.column, self.per, f", clipped to [{self.low}, {self.high}]")

    def _count(self) -> Coordinate:
        return CountRows() if self.per == "row" else AnyRow()

    def _from_middle(self, power: int = 1) -> Entry:
        """The entry as its difference from the middle, in halves."""
        return Entry(self.column, *self.ends, self.middle, self.half, power, self.per)


@dataclass(frozen=True, slots=True)
class Sum(_Bounded):
    """The sum of a column, each entry clipped to [low, high]; a full row is an entry of max(|low|, |high|)."""

    @property
    def estimand(self) -> str:
        """What the answer is about, in words."""
        return f"the sum of {self.column} over rows, each entry clipped to [{self.low}, {self.high}]"

    @property
    def full(self) -> float:
        """The largest entry there may be."""
        return max(map(abs, self.ends))

    def row(self) -> tuple[Coordinate, ...]:
        """The entry, as a part of the largest."""
        return (Entry(self.column, *self.ends, scale=self.full),)

    def scales(self) -> dict[str, float]:
        """The sum."""
        return {"sum": self.full}

    def width_depends_on_data(self) -> bool:
        """The noise alone."""
        return False

    def read(self, parts: list[float], noise: NoiseBand) -> tuple[Any, Any]:
        """The noisy sum, in the units of the column."""
        return parts[0] * self.full, around(parts[0] * self.full, noise.margin(1) * self.full)

    def truth(self, parts: list[float], noise: NoiseBand, missing: Missing | None) -> Any:
        """The interval of the sum without a clip."""
        if not self.bounds_hold:
            return None
        sign = -1.0 if self.ends[1] <= 0 else 1.0  # what is missing is at least 0 in this direction
        signed = self.ends[0] < 0 < self.ends[1]
        low, high = total_interval(sign * parts[0], noise, missing, 0, signed=signed)
        return tuple(sorted((sign * low * self.full, sign * high * self.full)))


@dataclass(frozen=True, slots=True)
class Mean(_Averaged):
    """The mean of a column, entries clipped to [low, high]: a noisy sum over a noisy count, paid once.

    ``per="person"``: each person has one weight: the mean over people of the mean of each person's rows.
    ``per="row"``: each row has one weight; a clip must be given. ``per="total"``: the mean over people of the total of
    each person's rows, the total clipped to [low, high].
    """

    @property
    def estimand(self) -> str:
        """What the answer is about, in words."""
        return f"the mean of {self._over}"

    def row(self) -> tuple[Coordinate, ...]:
        """The count, and the sum of differences from the middle."""
        return self._count(), self._from_middle()

    def _steps(self) -> int:
        """A row with both at their largest has length 1."""
        return STEPS // 2 if self.pure else floor(STEPS / sqrt(2))

    def scales(self) -> dict[str, float]:
        """The count and the sum of differences."""
        full = STEPS / self.steps
        return {"count": full, "sum of differences from the middle": full * self.half}

    def read(self, parts: list[float], noise: NoiseBand) -> tuple[Any, Any]:
        """The quotient, and its interval within the noise."""
        count, total = parts
        if count <= 0:
            return None, self.ends
        return self.middle + self.half * _clip(total / count), self._in_units(mean_interval(count, total, noise))

    def truth(self, parts: list[float], noise: NoiseBand, missing: Missing | None) -> Any:
        """The interval of the mean without a clip."""
        return self._in_units(mean_interval(parts[0], parts[1], noise, missing)) if self.bounds_hold else None

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
        """What the answer is about, in words."""
        return f"the variance of {self._over}"

    def row(self) -> tuple[Coordinate, ...]:
        """The count, the sum of differences from the middle and the sum of their squares."""
        return self._count(), self._from_middle(), self._from_middle(power=2)

    def _steps(self) -> int:
        """A row with all of them at their largest has length 1."""
        return STEPS // 3 if self.pure else floor(STEPS / sqrt(3))

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

    def truth(self, parts: list[float], noise: NoiseBand, missing: Missing | None) -> Any:
        """The interval of the variance without a clip."""
        if not self.bounds_hold:
            return None
        low, high = variance_interval(parts[0], parts[1], parts[2], noise, missing)
        return low * self.half**2, high * self.half**2


def _clip(value: float) -> float:
    return max(-1.0, min(1.0, value))
