"""The most frequent of public keys."""

from dataclasses import dataclass
from typing import Annotated, Any, Literal

from almoner._check import told
from almoner._reading import Checked, Number
from almoner.errors import ArgumentError
from almoner.queries._questions.field_types import ColumnName, KeyList
from almoner.queries._questions.intervals import NoiseBand, Whole, around
from almoner.queries._questions.question import Key, Question, checked_keys, set_fields
from almoner.queries._questions.row_contributions import AnyRow, Coordinate, CountRows, KeyCells

__all__ = ["Top"]


@dataclass(frozen=True, slots=True)
class Top(Question):
    """The k keys of a column with the most people, or rows, among public keys; from one noisy count for each key.

    The answer is a list of (key, noisy count), largest first; equal counts in the order of ``among``. The interval of
    each count holds for all keys together, so also for those that come out on top.
    """

    k: Annotated[int, Number(1, 1e6, whole=True)]
    column: ColumnName
    among: Annotated[tuple[Key, ...], Checked(lambda keys: keys, KeyList)]
    count: Literal["people", "rows"] = "people"

    def _check_kind(self) -> None:
        set_fields(self, among=checked_keys("among", self.column, self.among))
        if self.k > len(self.among):
            raise ArgumentError(f"{told(k=self.k)} must be at most the number of keys, {len(self.among)}")

    @property
    def estimand(self) -> str:
        """Noun phrase for the quantity that the answer estimates."""
        return f"the {self.k} of {len(self.among)} public keys of {self.column} with the most {self.count}"

    def row(self) -> tuple[Coordinate, ...]:
        """One for a person with the key, or for a row with it."""
        return (AnyRow(),) if self.count == "people" else (CountRows(),)

    def bins(self) -> KeyCells:
        """One count for each key."""
        return KeyCells(self.column, self.among)

    def several(self) -> tuple[str, tuple[Key, ...]]:
        """Each count stands beside its key."""
        return "key", ()

    def width_depends_on_data(self) -> bool:
        """The noise alone."""
        return False

    def scales(self) -> dict[str, float]:
        """One count for each key."""
        return {"count of each key": 1.0}

    def reported(self) -> bool:
        """True: the report is on what is taken away from each count."""
        return True

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
        """Of the k largest, largest first."""
        return sorted(range(len(parts)), key=lambda place: (-parts[place], place))[: self.k]
