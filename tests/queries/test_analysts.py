"""Analysts of one ledger: names that are one, what is left to them, and quotes that do not wait for the ledger."""

import threading

import pyarrow as pa
import pytest

from almoner import queries
from almoner.errors import ArgumentError
from sessions import opened

ASKED = queries.Count(clip=2, sigma=90.0)


def test_people_above_a_share_of_the_budget_are_counted(where):
    """For each share: how many people were charged that much of the budget or more; nobody who was never charged."""
    with opened(where) as session:
        session.analyst("zoe").ask(queries.Count(clip=2, rho=0.5), key="a")
        spent = {name: session.ledger.spent(name) for name in ("ann", "bob", "cy", "dee")}
        budget = session.ledger.budget_units
        for share in (0.0, 0.01, 0.125, 0.2, 0.5, 0.500001, 1.0):
            expected = sum(units >= max(1, share * budget) for units in spent.values())
            assert session.ledger.above([share]) == [expected], share
        assert session.ledger.above([0.0, 1.0]) == [4, 0]


def test_a_name_that_differs_by_case_is_refused(where):
    """An analyst whose name is another's but for case, blanks or spelling is refused; the other one goes on."""
    with opened(where) as session:
        session.analyst("Zo\u00eb").ask(ASKED, key="a")
        session.limit(0.5, analyst="max")
        for name in ("zo\u00eb", "ZO\u00cb", "Zoe\u0308", "\uff3ao\u00eb", "MAX", "max "):
            with pytest.raises(ArgumentError, match="spelt or capitalised otherwise"):
                session.analyst(name).ask(ASKED, key=name)
        for name in ("Zo\u00eb", "max", "zoe"):
            session.analyst(name).ask(ASKED, key=f"again {name}")


def test_facts_are_read_once_and_then_what_is_new(where):
    """What is read after each answer is what is read from the beginning; and the same object, if nothing is new."""
    with opened(where) as session:
        ann, facts = session.analyst("ann"), None
        for key in ("a", "b"):
            ann.ask(ASKED, key=key)
            session.analyst("bob").ask(ASKED, key=f"{key} of bob")
            facts = ann.so_far(facts)
            assert facts == ann.so_far()
            assert ann.so_far(facts) is facts
        assert [queries.Answer.recorded(facts.find(key).public) for key in ("a", "b")] == ann.answers()
        assert facts.find("a of bob") is None
        assert facts.left_by_period == session.ledger.left_by_period("ann") == {"": facts.left}
        assert ann.so_far(session.analyst("bob").so_far()) == facts


@pytest.mark.parametrize(
    "asked",
    [
        ASKED,
        queries.Mean("n", 0, 9, sigma=30.0),
        queries.Mean("n", 0, 9, error=3.0),
        queries.Count(clip="auto", rho=0.01),
    ],
    ids=["count", "mean", "error", "auto"],
)
def test_a_quote_by_known_facts_does_not_wait(path, asked):
    """A quote by facts is that of the ledger as it was, and is given while the ledger is in use."""
    rows = pa.table({"who": [row % 3000 for row in range(9000)], "n": [row % 9 for row in range(9000)]})
    with opened(path, rows) as session:
        ann = session.analyst("ann")
        ann.ask(queries.Mean("n", 0, 9, sigma=30.0), key="first")
        ann.ask(queries.Count(clip="auto", rho=0.01), key="second")
        facts, expected, quoted = ann.so_far(), ann.quote(asked), []
        with session.ledger.store.lock:
            thread = threading.Thread(target=lambda: quoted.append(ann.quote(asked, so_far=facts)))
            thread.start()
            thread.join(timeout=20)
            assert quoted == [expected]
        ann.ask(queries.Count(clip=2, rho=0.1), key="third")
        assert ann.quote(asked, so_far=facts) == expected
        assert ann.quote(asked).fits < expected.fits
        with pytest.raises(ArgumentError, match="so_far: it is of analyst 'ann'"):
            session.analyst("bob").quote(asked, so_far=facts)
