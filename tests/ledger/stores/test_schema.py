"""Versions of the tables: older ones are brought to this one, newer ones are refused."""

import pytest

from almoner.errors import ArgumentError, LedgerError
from ledgers import ask, clean, opened

VERSION_1 = """
CREATE TABLE old.ledger_format(version INTEGER NOT NULL);
CREATE TABLE old.record(number BIGINT NOT NULL, kind VARCHAR NOT NULL, key VARCHAR UNIQUE, analyst VARCHAR,
    purpose VARCHAR, public VARCHAR NOT NULL, private VARCHAR NOT NULL, hash VARCHAR NOT NULL);
CREATE TABLE old.accounts(person VARCHAR NOT NULL, spent BIGINT NOT NULL, gone BOOLEAN NOT NULL);
CREATE TABLE old.shares(scope VARCHAR NOT NULL, person VARCHAR NOT NULL, spent BIGINT NOT NULL);
CREATE TABLE old.charges(question BIGINT NOT NULL, person VARCHAR NOT NULL, units BIGINT NOT NULL);
INSERT INTO old.ledger_format VALUES (1);
INSERT INTO old.record SELECT number, kind, key, analyst, purpose, public, private, hash FROM new.record;
INSERT INTO old.accounts FROM new.accounts;
INSERT INTO old.shares FROM new.shares;
INSERT INTO old.charges FROM new.charges;
"""


@pytest.fixture
def version_1(path):
    """A file as the first version of the tables would hold it, and its head."""
    import duckdb

    fresh = path.with_name("fresh")
    with opened(fresh) as book:
        book.reserve(50, key="used")
        book.reserve(60, key="open")
        ask(book, "a", {"ann": 5, "bob": 3}, reserved="used")
        ask(book, "b", {"ann": 2}, purpose="ads")
        book.limit(10, analyst="ann")
        book.retire("cy")
        head = book.head
    with duckdb.connect() as connection:
        connection.execute(f"ATTACH '{fresh}' AS new (READ_ONLY); ATTACH '{path}' AS old")
        for statement in VERSION_1.split(";"):
            if statement.strip():
                connection.execute(statement)
    return path, head


def versions(path):
    import duckdb

    with duckdb.connect(str(path), read_only=True) as connection:
        return [row[0] for row in connection.execute("SELECT version FROM ledger_format").fetchall()]


def test_a_file_of_an_older_version_is_brought_to_this_one(version_1):
    """The record is the same to the last hash, everything in force stays so, and it happens once."""
    path, head = version_1
    for _ in range(2):
        with opened(path) as book:
            assert book.head == head
            assert clean(book, head=head)
    assert versions(path) == [1, 2]
    with opened(path) as book:
        with pytest.raises(ArgumentError, match="reserves nothing"):
            ask(book, "c", {"ann": 1}, reserved="used")
        assert ask(book, "c", {"ann": 4, "bob": 4, "cy": 4}) == {"bob"}
        assert ask(book, "d", {"ann": 9}, analyst="zoe", reserved="open") == {"ann"}
        assert clean(book, head=head)


def test_a_step_to_another_version_that_fails_changes_nothing(version_1, monkeypatch):
    """A failure in the middle leaves the file as it was; the next opening brings it to this version."""
    from almoner.ledger._stores import schema

    def half(run):
        schema._reservations(run)
        run("SELECT error('stop')")

    path, head = version_1
    with monkeypatch.context() as patched:
        patched.setattr(schema, "STEPS", ((2, half),))
        with pytest.raises(LedgerError, match="could not be written"):
            opened(path)
    assert versions(path) == [1]
    with opened(path) as book:
        assert clean(book, head=head)


def test_a_file_of_a_newer_version_is_refused(path):
    """This program does not touch what it does not know."""
    import duckdb

    opened(path).close()
    with duckdb.connect(str(path)) as connection:
        connection.execute("INSERT INTO ledger_format VALUES (99, 'later')")
    with pytest.raises(LedgerError, match="version 99"):
        opened(path)
