"""Clients of a service that ask until they are answered, and whether a ledger then has what they were told."""

import random
import threading
import time

import httpx2

from almoner.ledger import Ledger, verify
from service_processes import ERRORS
from services import COUNT, TOKENS

PATIENCE = 600  # seconds


def ask(client, address, who, key, question=COUNT):
    """Ask until there is an answer, as a client does that retries with the same key."""
    headers = {"authorization": f"Bearer {TOKENS[who]}", "idempotency-key": key}
    gives_up = time.monotonic() + PATIENCE
    while time.monotonic() < gives_up:
        try:
            response = client.post(f"{address()}/v1/answers", json=question, headers=headers)
            if response.status_code in (200, 201):
                return response.json()["values"]
            assert response.status_code in (429, 503), response.text
        except ERRORS:
            pass
        time.sleep(0.05)
    raise AssertionError(key)


def load(address, keys, told, *, each=2, question=COUNT):
    """Two analysts, so many clients ``each``, all asking the same keys in orders of their own."""

    def client(who, seed):
        order = list(keys)
        random.Random(seed).shuffle(order)
        with httpx2.Client(timeout=30) as http:
            for key in order:
                told[who, key].append(ask(http, address, who, key, question))

    clients = [threading.Thread(target=client, args=(who, seed)) for who in ("ann", "bob") for seed in range(each)]
    for one in clients:
        one.start()
    return clients


def checked(ledger, told, *, each=2):
    """Whether each key of each analyst has one answer, the same for everyone who asked; and all accounts are right."""
    for (who, key), values in told.items():
        assert len(values) == each, (who, key)
        assert all(value == values[0] for value in values), (who, key)
    with Ledger.open(ledger) as book:
        entries = book.entries("answered")
        assert sorted(entry.public["key"] for entry in entries) == sorted(f"{who}/{key}" for who, key in told)
        assert all(finding.holds for finding in verify(book))
