"""All kinds of questions, and questions as plain values."""

from collections.abc import Mapping
from dataclasses import MISSING, fields
from typing import Any

from almoner.errors import ArgumentError
from almoner.queries._questions.kinds.bins import Histogram, Quantiles
from almoner.queries._questions.kinds.counts import Count, People
from almoner.queries._questions.kinds.entries import Mean, Sum, Variance
from almoner.queries._questions.kinds.lengths import Extremes, Lengths
from almoner.queries._questions.kinds.moments import Covariance, Regression
from almoner.queries._questions.kinds.ratios import Ratio
from almoner.queries._questions.kinds.tops import Top
from almoner.queries._questions.kinds.values import Distinct, Keys
from almoner.queries._questions.question import Question

__all__ = ["described", "question", "recorded"]

_KINDS: dict[str, type[Question]] = {
    kind.__name__.lower(): kind
    for kind in (
        Count,
        People,
        Sum,
        Mean,
        Ratio,
        Variance,
        Covariance,
        Regression,
        Histogram,
        Quantiles,
        Top,
        Distinct,
        Keys,
        Lengths,
        Extremes,
    )
}


def described(asked: Question) -> dict[str, object]:
    """A question as plain values, for the record and for files."""
    if not isinstance(asked, Question):
        raise ArgumentError("question must be one of almoner.queries' questions")
    values: dict[str, object] = {"ask": type(asked).__name__.lower()}
    for each in fields(asked):
        value = getattr(asked, each.name) if each.init else None
        if each.name == "by":
            value = [[column, list(keys) or None] for column, keys in asked.keys] or None
        if each.name in ("pace", "anyway"):
            values |= {} if value == each.default else {each.name: value}
        elif value is not None:
            values[each.name] = _plain(value)
    return values


def recorded(public: Mapping[str, Any]) -> Question:
    """The question of an answer's entry, by its public part; also if from before ``per``, paces or ``correlated``."""
    values = {**public["question"], "pace": public.get("pace")}
    kind = _KINDS.get(values.get("ask", ""))
    by_row = kind is not None and any(each.name == "per" for each in fields(kind)) and "per" not in values
    values = {**values, "per": "row"} if by_row else values
    return question({**values, "correlated": False} if kind is Quantiles and "correlated" not in values else values)


def _plain(value: object) -> object:
    """Lists in place of tuples, as JSON has them; a question in a question as plain values too."""
    if isinstance(value, Question):
        return described(value)
    return [_plain(each) for each in value] if isinstance(value, tuple) else value


def question(values: Mapping[str, Any]) -> Question:
    """The question that ``described`` described; ``by`` may also be a table of keys by column."""
    values = dict(values)
    kind = values.pop("ask", None)
    if not isinstance(kind, str) or kind not in _KINDS:
        raise ArgumentError(f"ask={kind!r} must be one of {', '.join(_KINDS)}")
    takes = {each.name for each in fields(_KINDS[kind]) if each.init}
    for name in values:
        if name not in takes:
            raise ArgumentError(f"{name!r} is nothing that {kind!r} takes; it takes {', '.join(sorted(takes))}")
    if isinstance(values.get("of"), Mapping):
        values["of"] = question(values["of"])
    if isinstance(values.get("by"), list) and not all(isinstance(each, str) for each in values["by"]):
        try:
            values["by"] = dict(values["by"])
        except (TypeError, ValueError):
            raise ArgumentError("by must be {column: keys}") from None
    try:
        return _KINDS[kind](**values)
    except TypeError as error:
        if isinstance(error, ArgumentError):
            raise
        needed = [each.name for each in fields(_KINDS[kind]) if each.init and each.default is MISSING]
        needed = [name for name in needed if name not in values]
        raise ArgumentError(f"{kind!r} needs {', '.join(needed) or 'other types of values'}") from None
