"""Rows of a SELECT: its answer as it says to show it; HAVING, ORDER BY and LIMIT are about what is released already."""

from dataclasses import dataclass, field
from math import sqrt
from typing import TYPE_CHECKING, Any

import duckdb

from almoner import _extras
from almoner.queries._ask.answer import Answer
from almoner.queries._language.sql import Aggregate, Statement, written

if TYPE_CHECKING:
    import pandas
    import pyarrow

__all__ = ["Rows", "arranged"]

_ENDS = ("", "_low", "_high", "_truth_low", "_truth_high")


@dataclass(frozen=True, slots=True)
class Rows:
    """Columns and rows of a SELECT's answer. Everything here is public.

    An aggregate ``x`` has the columns x (None where the noise leaves nothing to say), x_low and x_high, its interval of
    95 % for the noise alone, and x_truth_low and x_truth_high, as of ``Answer.truth_intervals``: None where not known.
    """

    answer: Answer
    """Of the question that the statement means, with all groups."""
    columns: tuple[str, ...]
    rows: list[tuple[Any, ...]] = field(repr=False)

    def to_arrow(self) -> "pyarrow.Table":
        """The rows as an Arrow table."""
        with _extras.need("pyarrow", extra="queries"):
            import pyarrow
        listed = zip(*self.rows, strict=True) if self.rows else [()] * len(self.columns)
        return pyarrow.table([pyarrow.array(list(each)) for each in listed], names=list(self.columns))

    def to_pandas(self) -> "pandas.DataFrame":
        """The rows as a data frame."""
        with _extras.need("pandas", extra="queries"):
            import pandas
        return pandas.DataFrame(self.rows, columns=list(self.columns))


def arranged(told: Statement, answer: Answer) -> Rows:
    """The rows of an answer that a statement keeps, in its order, with the columns that it shows."""
    listed, names = dict[str, list[Any]](), list[str]()
    labels: Any = (answer.question.several() or ("", ()))[1]
    truths = answer.truth_intervals or [None] * len(answer.groups)
    for place, (name, value) in enumerate(told.outputs):
        names += [f"{name}{end}" for end in (_ENDS if isinstance(value, Aggregate) else _ENDS[:1])] * (
            place < told.shown
        )
        if not isinstance(value, Aggregate):
            keys = [group[told.group.index(value)] for group in answer.groups]
            listed[f"c{place}"] = [" to ".join(map(str, key)) if isinstance(key, tuple) else key for key in keys]
            continue
        which = list(labels).index(value.level if value.kind == "quantile" else name)
        for end in _ENDS:
            listed[f"c{place}{end}"] = []
        for number, interval, truth in zip(answer.values, answer.intervals, truths, strict=True):
            ends = (None, None) if truth is None or truth[which] is None else truth[which]
            for end, each in zip(_ENDS, [number and number[which], *interval[which], *ends], strict=True):
                listed[f"c{place}{end}"].append(sqrt(max(0.0, each)) if value.root and each is not None else each)
    return Rows(answer, tuple(names), _kept(told, listed, len(names)))


def _kept(told: Statement, listed: dict[str, list[Any]], width: int) -> list[tuple[Any, ...]]:
    """The rows after HAVING, ORDER BY and LIMIT; only trees of the language, and numbers, are written into the SQL."""
    import pyarrow

    having = "" if told.having is None else f" WHERE {written(told.having)}"
    order = f" ORDER BY {', '.join(told.order)}" if told.order else ""
    limit = "" if told.limit[0] is None else f" LIMIT {told.limit[0]:d}"
    with duckdb.connect(config={"enable_external_access": False}) as connection:
        connection.register("released", pyarrow.table(listed))
        sql = f"SELECT {', '.join(list(listed)[:width])} FROM released{having}{order}{limit} OFFSET {told.limit[1]:d}"
        return connection.execute(sql).fetchall()
