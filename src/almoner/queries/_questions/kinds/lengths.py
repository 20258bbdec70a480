"""Lengths of people's contributions, and sizes of their entries, by which clips and bounds are chosen."""

from dataclasses import dataclass, field
from itertools import pairwise
from math import floor, sqrt
from typing import Annotated, Any

from almoner._reading import Checked
from almoner.errors import ArgumentError
from almoner.queries._questions.field_types import ColumnName
from almoner.queries._questions.intervals import NoiseBand, around
from almoner.queries._questions.prices import STEPS
from almoner.queries._questions.question import Question, set_fields
from almoner.queries._questions.row_contributions import EntryBuckets, LengthBuckets

__all__ = ["SIZES", "Extremes", "Lengths"]

SIZES = tuple(2.0 ** (place / 2) for place in range(-40, 121))
"""The sizes of entries at which their buckets end, on both sides of 0."""
_EDGES = tuple(2.0 ** (place / 2) for place in range(-20, 41))


@dataclass(frozen=True, slots=True)
class Lengths(Question):
    """Numbers of people by the length of their contribution to another question, in full rows, before its clip.

    Each person is in one bucket: the outer ones also take what is beyond them, and people who contribute nothing are in
    none. The buckets are half powers of two. ``of`` is the other question; its own clip and noise do not matter.
    """

    of: Annotated[Question, Checked(lambda of: of)] = field(kw_only=True)

    def _check_kind(self) -> None:
        if not isinstance(self.of, Question) or isinstance(self.of, Lengths) or self.of.open:
            raise ArgumentError("of must be a question with a clip and noise")
        if self.where is not None or self.by or self.per_group is not None:
            raise ArgumentError("of says which rows count; where=, by= and per_group= are its own")
        if self.of.pure != self.pure:
            raise ArgumentError("of must have the same kind of noise")
        set_fields(self, by=(), keys=())

    @property
    def estimand(self) -> str:
        """Noun phrase for the quantity that the answer estimates."""
        return f"the number of people by the length of what they contribute to {self.of.estimand}"

    def most_in_group(self) -> float:
        """A person is in one bucket."""
        return 1.0

    def bins(self) -> LengthBuckets:
        """One count for each bucket."""
        return LengthBuckets(_EDGES)

    def scales(self) -> dict[str, float]:
        """One count for each bucket."""
        return {"people in each bucket": 1.0}

    def several(self) -> tuple[str, list[str]]:
        """The buckets, by their edges."""
        return "length", [f"{low:.4g} to {high:.4g}" for low, high in pairwise(_EDGES)]

    def width_depends_on_data(self) -> bool:
        """The noise alone."""
        return False

    def read(self, parts: list[float], noise: NoiseBand) -> tuple[Any, Any]:
        """The noisy counts, each with an interval of its own."""
        return parts, [around(value, noise.margin(1)) for value in parts]


@dataclass(frozen=True, slots=True)
class Extremes(Question):
    """Numbers of people who have their largest entry of a column, and their smallest one, in each bucket of entries.

    The buckets are half powers of two, on both sides of 0; the outer ones also take what is beyond. A person is in two
    cells, one for the largest and one for the smallest entry, with a length of 1 together.
    """

    column: ColumnName = field(kw_only=True)

    def _check_kind(self) -> None:
        if self.by or self.per_group is not None:
            raise ArgumentError("by= and per_group= are for other questions")

    @property
    def estimand(self) -> str:
        """Noun phrase for the quantity that the answer estimates."""
        return f"the number of people by their largest, and by their smallest, {self.column}"

    def most_in_group(self) -> float:
        """A person is in two cells, of length 1 together."""
        return 1.0

    def bins(self) -> EntryBuckets:
        """One count for each bucket of largest entries, and of smallest."""
        return EntryBuckets(self.column, (*(-size for size in reversed(SIZES)), *SIZES))

    def _steps(self) -> int:
        """Both cells of a person have length 1 together."""
        return STEPS // 2 if self.pure else floor(STEPS / sqrt(2))

    def scales(self) -> dict[str, float]:
        """One count for each bucket."""
        return {"people in each bucket": STEPS / self.steps}

    def several(self) -> tuple[str, list[str]]:
        """The buckets, by their edges."""
        listed = [f"{low:.4g} to {high:.4g}" for low, high in pairwise(self.bins().edges)]
        return "entry", [f"largest {each}" for each in listed] + [f"smallest {each}" for each in listed]

    def width_depends_on_data(self) -> bool:
        """The noise alone."""
        return False

    def read(self, parts: list[float], noise: NoiseBand) -> tuple[Any, Any]:
        """The noisy counts, each with an interval of its own."""
        return parts, [around(value, noise.margin(1)) for value in parts]
