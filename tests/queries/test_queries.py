"""Questions from asking to answer: charged to each person, once for each key, and silent about single people."""

from concurrent.futures import ThreadPoolExecutor

import pyarrow as pa
import pytest

from almoner import filters
from almoner.errors import ArgumentError, BudgetExceeded
from almoner.queries import Count, Mean, People
from almoner.queries._questions.kinds_of import described, question
from ledgers import RHO
from sessions import opened


def test_nobody_is_charged_above_the_budget_and_the_rest_goes_on(path):
    """People are charged their own share, left out when they cannot pay, and all of that is invisible to analysts."""
    with opened(path, budget=filters.Zcdp(rho=1e-3)) as session:
        analyst = session.analyst("ann")
        asked = Count(clip=3, rho=4.5e-4, pace=None)
        for turn in range(6):
            seen = analyst.ask(asked, key=f"turn {turn}", anyway=True)
            assert set(seen.__slots__) == {
                "key",
                "question",
                "groups",
                "values",
                "intervals",
                "rho",
                "released",
                "complete_clip",
                "complete",
                "truth_intervals",
                "about",
                "earlier",
                "floor",
                "derived",
            }
            assert seen.complete is None  # no watch was asked for
            assert seen.rho == pytest.approx(4.5e-4)
        assert session.ledger.spent("ann") == pytest.approx(2 * 4.5e11, rel=1e-9)
        assert session.ledger.spent("bob") == pytest.approx(5 * 2e11, rel=1e-9)
        assert session.ledger.spent("dee") == pytest.approx(6 * 0.5e11, rel=1e-9)
        assert all(finding.holds for finding in session.verify(replay=True))
        assert "ann" not in repr(session)


def test_how_many_can_still_pay(path):
    """People with a spare amount are those, and only those, who have it left after paying for being counted."""
    rows = pa.table({"who": [f"p{i}" for i in range(300)], "heavy": [i < 200 for i in range(300)]})
    with opened(path, rows, budget=filters.Zcdp(rho=1.0)) as session:
        analyst = session.analyst("ann")
        assert analyst.ask(People(sigma=4.0, spare=0.9), key="a").value == pytest.approx(300, abs=30)
        for turn in range(4):
            analyst.ask(Count(clip=1, where="heavy", rho=0.2), key=f"turn {turn}", anyway=True)
        assert analyst.ask(People(sigma=4.0, spare=0.2), key="b").value == pytest.approx(100, abs=30)
        assert session.ledger.spent("p0") == pytest.approx(0.8 * RHO + RHO / 32, rel=1e-9)
        assert session.ledger.spent("p299") == pytest.approx(RHO / 16, rel=1e-9)
        with pytest.raises(BudgetExceeded):
            analyst.ask(People(sigma=4.0, spare=1.0), key="c")
        session.limit(0.5, analyst="ann")
        assert abs(analyst.ask(People(sigma=4.0, spare=0.3), key="d").value - 100) < 30
        assert all(finding.holds for finding in session.verify(replay=True))
        assert question(described(People(sigma=4.0, spare=0.5))) == People(sigma=4.0, spare=0.5)


def test_the_same_key_gives_the_same_answer_and_costs_nothing(path):
    """Also after opening again; the key cannot be used for another question, analyst or purpose."""
    asked = Mean("n", 0, 8, clip=1, per="row", by={"place": ["x", "y"]}, sigma=30.0)
    with opened(path) as session:
        first = session.analyst("ann").ask(asked, key="k")
        spent = session.ledger.spent("bob")
    with opened(path) as session:
        ann = session.analyst("ann")
        assert ann.ask(asked, key="k") == first
        assert ann.answers() == [first]
        assert session.analyst("bea").answers() == []
        assert session.ledger.spent("bob") == spent > 0
        for other, more in ((session.analyst("bea"), asked), (ann, Count(clip=1, sigma=30.0))):
            with pytest.raises(ArgumentError, match="used for another question"):
                other.ask(more, key="k")
        with pytest.raises(ArgumentError, match="used for another question"):
            session.analyst("ann", purpose="p").ask(asked, key="k")


def test_questions_from_several_threads(path):
    """Questions wait for each other: every key is charged once, whoever asks it."""
    with opened(path) as session:
        analysts = [session.analyst(f"analyst {number}") for number in range(4)]

        def work(analyst):
            return [analyst.ask(Count(clip=1, sigma=50.0), key=f"{analyst!r} {turn % 5}").value for turn in range(10)]

        with ThreadPoolExecutor(4) as pool:
            found = list(pool.map(work, analysts))
        assert all(values[:5] == values[5:] for values in found)
        assert len(session.statement("ann").lines) == 20
        assert all(finding.holds for finding in session.verify(replay=True))
