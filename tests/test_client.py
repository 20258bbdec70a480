"""The client: the library's questions go out, its own answers come back, and what got lost is asked again."""

import contextlib
import pickle
import re
import socket
import subprocess
import sys
import threading
from pathlib import Path

import httpx2
import pandas
import pytest
from starlette.testclient import TestClient

from almoner import queries
from almoner.client import Client
from almoner.errors import ArgumentError, ServiceRefused
from almoner.service._dummy import ABOUT
from service_processes import started
from services import TOKENS, service, service_folder

COUNT = queries.Count(by={"country": ["FR", "ES"]}, clip=5, sigma=60)
MEAN = queries.Mean("hours", 0, 24, rho=0.001)


@pytest.fixture
def running(tmp_path):
    with service(service_folder(tmp_path), lambda text: f"keys_delta = 0.01\n{text}") as made:
        yield made


class Lossy(httpx2.BaseTransport):
    """Hands requests on to a service, and loses some of its responses."""

    def __init__(self, running, *lost):
        self.inner, self.lost, self.sent = TestClient(running.service.analysts)._transport, list(lost), 0

    def handle_request(self, request):
        self.sent += 1
        response = self.inner.handle_request(request)
        if self.lost and (error := self.lost.pop(0)) is not None:
            if isinstance(error, Exception):
                raise error
            return error
        return response


def client(running, *lost, who="ann", **options):
    return Client("http://testserver", TOKENS[who], transport=Lossy(running, *lost), **options)


def test_answers_are_the_librarys_own(running):
    """Values, intervals, tables and what follows at no cost are those of the same answer in the session."""
    own = running.api.session.analyst("ann", purpose="weekly")
    with client(running) as service:
        for key, asked in {
            "count": COUNT,
            "mean": MEAN,
            "quantiles": queries.Quantiles("hours", edges=range(0, 25, 4), levels=[0.25, 0.5], rho=0.01),
            "keys": queries.Keys("country", delta=1e-3, most=2, rho=0.2),
            "several": queries.Several({"n": "count", "h": {"ask": "mean", "column": "hours", "low": 0, "high": 24}},
                                       clip=5, rho=0.01),
        }.items():  # fmt: skip
            told, kept = service.ask(asked, key=key), own.ask(asked, key=f"ann/{key}")
            for name in ("question", "groups", "values", "intervals", "truth_intervals", "about", "rho", "released",
                         "complete_clip", "complete", "floor", "estimand"):  # fmt: skip
                assert getattr(told, name) == getattr(kept, name), (key, name)
            pandas.testing.assert_frame_equal(told.to_pandas(), kept.to_pandas())
            assert told.to_arrow().equals(kept.to_arrow())
            assert service.answer(key) == told or key == "several"  # whose names the record has in another order
        assert service.answer("count").difference("FR", "ES").values == own.answers()[0].difference("FR", "ES").values
        assert [each["key"] for each in service.answers()] == ["several", "keys", "quantiles", "mean", "count"]
        text = "SELECT country, count(*) AS n FROM visits GROUP BY country"
        rows = service.ask(queries.Sql(text, clip=5, rho=0.01), key="sql")
        assert [*rows.to_pandas(wide=True)] == ["country", "n", "n_low", "n_high"]


def test_questions_may_be_plain_values(running):
    """A question as its fields is the same question, under the same key too."""
    with client(running) as service:
        fields = {"ask": "mean", "column": "hours", "low": 0, "high": 24, "rho": 0.001}
        assert service.ask(MEAN, key="k") == service.ask(fields, key="k")
        assert service.quote(MEAN) == service.quote(fields)


def test_quotes_are_the_librarys_own(running):
    """Every field of a quote, and its sentence, is that of the data holder's process."""
    own = running.api.session.analyst("ann", purpose="weekly")
    with client(running) as service:
        for asked in (COUNT, MEAN, queries.Quantiles("hours", edges=[0, 12, 24], rho=0.01)):
            assert service.quote(asked) == own.quote(asked)
            assert str(service.quote(asked)) == str(own.quote(asked))
        assert service.me()["analyst"] == "ann"
        assert service.datasets()["data_sets"][0]["name"] == "visits"


def test_a_batch_has_answers_and_refusals(running):
    """More questions than one request takes are asked in several; a refusal stands in its place."""
    asked = {str(key): queries.People(rho=0.001, where=f"hours > {key / 10}") for key in range(70)}
    asked["dear"] = queries.People(rho=0.9)
    with client(running) as service:
        told = service.batch(asked)
        assert list(told) == list(asked)
        assert (told["dear"].status, told["dear"].code) == (403, "budget")
        assert all(told[str(key)] == service.answer(str(key)) for key in (0, 69))
        assert service._http._transport.sent == 4
        assert len(running.api.session.ledger.entries("answered")) == 70


def test_an_answer_that_got_lost_is_asked_for_again(running):
    """A connection that is cut after the answer was made costs nothing: the same answer comes, charged once."""
    cut = httpx2.ReadError("cut")
    lost = (cut, httpx2.Response(502, text="<html>"), httpx2.Response(503, text="{}"))
    with client(running, *lost, patience=10) as service:
        answer = service.ask(COUNT, key="k")
        assert service._http._transport.sent == 4
    with client(running, cut) as service:
        assert service.batch({"k": COUNT, "m": MEAN})["k"] == answer
    entries = running.api.session.ledger.entries("answered")
    assert [entry.public["key"] for entry in entries] == ["ann/k", "ann/m"]


def test_patience_ends(running):
    """A connection that is never there, and a service that says to wait for longer, are told to programs, too."""
    with client(running, *[httpx2.ConnectError("no")] * 9, patience=1) as service:
        with pytest.raises(ServiceRefused, match="cannot be reached") as refused:
            service.me()
        assert (refused.value.status, refused.value.code) == (0, "connection")
    away = {"type": "about:blank", "status": 503, "code": "away", "detail": "later", "retry_after": 60}
    with client(running, httpx2.Response(503, json=away), patience=1) as service:
        with pytest.raises(ServiceRefused, match="later") as refused:
            service.me()
        again = pickle.loads(pickle.dumps(refused.value))
        assert (str(again), again.status, again.code, again.retry_after) == ("later", 503, "away", 60)


def test_a_batch_waits_where_the_service_says_so(running):
    """Questions of a batch that are refused for a moment are asked again, those refused for good are not."""
    busy = {"type": "about:blank", "status": 429, "code": "busy", "detail": "later", "retry_after": 1}
    lost = httpx2.Response(200, json={"answers": {}, "refused": {"a": busy, "b": {**busy, "retry_after": None}}})
    with client(running, lost) as service:
        told = service.batch({"a": COUNT, "b": MEAN})
    assert isinstance(told["a"], queries.Answer)
    assert told["b"].code == "busy"


@pytest.mark.parametrize("token", ["", "abc\n", " abc", "ab\tc", "caf\u00e9"])
def test_a_token_that_no_service_gave_is_refused_at_once(token):
    """A line break read from a file is named as such, and not taken for a service that is away; no token is shown."""
    with pytest.raises(ArgumentError, match=r"^token must be what .* without blanks or line breaks$"):
        Client("https://statistics.example.org", token)


@pytest.mark.parametrize("asked", ["SELECT count(*) FROM visits", 5, None])
def test_other_things_than_questions_are_refused(asked):
    """Nothing is sent for what is no question, and the refusal names what is."""
    service = Client("https://statistics.example.org", TOKENS["ann"])
    with pytest.raises(ArgumentError, match=r"question must be one of .* SQL goes to"):
        service.quote(asked)


@pytest.mark.parametrize("key", ["caf\u00e9", " monday", "monday ", "mon\nday"])
def test_a_key_that_no_header_holds_is_refused_at_once(running, key):
    """It was an error of the encoding, or sent for a minute to a service that could not be reached."""
    with client(running) as service:
        for ask in (
            lambda: service.ask(COUNT, key=key),
            lambda: service.sql("SELECT count(*) FROM visits", rho=0.1, key=key),
        ):
            with pytest.raises(ArgumentError, match="printable characters of ASCII, without blanks at its ends"):
                ask()
        assert service.answers() == []


def test_refusals_tell_status_code_and_reason(running):
    """What the service refuses is raised in its words; no token is in any of it."""
    with client(running) as service:
        with pytest.raises(ServiceRefused, match="diagnosis") as refused:
            service.quote(queries.Mean("diagnosis", 0, 1, rho=0.01))
        assert (refused.value.status, refused.value.code) == (422, "question")
        with pytest.raises(ServiceRefused, match="no answer under this key"):
            service.answer("none")
        assert TOKENS["ann"] not in repr(service)
    with (
        client(running, who="stranger") as service,
        pytest.raises(ServiceRefused, match="a token is needed") as refused,
    ):
        service.me()
    assert refused.value.status == 401
    with pytest.raises(ArgumentError, match="url must begin"):
        Client("example.org", TOKENS["ann"])


def test_it_needs_neither_duckdb_nor_the_service():
    """With those libraries hidden, questions are made and answers worked out."""
    script = """
import sys
for name in ("duckdb", "pyarrow", "starlette", "uvicorn", "itsdangerous", "prometheus_client", "pandas", "torch"):
    sys.modules[name] = None
from almoner.client import Client, _answer
from almoner.queries import Count
answer = _answer({"key": "k", "question": {"ask": "count", "by": [["c", ["FR"]]], "clip": 5, "sigma": 60},
    "groups": [["FR"]], "released": [1048576], "floor": 10**15, "complete": None, "released_on": None})
assert answer.columns()["c"] == ["FR"], answer
Client("https://localhost:1", "t")
assert "almoner.service" not in sys.modules
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


class Cutting:
    """A proxy in front of a port that cuts the first connection when the answer comes back."""

    def __init__(self, port):
        self.port, self.cut, self.listening = port, 0, socket.create_server(("127.0.0.1", 0))
        threading.Thread(target=self.run, daemon=True).start()

    def run(self):
        with contextlib.suppress(OSError):  # until it is closed
            while True:
                near, _ = self.listening.accept()
                far = socket.create_connection(("127.0.0.1", self.port))
                threading.Thread(target=self.passed, args=(near, far, False), daemon=True).start()
                threading.Thread(target=self.passed, args=(far, near, True), daemon=True).start()

    def passed(self, source, sink, back):
        with source, contextlib.suppress(OSError):
            while data := source.recv(65_536):
                if back and not self.cut and b" 201 " in data:
                    self.cut += 1
                    break
                sink.sendall(data)
            for each in (source, sink):
                each.shutdown(socket.SHUT_RDWR)  # closing would wait for the other thread


@pytest.mark.slow
@pytest.mark.server
def test_a_cut_connection_to_a_running_service(tmp_path):
    """Over real sockets, through a proxy that cuts the connection after the answer was made: one answer, one charge."""
    with started(service_folder(tmp_path)) as (process,):
        proxy = Cutting(int(process.address.rpartition(":")[2]))
        address = f"http://127.0.0.1:{proxy.listening.getsockname()[1]}"
        with Client(address, TOKENS["ann"]) as service, Client(process.address, TOKENS["ann"]) as direct:
            answer = service.ask(COUNT, key="k")
            assert proxy.cut == 1
            assert direct.answer("k") == answer
            assert [each["share"] > 0 for each in direct.answers()] == [True]
            assert direct.me()["left"]["questions_today"] == 99
        proxy.listening.close()


def test_the_example_of_the_documentation_runs(running, tmp_path, monkeypatch, capsys):
    """The lines of docs/service/api.md, sent to a service of these tests."""
    text = (Path(__file__).parents[1] / "docs" / "service" / "api.md").read_text(encoding="utf-8")
    (code,) = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    monkeypatch.setenv("TOKEN", TOKENS["ann"])
    monkeypatch.chdir(tmp_path)
    transport = Lossy(running)
    monkeypatch.setattr(httpx2.Client, "_init_transport", lambda *_, **__: transport)
    exec(code, {})
    said = capsys.readouterr().out
    assert "of the budget" in said
    assert (tmp_path / "monday.csv").read_text(encoding="utf-8").startswith("value,low,high")


def test_a_question_is_tried_on_made_up_data(running):
    """The answer is the library's own, and its key, text and tables say that it is a dummy."""
    with client(running) as service:
        told = service.dummy(COUNT)
        assert told.key == ABOUT
        assert ABOUT in told.to_pandas().attrs["about"]
        assert ABOUT in str(told)
        assert service.answers() == []


def test_an_answer_of_a_colleague(tmp_path):
    """Analysts of the policy's sharing read each other's answers by name and key; others are refused."""
    sharing = "[sharing]\nanalysts = ['ann', 'bob']\n"
    with (
        service(service_folder(tmp_path), lambda text: f"{text}\n{sharing}") as running,
        client(running) as ann,
        client(running, who="bob") as bob,
    ):
        told = ann.ask(COUNT, key="monday")
        assert bob.answer("monday", of="ann").values == told.values
        with pytest.raises(ServiceRefused, match="no answer under this key"):
            bob.answer("monday")


@pytest.mark.parametrize(
    ("kind", "text"), [("text/html", "<html>Log in</html>"), ("application/json", "<html>"), ("text/plain", "")]
)
def test_a_page_of_a_proxy_is_no_answer(running, kind, text):
    """A proxy that answers 200 with a page of its own raises the client's own error, once, without the token."""
    page = httpx2.Response(200, headers={"content-type": kind}, text=text)
    with client(running, page, page) as service:
        with pytest.raises(ServiceRefused, match="no service of Almoner sent this, but perhaps a proxy's page") as told:
            service.me()
        assert (told.value.status, told.value.code, told.value.retry_after) == (200, "http", None)
        assert TOKENS["ann"] not in str(told.value)
        with pytest.raises(ServiceRefused):
            service.answers()


STATEMENT = "SELECT country, count(*) AS n FROM visits WHERE country IN ('FR', 'ES', 'DE') GROUP BY country"


@pytest.mark.parametrize(
    ("rest", "number"),
    [("", 3), (" ORDER BY n DESC LIMIT 2", 2), (" HAVING n > 1000000", 0), (" ORDER BY country LIMIT 1 OFFSET 1", 1)],
)
def test_a_statement_is_shown_as_it_says(running, rest, number):
    """HAVING, ORDER BY and LIMIT work over HTTP as in the library, on what was released; again they are free."""
    own = running.api.session.analyst("ann", purpose="weekly")
    with client(running) as service:
        told = service.sql(STATEMENT + rest, key="sql", clip=5, sigma=60)
        assert (len(told.rows), len(told.answer.groups)) == (number, 3)
        library = own.sql(STATEMENT + rest, key="ann/sql", clip=5, sigma=60)
        assert (told.columns, told.rows) == (library.columns, library.rows)
        assert service.sql(STATEMENT + rest, key="sql", clip=5, sigma=60).rows == told.rows
        other = service.sql(f"{STATEMENT} LIMIT 1", key="sql", clip=5, sigma=60)  # the same question, shown otherwise
        assert len(other.rows) == 1
        if not rest:
            assert other.rows == told.rows[:1]
        assert len(running.api.session.ledger.entries("answered")) == 1


def test_keys_of_rows_stay_texts_where_they_read_as_numbers(running):
    """A key that is called nan or inf is told as it is, as in the library."""
    text = STATEMENT.replace("'ES', 'DE'", "'nan', 'inf', '-inf'")
    with client(running) as service:
        told = service.sql(text, key="sql", clip=5, sigma=60)
    library = running.api.session.analyst("ann", purpose="weekly").sql(text, key="ann/sql", clip=5, sigma=60)
    assert told.rows == library.rows
    assert {row[0] for row in told.rows} == {"FR", "nan", "inf", "-inf"}


def test_a_statement_that_cannot_be_shown_is_refused_before_it_is_paid(running):
    """HAVING that compares a text with a number is refused for a quote, a try and a question: nothing is charged."""
    asked = {"ask": "sql", "sql": f"{STATEMENT} HAVING country > 3", "clip": 5, "sigma": 60}
    told = [running.ann.post(f"/v1/{path}", json=asked) for path in ("quote", "dummy")]
    told.append(running.ann.ask("sql", asked))
    assert {(each.status_code, each.json()["detail"]) for each in told} == {(422, told[0].json()["detail"])}
    assert running.api.session.ledger.entries("answered") == []
    batch = {"a": {**asked, "sql": f"{STATEMENT} ORDER BY n LIMIT 1"}, "b": asked}
    told = running.ann.post("/v1/batch", json={"questions": batch}).json()
    assert (len(told["answers"]["a"]["rows"]["rows"]), list(told["refused"])) == (1, ["b"])
