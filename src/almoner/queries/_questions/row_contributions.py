"""Terms that one row of the data adds to a question's answer: descriptions that every engine compiles, and no SQL.

A question's coordinates, in order, are added up over each person's rows in each group. A coordinate that is as large as
it can be is ``Question.steps`` whole steps.
"""

from dataclasses import dataclass
from typing import Literal

Per = Literal["person", "row", "total"]
"""Whose distribution a question is about: people, each of one weight that is shared equally by their rows in the group;
rows; or people by the total of their rows in the group."""


@dataclass(frozen=True, slots=True)
class CountRows:
    """Number of rows of a person; where a column is given, of those with an entry."""

    column: str | None = None


@dataclass(frozen=True, slots=True)
class AnyRow:
    """1 for a person with at least one row, where a column is given with an entry; else 0."""

    column: str | None = None


@dataclass(frozen=True, slots=True)
class Entry:
    """((entry clipped to [low, high]) - center) / scale, to a power: the sum over a person's rows, or as ``per`` says.

    Rows without the entry count for no coordinate of the question.

    Fields:
        center, scale: so that the result is in [-1, 1].
        per: row: the sum over the rows; person: their mean, 0 without rows; total: of the total of the rows' entries in
            place of one entry, 0 without rows. Single entries are then cut off at 2^29 scales.
    """

    column: str
    low: float
    high: float
    center: float = 0.0
    scale: float = 1.0
    power: int = 1
    per: Per = "row"


@dataclass(frozen=True, slots=True)
class Product:
    """The product of two entries of power 1: the sum over a person's rows, or, both per person, the mean over them."""

    first: Entry
    second: Entry


@dataclass(frozen=True, slots=True)
class Matching:
    """A coordinate in which the rows that do not match a filter count 0."""

    where: str
    of: CountRows | Entry


@dataclass(frozen=True, slots=True)
class Bins:
    """A cell for each bin of a column, instead of one for each group; rows without the entry are in none.

    Edges are increasing; the outer bins also take what is beyond them. By ``per`` it is each row that is 1 in its bin,
    each of a person's rows 1/(their number in the group), rounded down to whole steps, or 1 in the bin of the person's
    total.
    """

    column: str
    edges: tuple[float, ...]
    per: Per = "row"

    @property
    def cells(self) -> int:
        return len(self.edges) - 1


@dataclass(frozen=True, slots=True)
class KeyCells:
    """A cell for each key of a column, instead of one for each group; rows with other keys are in none."""

    column: str
    keys: tuple[object, ...]

    @property
    def cells(self) -> int:
        return len(self.keys)


@dataclass(frozen=True, slots=True)
class Values:
    """The different values of a column, at most ``most`` of a person in all groups together, by that person's rows.

    With ``people`` the people with each value are counted; else the different values in each group.
    """

    column: str
    most: int
    people: bool


@dataclass(frozen=True, slots=True)
class EntryBuckets:
    """A cell for each bucket of a person's largest entry, then of the smallest; outer ones take what is beyond."""

    column: str
    edges: tuple[float, ...]

    @property
    def cells(self) -> int:
        return 2 * (len(self.edges) - 1)


Coordinate = CountRows | AnyRow | Entry | Product | Matching


def over_what(column: str, per: Per, clipped: str = "") -> str:
    """Noun phrase for what a mean, variance or quantile is taken over; ``clipped`` says what is done to an entry."""
    match per:
        case "person":
            return f"{column}{clipped} (per person: each person has one weight, shared by their rows)"
        case "total":
            return f"each person's total of {column}{clipped} (per person)"
    return f"{column}{clipped} (per row: who has more rows has more weight)"
