"""Triggers on a server: the role of a service can answer, and can give nobody any budget back."""

import re
from pathlib import Path

import pytest
from typer.testing import CliRunner

from almoner.cli import app
from almoner.errors import ArgumentError, LedgerError
from almoner.ledger import protect, verify
from almoner.ledger._care import upkeep
from almoner.ledger._stores.postgres import SCHEMA
from ledgers import ask, opened

CHANGES = (
    "UPDATE ledger.accounts SET spent = 0",
    "UPDATE ledger.accounts SET spent = spent - 1 WHERE gone",
    "UPDATE ledger.accounts SET gone = FALSE",
    "UPDATE ledger.shares SET spent = spent - 1",
    "INSERT INTO ledger.accounts SELECT 'new', -1, FALSE",
    "INSERT INTO ledger.shares SELECT 'analyst:zoe', person, -1 FROM ledger.accounts",
    "INSERT INTO ledger.charges SELECT 1, person, -1 FROM ledger.accounts",
    "UPDATE ledger.record SET public = 'x'",
    "DELETE FROM ledger.record",
    "ALTER TABLE ledger.accounts DISABLE TRIGGER ALL",
    "DROP TRIGGER accounts_only_grow ON ledger.accounts",
    "SET session_replication_role = replica",
)


@pytest.fixture
def places(server):
    """A ledger that was protected: for its owner, and for the role that the documentation describes."""
    where = server.place()
    with opened(where) as book:
        ask(book, "first", {"ann": 5, "bob": 2})
        book.retire("bob")
        book.limit(1000, analyst="ann")
        protect(book)
        protect(book)
    schema = re.search(r"schema=(\w+)", where).group(1)
    role = f"service_{schema}"
    page = (Path(__file__).parents[3] / "docs" / "ledger" / "postgresql.md").read_text(encoding="utf-8")
    (told,) = re.findall(r"```sql\n(.*?)```", page, re.DOTALL)
    told = told.replace(SCHEMA, schema)
    granted = [each for each in told.replace("service;", f"{role};").split(";") if each.strip()]
    with opened(where) as book:
        for statement in (f"CREATE ROLE {role} LOGIN", *granted):
            book.store.run(statement)
    return where, where.replace("owner@", f"{role}@")


def test_the_role_of_a_service_refunds_nobody(places):
    """Whatever SQL the service sends: what was spent does not fall, nobody returns, and no entry changes."""
    owner, service = places
    with opened(service) as book:
        before = [book.spent(name) for name in ("ann", "bob", "new")]
        for change in CHANGES:
            with pytest.raises(LedgerError):
                book.store.run(change)
    with opened(owner) as book:
        assert [book.spent(name) for name in ("ann", "bob", "new")] == before
        assert all(finding.holds for finding in verify(book))


def test_the_role_of_a_service_answers_and_the_owner_does_all(places):
    """Questions are answered and people leave under the service's role; the owner lets them return."""
    owner, service = places
    with opened(service) as book:
        assert ask(book, "a", {"ann": 5, "cy": 1}) == {"ann", "cy"}
        book.retire("cy")
        with pytest.raises(LedgerError, match="this role may not"):
            book.restore("cy")
        with pytest.raises(LedgerError):
            protect(book)
    with opened(owner) as book:
        book.restore("bob")
        assert ask(book, "b", {"bob": 1}) == {"bob"}
        assert all(finding.holds for finding in verify(book))


def test_the_command_line_protects(server):
    """`almoner ledger protect` does it with the role that it is given."""
    where = server.place()
    with opened(where) as book:
        ask(book, "first", {"ann": 5})
    role = re.search(r"schema=(\w+)", where).group(1) + "_role"
    done = CliRunner().invoke(app, ["ledger", "protect", where, "--role", role])
    assert (done.exit_code, "only the owner" in done.stdout) == (0, True)
    with opened(where.replace("owner@", f"{role}@")) as book:
        assert ask(book, "second", {"ann": 1}) == {"ann"}
    with opened(where) as book:
        triggers = book.store.run("SELECT count(*) FROM pg_trigger WHERE tgname = 'record_stays'")
    assert triggers[0][0] >= 1


def test_a_file_needs_no_triggers(tmp_path):
    """A file has no roles."""
    with opened(tmp_path / "l") as book, pytest.raises(ArgumentError, match="it is a file"):
        protect(book)


def test_the_role_is_granted_what_the_page_lists():
    """The grants that are made are those that docs/ledger/postgresql.md shows, in their order."""
    page = (Path(__file__).parents[3] / "docs" / "ledger" / "postgresql.md").read_text(encoding="utf-8")
    (told,) = re.findall(r"```sql\n(.*?)```", page, re.DOTALL)
    made = [each.format(schema=SCHEMA).replace("ledger.", f"{SCHEMA}.") for each in upkeep.GRANTS]
    assert told.splitlines() == [f"GRANT {each} TO service;" for each in made]


@pytest.mark.parametrize(
    ("role", "told"), [("owner", "role of its own"), ("Service", "small letters"), ("a?b", "small")]
)
def test_a_role_that_the_triggers_do_not_bind_is_refused(server, role, told):
    """The owner, whom nothing stops, and names that SQL could misread; nothing is granted."""
    with opened(server.place()) as book, pytest.raises(ArgumentError, match=told):
        protect(book, role=role)
