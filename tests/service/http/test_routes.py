"""What analysts and the data holder are answered, and that it is what the OpenAPI document says."""

import jsonschema_rs
import pytest

from almoner import queries
from almoner.queries.plans import ASKS
from almoner.service._http.openapi import document
from almoner.service._http.routes import AnalystRoutes
from services import COUNT, TOKENS, service, service_folder


@pytest.fixture
def running(tmp_path):
    with service(service_folder(tmp_path)) as made:
        yield made


def conforms(response, path, method):
    """Check a response against the document: its status, type, and body."""
    said = document()["paths"][path][method.lower()]["responses"][str(response.status_code)]
    kind = response.headers["content-type"].partition(";")[0]
    schema = {**said["content"][kind]["schema"], "components": document()["components"]}
    jsonschema_rs.Draft202012Validator(schema).validate(response.json())


def test_every_route_is_in_the_document(running):
    """The document has each route of analysts that answers JSON, and no other."""
    paths = {(path, method.upper()) for path, methods in document()["paths"].items() for method in methods}
    routes = {(path, method) for method, path, _ in AnalystRoutes(running.api).handlers}
    assert paths == routes
    assert running.ann.get("/openapi.json").json() == document()


def test_the_document_names_what_questions_take():
    """Every kind of question that the library offers can be asked, with its own fields and no others."""
    from dataclasses import MISSING, fields

    kinds = [getattr(queries, name) for name in queries.__all__]
    kinds = [kind for kind in kinds if isinstance(kind, type) and issubclass(kind, queries.Question)]
    kinds.remove(queries.Question)
    assert set(ASKS) == {kind.__name__.lower() for kind in kinds}
    schemas = document()["components"]["schemas"]
    assert schemas["Question"]["discriminator"]["mapping"].keys() == set(ASKS)
    for kind in kinds:
        schema = schemas[kind.__name__]
        assert schema["properties"].keys() - {"ask"} == {each.name for each in fields(kind) if each.init}
        assert (schema["additionalProperties"], schema["properties"]["ask"]["const"]) == (False, kind.__name__.lower())
        assert set(schema["required"]) - {"ask"} == {
            each.name for each in fields(kind) if each.init and each.default is MISSING
        }


def test_every_list_of_the_document_says_what_it_lists():
    """Generators of clients leave out what has a list without items, and all operations on it."""

    def lists(value):
        if isinstance(value, dict):
            yield from [value] if "array" in str(value.get("type")) else []
            value = list(value.values())
        for each in value if isinstance(value, list) else []:
            yield from lists(each)

    assert all({"items", "prefixItems"} & each.keys() for each in lists(document()))


def test_every_response_conforms(running):
    """Answers and refusals of each route are what the document says."""
    ann = running.ann
    asked = ann.ask("one")
    assert asked.status_code == 201
    for response, path, method in (
        (ann.get("/health"), "/health", "get"),
        (ann.get("/openapi.json"), "/openapi.json", "get"),
        (ann.get("/v1/datasets"), "/v1/datasets", "get"),
        (ann.get("/v1/me"), "/v1/me", "get"),
        (ann.post("/v1/quote", json=COUNT), "/v1/quote", "post"),
        (ann.post("/v1/quote", json={"ask": "count"}), "/v1/quote", "post"),
        (asked, "/v1/answers", "post"),
        (ann.ask("one"), "/v1/answers", "post"),
        (ann.ask("one", {**COUNT, "clip": 4}), "/v1/answers", "post"),
        (ann.post("/v1/batch", json={"questions": {"one": COUNT, "x": COUNT, "y": {}}}), "/v1/batch", "post"),
        (ann.post("/v1/batch", json={"questions": []}), "/v1/batch", "post"),
        (ann.post("/v1/dummy", json=COUNT), "/v1/dummy", "post"),
        (ann.post("/v1/dummy", json={"ask": "count"}), "/v1/dummy", "post"),
        (ann.post("/v1/dummy", json={"ask": "people", "rho": 2}), "/v1/dummy", "post"),
        (ann.get("/v1/answers"), "/v1/answers", "get"),
        (ann.get("/v1/answers?skip=-1"), "/v1/answers", "get"),
        (ann.get("/v1/answer?key=one"), "/v1/answer", "get"),
        (ann.get("/v1/answer?key=two"), "/v1/answer", "get"),
        (running.door().get("/v1/me"), "/v1/me", "get"),
    ):
        conforms(response, path, method)


HOURS = {"column": "hours", "low": 0, "high": 24}
PERSON = {"each_person": {"hours": "sum(hours)", "rows": "count()"}, "clip": 1}
KINDS = [
    {"ask": "count", "by": {"hours": [[0, 12], [12, None]]}, "clip": 5},
    {"ask": "people", "by": {"country": ["FR", "ES"], "day": ["2026-01-01"]}, "clip": 1},
    {"ask": "sum", **HOURS, "clip": 5},
    {"ask": "mean", **HOURS},
    {"ask": "ratio", "numerator": "hours", "numerator_bounds": [0, 24], "clip": 5},
    {"ask": "variance", **HOURS},
    {"ask": "covariance", "columns": {"hours": [0, 24], "rows": [0, 9]}, **PERSON},
    {"ask": "regression", "target": "hours", "columns": {"hours": [0, 24], "rows": [0, 9]}, **PERSON},
    {"ask": "histogram", "column": "hours", "edges": [0, 12, 24], "clip": 5},
    {"ask": "quantiles", "column": "hours", "edges": [0, 6, 12, 18, 24], "levels": [0.25, 0.75]},
    {"ask": "top", "k": 1, "column": "country", "among": ["FR", "ES"], "clip": 5},
    {"ask": "distinct", "column": "country", "most": 3},
    {"ask": "keys", "column": "country", "delta": 1e-3, "most": 2, "rho": 0.2},
    {"ask": "several", "aggregates": {"n": "count", "h": {"ask": "mean", **HOURS, "per": "row"}}, "clip": 5},
    {"ask": "sql", "sql": "SELECT country, count(*), avg(hours) FROM visits GROUP BY country", "clip": 5},
]


def test_every_kind_is_tried_on_made_up_data(tmp_path):
    """Each kind of question has a dummy answer, of the form that the document says, and none is charged."""
    with service(service_folder(tmp_path), lambda text: f"keys_delta = 0.01\n{text}") as running:
        for kind in KINDS:
            tried = running.ann.post("/v1/dummy", json={"rho": 0.002, **kind})
            assert tried.status_code == 200, (kind, tried.text)
            conforms(tried, "/v1/dummy", "post")
        assert running.api.session.ledger.entries("answered") == []


@pytest.mark.slow
def test_answers_of_every_kind_conform(tmp_path):
    """The values, intervals and groups of each kind of question have the form that the document says."""
    assert {kind["ask"] for kind in KINDS} == set(ASKS)
    with service(service_folder(tmp_path), lambda text: f"keys_delta = 0.01\n{text}") as running:
        for place, kind in enumerate(KINDS):
            answer = running.ann.ask(str(place), {"rho": 0.002, **kind})
            assert answer.status_code == 201, (kind, answer.text)
            conforms(answer, "/v1/answers", "post")


def test_questions_are_answered_once(running):
    """The same key gives the same answer, and the library's own answer under the ledger's key is the same."""
    first, again = running.ann.ask("monday"), running.ann.ask("monday")
    assert (first.status_code, again.status_code) == (201, 200)
    assert again.json() == first.json()
    assert running.ann.get("/v1/answer", params={"key": "monday"}).json() == first.json()
    answers = running.api.session.analyst("ann", purpose="weekly").answers()
    assert [answer.key for answer in answers] == ["ann/monday"]
    assert first.json()["values"] == answers[0].values
    assert running.ann.get("/v1/answers").json()["total"] == 1


def test_what_is_left_follows_from_prices(running):
    """An analyst sees the least that is left, by limits and prices alone, and how many usual questions that is."""
    before = running.ann.get("/v1/me").json()["left"]
    assert before["share"] == pytest.approx(0.5)
    assert before["usual_questions"] == 50
    share = running.ann.ask("one").json()["share"]
    after = running.ann.get("/v1/me").json()["left"]
    assert after["share"] == pytest.approx(0.5 - share)
    assert after["questions_today"] == before["questions_today"] - 1
    assert running.bob.get("/v1/me").json()["left"]["share"] == pytest.approx(0.5)


def test_quotes_are_those_of_the_library(running):
    """A quote over HTTP is the library's, and asks nothing."""
    quoted = running.ann.post("/v1/quote", json=COUNT).json()
    asked = queries.Count(by={"country": ["FR", "ES"]}, clip=5, sigma=60)
    own = running.api.session.analyst("ann", purpose="weekly").quote(asked)
    assert (quoted["rho"], quoted["fits"], quoted["half_width"]) == (own.rho, own.fits, own.half_width)
    assert running.ann.get("/v1/answers").json()["total"] == 0


def test_the_policys_keys_and_bounds_stand_in_for_missing_ones(running):
    """A question without the keys and bounds that the policy says is the one with them, under the same key too."""
    short, whole = {**COUNT, "by": ["country"]}, {**COUNT, "by": {"country": ["FR", "ES"]}}
    assert running.ann.post("/v1/quote", json=short).json() == running.ann.post("/v1/quote", json=whole).json()
    first, again = running.ann.ask("short", short), running.ann.ask("short", whole)
    assert (first.status_code, again.status_code) == (201, 200)
    assert len(first.json()["values"]) == 2
    mean = {"ask": "mean", "column": "hours", "rho": 0.0005}
    bounded = mean | {"low": 0, "high": 24}
    assert running.ann.post("/v1/quote", json=mean).json() == running.ann.post("/v1/quote", json=bounded).json()


@pytest.mark.quick(3)
@pytest.mark.parametrize(
    "wrong",
    [
        {"ask": "count", "by": ["hours"], "clip": 5, "sigma": 60},
        {"ask": "count", "by": ["planet"], "clip": 5, "sigma": 60},
        {"ask": "mean", "column": "country", "rho": 0.0005},
        {"ask": "mean", "column": "hours", "low": 25, "rho": 0.0005},
        {"ask": "sum", "column": "hours", "per": "total", "rho": 0.0005},
    ],
)
def test_what_the_policy_does_not_say_must_be_given(running, wrong):
    """Keys and bounds that nobody says are refused, and so is a bound that does not go with the policy's other one."""
    for response in (running.ann.post("/v1/quote", json=wrong), running.ann.ask("wrong", wrong)):
        assert response.status_code == 422
    assert running.ann.get("/v1/answers").json()["total"] == 0


@pytest.mark.slow
def test_answers_are_shared_with_whom_the_policy_names(tmp_path):
    """The same question of another analyst costs nothing, and says so; a noisier one too, but none with less noise."""
    with service(service_folder(tmp_path), lambda text: text + '[sharing]\nanalysts = ["ann", "bob"]\n') as running:
        first = running.ann.ask("mine").json()
        for key, question, same in (
            ("same", COUNT, True),
            ("noisier", {**COUNT, "sigma": 80}, True),
            ("finer", {**COUNT, "sigma": 50}, False),
            ("other", {**COUNT, "where": "hours > 3"}, False),
        ):
            given = running.bob.ask(key, question).json()
            assert (given["values"] == first["values"]) is same, key
            assert (given["share"] == 0) is same, key
            assert (given["released_on"] is not None) is same, key
            assert running.bob.ask(key, question).json() == given
        assert running.bob.ask("fresh", COUNT, params={"fresh": "true"}).json()["share"] > 0
        entries = running.api.session.ledger.entries("shared")
        assert [entry.public["of"] for entry in entries] == [entries[0].public["of"]] * 2
        assert all(finding.holds for finding in running.api.session.verify(replay=True))


def test_answers_are_not_shared_unless_the_policy_says_so(running):
    """Without the policy's word the same question of another analyst is charged and has fresh noise."""
    first, second = running.ann.ask("one").json(), running.bob.ask("one").json()
    assert second["values"] != first["values"]
    assert second["share"] == first["share"] > 0


def test_the_data_holder_sees_accounts_and_checks(running):
    """Counts of people, prices by analyst, checks, one person's statement, and the text form of Prometheus."""
    running.ann.ask("one")
    people = running.holder.get("/v1/people").json()
    assert people["charged"] == sum(people["people"]) == 40
    assert people["near_the_end"] == 0
    (row,) = running.holder.get("/v1/spending").json()["by_analyst"]
    assert (row["analyst"], row["purpose"], row["questions"]) == ("ann", "weekly", 1)
    assert all(check["holds"] for check in running.holder.post("/v1/verify", json={"replay": True}).json())
    refused = running.holder.post("/v1/verify", json={"replay": "yes"})
    assert (refused.status_code, refused.json()["detail"]) == (422, "replay must be true or false")
    told = running.holder.post("/v1/statement", json={"person": "MARKER7"}).json()
    assert [line["key"] for line in told["lines"]] == ["ann/one"]
    assert running.holder.get("/v1/alarms").json() == []
    running.door().get("/v1/me")
    assert [alarm["code"] for alarm in running.holder.get("/v1/alarms").json()] == ["token"]
    text = running.holder.get("/metrics").text
    assert 'privacy_questions_total{analyst="ann",state="answered"} 1' in text
    assert "privacy_people_charged 40" in text
    assert 'privacy_requests_total{port="analysts",route="/v1/answers",status="201"} 1' in text
    assert 'privacy_refusals_total{code="token"} 1' in text


def test_people_near_the_end_raise_an_alarm(tmp_path):
    """When people have spent the policy's share of their budgets, the data holder is told how many."""
    with service(service_folder(tmp_path), lambda text: text.replace("share = 0.5", "share = 1.0")) as running:
        for key in range(2):
            running.ann.ask(str(key), {"ask": "people", "rho": 0.475})
        people = running.holder.get("/v1/people").json()
        assert people["near_the_end"] == 60
        assert [alarm["code"] for alarm in running.holder.get("/v1/alarms").json()] == ["near"]


@pytest.mark.quick(2)
@pytest.mark.parametrize("path", ["/v1/overview", "/v1/people", "/v1/spending", "/v1/alarms", "/metrics"])
def test_the_data_holders_routes_need_their_token(running, path):
    """No analyst's token opens the data holder's door, and its routes are not on the analysts' port."""
    for token in (None, TOKENS["ann"], TOKENS["stranger"]):
        door = type(running.holder)(running.service.holder, token)
        assert door.get(path).status_code == 401
        assert door.post("/v1/statement", json={"person": "MARKER7"}).status_code == 401
        assert door.post("/v1/verify", json={}).status_code == 401
    assert running.door(TOKENS["holder"]).get(path).status_code == 404
