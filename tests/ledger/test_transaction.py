"""Transactions: what is admitted in one is settled there, once, or not at all."""

from contextlib import nullcontext

import pytest

from almoner._workspace import Query
from almoner.errors import ArgumentError, BudgetExceeded, DataError
from almoner.ledger import Consumer, Watch
from ledgers import RHO, ask, clean, opened, people

CHARGES = Query("SELECT 'ann' AS person, 5 AS units UNION ALL SELECT 'bob', 7")


def test_an_admission_is_settled_once_and_in_its_own_turn(where):
    """A second settlement, and one in a later transaction, are refused and charge nobody."""
    with opened(where) as book:
        admissions = []

        def twice(turn, offer):
            admissions.append(turn.admit(offer, key="a", price=7, analyst="ann"))
            turn.settle(admissions[0], {"answer": [1]})
            turn.settle(admissions[0], {"answer": [1]})

        def later(turn, offer):
            turn.settle(admissions[0], {"answer": [1]})

        for work in (twice, later):
            with pytest.raises(ArgumentError, match="settled already"):
                book.answer(CHARGES, work)
        assert book.spent("ann") == book.spent("bob") == 0
        assert book.entries("answered") == []
        assert ask(book, "a", {"ann": 5}) == {"ann"}
        assert clean(book)


def test_what_is_admitted_and_not_settled_is_not_charged(where):
    """To look who could pay changes nothing, and leaves no tables behind."""
    with opened(where) as book:
        for _ in range(2):
            admitted = book.answer(
                CHARGES, lambda turn, offer: people(book, turn.admit(offer, key="a", price=7, analyst="ann"))
            )
            assert set(admitted) == {"ann", "bob"}
        assert book.spent("bob") == 0
        left_over = book.store.workspace.run("SELECT table_name FROM duckdb_tables() WHERE temporary").fetchall()
        assert left_over == []
        assert len(book.entries()) == 1


def test_an_error_in_the_work_undoes_everything(where):
    """Charges, entry and the tables on the way; the ledger stays open."""
    with opened(where) as book:

        def fails(turn, offer):
            turn.settle(turn.admit(offer, key="a", price=7, analyst="ann"), {"answer": [1]})
            raise DataError("no")

        with pytest.raises(DataError, match="no"):
            book.answer(CHARGES, fails)
        assert book.find("a") is None
        assert book.spent("ann") == 0
        assert clean(book)


def test_a_part_of_a_transaction_sees_the_whole(where):
    """A limit that is set in the transaction that answers counts what was charged there."""
    with opened(where) as book:

        def work(turn, offer):
            turn.settle(turn.admit(offer, key="a", price=7, analyst="ann"), {"answer": [1]})
            book.limit(11, analyst="ann")
            return turn.find("a").number

        assert book.answer(CHARGES, work) == 1
        assert ask(book, "b", {"ann": 5, "bob": 5}) == {"ann"}
        assert clean(book)


def test_a_price_that_nobody_can_pay_is_refused_before_the_accounts_are_read(where):
    """By public facts: the budget, what is set aside, and the limits."""
    with opened(where) as book:
        book.limit(6, purpose="ads")
        for options in ({"price": RHO + 1}, {"price": RHO, "spare": 1}, {"price": 7, "purpose": "ads"}):
            with pytest.raises(BudgetExceeded):
                book.answer(
                    CHARGES,
                    lambda turn, offer, options=options: turn.admit(offer, key="a", analyst="ann", **options),
                )
        with pytest.raises(ArgumentError, match="price"):
            book.answer(CHARGES, lambda turn, offer: turn.admit(offer, key="a", analyst="ann", price=-1))
        assert clean(book)


def test_an_admission_is_not_settled_once_the_record_grew(where):
    """What is set aside between would be spent twice: by the watch, and by those who could still pay before it."""
    with opened(where) as book:

        def work(turn, offer):
            admission = turn.admit(offer, key="a", price=RHO, analyst="ann")
            book.watch(Watch(5, 0.1, noise=0))
            turn.settle(admission, {"answer": [1]})

        with pytest.raises(ArgumentError, match="record grew"):
            book.answer(Query(f"SELECT 'ann' AS person, {RHO:d} AS units"), work)
        assert book.spent("ann") == 0
        assert book.watched() == []
        assert clean(book)


def test_what_a_training_reserved_is_given_back_once(where):
    """Neither twice in one transaction nor again in a later one, or a question's charge would come back, too."""
    with opened(where) as book:
        ask(book, "a", {"ann": 5})
        Consumer(book, key="model", analyst="lab").reserve(["ann"], 4)
        nothing = Query("SELECT 'ann' AS person, 0 AS units")

        def twice(turn, offer):
            turn.refund(offer, "model", {})
            turn.refund(offer, "model", {})

        for work in (twice, lambda turn, offer: turn.refund(offer, "model", {}), twice):
            with pytest.raises(ArgumentError, match="open") if work is twice else nullcontext():
                book.answer(nothing, work)
            assert book.spent("ann") == (9 if book.consumers["model"].state == "open" else 5)
        assert clean(book)
