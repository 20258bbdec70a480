"""Checks of a ledger: what was changed by hand is found, and an auditor can check an export."""

import json

import pytest

from almoner.errors import DataError, LedgerError
from almoner.ledger import check_export, export
from ledgers import ask, clean, opened

PLANTED = [
    "UPDATE ledger.accounts SET spent = spent - 1 WHERE person = 'ann'",
    "UPDATE ledger.accounts SET person = 'eve' WHERE person = 'ann'",
    "DELETE FROM ledger.accounts WHERE person = 'bob'",
    "INSERT INTO ledger.accounts VALUES ('ann', 0, FALSE)",
    "UPDATE ledger.accounts SET gone = NOT gone WHERE person = 'ann'",
    "UPDATE ledger.accounts SET gone = FALSE WHERE person = 'cy'",
    "DELETE FROM ledger.charges WHERE person = 'ann' AND question = 1",
    "UPDATE ledger.charges SET units = units + CASE WHEN question = 1 THEN 1 ELSE -1 END WHERE person = 'ann'",
    "UPDATE ledger.shares SET spent = 0 WHERE person = 'ann'",
    "INSERT INTO ledger.shares VALUES ('analyst:zed', 'ann', 1)",
    "UPDATE ledger.record SET public = replace(public, '\"answer\":[1]', '\"answer\":[2]') WHERE number = 1",
    "UPDATE ledger.record SET private = replace(private, '\"people\":2', '\"people\":1') WHERE number = 1",
    "DELETE FROM ledger.record WHERE number = 1",
    "DELETE FROM ledger.record WHERE number = (SELECT max(number) FROM ledger.record)",
    "UPDATE ledger.record SET key = 'z' WHERE number = 1",
    "UPDATE ledger.record SET analyst = 'z' WHERE number = 1",
    "UPDATE ledger.record SET reserved = 'z' WHERE number = 1",
    "UPDATE ledger.record SET public = 'x' WHERE number = 0",
    "DELETE FROM ledger.record",
]


@pytest.mark.quick(6)
@pytest.mark.parametrize("change", PLANTED)
def test_verify_finds_every_planted_change(where, change):
    """Each single change of the record, an account, a charge, a share or a tombstone is found."""
    with opened(where) as book:
        ask(book, "a", {"ann": 5, "bob": 3})
        book.limit(100, analyst="ann")
        book.retire("cy")
        ask(book, "b", {"ann": 1, "bob": 3})
        head = book.head
        assert clean(book, head=head)
        try:
            book.store.run(change)
        except LedgerError:
            assert "INSERT INTO ledger.accounts" in change  # a server does not even take a second account
            return
        assert not clean(book, head=head)


def test_exported_record_can_be_checked_without_the_private_parts(where):
    """The chain of an export holds; it names nobody and tells no totals; any changed line is found."""
    with opened(where) as book:
        ask(book, "a", {"ann-secret": 5, "bob-secret": 3})
        book.retire("ann-secret")
        lines = list(export(book))
    assert check_export(lines) == 3
    assert "secret" not in "".join(lines)
    assert all(set(json.loads(line)) == {"number", "public", "private", "hash"} for line in lines)
    assert not {"units", "people"} & set(json.loads(lines[1])["public"])
    for place in range(3):
        with pytest.raises(DataError, match="broken"):
            check_export([line.replace('"kind"', '"king"') if i == place else line for i, line in enumerate(lines)])
    with pytest.raises(DataError, match="broken"):
        check_export(lines[1:])
