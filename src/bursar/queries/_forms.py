"""Questions as plain values, for the record and for files; and back."""

from collections.abc import Mapping
from dataclasses import fields
from typing import Any

from bursar.errors import ArgumentError
from bursar.queries._questions import Count, Histogram, Mean, People, Quantiles, Question, Sum, Variance

__all__ = ["described", "question"]

_KINDS: dict[str, type[Question]] = {
    kind.__name__.lower(): kind for kind in (Count, People, Sum, Mean, Variance, Histogram, Quantiles)
}


def described(asked: Question) -> dict[str, Any]:
    """A question as plain values, for the record and for files."""
    if not isinstance(asked, Question):
        raise ArgumentError("question must be one of bursar.queries' questions")
    told: dict[str, Any] = {"ask": type(asked).__name__.lower()}
    for field in fields(asked):
        value = getattr(asked, field.name)
        if field.name == "by":
            value = [[column, list(keys)] for column, keys in value] or None
        if value is not None:
            told[field.name] = list(value) if isinstance(value, tuple) else value
    return told


def question(told: Mapping[str, Any]) -> Question:
    """The question that ``described`` described; ``by`` may also be a table of keys by column."""
    given = dict(told)
    kind = given.pop("ask", None)
    if not isinstance(kind, str) or kind not in _KINDS:
        raise ArgumentError(f"ask={kind!r} must be one of {', '.join(_KINDS)}")
    known = {field.name for field in fields(_KINDS[kind])}
    for name in given:
        if name not in known:
            raise ArgumentError(f"{name!r} is nothing that {kind!r} takes; it takes {', '.join(sorted(known))}")
    if isinstance(given.get("by"), list):
        try:
            given["by"] = dict(given["by"])
        except (TypeError, ValueError):
            raise ArgumentError("by must be {column: keys}") from None
    try:
        return _KINDS[kind](**given)
    except TypeError as error:
        if isinstance(error, ArgumentError):
            raise
        needed = [name for name in ("column", "low", "high", "edges") if name in known and name not in given]
        raise ArgumentError(f"{kind!r} needs {', '.join(needed) or 'other types of values'}") from None
