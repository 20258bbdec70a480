"""JSON in and out: strict on the way in, and finite on the way out."""

import json
from math import isfinite
from typing import Any

from almoner.errors import ArgumentError
from almoner.queries import Answer, Question, Quote
from almoner.queries.plans import ASKS, described, question
from almoner.service._refusals import Refused

__all__ = ["MOST_TEXT", "answer_of", "asked", "dumps", "parsed", "quote_of"]

MOST_TEXT = 4_000
"""Largest number of characters of all texts of a question together, but for public keys."""


def parsed(body: bytes) -> Any:
    """A body as plain values.

    Raises:
        Refused: it is no JSON, has a name twice, a number that is not finite, or text that is no Unicode.
    """
    try:
        text = body.decode("utf-8")
        value = json.loads(text, parse_constant=_refuse, parse_float=_float, object_pairs_hook=_table)
        json.dumps(value, ensure_ascii=False).encode("utf-8")  # refuses half of a character
    except (ValueError, RecursionError):
        raise Refused(400, "body", "the body must be JSON: UTF-8, each name once, and finite numbers") from None
    return value


def _refuse(_: str) -> Any:
    raise ValueError


def _float(digits: str) -> float:
    value = float(digits)
    if not isfinite(value):
        raise ValueError
    return value


def _table(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    table = dict(pairs)
    if len(table) < len(pairs):
        raise ValueError
    return table


def asked(values: object) -> Question:
    """The question that plain values describe.

    Raises:
        Refused: they describe none; the message depends on them alone.
    """
    if not isinstance(values, dict):
        raise Refused(422, "question", "a question must be an object")
    try:
        if _length({name: value for name, value in values.items() if name not in ("by", "among")}) > MOST_TEXT:
            raise ArgumentError(f"the texts of a question have at most {MOST_TEXT} characters together")
        if values.get("ask") not in ASKS:
            raise ArgumentError(f"ask={values.get('ask')!r:.60} must be one of {', '.join(ASKS)}")
        return question(values)
    except ArgumentError as error:
        raise Refused(422, "question", str(error)) from None
    except (TypeError, ValueError, AttributeError, OverflowError, KeyError, RecursionError):
        raise Refused(422, "question", "the values of the question are of other types than it takes") from None


def _length(value: object) -> int:
    """Characters of all texts in a value."""
    if isinstance(value, str):
        return len(value)
    if isinstance(value, dict):
        return sum(len(name) + _length(each) for name, each in value.items())
    return sum(map(_length, value)) if isinstance(value, list) else 0


def quote_of(quoted: Quote) -> dict[str, Any]:
    """A quote as plain values."""
    return {
        "share": quoted.of_budget,
        "rho": quoted.rho,
        "epsilon": quoted.epsilon,
        "half_width": quoted.half_width,
        "standard_errors": quoted.standard_errors,
        "margins": quoted.margins,
        "fits": quoted.fits,
        "words": str(quoted),
    }


def answer_of(answer: Answer, key: str, day: str, share: float) -> dict[str, Any]:
    """An answer as plain values, with what it cost this time as a share of the budget.

    Of times it tells the day alone: the record's are of the moment when an answer was made, before its step ended.
    """
    return {
        "key": key,
        "day": day,
        "question": described(answer.question),
        "share": share,
        "groups": answer.groups,
        "values": answer.values,
        "intervals": answer.intervals,
        "truth_intervals": answer.truth_intervals,
        "estimand": answer.estimand,
        "about": answer.about,
        "about_budgets": answer.about_budgets,
        "complete_clip": answer.complete_clip,
        "complete": answer.complete,
        "released_on": None if answer.earlier is None else answer.earlier[:10],
    }


def dumps(value: object) -> bytes:
    """Strict JSON; numbers that are not finite become the strings "inf", "-inf" and "nan"."""
    return json.dumps(_plain(value), ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode("utf-8")


def _plain(value: object) -> object:
    if isinstance(value, float) and not isfinite(value):
        return str(value)
    if isinstance(value, dict):
        return {str(key): _plain(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(each) for each in value]
    if value is None or isinstance(value, str | int | float | bool):
        return value
    return str(value)  # a date that is a key
