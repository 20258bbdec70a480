"""Several questions in one request: each its own answer or refusal, charged together, in as many steps as one needs."""

import threading
import time

import pytest

from almoner.errors import DataError
from almoner.queries import Analyst
from almoner.service._analyst_api import Rates
from services import COUNT, POLICY, service, service_folder

PEOPLE = {"ask": "people", "rho": 0.01}
MEAN = {"ask": "mean", "column": "hours", "rho": 0.01}


@pytest.fixture
def running(tmp_path):
    with service(service_folder(tmp_path)) as made:
        yield made


def batch(door, questions, **options):
    return door.post("/v1/batch", json={"questions": questions}, **options)


def test_a_refusal_of_one_harms_no_other(running):
    """What is refused is told beside the others' answers, which are those of the same keys; again, all is free."""
    first = running.ann.ask("old").json()
    asked = {
        "people": PEOPLE,
        "mean": MEAN,
        "old": COUNT,
        "cheap": {"ask": "people", "rho": 1e-9},
        "dear": {"ask": "people", "rho": 0.6},
        "hidden": {**PEOPLE, "where": "diagnosis = 'x'"},
        "wrong": 7,
        "x" * 121: PEOPLE,
    }
    told = batch(running.ann, asked)
    body = told.json()
    assert told.status_code == 200
    assert body["answers"]["old"] == first
    codes = {key: (each["status"], each["code"]) for key, each in body["refused"].items()}
    assert codes == {
        "cheap": (422, "least"),
        "dear": (403, "budget"),
        "hidden": (422, "question"),
        "wrong": (422, "question"),
        "x" * 121: (400, "key"),
    }
    for key, answer in body["answers"].items():
        assert running.ann.get("/v1/answer", params={"key": key}).json() == answer
        assert running.ann.ask(key, asked[key]).json() == answer
    again = batch(running.ann, asked).json()
    assert again["answers"] == body["answers"]
    other = batch(running.ann, {"people": MEAN, "mean": MEAN}).json()
    assert other["refused"]["people"]["code"] == "key"
    assert other["answers"]["mean"] == body["answers"]["mean"]
    assert len(running.api.session.ledger.entries("answered")) == 3
    assert all(finding.holds for finding in running.api.session.verify(replay=True))


def test_a_key_with_blanks_at_its_ends_is_not_charged_beside_the_one_without(running):
    """HTTP takes blanks off a header, so that one key of a batch and of a single question was charged twice."""
    assert running.ann.ask("monday", PEOPLE).status_code == 201
    told = batch(running.ann, {" monday ": PEOPLE, "monday": PEOPLE}).json()
    assert list(told["answers"]) == ["monday"]
    assert (told["refused"][" monday "]["status"], told["refused"][" monday "]["code"]) == (400, "key")
    assert len(running.api.session.ledger.entries("answered")) == 1


def test_a_batch_is_charged_like_its_questions_one_by_one(tmp_path):
    """Prices, floors, what is left, and the first question that does not fit are those of single questions."""
    told = []
    for name, together in (("a", True), ("b", False)):
        (tmp_path / name).mkdir()
        with service(service_folder(tmp_path / name)) as running:
            asked = {str(key): {"ask": "people", "rho": 0.15, "where": f"hours > {key}"} for key in range(5)}
            if together:
                body = batch(running.ann, asked).json()
                codes = [body["refused"][key]["code"] if key in body["refused"] else 201 for key in asked]
            else:
                codes = [each.json().get("code", 201) for each in (running.ann.ask(k, q) for k, q in asked.items())]
            entries = running.api.session.ledger.entries("answered")
            terms = [(each.public["key"], each.public["price"], each.public["floor"]) for each in entries]
            told.append((codes, terms, running.ann.get("/v1/me").json()["left"]["share"]))
    assert told[0] == told[1]
    assert told[0][0] == [201, 201, 201, "budget", "budget"]


def test_a_batch_whose_data_cannot_be_read_is_charged_nothing(running, monkeypatch):
    """If one question finds that data cannot be read, all are refused alike, and nobody is charged."""
    real, calls = Analyst.ask, []

    def fails(self, asked, **options):
        calls.append(real(self, asked, **options))
        if len(calls) == 3:
            raise DataError("a file of the data is away", reason="away")
        return calls[-1]

    asked = {str(key): {**PEOPLE, "where": f"hours > {key}"} for key in range(5)}
    with monkeypatch.context() as patched:
        patched.setattr(Analyst, "ask", fails)
        body = batch(running.ann, asked).json()
    assert (body["answers"], len(calls)) == ({}, 3)
    assert {(each["status"], each["code"], each["retry_after"]) for each in body["refused"].values()} == {
        (503, "away", 60)
    }
    assert len(body["refused"]) == 5
    assert running.api.session.ledger.entries("answered") == []
    assert running.ann.get("/v1/answers").json()["total"] == 0
    body = batch(running.ann, asked).json()
    assert (len(body["answers"]), body["refused"]) == (5, {})
    assert all(finding.holds for finding in running.api.session.verify(replay=True))


def test_a_service_that_dies_within_a_batch_answers_all_of_it_again(tmp_path, monkeypatch):
    """After an end in the middle of a batch no part of it was charged, and the same request is answered once."""
    folder = service_folder(tmp_path)
    asked = {str(key): {**PEOPLE, "where": f"hours > {key}"} for key in range(4)}
    real, calls = Analyst.ask, []

    def dies(self, wanted, **options):
        calls.append(real(self, wanted, **options))
        if len(calls) == 3:
            raise MemoryError
        return calls[-1]

    with service(folder) as running, monkeypatch.context() as patched:
        patched.setattr(Analyst, "ask", dies)
        assert {each["code"] for each in batch(running.ann, asked).json()["refused"].values()} == {"internal"}
    with service(folder) as running:
        assert running.api.session.ledger.entries("answered") == []
        assert len(batch(running.ann, asked).json()["answers"]) == 4
        assert len(running.api.session.ledger.entries("answered")) == 4
        assert all(finding.holds for finding in running.api.session.verify(replay=True))


def test_a_day_has_as_many_questions_in_batches_as_one_by_one(tmp_path):
    """Each question of a batch counts for the quota of a day; free ones don't."""
    with service(service_folder(tmp_path, POLICY.replace("cells = 100", "cells = 100\nquestions = 3"))) as running:
        asked = {str(key): {**PEOPLE, "where": f"hours > {key}"} for key in range(5)}
        body = batch(running.ann, asked).json()
        assert sorted(body["answers"]) == ["0", "1", "2"]
        assert {each["code"] for each in body["refused"].values()} == {"questions"}
        assert all(0 < each["retry_after"] <= 86_400 for each in body["refused"].values())
        assert batch(running.ann, asked).json()["answers"] == body["answers"]


@pytest.mark.parametrize("together", [True, False])
def test_what_a_clip_is_chosen_by_counts_for_the_day(tmp_path, together):
    """Each release for an 'auto' is a question of the day, also for the next question of a batch; seen or all noise."""
    text = POLICY.replace("cells = 100", "cells = 1000\nquestions = 4")
    auto = {"ask": "sum", "column": "hours", "clip": "auto", "rho": 0.12}
    asked = {str(key): {**auto, "where": f"hours > {key}"} for key in range(5)}
    with service(service_folder(tmp_path, text)) as running:
        if together:
            refused = batch(running.ann, asked).json()["refused"]
            codes = [refused.get(key, {}).get("code") for key in asked]
        else:
            codes = [running.ann.ask(key, question).json().get("code") for key, question in asked.items()]
        charged = 0
        for code in codes:
            assert (code == "questions") == (charged >= 4)
            charged += {None: 2, "question": 1, "questions": 0}[code]
        assert len(running.api.session.ledger.entries("answered")) == charged <= 5


def test_each_question_of_a_batch_is_a_request_of_the_minute(tmp_path):
    """Batches get around no limit of requests."""
    with service(service_folder(tmp_path, POLICY.replace("100000", "20"))) as running:
        asked = {str(key): {"ask": "people", "rho": 1e-9} for key in range(12)}
        assert [batch(running.ann, asked).status_code for _ in range(2)] == [200, 429]
        assert running.bob.get("/v1/me").status_code == 200


def test_a_batch_that_no_minute_has_room_for_is_told_so(tmp_path):
    """With 20 requests a minute a batch has 20 questions; more are refused for good, and not told to come again."""
    with service(service_folder(tmp_path, POLICY.replace("100000", "20"))) as running:
        cheap = {"ask": "people", "rho": 1e-9}
        told = batch(running.ann, {str(key): cheap for key in range(21)})
        assert (told.status_code, told.json()["retry_after"]) == (422, None)
        assert "with 1 to 20 of them" in told.json()["detail"]
        running.api.rates = Rates()
        assert batch(running.ann, {str(key): cheap for key in range(20)}).status_code == 200


@pytest.mark.parametrize("body", [[], {}, {"questions": {}}, {"questions": [PEOPLE]}, {"questions": {}, "x": 1}])
def test_other_bodies_are_refused(running, body):
    """A batch is an object of questions by their keys, 1 to 64 of them."""
    assert running.ann.post("/v1/batch", json=body).status_code == 422
    many = {"questions": {str(key): PEOPLE for key in range(65)}}
    assert running.ann.post("/v1/batch", json=many).status_code == 422


def test_equal_questions_of_a_batch_are_shared(tmp_path):
    """Where the policy lets answers be shared, the second of two equal questions costs nothing, also in a batch."""
    with service(service_folder(tmp_path), lambda text: text + '[sharing]\nanalysts = ["ann", "bob"]\n') as running:
        told = batch(running.ann, {"a": PEOPLE, "b": PEOPLE, "c": {**PEOPLE, "where": "hours > 3"}}).json()["answers"]
        assert told["a"]["values"] == told["b"]["values"]
        assert (told["b"]["share"], told["a"]["share"]) == (0, told["c"]["share"])
        theirs = batch(running.bob, {"x": PEOPLE, "y": PEOPLE}).json()["answers"]
        assert {each["share"] for each in theirs.values()} == {0}
        assert all(finding.holds for finding in running.api.session.verify(replay=True))


def test_a_batch_takes_whole_steps_all_together(tmp_path):
    """However many of the questions are answered or refused on the way, the time is a multiple of the step, once."""
    with service(service_folder(tmp_path, POLICY.replace("0.02", "1.0"))) as running:
        kept = running.api.worker.submit("x", time.monotonic).result()  # a step begins
        for asked in (
            {str(key): {**PEOPLE, "rho": 0.001, "where": f"hours > {key}"} for key in range(3)},
            {"d": {**PEOPLE, "rho": 0.51}, "e": {**PEOPLE, "rho": 0.52}},
        ):
            before = running.ann.get("/v1/me").json()["left"]["seconds_today"]
            batch(running.ann, asked)
            took, spent = time.monotonic() - kept, before - running.ann.get("/v1/me").json()["left"]["seconds_today"]
            assert spent == round(spent) >= 1
            assert took >= spent
            kept = time.monotonic()


def test_answers_that_are_there_wait_for_nothing(running):
    """While the worker is busy, repeats are answered, alone and in batches; what is new waits."""
    first, gate, done = running.ann.ask("old").json(), threading.Event(), []
    running.api.worker.submit("x", gate.wait, padded=False)
    began = time.monotonic()
    assert running.ann.ask("old").json() == first
    assert running.ann.ask("old", PEOPLE).status_code == 409
    assert batch(running.ann, {"old": COUNT}).json()["answers"] == {"old": first}
    waiting = threading.Thread(target=lambda: done.append(batch(running.ann, {"old": COUNT, "new": PEOPLE}).json()))
    waiting.start()
    time.sleep(0.2)
    assert time.monotonic() - began < 5
    assert done == []
    gate.set()
    waiting.join()
    assert done[0]["answers"].keys() == {"old", "new"}


def test_a_batch_has_as_many_numbers_as_one_answer(running):
    """What is beyond the quota of cells is refused, however the numbers are spread over questions, old or new."""
    days = {"ask": "count", "by": {"day": [f"2026-01-{day:02d}" for day in range(1, 29)]}, "clip": 5, "rho": 0.01}
    asked = {str(key): {**days, "where": f"hours > {key}"} for key in range(4)}
    for _ in range(2):
        body = batch(running.ann, asked).json()
        assert ([*body["answers"]], body["refused"]["3"]["code"]) == (["0", "1", "2"], "cells")
    assert running.ann.ask("3", asked["3"]).status_code == 201


def test_a_table_has_an_end(running, monkeypatch):
    """A table of all answers has the newest of them, up to so many numbers, and one answer at least."""
    for key in range(3):
        running.ann.ask(str(key), {**COUNT, "clip": 4 + key})
    for most, keys in ((4, ["2", "2", "1", "1"]), (1, ["2", "2"])):
        monkeypatch.setattr("almoner.service._analyst_api._MOST_NUMBERS", most)
        told = running.ann.get("/v1/answers.csv").text.splitlines()
        assert [line.split(",")[0] for line in told[1:]] == keys
