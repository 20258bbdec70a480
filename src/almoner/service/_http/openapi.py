"""The OpenAPI document of the routes of analysts. A test compares it with the routes and with what they answer."""

from functools import cache
from typing import Any

from almoner import __version__
from almoner.queries.plans import question_schema

__all__ = ["document"]

_NUMBER = {"type": ["number", "string", "null"], "description": "A number; 'inf', '-inf' or 'nan' where not finite."}
_TEXT, _WHOLE = {"type": "string"}, {"type": "integer"}
_MAYBE_TEXT = {"type": ["string", "null"]}
_SHARE = {"type": "number", "minimum": 0, "description": "A share of each person's budget."}
_TOLD: dict[str, str] = {
    "400": "The body is no JSON, or a parameter or the key breaks a rule.",
    "401": "There is no token, or it is not known, or it has expired.",
    "403": "By its limits, the question costs more than can be left.",
    "404": "There is no answer under this key.",
    "408": "The body did not come in time.",
    "409": "The key was used for another question.",
    "413": "The body is too large.",
    "415": "The body is not JSON.",
    "422": "The question breaks a rule: its form, the least price, or the number of cells.",
    "429": "Too many requests or questions; see Retry-After.",
    "500": "The request failed.",
    "503": "The data or the ledger cannot be read, or the service is being stopped.",
}


def _object(**properties: Any) -> dict[str, Any]:
    return {"type": "object", "properties": properties, "required": list(properties), "additionalProperties": False}


def _list(items: Any) -> dict[str, Any]:
    return {"type": "array", "items": items}


def _ref(name: str) -> dict[str, str]:
    return {"$ref": f"#/components/schemas/{name}"}


def _questions() -> dict[str, Any]:
    """A question, as in a file of questions but without its key; and each kind, with the fields that it takes."""
    asked = question_schema("#/components/schemas/{model}")
    kinds = asked.pop("$defs")
    example = {"ask": "count", "by": {"country": ["FR", "ES"]}, "clip": 5, "rho": 0.001}
    return {"Question": {"description": "A question of one of the kinds.", **asked, "examples": [example]}, **kinds}


def _quote() -> dict[str, Any]:
    return {
        "share": _SHARE,
        "rho": _NUMBER,
        "epsilon": _NUMBER,
        "half_width": _NUMBER,
        "standard_errors": {"type": "object", "additionalProperties": _NUMBER},
        "margins": {"type": "object", "additionalProperties": _NUMBER},
        "fits": {"type": ["integer", "null"]},
        "words": _TEXT,
    }


def _schemas() -> dict[str, Any]:
    column = {"name": _TEXT, "kind": _TEXT, "about": _MAYBE_TEXT, "low": _NUMBER, "high": _NUMBER, "keys": _list({})}
    listed = {"key": _TEXT, "day": _TEXT, "question": {"type": "object"}, "share": _SHARE}
    limits = {name: {"type": "number"} for name in ("share", "least", "questions", "cells", "seconds", "requests")}
    period = {"from": _TEXT, "share": _SHARE}
    left = {"share": _SHARE, "by_period": _list(_object(**period)), "usual_questions": _WHOLE}
    left |= {"questions_today": _WHOLE, "seconds_today": {"type": "number"}}
    return {
        **_questions(),
        "Quote": _object(**_quote()),
        "Answer": _object(
            **listed,
            groups=_list(_list({})),
            values=_list({}),
            intervals=_list({}),
            truth_intervals={"type": ["array", "null"], "items": {}},
            estimand=_TEXT,
            about=_TEXT,
            about_budgets=_TEXT,
            complete_clip=_NUMBER,
            complete={"type": ["boolean", "null"]},
            released_on=_MAYBE_TEXT,
        ),
        "Answers": _object(total=_WHOLE, answers=_list(_object(**listed))),
        "DataSets": _object(
            data_sets=_list(_object(name=_TEXT, about=_MAYBE_TEXT, columns=_list(_object(**column)))),
            public_tables=_list(_object(name=_TEXT, columns={"type": "object", "additionalProperties": _TEXT})),
        ),
        "Me": _object(
            analyst=_TEXT,
            purpose=_MAYBE_TEXT,
            expires=_MAYBE_TEXT,
            limits=_object(**limits),
            step={"type": "number"},
            shares_answers={"type": "boolean"},
            left=_object(**left),
            usual=_object(question={"type": "object"}, **_quote()),
        ),
        "Health": _object(status=_TEXT),
        "Problem": _object(type=_TEXT, status=_WHOLE, code=_TEXT, detail=_TEXT),
    }


def _operation(
    name: str,
    about: str,
    answers: dict[str, str],
    problems: str,
    *,
    body: bool = False,
    parameters: list[Any] | None = None,
    open_to_all: bool = False,
) -> dict[str, Any]:
    """One operation: what it answers by status, and the statuses of its refusals."""
    responses = {
        status: {"description": about, "content": {"application/json": {"schema": _ref(schema)}}}
        for status, schema in answers.items()
    }
    for status in problems.split():
        content = {"application/problem+json": {"schema": _ref("Problem")}}
        responses[status] = {"description": _TOLD[status], "content": content}
    operation: dict[str, Any] = {"operationId": name, "summary": about, "responses": responses}
    if parameters:
        operation["parameters"] = parameters
    if body:
        operation["requestBody"] = {"required": True, "content": {"application/json": {"schema": _ref("Question")}}}
    return {**operation, "security": []} if open_to_all else operation


def _parameter(place: str, name: str, about: str, schema: dict[str, Any], *, required: bool = False) -> dict[str, Any]:
    return {"in": place, "name": name, "description": about, "schema": schema, "required": required}


_KEY = {"type": "string", "minLength": 1, "maxLength": 120, "pattern": "^[!-~]([ -~]*[!-~])?$"}


def _paths() -> dict[str, Any]:
    key = "A name of your own for the question: the same key again gives the same answer, and costs nothing."
    fresh = "Whether an earlier answer of others must not stand for it."
    asked = [
        _parameter("header", "Idempotency-Key", key, _KEY, required=True),
        _parameter("query", "fresh", fresh, {"type": "boolean", "default": False}),
    ]
    whole = {"type": "integer", "minimum": 0}
    page = [
        _parameter("query", "skip", "Answers to leave out, the newest first.", {**whole, "maximum": 10**9}),
        _parameter("query", "most", "Answers to list.", {**whole, "maximum": 1000, "default": 100}),
    ]
    stored = [_parameter("query", "key", "The key of the answer.", _KEY, required=True)]
    bodies, common = "400 401 408 413 415 422 429 500", "400 401 429 500"
    own = {"type": "object", "description": "The document."}
    documented = _operation("openapi", "This document", {}, "500", open_to_all=True)
    documented["responses"]["200"] = {"description": "It", "content": {"application/json": {"schema": own}}}
    answers = {"201": "Answer", "200": "Answer"}
    ask = _operation("ask", "The answer", answers, f"{bodies} 403 409 503", body=True, parameters=asked)
    listed = _operation("answers", "Your answers, newest first", {"200": "Answers"}, common, parameters=page)
    one = _operation("answer", "Your answer under a key", {"200": "Answer"}, f"404 {common}", parameters=stored)
    data = _operation("datasets", "The data sets and their public columns", {"200": "DataSets"}, common)
    quoted = _operation("quote", "What a question would cost at worst", {"200": "Quote"}, bodies, body=True)
    health = _operation("health", "Whether the service answers", {"200": "Health"}, "500 503", open_to_all=True)
    return {
        "/openapi.json": {"get": documented},
        "/health": {"get": health},
        "/v1/datasets": {"get": data},
        "/v1/me": {"get": _operation("me", "Limits, and what is left by them", {"200": "Me"}, common)},
        "/v1/quote": {"post": quoted},
        "/v1/answers": {"post": ask, "get": listed},
        "/v1/answer": {"get": one},
    }


@cache
def document() -> dict[str, Any]:
    """The document. Public."""
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Almoner",
            "version": __version__,
            "description": "Statistics about people, with a privacy budget for each person.",
        },
        "paths": _paths(),
        "components": {
            "schemas": _schemas(),
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
        },
        "security": [{"token": []}],
    }
