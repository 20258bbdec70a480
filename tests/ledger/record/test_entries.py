"""The record: in order whatever the clock says, each key once."""

import pyarrow as pa
import pytest

from almoner import filters
from almoner.errors import LedgerError
from almoner.queries import Count, Session
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


@pytest.mark.parametrize("word", ["\0", "\\u0000", '\\\0"', "\\\\\0\x01"])
def test_a_question_with_any_character_is_read_again(where, word):
    """PostgreSQL's JSON has no zero character: a ledger there with one in a question could never be opened again."""
    rows = pa.table({"who": ["ann"], "word": [word]})
    for key in ("one", "two"):
        with Session.open(rows, person="who", budget=filters.Zcdp(rho=1.0), ledger=where, create=True) as session:
            asked = Count(clip=1, rho=0.1, where=f"word = '{word}'")
            assert session.analyst("zoe").ask(asked, key=key).question.where == asked.where
            assert all(finding.holds for finding in session.verify(replay=True))
    with opened(where) as book:
        assert book.spent("ann") == 2 * 10**14
        assert list(book.left_by_period("zoe").values()) == [8 * 10**14]


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
