"""Budgets that come anew with each period: the unit of an account is a person in a period of the rows.

Names and symbols
    K             how many periods there are, a public number
    unit          a person in a period, named by the person, a blank and the period's first day: "ann 2026-05-01"
    number        of a unit, where people are named by whole numbers: person * 8192 + place of the period, in 128 bits
    B             the budget of each unit

Rows of May are charged to the person's account of May, whenever they are asked about: old rows never get a new budget,
and new rows bring one of their own.

Source: theory 5.13; docs/proofs/periods.md
"""

from bisect import bisect_left
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import date, timedelta
from functools import cached_property
from typing import Any, ClassVar, Self

from almoner import _check
from almoner._calendar import start_of
from almoner._check import told
from almoner.errors import ArgumentError

_EVERY = {"day": 1, "week": 7, "month": 31, "quarter": 92, "year": 366}  # days after which, in any year, it is the next
_MOST = 5000
_PLACES = 8192  # more than there are periods; a power of two, so that numbers of units stay readable in binary
_LENGTH = len("2026-05-01")


@dataclass(frozen=True)
class Periods:
    """Every person has a budget of their own in each period of the rows. Public.

    Args:
        column: the column, of dates or times, that says in which period a row is. It is fixed when the row is
            recorded: a row whose date can be changed later could be moved to a period with money left.
        every: "day", "week" (from Monday), "month", "quarter" or "year".
        first, last: dates in the first and the last period, or as text: "2026-01-01". Rows outside, and rows without
            a date, are in no answer. They may be years ahead: what they bound is what is promised for a lifetime.

    Guarantee: the budget holds for adding or removing the rows of any one person in any one period. For adding or
        removing a person with all their rows, mu (of zCDP: the square root of rho; of pure budgets: epsilon) is at most
        the number of periods times that of the budget.
    Source: theory 5.13; docs/proofs/periods.md.
    """

    NUMBERS: ClassVar[str] = "HUGEINT"
    """The type of ``number_of`` in tables of DuckDB."""

    column: str
    every: str
    first: date | str
    last: date | str

    def __post_init__(self) -> None:
        _check.name(column=self.column)
        _check.one_of(tuple(_EVERY), every=self.every)
        for name in ("first", "last"):
            object.__setattr__(self, name, start_of(self.every, _date(name, getattr(self, name))))
        if self.first > self.last:  # type: ignore[operator]  # both are dates now
            raise ArgumentError(f"{told(first=self.first)} must not be after {told(last=self.last)}")
        if self.count > _MOST:
            raise ArgumentError(f"{told(every=self.every)}: there may be {_MOST:,} periods from first to last")

    @property
    def count(self) -> int:
        """K."""
        return len(self.labels)

    @cached_property
    def labels(self) -> tuple[str, ...]:
        """(K,) the first day of each period, in order."""
        start, last = _date("first", self.first), _date("last", self.last)
        listed: list[str] = []
        while start <= last and len(listed) <= _MOST:
            listed.append(start.isoformat())
            start = self._next(start)
        return tuple(listed)

    @cached_property
    def days(self) -> tuple[tuple[date, date], ...]:
        """(K,) the first and the last day of each period, in order."""
        starts = [date.fromisoformat(label) for label in self.labels]
        return tuple((start, self._next(start) - timedelta(days=1)) for start in starts)

    def place_of(self, label: str) -> int:
        """The place, from 0, of the period that begins on this day; an ArgumentError where none does."""
        if label not in self._known:
            raise ArgumentError(f"{label!r:.40} must be the first day of a period, such as {self.labels[0]!r}")
        return bisect_left(self.labels, label)

    def units_of(self, person: str) -> list[str]:
        """The names of a person's accounts, one for each period."""
        return [f"{person} {label}" for label in self.labels]

    def period_of(self, unit: str) -> str | None:
        """The period of a unit's name; None where it is no such name."""
        label = unit[-_LENGTH:]
        return label if len(unit) > _LENGTH + 1 and unit[-_LENGTH - 1] == " " and label in self._known else None

    @cached_property
    def _known(self) -> frozenset[str]:
        return frozenset(self.labels)

    def number_of(self, unit: str) -> int:
        """The number of a unit whose person is a whole number; different units have different numbers."""
        return int(unit[: -_LENGTH - 1]) * _PLACES + self.place_of(unit[-_LENGTH:])

    def unit_of(self, number: int) -> str:
        """The unit's name, of its number."""
        person, place = divmod(number, _PLACES)
        return f"{person} {self.labels[place]}"

    def sql(self, person: str, column: str, *, whole: bool = False, text: str = "VARCHAR") -> str:
        """SQL for the unit that a row belongs to, or in DuckDB its number where ``whole``; NULL for none.

        ``person`` is SQL of the person as text, or as a whole number; ``column`` of the date or time. ``text`` is the
        engine's type of texts.
        """
        first, after, day = self.first, self._next(_date("last", self.last)), f"TRY_CAST({column} AS DATE)"
        unit = f"{person} || ' ' || CAST(CAST(date_trunc('{self.every}', {day}) AS DATE) AS {text})"
        if whole:
            unit = f"CAST({person} AS HUGEINT) * {_PLACES} + date_diff('{self.every}', DATE '{first}', {day})"
        return f"(CASE WHEN {day} >= DATE '{first}' AND {day} < DATE '{after}' THEN {unit} END)"

    def number_sql(self, unit: str) -> str:
        """SQL of DuckDB for the number of a unit of a person who is named by a whole number."""
        person, start = (f"split_part({unit}, ' ', {place})" for place in (1, 2))
        after = f"date_diff('{self.every}', DATE '{self.first}', CAST({start} AS DATE))"
        return f"CAST({person} AS HUGEINT) * {_PLACES} + {after}"

    @property
    def public(self) -> dict[str, str]:
        return {"column": self.column, "every": self.every, "first": str(self.first), "last": str(self.last)}

    @classmethod
    def read(cls, public: Mapping[str, Any]) -> Self:
        return cls(str(public["column"]), str(public["every"]), str(public["first"]), str(public["last"]))

    def _next(self, start: date) -> date:
        return start_of(self.every, start + timedelta(days=_EVERY[self.every]))


def _date(name: str, value: object) -> date:
    with suppress(ValueError):
        found = date.fromisoformat(value) if isinstance(value, str) else value
        if type(found) is date and 1900 <= found.year <= 2999:
            return found
    raise ArgumentError(f"{told(**{name: value})} must be a date of the years 1900 to 2999, such as '2026-01-01'")
