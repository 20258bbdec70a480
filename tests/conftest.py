"""Settings that all tests share, and a PostgreSQL server for those that need one."""

import os
from collections import Counter
from pathlib import Path

import pytest
from hypothesis import settings

settings.register_profile("default", deadline=None)
settings.register_profile("ci", deadline=None, derandomize=True, print_blob=True)
settings.load_profile("ci" if os.environ.get("CI") else "default")


SLOW = set(Path(__file__).with_name("slow.txt").read_text(encoding="utf-8").splitlines())
"""Tests that took more than 0.3 seconds (`python tools/slow_tests.py` lists them); `make rest` runs them."""


def pytest_collection_modifyitems(items):
    """Mark each test that needs the server of PostgreSQL or the site, or is slow, and cases but for the first ones."""
    cases = Counter()
    for item in items:
        if "server" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.server)
        if "site" in getattr(item, "fixturenames", ()) or item.nodeid in SLOW:
            item.add_marker(pytest.mark.slow)
        quick = item.get_closest_marker("quick")
        if quick is not None:
            function = item.nodeid.partition("[")[0]
            cases[function] += 1
            if cases[function] > quick.args[0]:
                item.add_marker(pytest.mark.slow)


@pytest.fixture(scope="session")
def server():
    """A PostgreSQL server of the tests' own."""
    pytest.importorskip("psycopg", reason="psycopg is not installed")
    from servers import Server

    try:
        started = Server()
    except OSError as error:
        pytest.skip(f"no PostgreSQL server can be started: {error}")
    yield started
    started.stop()


@pytest.fixture
def path(tmp_path):
    """Where a ledger's file may be."""
    return tmp_path / "people.ledger"


@pytest.fixture(params=["file", pytest.param("server", marks=pytest.mark.server)])
def where(request, tmp_path):
    """A place for a ledger, once of each kind."""
    if request.param == "file":
        return tmp_path / "people.ledger"
    server = request.getfixturevalue("server")
    return server.place()
