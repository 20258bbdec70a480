"""An epsilon for one question under a budget of another kind, and what is left to an analyst."""

import pytest

from almoner import filters
from almoner.curves import gaussian
from almoner.errors import ArgumentError
from almoner.queries import Count, Histogram, Mean, People
from sessions import opened

BUDGETS = [filters.Zcdp(epsilon=1.0, delta=1e-6), filters.Gaussian(epsilon=1.0, delta=1e-6)]


@pytest.mark.parametrize("budget", BUDGETS, ids=["zcdp", "gaussian"])
@pytest.mark.parametrize(
    "asked",
    [
        Count(clip=3, epsilon=0.2),
        People(by={"place": ["x", "y", "z", "w"]}, epsilon=0.2),
        Mean("n", 0, 9, epsilon=0.2),
        Histogram("n", (0, 1, 2, 3), clip=2, at_most=5, epsilon=0.2),
    ],
)
def test_a_question_alone_keeps_its_epsilon_and_no_less(tmp_path, budget, asked):
    """At the budget's delta, by the exact curve of what is charged; at a higher price it would not."""
    with opened(tmp_path / "l", budget=budget) as session:
        analyst = session.analyst("ann")
        quoted, answer = analyst.quote(asked), analyst.ask(asked, key="a")
        assert answer.rho == quoted.rho
        assert gaussian.Gaussian((2 * answer.rho) ** 0.5 * (1 - 1e-9)).delta(epsilon=0.2) <= 1e-6
        assert gaussian.Gaussian((2 * answer.rho) ** 0.5 * 1.001).delta(epsilon=0.2) > 1e-6
        assert "(alone: epsilon = 0.2 at the budget's delta)" in str(quoted)
        assert analyst.ask(asked, key="a") == answer
        assert session.verify(replay=True)[-1].holds
        if isinstance(asked, People):
            assert answer.question.clip == 2  # the root of the groups, where that of a pure budget is their number


def test_a_budget_without_a_delta_has_no_such_price(tmp_path):
    """It is refused, with what to give."""
    with opened(tmp_path / "l", budget=filters.Zcdp(rho=1.0)) as session, pytest.raises(ArgumentError, match="rho="):
        session.analyst("ann").ask(Count(clip=1, epsilon=0.1), key="a")


def test_what_is_left_to_an_analyst_is_the_worst_case(tmp_path):
    """Limits of the analyst and the purpose count, and the highest price of every question, whoever paid it."""
    with opened(tmp_path / "l") as session:
        ann, bob = session.analyst("ann"), session.analyst("bob", purpose="ads")
        session.limit(0.5, analyst="ann")
        assert (ann.left, bob.left) == (0.5, 1.0)
        ann.ask(Count(clip=1, rho=0.2, where="n > 99"), key="a")  # of nobody, which nothing tells
        assert (ann.left, bob.left) == pytest.approx((0.3, 0.8))
        session.limit(0.1, purpose="ads")
        assert bob.left == pytest.approx(0.1)
