"""What a hostile analyst may try over HTTP: each is refused or harmless, and nothing private is told."""

import asyncio
import contextlib
import json
import logging
import socket
import threading
import time

import pytest
import uvicorn

from almoner import filters
from almoner.errors import DataError
from almoner.ledger import Domain, Ledger, Terms
from almoner.service import _server
from almoner.service._analyst_api import Rates
from almoner.service._padded_worker import Busy, PaddedWorker, Stopped
from services import COUNT, MARKER, TOKENS, Service, service, service_folder


@pytest.fixture
def running(tmp_path):
    with service(service_folder(tmp_path)) as made:
        yield made


def test_keys_are_each_analysts_own(running):
    """A key that another analyst used is neither taken nor told: it is free, and its answer is not to be had."""
    mine = running.ann.ask("2026: rows").json()
    assert running.bob.get("/v1/answer?key=2026: rows").status_code == 404
    assert running.bob.get("/v1/answer?key=ann/2026: rows").status_code == 404
    theirs = running.bob.ask("2026: rows")
    assert theirs.status_code == 201
    assert theirs.json()["values"] != mine["values"]
    assert running.ann.ask("2026: rows").json() == mine
    for key in ("bob/2026: rows", "../bob/2026: rows", "ann/2026: rows"):
        assert running.ann.get("/v1/answer", params={"key": key}).status_code == 404


def test_probing_keys_tells_the_same_for_used_and_unused_ones(running):
    """Refusals about a key that another analyst used are those about a key that nobody used, to the byte."""
    running.ann.ask("used")
    for path in ("/v1/answer?key=used", "/v1/answer?key=none"):
        assert running.bob.get(path).json()["detail"] == "you have no answer under this key"
    refused = {running.bob.ask(key, {**COUNT, "sigma": 1e9}).text for key in ("used", "none")}
    assert len(refused) == 1


@pytest.mark.quick(2)
@pytest.mark.parametrize("key", ["", " ", "a\tb", "x" * 121, "caf\u00e9", "a\x7f"])
def test_malformed_keys_are_refused(running, key):
    """A key is short and printable ASCII."""
    response = running.ann.post(
        "/v1/answers", json=COUNT, headers=[(b"idempotency-key", key.encode("latin-1")), (b"x", b"y")]
    )
    assert response.status_code in ((400, 201) if key.strip() == "" and key else (400,))
    assert running.ann.post("/v1/answers", json=COUNT).status_code == 400


def test_tokens_that_are_unknown_expired_or_misspelt_are_refused_alike(running):
    """No token, a stranger's, an expired one, the data holder's, a hash, two tokens: refused in the same words."""
    ann, hashed = TOKENS["ann"], running.api.policy.analysts["ann"].token
    texts = set()
    for given in (
        None,
        TOKENS["stranger"],
        TOKENS["old"],
        TOKENS["holder"],
        hashed,
        ann[:-1],
        ann + "a",
        ann.upper(),
        "",
    ):
        for path in ("/v1/me", "/v1/datasets", "/v1/answers", "/v1/answer?key=x"):
            response = running.door(given).get(path)
            assert response.status_code == 401
            assert response.headers["www-authenticate"] == "Bearer"
            texts.add(response.text)
    twice = running.door().get("/v1/me", headers=[("authorization", f"Bearer {ann}"), ("authorization", "Bearer x")])
    assert {*texts, twice.text} == texts
    assert len(texts) == 1
    assert running.door().get("/v1/me", params={"token": ann}).status_code == 401
    assert running.door().get("/v1/me", headers={"cookie": f"token={ann}"}).status_code == 401


def test_a_token_that_was_taken_from_the_policy_is_refused(tmp_path):
    """A stolen token is of no use after its hash is replaced, and the analyst's answers are there for the new one."""
    folder = service_folder(tmp_path)
    with service(folder) as running:
        answer = running.ann.ask("one").json()
        old = running.api.policy.analysts["ann"].token
    from almoner.service import hash_of

    with service(folder, lambda text: text.replace(old, hash_of(TOKENS["stranger"]))) as running:
        assert running.ann.get("/v1/me").status_code == 401
        assert running.door(TOKENS["stranger"]).get("/v1/answer?key=one").json() == answer


BODIES = [
    b"",
    b"{",
    b"nul",
    b"\xff\xfe",
    b'{"ask": "count", "ask": "people"}',
    b'{"ask": "count", "clip": NaN, "sigma": 60}',
    b'{"ask": "count", "clip": 1e999, "sigma": 60}',
    b'{"ask": "count", "clip": ' + b"9" * 5000 + b"}",
    b'{"ask": "count", "where": "\\ud800"}',
    b"[" * 30_000,
    b'{"a":' * 8_000,
]
QUESTIONS = [
    [],
    "count",
    7,
    None,
    {},
    {"ask": "lengths", "of": COUNT, "sigma": 9},
    {"ask": "count"},
    {"ask": "count", "clip": True, "sigma": 60},
    {"ask": "count", "clip": 5, "sigma": 10**400},
    {"ask": "count", "clip": 5, "sigma": 60, "where": "hours > "},
    {"ask": "count", "clip": 5, "sigma": 60, "where": "1; drop table accounts"},
    {"ask": "count", "clip": 5, "sigma": 60, "where": "diagnosis = 'x'"},
    {"ask": "count", "clip": 5, "sigma": 60, "where": "customer = 'x'"},
    {"ask": "count", "clip": 5, "sigma": 60, "by": {"diagnosis": ["x"]}},
    {"ask": "count", "clip": 5, "sigma": 60, "by": [["country"]]},
    {"ask": "count", "clip": 5, "sigma": 60, "by": [[[], {}]]},
    {"ask": "count", "clip": 5, "sigma": 60, "by": {"country": [{}]}},
    {"ask": "count", "clip": 5, "sigma": 60, "each_person": {"n": "count(diagnosis)"}, "where": "n > 1"},
    {"ask": "sum", "column": "diagnosis", "low": 0, "high": 1, "clip": 5, "sigma": 60},
    {"ask": "mean", "column": "number(diagnosis)", "low": 0, "high": 1, "sigma": 60},
    {"ask": "distinct", "column": "diagnosis", "most": 3, "sigma": 60},
    {"ask": "top", "column": "diagnosis", "k": 1, "among": ["x"], "sigma": 60},
    {"ask": "histogram", "column": "diagnosis", "edges": [0, 1], "clip": 5, "sigma": 60},
    {"ask": "quantiles", "column": "diagnosis", "edges": [0, 1], "levels": [0.5], "sigma": 60},
    {"ask": "regression", "target": "diagnosis", "columns": {"hours": [0, 24]}, "sigma": 60},
    {"ask": "covariance", "columns": {"hours": [0, 24], "diagnosis": [0, 1]}, "sigma": 60},
    {"ask": "ratio", "numerator": "diagnosis", "numerator_bounds": [0, 1], "clip": 5, "sigma": 60},
    {"ask": "keys", "column": "diagnosis", "delta": 1e-9, "most": 1, "sigma": 60},
    {"ask": "count", "clip": 5, "sigma": 60, "table": "accounts"},
    {"ask": "count", "clip": 5, "sigma": 60, "where": "hours > 1" + " or hours > 1" * 1000},
]


@pytest.mark.slow
def test_malformed_bodies_are_refused(running):
    """What is no JSON, or no question about public columns, is refused with 400 or 422, and asks nothing."""
    headers = {"content-type": "application/json", "idempotency-key": "k"}
    for path in ("/v1/quote", "/v1/answers"):
        for body in BODIES:
            response = running.ann.post(path, content=body, headers=headers)
            assert response.status_code == 400, body[:50]
        for question in QUESTIONS:
            response = running.ann.post(path, content=json.dumps(question), headers=headers)
            assert response.status_code in (400, 422), (question, response.text)
            assert response.headers["content-type"] == "application/problem+json"
            assert len(response.text) < 800
    assert running.api.session.ledger.entries("answered") == []
    assert running.holder.get("/v1/alarms").json() == []


def test_bodies_that_are_too_large_or_of_another_type_are_refused(running):
    """More than 64 KiB is refused by its declared length, and when it comes; forms and text are no questions."""
    large = b'{"ask": "' + b"x" * 100_000 + b'"}'
    kind = {"content-type": "application/json", "idempotency-key": "k"}
    for path in ("/v1/quote", "/v1/answers"):
        assert running.ann.post(path, content=large, headers=kind).status_code == 413
        assert running.ann.post(path, content=iter([large]), headers=kind).status_code == 413
        for other in ("text/plain", "application/x-www-form-urlencoded", "multipart/form-data", ""):
            told = running.ann.post(path, content=b"{}", headers={**kind, "content-type": other})
            assert told.status_code == 415


def test_a_million_cells_are_refused_before_anything_waits(running):
    """A question above the quota of cells is refused at once, also as a quote, and holds nobody up."""
    keys = list(range(1000))
    bomb = {
        "ask": "count",
        "clip": 1,
        "sigma": 1e3,
        "by": {"hours": keys, "day": [f"2026-01-{d:02d}" for d in range(1, 29)]},
    }
    began = time.monotonic()
    for _ in range(5):
        assert running.bob.ask("bomb", bomb).json()["code"] == "cells"
        assert running.bob.post("/v1/quote", json=bomb).json()["code"] == "cells"
    assert running.ann.ask("one").status_code == 201
    assert time.monotonic() - began < 2
    assert running.api.session.ledger.entries("answered")[0].public["analyst"] == "ann"


def test_free_questions_are_refused(running):
    """A question below the least price is refused, whichever way its noise is given."""
    for noise in ({"sigma": 1e9}, {"rho": 1e-12}, {"error": 1e8}):
        told = running.ann.ask("cheap", {"ask": "count", "clip": 1, **noise})
        assert (told.status_code, told.json()["code"]) == (422, "least")
    assert running.api.session.ledger.entries("answered") == []


def test_quotas_of_a_day_hold(tmp_path):
    """After a day's questions, new ones are refused until tomorrow; old answers, also of others, are not."""
    with service(
        service_folder(tmp_path), lambda text: text.replace("cells = 100", "cells = 100\nquestions = 2")
    ) as running:
        first = running.ann.ask("1").json()
        assert running.ann.ask("2").status_code == 201
        told = running.ann.ask("3")
        assert (told.status_code, told.json()["code"]) == (429, "questions")
        assert 0 < int(told.headers["retry-after"]) <= 86_400
        assert running.ann.ask("1").json() == first
        assert running.bob.ask("1").status_code == 201


def test_a_key_of_an_earlier_purpose_is_taken(tmp_path):
    """After the policy gave an analyst another purpose, limits go on, and a key of the old one is refused as used."""
    folder = service_folder(tmp_path)
    with service(folder) as running:
        running.ann.ask("one")
        left = running.ann.get("/v1/me").json()["left"]["share"]
    with service(folder, lambda text: text.replace('"weekly"', '"monthly"')) as running:
        told = running.ann.ask("one")
        assert (told.status_code, told.json()["code"]) == (409, "key")
        assert running.ann.get("/v1/me").json()["left"]["share"] == left


def test_analysts_do_not_wait_for_threads_of_the_data_holder(running):
    """While many of the data holder's requests wait for the ledger, quotes are given."""
    gate = threading.Event()
    running.api.worker.submit("x", gate.wait, padded=False)
    waiting = [threading.Thread(target=running.holder.get, args=("/v1/overview",)) for _ in range(12)]
    for each in waiting:
        each.start()
    began = time.monotonic()
    assert running.ann.post("/v1/quote", json=COUNT).status_code == 200
    assert time.monotonic() - began < 2
    gate.set()
    for each in waiting:
        each.join()


@pytest.mark.slow
def test_seconds_of_a_day_are_counted_in_steps(tmp_path):
    """An analyst who has used up the seconds of a day is refused; every answer counts whole steps."""
    with service(
        service_folder(tmp_path),
        lambda text: text.replace("cells = 100", "cells = 100\nseconds = 0.5").replace("0.02", "0.5"),
    ) as running:
        assert running.ann.ask("1").status_code == 201
        told = running.ann.ask("2")
        assert (told.status_code, told.json()["code"]) == (429, "seconds")
        assert running.ann.get("/v1/me").json()["left"]["seconds_today"] == 0
        assert running.bob.ask("1").status_code == 201


def test_requests_of_a_minute_are_limited_for_each_analyst(tmp_path):
    """An analyst who asks too often is told when to come back; another analyst is not held up."""
    with service(service_folder(tmp_path), lambda text: text.replace("100000", "3")) as running:
        statuses = [running.ann.get("/v1/me").status_code for _ in range(5)]
        assert statuses == [200, 200, 200, 429, 429]
        assert running.bob.get("/v1/me").status_code == 200
    rates = Rates()
    assert [rates.wait("ann", 60, now=0.0) for _ in range(61)] == [0] * 60 + [1]
    assert rates.wait("ann", 60, now=1.5) == 0


def test_what_a_limit_refuses_is_told_by_public_numbers(running):
    """A question above an analyst's own share is refused by prices alone, and charges nobody."""
    told = running.ann.ask("dear", {"ask": "people", "rho": 0.6})
    assert (told.status_code, told.json()["code"]) == (403, "budget")
    assert running.api.session.ledger.spent(f"{MARKER}1") == 0


@pytest.mark.slow
def test_nothing_private_is_in_any_response_or_log(running, caplog):
    """Names of people, entries of columns that are not public, and names of files occur in no response and no log."""
    caplog.set_level(logging.DEBUG)
    headers = {"content-type": "application/json", "idempotency-key": "k"}
    for door in (running.ann, running.door(), running.door(TOKENS["old"])):
        for path in ("/v1/quote", "/v1/answers"):
            for body in [*BODIES, *(json.dumps(question) for question in QUESTIONS)]:
                door.post(path, content=body, headers=headers)
        for kind in ({"where": "hours > 3"}, {"by": {"day": ["2026-01-03"]}}, {}):
            door.ask(str(kind), {"ask": "count", "clip": 5, "sigma": 60, **kind})
        for path in ("/v1/me", "/v1/datasets", "/v1/answers", "/v1/answer?key=k", "/openapi.json", "/x", "/health"):
            door.get(path)
            door.delete(path)
        said = "\n".join(door.seen)
        assert MARKER not in said
        assert "diagnosis" not in said.replace("'diagnosis'", "")  # quoted where the analyst said it
        assert "customer" not in said.replace("'customer'", "").replace("``customers.age``", "")  # an example of docs
        assert "people.ledger" not in said
    assert MARKER not in caplog.text
    assert "Traceback" not in caplog.text


@pytest.mark.slow
@pytest.mark.parametrize(
    "error", [DataError(f"{MARKER} is no number"), RuntimeError(MARKER), KeyError(MARKER), MemoryError()]
)
def test_unforeseen_errors_tell_nothing(tmp_path, monkeypatch, caplog, error):
    """Whatever an error says that comes up while data are looked at, the analyst and the log get fixed words."""
    with service(service_folder(tmp_path)) as running:

        def fails(*_, **__):
            raise error

        monkeypatch.setattr(type(running.api.session.ledger), "answer", fails)
        monkeypatch.setattr(type(running.api), "data_sets", fails)
        responses = [running.ann.ask("one"), running.ann.get("/v1/datasets")]
        assert [each.status_code for each in responses] == [503 if isinstance(error, DataError) else 500, 500]
        assert MARKER not in "".join(running.ann.seen)
        assert MARKER not in caplog.text
        assert "Traceback" not in caplog.text
        monkeypatch.undo()


def test_headers_forbid_everything(running):
    """Every response forbids storing, framing and sniffing, and has a policy for its content."""
    for response in (running.ann.get("/v1/me"), running.door().get("/v1/me"), running.ann.get("/nothing")):
        assert response.headers["cache-control"] == "no-store"
        assert response.headers["x-content-type-options"] == "nosniff"
        assert "default-src 'none'" in response.headers["content-security-policy"]
        assert "server" not in response.headers


class Slow:
    """A session's ledger whose answers take a given time."""

    def __init__(self, running, monkeypatch, seconds):
        book, answer = type(running.api.session.ledger), type(running.api.session.ledger).answer

        def slow(ledger, charges, work):
            done = answer(ledger, charges, work)
            time.sleep(seconds())
            return done

        monkeypatch.setattr(book, "answer", slow)


@pytest.mark.slow
def test_an_answer_takes_whole_steps_and_nothing_tells_sooner(tmp_path, monkeypatch):
    """Work of 10 and of 250 ms takes the same step; until then neither quotes, limits nor the key's own route tell."""
    lasted = []
    with service(service_folder(tmp_path), lambda text: text.replace("0.02", "1.0")) as running:
        for key, seconds in (("short", 0.01), ("long", 0.25)):
            Slow(running, monkeypatch, lambda seconds=seconds: seconds)
            before = running.ann.get("/v1/me").json()["left"]
            began = time.monotonic()
            asking = threading.Thread(target=running.ann.ask, args=(key,))
            asking.start()
            seen = set()
            while time.monotonic() - began < 0.7:
                seen.add(running.bob.get("/v1/answer", params={"key": key}).status_code)
                seen.add(running.ann.get("/v1/answer", params={"key": key}).status_code)
                assert running.ann.get("/v1/me").json()["left"] == before
            assert seen == {404}
            asking.join()
            lasted.append(time.monotonic() - began)
            monkeypatch.undo()
            assert running.ann.get("/v1/answer", params={"key": key}).status_code == 200
    assert all(0.99 < each < 1.6 for each in lasted), lasted


def test_no_time_of_day_is_told(running):
    """Answers tell the day alone: the record's moments are those when an answer was made, before its step ended."""
    for response in (running.ann.ask("one"), running.ann.get("/v1/answers"), running.ann.get("/v1/answer?key=one")):
        made = running.api.session.ledger.entries("answered")[0].public["time"]
        assert made[:10] in response.text
        assert made[:16] not in response.text
        assert "date" not in response.headers


def test_analysts_take_turns():
    """Who asks much waits for the others: between two pieces of one analyst's work each other analyst has a turn."""
    worker, order, gate = PaddedWorker(0.001), [], threading.Event()
    worker.submit("x", gate.wait, padded=False)
    done = [worker.submit(who, lambda who=who: order.append(who)) for who in ("ann",) * 5 + ("bob",) * 2 + ("cleo",)]
    done += [worker.submit("ann", lambda: order.append("ann")) for _ in range(3)]
    with pytest.raises(Busy):
        worker.submit("ann", lambda: order.append("ann"))
    gate.set()
    for each in done:
        each.result()
    assert order[:6] == ["ann", "bob", "cleo", "ann", "bob", "ann"]
    worker.stop()


def test_a_stop_finishes_what_is_begun_and_refuses_the_rest():
    """The work in hand ends and is told; what waits, and what comes later, is refused."""
    worker, begun, gate = PaddedWorker(0.001), threading.Event(), threading.Event()

    def work():
        begun.set()
        gate.wait()
        return "done"

    first, second = worker.submit("ann", work), worker.submit("bob", work)
    begun.wait()
    stopping = threading.Thread(target=worker.stop)
    stopping.start()
    with pytest.raises(Stopped):
        second.result()
    gate.set()
    assert first.result() == "done"
    stopping.join()
    with pytest.raises(Stopped):
        worker.submit("ann", work)


def test_an_error_does_not_end_the_clerk():
    """After work that fails, or whose caller went away, the next piece is done."""
    worker = PaddedWorker(0.001)
    failed = worker.submit("ann", lambda: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        failed.result()
    gate = threading.Event()
    worker.submit("ann", gate.wait)
    left = worker.submit("ann", lambda: None)
    left.cancel()
    gate.set()
    assert worker.submit("ann", lambda: 7).result() == 7
    worker.stop()


def test_two_names_that_differ_by_case_are_one(running):
    """The ledger refuses a new analyst whose name is another's but for case or spelling: limits go by name."""
    from almoner import queries
    from almoner.errors import ArgumentError

    asked = queries.Count(clip=5, sigma=60)
    running.ann.ask("one")
    for name in ("ANN", "\uff41\uff4e\uff4e", "Ann "):
        with pytest.raises(ArgumentError, match="spelt or capitalised otherwise"):
            running.api.session.analyst(name).ask(asked, key=f"{name}: x")
    running.api.session.analyst("anne").ask(asked, key="x")


def test_the_service_can_be_opened_again(tmp_path):
    """What was answered before the service was started again is answered alike, and charged once."""
    folder = service_folder(tmp_path)
    with service(folder) as running:
        first = running.ann.ask("one").json()
    running = Service(folder)
    assert running.ann.ask("one").json() == first
    assert len(running.api.session.ledger.entries("answered")) == 1
    running.service.close()


def test_declared_keys_are_counted_before_anything_waits(tmp_path):
    """Keys that a question leaves to its data set count as numbers of the answer; the record holds them."""
    folder = service_folder(tmp_path)
    with Ledger.open(folder / "people.ledger", Terms(filters.Zcdp(rho=1.0), person="VARCHAR"), create=True) as book:
        days = [f"20{year:02d}-01-01" for year in range(90)]
        domains = {"country": Domain(keys=["FR", "ES"]), "day": Domain(keys=days), "hours": Domain(low=0, high=24)}
        book.dataset("visits", person="customer", columns=domains)
    with service(folder) as running:
        bomb = {"ask": "people", "by": ["country", "day"], "sigma": 1e2}
        for told in (running.bob.ask("bomb", bomb), running.bob.post("/v1/quote", json=bomb)):
            assert (told.status_code, told.json()["code"]) == (422, "cells")
        for by in ("diagnosis", {"hours": None}):
            told = running.bob.ask("none", {**bomb, "by": by})
            assert (told.status_code, told.json()["code"]) == (422, "question")
        short = {"ask": "mean", "column": "hours", "by": "country", "sigma": 5}
        full = {**short, "low": 0, "high": 24, "by": {"country": ["FR", "ES"]}}
        assert running.ann.ask("mean", short).status_code == 201
        assert running.ann.ask("mean", full).status_code == 200
        (entry,) = running.api.session.ledger.entries("answered")
        assert (entry.public["dataset"], entry.public["question"]["high"]) == ("visits", 24)
        assert MARKER not in "".join(running.bob.seen)


@pytest.mark.quick(2)
@pytest.mark.parametrize("error", [5e-324, 1e-300, 1e-154, 1e-30])
@pytest.mark.parametrize("question", [{"ask": "people"}, {"ask": "count", "clip": 5}], ids=repr)
def test_an_error_that_nothing_can_pay_for_is_refused(running, question, error):
    """However small the wanted error is, its price is counted as too high, and nothing overflows."""
    assert running.ann.post("/v1/quote", json={**question, "error": error}).status_code == 403
    assert running.ann.ask("k", {**question, "error": error}).status_code in (403, 422)


@pytest.mark.quick(2)
@pytest.mark.parametrize("body", [{}, *({"person": each} for each in (None, 5, True, 1.5, [], {}))], ids=repr)
def test_a_statement_is_about_a_name(running, body):
    """What names nobody in this ledger is refused with its reason, and is no failure of the service."""
    response = running.holder.post("/v1/statement", json=body)
    assert (response.status_code, "person" in response.json()["detail"]) == (422, True)


def test_no_path_is_sent_on_to_a_host_of_the_request_s_choice(running):
    """A path with one stroke too many is not there: nothing is redirected by what a request calls this host."""
    for door, path in ((running.ann, "/v1/answers/"), (running.ann, "/login/"), (running.holder, "/v1/overview/")):
        response = door.get(path, headers={"host": "evil.example"})
        assert (response.status_code, "evil" in str(response.headers)) == (404, False)


def test_a_request_with_two_lengths_is_refused(running):
    """A body that is described in two ways, of which a proxy may have believed the other, ends the connection."""
    headers = {"content-length": "2", "transfer-encoding": "chunked", "content-type": "application/json"}
    response = running.ann.post("/v1/quote", content=b"{}", headers=headers)
    assert (response.status_code, response.headers["connection"]) == (400, "close")


def test_silent_connections_are_closed(monkeypatch):
    """A connection without a whole head of a request is closed in time, also after an answer; others are not."""

    async def said(_scope, _receive, send):
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"2")]})
        await send({"type": "http.response.body", "body": b"ok"})

    async def tried(port, *parts):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        reading = asyncio.create_task(reader.read())
        for part in parts:
            if reading.done():
                break
            writer.write(part)
            await asyncio.sleep(0.05)
        try:
            told = await asyncio.wait_for(reading, 10)
        except ConnectionResetError:  # it was closed while a part was on its way
            told = b""
        writer.close()
        return told

    async def work():
        server = uvicorn.Server(uvicorn.Config(said, http=_server.Impatient, lifespan="off", log_config=None))
        with socket.create_server(("127.0.0.1", 0)) as bound:
            serving = asyncio.create_task(server.serve([bound]))
            port, whole = bound.getsockname()[1], b"GET / HTTP/1.1\r\nhost: a\r\n\r\n"
            slow = [bytes([each]) for each in b"GET / HTTP/1.1\r\nhost: " + b"a" * 30]
            found = await asyncio.gather(tried(port), tried(port, *slow), tried(port, whole, b"GET / H"))
            server.should_exit = True
            await serving
        return found

    monkeypatch.setattr(_server, "_HEADER_SECONDS", 0.5)
    silent, slow, after = asyncio.run(work())
    assert silent == slow == b""
    assert after.count(b"200 OK") == 1


@contextlib.asynccontextmanager
async def listening(most, body):
    """The port of a server that answers every request with a body."""

    async def said(_scope, _receive, send):
        headers = [(b"content-length", str(len(body)).encode())]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": body})

    protocol = type("Protocol", (_server.Impatient,), {"most": most})
    server = uvicorn.Server(uvicorn.Config(said, http=protocol, lifespan="off", log_config=None))
    with socket.create_server(("127.0.0.1", 0)) as bound:
        serving = asyncio.create_task(server.serve([bound]))
        try:
            yield bound.getsockname()[1], server
        finally:
            server.should_exit = True
            await serving


@pytest.mark.parametrize("size", [14_000, 40_000_000])
def test_who_does_not_read_the_answers_is_let_go(monkeypatch, size):
    """Many small answers, or one that is larger than what the system keeps: the connection ends, and is not kept."""

    async def work():
        async with listening(256, b"a" * size) as (port, server):
            client = socket.socket()
            client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            client.connect(("127.0.0.1", port))
            client.setblocking(False)
            requests = b"GET / HTTP/1.1\r\nhost: a\r\n\r\n" * (1 if size > 1_000_000 else 2000)
            with contextlib.suppress(OSError):
                client.send(requests)
            await asyncio.sleep(0.3)
            before = len(server.server_state.connections)
            for _ in range(100):
                await asyncio.sleep(0.05)
                if not server.server_state.connections:
                    break
            after = len(server.server_state.connections)
            client.close()
            return before, after

    monkeypatch.setattr(_server, "_HEADER_SECONDS", 0.6)
    assert asyncio.run(work()) == (1, 0)


def test_one_address_has_only_so_many_connections():
    """The next one is closed at once; when one is given up, another is let in."""

    async def work():
        async with listening(3, b"ok") as (port, server):
            kept = [await asyncio.open_connection("127.0.0.1", port) for _ in range(3)]
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            refused = await asyncio.wait_for(reader.read(), 10)
            for each in (writer, kept.pop()[1]):
                each.close()
            while len(server.server_state.connections) > 2:
                await asyncio.sleep(0.01)
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(b"GET / HTTP/1.1\r\nhost: a\r\n\r\n")
            told = await asyncio.wait_for(reader.read(15), 10)
            for _, each in [*kept, (reader, writer)]:
                each.close()
            return refused, told

    assert asyncio.run(work()) == (b"", b"HTTP/1.1 200 OK")
