"""Erasing a person: single charges are gone, the total stays, sums still verify, nobody has a new budget."""

import time
from threading import Event, Thread

import numpy as np
import pyarrow as pa
import pytest

from almoner import filters
from almoner.errors import ArgumentError
from almoner.ledger import Consumer, compact, erase, export, verify
from almoner.queries import Count, Session
from ledgers import RHO, ask, clean, opened

TOTALS = "with the totals of people who were erased"


@pytest.fixture(params=["file", pytest.param("server", marks=pytest.mark.server)])
def place(request, tmp_path):
    """A ledger's file, or a schema on a server."""
    return tmp_path / "people.ledger" if request.param == "file" else request.getfixturevalue("server").place()


@pytest.fixture(name="key")
def fixture_key(tmp_path):
    return tmp_path / "people.key"


def charges(book, person):
    stored = book.accounts.stored(person)
    rows = book.store.run("SELECT question, units FROM ledger.charges WHERE person = ? ORDER BY question", [stored])
    return [(int(question), int(units)) for question, units in rows]


def filled(book):
    ask(book, "a", {"ann": 10, "bob": 20})
    ask(book, "b", {"ann": 1, "bob": 2}, analyst="zoe")
    hold = Consumer(book, key="model", analyst="ann").reserve(["ann", "bob"], 100)
    hold.settle(np.array([60, 70]))
    Consumer(book, key="news", analyst="lab", claim="x").begin().update(
        ["ann", "cy"], 40, contribute=lambda most: most // 2, release=dict
    )


def test_the_total_remains_and_nothing_else(place, key):
    """One charge, under the erasure's own entry; others keep theirs; the sums still verify; an export tells nobody."""
    with opened(place, pseudonyms=key) as book:
        book.limit(RHO, analyst="ann")
        filled(book)
        before = {name: book.spent(name) for name in ("ann", "bob", "cy")}
        others = [charges(book, name) for name in ("bob", "cy")]
        assert len(charges(book, "ann")) == 5
        with pytest.raises(ArgumentError, match="transaction is open"):
            book.transact(lambda _: erase(book, "ann"))
        erase(book, "ann")
        (entry,) = book.entries("erased")
        assert charges(book, "ann") == [(entry.number, before["ann"])] == [(entry.number, 10 + 1 + 60 + 20)]
        assert {name: book.spent(name) for name in before} == before
        assert [charges(book, name) for name in ("bob", "cy")] == others
        assert entry.public.keys() == {"kind", "time"}
        assert str(book.accounts.names.token("ann")) not in "".join(export(book))
        assert any(finding.what.startswith(TOTALS) and finding.holds for finding in verify(book))
        assert clean(book)
    with opened(place) as book:
        assert clean(book)


def test_nobody_returns_with_a_new_budget(place, key):
    """Who was erased is in no question, however they come back, until restored; then what was left is left, and limits
    that were set meanwhile count everything."""
    with opened(place, pseudonyms=key) as book:
        ask(book, "a", {"ann": RHO - 10, "bob": 5})
        erase(book, "ann")
        assert ask(book, "b", {"ann": 1, "bob": 1}) == {"bob"}
        book.limit(RHO // 2, analyst="zoe")
        book.restore("ann")
        assert ask(book, "c", {"ann": 11, "bob": 1}) == {"bob"}
        assert ask(book, "d", {"ann": 1, "bob": 1}, analyst="zoe") == {"bob"}
        assert ask(book, "e", {"ann": 3, "bob": 1}) == {"ann", "bob"}
        assert book.spent("ann") == RHO - 7
        assert clean(book)
        erase(book, "ann")
        assert charges(book, "ann") == [(book.entries("erased")[-1].number, RHO - 7)]
        assert clean(book)
        erase(book, "nobody")
        assert ask(book, "f", {"nobody": 1}) == set()
        assert clean(book)


def test_before_and_after_compacting(place, key):
    """In either order, and again: totals stay, and everything verifies."""
    with opened(place, pseudonyms=key) as book:
        filled(book)
        spent = {name: book.spent(name) for name in ("ann", "bob", "cy")}
        compact(book)
        erase(book, "ann")
        assert clean(book)
        ask(book, "later", {"bob": 7, "cy": 8})
        compact(book)
        assert clean(book)
        erase(book, "cy")
        ask(book, "last", {"bob": 1})
        compact(book)
        assert clean(book)
        assert [book.spent(name) for name in ("ann", "bob", "cy")] == [spent["ann"], spent["bob"] + 8, spent["cy"] + 8]
        assert len(charges(book, "cy")) == 1


def test_an_open_training_is_settled_first(place, key):
    """Or it would give back what is not there any more; one that was written off gives nothing back."""
    with opened(place, pseudonyms=key) as book:
        hold = Consumer(book, key="model", analyst="ann").reserve(["ann", "bob"], 100)
        with pytest.raises(ArgumentError, match="training that is open"):
            erase(book, "ann")
        erase(book, "cy")
        hold.settle(np.array([60, 70]))
        erase(book, "ann")
        assert (book.spent("ann"), book.spent("bob")) == (60, 70)
        assert clean(book)


@pytest.mark.quick(3)
@pytest.mark.parametrize(
    "change",
    [
        "UPDATE ledger.charges SET units = units - 1 WHERE question = {erased}",
        "UPDATE ledger.charges SET units = units - 1 WHERE question = 1",
        "DELETE FROM ledger.charges WHERE question = 2",
        "DELETE FROM ledger.charges WHERE question = {erased}",
        "INSERT INTO ledger.charges SELECT 2, person, 1 FROM ledger.charges WHERE question = {erased}",
        "UPDATE ledger.accounts SET spent = spent - 1 WHERE gone",
        "UPDATE ledger.accounts SET gone = FALSE",
        "UPDATE ledger.charges SET units = units + 1 WHERE question = {last}",
    ],
)
def test_verify_still_finds_changes(tmp_path, key, change):
    """In the total, in others' charges, before and after the erasure."""
    with opened(tmp_path / "l", pseudonyms=key) as book:
        filled(book)
        erase(book, "ann")
        ask(book, "last", {"bob": 5, "cy": 5})
        assert clean(book)
        book.store.run(change.format(erased=book.entries("erased")[0].number, last=book.entries("answered")[-1].number))
        assert not clean(book)


def test_a_ledger_with_names_is_refused(tmp_path):
    """Names are in its record, which never changes: to say that the person is erased would be wrong."""
    with opened(tmp_path / "l") as book:
        filled(book)
        with pytest.raises(ArgumentError, match="without pseudonyms"):
            erase(book, "ann")
        assert len(charges(book, "ann")) == 5


def test_sessions_go_on(place, key):
    """Statements tell the total; a replay, with or without the person's rows, charges everybody else again."""
    rows = pa.table({"who": ["ann", "ann", "bob", "cy"]})
    options = {"person": "who", "budget": filters.Zcdp(rho=0.01), "ledger": place, "pseudonyms": key, "create": True}
    with Session.open(rows, **options) as session:
        for number in range(2):
            session.analyst("zoe").ask(Count(clip=2, sigma=20.0), key=f"{number}", anyway=True)
        spent = session.statement("ann").rho
        erase(session.ledger, "ann")
        session.analyst("zoe").ask(Count(clip=2, sigma=20.0), key="after", anyway=True)
        told = session.statement("ann")
        assert told.rho == spent == sum(line.rho for line in told.lines)
        assert [line.question["ask"] for line in told.lines] == ["earlier"]
        assert "Besides earlier uses" in told.words
        assert all(finding.holds for finding in session.verify(replay=True))
    with Session.open(rows.slice(2), **options) as session:
        assert all(finding.holds for finding in session.verify(replay=True))
        session.ledger.store.run("UPDATE ledger.charges SET units = units - 1 WHERE question = 1")
        assert not all(finding.holds for finding in session.verify(replay=True))


def test_a_limit_that_was_set_before_counts_everything(place, key):
    """After an erasure what single questions charged is forgotten, so the whole total counts in every limited scope."""
    with opened(place, pseudonyms=key) as book:
        book.limit(100, analyst="zoe")
        ask(book, "a", {"ann": 70, "bob": 1})
        ask(book, "b", {"ann": 20, "bob": 1}, analyst="zoe")
        ask(book, "c", {"cy": 5}, analyst="zoe")
        erase(book, "ann")
        book.restore("ann")
        assert min(book.left_by_period("zoe").values()) <= 10
        assert ask(book, "d", {"ann": 11, "bob": 80}, analyst="zoe") == {"bob"}  # 79 were left before
        assert ask(book, "e", {"ann": 10}, analyst="zoe") == {"ann"}
        assert clean(book)


def test_replay_with_somebody_who_came_back(tmp_path, key):
    """Under a limit that was set before the erasure; every charge is computed again, to the unit."""
    rows = pa.table({"who": ["ann"] * 3 + ["bob"]})
    with Session.open(
        rows, person="who", budget=filters.Zcdp(rho=1.0), ledger=tmp_path / "l", pseudonyms=key, create=True
    ) as session:
        session.limit(0.5, analyst="zoe")
        for number in range(3):
            asked = Count(clip=3, rho=0.15, pace=1, anyway=True)
            session.analyst("zoe" if number % 2 else "ann").ask(asked, key=str(number))
        erase(session.ledger, "ann")
        session.restore("ann")
        for number in range(3, 6):
            session.analyst("zoe").ask(Count(clip=3, rho=0.15, pace=1, anyway=True), key=str(number))
        assert all(finding.holds for finding in session.verify(replay=True))
        assert session.ledger.spent("ann") == pytest.approx(0.5e15, rel=1e-6)  # of the limit, nothing is left


def test_nobody_is_erased_inside_a_transaction_of_this_thread_alone(tmp_path, key):
    """Another thread's transaction is waited for, not refused."""
    with opened(tmp_path / "people.ledger", pseudonyms=key) as book:
        ask(book, "a", {"ann": 5})
        begun, errors = Event(), []

        def slow(turn):
            begun.set()
            time.sleep(0.3)

        def others():
            try:
                begun.wait()
                erase(book, "ann")
                compact(book)
            except ArgumentError as error:
                errors.append(error)

        threads = [Thread(target=lambda: book.transact(slow)), Thread(target=others)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert not errors
        assert len(book.entries("erased")) == 1
