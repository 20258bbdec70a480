"""A policy that is read again while the service runs: who may ask, and how much; never what was promised to people."""

import signal
import socket
import threading
import time

import httpx2
import pytest

from almoner.errors import ArgumentError
from almoner.service import _server, hash_of, new_token
from almoner.service.policies import Policy
from service_processes import started
from services import COUNT, POLICY, TOKENS, Door, service, service_folder

EVE = new_token()
WITHOUT_BOB = POLICY.replace(f'[analysts.bob]\ntoken = "{hash_of(TOKENS["bob"])}"', "")
ADDED = f'\n[analysts.eve]\ntoken = "{hash_of(EVE)}"\nquestions = 1\n'


def changed(running, folder, text):
    (folder / "policy.toml").write_text(text, encoding="utf-8")
    running.api.change_policy(Policy.read(folder / "policy.toml"))


@pytest.fixture
def running(tmp_path):
    with service(service_folder(tmp_path)) as made:
        yield made


@pytest.mark.slow
def test_analysts_come_and_go_and_limits_change(running, tmp_path):
    """A new analyst may ask within their limits, one who is gone may not, and the others keep what they have."""
    assert running.ann.ask("a").status_code == running.bob.ask("b").status_code == 201
    eve = running.door(EVE)
    assert eve.get("/v1/me").status_code == 401
    changed(running, tmp_path, WITHOUT_BOB.replace('purpose = "weekly"', 'purpose = "weekly"\nquestions = 2') + ADDED)
    assert running.bob.get("/v1/me").status_code == running.bob.ask("c").status_code == 401
    assert eve.ask("a").status_code == 201
    assert eve.ask("b").json()["code"] == "questions"
    assert running.ann.ask("a").status_code == 200
    assert running.ann.ask("b").status_code == 201
    assert running.ann.ask("c").json()["code"] == "questions"
    changed(running, tmp_path, POLICY)
    assert running.bob.ask("b").status_code == 200
    assert eve.get("/v1/me").status_code == 401
    assert running.holder.get("/v1/overview").status_code == 200


def test_limits_on_the_ledger_change(running, tmp_path):
    """The share of each person's budget that an analyst may use is a limit of the ledger, from then on."""
    before = running.ann.get("/v1/me").json()["left"]["share"]
    changed(running, tmp_path, POLICY.replace("share = 0.5", "share = 0.25"))
    assert before == pytest.approx(0.5)
    assert running.ann.get("/v1/me").json()["left"]["share"] == pytest.approx(0.25)
    limits = {
        entry.public["scope"]: int(entry.public["units"]) for entry in running.api.session.ledger.entries("limited")
    }
    assert limits["analyst:ann"] == running.api.session.ledger.budget_units // 4


def test_a_refused_policy_changes_no_limit(running, tmp_path):
    """A policy whose usual question cannot be asked is refused before any of its limits is in force."""
    usual = '\n[usual]\nask = "mean"\ncolumn = "nosuch"\nlow = 0\nhigh = 1\nsigma = 60\n'
    for share in ("0.9", "0.2"):
        with pytest.raises(ArgumentError, match="usual: "):
            changed(running, tmp_path, POLICY.replace("share = 0.5", f"share = {share}") + usual)
        assert running.ann.get("/v1/me").json()["left"]["share"] == pytest.approx(0.5)
    book = running.api.session.ledger
    assert {int(entry.public["units"]) for entry in book.entries("limited")} == {book.budget_units // 2}


@pytest.mark.quick(1)
@pytest.mark.parametrize(
    ("old", "new", "why"),
    [
        ("rho = 1.0", "rho = 2.0", "the ledger, its budget or the tables must be as before"),
        ('ledger = "people.ledger"', 'ledger = "other.ledger"', "the ledger, its budget or the tables"),
        ("high = 24", "high = 48", "tables must be as before"),
        ("step = 0.02", "step = 0.5", "service must be as before"),
        ("[limits]", 'usual = { ask = "count", by = { nothing = [1] }, clip = 1, rho = 0.01 }\n[limits]', "usual"),
        ("[limits]", "watch = { people = 5, epsilon = 0.1 }\n[limits]", "watch must be as before"),
    ],
)
def test_what_was_promised_does_not_change(running, tmp_path, old, new, why):
    """It is refused by name, and the policy before stays in force."""
    before, entries = running.api.policy, running.api.session.ledger.entries()
    text = WITHOUT_BOB.replace(old, new, 1)
    if new.startswith(("usual", "watch")):  # they stand before the first table
        text = new.partition("\n")[0] + "\n" + WITHOUT_BOB
    with pytest.raises(ArgumentError, match=why):
        changed(running, tmp_path, text)
    assert running.api.policy is before
    assert len(running.api.session.ledger.entries()) == len(entries)
    assert running.bob.ask("b").status_code == 201


def test_another_token_ends_the_visits_of_before(running, tmp_path):
    """A cookie that was taken with the old token opens nothing, for analysts and for the data holder."""
    ann, holder = Door(running.service.analysts), Door(running.service.holder)
    for door, name in ((ann, "ann"), (holder, "holder")):
        door.post("/login", data={"token": TOKENS[name]})
        assert door.get("/").status_code == 200
    text = POLICY.replace(hash_of(TOKENS["ann"]), hash_of(EVE))
    changed(running, tmp_path, text.replace(hash_of(TOKENS["holder"]), hash_of(TOKENS["stranger"])))
    assert ann.get("/").headers["location"] == holder.get("/").headers["location"] == "./login"
    assert holder.post("/verify", data={"form": "x"}).headers["location"] == "./login"
    assert Door(running.service.holder, TOKENS["holder"]).get("/v1/overview").status_code == 401
    assert running.door(EVE).ask("a").status_code == 201


def test_a_question_that_waits_is_asked_under_the_policy_of_its_turn(running, tmp_path):
    """Whoever was admitted under other terms is told to send it again, and nobody is charged."""
    held, free = threading.Event(), threading.Event()
    running.api.worker.submit("x", lambda: (held.set(), free.wait(60)), padded=False)
    held.wait(60)
    told = []
    asking = threading.Thread(target=lambda: told.append(running.bob.ask("late")))
    changing = threading.Thread(target=lambda: changed(running, tmp_path, WITHOUT_BOB))
    changing.start()
    while running.api.worker.waiting < 1:
        time.sleep(0.01)
    asking.start()
    while running.api.worker.waiting < 2:
        time.sleep(0.01)
    free.set()
    asking.join()
    changing.join()
    assert (told[0].status_code, told[0].json()["code"]) == (503, "policy")
    assert not running.api.session.ledger.entries("answered")


@pytest.mark.server
@pytest.mark.skipif(not hasattr(signal, "SIGHUP"), reason="this system has no SIGHUP")
def test_a_process_reads_its_policy_again_at_sighup(tmp_path):
    """What is new holds; a file that is refused is said in the log, with the reason, and the service goes on."""
    folder = service_folder(tmp_path)

    def until(words, number=1):
        gives_up = time.monotonic() + 60
        while process.log.read_text().count(words) < number:
            assert time.monotonic() < gives_up, process.log.read_text()
            time.sleep(0.05)

    def status(token):
        return httpx2.get(f"{process.address}/v1/me", headers={"authorization": f"Bearer {token}"}).status_code

    with started(folder) as (process,):
        assert (status(TOKENS["bob"]), status(EVE)) == (200, 401)
        (folder / "policy.toml").write_text(WITHOUT_BOB + ADDED, encoding="utf-8")
        process.running.send_signal(signal.SIGHUP)
        until("the policy was changed")
        assert (status(TOKENS["bob"]), status(EVE)) == (401, 200)
        for number, (text, why) in enumerate(
            ((POLICY.replace("rho = 1.0", "rho = 3"), "budget"), ("rho =", "is not a TOML file"))
        ):
            (folder / "policy.toml").write_text(text, encoding="utf-8")
            process.running.send_signal(signal.SIGHUP)
            until("the policy was not changed", number + 1)
            assert why in process.log.read_text()
        assert (status(TOKENS["bob"]), status(EVE)) == (401, 200)
        answer = httpx2.post(
            f"{process.address}/v1/answers",
            json=COUNT,
            headers={"authorization": f"Bearer {EVE}", "idempotency-key": "k"},
            timeout=60,
        )
        assert answer.status_code == 201
        assert process.kill(signal.SIGTERM) == 0


def test_small_answers_are_sent_at_once(tmp_path):
    """The socket says that it is TCP: asyncio then turns off Nagle's algorithm, which holds each answer for 40 ms."""
    policy = Policy.read(service_folder(tmp_path) / "policy.toml")
    with _server._bound(policy, "") as made:
        assert made.proto == socket.IPPROTO_TCP
