"""All kinds of questions, and questions as plain values."""

from collections.abc import Mapping
from dataclasses import fields
from functools import cache
from inspect import cleandoc
from typing import Any

from almoner._check import told
from almoner._reading import Model, check_names, model_of, one_of, schema_of, told_of
from almoner.errors import ArgumentError
from almoner.queries._questions.kinds.counts import Count, Extremes, Histogram, Lengths, People, Quantiles, Top
from almoner.queries._questions.kinds.entries import Distinct, Keys, Mean, Ratio, Sum, Variance
from almoner.queries._questions.kinds.moments import Covariance, Regression
from almoner.queries._questions.kinds.several import Several
from almoner.queries._questions.kinds.sql import Sql
from almoner.queries._questions.question import Question

_ASKED: tuple[type[Question], ...] = (
    Count, People, Sum, Mean, Ratio, Variance, Covariance, Regression, Histogram, Quantiles, Top, Distinct, Keys,
    Several, Sql,
)  # fmt: skip
_KINDS: dict[str, type[Question]] = {kind.__name__.lower(): kind for kind in (*_ASKED, Lengths, Extremes)}
ASKS = tuple(kind.__name__.lower() for kind in _ASKED)
"""Kinds of questions that analysts ask; the others are a session's own."""


def described(asked: Question) -> dict[str, object]:
    """A question as plain values, for the record and for files."""
    if not isinstance(asked, Question):
        line = "`queries.People(rho=0.01)`; SQL goes to analyst.sql"
        raise ArgumentError(f"question must be one of almoner.queries' questions, as {line}")
    values: dict[str, object] = {"ask": type(asked).__name__.lower()}
    for each in fields(asked):
        value = getattr(asked, each.name) if each.init else None
        if each.name == "by":
            value = [[column, list(keys) or None] for column, keys in asked.keys] or None
        if each.name in ("pace", "anyway"):
            values |= {} if value == each.default else {each.name: value}
        elif isinstance(asked, Several) and each.name == "aggregates":
            values[each.name] = _plain(asked.plain())
        elif value is not None:
            values[each.name] = _plain(value)
    return values


def _plain(value: object) -> object:
    """Lists in place of tuples, as JSON has them; a question in a question as plain values too."""
    if isinstance(value, Question):
        return described(value)
    if isinstance(value, dict):
        return {name: _plain(each) for name, each in value.items()}
    return [_plain(each) for each in value] if isinstance(value, tuple | list) else value


def question(values: Mapping[str, Any]) -> Question:
    """The question that ``described`` described; ``by`` may also be a table of keys by column."""
    values = dict(values)
    kind = values.pop("ask", None)
    if not isinstance(kind, str) or kind not in _KINDS:
        raise ArgumentError(f"{told(ask=kind)} must be one of {', '.join(_KINDS)}")
    try:
        if isinstance(values.get("of"), Mapping):
            values["of"] = question(values["of"])
        check_names(question_model(kind), {"ask": kind, **values})
        return _KINDS[kind](**values)
    except (TypeError, AttributeError, KeyError, OverflowError, RecursionError):
        raise ArgumentError("the values of the question are of other types than it takes") from None


def question_model(ask: str) -> type[Model]:
    return model_of(_KINDS[ask], ask=ask)  # type: ignore[arg-type]


@cache
def question_schema(ref: str = "#/$defs/{model}") -> dict[str, Any]:
    """JSON Schema of analysts' questions, of each kind with its own fields; ``ref`` is where that of a kind stands."""
    asked = schema_of(one_of("ask", map(question_model, ASKS)), ref)
    for name in ASKS:
        described, kind = asked["$defs"][_KINDS[name].__name__], _KINDS[name]
        described["description"] = cleandoc(kind.__doc__ or "").split("\n\n")[0]
        for field, about in told_of(kind).items():
            described["properties"].get(field, {})["description"] = about
    return asked
