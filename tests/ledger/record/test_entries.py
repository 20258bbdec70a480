"""The record: in order whatever the clock says, each key once."""

import pytest

from almoner.errors import LedgerError
from ledgers import RHO, ask, clean, opened


def test_a_key_is_used_once(where):
    """The record itself refuses a second answer under a key, and charges nobody for it."""
    with opened(where) as book:
        ask(book, "a", {"ann": 5})
        with pytest.raises(LedgerError, match="ask with the same key"):
            ask(book, "a", {"ann": 5})
        with pytest.raises(LedgerError, match="closed"):
            book.spent("ann")
    with opened(where) as book:
        assert book.spent("ann") == 5
        assert clean(book)


def test_a_clock_that_goes_backwards(where, monkeypatch):
    """Times are told, and nothing depends on them: order, chain and accounts are right when the clock is wrong."""
    from datetime import UTC, datetime, timedelta

    from almoner.ledger._record import entries

    class Clock(datetime):
        days = 0

        @classmethod
        def now(cls, tz=None):
            cls.days += 1
            return datetime(2030, 1, 1, tzinfo=UTC) - timedelta(days=cls.days)

    monkeypatch.setattr(entries, "datetime", Clock)
    with opened(where) as book:
        book.reserve(RHO - 10, key="r")
        assert ask(book, "a", {"ann": 10}) == {"ann"}
        head = book.head
    with opened(where) as book:
        assert ask(book, "b", {"ann": 1, "bob": 1}) == {"bob"}
        times = [entry.public["time"] for entry in book.entries()]
        assert times == sorted(times, reverse=True)
        assert clean(book, head=head)
