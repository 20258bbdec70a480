"""A first look at a table: for each column a question, chosen by its name and type alone, all at one price."""

from collections.abc import Mapping
from typing import Any

from almoner._check import told
from almoner.errors import ArgumentError
from almoner.ledger import Domain
from almoner.queries._questions.kinds.counts import People, Quantiles, Top, spaced_edges
from almoner.queries._questions.kinds.entries import Keys, Mean
from almoner.queries._questions.kinds.several import Several
from almoner.queries._questions.question import Question

_LEVELS = (0.25, 0.5, 0.75)
_UNKNOWN, _SMALLEST = (-1e9, 1e9), 0.01  # bins by a constant factor, of numbers without bounds
_YEARS = tuple(range(1900, 2101))
_MISSING = 0.25  # of a column's share of the price
_TOP = 20
SURE = 1 - 1e-6  # shares are rounded up when they are charged

SHOWN_KINDS = frozenset({"bool", "whole", "number", "text", "date", "time"})  # kinds of columns that a summary is about


def summary_questions(
    columns: Mapping[str, str],
    domains: Mapping[str, Domain],
    price: tuple[str, float],
    *,
    name: str,
    clip: float | None,
    table: str | None,
    keys_delta: float,
) -> dict[str, Question]:
    """The questions of a summary, each under its key: people, and for each column what is in it and who has none.

    Args:
        columns, domains: the kind of each column, but for the person's, and what is declared of them; public.
        price: "rho" or "epsilon", and what all of them cost together.
        keys_delta: what unlisted keys of all texts may cost together; 0 for none. Others: ``Analyst.summary``.
    """
    if other := sorted(domains.keys() - columns.keys()):
        raise ArgumentError(f"{told(column=other[0])} is not in the table: give bounds= and keys= of its columns")
    measure, whole = price
    share, about = whole / (1 + len(columns)) * SURE, {} if table is None else {"table": table}

    def priced(part: float) -> dict[str, Any]:
        return {measure: share * part, **about}

    texts = sum(kind == "text" and each not in domains for each, kind in columns.items())
    asked: dict[str, Question] = {name: People(**priced(1))}
    if clip is not None:
        asked[name] = Several({"people": "people", "rows": "count"}, clip=clip, **priced(1))
    for place, (column, kind) in enumerate(columns.items()):
        shown = column if len(column) <= 100 and column.isprintable() else f"column {place + 1}"
        quoted = '"' + column.replace('"', '""') + '"'
        delta = keys_delta / max(1, texts) * SURE
        one = _of_column(column, quoted, kind, domains.get(column), priced(1 - _MISSING), delta)
        if one is not None:
            asked[f"{name}: {shown}"] = one
        missing = priced(1 if one is None else _MISSING)
        asked[f"{name}, missing: {shown}"] = People(where=f"{quoted} is null", **missing)
    return asked


def _of_column(
    column: str, quoted: str, kind: str, domain: Domain | None, asking: dict[str, Any], delta: float
) -> Question | None:
    """A question about a column's entries; None where there is none."""
    if domain is not None and domain.keys is not None:
        return Top(min(_TOP, len(domain.keys)), column, domain.keys, clip=1, **asking)
    match kind:
        case "bool":
            return Mean(column, 0, 1, **asking)
        case "number" | "whole":
            known = domain is not None and domain.low is not None and domain.high is not None
            low, high = (domain.low, domain.high) if known else _UNKNOWN  # type: ignore[union-attr]
            edges = spaced_edges(low, high, smallest=None if known else _SMALLEST)  # type: ignore[arg-type]
            return Quantiles(column, edges, _LEVELS, **asking)
        case "date" | "time":
            return Quantiles(f"year({quoted})", _YEARS, _LEVELS, step=1, **asking)
        case "text" if delta and "rho" in asking:
            return Keys(column, delta=delta, top=_TOP, **asking)
    return None
