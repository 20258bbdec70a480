"""Statements: what was spent on one person, for that person."""

from fractions import Fraction

import pytest

from almoner import filters
from almoner._units import shown
from almoner.curves import zcdp
from almoner.queries import Count, Sum
from ledgers import RHO
from sessions import opened


def test_statement(path):
    """Everybody's own statement lists the questions that charged them, the total, and what it means."""
    with opened(path, budget=filters.Zcdp(epsilon=1.0, delta=1e-6)) as session:
        analyst = session.analyst("ann", purpose="weekly")
        analyst.ask(Count(clip=1, sigma=50.0), key="a")
        analyst.ask(Count(clip=1, where="place = 'z'", sigma=50.0), key="b")
        analyst.ask(Sum("n", 0, 8, clip=1, sigma=50.0), key="c")
        told = session.statement("dee")
        assert [line.key for line in told.lines] == ["a", "c"]
        assert told.rho == pytest.approx(4e-4)
        assert told.epsilon == pytest.approx(1.0)
        assert "2 answers used your records" in told.words
        assert told.guess == session.ledger.meaning().guess() < 0.7
        assert f"at most {shown(100 * told.guess, 3)} times in 100" in told.words
        assert str(told) == told.words
        assert "private" in repr(told)  # what was spent on somebody is in no repr, log or traceback
        assert not any(character.isdigit() for character in f"{told!r}{told.lines!r}")
        assert session.statement("nobody").lines == ()
        assert "1" in session.statement("bob", delta=1e-9).words


def test_a_name_that_the_ledger_does_not_know(path):
    """Its statement says how names are compared, also where everybody pays for a watch; nobody else's does."""
    hint = "names count letter by letter"
    with opened(path, budget=filters.Zcdp(rho=0.3)) as session:
        session.watch(people=5, epsilon=0.1)
        session.analyst("ann").ask(Count(clip=1, sigma=50.0), key="a")
        assert hint in session.statement("nobody").words
        assert hint not in session.statement("bob").words


def test_a_statement_rounds_the_budget_up(path):
    """The epsilon of a statement is that of no smaller budget than the one that may be spent."""
    with opened(path, budget=filters.Zcdp(rho=0.3)) as session:
        told = session.statement("ann")
        assert Fraction(told.budget) * RHO >= session.ledger.budget_units
        assert told.epsilon >= zcdp.Zcdp(told.budget).epsilon(delta=told.delta)
