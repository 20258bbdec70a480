"""Questions by accuracy, and clips chosen by a private release."""

import math

import numpy as np
import pyarrow as pa
import pytest

from almoner import filters
from almoner.errors import ArgumentError, BudgetExceeded
from almoner.queries import Count, Histogram, Mean, People, Ratio, Sum, Variance
from almoner.queries._ask.price import best_clip
from almoner.queries._questions.kinds.counts import Extremes, Lengths
from almoner.queries._questions.kinds_of import described, question
from ledgers import exact
from sessions import opened

BUDGETS = {
    "zcdp": lambda: filters.Zcdp(rho=1.0),
    "gaussian": lambda: filters.Gaussian(mu=1.0),
    "pure": lambda: filters.Basic(epsilon=3.0),
}
each_budget = pytest.mark.parametrize("budget", BUDGETS)


def visits(people=400, most=9):
    """People 0, 1, ... with 1 to ``most`` rows each."""
    who = [person for person in range(people) for _ in range(1 + person % most)]
    return pa.table(
        {"who": who, "n": [k % 10 for k in range(len(who))], "place": ["xy"[k % 2] for k in range(len(who))]}
    )


@pytest.mark.slow
@each_budget
def test_an_error_buys_the_noise_for_it(path, budget):
    """The interval is as wide as was asked for, at another level in proportion; the record has numbers."""
    with opened(path, visits(people=396), budget=BUDGETS[budget]()) as session:
        ann = session.analyst("ann")
        for asked in (Count(clip=9, error=300), Sum("n", 0, 9, clip=9, error=3000), People(error="25% of 400")):
            wanted = 100 if isinstance(asked, People) else asked.error
            answer = ann.ask(asked, key=type(asked).__name__)
            low, high = answer.interval
            assert (high - low) / 2 == pytest.approx(wanted, rel=1e-6)
            assert answer.question.error is None
            assert ann.quote(asked).half_width == pytest.approx(wanted, rel=1e-6)
            assert ann.ask(asked, key=type(asked).__name__) == answer
        wide = ann.quote(Count(clip=9, error=300, level=0.99)).half_width
        ratio = math.log(20) / math.log(100) if budget == "pure" else 1.959964 / 2.575829
        assert wide == pytest.approx(300 * ratio, rel=1e-5)
        recorded_question = session.ledger.entries("answered")[0].public
        assert recorded_question["asked"]["error"] == 300
        assert "error" not in recorded_question["question"]
        assert all(finding.holds for finding in session.verify(replay=True))


def test_relative_errors_and_those_of_means_need_an_earlier_answer(path):
    """What they depend on must have been released to this analyst, or be said; the refusals say so."""
    with opened(path, visits(), budget=filters.Zcdp(rho=10.0)) as session:
        ann, mean = session.analyst("ann"), {"per": "row", "clip": 9}
        with pytest.raises(ArgumentError, match="tells its size"):
            ann.ask(Count(clip=9, error="2%"), key="early")
        with pytest.raises(ArgumentError, match="how many rows there are"):
            ann.ask(Mean("n", 0, 9, error=0.5, **mean), key="early")
        first = ann.ask(Count(clip=9, sigma=20.0), key="first").value
        low, high = ann.ask(Count(clip=9, error="2%"), key="second").interval
        assert (high - low) / 2 == pytest.approx(0.02 * first, rel=1e-6)
        ann.ask(Mean("n", 0, 9, rho=0.01, **mean), key="mean")
        low, high = ann.ask(Mean("n", 0, 9, error=0.2, **mean), key="finer mean").interval
        assert (high - low) / 2 == pytest.approx(0.2, rel=0.2)
        with pytest.raises(ArgumentError, match="tells its size"):
            session.analyst("bob").ask(Count(clip=9, error="2%"), key="bob's")


def test_an_error_above_the_budget_is_refused_with_what_can_be_had(path):
    """The refusal says how exact the whole budget is; that much is then admitted."""
    with opened(path, visits(), budget=filters.Zcdp(rho=0.5)) as session:
        ann = session.analyst("ann")
        with pytest.raises(BudgetExceeded, match=r"half-width is about 17\.6 times that"):
            ann.ask(Count(clip=9, error=1), key="a")
        with pytest.raises(BudgetExceeded):
            ann.ask(Count(clip=9, error=1e-9), key="a")
        assert not session.ledger.entries("answered")
        ann.ask(Count(clip=9, error=17.7), key="a")


@pytest.mark.parametrize(
    "wrong",
    [
        {"error": 0},
        {"error": -1.0},
        {"error": math.nan},
        {"error": math.inf},
        {"error": True},
        {"error": "2"},
        {"error": "0%"},
        {"error": "2% of 0"},
        {"error": "2% of nan"},
        {"error": 5, "rho": 0.1},
        {"rho": 0.1, "level": 0.9},
        {"error": 5, "level": 1.0},
        {"clip": "auto", "sigma": 2.0},
        {"clip": "auto", "error": 2.0},
        {"clip": "most", "rho": 0.1},
        {"clip": "auto"},
    ],
)
def test_open_questions_that_make_no_sense(wrong):
    """Each is refused where the question is made."""
    with pytest.raises(ArgumentError):
        Count(**{"clip": 2, **wrong})
    with pytest.raises(ArgumentError, match="leave clip= out"):
        People(clip="auto", rho=0.1)


@pytest.mark.slow
@each_budget
def test_a_clip_is_chosen_once_by_a_release_that_is_charged(path, budget):
    """The first question pays a tenth of its price for it, under a key of its own; later ones pay nothing."""
    with opened(path, visits(people=3000), budget=BUDGETS[budget]()) as session:
        ann, symbol = session.analyst("ann"), session.ledger.symbol
        asked = Count(clip="auto", by={"place": ["x", "y"]}, **{symbol: 0.5})
        assert ann.quote(asked).of_budget == pytest.approx(0.5 / session.ledger.budget)
        first = ann.ask(asked, key="first")
        answered = [entry.public for entry in session.ledger.entries("answered")]
        assert [entry["question"]["ask"] for entry in answered] == ["lengths", "count"]
        assert sum(entry["price"] for entry in answered) == pytest.approx(0.5e15, rel=1e-6)
        assert answered[0]["price"] == pytest.approx(0.05e15, rel=1e-6)
        assert answered[0]["first_for"] == "first"
        assert 2 <= first.question.clip <= 24
        assert ann.ask(asked, key="first") == first
        second = ann.ask(asked, key="second", anyway=True)
        assert session.ledger.entries("answered")[2].public["price"] == pytest.approx(0.5e15, rel=1e-6)
        assert second.question.clip == pytest.approx(first.question.clip, rel=0.5)
        assert ann.quote(asked).half_width == pytest.approx(ann.quote(second.question).half_width, rel=1e-6)
        assert all(finding.holds for finding in session.verify(replay=True))


def test_a_release_that_is_all_noise_is_not_used(path):
    """No clip is made up; a higher price buys another release, which then serves cheap questions too."""
    with opened(path, visits(people=40), budget=filters.Zcdp(rho=100.0)) as session:
        ann = session.analyst("ann")
        for _ in range(2):
            with pytest.raises(ArgumentError, match="too little to see"):
                ann.ask(Count(clip="auto", rho=1e-4), key="cheap")
        assert len(session.ledger.entries("answered")) == 1
        assert ann.quote(Count(clip="auto", rho=1e-4)).half_width is None
        first = ann.ask(Count(clip="auto", rho=50.0), key="dear")
        assert 4 <= first.question.clip <= 24
        ann.ask(Count(clip="auto", rho=1e-3), key="cheap now")
        assert [entry.public["question"]["ask"] for entry in session.ledger.entries("answered")] == [
            "lengths",
            "lengths",
            "count",
            "count",
        ]


@pytest.mark.parametrize("pure", [False, True])
@pytest.mark.parametrize("wide", [False, True])
def test_lengths_are_those_of_contributions(path, pure, wide):
    """Each person is one, in the bucket of the norm of all cells together; groups, filters and per_group included."""
    noise = {"epsilon": 1.0} if pure else {"sigma": 1.0}
    keys = ["x", "y", *(f"none {k}" for k in range(40 if wide else 0))]
    of = Count(by={"place": keys}, where="n < 8", per_group=3, clip=1, **noise)
    with opened(path, visits(), budget=filters.Basic(epsilon=1e3) if pure else filters.Zcdp(rho=1e3)) as session:
        asked = Lengths(of=of, **noise)
        sums, _ = exact(session, asked)
    rows = {}
    table = visits().to_pydict()
    for who, n, place in zip(table["who"], table["n"], table["place"], strict=True):
        if n < 8:
            rows.setdefault(who, {}).setdefault(place, []).append(1)
    lengths = []
    for places in rows.values():
        cells = np.minimum([len(each) for each in places.values()], 3)
        lengths.append(cells.sum() if pure else math.sqrt((cells**2).sum()))
    # lengths at an edge of two buckets may be rounded to either side: the sums of both are compared
    expected, _ = np.histogram(np.array(lengths) * (1 - 1e-6), asked.bins().edges)
    upper, _ = np.histogram(np.array(lengths) * (1 + 1e-6), asked.bins().edges)
    told = np.array(sums) / 2**20
    assert told.sum() == len(lengths)
    assert np.all(np.cumsum(told) <= np.cumsum(expected) + 1e-9)
    assert np.all(np.cumsum(told) >= np.cumsum(upper) - 1e-9)


def test_lengths_go_through_the_record():
    """As plain values and back."""
    asked = Lengths(of=Histogram("n", (0, 1, 2), clip=1, sigma=1.0), rho=0.1)
    assert question(described(asked)) == asked
    for wrong in ({"of": asked}, {"of": Count(clip="auto", rho=1.0)}, {"of": Count(clip=1, epsilon=1.0)}, {"of": 3}):
        with pytest.raises(ArgumentError):
            Lengths(rho=0.1, **wrong)


def test_the_choice_balances_bias_and_noise():
    """Little noise: a clip that nobody exceeds. Much noise: one that many exceed. Counts of noise alone: none."""
    edges = [2.0 ** (k / 2) for k in range(-20, 41)]
    lengths = 2 ** np.random.default_rng(0).normal(4, 1.5, 20_000)
    counts = np.histogram(lengths, edges)[0].astype(float)
    longest = lengths.max()
    assert best_clip(counts, edges, 1.0, 1e-3, pure=False) > 0.6 * longest
    middle, small = best_clip(counts, edges, 1.0, 100.0, pure=False), best_clip(counts, edges, 1.0, 1e4, pure=False)
    assert small < middle < longest
    clips = np.geomspace(1, 2 * longest, 300)
    errors = [np.maximum(lengths - clip, 0).sum() ** 2 + (100 * clip) ** 2 for clip in clips]
    at_middle = np.maximum(lengths - middle, 0).sum() ** 2 + (100 * middle) ** 2
    assert at_middle < 1.3 * min(errors)
    assert best_clip(np.random.default_rng(1).normal(0, 9, 60), edges, 9.0, 1.0, pure=False) is None


@pytest.mark.slow
@pytest.mark.parametrize("pure", [False, True])
def test_noise_alone_hardly_ever_passes_for_people(pure):
    """In 10,000 releases of noise alone at most 20 choices are made (10 by the rule); 1,000 people are always seen."""
    draw, edges = np.random.default_rng(0), [2.0 ** (k / 2) for k in range(-40, 121)]
    noises = (draw.laplace(size=(10_000, 160)) / np.sqrt(2) if pure else draw.normal(size=(10_000, 160))) * 30
    assert sum(best_clip(each, edges, 30.0, 1.0, pure=pure) is not None for each in noises) <= 20
    people = np.histogram(2 ** draw.normal(4, 1.5, 1000), edges)[0]
    clips = [best_clip(people + each, edges, 30.0, 30.0, pure=pure) for each in noises[:200]]
    assert None not in clips
    assert sum(clip > 1e6 for clip in clips) <= 2


@pytest.mark.slow
@each_budget
def test_bounds_are_chosen_by_a_release_of_extremes(path, budget):
    """The first question pays for bounds and clip; later ones have the same bounds for nothing, at other prices too."""
    with opened(path, visits(people=3000), budget=BUDGETS[budget]()) as session:
        ann, symbol = session.analyst("ann"), session.ledger.symbol
        asked = Sum("n", "auto", "auto", clip="auto", where="n > 0", **{symbol: 0.5})
        assert ann.quote(asked).half_width is None
        first = ann.ask(asked, key="first")
        publics = [entry.public for entry in session.ledger.entries("answered")]
        assert [public["question"]["ask"] for public in publics] == ["extremes", "lengths", "sum"]
        assert sum(public["price"] for public in publics) == pytest.approx(0.5e15, rel=1e-6)
        assert first.question.low == 0
        assert 4 < first.question.high < 40
        second = ann.ask(
            Sum("n", "auto", "auto", clip="auto", where="n > 0", **{symbol: 0.1}), key="second", anyway=True
        )
        assert (second.question.low, second.question.high) == (0, first.question.high)
        mean = ann.ask(Mean("n", 0, "auto", where="n > 0", **{symbol: 0.1}), key="mean", anyway=True)
        assert mean.question.high == first.question.high
        assert len(session.ledger.entries("answered")) == 5
        assert all(finding.holds for finding in session.verify(replay=True))


@pytest.mark.parametrize("pure", [False, True])
def test_extremes_are_each_persons_largest_and_smallest_entries(path, pure):
    """In the right buckets, also negative and missing ones; each person has length 1."""
    rows = {"who": ["a", "a", "b", "c", "c", "d"], "v": [-3.0, 5.0, 0.0, 1e30, math.nan, None], "k": [1, 1, 1, 1, 1, 1]}
    noise = {"epsilon": 1.0} if pure else {"sigma": 1.0}
    with opened(path, pa.table(rows), budget=filters.Basic(epsilon=1e3) if pure else filters.Zcdp(rho=1e3)) as session:
        asked = Extremes(column="v", where="k = 1", **noise)
        sums, _ = exact(session, asked)
    names = asked.several()[1]
    told = {name: count / asked.steps for name, count in zip(names, sums, strict=True) if count}
    edge, top = f"{2.0**-20:.4g}", f"{2.0**59.5:.4g} to {2.0**60:.4g}"
    assert told == {
        "largest 4 to 5.657": 1,
        "smallest -4 to -2.828": 1,
        f"largest -{edge} to {edge}": 1,
        f"smallest -{edge} to {edge}": 1,
        f"largest {top}": 1,
        f"smallest {top}": 1,
    }
    assert question(described(asked)) == asked


@pytest.mark.quick(7)
@pytest.mark.parametrize("clip", [1, 135, 136, 5000, 1e6])
@each_budget
def test_an_error_can_be_asked_for_at_every_clip(path, budget, clip):
    """Of all kinds with a clip: the noise follows from the error, however many rows a person may count with."""
    of_rows = {"clip": clip, "error": 300.0 * clip}
    known = [Count(**of_rows), Sum("n", 0, 9, **of_rows), Histogram("n", [0, 5, 10], **of_rows)]
    unknown = [
        Mean("n", 0, 9, per="row", clip=clip, error=1.0),
        Variance("n", 0, 9, per="row", clip=clip, error=1.0),
        Ratio(numerator_where="n > 3", clip=clip, error=0.1),
    ]
    with opened(path, visits(people=396), budget=BUDGETS[budget]()) as session:
        ann = session.analyst("ann")
        for asked in known:
            ann.check(asked, key="q")
            assert ann.quote(asked).half_width == pytest.approx(asked.error, rel=1e-6)
        for asked in unknown:
            ann.check(asked, key="q")
            with pytest.raises(ArgumentError, match="ask it once with rho= or epsilon="):
                ann.quote(asked)
