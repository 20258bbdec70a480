"""Sessions: budgets, limits and people who leave; arguments that are refused; what stays secret."""

import datetime
from contextlib import nullcontext

import numpy as np
import pyarrow as pa
import pytest

from almoner import filters
from almoner.errors import ArgumentError, BudgetExceeded
from almoner.ledger import Terms, Watch
from almoner.ledger._record import entries
from almoner.queries import Count, Session
from ledgers import RHO
from sessions import opened


def test_a_question_dearer_than_the_budget_is_refused(path):
    """By public facts alone, nothing is recorded, and the session stays open."""
    with opened(path) as session:
        with pytest.raises(BudgetExceeded):
            session.analyst("ann").ask(Count(clip=1, sigma=0.5), key="k")
        session.analyst("ann").ask(Count(clip=1, sigma=2.0), key="k")
        session.limit(0.126, analyst="ann")
        with pytest.raises(BudgetExceeded):
            session.analyst("ann").ask(Count(clip=1, sigma=1.9), key="l")
        session.analyst("bea").ask(Count(clip=1, sigma=1.9), key="l")


def test_reserve_and_release(path):
    """What is reserved is there for its question, and no other."""
    with opened(path) as session:
        session.reserve(0.9, key="census")
        analyst = session.analyst("ann")
        with pytest.raises(BudgetExceeded):
            analyst.ask(Count(clip=1, rho=0.2), key="a")
        analyst.ask(Count(clip=1, rho=0.9), key="b", reserved="census")
        session.reserve(0.5, key="more")
        session.release("more")
        assert all(finding.holds for finding in session.verify(replay=True))


def test_people_leave_and_return(path):
    """Who left is in no answer and keeps the account."""
    with opened(path) as session:
        session.retire("ann")
        analyst = session.analyst("x")
        analyst.ask(Count(clip=1, sigma=5.0), key="a")
        assert session.ledger.spent("ann") == 0
        session.restore("ann")
        analyst.ask(Count(clip=1, sigma=5.0), key="b")
        assert session.ledger.spent("ann") == RHO // 50
        assert all(finding.holds for finding in session.verify(replay=True))


def test_clock_going_backwards(path, monkeypatch):
    """Times are noted and nothing depends on them."""
    times = iter([datetime.datetime(2030, 1, 1), datetime.datetime(2020, 1, 1), datetime.datetime(1970, 1, 1)])

    class Clock:
        @staticmethod
        def now(zone):
            return next(times)

    monkeypatch.setattr(entries, "datetime", Clock)
    with opened(path) as session:
        for key in ("a", "b"):
            session.analyst("x").ask(Count(clip=1, sigma=5.0), key=key)
        assert [line.key for line in session.statement("ann").lines] == ["a", "b"]
        assert all(finding.holds for finding in session.verify(replay=True))


def test_a_ledger_says_in_words_what_it_was_made_for(path):
    """Another budget or another kind of names: refused, with both values in rho and in words, not in units."""
    opened(path).close()
    with pytest.raises(ArgumentError, match="rho = 1 for each person, not 2"):
        opened(path, budget=filters.Zcdp(rho=2.0))
    with pytest.raises(ArgumentError, match=r"names that are text, not .*, whole numbers"):
        opened(path, pa.table({"who": [1, 2], "n": [1.0, 2.0]}))


def test_threads_are_a_whole_number(path):
    """Refused by name, before a ledger is made or opened."""
    with pytest.raises(ArgumentError, match="threads=0"):
        opened(path, threads=0)


def test_arguments_of_a_wrong_type_leave_the_session_open(path):
    """Whole numbers of NumPy are whole numbers; a key that is none is named."""
    with opened(path) as session:
        analyst = session.analyst("ann")
        with pytest.raises(ArgumentError, match="reserved="):
            analyst.ask(Count(clip=1, sigma=100.0), key="a", reserved=[5])
        with pytest.raises(ArgumentError, match="key="):
            session.release([5])
        session.ledger.limit(np.int64(10**12), analyst="bea")
        session.ledger.reserve(np.int64(10**12), key="later")
        session.watch(np.int64(300), epsilon=0.2)
        analyst.ask(Count(clip=1, sigma=100.0), key="a")
        assert all(finding.holds for finding in session.verify())


def test_a_watch_without_noise_and_a_budget_of_nothing_are_refused(path):
    """The threshold's noise is drawn by the session; less than a unit is no budget."""
    with opened(path) as session, pytest.raises(ArgumentError, match="no noise"):
        session.ledger.watch(Watch(300, 0.2))
    with pytest.raises(ArgumentError, match="1e-15 of rho"):
        opened(path.with_name("other"), budget=filters.Zcdp(rho=1e-16))


def test_passwords_are_in_no_message(tmp_path, monkeypatch):
    """Connection strings that are spelled otherwise are refused, not taken for files."""
    monkeypatch.chdir(tmp_path)
    for place in ("PostgreSQL://u:SECRET@h/db", "postgresql+psycopg://u:SECRET@h/db", " postgresql://u:SECRET@h/db",
                  "host=h password=SECRET"):  # fmt: skip
        with pytest.raises(ArgumentError, match="begins with postgresql") as refused:
            opened(place)
        assert "SECRET" not in str(refused.value)
    assert list(tmp_path.iterdir()) == []


def test_terms_for_people_of_another_kind_are_refused(path):
    """A session takes the kind of names from its data; where terms say another one, nothing is made."""
    for kind, refused in (("VARCHAR", True), ("BIGINT", False)):
        terms = Terms(filters.Zcdp(rho=1.0), person=kind)
        with pytest.raises(ArgumentError, match="name people by BIGINT") if refused else nullcontext():
            Session.open(pa.table({"who": [1]}), person="who", budget=terms, ledger=path, create=True).close()
        assert path.exists() != refused
