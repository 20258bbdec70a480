"""Questions as forms: the fields that the model of a kind has, what was filled in, and a question filled in again."""

import json
from collections.abc import Mapping
from contextlib import suppress
from math import isfinite
from typing import Any, NamedTuple

from almoner._reading import json_values
from almoner.errors import DataError
from almoner.queries.plans import question_schema
from almoner.service._bodies import Refused
from almoner.service.policies import Policy

Fields = Mapping[str, str]

KINDS = {
    "people": "Number of people", "count": "Number of rows", "sum": "Sum", "mean": "Mean", "quantiles": "Quantiles",
    "histogram": "Histogram", "top": "Most frequent keys", "distinct": "Number of different values",
    "variance": "Variance", "ratio": "Ratio of two sums", "several": "Several statistics", "covariance": "Covariance",
    "regression": "Regression", "keys": "Keys that nobody listed", "sql": "SQL statement",
}  # fmt: skip
_FIRST = ("where", "by", "clip", "error", "anyway")  # of the fields that all kinds have; the others are for few
_SAID = ("ask", "table", "sigma", "rho", "epsilon", "level")  # said in other words, or not at all
_HINTS = {
    "column": "A column, or an expression such as: hours * 60",
    "low": "Entries below count as this; left out: as the data set says",
    "high": "Entries above count as this; left out: as the data set says",
    "edges": "Ends of bins, such as: 0, 6, 12, 24; left out: 64 bins between the bounds that the data set says",
    "levels": "0.5 is the median",
    "columns": 'Columns with their bounds, such as: {"hours": [0, 24]}',
    "among": "Public keys, such as: FR, ES",
    "aggregates": 'Such as: {"rows": "count", "hours": {"ask": "mean", "column": "hours"}}',
    "sql": "Such as: SELECT country, count(*) FROM visits GROUP BY country",
    "where": "Which rows count, such as: hours > 2 and country = 'FR'",
    "by": "One answer for each public key of these columns, such as: country, day",
    "clip": "Most rows of a person, for rows and sums: who has more counts as so many",
    "anyway": "Ask also where people may be missing, because not everybody's budget pays for it for certain",
}
_BINS = 64


class FormField(NamedTuple):
    """A field of a form; options are values and words, where there are some to choose from."""

    name: str
    label: str
    hint: str
    number: bool
    options: list[tuple[str, str]]


def form_fields(ask: str) -> tuple[list[FormField], list[FormField]]:
    """The fields of a kind of question, and those that few need."""
    first, more = list[FormField](), list[FormField]()
    common = _properties("people").keys()
    for name, schema in _properties(ask).items():
        if name not in _SAID:
            hint = _HINTS.get(name) or schema.get("description", "").replace("``", "").partition(". ")[0]
            offered = (
                [("yes", "yes")] if _types(schema) == {"boolean"} else [(each, each) for each in schema.get("enum", ())]
            )
            options = [("", "no" if _types(schema) == {"boolean"} else "as usual"), *offered] if offered else []
            field = FormField(
                name,
                name.replace("_", " ").capitalize(),
                hint,
                _types(schema) <= {"number", "integer", "null"},
                options,
            )
            (first if name in _FIRST or name not in common else more).append(field)
    return sorted(first, key=lambda each: each.name in _FIRST), more


def question_of(fields: Fields, policy: Policy, symbol: str, budget: float) -> dict[str, Any]:
    """The question that a form describes, as plain values; its price is in the symbol of the ledger's budget."""
    ask, table = fields.get("ask", ""), fields.get("table", "")
    if ask not in KINDS:
        raise Refused(422, "question", f"ask must be one of {', '.join(KINDS)}")
    values = {"ask": ask} | ({} if ask == "sql" else {"table": table})
    for name, schema in _properties(ask).items():
        text = fields.get(name, "").strip()
        if text and name not in _SAID:
            values[name] = _value(text, schema)
    part = getattr(policy.file.tables.get(table), "columns", {}).get(values.get("column"))
    if ask in ("quantiles", "histogram") and part is not None and part.low is not None and part.high is not None:
        ends = [part.low + place * (part.high - part.low) / _BINS for place in range(_BINS + 1)]
        values.setdefault("edges", ends)
    if "error" not in values:
        values["epsilon" if symbol == "epsilon" else "rho"] = _price(fields.get("price", "")) * budget
    return values


def filled_in(question: Mapping[str, Any], share: float) -> dict[str, str]:
    """The form that describes a question, by which it is asked again; ``share`` is its price."""
    told = {name: _text(value) for name, value in question.items()}
    return told | {"price": f"{100 * share:.6g}" if share else ""}


def _properties(ask: str) -> dict[str, Any]:
    schema = question_schema()
    place = schema["discriminator"]["mapping"][ask].rpartition("/")[2]
    properties: dict[str, Any] = schema["$defs"][place]["properties"]
    return properties


def _types(schema: Mapping[str, Any]) -> set[str]:
    return {each.get("type", "string") for each in schema.get("anyOf", [schema])}


def _value(text: str, schema: Mapping[str, Any]) -> Any:
    """What was filled in: JSON, a list with commas, or a text."""
    types = _types(schema)
    if types <= {"string", "null"}:
        return text
    if types == {"boolean"}:
        return text == "yes"
    with suppress(DataError):
        return json_values(text.encode("utf-8", "replace"))
    return [_value(each.strip(), {"type": "number"}) for each in text.split(",")] if "array" in types else text


def _text(value: Any) -> str:
    if isinstance(value, list) and not any(isinstance(each, list | dict) for each in value):
        return ", ".join(map(_text, value))
    return value if isinstance(value, str) else "yes" if value is True else json.dumps(value, default=str)


def _price(text: str) -> float:
    with suppress(ValueError):
        if len(text) <= 40 and isfinite(price := float(text)) and 0 < price <= 100:
            return price / 100
    raise Refused(422, "question", "the price must be above 0 and at most 100 percent of a budget; or give an error")
