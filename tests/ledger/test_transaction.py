"""Transactions: what is admitted in one is settled there, once, or not at all."""

import pytest

from almoner._workspace import Query
from almoner.errors import ArgumentError, BudgetExceeded, DataError
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
