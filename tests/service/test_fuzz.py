"""Requests that a machine makes up from the OpenAPI document: none gives a 500, none tells anything private."""

import os

import pytest
from hypothesis import HealthCheck, settings

from almoner._reading import read
from almoner.errors import ArgumentError
from almoner.queries._questions.kinds_of import question_model
from services import MARKER, TOKENS, service, service_folder

schemathesis = pytest.importorskip("schemathesis", reason="schemathesis is not installed")

from schemathesis.specs.openapi.checks import negative_data_rejection  # noqa: E402

from almoner.service._http.openapi import document  # noqa: E402

pytestmark = pytest.mark.slow


EXAMPLES = int(os.environ.get("ALMONER_FUZZ", "60"))
"""Requests for each operation; the environment can ask for more."""
REFUSED = [400, 401, 403, 404, 405, 408, 409, 413, 415, 422, 429]
"""Statuses for what breaks the document; 413 is for a list that is too long for a body."""
TAKEN = [200, 201, 403, 404, 409, 413, 422, 429]
"""Statuses for what keeps to it: a question of the right form may break a rule that no schema says, and then has a form
that its model takes; its texts may be too long together."""

UNSAID = (
    "a name of at most 100 letters",
    "in the language of filters",
    "expected a column or a literal",
    "a literal alone is no filter",
    "a filter of 1 to 10000 characters",
    "an expression of 1 to 10000 characters",
    "must be one of all, any, count",
    "each list once",
    "each name once",
    "each column once",
    "columns, each once",
    "increasing",
    "is no range",
    "must be a number above 0, or a share",
)
"""Rules of a field that no schema says: the language of filters, an order, and names that differ."""

config = schemathesis.Config.from_dict(
    {
        "checks": {
            "negative_data_rejection": {"expected-statuses": REFUSED},
            "positive_data_acceptance": {"expected-statuses": TAKEN},
        }
    }
)
schema = schemathesis.openapi.from_dict(document(), config=config)
served = []


async def application(scope, receive, send):
    """The service of the module, also for requests that checks send themselves."""
    await served[-1](scope, receive, send)


schema.app = application


def whole(value):
    """A value with whole numbers in place of floats without a fraction, which are whole numbers to JSON Schema."""
    if isinstance(value, dict):
        return {name: whole(each) for name, each in value.items()}
    if isinstance(value, list):
        return [whole(each) for each in value]
    return int(value) if isinstance(value, float) and value.is_integer() else value


def refused_form(body):
    """What the model of a question says of its form; nothing if it takes it."""
    try:
        read(question_model(body["ask"]), body)
    except ArgumentError as error:
        return str(error)
    return ""


@pytest.fixture(scope="module")
def running(tmp_path_factory):
    folder = service_folder(tmp_path_factory.mktemp("fuzz"))
    with service(
        folder, lambda text: text.replace("0.02", "0.002").replace("cells = 100", "cells = 100\nleast = 0")
    ) as made:
        served.append(made.service.analysts)
        yield made


@schema.parametrize()
@settings(max_examples=EXAMPLES, deadline=None, suppress_health_check=list(HealthCheck))
def test_no_request_fails_or_tells_anything_private(running, case):
    """Whatever is sent, the answer is of a documented status and form, and holds no marker.

    What breaks the document is refused, in a batch alone or with the other questions. What keeps to it is not refused
    for its form.
    """
    headers = {"authorization": f"Bearer {TOKENS['ann']}"}
    response = case.call(headers=headers)
    in_part = case.operation.path == "/v1/batch" and response.status_code == 200 and response.json()["refused"] != {}
    case.validate_response(response, headers=headers, excluded_checks=[negative_data_rejection] if in_part else [])
    assert MARKER not in f"{response.headers} {response.text}"
    if case.meta.generation.mode.is_positive and response.status_code == 422:
        told = refused_form(whole(case.body))
        assert not told or any(rule in told for rule in UNSAID), f"the document allows it: {told}: {case.body}"
