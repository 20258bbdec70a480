"""Intervals that cover the quantity without a clip, about all people: what is charged for them, and their coverage."""

import math
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from almoner import filters
from almoner.errors import ArgumentError
from almoner.ledger import Domain, Ledger, Terms
from almoner.queries import Count, Histogram, Mean, People, Quantiles, Session, Sum, Table, Top, Variance
from almoner.queries._ask.answer import answer
from almoner.queries._questions.noise import STEPS
from ledgers import RHO, exact
from sessions import opened

RUNS = 200
LENGTHS = np.minimum(1 + np.random.default_rng(5).geometric(0.05, 400), 60)  # rows of each person
WHO = np.repeat(np.arange(400), LENGTHS)
ENTRY = np.clip(np.random.default_rng(6).normal(2 + 0.1 * LENGTHS[WHO], 1.5), 0, 12)  # who comes often has more
ROWS = pa.table({"who": WHO, "v": ENTRY, "g": [("a", "b")[k % 2] for k in range(len(WHO))]})
PEOPLE_MEAN = np.mean([ENTRY[who == WHO].mean() for who in range(400)])
ONE = np.arange(0.0, 12.5, 0.5)
BINNED = np.histogram(ENTRY, ONE)[0]
ROW = {"clip": 30, "at_most": 60, "rho": 0.5, "per": "row"}
TOTAL = {"clip": 30, "at_most": 60, "rho": 0.5}
CASES = {
    "count": (Count(**TOTAL), len(ENTRY)),
    "count, pure": (Count(clip=30, at_most=60, epsilon=1.0), len(ENTRY)),
    "count without a clip": (Count(clip=60, at_most=60, rho=0.5), len(ENTRY)),
    "count by group": (Count(by={"g": ["a", "b"]}, **TOTAL), sum(g == "a" for g in ROWS["g"].to_pylist())),
    "sum": (Sum("v", 0, 12, bounds_hold=True, **TOTAL), ENTRY.sum()),
    "mean per row": (Mean("v", 0, 12, bounds_hold=True, **ROW), ENTRY.mean()),
    "mean per person": (Mean("v", 0, 12, bounds_hold=True, rho=0.02), PEOPLE_MEAN),
    "variance per row": (Variance("v", 0, 12, bounds_hold=True, **ROW), ENTRY.var()),
    "variance per row, pure": (
        Variance("v", 0, 12, bounds_hold=True, per="row", clip=30, at_most=60, epsilon=3.0),
        ENTRY.var(),
    ),
    "histogram": (Histogram("v", ONE, **TOTAL), BINNED[6]),
    "median per row": (Quantiles("v", ONE, **ROW), np.median(ENTRY)),
    "people by group": (People(by={"g": ["a", "b"]}, clip=1, at_most=1.5, rho=0.5), None),
}


@pytest.fixture(scope="module")
def sums(tmp_path_factory):
    """Each question's sums without noise, and the prices of people."""
    with opened(tmp_path_factory.mktemp("q") / "a", ROWS, budget=filters.Zcdp(rho=1e3)) as first:
        found = {name: exact(first, asked) for name, (asked, _) in CASES.items() if not asked.pure}
    with opened(tmp_path_factory.mktemp("q") / "b", ROWS, budget=filters.Basic(epsilon=1e3)) as second:
        found |= {name: exact(second, asked) for name, (asked, _) in CASES.items() if asked.pure}
    return found


def draws(asked, sums, *, seed=3, report=True):
    """What the question would release, again and again; without the report's noise where that is wanted."""
    noise, size = np.random.default_rng(seed), asked.groups * asked.coordinates
    for _ in range(RUNS):
        drawn = noise.laplace(0, math.sqrt(0.5), len(sums)) if asked.pure else noise.normal(0, 1, len(sums))
        drawn[size:] *= report
        yield [round(x) for x in np.array(sums, float) + drawn * asked.spread * STEPS]


def interval_of(one, name):
    """The interval that the truth is compared with."""
    interval = one.truth_interval
    return interval[6] if name == "histogram" else interval[0] if isinstance(interval, list) else interval


@pytest.mark.quick(5)
@pytest.mark.parametrize("name", [name for name, (_, truth) in CASES.items() if truth is not None])
def test_truth_intervals_cover_what_was_not_clipped(sums, name):
    """Of 200 answers at least 91 % cover the quantity without a clip: 93 % less two standard errors."""
    asked, truth = CASES[name]
    answers = [answer(asked, each, "key", floor=asked.price) for each in draws(asked, sums[name][0])]
    covered = [low <= truth <= high for low, high in (interval_of(one, name) for one in answers)]
    assert np.mean(covered) >= 0.91


def test_intervals_of_the_noise_alone_do_not_cover_it(sums):
    """Wrong variants: intervals of the noise alone, and a report that is taken to be exact, fail the same test."""
    asked, truth = CASES["count"]
    answers = [answer(asked, each, "key", floor=asked.price) for each in draws(asked, sums["count"][0])]
    assert np.mean([low <= truth <= high for low, high in (one.interval for one in answers)]) < 0.5
    missing = [each[1] / asked.report_scale / STEPS for each in draws(asked, sums["count"][0])]
    margin = 1.96 * asked.spread
    exact_report = [
        one.value - margin <= truth <= one.value + gone + margin for one, gone in zip(answers, missing, strict=True)
    ]
    assert np.mean(exact_report) < 0.91


@pytest.mark.slow
def test_intervals_are_not_much_wider_than_their_noise(sums):
    """Of means, variances and quantiles: at most 1.3 times 3.92 standard deviations of the value, and a bin."""
    for name in ("mean per person", "variance per row", "mean per row", "median per row"):
        asked = CASES[name][0]
        answers = [answer(asked, each, "key", floor=asked.price) for each in draws(asked, sums[name][0])]
        values = [one.value[0] if isinstance(one.value, list) else one.value for one in answers]
        ends = [one.interval[0] if isinstance(one.interval, list) else one.interval for one in answers]
        bins = 1.0 if name.startswith("median") else 0.0
        assert np.median([high - low for low, high in ends]) <= 1.3 * 3.92 * np.std(values) + bins, name


def test_the_report_is_what_the_clip_takes_away(sums):
    """It is the sum of what each person has beyond the clip, at the report's scale."""
    asked = CASES["count"][0]
    beyond = sum(max(0, int(length) - 30) for length in LENGTHS)
    assert sums["count"][0][1] / STEPS / asked.report_scale == pytest.approx(beyond, rel=1e-3)
    assert sums["count"][0][0] / STEPS == pytest.approx(sum(min(30, int(length)) for length in LENGTHS), rel=1e-6)


@pytest.mark.slow
@settings(max_examples=40, deadline=None)
@given(
    rows=st.lists(st.tuples(st.sampled_from("abc"), st.integers(0, 2)), max_size=40),
    clip=st.sampled_from([0.7, 1.0, 3.0]),
    most=st.sampled_from([3.5, 9.0]),
    price=st.sampled_from([{"sigma": 90.0}, {"epsilon": 0.3}]),
    report=st.sampled_from([None, 0.05, 0.5]),
    groups=st.sampled_from([3, 60]),
)
def test_a_report_is_charged_with_the_contribution(tmp_path_factory, rows, clip, most, price, report, groups):
    """A person pays at least for the length of contribution and report in one vector, and at most the price."""
    asked = Count(by={"g": list(range(groups))}, clip=clip, at_most=most, report=report, **price)
    table = pa.table(
        {"who": pa.array([r[0] for r in rows], pa.string()), "g": pa.array([r[1] for r in rows], pa.int64())}
    )
    budget = filters.Basic(epsilon=1e3) if asked.pure else filters.Zcdp(rho=1e3)
    with opened(tmp_path_factory.mktemp("q") / "l", table, budget=budget) as session:
        found, units = exact(session, asked)
    total = [0] * 2 * groups
    for person in {row[0] for row in rows}:
        cells = [rows.count((person, group)) * STEPS for group in range(groups)]
        length = sum(cells) if asked.pure else math.sqrt(sum(cell**2 for cell in cells))
        shrunk, report_of = cells, [0] * groups
        if length > asked.clip_steps:
            beyond = min(asked.report_steps, (length - asked.clip_steps) * asked.report_scale)
            shrunk = [cell * asked.clip_steps / length for cell in cells]
            report_of = [cell * beyond / length for cell in cells]
        vector = [Fraction(x) for x in (*shrunk, *report_of)]
        noise = Fraction(asked.noise * STEPS)
        size = sum(vector) / noise if asked.pure else sum(x * x for x in vector) / (2 * noise**2)
        assert size * RHO * Fraction(1 - 10**-7) <= units[person] <= asked.price
        assert units[person] <= size * RHO * Fraction(1 + 10**-6) + 2
        total = [a + b for a, b in zip(total, (*shrunk, *report_of), strict=True)]
    assert all(want - 4 - 1e-6 * want <= got <= want + 1e-6 * want + 1 for got, want in zip(found, total, strict=True))


def test_truth_is_told_only_where_it_is_known(tmp_path):
    """Without a declaration, or where people may lack budget, there are no truth intervals, and words say why."""
    with opened(tmp_path / "l", ROWS, budget=filters.Zcdp(rho=0.5)) as session:
        ann = session.analyst("ann")
        plain = ann.ask(Count(clip=30, rho=0.01), key="plain")
        assert plain.truth_intervals is None
        assert "clipped to 30 full rows (declare at_most=" in plain.about
        bounded = ann.ask(Mean("v", 0, 12, rho=0.01), key="bounded")
        assert bounded.truth_intervals is None
        assert "bounds_hold=True" in bounded.about
        known = ann.ask(Mean("v", 0, 12, bounds_hold=True, rho=0.01), key="known")
        assert known.truth_intervals == known.intervals
        assert "for all people in the data" in known.about
        assert ann.ask(Count(clip=30, at_most=60, rho=0.01), key="count").truth_interval is not None
        ann.ask(Count(clip=1, rho=0.45), key="dear")
        late = ann.ask(Mean("v", 0, 12, bounds_hold=True, rho=0.4, anyway=True), key="late")
        assert "who count for at least 0.16 of themselves" in late.about
        assert late.truth_interval[0] < late.interval[0]
        last = ann.ask(Mean("v", 0, 12, bounds_hold=True, rho=0.4, pace=None, anyway=True), key="last")
        assert last.truth_intervals is None
        assert "may be missing" in last.about


def test_types_and_declared_domains_need_no_flag(tmp_path):
    """Conditions are 0 or 1, domains hold what they say, and one row a person is a length of one; else nothing."""
    table = pa.table({"who": range(90), "v": [k % 50 for k in range(90)], "ok": [k % 3 == 0 for k in range(90)]})
    sure = [Mean("v > 10", 0, 1, rho=0.1), Mean("not ok", -1, 1, rho=0.1), Mean("ok", 0, 2, rho=0.1)]
    sure += [Top(1, "v", range(9), clip=1, rho=0.1), Count(clip=1, rho=0.1), Count(clip=1, by={"v": [1, 2]}, rho=0.1)]
    unsure = [Mean("v", 0, 1, rho=0.1), Mean("ok", 0, 0.5, rho=0.1), Mean("ok", 0, 1, per="total", rho=0.1)]
    budget = filters.Zcdp(rho=9.0)
    people = {"people": Table(table, one_row=True)}
    with Session.open(tables=people, person="who", budget=budget, ledger=tmp_path / "l", create=True) as session:
        ann = session.analyst("ann")
        for number, asked in enumerate(sure + unsure):
            told = ann.ask(asked, key=str(number))
            assert (told.truth_intervals is not None) == (asked in sure), asked
            assert ann.ask(asked, key=str(number)) == told
    with Ledger.open(tmp_path / "d", Terms(budget, person="BIGINT"), create=True) as book:
        book.dataset("people", person="who", columns={"v": Domain(low=0, high=49)})
    with Session.open(table, person="who", ledger=tmp_path / "d", dataset="people") as session:
        asked = [
            Mean("v", rho=0.1),
            Mean("v", 0, 60, rho=0.1),
            Mean("v", 1, 60, rho=0.1),
            Quantiles("v", (0, 25, 50), rho=0.1),
        ]
        told = [session.analyst("ann").ask(each, key=str(number)) for number, each in enumerate(asked)]
        assert [each.truth_intervals is not None for each in told] == [True, True, False, True]
        assert told[3].question.bounds_hold


def test_quantiles_are_values_that_entries_can_have():
    """With a step, values and both ends of every interval are multiples of it within their bins."""
    levels = (0.0, 0.1, 0.5, 0.9, 1.0)
    edges = [0.0, 1.0, 2.5, 4.0, 7.0, 7.25, 12.0]
    asked = Quantiles("v", edges, levels, per="total", step=1.0, rho=0.5, bounds_hold=True)
    whole = np.repeat([0, 1, 2, 3, 5, 7, 12], [40, 10, 30, 70, 20, 20, 60])
    counts = np.histogram(whole, edges)[0]
    noise = np.random.default_rng(1)
    for _ in range(RUNS):
        one = answer(asked, [round(x) for x in (counts + noise.normal(0, 2, 6)) * STEPS], "k", floor=asked.price)
        ends = [*one.value, *(end for interval in one.interval + one.truth_interval for end in interval)]
        assert all(end == round(end) and 0 <= end <= 12 for end in ends)
        assert all(low <= value <= high for value, (low, high) in zip(one.value, one.interval, strict=True))
    open_ended = answer(replace(asked, bounds_hold=False), [each * STEPS for each in counts], "k", floor=asked.price)
    assert open_ended.truth_interval[0][0] == -math.inf
    assert open_ended.truth_interval[-1][1] == math.inf
    exactly = answer(replace(asked, rho=None, sigma=0.02), [int(each) * STEPS for each in counts], "k")
    assert exactly.value[1:4] == [0.0, 3.0, 10.0]
    assert exactly.interval[2] == (3.0, 3.0)
    with pytest.raises(ArgumentError, match="step"):
        Quantiles("v", edges, step=1e-30, rho=0.5)
    with pytest.raises((ArgumentError, TypeError), match="step"):
        Quantiles("v", edges, step=math.nan, rho=0.5)
