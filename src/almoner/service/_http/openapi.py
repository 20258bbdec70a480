"""The OpenAPI document of the routes of analysts. A test compares it with the routes and with what they answer."""

import json
from collections.abc import Mapping
from copy import deepcopy
from functools import cache
from typing import Any

from almoner import __version__
from almoner._reading import schema_of
from almoner.queries.plans import question_schema
from almoner.service._bodies import BODIES

_SCHEMAS = "#/components/schemas/"
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


def _schemas() -> dict[str, Any]:
    """The question, each of its kinds with the fields that it takes, and what is answered."""
    asked, schemas = deepcopy(question_schema(_SCHEMAS + "{model}")), dict[str, Any]()
    for kind in asked["$defs"].values():
        _ease(kind["properties"])
    example = {"ask": "count", "by": {"country": ["FR", "ES"]}, "clip": 5, "rho": 0.001}
    listed = {"Question": {"description": "A question of one of the kinds.", **asked, "examples": [example]}}
    listed |= {name: schema_of(body, _SCHEMAS + "{model}", answered=True) for name, body in BODIES.items()}
    for name, schema in listed.items():
        schemas |= schema.pop("$defs", {}) | {name: schema}
    batch = {"minProperties": 1, "maxProperties": MOST_QUESTIONS, "propertyNames": _KEY}
    batch |= {"type": "object", "additionalProperties": {"$ref": f"{_SCHEMAS}Question"}}
    about = {"description": "Questions by their keys.", "required": ["questions"], "additionalProperties": False}
    schemas["Batch"] = {**about, "type": "object", "properties": {"questions": batch}}
    for schema in schemas.values():
        schema.pop("title", None)  # clients call it as the document does
    named: dict[str, Any] = json.loads(json.dumps(schemas).replace('Body"', '"'))  # those inside of others, too
    return named


def _ease(fields: dict[str, Any]) -> None:
    """Say defaults in words, and words beside numbers as lists of one: generators of clients misread others."""
    for field in fields.values():
        default = field.pop("default", None)
        if default:
            field["description"] = f"{field.get('description', '')} Default: {default}.".lstrip()
        for each in field.get("anyOf", ()):
            if "const" in each:
                each["enum"] = [each.pop("const")]


def _operation(name: str, about: str, answers: Mapping[str, Any], problems: str, **more: Any) -> dict[str, Any]:
    """One operation: what it answers by status, the statuses of its refusals, and what else stands in the document."""
    responses = dict[str, Any]()
    for status, of in answers.items():
        named = {"application/json": {"schema": {"$ref": f"{_SCHEMAS}{of}"}}}
        responses[status] = {"description": about, "content": of if isinstance(of, dict) else named}
    for status in problems.split():
        content = {"application/problem+json": {"schema": {"$ref": f"{_SCHEMAS}Problem"}}}
        responses[status] = {"description": _TOLD[status], "content": content}
    return {"operationId": name, "summary": about, "responses": responses, **more}


def _parameter(place: str, name: str, about: str, schema: dict[str, Any], *, required: bool = False) -> dict[str, Any]:
    return {"in": place, "name": name, "description": about, "schema": schema, "required": required}


MOST_QUESTIONS = 64  # of one batch
_KEY = {"type": "string", "minLength": 1, "maxLength": 120, "pattern": "^[!-~]([ -~]*[!-~])?$"}

_KEY_TEXT = "A name of your own for the question: the same key again gives the same answer, and costs nothing."
_FRESH_TEXT = "Whether an earlier answer of others must not stand for it."


def _paths() -> dict[str, Any]:
    fresh_one = _parameter("query", "fresh", _FRESH_TEXT, {"type": "boolean", "default": False})
    asked = [_parameter("header", "Idempotency-Key", _KEY_TEXT, _KEY, required=True), fresh_one]
    whole = {"type": "integer", "minimum": 0}
    page = [
        _parameter("query", "skip", "Answers to leave out, the newest first.", {**whole, "maximum": 10**9}),
        _parameter("query", "most", "Answers to list.", {**whole, "maximum": 1000, "default": 100}),
    ]
    stored, optional = ([_parameter("query", "key", "The key of the answer.", _KEY, required=n)] for n in (True, False))
    stored.append(_parameter("query", "of", "An analyst who shares answers with you.", {"type": "string"}))
    body, batch = (
        {"required": True, "content": {"application/json": {"schema": {"$ref": f"{_SCHEMAS}{name}"}}}}
        for name in ("Question", "Batch")
    )
    bodies, common = "400 401 408 413 415 422 429 500", "400 401 429 500"
    answers, refused = {"201": "Answer", "200": "Answer"}, f"{bodies} 403 409 503"
    ask = _operation("ask", "The answer", answers, refused, parameters=asked, requestBody=body)
    told, batched = "Answers and refusals, by key; all that is charged is charged, or none", {"200": "BatchAnswers"}
    several = _operation("batch", told, batched, bodies, parameters=[fresh_one], requestBody=batch)
    listed = _operation("answers", "Yours, newest first", {"200": "Answers"}, common, parameters=page)
    told, text = "Your answers as a table, or that under a key", {"text/csv": {"schema": {"type": "string"}}}
    table = _operation("csv", told, {"200": text}, f"404 {common}", parameters=optional)
    one = _operation("answer", "Your answer", {"200": "Answer"}, f"404 {common}", parameters=stored)
    tried = "Its answer about made-up data, which costs nothing and says nothing about anybody"
    return {
        **_open_to_all(),
        "/v1/datasets": {"get": _operation("datasets", "The data sets", {"200": "DataSets"}, common)},
        "/v1/me": {"get": _operation("me", "Limits, and what is left by them", {"200": "Me"}, common)},
        "/v1/quote": {"post": _operation("quote", "Its price at worst", {"200": "Quote"}, bodies, requestBody=body)},
        "/v1/answers": {"post": ask, "get": listed},
        "/v1/answer": {"get": one},
        "/v1/answers.csv": {"get": table},
        "/v1/batch": {"post": several},
        "/v1/dummy": {"post": _operation("dummy", tried, {"200": "Dummy"}, f"{bodies} 403 503", requestBody=body)},
    }


def _open_to_all() -> dict[str, Any]:
    """The paths that need no token."""
    free, up = {"security": list[Any]()}, {"200": "Health"}
    own: dict[str, Any] = {"application/json": {"schema": {"type": "object", "description": "The document."}}}
    documented = _operation("openapi", "This document", {"200": own}, "429 500", **free)
    health = _operation("health", "Whether the service answers", up, "429 500", **free)
    ready = _operation("ready", "Whether questions can be answered", up, "429 500 503", **free)
    return {"/openapi.json": {"get": documented}, "/health": {"get": health}, "/ready": {"get": ready}}


@cache
def document() -> dict[str, Any]:
    about = "Statistics about people, with a privacy budget for each person."
    return {
        "openapi": "3.1.0",
        "info": {"title": "Almoner", "version": __version__, "description": about},
        "paths": _paths(),
        "components": {"schemas": _schemas(), "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}}},
        "security": [{"token": []}],
    }
