"""Answers and quotes: made of noisy sums and public facts alone."""

import pyarrow as pa
import pytest

from almoner import filters
from almoner.errors import ArgumentError
from almoner.queries import Count, Mean, Quantiles, Sum, Variance
from almoner.queries._ask.answer import without
from almoner.queries._ask.so_far import _frozen
from sessions import ROWS, opened


def test_quotes_are_public_and_change_nothing(path):
    """A quote tells the worst price, the standard error and a margin; it needs no rows of anybody."""
    with opened(path) as session:
        analyst = session.analyst("ann")
        quoted = analyst.quote(Sum("amount", 0, 10, clip=2, sigma=20.0))
        assert quoted.rho == pytest.approx(0.005)
        assert quoted.of_budget == pytest.approx(0.005)
        assert quoted.standard_errors == {"sum": 200.0}
        assert quoted.margins["sum"] == pytest.approx(392, abs=0.1)
        assert analyst.quote(Count(clip=1, rho=0.02)).rho == pytest.approx(0.02, rel=1e-12)
        assert analyst.quote(Count(clip=1, rho=0.02)).rho <= 0.02 * (1 + 1e-12)
        with pytest.raises(ArgumentError, match="not in the data"):
            analyst.quote(Sum("nothing", 0, 1, clip=1, sigma=2.0))
        assert len(session.ledger.entries()) == 1


def test_intervals_hold(path):
    """95 % intervals of counts, means, variances and medians cover what they should in at least 90 % of 200 groups."""
    people, groups = 400, 200
    rows = {
        "who": [i for _ in range(groups) for i in range(people)],
        "group": [g for g in range(groups) for _ in range(people)],
        "v": [(i * 7 + 3 * g) % 100 + 0.5 for g in range(groups) for i in range(people)],
    }
    with opened(path, pa.table(rows), budget=filters.Zcdp(rho=1e3)) as session:
        analyst, by = session.analyst("x"), {"group": list(range(groups))}
        for number, (asked, truth) in enumerate(
            [
                (Count(by=by, clip=20, sigma=10.0), lambda g: people),
                (Mean("v", 0, 100, per="row", by=by, clip=20, sigma=10.0), lambda g: 50.0),
                (Variance("v", 0, 100, per="row", by=by, clip=20, sigma=10.0), lambda g: (100**2 - 1) / 12),
                (Quantiles("v", tuple(range(0, 101, 5)), per="row", by=by, clip=20, sigma=3.0), lambda g: 50.0),
            ]
        ):
            found = analyst.ask(asked, key=str(number))
            held = 0
            for g, (value, interval) in enumerate(zip(found.values, found.intervals, strict=True)):
                low, high = interval[0] if isinstance(asked, Quantiles) else interval
                value = value[0] if isinstance(asked, Quantiles) else value
                held += low <= truth(g) <= high
                assert low <= value <= high or isinstance(asked, Quantiles)
            assert held >= 0.9 * groups, type(asked)


def test_an_answer_is_there_when_its_column_is_not(path):
    """What was paid for is told again under its key, whatever became of the data."""
    with opened(path) as session:
        first = session.analyst("ann").ask(Sum("amount", 0, 4, clip=1, sigma=1000.0), key="a")
    rest = {name: values for name, values in ROWS.items() if name != "amount"}
    with opened(path, pa.table(rest)) as session:
        assert session.analyst("ann").ask(Sum("amount", 0, 4, clip=1, sigma=1000.0), key="a").values == first.values
        with pytest.raises(ArgumentError, match="amount"):
            session.analyst("ann").ask(Sum("amount", 0, 4, clip=1, sigma=1000.0), key="b")
        with pytest.raises(ArgumentError, match="must be one of"):
            session.analyst("ann").ask(5, key="c")


def test_quotes_are_in_the_units_of_the_answer(path):
    """The width of a count's interval is known; that of a mean once an earlier answer tells how many rows there are."""
    rows = pa.table({"who": list(range(1000)) * 2, "n": [k % 10 for k in range(2000)]})
    with opened(path, rows, budget=filters.Zcdp(rho=1.0)) as session:
        analyst = session.analyst("ann")
        count = Count(clip=2, sigma=20.0)
        assert analyst.quote(count).half_width == analyst.quote(count).margins["count"] == pytest.approx(39.2, abs=0.01)
        assert analyst.quote(Sum("n", 0, 5, clip=2, sigma=20.0)).half_width == pytest.approx(5 * 39.2, abs=0.1)
        mean = Mean("n", 0, 10, per="row", clip=2, sigma=20.0)
        assert analyst.quote(mean).half_width is None
        low, high = analyst.ask(mean, key="mean").interval
        assert analyst.quote(mean).half_width == pytest.approx((high - low) / 2)
        assert analyst.quote(Mean("n", 0, 10, per="row", clip=2, sigma=10.0)).half_width < 0.6 * (high - low) / 2
        assert session.analyst("bob").quote(mean).half_width is None  # it was not bob's answer
        assert (
            analyst.quote(Mean("n", 0.0, 10.0, per="row", clip=2, sigma=20.0)).half_width is not None
        )  # it is as much
        assert analyst.quote(Mean("n", 0, 11, per="row", clip=2, sigma=20.0)).half_width is None
        assert "within about 39.2" in str(analyst.quote(count))


def test_what_a_question_asks_for_is_a_key():
    """Clip and noise are no part of it; what is in it is, whatever its name, and a number by its value alone."""

    def asks(values):
        return _frozen(without(values))

    asked = {"ask": "several", "aggregates": {"clip": {"ask": "count"}, "n": ["sum", "n", 0, 5]}, "clip": 2, "rho": 0.1}
    more = {**asked, "clip": 3, "rho": 0.2}
    assert (
        asks(asked) == asks(more) == asks({**asked, "aggregates": {**asked["aggregates"], "n": ["sum", "n", 0.0, 5.0]}})
    )
    others = ({"n": asked["aggregates"]["n"]}, {**asked["aggregates"], "n": ["sum", "n", 0, 6]})
    assert not {asks({**asked, "aggregates": other}) for other in others} & {asks(asked)}


def test_quotes_tell_how_many_more_certainly_fit(path):
    """As many as the budget holds, less what was asked and reserved, and no more than an analyst's limit."""
    count = Count(clip=1, rho=0.1)
    with opened(path, budget=filters.Zcdp(rho=1.0)) as session:
        ann = session.analyst("ann")
        assert ann.quote(Count(clip=1, rho=0.0999999)).fits == 10
        for key in ("a", "b"):
            ann.ask(count, key=key)
        assert ann.quote(Count(clip=1, rho=0.0999999)).fits == 8
        session.reserve(0.5, key="later")
        assert ann.quote(Count(clip=1, rho=0.0999999)).fits == 3
        session.limit(0.25, analyst="ann")
        assert ann.quote(count).fits == 0
        assert ann.quote(Count(clip=1, rho=0.0499999)).fits == 1
        assert session.analyst("bob").quote(Count(clip=1, rho=0.0999999)).fits == 3
