"""Requests that a machine makes up from the OpenAPI document: none gives a 500, none tells anything private."""

import os

import pytest
from hypothesis import HealthCheck, settings

from services import MARKER, TOKENS, service, service_folder

schemathesis = pytest.importorskip("schemathesis", reason="schemathesis is not installed")
from schemathesis import checks  # noqa: E402

from almoner.service._http.openapi import document  # noqa: E402

pytestmark = pytest.mark.slow


EXAMPLES = int(os.environ.get("ALMONER_FUZZ", "60"))
"""Requests for each operation; the environment can ask for more."""

schema = schemathesis.openapi.from_dict(document())
NOT_WANTED = checks.CHECKS.get_by_names(["positive_data_acceptance", "negative_data_rejection", "ignored_auth"])
"""A question of the right form may break a rule, a list of one text is sent as the text, and every request here has a
right token."""


@pytest.fixture(scope="module")
def running(tmp_path_factory):
    folder = service_folder(tmp_path_factory.mktemp("fuzz"))
    with service(
        folder, lambda text: text.replace("0.02", "0.002").replace("cells = 100", "cells = 100\nleast = 0")
    ) as made:
        yield made


@schema.parametrize()
@settings(max_examples=EXAMPLES, deadline=None, suppress_health_check=list(HealthCheck))
def test_no_request_fails_or_tells_anything_private(running, case):
    """Whatever is sent, the answer is of a documented status and form, and holds no marker."""
    response = case.call(app=running.service.analysts, headers={"authorization": f"Bearer {TOKENS['ann']}"})
    case.validate_response(response, excluded_checks=NOT_WANTED)
    assert MARKER not in f"{response.headers} {response.text}"
