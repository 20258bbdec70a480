"""Ratios of two sums or counts, from one noisy release of both."""

from dataclasses import dataclass
from math import floor, inf, sqrt
from typing import Any

from almoner._check import told
from almoner.errors import ArgumentError
from almoner.queries._questions.field_types import Bounds, ColumnName, Filter
from almoner.queries._questions.intervals import Interval, NoiseBand, Whole
from almoner.queries._questions.prices import STEPS
from almoner.queries._questions.question import Question
from almoner.queries._questions.row_contributions import Coordinate, CountRows, Entry, Matching

__all__ = ["Ratio"]


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
        """Noun phrase for the quantity that the answer estimates."""
        return f"{_words(self.numerator, self.numerator_where)} over {_words(self.denominator, self.denominator_where)}"

    def row(self) -> tuple[Coordinate, ...]:
        """Both parts."""
        return (
            _part(self.numerator, self.numerator_bounds, self.numerator_where),
            _part(self.denominator, self.denominator_bounds, self.denominator_where),
        )

    def _steps(self) -> int:
        """A row with both at their largest has length 1."""
        return STEPS // 2 if self.pure else floor(STEPS / sqrt(2))

    def scales(self) -> dict[str, float]:
        """Both parts."""
        full = STEPS / self.steps
        return {
            "numerator": full * _full(self.numerator_bounds),
            "denominator": full * _full(self.denominator_bounds),
        }

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
