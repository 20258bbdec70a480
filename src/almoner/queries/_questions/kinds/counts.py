"""Count rows and people."""

from dataclasses import dataclass
from typing import Annotated, Any

from almoner._check import told
from almoner._reading import Number
from almoner._units import up
from almoner.errors import ArgumentError
from almoner.queries._questions.intervals import NoiseBand, Whole, around, total_interval
from almoner.queries._questions.question import Question, set_fields
from almoner.queries._questions.row_contributions import AnyRow, Coordinate

__all__ = ["Count", "People"]


@dataclass(frozen=True, slots=True)
class _Counted(Question):
    """A question whose answer is one noisy count for each group."""

    def width_depends_on_data(self) -> bool:
        """The noise alone."""
        return False

    def read(self, parts: list[float], noise: NoiseBand) -> tuple[Any, Any]:
        """The noisy count."""
        return parts[0], around(parts[0], noise.margin(1))

    def reported(self) -> bool:
        """True: the report is on what is taken away from the count."""
        return True

    def truth(self, whole: Whole) -> Any:
        """The interval of the count without a clip."""
        return total_interval(whole, 0)


@dataclass(frozen=True, slots=True)
class Count(_Counted):
    """Number of rows."""

    @property
    def estimand(self) -> str:
        """Noun phrase for the quantity that the answer estimates."""
        return "the number of rows"


@dataclass(frozen=True, slots=True)
class People(_Counted):
    """Number of people who have at least one row, in each group.

    With ``spare``, a price in rho: of those, how many can still pay that much afterwards. It tells an analyst when to
    stop trusting totals, and costs those who are counted what any count costs; ``pace`` is None then.
    """

    spare: Annotated[float, Number(1e-12, 1e3)] | None = None

    def _check_kind(self) -> None:
        if self.spare is not None:
            if self.pace not in (None, 1):
                raise ArgumentError(f"{told(pace=self.pace)}: with spare=, who cannot pay in full is left out")
            set_fields(self, pace=None)

    def _spare(self) -> int:
        return 0 if self.spare is None else int(up(self.spare))

    @property
    def estimand(self) -> str:
        """Noun phrase for the quantity that the answer estimates."""
        return "the number of people with at least one row" + (" who can still pay" if self.spare_units else "")

    def most_in_group(self) -> float:
        """A person is one person."""
        return 1.0

    def row(self) -> tuple[Coordinate, ...]:
        """One for a person with a row."""
        return (AnyRow(),)

    def reported(self) -> bool:
        """With ``spare`` it is not about all people."""
        return self.spare is None

    def truth(self, whole: Whole) -> Any:
        """The interval of the number of people without a clip; with ``spare`` it is not about all people."""
        return None if self.spare_units else _Counted.truth(self, whole)
