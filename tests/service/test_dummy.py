"""Made-up data: drawn from declarations alone, marked as such, of every shape that a policy has; and previews."""

import time
from contextlib import closing

import pytest
from typer.testing import CliRunner

from almoner.cli import app
from almoner.errors import BudgetExceeded
from almoner.queries.plans import question
from almoner.service import preview
from almoner.service._analyst_api import DUMMIES, Rates
from almoner.service._dummy import ABOUT, PEOPLE, Dummy, declared_kinds
from almoner.service.policies import Policy
from services import COUNT, MARKER, POLICY, service, service_folder

TABLES = """
ledger = "people.ledger"
budget = "pure"
epsilon = 2
person = "who"

[tables.customers]
data = "away.parquet"
one_row = true
columns.age = { low = 18, high = 90 }
columns.code = { keys = [7, 8] }

[tables.orders]
data = "away.csv"
person = "customer -> customers.who"
types = { paid = "decimal comma", ok = "bool", day = "date", at = "time", number = "whole" }
columns.paid = { low = 0, high = 50 }
columns.ok = {}
columns.at = {}
columns.number = { low = 3, high = 5 }
columns.day = {}

[tables.items]
data = "away.parquet"
person = "order -> orders.id"
columns.kind = { keys = ["a", "b"] }

[public.codes]
data = "away.csv"
types = { code = "whole", name = "text" }
key = "code"
on = "customers.code"

[analysts.ann]
token = "sha256:TOKEN"

[holders.steward]
token = "sha256:OTHER"
may = []
""".replace("TOKEN", "0" * 64).replace("OTHER", "1" * 64)


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """Made-up data of several tables, in a folder that has the policy and nothing else."""
    tmp_path = tmp_path_factory.mktemp("empty")
    (tmp_path / "policy.toml").write_text(TABLES, encoding="utf-8")
    policy = Policy.read(tmp_path / "policy.toml")
    with closing(Dummy(policy)) as dummy:
        yield dummy
    assert [each.name for each in tmp_path.iterdir()] == ["policy.toml"]


CHEAP = {"epsilon": 1.9}


@pytest.mark.parametrize(
    ("asked", "least", "most"),
    [
        ({"ask": "people", "table": "customers"}, PEOPLE, PEOPLE),
        ({"ask": "count", "table": "orders", "clip": 3}, PEOPLE, PEOPLE),  # others lead to its rows: one of each person
        ({"ask": "count", "table": "items", "clip": 3}, 3 * PEOPLE, 3 * PEOPLE),
        ({"ask": "mean", "column": "age", "table": "customers"}, 50, 58),
        ({"ask": "mean", "column": "paid", "table": "orders"}, 22, 28),
        ({"ask": "mean", "column": "number", "table": "orders"}, 3.8, 4.2),
        ({"ask": "people", "where": "ok", "table": "orders"}, 800, 1200),
        ({"ask": "people", "where": "year(day) = 2026 and year(at) = 2026", "table": "orders"}, PEOPLE, PEOPLE),
        ({"ask": "people", "where": "customers.age > 18", "table": "orders"}, 1900, PEOPLE),
        ({"ask": "people", "where": "orders.paid > 25", "table": "items"}, 800, 1200),
        ({"ask": "people", "where": "codes.name >= 'a'", "table": "customers"}, PEOPLE, PEOPLE),
    ],
)
def test_every_declaration_shapes_the_rows(made, asked, least, most):
    """Kinds, bounds, keys, periods, paths to the person and public tables are there, from the policy alone."""
    (value,) = made.ask(question({**asked, **CHEAP})).values
    assert least - 40 <= value <= most + 40 if most > 100 else least <= value <= most


def test_nothing_stays_charged(made):
    """A question that takes nearly all of a budget can be tried again and again; one above it is refused."""
    asked = question({"ask": "people", "table": "customers", **CHEAP})
    answers = [made.ask(asked) for _ in range(3)]
    assert len({answer.value for answer in answers}) == 3
    assert made.session.ledger.entries("answered") == []
    assert {(answer.key, answer.about.startswith(ABOUT)) for answer in answers} == {(ABOUT, True)}
    with pytest.raises(BudgetExceeded):
        made.ask(question({"ask": "people", "table": "customers", "epsilon": 2.1}))
    assert made.ask(asked).values


def test_rows_are_of_the_policys_periods(tmp_path):
    """Where each period brings a budget, all rows are of its days."""
    periods = '[periods]\ncolumn = "day"\nevery = "month"\nfirst = 2027-03-01\nlast = 2027-05-31\n[tables.visits]'
    folder = service_folder(tmp_path, POLICY.replace("[tables.visits]", periods, 1))
    with closing(Dummy(Policy.read(folder / "policy.toml"))) as dummy:
        for where in ("day >= '2027-03-01' and day <= '2027-05-31'", "hours <= 24"):
            asked = question({"ask": "count", "where": where, "clip": 3, "rho": 0.9, "table": "visits"})
            assert dummy.ask(asked).value == pytest.approx(3 * PEOPLE, abs=100)


def test_a_preview_says_what_each_analyst_could_ask(tmp_path):
    """It opens no data and makes no ledger; it says prices by the changed policy, and what would be refused."""
    folder = service_folder(tmp_path, POLICY.replace("cells = 100", "cells = 1").replace("share = 0.5", "share = 0.25"))
    (folder / f"{MARKER}-visits.csv").unlink()
    told = "\n".join(preview(Policy.read(folder / "policy.toml")))
    assert "ann, people, in visits: 25 times at 0.01 of a budget, within 13.9 (95 %); the first dummy value is" in told
    assert "bob, people by country, in visits: refused, since the answer has more than 1 numbers." in told
    assert ABOUT in told.splitlines()[0]
    assert [each.name for each in folder.iterdir()] == ["policy.toml"]
    done = CliRunner().invoke(app, ["serve", "--preview", str(folder / "policy.toml")])
    assert "ann, people, in visits: 25 times" in done.output
    assert [each.name for each in folder.iterdir()] == ["policy.toml"]


def test_kinds_are_those_of_the_declarations():
    """Types say them, or else keys and bounds; what nobody says is text."""
    policy = Policy.of(
        {
            "ledger": "a", "person": "p", "rho": 1, "analysts": {"ann": {"token": f"sha256:{'0' * 64}"}},
            "holders": {"me": {"token": f"sha256:{'1' * 64}", "may": []}},
            "tables": {"t": {"data": "t.parquet", "types": {"a": "decimal point"}, "columns": {
                "a": {"keys": ["x"]}, "b": {"keys": [1]}, "c": {"keys": [True]}, "d": {"low": 0, "high": 1}, "e": {}}}},
        },
        None,
    )  # fmt: skip
    kinds = {"a": "number", "b": "whole", "c": "bool", "d": "number", "e": "text"}
    assert declared_kinds(policy) == {"t": kinds}


@pytest.fixture
def running(tmp_path):
    with service(service_folder(tmp_path)) as made:
        yield made


def test_a_question_is_tried_without_the_data(running, tmp_path):
    """No row of the real data is read: their file is away, the record has no entry, and nobody was charged."""
    (tmp_path / f"{MARKER}-visits.csv").unlink()
    head, left = running.api.session.ledger.head, running.ann.get("/v1/me").json()["left"]
    told = running.ann.post("/v1/dummy", json={**COUNT, "by": {"country": ["FR", "ES"]}}).json()
    assert (told["dummy"], told["answer"]["key"]) == (True, ABOUT)
    assert told["answer"]["about"].startswith(ABOUT)
    assert told["quote"] == running.ann.post("/v1/quote", json=COUNT).json()
    assert sum(told["answer"]["values"]) == pytest.approx(3 * PEOPLE, abs=1500)  # 300 rows are in the file
    assert running.api.session.ledger.head == head
    assert running.ann.get("/v1/me").json()["left"] == left
    assert running.ann.get("/v1/answers").json()["total"] == 0
    assert MARKER not in "".join(running.ann.seen)


@pytest.mark.parametrize(
    ("asked", "status", "code"),
    [
        ({"ask": "count", "where": "diagnosis = 'x'", "clip": 5, "sigma": 60}, 422, "question"),  # a hidden column
        ({**COUNT, "by": {"country": [str(place) for place in range(200)]}}, 422, "cells"),
        ({**COUNT, "sigma": 6000}, 422, "least"),
        ({"ask": "people", "rho": 1.5}, 403, "budget"),
        ({}, 422, "question"),
    ],
)
def test_what_could_not_be_asked_is_not_tried(running, asked, status, code):
    """A question is refused by its form as the real one is, in the same words; one above the whole budget, too."""
    tried = running.ann.post("/v1/dummy", json=asked)
    assert (tried.status_code, tried.json()["code"]) == (status, code)
    if code != "budget":
        assert tried.json() == running.ann.post("/v1/quote", json=asked).json()


def test_tries_are_limited_for_each_analyst(running):
    """Beyond a rate an analyst waits, and nobody else does; a stranger cannot try at all."""
    for _ in range(DUMMIES):
        assert running.api.dummies.wait("ann", DUMMIES) == 0
    tried = running.ann.post("/v1/dummy", json=COUNT)
    assert (tried.status_code, tried.json()["code"], "retry-after" in tried.headers) == (429, "rate", True)
    assert running.bob.post("/v1/dummy", json=COUNT).status_code == 200
    assert running.door().post("/v1/dummy", json=COUNT).status_code == 401


def test_tries_that_take_long_are_fewer(running, monkeypatch):
    """Each tenth of a second of a try counts as one more try, so that nobody keeps the machine busy for nothing."""
    ask = Dummy.ask

    def slow(*given):
        time.sleep(0.7)
        return ask(*given)

    assert running.ann.post("/v1/dummy", json=COUNT).status_code == 200
    running.api.dummies = Rates()
    monkeypatch.setattr(Dummy, "ask", slow)
    assert [running.ann.post("/v1/dummy", json=COUNT).status_code for _ in range(2)] == [200, 200]
    monkeypatch.undo()
    told = [running.ann.post("/v1/dummy", json=COUNT).status_code for _ in range(60)]
    assert 429 in told
    assert running.bob.post("/v1/dummy", json=COUNT).status_code == 200


def test_no_real_answer_is_called_a_dummy(running):
    """The key that dummy answers have is nobody's key of a real one, in no route and on no page."""
    assert ABOUT.startswith("DUMMY:")
    assert running.ann.ask(ABOUT).status_code == running.ann.ask("DUMMY: mine").status_code == 400
    batch = running.ann.post("/v1/batch", json={"questions": {ABOUT: COUNT, "real": COUNT}}).json()
    assert (list(batch["answers"]), list(batch["refused"])) == (["real"], [ABOUT])
    assert running.ann.get("/v1/answer", params={"key": ABOUT}).status_code == 400
    assert running.ann.get("/v1/answers").json()["total"] == 1


def test_tries_go_on_while_a_question_is_answered_and_after_a_failure(running, monkeypatch):
    """They wait for no clerk; an unforeseen error is told in fixed words, and the next try begins anew."""
    with running.api.session.ledger.store.lock:  # as while the ledger is busy
        assert running.ann.post("/v1/dummy", json=COUNT).status_code == 200
    monkeypatch.setattr(Dummy, "ask", lambda *_: 1 / 0)
    failed = running.ann.post("/v1/dummy", json=COUNT)
    assert (failed.status_code, failed.json()["code"]) == (503, "dummy")
    monkeypatch.undo()
    assert running.ann.post("/v1/dummy", json=COUNT).status_code == 200


def test_columns_that_questions_cannot_use_change_nothing(tmp_path):
    """A listed column of an odd type leaves other questions alone; a lookup by a column of whole numbers finds rows."""
    import duckdb

    duckdb.execute(
        f"COPY (SELECT i % 9 AS customer, i % 3 AS place, [i] AS odd, i AS hours FROM range(90) r(i)) "
        f"TO '{tmp_path / 'visits.parquet'}'"
    )
    (tmp_path / "places.csv").write_text("place,name\n0,north\n1,south\n2,west\n", encoding="utf-8")
    policy = POLICY.replace(f"{MARKER}-visits.csv", "visits.parquet").replace("day = {}", "odd = {}\nplace = {}")
    policy = policy.replace('types = { hours = "number", day = "date" }', "").replace("country = {", "#")
    public = '[public.places]\ndata = "places.csv"\ntypes = { place = "whole" }\nkey = "place"\n[limits]'
    (tmp_path / "policy.toml").write_text(policy.replace("[limits]", public), encoding="utf-8")
    with service(tmp_path) as running:
        for asked in ({"ask": "mean", "column": "hours"}, {"ask": "people", "where": "places.name = 'north'"}):
            asked = {**asked, "rho": 0.01}
            quoted, tried = (running.ann.post(f"/v1/{path}", json=asked) for path in ("quote", "dummy"))
            assert quoted.status_code == tried.status_code == 200, (quoted.text, tried.text)
