"""Questions as forms: the fields that the model of a kind has, and what was filled in."""

import json
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

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
HINTS = {
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
    "error": "In place of a price: half the width of the interval, such as 50, or 2%",
    "anyway": "Ask also where people may be missing, because not everybody's budget pays for it for certain",
}
_FIRST = ("where", "by", "clip", "error", "anyway")  # of the fields that all kinds have; the others are for few
_FEW = ("bounds_hold", "correlated", "chosen", "step", "quantile_bins")  # of the fields of one kind
_SAID = ("ask", "table", "sigma", "rho", "epsilon", "level")  # said in other words, or not at all
_BINS = 64


def form_fields(ask: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """Schemas of the fields of a kind of question by their names, and of those that few questions need."""
    named = {name: schema for name, schema in _properties(ask).items() if name not in _SAID}
    own = {name: schema for name, schema in named.items() if name not in (*_FEW, *_properties("people"))}
    first = own | {name: named[name] for name in _FIRST if name in named}
    return first, {name: schema for name, schema in named.items() if name not in first}


def question_of(fields: Fields, policy: Policy, symbol: str, budget: float) -> dict[str, Any]:
    """The question that a form describes, as plain values; its price is in the symbol of the ledger's budget."""
    ask, table = fields.get("ask", ""), fields.get("table", "")
    if ask not in KINDS:
        raise Refused(422, "question", f"ask must be one of {', '.join(KINDS)}")
    values: dict[str, Any] = {"ask": ask} | ({} if ask == "sql" else {"table": table})
    for name, schema in _properties(ask).items():
        if name not in _SAID and (text := fields.get(name, "").strip()):
            values[name] = _value(text, {each.get("type", "string") for each in schema.get("anyOf", [schema])})
    part = getattr(policy.file.tables.get(table), "columns", {}).get(values.get("column"))
    if ask in ("quantiles", "histogram") and part is not None and part.low is not None and part.high is not None:
        ends = [part.low + place * (part.high - part.low) / _BINS for place in range(_BINS + 1)]
        values.setdefault("edges", ends)
    if "error" not in values:
        price = _value(fields.get("price", "").strip(), {"number"})
        if not isinstance(price, int | float) or not 0 < price <= 100:
            raise Refused(422, "question", "the price must be above 0 and at most 100 percent of a budget")
        values["epsilon" if symbol == "epsilon" else "rho"] = price / 100 * budget
    return values


def filled_in(question: Mapping[str, Any], share: float) -> dict[str, str]:
    """The form that describes a question, by which it is asked again; ``share`` is its price."""
    return {name: _text(value) for name, value in question.items()} | {"price": f"{100 * share:.6g}" if share else ""}


def _properties(ask: str) -> dict[str, Any]:
    schema = question_schema("{model}")
    return dict(schema["$defs"][schema["discriminator"]["mapping"][ask]]["properties"])


def _value(text: str, types: set[str]) -> Any:
    """Value of a field that takes these types of JSON: a text, yes or no, JSON, or a list with commas."""
    if types <= {"string", "null"} or types == {"boolean"}:
        return text == "yes" if types == {"boolean"} else text
    with suppress(DataError):
        return json_values(text.encode("utf-8", "replace"))
    return [_value(each.strip(), {"number"}) for each in text.split(",")] if "array" in types else text


def _text(value: Any) -> str:
    if isinstance(value, list) and not any(isinstance(each, list | dict) for each in value):
        return ", ".join(map(_text, value))
    return value if isinstance(value, str) else "yes" if value is True else json.dumps(value)
