"""Which budget to take for a number of questions: what is recommended has the least noise when it is asked."""

import math
import statistics

import pyarrow as pa
import pytest

from almoner import filters
from almoner.errors import ArgumentError, BudgetExceeded
from almoner.queries import People, recommend
from sessions import opened


@pytest.mark.parametrize(
    ("questions", "groups", "delta", "kind"),
    [
        (1, 1, 1e-5, filters.Basic),
        (6, 1, 1e-5, filters.Basic),
        (7, 1, 1e-5, filters.Gaussian),
        (1, 7, 1e-5, filters.Gaussian),
        (1000, 1, 1e-5, filters.Gaussian),
        (1000, 1, 0.0, filters.Basic),
    ],
)
def test_the_budget_with_the_least_noise_is_recommended(questions, groups, delta, kind):
    """Laplace noise for up to six counts at epsilon 1 and delta 1e-5, then Gaussian; without a delta, Laplace."""
    advice = recommend(epsilon=1.0, delta=delta, questions=questions, groups=groups)
    assert isinstance(advice.budget, kind)
    assert advice.budget.count == 0
    assert advice.standard_errors[kind.__name__] == min(advice.standard_errors.values())
    assert set(advice.standard_errors) == ({"Basic", "Gaussian", "Zcdp"} if delta else {"Basic"})
    assert kind.__name__ in str(advice)


@pytest.mark.quick(2)
@pytest.mark.parametrize("questions", [1, 5])
@pytest.mark.parametrize("kind", ["Zcdp", "Gaussian", "Basic"])
def test_what_is_promised_is_what_is_quoted_and_fits(path, kind, questions):
    """So many questions at equal shares fit, the next does not, and their noise is what was recommended."""
    wanted = recommend(epsilon=1.0, delta=1e-5, questions=questions).standard_errors[kind]
    terms = {"epsilon": 1.0} if kind == "Basic" else {"epsilon": 1.0, "delta": 1e-5}
    rows = pa.table({"who": ["a"], "n": [0]})
    with opened(path, rows, budget=getattr(filters, kind)(**terms)) as session:
        share = {session.ledger.symbol: session.ledger.budget / questions * (1 - 1e-12)}
        analyst = session.analyst("ann")
        asked = People(by={"n": list(range(1500))}, clip=1, pace=None, **share)
        assert analyst.quote(asked).standard_errors["count"] == pytest.approx(wanted, rel=1e-9)
        for key in range(questions):
            values = analyst.ask(asked, key=str(key)).values
            assert statistics.pstdev(values) == pytest.approx(wanted, rel=0.15)
            spent = session.ledger.spent("a")
        analyst.ask(asked, key="one more", anyway=True)
        assert session.ledger.spent("a") == spent
        with pytest.raises(BudgetExceeded):
            analyst.ask(People(**{name: value * 1.1 * questions for name, value in share.items()}), key="too much")


def test_wrong_arguments():
    """What is out of its range is refused by name."""
    right = {"epsilon": 1.0, "delta": 1e-5, "questions": 3}
    for name, value in (
        ("epsilon", 0.0),
        ("epsilon", math.inf),
        ("delta", 1.0),
        ("delta", math.nan),
        ("questions", 0),
        ("questions", 1.5),
        ("groups", 0),
    ):
        with pytest.raises(ArgumentError, match=name):
            recommend(**{**right, name: value})
