"""Questions with a pace: people who have little left shrink, and answers say how much is certain."""

import datetime
import itertools
import math
from fractions import Fraction

import pyarrow as pa
import pytest

from almoner import filters
from almoner._units import MEASURE
from almoner.errors import ArgumentError
from almoner.queries import Count, Histogram, Mean, People, Session, Sum
from almoner.queries._questions.kinds_of import described, question
from almoner.queries._questions.noise import STEPS
from almoner.queries.plans import Plan
from ledgers import RHO, exact
from plan_files import PLAN, plan_folder

ROWS = {
    "who": [f"p{i % 7}" for i in range(70)],
    "n": [i % 11 for i in range(70)],
    "group": [i % 40 for i in range(70)],
}
QUESTIONS = [
    lambda **paid: Count(clip=8, **paid),
    lambda **paid: Sum("n", 0, 10, clip=5, **paid),
    lambda **paid: Mean("n", 0, 10, per="row", clip=9, by={"group": [1, 2, 3]}, **paid),
    lambda **paid: Histogram("n", range(12), by={"group": list(range(40))}, clip=3, per_group=1, **paid),
]


def cost(sums, asked):
    """What a contribution of these whole steps costs, in units, exactly."""
    if asked.pure:
        return Fraction(sum(map(abs, sums))) * MEASURE / Fraction(asked.noise * STEPS)
    return Fraction(sum(each**2 for each in sums)) * MEASURE / (2 * Fraction(asked.noise * STEPS) ** 2)


@pytest.mark.quick(1)
@pytest.mark.parametrize("make", QUESTIONS)
@pytest.mark.parametrize("kind", ["rho", "epsilon"])
def test_what_is_added_up_is_paid_for_to_the_unit(path, make, kind):
    """A person alone: the exact cost of the shrunk contribution is within the charge, a part of what is left."""
    rows = {
        name: [v for who, v in zip(ROWS["who"], values, strict=True) if who == "p1"] for name, values in ROWS.items()
    }
    budget = filters.Zcdp(rho=1.0) if kind == "rho" else filters.Basic(epsilon=1.0)
    with Session.open(pa.table(rows), person="who", budget=budget, ledger=path, create=True) as session:
        spent = 0
        for turn, pace in enumerate((3, 2, 7, 1, 1)):
            asked = make(**{kind: 0.9}, pace=pace)
            sums, charged = exact(session, asked)
            left = RHO - spent
            if left == 0:
                assert charged == {}
                break
            full, _ = exact(session, make(**{kind: 1e-6}, pace=None))
            units = charged["p1"]
            assert units <= left // pace
            assert cost(sums, asked) <= units
            if units == left // pace:  # shrunk: nearly all that is paid for is there
                assert cost(sums, asked) >= 0.99 * units
                assert all(abs(a) <= abs(b) and a * b >= 0 for a, b in zip(sums, full, strict=True))
            session.analyst("ann").ask(asked, key=str(turn), anyway=True)
            spent += units
            assert session.ledger.spent("p1") == spent
        assert all(finding.holds for finding in session.verify(replay=True))


def test_answers_say_what_is_certain(path):
    """While every person can pay: the clip. Then what worst-case people would be shrunk to; without a pace nothing."""
    with Session.open(pa.table(ROWS), person="who", budget=filters.Zcdp(rho=1.0), ledger=path, create=True) as session:
        ann = session.analyst("ann")
        first = ann.ask(Count(clip=8, rho=0.6, pace=None), key="a")
        assert first.complete_clip == 8
        assert "Nobody is shrunk or missing" in first.about_budgets
        second = ann.ask(Count(clip=8, rho=0.6, pace=2), key="b")  # 0.2 of 0.6
        assert second.complete_clip == pytest.approx(8 / math.sqrt(3), rel=1e-6)
        assert second.complete_clip < 8 * math.sqrt(0.2 / 0.6)
        assert "no less than 4.618" in str(second)
        third = ann.ask(Count(clip=8, rho=0.6), key="c", anyway=True)  # the other 0.2
        assert third.complete_clip == pytest.approx(8 / math.sqrt(3), rel=1e-6)
        fourth = ann.ask(Count(clip=8, rho=0.6, pace=None), key="d", anyway=True)
        assert fourth.complete_clip == 0
        assert "may be missing" in str(fourth)
        assert ann.answers() == [first, second, third, fourth]
        assert ann.ask(Count(clip=8, rho=0.6, pace=2), key="b") == second
        with pytest.raises(ArgumentError, match="another question"):
            ann.ask(Count(clip=8, rho=0.6), key="b")
    with Session.open(
        pa.table(ROWS), person="who", budget=filters.Basic(epsilon=1.0), ledger=f"{path}2", create=True
    ) as session:
        ann = session.analyst("ann")
        ann.ask(Count(clip=8, epsilon=0.6), key="a")
        assert ann.ask(Count(clip=8, epsilon=0.6, pace=2), key="b").complete_clip == pytest.approx(8 / 3, rel=1e-6)


def test_the_certain_clip_is_below_what_the_worst_person_contributes(path):
    """Somebody who always contributes the full clip is shrunk to just that; nobody to less."""
    rows = pa.table({"who": ["heavy"] * 400 + ["light"] * 3, "n": [1] * 403})
    with Session.open(rows, person="who", budget=filters.Gaussian(mu=1.0), ledger=path, create=True) as session:
        for turn, pace in enumerate((5, 4, 3, 2, 1)):
            asked = Sum("n", 0, 1, clip=100, where="n = 1", rho=0.3, pace=pace)
            (total,), charged = exact(session, asked)
            length = total / STEPS - 3
            answer = session.analyst("ann").ask(asked, key=str(turn), anyway=True)
            assert answer.complete_clip <= length <= answer.complete_clip * (1 + 1e-6) + 1e-6
            assert charged["light"] < charged["heavy"]
        assert session.ledger.spent("heavy") == session.ledger.budget_units


@pytest.mark.parametrize("pace", [0, -1, 1.5, math.nan, math.inf, "rest", 10**7])
def test_a_pace_is_a_whole_number(pace):
    """Others are refused by name; those who have something to spare are never shrunk."""
    with pytest.raises((ArgumentError, TypeError), match="pace"):
        Count(clip=1, rho=0.1, pace=pace)
    with pytest.raises(ArgumentError, match="pace"):
        People(rho=0.1, spare=0.1, pace=2)
    assert People(rho=0.1, spare=0.1).pace is None


def test_a_pace_is_described_where_it_is_not_the_default():
    """As plain values and back."""
    for pace in (None, 1, 7):
        asked = Count(clip=1, rho=0.1, pace=pace)
        assert question(described(asked)) == asked
        assert ("pace" in described(asked)) == (pace != 1)


def test_the_rest_of_a_series(tmp_path):
    """Each question of a file that has pace = "rest" gets the number of those that are left; later periods count."""
    folder = plan_folder(tmp_path)
    series = """
[[questions]]
key = "{month}"
every = "month"
from = 2011-01-01
to = 2011-06-30
ask = "count"
clip = 1
sigma = 20
pace = "rest"

[[questions]]
key = "last"
ask = "count"
clip = 1
sigma = 20
pace = "rest"

[[questions]]
key = "as before"
ask = "count"
clip = 1
sigma = 20
pace = "none"
"""
    (folder / "series.toml").write_text(PLAN + series)

    def paces(today):
        plan = Plan.read(folder / "series.toml", today=today)
        return {key: asked.pace for key, asked in plan.questions if key[:5] in ("2011-", "last", "as be")}

    later = {"last": 1, "as before": None}
    months = {f"2011-0{month}": 8 - month for month in range(1, 7)}
    assert paces(datetime.date(2012, 1, 1)) == months | later
    assert paces(datetime.date(2011, 3, 1)) == dict(itertools.islice(months.items(), 2)) | later
    (folder / "series.toml").write_text(PLAN + series.replace("to = 2011-06-30\n", ""))
    with pytest.raises(ArgumentError, match="needs to="):
        Plan.read(folder / "series.toml")
