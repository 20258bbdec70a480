"""What the record says is in force: limits, reservations, who left."""

import pytest

from almoner.errors import ArgumentError, BudgetExceeded
from almoner.ledger import Watch
from ledgers import RHO, ask, clean, opened


def test_a_returning_person_has_the_old_account(where):
    """Leaving keeps the spends; a person who left is in no answer until restored."""
    with opened(where) as book:
        ask(book, "a", {"ann": RHO - 3})
        book.retire("ann")
        assert ask(book, "b", {"ann": 1}) == set()
        book.restore("ann")
        assert ask(book, "c", {"ann": 4}) == set()
        assert ask(book, "d", {"ann": 3}) == {"ann"}
        assert clean(book)


def test_limits_hold_per_person_under_the_one_cap(where):
    """An analyst's limit stops that analyst for that person; others go on up to the cap; it counts what was before."""
    with opened(where) as book:
        ask(book, "a", {"x": 10, "y": 1})
        book.limit(12, analyst="ann")
        book.limit(20, purpose="ads")
        assert ask(book, "b", {"x": 3, "y": 3}) == {"y"}
        assert ask(book, "c", {"x": 12, "y": 12}, analyst="bea", purpose="ads") == {"x", "y"}
        assert ask(book, "d", {"x": 9, "y": 2}, analyst="cy", purpose="ads") == {"y"}
        with pytest.raises(BudgetExceeded) as refused:
            ask(book, "e", {"x": 13}, analyst="ann")
        assert refused.value.asked == pytest.approx(13e-15)
        assert clean(book)


def test_reserved_budget_is_left_for_its_question(where):
    """What is reserved counts as spent for all others, is there for its own question, and can be released."""
    with opened(where) as book:
        book.reserve(RHO - 10, key="big")
        book.reserve(RHO - 10, key="big")  # the same again changes nothing
        with pytest.raises(BudgetExceeded):
            book.reserve(11, key="more")
        with pytest.raises(ArgumentError, match="reserves"):
            book.reserve(5, key="big")
        assert ask(book, "a", {"x": 10}) == {"x"}
        assert ask(book, "b", {"x": 1, "y": 1}) == {"y"}
        assert ask(book, "c", {"x": RHO - 10}, reserved="big") == {"x"}
        with pytest.raises(ArgumentError, match="reserves nothing"):
            ask(book, "d", {"x": 1}, reserved="big")
        book.reserve(5, key="other", analyst="bea", purpose="p")
        for asked in ({}, {"analyst": "bea"}, {"purpose": "p"}):
            with pytest.raises(ArgumentError, match="for this analyst and purpose"):
                ask(book, "d", {"y": 1}, reserved="other", **asked)
        with pytest.raises(ArgumentError, match="already"):
            book.reserve(5, key="other")
        book.release("other")
        with pytest.raises(ArgumentError, match="nothing"):
            book.release("other")
        assert book.spent("x") == RHO
        assert clean(book)


def test_one_fold_serves_charging_and_what_was_in_force_before(where):
    """For each question of the record: the most that could be spent, what counted towards its limits, who had left."""
    with opened(where) as book:
        ask(book, "a", {"x": 10})
        book.limit(30, analyst="ann")
        book.reserve(100, key="r")
        book.retire("y")
        ask(book, "b", {"x": 5}, purpose="ads")
        book.watch(Watch(5, 0.1, 0))
        ask(book, "c", {"x": 5}, reserved="r", analyst="bea")
        first, second, third = book.history()
        assert (first.allowance.most, first.allowance.shares, first.gone) == (RHO, (), frozenset())
        assert (second.allowance.most, second.allowance.shares) == (RHO - 100, (("analyst:ann", 30),))
        assert second.gone == third.gone == {"y"}
        assert third.allowance == (RHO - RHO // 200, ())
        assert [entry.public["people"] for entry in book.watched()] == [5]
        assert clean(book)
