"""A service that is watched and looked after: readiness, metrics and alarms when things fail; rights; the clock."""

import json
import logging
import signal
import threading
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path

import httpx2
import pytest
from pyarrow import csv, parquet
from typer.testing import CliRunner

from almoner.cli import app
from almoner.errors import LedgerError
from almoner.ledger._stores.file import File
from almoner.service import _holder_api, _padded_worker, hash_of, new_token
from almoner.service._analyst_api import Rates
from almoner.service.policies import Clock, Policy
from service_processes import started
from services import MARKER, POLICY, TOKENS, Door, service, service_folder

TEXTS = {
    "ledger": "The ledger cannot be used. On a server, it is opened again by itself; else start the service again.",
    "away": "A file of table 'visits' is away: questions are refused until it is back.",
    "clock": "The machine's clock was set back: tokens end all the same.",
    "clerk": "A question, or a check, takes more than a minute, and others wait for it.",
}


class States:
    """All that says how a service is, at both ports, and what the log said since the last time."""

    def __init__(self, running, caplog, monkeypatch):
        self.running, self.caplog = running, caplog
        caplog.set_level(logging.WARNING)
        monkeypatch.setattr(_holder_api, "_PATIENCE", 60.0)  # this machine may be busy

    def now(self):
        """(/ready, alarms, gauges, lines of the log) as they are after a look."""
        self.caplog.clear()
        alarms = [alarm["text"] for alarm in self.running.holder.get("/v1/alarms").json()]
        lines = [record.getMessage() for record in self.caplog.records]
        metrics = self.running.holder.get("/metrics")
        assert metrics.status_code == 200
        gauges = {line.split()[0]: float(line.split()[1]) for line in metrics.text.splitlines() if line[:1] != "#"}
        ready = [Door(port).get("/ready") for port in (self.running.service.analysts, self.running.service.holder)]
        assert ready[0].text == ready[1].text
        assert [Door(self.running.service.analysts).get("/health").status_code] == [200]
        assert MARKER not in ready[0].text + self.caplog.text
        body = ready[0].json()
        said = body["status"] if ready[0].status_code == 200 else f"{body['status']} {body['detail']}"
        up = "".join(str(int(gauges[f"privacy_{name}"])) for name in ("ledger_up", "data_readable", "clerk_up"))
        assert gauges["privacy_people_age_seconds"] >= 0
        return said, alarms, up, lines


def parquet_folder(folder, more=""):
    """A service's folder whose data are read anew for every question."""
    policy = POLICY.replace(".csv", ".parquet").replace('types = { hours = "number", day = "date" }', "")
    service_folder(folder, more + policy)
    data = folder / f"{MARKER}-visits.csv"
    parquet.write_table(csv.read_csv(data), data.with_suffix(".parquet"))
    return folder


FINE = ("ready", [], "111", [])


def back(*texts):
    return "ready", [], "111", [f"over: {text}" for text in texts]


def away(part, up, text):
    return f"503 not usable now: {part}", [text], up, [text]


@pytest.mark.slow
def test_every_state_is_told_everywhere_and_once_in_the_log(tmp_path, caplog, monkeypatch):
    """A ledger's file replaced and back; data gone and back; the clock set back; a clerk that hangs; a full disk."""
    parquet_folder(tmp_path)
    ledger, data = tmp_path / "people.ledger", tmp_path / f"{MARKER}-visits.parquet"
    with service(tmp_path) as running:
        states = States(running, caplog, monkeypatch)
        assert running.ann.ask("a").status_code == 201
        assert states.now() == FINE
        ledger.rename(tmp_path / "kept")
        ledger.write_bytes((tmp_path / "kept").read_bytes())
        assert states.now() == away("ledger", "011", TEXTS["ledger"])
        assert states.now() == ("503 not usable now: ledger", [TEXTS["ledger"]], "011", [])
        (tmp_path / "kept").rename(ledger)
        assert states.now() == back(TEXTS["ledger"])
        data.rename(tmp_path / "away")
        assert states.now() == away("data", "101", TEXTS["away"])
        (tmp_path / "away").rename(data)
        assert states.now() == back(TEXTS["away"])
        with monkeypatch.context() as patched:
            real = time.time
            patched.setattr(time, "time", lambda: real() - 7200)
            assert states.now() == ("ready", [TEXTS["clock"]], "111", [TEXTS["clock"]])
        assert states.now() == back(TEXTS["clock"])
        gate = threading.Event()
        with monkeypatch.context() as patched:
            patched.setattr(_padded_worker, "_STUCK", 0.1)
            patched.setattr(_holder_api, "_PATIENCE", 0.1)
            hanging = running.api.worker.submit("", gate.wait, padded=False)
            time.sleep(0.3)
            assert states.now() == away("clerk", "110", TEXTS["clerk"])
        gate.set()
        hanging.result()
        assert states.now() == back(TEXTS["clerk"])
        with monkeypatch.context() as patched:
            run = File.run

            def full(file, sql, parameters=()):
                if sql == "COMMIT":
                    raise LedgerError("there is no room")
                return run(file, sql, parameters)

            patched.setattr(File, "run", full)
            assert running.ann.ask("b").status_code == 503
        assert states.now() == away("ledger", "011", TEXTS["ledger"])
        assert running.ann.ask("b").status_code == 503
        assert running.ann.get("/v1/answer?key=a").status_code == 200


def test_a_ledger_s_server_that_is_away_is_told_and_waited_for(tmp_path, server, caplog, monkeypatch):
    """Readiness, metrics and alarms answer while PostgreSQL is killed; it is opened again without a question."""
    folder = service_folder(tmp_path, POLICY.replace('"people.ledger"', f'"{server.place()}"'))
    with service(folder) as running:
        states = States(running, caplog, monkeypatch)
        assert running.ann.ask("a").status_code == 201
        charged = running.holder.get("/v1/people").json()["charged"]
        assert states.now() == FINE
        server.kill()
        try:
            assert states.now() == away("ledger", "011", TEXTS["ledger"])
            assert f"privacy_people_charged {charged:.1f}" in running.holder.get("/metrics").text
            assert running.holder.get("/v1/people").status_code == 503
        finally:
            server.start()
        assert states.now() == back(TEXTS["ledger"])
        assert running.ann.ask("b").status_code == 201


@pytest.mark.server
def test_a_process_notices_by_itself_and_its_log_can_be_checked(tmp_path):
    """Nobody asks: data that are away, and back, are in /ready and in the log, whose lines the ledger vouches for."""
    folder = parquet_folder(tmp_path, 'log = "service.log"\n')
    data = folder / f"{MARKER}-visits.parquet"
    with started(folder) as (process,):
        for old, new, wanted in ((data, folder / "away", 503), (folder / "away", data, 200)):
            old.rename(new)
            gives_up = time.monotonic() + 60
            while httpx2.get(f"{process.address}/ready", timeout=30).status_code != wanted:
                assert time.monotonic() < gives_up
                time.sleep(0.2)
        assert process.kill(signal.SIGTERM) == 0
    log = folder / "service.log"
    told = [json.loads(line)["did"] for line in log.read_text(encoding="utf-8").splitlines()]
    assert told == [TEXTS["away"], f"over: {TEXTS['away']}"]
    run = CliRunner().invoke(app, ["ledger", "verify", str(folder / "people.ledger"), "--log", str(log)])
    assert (run.exit_code, "no line of the log was altered" in run.output) == (0, True)
    assert f"analysts: {process.address}" in process.log.read_text(encoding="utf-8")


def test_readiness_does_not_follow_a_question_within_its_step(tmp_path, monkeypatch):
    """Data that could not be read for a question are told at the end of its step, to everybody, and no sooner."""
    view = "SELECT *, CAST(CASE WHEN country = 'ES' THEN 'x' ELSE '1' END AS INTEGER) AS one FROM data"
    policy = POLICY.replace('about = "One row', f'view = "{view}"\nabout = "One row').replace("day = {}", "one = {}")
    with service(service_folder(tmp_path, policy.replace("step = 0.02", "step = 1.0"))) as running:
        asking = threading.Thread(
            target=running.ann.ask, args=("bad", {"ask": "count", "where": "one = 1", "clip": 5, "sigma": 60})
        )
        began = time.monotonic()
        asking.start()
        seen = set()
        while time.monotonic() - began < 0.8:
            seen.add(running.door().get("/ready").status_code)
            time.sleep(0.02)
        asking.join()
        assert seen == {200}
        assert running.door().get("/ready").json()["detail"] == "not usable now: data"


def test_counting_people_takes_whole_steps(tmp_path):
    """It takes longer the more there are, so the next question begins a step later, whatever their number."""
    with service(service_folder(tmp_path, POLICY.replace("step = 0.02", "step = 0.3"))) as running:
        holders, took = running.service.holder_api, []
        for counted in (time.monotonic(), time.monotonic() - 61):
            holders._counted, began = counted, time.monotonic()
            holders.alarms()
            took.append(time.monotonic() - began)
    assert took[1] >= 0.3
    assert time.monotonic() - holders._counted < 1


def test_strangers_ask_only_so_often_how_the_service_is(tmp_path, monkeypatch):
    """Whoever has no token gets 600 answers a minute from one address: too few to time what others ask by them."""
    wait = Rates.wait
    monkeypatch.setattr(Rates, "wait", lambda *given, **more: wait(*given, **more, now=0.0))  # no time
    with service(service_folder(tmp_path)) as running:
        door = running.door()
        statuses = [door.get(("/health", "/ready", "/openapi.json")[place % 3]).status_code for place in range(606)]
        assert statuses == [200] * 600 + [429] * 6
        assert Door(running.service.holder).get("/ready").status_code == 429
        assert running.ann.get("/v1/me").status_code == 200


RIGHTS = {
    "metrics": [("GET", "/metrics")],
    "console": [("GET", "/v1/overview"), ("GET", "/v1/people"), ("GET", "/v1/spending"), ("GET", "/v1/alarms")],
    "statements": [("POST", "/v1/statement")],
    "verify": [("POST", "/v1/verify")],
    "policy": [("POST", "/v1/policy")],
    "backup": [("POST", "/v1/backup")],
}


def test_a_holder_may_do_what_the_policy_lists_and_nothing_else(tmp_path):
    """Each right opens its routes alone: a program that reads metrics can see nobody's statement."""
    tokens = {right: new_token() for right in (*RIGHTS, "nothing")}
    more = "".join(
        f'[holders.{right}]\ntoken = "{hash_of(token)}"\nmay = {[right] if right in RIGHTS else []}\n'
        for right, token in tokens.items()
    )
    with service(service_folder(tmp_path, f'{POLICY}backups = "."\n{more}')) as running:
        for right, token in tokens.items():
            door = Door(running.service.holder, token)
            for wanted, routes in RIGHTS.items():
                for method, path in routes:
                    body = {"person": "x"} if path == "/v1/statement" else {}
                    response = door.request(method, path, json=body if method == "POST" else None)
                    assert (response.status_code == 200) == (right == wanted), (right, path, response.text)
                    if right != wanted:
                        assert (response.status_code, response.json()["code"]) == (403, "right")
                        assert f'may of [holders.{right}] has no "{wanted}"' in response.json()["detail"]
            page = Door(running.service.holder)
            assert page.post("/login", data={"token": token}).status_code == (303 if right == "console" else 401)
            if right == "console":
                form = page.get("/").text.partition('name="form" value="')[2].partition('"')[0]
                assert page.post("/verify", data={"form": form, "replay": "no"}).status_code == 403


def test_two_tokens_are_good_while_one_takes_the_other_s_place(tmp_path):
    """Both let in, to the routes and to the pages; when one is taken away its requests and its visits end at once."""
    fresh, folder = new_token(), service_folder(tmp_path)
    old = f'"{hash_of(TOKENS["ann"])}"'
    text = (folder / "policy.toml").read_text(encoding="utf-8")
    with service(folder, lambda text: text.replace(old, f'["{hash_of(fresh)}", {old}]')) as running:
        pages = [Door(running.service.analysts) for _ in range(2)]
        for page, token in zip(pages, (TOKENS["ann"], fresh), strict=True):
            assert page.post("/login", data={"token": token}).status_code == 303
            assert running.door(token).get("/v1/me").json()["analyst"] == "ann"
        assert [page.get("/").status_code for page in pages] == [200, 200]
        (folder / "policy.toml").write_text(text.replace(old, f'"{hash_of(fresh)}"'), encoding="utf-8")
        assert running.api.change_policy(Policy.read(folder / "policy.toml")) == ["analysts.ann.token"]
        assert [page.get("/").status_code for page in pages] == [303, 200]
        assert [running.door(token).get("/v1/me").status_code for token in (TOKENS["ann"], fresh)] == [401, 200]


def test_tokens_end_to_the_minute_and_the_holder_is_told_a_week_before(tmp_path, caplog, monkeypatch):
    """Of analysts and of holders; the clock set back revives none in this process."""
    caplog.set_level(logging.WARNING)
    end = (datetime.now(UTC) + timedelta(days=6)).replace(second=0, microsecond=0)
    lines = f"expires = {end.isoformat()}\n"
    change = POLICY.replace("[analysts.bob]\n", f"[analysts.bob]\n{lines}").replace(
        "[service]", f"{SECOND}{lines}[service]"
    )
    with service(service_folder(tmp_path, change)) as running:
        told = [f"The token of {name} is good until {end:%Y-%m-%d %H:%M} UTC." for name in ("bob", "second")]
        assert [alarm["text"] for alarm in running.holder.get("/v1/alarms").json()] == told
        assert [record.getMessage() for record in caplog.records] == told
        second, real, wanted = Door(running.service.holder, SECOND_TOKEN), time.time, []
        for seconds in (-60, 60, -60, -9e5):
            monkeypatch.setattr(time, "time", lambda seconds=seconds: end.timestamp() + seconds + real() % 1)
            wanted.append((running.bob.get("/v1/me").status_code, second.get("/metrics").status_code))
        assert wanted == [(200, 200), (401, 401), (401, 401), (401, 401)]
        assert running.ann.get("/v1/me").status_code == 200


SECOND_TOKEN = new_token()
SECOND = f'[holders.second]\ntoken = "{hash_of(SECOND_TOKEN)}"\nmay = ["metrics"]\n'


def test_a_clock_goes_on_where_the_machine_s_is_set_back(monkeypatch):
    """It follows one that is set forward, and is never behind what it said before."""
    clock, wall, steady = Clock(), [1e9], [0.0]
    monkeypatch.setattr(time, "time", lambda: wall[0])
    monkeypatch.setattr(time, "monotonic", lambda: steady[0])
    seen = []
    for passed, jump in ((0, 0), (10, 0), (10, 500), (10, -9000), (10, 0)):
        steady[0] += passed
        wall[0] += passed + jump
        seen.append(clock.now().timestamp() - 1e9)
    assert seen == [0, 10, 520, 530, 540]


def test_ports_are_told_apart_in_metrics(tmp_path):
    """Routes that both ports have are counted for each; what the process uses is told."""
    with service(service_folder(tmp_path)) as running:
        running.door().get("/login")
        Door(running.service.holder).get("/login")
        text = running.holder.get("/metrics").text
        for port in ("analysts", "holders"):
            assert f'privacy_requests_total{{port="{port}",route="/login",status="200"}} 1.0' in text
    assert "process_cpu_seconds_total" in text or not Path("/proc").exists()


def test_a_cookie_is_this_host_s_alone_behind_https(tmp_path):
    """Its name begins with __Host-, so that browsers take it from no other host; without https it would be refused."""
    with service(
        service_folder(tmp_path), lambda text: text.replace("step = 0.02", "step = 0.02\nhttps = true")
    ) as made:
        sent = made.door().post("/login", data={"token": TOKENS["ann"]}).headers["set-cookie"]
    assert sent.startswith("__Host-analyst_session=")
    assert "Path=/;" in sent
    assert "Secure" in sent
    assert "Domain" not in sent
