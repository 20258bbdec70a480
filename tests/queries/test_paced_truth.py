"""Intervals about all people where some have little budget left: what is charged, what is certain, and coverage."""

import itertools
import math
from fractions import Fraction

import numpy as np
import pyarrow as pa
import pytest

from almoner import filters
from almoner._units import MEASURE
from almoner.errors import ArgumentError
from almoner.queries import Count, Covariance, Histogram, Mean, Quantiles, Ratio, Regression, Sum, Top, Variance
from almoner.queries._ask.answer import answer
from almoner.queries._questions.intervals import between_odds
from almoner.queries._questions.noise import STEPS
from almoner.queries._questions.question import complete_clip, least_share
from ledgers import exact
from sessions import opened

RUNS = 200
LENGTHS = np.minimum(1 + np.random.default_rng(5).geometric(0.05, 400), 60)  # rows of each person
WHO = np.repeat(np.arange(400), LENGTHS)
ENTRY = np.clip(np.random.default_rng(6).normal(2 + 0.1 * LENGTHS[WHO], 1.5), 0, 12)  # who comes often has more
ROWS = pa.table({"who": WHO, "v": ENTRY, "g": [("a", "b")[k % 2] for k in range(len(WHO))]})
EDGES = np.arange(0.0, 12.5, 0.5)
PRICES = {"rho": 0.5}, {"epsilon": 1.0}


def spent_session(path, price, share):
    """A session in which people have paid for what they are in, and the worst of them has a share of a price left."""
    left = next(iter(price.values())) * share
    budget = filters.Zcdp(rho=left + 4) if "rho" in price else filters.Basic(epsilon=left + 4)
    session = opened(path, ROWS, budget=budget)
    before = {"rho": 4.0} if "rho" in price else {"epsilon": 4.0}
    session.analyst("ann").ask(Count(clip=60, **before), key="before")
    return session


def floor_of(session, asked):
    """What every person could pay for a question, by the record."""
    left = min(session.ledger.left_by_period("ann").values())
    return asked.payment.floor(left, asked.price)


@pytest.mark.quick(1)
@pytest.mark.parametrize("price", PRICES)
@pytest.mark.parametrize("share", [0.9, 0.3, 0.02])
def test_what_is_in_answer_and_report_is_paid_for(tmp_path, price, share):
    """A person of 55 rows: the exact cost is within the charge, and of the rows there is as much as is certain."""
    rows = pa.table({"who": ["p"] * 55, "g": [k % 5 % 3 for k in range(55)]})
    kind, amount = next(iter(price.items()))
    left = amount * share + 4.0
    budget = filters.Zcdp(rho=left) if kind == "rho" else filters.Basic(epsilon=left)
    with opened(tmp_path / "l", rows, budget=budget) as session:
        session.analyst("ann").ask(Count(clip=1, **{kind: 4.0}), key="before")
        for report, clip, groups in itertools.product((0.05, 0.3, 0.7), (20, 50, 60), ([0], [0, 1, 2])):
            asked = Count(by={"g": groups} if len(groups) > 1 else {}, clip=clip, at_most=60, report=report, **price)
            full = [22 * STEPS, 22 * STEPS, 11 * STEPS] if len(groups) > 1 else [55 * STEPS]
            sums, charged = exact(session, asked)
            check_person(asked, sums, charged["p"], floor_of(session, asked), full)


def check_person(asked, sums, charged, floor, full):
    """The cost in exact arithmetic, and what is left of a person's full contribution."""
    noise = Fraction(asked.noise * STEPS)
    cost = sum(map(abs, sums)) / noise if asked.pure else sum(each**2 for each in sums) / (2 * noise**2)
    assert cost * MEASURE <= charged <= floor
    if charged == floor:
        assert cost * MEASURE >= floor * Fraction(99, 100)
    half, least = len(sums) // 2, least_share(asked, floor)
    whole = [answered + told / asked.report_scale for answered, told in zip(sums[:half], sums[half:], strict=True)]
    slack = 1 + 1 / asked.report_scale  # whole steps
    assert all(least * want - slack <= got <= want * (1 + 1e-6) + slack for got, want in zip(whole, full, strict=True))
    lengths = [sum(each) if asked.pure else math.hypot(*each) for each in (sums[:half], full)]
    assert lengths[0] >= min(lengths[1], complete_clip(asked, floor) * STEPS) * (1 - 1e-6) - 3


def test_a_report_tells_all_while_its_share_can_be_paid(tmp_path):
    """Where nobody is clipped a report costs nothing, and nothing is missing while everybody can pay its share."""
    for price, share in itertools.product(PRICES, (0.31, 0.29)):
        asked = Count(clip=60, at_most=60, report=0.3, **price)
        assert asked.price == Count(clip=60, at_most=60, **price).price
        least = least_share(asked, int(asked.price * share))
        assert (least == 1) == (share > 0.3)
    assert least_share(Count(clip=60, at_most=60, rho=0.5), 10**14) == pytest.approx(math.sqrt(0.2), rel=1e-6)


PACED = {
    "count": (lambda **p: Count(clip=60, at_most=60, **p), len(ENTRY)),
    "count with a clip": (lambda **p: Count(clip=40, at_most=60, **p), len(ENTRY)),
    "count with a report": (lambda **p: Count(clip=60, at_most=60, report=0.2, **p), len(ENTRY)),
    "sum": (lambda **p: Sum("v", 0, 12, bounds_hold=True, clip=60, at_most=60, **p), ENTRY.sum()),
    "sum of both signs": (
        lambda **p: Sum("v - 6", -6, 6, bounds_hold=True, clip=60, at_most=60, report=0.2, **p),
        (ENTRY - 6).sum(),
    ),
    "mean": (lambda **p: Mean("v", 0, 12, per="row", bounds_hold=True, clip=60, at_most=60, **p), ENTRY.mean()),
    "mean with a report": (
        lambda **p: Mean("v", 0, 12, per="row", bounds_hold=True, clip=60, at_most=60, report=0.2, **p),
        ENTRY.mean(),
    ),
    "variance": (
        lambda **p: Variance("v", 0, 12, per="row", bounds_hold=True, clip=60, at_most=60, **p),
        ENTRY.var(),
    ),
    "median": (
        lambda **p: Quantiles("v", EDGES, per="row", bounds_hold=True, clip=60, at_most=60, **p),
        np.median(ENTRY),
    ),
    "ratio": (
        lambda **p: Ratio("v", numerator_bounds=(0, 12), bounds_hold=True, clip=60, at_most=60, **p),
        ENTRY.mean(),
    ),
}


@pytest.fixture(scope="module")
def paced(tmp_path_factory):
    """Each question's sums where the worst person has half of the price left, by its name and price; the floor."""
    found = {}
    for price in PRICES:
        kind = next(iter(price))
        with spent_session(tmp_path_factory.mktemp("q") / "l", price, 0.5) as session:
            for name, (make, _) in PACED.items():
                asked = make(**price)
                found[name, kind] = asked, exact(session, asked)[0], floor_of(session, asked)
    return found


def drawn(asked, sums):
    """What the question would release, again and again."""
    noise = np.random.default_rng(3)
    for _ in range(RUNS):
        each = noise.laplace(0, math.sqrt(0.5), len(sums)) if asked.pure else noise.normal(0, 1, len(sums))
        yield [round(x) for x in np.array(sums, float) + each * asked.spread * STEPS]


def coverage(asked, sums, floor, truth):
    """The share of truth intervals that hold the truth."""
    ends = [answer(asked, each, "k", floor=floor).truth_interval for each in drawn(asked, sums)]
    ends = [each[0] if isinstance(each, list) else each for each in ends]
    return np.mean([low <= truth <= high for low, high in ends])


@pytest.mark.quick(8)
@pytest.mark.parametrize("kind", ["rho", "epsilon"])
@pytest.mark.parametrize("name", PACED)
def test_truth_is_covered_where_people_are_shrunk(paced, name, kind):
    """Of 200 answers at least 91 % cover what all people have: 93 % less two standard errors."""
    asked, sums, floor = paced[name, kind]
    assert 0 < floor < asked.price
    assert coverage(asked, sums, floor, PACED[name][1]) >= 0.91


def test_it_is_not_covered_if_the_floor_is_not_used(paced):
    """Wrong variant: an interval that takes everybody to have paid in full fails the same test."""
    asked, sums, _ = paced["count", "rho"]
    assert coverage(asked, sums, asked.price, len(ENTRY)) < 0.5


def test_nothing_is_said_where_nothing_is_known(paced):
    """A sum of both signs without a report, and any question where nobody can pay, have no truth interval."""
    asked, sums, floor = paced["sum of both signs", "rho"]
    told = answer(asked, [0] * len(sums), "k", floor=floor)
    assert told.truth_interval is not None
    untold = Sum("v - 6", -6, 6, bounds_hold=True, clip=60, at_most=60, rho=0.5)
    one = answer(untold, [0], "k", floor=floor)
    assert one.truth_intervals is None
    assert "may be shrunk, to 0.7" in one.about
    assert "report= would tell" in one.about
    assert answer(asked, [0] * len(sums), "k", floor=0).truth_intervals is None


@pytest.mark.parametrize("least", [Fraction(1, 2), Fraction(9, 10)])
def test_odds_move_by_the_weights_at_most(least):
    """All data of three entries on a grid, all weights at both ends: the mean is within the odds, not within less."""
    grid = [Fraction(k, 2) for k in range(-2, 3)]
    missed = 0
    for entries in itertools.combinations_with_replacement(grid, 3):
        for weights in itertools.product((least, Fraction(1)), repeat=3):
            mean = sum(entries) / 3
            moved = sum(w * x for w, x in zip(weights, entries, strict=True)) / sum(weights)
            low, high = between_odds((float(moved), float(moved)), -1.0, 1.0, float(least))
            assert low - 1e-12 <= mean <= high + 1e-12
            low, high = between_odds((float(moved), float(moved)), -1.0, 1.0, float(least) ** 0.5)
            missed += not low <= mean <= high
    assert missed


def test_newer_kinds_have_truth_intervals_too(tmp_path):
    """Ratios, tops, histograms, covariances and regressions, where what they rest on is declared; words where not."""
    columns = {"v": (0, 12), "k": (0, 400)}
    rows = ROWS.append_column("k", pa.array(WHO.astype(float)))
    bounded = {"clip": 40, "at_most": 60, "rho": 2.0}
    with opened(tmp_path / "l", rows, budget=filters.Zcdp(rho=1e3)) as session:
        ann = session.analyst("ann")
        asked = {
            "share": Ratio(numerator_where="v > 5", **bounded),
            "ratio": Ratio("v", numerator_bounds=(0, 12), bounds_hold=True, **bounded),
            "top": Top(1, "g", ["a", "b", "c"], count="rows", **bounded),
            "histogram": Histogram("v", [0, 6, 12], **bounded),
            "covariance": Covariance(columns, bounds_hold=True, **bounded),
            "regression": Regression("v", columns, bounds_hold=True, **bounded),
        }
        given = {name: ann.ask(each, key=name).truth_interval for name, each in asked.items()}
        words = ann.ask(Covariance(columns, **bounded), key="words").about
    assert all(each is not None for each in given.values())
    intercept = np.polyfit(WHO, ENTRY, 1)[1]
    truths = {
        "share": np.mean(ENTRY > 5),
        "ratio": ENTRY.mean(),
        "top": max(sum(k % 2 == g for k in range(len(WHO))) for g in (0, 1)),
        "histogram": sum(ENTRY < 6),
        "covariance": ENTRY.var(),
        "regression": intercept,
    }
    for name, truth in truths.items():
        low, high = np.array(given[name], float).reshape(-1, 2)[0]
        wide = 3 * (high - low)  # beyond, once in many millions of runs
        assert low - wide <= truth <= high + wide, name
    assert "about the clipped quantity" in words
    assert "bounds_hold=True" in words


def test_covariances_per_person_are_those_of_one_row_of_each(tmp_path):
    """Sums for them are exact: each person's mean of each number, in whole steps; the clip is that of one row."""
    asked = Covariance({"v": (0, 12), "w": (0, 4)}, per="person", rho=0.5)
    assert asked.clip == 1
    rows = ROWS.append_column("w", pa.array(ENTRY % 4))
    with opened(tmp_path / "l", rows, budget=filters.Zcdp(rho=1e3)) as session:
        sums = exact(session, asked)[0]
    scaled = np.stack([np.ones(len(ENTRY)), ENTRY / 6 - 1, ENTRY % 4 / 2 - 1])
    numbers = [scaled[i] * scaled[j] for i, j in itertools.combinations_with_replacement(range(3), 2)]
    means = [sum(np.mean(number[who == WHO]) for who in range(400)) for number in numbers]
    assert np.array(sums) / asked.steps == pytest.approx(np.array(means), abs=400 / asked.steps)
    assert "per person" in asked.estimand
    with pytest.raises(ArgumentError, match="per"):
        Covariance({"v": (0, 12)}, per="total", rho=0.5)
    assert Regression("v", {"v": (0, 12), "w": (0, 4)}, per="person", rho=0.5).clip == 1
