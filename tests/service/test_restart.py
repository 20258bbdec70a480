"""Processes that are killed and started again while analysts ask: every key has one answer, charged once."""

import os
import random
import signal
import socket
import threading
import time
from dataclasses import replace

import httpx2
import pytest

from service_load import checked, load
from service_processes import started
from services import COUNT, POLICY, TOKENS, service, service_folder

KILLS = int(os.environ.get("ALMONER_KILLS", "3"))
"""How often a process is killed; the environment can ask for more, and gets more questions too."""


@pytest.mark.server
def test_killed_under_load_every_key_is_answered_once(tmp_path):
    """A process is killed at random while four clients ask: nothing is lost, changed or charged twice."""
    folder = service_folder(tmp_path)
    keys = [str(key) for key in range(3 * KILLS)]
    told = {(who, key): [] for who in ("ann", "bob") for key in keys}
    with started(folder) as (process,):
        clients = load(lambda: process.address, keys, told)
        for _ in range(KILLS):
            time.sleep(random.uniform(0.05, 0.4))
            process.kill()
            process.begin()
        for each in clients:
            each.join()
        assert process.kill(signal.SIGTERM) == 0
    checked(folder / "people.ledger", told)


@pytest.mark.server
def test_a_stop_finishes_the_question_in_hand(tmp_path):
    """SIGTERM while a question is being answered: its answer comes, the process ends with 0, the ledger has it."""
    folder = service_folder(tmp_path, POLICY.replace("step = 0.02", "step = 1.5"))
    with started(folder) as (process,):
        headers = {"authorization": f"Bearer {TOKENS['ann']}", "idempotency-key": "last"}
        told = []

        def client():
            told.append(httpx2.post(f"{process.address}/v1/answers", json=COUNT, headers=headers, timeout=30))

        asking = threading.Thread(target=client)
        asking.start()
        time.sleep(0.7)
        assert process.kill(signal.SIGTERM) == 0
        asking.join()
        assert told[0].status_code == 201
        assert "Traceback" not in process.log.read_text()
    with service(folder, lambda text: text.replace("step = 1.5", "step = 0.02")) as running:
        assert running.ann.ask("last").json() == told[0].json()


def test_two_processes_on_one_server_answer_every_key_once(tmp_path, server):
    """Two services over one ledger on PostgreSQL; one of them, and the server, are killed: each key has one answer."""
    place = server.place()
    folder = service_folder(tmp_path, POLICY.replace('"people.ledger"', f'"{place}"'))
    keys = [str(key) for key in range(3 * KILLS)]
    told = {(who, key): [] for who in ("ann", "bob") for key in keys}
    with started(folder, 2) as processes:
        turn = iter(range(10**9))
        clients = load(lambda: processes[next(turn) % 2].address, keys, told)
        for _ in range(KILLS - 1):
            time.sleep(random.uniform(0.05, 0.4))
            processes[0].kill()
            processes[0].begin()
            server.kill()
            server.start()
        for each in clients:
            each.join()
    checked(place, told)


def test_a_service_goes_on_when_its_server_is_there_again(tmp_path, server):
    """While the ledger's server is away, answers may be fetched, but nothing asked; afterwards all is well."""
    place = server.place()
    folder = service_folder(tmp_path, POLICY.replace('"people.ledger"', f'"{place}"'))
    with service(folder) as running:
        first = running.ann.ask("first")
        server.kill()
        try:
            refused = [running.ann.ask("second") for _ in range(2)]
            again = running.ann.get("/v1/answer?key=first")
            told = running.ann.get("/v1/me")
        finally:
            server.start()
        assert [each.status_code for each in refused] == [503, 503]
        assert (again.status_code, told.status_code) == (200, 200)
        second = running.ann.ask("second")
        assert second.status_code == 201
        assert running.ann.ask("second").json()["values"] == second.json()["values"]
        assert running.ann.ask("first").json()["values"] == first.json()["values"]
        assert running.holder.get("/v1/overview").status_code == 200


def test_a_request_under_way_of_an_analyst_who_left_is_no_failure(tmp_path, server):
    """It was let in before the policy was changed and the ledger opened again: it is told what it may know."""
    place = server.place()
    folder = service_folder(tmp_path, POLICY.replace('"people.ledger"', f'"{place}"'))
    with service(folder) as running:
        api, bob = running.api, running.api.policy.analysts["bob"]
        api.change_policy(replace(api.policy, analysts={"ann": api.policy.analysts["ann"]}))
        server.kill()
        server.start()
        api.session.ledger.store.close()
        assert running.ann.ask("first").status_code == 201
        assert api.left(bob)["analyst"] == "bob"
        assert api.stored(bob, "none") is None


def test_a_ledger_that_lost_entries_is_not_opened_again(tmp_path, server):
    """A server that comes back with an older copy: what was answered would not be charged, so nothing is answered."""
    import psycopg

    place = server.place()
    folder = service_folder(tmp_path, POLICY.replace('"people.ledger"', f'"{place}"'))
    with service(folder) as running:
        assert running.ann.ask("first").status_code == 201
        server.kill()
        server.start()
        schema = place.rpartition("schema=")[2]
        with psycopg.connect(server.uri(), autocommit=True) as connection:
            newest = f"(SELECT max(number) FROM {schema}.record)"
            kept = connection.execute(f"DELETE FROM {schema}.record WHERE number = {newest} RETURNING *").fetchall()
        assert [running.ann.ask("second").status_code for _ in range(3)] == [503] * 3
        assert running.ann.get("/v1/answer?key=first").status_code == 200
        with psycopg.connect(server.uri(), autocommit=True) as connection:
            places = ", ".join(["%s"] * len(kept[0]))
            connection.execute(f"INSERT INTO {schema}.record VALUES ({places})", kept[0])
        assert running.ann.ask("second").status_code == 201


def test_after_unreadable_data_nothing_is_opened_again(tmp_path, server):
    """That data cannot be read tells something about them: once, and not once more whenever the server was away."""
    place = server.place()
    view = "SELECT *, CAST(CASE WHEN country = 'ES' THEN 'x' ELSE '1' END AS INTEGER) AS one FROM data"
    policy = POLICY.replace('"people.ledger"', f'"{place}"')
    policy = policy.replace('about = "One row', f'view = "{view}"\nabout = "One row').replace("day = {}", "one = {}")
    with service(service_folder(tmp_path, policy)) as running:
        asked = {"ask": "count", "where": "one = 1", "clip": 5, "sigma": 60}
        assert running.ann.ask("bad", asked).json()["code"] == "data"
        server.kill()
        server.start()
        assert {running.ann.ask(f"good {place}").json()["code"] for place in range(3)} <= {"data", "ledger"}
        assert running.ann.ask("last").json()["code"] == "data"


def test_a_file_that_was_closed_is_not_opened_again(tmp_path):
    """A ledger's file may have been moved or replaced: somebody must start the service again."""
    with service(service_folder(tmp_path)) as running:
        assert running.ann.ask("first").status_code == 201
        running.api.session.ledger.close()
        assert [running.ann.ask("second").status_code for _ in range(2)] == [503, 503]
        assert running.ann.get("/v1/me").json()["left"]["seconds_today"] > 599


def test_a_key_that_another_process_answers_at_the_same_time_has_its_answer(tmp_path, server):
    """Another process answers between the two looks at the ledger: its answer is given, and not a refusal."""
    place = server.place()
    folder = service_folder(tmp_path, POLICY.replace('"people.ledger"', f'"{place}"'))
    with service(folder) as running, service(folder) as other:
        api, theirs = running.api, []
        find = api.session.ledger.find

        def found(key):
            if not theirs:
                theirs.append(other.ann.ask("key").json()["values"])
            return find(key)

        api.session.ledger.find = found
        given = running.ann.ask("key")
    assert (given.status_code, given.json()["values"]) == (200, theirs[0])


def test_a_port_that_is_taken_is_refused_before_the_ledger_is_made(tmp_path):
    """An error names the key of the policy, and no ledger is made."""
    from almoner.errors import ArgumentError
    from almoner.service import serve
    from almoner.service.policies import Policy

    folder = service_folder(tmp_path)
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        text = (folder / "policy.toml").read_text().replace("\nport = 0", f"\nport = {port}")
        (folder / "policy.toml").write_text(text)
        with pytest.raises(ArgumentError, match=rf"service\.port={port} cannot be opened on 127\.0\.0\.1"):
            serve(Policy.read(folder / "policy.toml"), ready=print)
    assert not (folder / "people.ledger").exists()
