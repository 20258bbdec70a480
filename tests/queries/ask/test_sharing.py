"""An answer that was released stands for a later question that asks for the same: at no price, as the record says."""

import pytest

from almoner import filters, queries
from almoner.errors import ArgumentError
from almoner.ledger import check_export, export
from sessions import opened

COUNT = queries.Count(by={"place": ["x", "y"]}, clip=3, sigma=20.0)


def earlier(session, who, asked, key, of=("ann", "bob"), purpose=None):
    return session.analyst(who, purpose=purpose).ask(asked, key=key, earlier_of=of)


def test_the_same_question_costs_nothing_again(path):
    """Another analyst gets the same numbers; no account changes, and the chain, a replay and an export hold."""
    with opened(path) as session:
        first = earlier(session, "ann", COUNT, "a")
        spent = session.ledger.spent("ann")
        again = earlier(session, "bob", COUNT, "b", purpose="weekly")
        assert first.earlier is None
        assert again.earlier is not None
        assert (again.released, again.values, again.intervals) == (first.released, first.values, first.intervals)
        assert session.ledger.spent("ann") == spent > 0
        (entry,) = session.ledger.entries("shared")
        assert (entry.public["analyst"], entry.public["key"], entry.public["price"]) == ("bob", "b", 0)
        assert entry.public["of"] == session.ledger.entries("answered")[0].number
        assert all(finding.holds for finding in session.verify(replay=True))
        assert check_export(export(session.ledger)) == entry.number + 1


def test_a_shared_answer_is_found_under_its_key_again(path):
    """The key of a shared answer gives it again, also when the ledger is opened again, and refuses other questions."""
    with opened(path) as session:
        earlier(session, "ann", COUNT, "a")
        shared = earlier(session, "bob", COUNT, "b")
    with opened(path) as session:
        bob = session.analyst("bob")
        assert bob.ask(COUNT, key="b") == shared
        assert earlier(session, "bob", COUNT, "b") == shared
        assert bob.answers() == [shared]
        with pytest.raises(ArgumentError, match="was used for another question"):
            bob.ask(queries.Count(clip=3, sigma=20.0), key="b")
        with pytest.raises(ArgumentError, match="was used for another question"):
            earlier(session, "ann", COUNT, "b")
        assert len(session.ledger.entries("shared")) == 1


@pytest.mark.quick(2)
@pytest.mark.parametrize(
    ("asked", "shared"),
    [
        (queries.Count(by={"place": ["x", "y"]}, clip=3, sigma=25.0), True),
        (queries.Count(by={"place": ["x", "y"]}, clip=3, rho=0.01), True),
        (queries.Count(by={"place": ["x", "y"]}, clip=3, sigma=19.0), False),
        (queries.Count(by={"place": ["x", "y"]}, clip=3, rho=0.02), False),
        (queries.Count(by={"place": ["y", "x"]}, clip=3, sigma=25.0), False),
        (queries.Count(by={"place": ["x", "y"]}, clip=2, sigma=25.0), False),
        (queries.Count(by={"place": ["x", "y"]}, clip=3, sigma=25.0, pace=None), False),
        (queries.Count(by={"place": ["x", "y"]}, clip=3, sigma=25.0, where="n > 1"), False),
        (queries.Count(by={"place": ["x", "y"]}, clip=3, error=60.0), False),
        (queries.People(by={"place": ["x", "y"]}, clip=3, sigma=25.0), False),
    ],
)
def test_what_asks_for_less_is_shared_and_nothing_else(path, asked, shared):
    """A noisier version of the question gets the answer that is there; a finer one, or another question, does not."""
    with opened(path) as session:
        earlier(session, "ann", COUNT, "a")
        answer = earlier(session, "bob", asked, "b")
        assert (answer.earlier is not None) is shared
        assert len(session.ledger.entries("answered")) == (1 if shared else 2)


def test_answers_of_others_are_not_shared(path):
    """Only answers of the analysts who are named serve, and none where nobody is named."""
    with opened(path) as session:
        earlier(session, "cleo", COUNT, "c")
        assert earlier(session, "bob", COUNT, "b").earlier is None
        assert session.analyst("ann").ask(COUNT, key="a").earlier is None


def test_pure_budgets_share_too(path):
    """Under a pure budget answers with no more Laplace noise serve."""
    with opened(path, budget=filters.Basic(epsilon=1.0)) as session:
        earlier(session, "ann", queries.Count(clip=3, epsilon=0.2), "a")
        assert earlier(session, "bob", queries.Count(clip=3, epsilon=0.1), "b").earlier is not None
        assert earlier(session, "bob", queries.Count(clip=3, epsilon=0.3), "c").earlier is None
        assert session.verify(replay=True)[-1].holds
