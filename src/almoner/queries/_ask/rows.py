"""Rows of a SELECT: its answer as it says to show it; HAVING, ORDER BY and LIMIT are about what is released already."""

from dataclasses import dataclass, field
from math import sqrt
from typing import TYPE_CHECKING, Any

from almoner import _extras
from almoner._workspace import apart
from almoner.queries._ask.answer import Answer
from almoner.queries._language.nodes import written
from almoner.queries._language.sql import Aggregate, Statement

if TYPE_CHECKING:
    import pandas
    import pyarrow


@dataclass(frozen=True, slots=True)
class Rows:
    """Columns and rows of a SELECT's answer. Everything here is public.

    An aggregate ``x`` has the columns x (None where the noise leaves nothing to say), x_low and x_high, its interval of
    95 % for the noise alone; where ``Answer.truth_intervals`` are known, x_truth_low and x_truth_high, too.
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
    """The rows of an answer that a statement keeps, in its order, with the columns that it shows.

    HAVING and ORDER BY are run by DuckDB over what is released: only trees of the language are written into the SQL.
    """
    import pyarrow

    alone = [name for name, value in told.outputs if isinstance(value, Aggregate)]  # of keys that nobody listed
    table, labels = list(answer.columns(wide=True).values()), list((answer.question.several() or ("", alone))[1])
    ends, keys = ["", "_low", "_high", "_truth_low", "_truth_high"], len(told.group)
    ends = ends[: (len(table) - keys) // len(labels)]
    listed, names = dict[str, list[Any]](), list[str]()
    for place, (name, value) in enumerate(told.outputs):
        if isinstance(value, Aggregate):
            first = keys + len(ends) * labels.index(value.level if value.kind == "quantile" else name)
            found = dict(zip(ends, table[first:], strict=False))
        else:
            found = {"": table[told.group.index(value)]}
        names += [f"{name}{end}" for end in found] * (place < told.shown)
        root = isinstance(value, Aggregate) and value.root
        for end, column in found.items():
            listed[f"c{place}{end}"] = [sqrt(max(0.0, each)) if root and each is not None else each for each in column]
    kept = "" if told.having is None else f" WHERE {written(told.having)}"
    kept += f" ORDER BY {', '.join(told.order)}" * bool(told.order)
    kept += "" if told.limit[0] is None else f" LIMIT {told.limit[0]:d}"
    sql = f"SELECT {', '.join(list(listed)[: len(names)])} FROM released{kept} OFFSET {told.limit[1]:d}"
    refusal = "sql: HAVING or ORDER BY compares what cannot be compared"
    return Rows(answer, tuple(names), apart(sql, refusal=refusal, released=pyarrow.table(listed)))
