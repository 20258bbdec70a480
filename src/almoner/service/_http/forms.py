"""The form of the analysts' page: what it shows, and the question that it sends."""

import hashlib
import json
import secrets
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from math import isfinite
from typing import Any
from urllib.parse import parse_qsl, urlsplit

from almoner.service._http.application import Request, body_of
from almoner.service._refusals import Refused
from almoner.service.policies import Column, Policy

__all__ = ["Fields", "fields_of", "key_of", "new_key", "options_of", "question_of"]

Fields = Mapping[str, str]

_BINS = 64


async def fields_of(request: Request) -> dict[str, str]:
    """The fields of a form that was sent from a page of ours, each once.

    Raises:
        Refused: it was sent from elsewhere, or is no form.
    """
    site, origin = request.headers.get("sec-fetch-site"), request.headers.get("origin")
    if site is None and origin is not None:  # an older browser, or no https
        site = "same-origin" if urlsplit(origin).netloc == request.headers.get("host") else "cross-site"
    if site not in (None, "same-origin", "none"):
        raise Refused(403, "form", "the form was sent from another site")
    body = await body_of(request, "application/x-www-form-urlencoded")
    try:
        pairs = parse_qsl(body.decode("ascii"), keep_blank_values=True, max_num_fields=40, errors="strict")
    except ValueError:
        raise Refused(400, "form", "the form cannot be read") from None
    fields = dict(pairs)
    if len(fields) < len(pairs):
        raise Refused(400, "form", "the form has a field twice")
    return fields


def new_key() -> str:
    """A new start for keys of questions that are given none."""
    return f"{datetime.now(UTC):%Y-%m-%d} {secrets.token_hex(6)}"


def key_of(fields: Fields, values: Mapping[str, Any]) -> str:
    """The key of a question: as it was given, or else the same each time that one form sends the same question."""
    digest = hashlib.sha256(json.dumps(values, sort_keys=True, default=str).encode()).hexdigest()
    return fields.get("key", "").strip() or f"{fields.get('made', '') or new_key()} {digest[:8]}"


def options_of(data_sets: Sequence[Mapping[str, Any]]) -> dict[str, list[tuple[str, str]]]:
    """Choices of the form, each a value and its words: data sets, columns of numbers, and columns with keys.

    Args:
        data_sets: as analysts see them.
    """
    tables = [one["name"] for one in data_sets]
    found: dict[str, list[tuple[str, str]]] = {"tables": [(name, name) for name in tables], "numbers": [], "keyed": []}
    for one in data_sets:
        for each in one["columns"]:
            name = f"{one['name']}.{each['name']}"
            option = (name, name if len(tables) > 1 else each["name"])
            if each["kind"] in ("number", "whole", "bool"):
                found["numbers"].append(option)
            if each["keys"]:
                found["keyed"].append(option)
    return found


def question_of(fields: Fields, policy: Policy, symbol: str, budget: float) -> dict[str, Any]:
    """The question that a form describes, as plain values.

    Args:
        fields: of the form.
        policy: says which columns and keys there are.
        symbol, budget: of the ledger's measure.
    """
    asks = fields.get("ask", "")
    values: dict[str, Any] = {"ask": "quantiles" if asks == "median" else asks, "table": fields.get("table", "")}
    column = _column(policy, fields.get("column", ""))
    if asks in ("sum", "mean", "median"):
        if column is None:
            raise Refused(422, "question", "a sum, a mean and a median need a column")
        low, high = (_number(fields, end, getattr(column, end)) for end in ("low", "high"))
        if low is None or high is None:
            raise Refused(422, "question", "the column needs a lowest and a highest value")
        values["column"] = column.name
        values |= _bins(low, high) if asks == "median" else {"low": low, "high": high}
    if asks in ("sum", "count"):
        values["clip"] = _number(fields, "clip", None)
    if fields.get("anyway") == "yes":
        values["anyway"] = True
    by = _column(policy, fields.get("by", ""))
    if by is not None:
        values["by"] = {by.name: [str(key) if hasattr(key, "isoformat") else key for key in by.keys]}
    if fields.get("where", "").strip():
        values["where"] = fields["where"].strip()
    price = _number(fields, "price", None)
    if price is None or not 0 < price <= 100:
        raise Refused(422, "question", "the price must be above 0 and at most 100 percent of a budget")
    values["epsilon" if symbol == "epsilon" else "rho"] = price / 100 * budget
    return {name: value for name, value in values.items() if value is not None}


def _bins(low: float, high: float) -> dict[str, Any]:
    if not low < high:
        raise Refused(422, "question", "the lowest value must be below the highest")
    return {"edges": [low + place * (high - low) / _BINS for place in range(_BINS + 1)], "levels": [0.5]}


def _column(policy: Policy, name: str) -> Column | None:
    """A column by the name of its table and its own."""
    table, _, column = name.partition(".")
    for one in policy.data_sets:
        for each in one.columns:
            if (one.name, each.name) == (table, column):
                return each
    return None


def _number(fields: Fields, name: str, default: float | None) -> float | None:
    sent = fields.get(name, "").strip()
    if not sent:
        return default
    try:
        value = float(sent)
    except ValueError:
        value = float("nan")
    if len(sent) > 40 or not isfinite(value):
        raise Refused(422, "question", f"{name} must be a number")
    return value
