"""Interface of the engines. Every engine must give the same whole sums and the same units."""

from collections.abc import Mapping
from typing import Any, Protocol

from almoner._workspace import Query
from almoner.queries._questions.question import Question
from almoner.queries._sql.compiler import Compiled
from almoner.queries._sql.schemas import Schema

__all__ = ["Engine"]


class Engine(Protocol):
    """The people's rows, in an engine that adds up. Private."""

    @property
    def schema(self) -> Schema:
        """Which tables there are."""

    def plan(self, asked: Question, described: Mapping[str, object]) -> Compiled:
        """The statements of a question; refuses what cannot be asked of these columns, by their names and types."""

    def check_files(self) -> None:
        """Refuse files that every question reads and that are not what they were when the session was opened.

        Engines call it before rows are read, and again before what was read is told.

        Raises:
            DataError: with its reason, "away" or "changed", which tells nothing about the rows.
        """

    def charges(self, plan: Compiled) -> object:
        """Describe each person's contribution and price (person, units, ...), for ``Ledger.answer``."""

    def prices(self, plan: Compiled) -> Query:
        """A query of the workspace that gives each person's price: person, units."""

    def sums(self, plan: Compiled, admitted: object) -> list[int]:
        """The contributions of the people admitted, added up, in whole steps. Private."""

    def people_by_value(self, plan: Compiled, admitted: object) -> list[tuple[Any, int]]:
        """(value, people) of a question about values: how many of the people admitted keep each. Private."""

    def close(self) -> None:
        """Release what the engine holds; no more questions follow."""
