"""A question as a SELECT statement, which a session reads with the names of its tables."""

from dataclasses import dataclass, field
from math import nextafter
from typing import Annotated

from almoner._check import told
from almoner._reading import Field, Number
from almoner.errors import ArgumentError
from almoner.queries._language.expressions import LONGEST
from almoner.queries._language.nodes import parsed
from almoner.queries._questions.field_types import Columns
from almoner.queries._questions.question import Question


@dataclass(frozen=True, slots=True)
class Sql(Question):
    """A SELECT statement over a table of people: the session asks the ``Several``, or ``Quantiles``, that it means.

    ``count(*)``, ``count(DISTINCT person)``, ``sum``, ``avg``, ``var_pop``, ``stddev_pop`` and, alone, ``median`` and
    ``quantile_cont``; FROM, JOIN, WHERE and GROUP BY as docs/sql.md says. Anything else is refused by its name. Keys
    come from ``by``, lists in WHERE, or the data set; bounds from ``bounds``, the expression, or the data set.
    """

    sql: Annotated[str, Field(json_schema_extra={"minLength": 1, "maxLength": LONGEST})]
    bounds: Columns | None = field(default=None, kw_only=True)
    """{column: (low, high)} for sums, means and quantiles of columns; entries are clipped to these."""
    bounds_hold: bool = field(default=False, kw_only=True)
    """A declaration: every entry is within its bounds; for ``truth_intervals``."""
    quantile_bins: Annotated[int, Number(2, 4096, whole=True)] = field(default=100, kw_only=True)
    """The number of bins of equal width, between the bounds, that quantiles are read off."""

    delta: Annotated[float, Number(1e-100, nextafter(1, 0))] | None = field(default=None, kw_only=True)
    """For keys that nobody lists, of GROUP BY beside ``count(DISTINCT person)`` alone: as of ``Keys``."""
    most: Annotated[int, Number(1, 4096, whole=True)] = field(default=1, kw_only=True)
    """The most such keys that one person counts for."""

    def _check_kind(self) -> None:
        for name in ("table", "where", "each", "each_person", "beside", "error"):
            if value := getattr(self, name):
                raise ArgumentError(f"{told(**{name: value})}: the statement says it; a price is rho= or epsilon=")
        if not self.sql.strip() or len(self.sql) > LONGEST:
            raise ArgumentError(f"sql must be a SELECT of 1 to {LONGEST} characters")
        parsed(self.sql)

    def left_out(self) -> tuple[str, ...]:
        """All of it: only a session knows what the names in it are."""
        return ("sql",)

    def most_in_group(self) -> float | None:
        """Unknown as yet: the question that it means is checked for a clip of its own."""
        return None if self.clip == "auto" else 1.0
