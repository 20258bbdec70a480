"""Processes that are killed and started again while analysts ask: every key has one answer, charged once."""

import os
import random
import signal
import socket
import threading
import time

import httpx2
import pytest

from bursar.ledger import Ledger
from service_processes import ERRORS, started
from services import COUNT, POLICY, TOKENS, service, service_folder

KILLS = int(os.environ.get("BURSAR_KILLS", "3"))
"""How often a process is killed; the environment can ask for more, and gets more questions too."""


def ask(client, address, who, key):
    """Ask until there is an answer, as a client does that retries with the same key."""
    headers = {"authorization": f"Bearer {TOKENS[who]}", "idempotency-key": key}
    gives_up = time.monotonic() + 600
    while time.monotonic() < gives_up:
        try:
            response = client.post(f"{address()}/v1/answers", json=COUNT, headers=headers)
            if response.status_code in (200, 201):
                return response.json()["values"]
            assert response.status_code in (429, 503), response.text
        except ERRORS:
            pass
        time.sleep(0.05)
    raise AssertionError(key)


def load(address, keys, told):
    """Two analysts, two clients each, all asking the same keys in orders of their own."""

    def client(who, seed):
        order = list(keys)
        random.Random(seed).shuffle(order)
        with httpx2.Client(timeout=30) as http:
            for key in order:
                told[who, key].append(ask(http, address, who, key))

    clients = [threading.Thread(target=client, args=(who, seed)) for who in ("ann", "bob") for seed in (1, 2)]
    for each in clients:
        each.start()
    return clients


def checked(ledger, told):
    """Whether each key of each analyst has one answer, the same for everyone who asked; and all accounts are right."""
    for (who, key), values in told.items():
        assert len(values) >= 2, (who, key)
        assert all(each == values[0] for each in values), (who, key)
    with Ledger.open(ledger, create=False) as book:
        entries = book.entries("answered")
        assert sorted(entry.public["key"] for entry in entries) == sorted(f"{who}/{key}" for who, key in told)
        from bursar.ledger import verify

        assert all(finding.holds for finding in verify(book))


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
    """Two services over one ledger on PostgreSQL, one of them killed: each key has one answer."""
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
        for each in clients:
            each.join()
    checked(place, told)


def test_a_port_that_is_taken_is_refused_before_the_ledger_is_made(tmp_path):
    """An error names the key of the policy, and no ledger is made."""
    from bursar.errors import ArgumentError
    from bursar.service import serve
    from bursar.service.policies import Policy

    folder = service_folder(tmp_path)
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        text = (folder / "policy.toml").read_text().replace("\nport = 0", f"\nport = {port}")
        (folder / "policy.toml").write_text(text)
        with pytest.raises(ArgumentError, match=rf"service\.port={port} cannot be opened on 127\.0\.0\.1"):
            serve(Policy.read(folder / "policy.toml"), ready=print)
    assert not (folder / "people.ledger").exists()
