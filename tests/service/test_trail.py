"""The log of a service: JSON lines that say who did what, hold nothing private, and cannot lose one unnoticed."""

import errno
import json
import threading

import pytest
from typer.testing import CliRunner

from almoner.cli import app
from almoner.ledger import Ledger
from almoner.service import _server, check_trail, hash_of, new_token
from almoner.service.policies import Policy
from services import COUNT, MARKER, POLICY, TOKENS, Door, service, service_folder

LOGGED = 'log = "service.log"\n' + POLICY


@pytest.fixture
def folder(tmp_path):
    return service_folder(tmp_path, LOGGED)


def lines(folder):
    return [json.loads(line) for line in (folder / "service.log").read_text(encoding="utf-8").splitlines()]


def told(folder, *names):
    """These facts of each line about a request."""
    return [tuple(line.get(name) for name in names) for line in lines(folder) if line["did"] == "request"]


def holds(folder, files=("service.log",)):
    """What does not hold of the log, by the ledger."""
    text = "".join((folder / name).read_text(encoding="utf-8") for name in files)
    with Ledger.open(folder / "people.ledger") as ledger:
        return [each.what for each in check_trail(ledger, text.splitlines()) if not each.holds]


def lived(running, folder):
    """Everything that the log tells, once; the console's door."""
    ann = running.ann
    ann.post("/v1/quote", json=COUNT)
    for _ in range(2):
        ann.ask("monday")
    ann.ask("dear", {"ask": "people", "rho": 0.6})
    running.door(TOKENS["stranger"]).get("/v1/me")
    running.door().get("/health")
    running.door().get("/nothing")
    page = Door(running.service.analysts)
    page.post("/login", data={"token": TOKENS["ann"]})
    page.post("/login", data={"token": "token_wrong"})
    page.get("/")
    running.holder.post("/v1/statement", json={"person": f"{MARKER}7"})
    running.holder.post("/v1/verify", json={})
    text = (folder / "policy.toml").read_text(encoding="utf-8").replace("cells = 100", "cells = 99")
    (folder / "policy.toml").write_text(
        text.replace('purpose = "weekly"', 'purpose = "weekly"\nquestions = 9'), encoding="utf-8"
    )
    running.service.holder_api.change = lambda who: _server._change(
        running.api, lambda: Policy.read(folder / "policy.toml"), who
    )
    assert running.holder.post("/v1/policy", json={}).json() == {"told": ["the policy was changed"]}


def test_of_two_changes_at_once_the_policy_that_was_read_last_is_in_force(folder):
    """A change that read an older policy can't undo a newer one, in which somebody's token was taken away."""
    with service(folder) as running:
        old, begun, gate = Policy.read(folder / "policy.toml"), threading.Event(), threading.Event()
        text = (folder / "policy.toml").read_text(encoding="utf-8")
        (folder / "policy.toml").write_text(text.replace(hash_of(TOKENS["bob"]), hash_of(new_token())), "utf-8")

        def slow():
            begun.set()
            gate.wait(1)
            return old

        newest = lambda: Policy.read(folder / "policy.toml")  # noqa: E731
        changes = [threading.Thread(target=_server._change, args=(running.api, each, "x")) for each in (slow, newest)]
        changes[0].start()
        begun.wait()
        changes[1].start()
        for each in changes:
            each.join()
        assert running.bob.get("/v1/me").status_code == 401


def test_the_log_says_who_did_what(folder):
    """Quotes, questions, free repeats, refusals, logins, wrong tokens, statements: who, where from, and the code."""
    with service(folder) as running:
        lived(running, folder)
    analysts = told(folder, "who", "method", "route", "status", "code", "key", "answer", "port")
    assert [line[:7] for line in analysts if line[7] == "analysts"] == [
        ("ann", "POST", "/v1/quote", 200, None, None, None),
        ("ann", "POST", "/v1/answers", 201, None, "monday", "new"),
        ("ann", "POST", "/v1/answers", 200, None, "monday", "repeated"),
        ("ann", "POST", "/v1/answers", 403, "budget", None, None),
        (None, "GET", "/v1/me", 401, "token", None, None),
        ("ann", "POST", "/login", 303, None, None, None),
        (None, "POST", "/login", 401, "token", None, None),
        ("ann", "GET", "/", 200, None, None, None),
    ]
    assert [line[:4] for line in analysts if line[7] == "holders"] == [
        ("steward", "POST", "/v1/statement", 200),
        ("steward", "POST", "/v1/verify", 200),
        ("steward", "POST", "/v1/policy", 200),
    ]
    assert {line["address"] for line in lines(folder) if line["did"] == "request"} == {"testclient"}
    (change,) = [line for line in lines(folder) if line["did"] == "the policy was changed"]
    assert (change["who"], change["lines"]) == ("steward", ["analysts.ann.questions", "limits.cells"])


def test_the_log_holds_no_value_no_token_and_no_person(folder):
    """Neither a question's values nor an answer, a token or its hash, nor whose statement it was; it is private."""
    with service(folder) as running:
        lived(running, folder)
        answer = running.ann.get("/v1/answer?key=monday").json()
    text = (folder / "service.log").read_text(encoding="utf-8")
    for secret in (MARKER, "sha256", "token_", "country", "FR", *map(str, answer["values"]), *TOKENS.values()):
        assert secret not in text.replace('"code": "token"', ""), secret
    assert (folder / "service.log").stat().st_mode & 0o777 == 0o600


def test_the_ledger_says_whose_statement_somebody_saw(folder):
    """The line has the number of an entry, whose private part names the person; its public part only who looked."""
    with service(folder) as running:
        assert running.holder.post("/v1/statement", json={"person": f"{MARKER}7"}).status_code == 200
        assert running.holder.post("/v1/statement", json={"person": 7}).status_code == 422
        (number,), *_ = told(folder, "entry")
        (entry,) = [each for each in running.api.session.ledger.entries("trail") if each.number == number]
    assert entry.private["person"] == f"{MARKER}7"
    assert entry.public["statement_to"] == "steward"
    assert MARKER not in json.dumps(entry.public)


def test_no_statement_is_shown_that_the_ledger_does_not_note(folder, monkeypatch):
    """Where the entry cannot be written, the look is refused."""
    with service(folder) as running:
        running.api.session.ledger.close()
        response = running.holder.post("/v1/statement", json={"person": f"{MARKER}7"})
    assert response.status_code == 503


@pytest.mark.slow
def test_a_line_that_was_removed_or_altered_is_found(folder):
    """Any line up to the last note of each start: gone, altered, altered with new hashes, or with all before it."""
    for _ in range(2):
        with service(folder) as running:
            running.ann.ask("monday")
            running.ann.get("/v1/me")
    assert holds(folder) == []
    whole = (folder / "service.log").read_text(encoding="utf-8").splitlines(keepends=True)
    assert len({json.loads(line)["run"] for line in whole}) == 2
    log = folder / "service.log"
    for place, line in enumerate(whole):
        for instead in ([], [line.replace('"level": "info"', '"level": "none"')]):
            log.write_text("".join([*whole[:place], *instead, *whole[place + 1 :]]))
            assert holds(folder), place
    log.write_text("".join(whole[2:]))
    assert holds(folder)
    log.write_text("")
    assert len(holds(folder)) == 2
    log.write_text("".join(resealed(whole, '"ann"', '"bob"')))
    assert all("noted" in fault for fault in holds(folder))
    assert holds(folder)


def resealed(whole, old, new):
    """The lines with a word replaced, and every hash computed anew, as somebody may who reads this program."""
    from almoner.service._trail import _SEAL, Head

    heads = {}
    for line in whole:
        text, run = line.replace(old, new).rpartition(_SEAL)[0], json.loads(line)["run"]
        heads[run] = heads.get(run, Head(run)).followed(text)
        yield f'{text}{_SEAL}{heads[run].hash}"}}\n'


@pytest.mark.slow
def test_a_log_is_checked_by_a_command_also_after_rotation(folder):
    """`almoner ledger verify --log`, with the files oldest first: exit code 0, and 1 when one of them is missing."""
    with service(folder) as running:
        running.ann.ask("monday")
        (folder / "service.log").rename(folder / "service.log.1")  # as logrotate does
        running.ann.ask("tuesday")
    files = [str(folder / "service.log.1"), str(folder / "service.log")]
    assert holds(folder, files) == []
    command = ["ledger", "verify", str(folder / "people.ledger")]
    run = CliRunner().invoke(app, [*command, "--log", files[0], "--log", files[1]])
    assert (run.exit_code, "no line of the log was altered" in run.output) == (0, True)
    run = CliRunner().invoke(app, [*command, "--log", files[1]])
    assert (run.exit_code, "altered or removed" in run.output) == (1, True)


def test_a_log_that_cannot_be_written_raises_an_alarm(folder, monkeypatch, capsys):
    """A full disk, or a folder that is gone: analysts are answered, the holder is told, and it is over by itself."""
    with service(folder) as running:

        def alarms():
            return [alarm["code"] for alarm in running.holder.get("/v1/alarms").json()]

        def full(*_):
            raise OSError(errno.ENOSPC, "no room")

        assert alarms() == []
        with monkeypatch.context() as patched:
            patched.setattr(running.api.trail._out, "flush", full)
            assert running.ann.ask("monday").status_code == 201
            assert alarms() == ["log"]
        running.ann.get("/v1/me")
        assert alarms() == []
    assert MARKER not in capsys.readouterr().err


def test_wrong_tokens_do_not_fill_the_log(folder):
    """Of one address 30 a minute have a line, however many there are; all are counted."""
    with service(folder) as running:
        for _ in range(50):
            running.door(TOKENS["stranger"]).get("/v1/me")
        assert running.api.metrics.total("refusals", code="token") == 50
    assert 30 <= len(told(folder, "code")) <= 32


def test_standard_error_gets_the_lines_where_no_file_is_named(tmp_path, capfd):
    """Also what is logged while the data are opened: each is a line of JSON."""
    with service(service_folder(tmp_path)) as running:
        running.ann.get("/v1/me")
    seen = [json.loads(line) for line in capfd.readouterr().err.splitlines()]
    assert [line["route"] for line in seen if line["did"] == "request"] == ["/v1/me"]


def test_a_log_that_cannot_be_opened_is_refused(tmp_path):
    """With the line to write."""
    from almoner.errors import ArgumentError

    folder = service_folder(tmp_path, LOGGED.replace("service.log", "nowhere/service.log"))
    with pytest.raises(ArgumentError, match=r"log='.*' cannot be written: No such file"), service(folder):
        pass
