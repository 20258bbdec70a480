"""Compacting: charges of old questions become one total per person; budgets, limits and checks stay as they were."""

import json
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from almoner import filters
from almoner.errors import ArgumentError, LedgerError
from almoner.ledger import Consumer, Ledger, Terms, compact, size, verify, write_off
from almoner.queries import Count, Session
from ledgers import RHO, ask, clean, opened

MERGED = "what was merged adds up"
KILLED = """
import os, signal, sys
sys.path.insert(0, sys.argv[3])
from ledgers import ask, opened
from almoner.ledger import compact, erase
from almoner.ledger._stores.file import File

with opened(sys.argv[1] + "/people.ledger", pseudonyms=sys.argv[1] + "/key") as book:
    for number in range(5):
        ask(book, str(number), {"ann": 1 + number, "bob": 2})
    original, steps = File.run, iter(range(10**6))

    def run(self, sql, parameters=()):
        if next(steps) == int(sys.argv[2]):
            os.kill(os.getpid(), signal.SIGKILL)
        return original(self, sql, parameters)

    File.run = run
    compact(book)
    erase(book, "bob")
    print(next(steps))
"""
"""Compacts a ledger and erases a person, and is killed before a step; prints how many there are."""


@pytest.fixture(params=["file", pytest.param("server", marks=pytest.mark.server)])
def place(request, tmp_path):
    """A ledger's file, or a schema on a server."""
    return tmp_path / "people.ledger" if request.param == "file" else request.getfixturevalue("server").place()


def charges(book):
    rows = book.store.run("SELECT question, person, units FROM ledger.charges ORDER BY question, person")
    return [(question, book.accounts.named(person), units) for question, person, units in rows]


def state(book):
    """All that decides about later questions."""
    accounts = book.store.run("SELECT person, spent, gone FROM ledger.accounts ORDER BY person")
    shares = book.store.run("SELECT scope, person, spent FROM ledger.shares ORDER BY scope, person")
    return accounts, shares, min(book.left_by_period("ann").values())


def test_replay_after_compacting(tmp_path):
    """Who paid half of what was left is charged again by what was left then; no false alarm for others' questions."""
    rows = pa.table({"who": ["ann"] * 8 + ["zoe"] * 2})
    place = tmp_path / "people.ledger"
    with Session.open(rows, person="who", budget=filters.Zcdp(rho=0.02), ledger=place, create=True) as session:
        for number, analyst in enumerate(["ann", "zoe", "ann", "ann"]):
            session.analyst(analyst).ask(Count(clip=8, rho=0.012, pace=2), key=str(number))
        assert all(finding.holds for finding in session.verify(replay=True))
        compact(session.ledger)
        session.analyst("zoe").ask(Count(clip=8, rho=0.004, pace=2), key="later")
        findings = session.verify(replay=True)
        assert all(finding.holds for finding in findings)
        session.ledger.store.run("UPDATE ledger.charges SET units = units + 1 WHERE question = 6")
        session.ledger.store.run("UPDATE ledger.accounts SET spent = spent + 1")
        assert not session.verify(replay=True)[-1].holds


def test_replay_after_compacting_twice(tmp_path):
    """What was merged the first time, and stays apart from what is merged later, counts once."""
    rows = pa.table({"who": ["ann"] * 3 + ["zoe"]})
    place = tmp_path / "people.ledger"
    with Session.open(rows, person="who", budget=filters.Zcdp(rho=1.0), ledger=place, create=True) as session:
        for number, analyst in enumerate(["ann", "ann", "zoe", "zoe"]):
            session.analyst(analyst).ask(Count(clip=3, rho=0.3, pace=2), key=str(number))
            if number % 2:
                compact(session.ledger)
        session.analyst("cy").ask(Count(clip=3, rho=0.3, pace=2), key="later")
        assert len(session.ledger.entries("merged")) == 2
        assert all(finding.holds for finding in session.verify(replay=True))


def filled(book):
    ask(book, "a", {"ann": 10, "bob": 20})
    ask(book, "b", {"ann": 1, "cy": 2}, analyst="zoe")
    ask(book, "c", {"ann": 100}, purpose="care")
    ask(book, "d", {"ann": 1000, "bob": 2000})
    book.retire("cy")


def test_accounts_and_limits_do_not_change(place):
    """Each person keeps one total for each analyst and purpose; a limit that is set later counts them to the unit."""
    with opened(place) as book:
        book.limit(5000, analyst="ann")
        filled(book)
        before = state(book)
        assert compact(book) == 5
        assert state(book) == before
        assert [(person, units) for _, person, units in charges(book)] == [
            ("ann", 1), ("cy", 2), ("ann", 100), ("ann", 1010), ("bob", 2020),
        ]  # fmt: skip
        assert any(finding.what.startswith(MERGED) and finding.holds for finding in verify(book))
        assert clean(book)
        book.limit(1, analyst="zoe")
        book.limit(100, purpose="care")
        assert ask(book, "e", {"ann": 1, "bob": 1}, analyst="zoe") == {"bob"}
        assert ask(book, "f", {"ann": 1, "bob": 1}, analyst="zed", purpose="care") == {"bob"}
        assert ask(book, "g", {"ann": 5000 - 1110, "bob": 5000 - 2019}) == {"ann"}
        assert clean(book)
    with opened(place) as book:
        assert clean(book)
        assert book.spent("ann") == 5001


def test_again_and_only_what_is_old(place):
    """A second time what was merged is merged with what came since; before= leaves what is younger; a repetition
    changes nothing."""
    with opened(place) as book:
        filled(book)
        assert compact(book, before="2000-01-01") == -1
        assert len(charges(book)) == 7
        compact(book)
        head, rows = book.head, charges(book)
        compact(book)
        assert (book.head, charges(book)) == (head, rows)
        ask(book, "e", {"ann": 7})
        time.sleep(0.01)
        ask(book, "f", {"ann": 8})
        last = book.entries("answered")[-1]
        compact(book, before=last.public["time"])
        assert [row for row in charges(book) if row[2] == 8] == [(last.number, "ann", 8)]
        assert len(charges(book)) == 6
        assert clean(book)
        compact(book)
        assert [units for _, person, units in charges(book) if person == "ann"] == [1, 100, 1025]
        assert clean(book)
        assert book.spent("ann") == 1126


def test_an_open_training_is_not_merged(place):
    """It gives back what it did not spend afterwards; what came after it waits until it is settled or written off."""
    with opened(place) as book:
        ask(book, "a", {"ann": 1})
        ask(book, "b", {"ann": 2})
        hold = Consumer(book, key="model", analyst="ann").reserve(["ann", "bob"], 50)
        ask(book, "c", {"ann": 4})
        assert compact(book) == 2
        hold.settle(np.array([10, 0]))
        assert (book.spent("ann"), book.spent("bob")) == (17, 0)
        assert clean(book)
        settled = book.entries("settled")[0].number
        assert compact(book) == settled
        assert [(person, units) for _, person, units in charges(book)] == [("ann", 17)]
        assert clean(book)
        Consumer(book, key="second", analyst="ann").reserve(["ann"], 50)
        ask(book, "d", {"ann": 4})
        write_off(book, "second")
        compact(book)
        assert [(person, units) for _, person, units in charges(book)] == [("ann", 71)]
        assert clean(book)


def test_a_settlement_is_not_torn_from_its_reservation(tmp_path):
    """before= between the two: neither is merged, or what was given back could not be checked any more."""
    with opened(tmp_path / "l") as book:
        ask(book, "a", {"ann": 1})
        ask(book, "b", {"ann": 1})
        hold = Consumer(book, key="model", analyst="ann").reserve(["ann"], 50)
        time.sleep(0.01)
        ask(book, "c", {"bob": 1})
        hold.settle(np.array([10]))
        number = book.entries("training")[0].number
        between = book.entries()[-2].public["time"]
        assert compact(book, before=between) == number - 1
        assert clean(book)


@pytest.mark.slow
@pytest.mark.parametrize(
    "change",
    [
        "UPDATE ledger.charges SET units = units + 1 WHERE person = 'ann' AND units > 1000",
        "DELETE FROM ledger.charges WHERE person = 'cy'",
        "UPDATE ledger.accounts SET spent = spent - 1 WHERE person = 'ann'",
        "INSERT INTO ledger.charges VALUES (2, 'bob', 1)",
    ],
)
def test_verify_still_finds_changes(tmp_path, change):
    """A total that was changed, one that is missing, an account that was, a charge under a question that was merged."""
    with opened(tmp_path / "l") as book:
        filled(book)
        compact(book)
        assert clean(book)
        book.store.run(change)
        assert not clean(book)


def test_verify_finds_a_merger_that_forgot_somebody(tmp_path):
    """Where the record's own note was written for fewer charges, the questions' notes tell."""
    with opened(tmp_path / "l") as book:
        filled(book)
        original = book.accounts.merge

        def forgetful(entry, questions):
            original(entry, questions)
            book.store.run("DELETE FROM ledger.charges WHERE question = ? AND person = 'bob'", [entry])
            book.store.run("UPDATE ledger.accounts SET spent = 0 WHERE person = 'bob'")
            ((units, people),) = book.store.run(
                "SELECT coalesce(sum(units), 0), count(*) FROM ledger.charges WHERE question = ?", [entry]
            )
            return {"units": int(units), "people": int(people)}

        book.accounts.merge = forgetful
        compact(book)
        assert [finding.what[:23] for finding in verify(book) if not finding.holds] == [MERGED]


@pytest.mark.slow
def test_the_file_is_smaller_and_stays_itself(tmp_path):
    """Ten questions to 20,000 people take less than a third of the disk after compacting; the lock, the witness and
    the session's rows go on; an error while the file is replaced closes the ledger, which opens again."""
    path = tmp_path / "people.ledger"
    people = {f"person {number}": 1 + number for number in range(20_000)}
    with Ledger.open(path, Terms(filters.Zcdp(rho=1.0), person="VARCHAR"), create=True) as book:
        book.witnessed_by(tmp_path / "head")
        workspace = book.store.workspace
        workspace.run("CREATE TEMP TABLE many(person VARCHAR, units BIGINT)")
        workspace.connection.register("given", pa.table({"p": list(people), "u": list(people.values())}))
        from almoner._workspace import Query

        for number in range(10):

            def work(turn, offer, number=number):
                turn.settle(turn.admit(offer, key=f"{number}", price=20_000, analyst="a"), {})

            book.answer(Query("SELECT p AS person, u AS units FROM given"), work)
        before = size(book)
        compact(book)
        after = size(book)
        assert (before.charges, after.charges, after.people) == (200_000, 20_000, 20_000)
        assert after.bytes < before.bytes / 3
        assert book.spent("person 7") == 80
        assert clean(book)
        ask(book, "later", {"person 7": 1})
        with pytest.raises(LedgerError, match="open already"):
            Ledger.open(path)
        copy = book.store._file_lock.moved
        book.store._file_lock.moved = lambda _: (_ for _ in ()).throw(OSError("no"))
        with pytest.raises(LedgerError, match="closed now"):
            compact(book)
        book.store._file_lock.moved = copy
    assert oct(path.stat().st_mode & 0o777) == "0o600"
    assert not path.with_name("people.ledger.new").exists()
    with Ledger.open(path) as book:
        assert clean(book)
        assert book.spent("person 7") == 81


@pytest.mark.slow
def test_killed_while_it_is_compacted_or_a_person_is_erased(tmp_path):
    """At steps spread over both: the file opens, is sound, and nobody's account has changed."""

    def run(folder, step):
        folder.mkdir()
        command = [sys.executable, "-c", KILLED, str(folder), str(step), str(Path(__file__).parents[2] / "helpers")]
        return subprocess.run(command, capture_output=True, text=True, check=False)

    steps = int(run(tmp_path / "whole", -1).stdout)
    assert steps > 30
    for step in range(3, steps, 11):
        assert run(tmp_path / f"{step}", step).returncode == -signal.SIGKILL
        with Ledger.open(tmp_path / f"{step}" / "people.ledger") as book:
            assert clean(book)
            assert (book.spent("ann"), book.spent("bob")) == (15, 10)


@pytest.mark.slow
def test_sessions_statements_and_replay_after_it(tmp_path):
    """Answers under their keys stay, statements tell of earlier uses, and a replay charges later questions again."""
    rows = pa.table({"who": ["ann", "ann", "bob", "cy"]})
    with Session.open(rows, person="who", budget=filters.Zcdp(rho=0.01), ledger=tmp_path / "l", create=True) as session:
        ann = session.analyst("ann")
        first = ann.ask(Count(clip=2, sigma=20.0), key="1")
        for key in "23":
            ann.ask(Count(clip=2, sigma=20.0), key=key, anyway=True)
        session.analyst("zoe").ask(Count(clip=2, sigma=20.0), key="4", anyway=True)
        spent = session.statement("ann").rho
        compact(session.ledger)
        assert ann.ask(Count(clip=2, sigma=20.0), key="1").values == first.values
        told = session.statement("ann")
        assert told.rho == spent
        assert "Besides earlier uses" in told.words
        assert sum(line.rho for line in told.lines) == pytest.approx(spent)
        session.ledger.limit(5 * 10**15 // 1000, analyst="ann")
        for key in "567":
            session.analyst("ann").ask(Count(clip=2, sigma=20.0), key=key, anyway=True)
        findings = session.verify(replay=True)
        assert all(finding.holds for finding in findings)
        assert any("up to the last one that was merged" in finding.what for finding in findings)
        session.ledger.store.run(
            "UPDATE ledger.charges SET units = units + 1 WHERE question = (SELECT max(question) FROM ledger.charges)"
        )
        assert not all(finding.holds for finding in session.verify(replay=True))


def test_what_is_refused(place):
    """Dates that are none, and a call inside a transaction, are refused; nothing to merge changes nothing."""
    with opened(place) as book:
        for wrong in ("yesterday", 7, ""):
            with pytest.raises(ArgumentError, match="before="):
                compact(book, before=wrong)
        assert compact(book) == -1
        assert json.loads(json.dumps(size(book).merged)) is None
        assert size(book).bytes > 0
        with pytest.raises(ArgumentError, match="transaction is open"):
            book.transact(lambda _: compact(book))
        assert book.budget_units == RHO
