"""Whose mean, variance, histogram and quantiles: per person, per row, and by each person's total."""

import math
from fractions import Fraction

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from almoner.errors import ArgumentError
from almoner.queries import Count, Histogram, Mean, People, Quantiles, Variance
from ledgers import exact
from sessions import CHEAP, opened

GROUPS = [2, 0, 1]
SHAPES = (
    lambda **o: Mean("value", -1.0, 20.25, **o),
    lambda **o: Variance("value", 0.0, 30.0, **o),
    lambda **o: Histogram("value", (-10.0, 0.0, 0.5, 10.0), **o),
    lambda **o: Quantiles("value", tuple(range(-20, 21)), **o),
)
ENTRIES = st.integers(-400, 400).map(lambda eighths: eighths / 8)
ROWS = st.lists(st.tuples(st.sampled_from(["a", "b", "c"]), st.integers(0, 3), ENTRIES), max_size=30)
PRICES = st.sampled_from([{"sigma": 1000.0}, {"epsilon": 1e-3}])


def half_away(value):
    """The nearest whole number, halves away from zero."""
    return math.floor(abs(value) + Fraction(1, 2)) * (1 if value >= 0 else -1)


def contribution(asked, entries):
    """What a person with these entries in a group adds to it, in whole steps, by plain arithmetic."""
    if isinstance(asked, Histogram | Quantiles):
        bins = len(asked.edges) - 1
        listed = [sum(entries)] if asked.per == "total" else entries
        places = [max(0, min(bins - 1, sum(e >= edge for edge in asked.edges) - 1)) for e in listed]
        return [math.trunc(Fraction(places.count(place) * asked.steps, len(places))) for place in range(bins)]
    if asked.pure and not (isinstance(asked, Variance) and asked.per == "total"):
        return parts(asked, entries)
    found = [asked.steps]
    for power in (1, 2)[: asked.coordinates - 1]:
        if asked.per == "total":
            total = sum(half_away(e * (asked.steps / asked.half)) for e in entries)
            away = total - math.floor(asked.middle / asked.half * asked.steps + 0.5)
            away = max(-asked.steps, min(asked.steps, away))
            found.append(away if power == 1 else half_away(away * away / asked.steps))
        else:
            aways = [max(asked.low, min(asked.high, e)) - asked.middle for e in entries]
            steps = [half_away(a * (asked.steps / asked.half)) for a in aways]
            if power == 2:
                steps = [half_away(a / asked.half * (a / asked.half) * asked.steps) for a in aways]
            found.append(half_away(sum(steps) / len(steps)))
    return found


def parts(asked, entries):
    """The same of means and variances under pure budgets, whose coordinates add up to one row."""
    whole = 2 * asked.half
    if asked.per == "total":
        total = sum(half_away(e * (asked.steps / whole)) for e in entries)
        ups = max(0, min(asked.steps, total - math.floor(asked.low / whole * asked.steps + 0.5)))
        return [ups, ups - asked.steps]
    shares = [(max(asked.low, min(asked.high, e)) - asked.low) / whole for e in entries]
    powers = [[t, t - 1] if isinstance(asked, Mean) else [t * t, (t - 1) ** 2, 2 * t * (t - 1)] for t in shares]
    return [
        half_away(sum(half_away(one * asked.steps) for one in each) / len(entries))
        for each in zip(*powers, strict=True)
    ]


@settings(max_examples=60, deadline=None)
@given(rows=ROWS, shape=st.sampled_from(SHAPES), per=st.sampled_from(["person", "total"]), price=PRICES)
def test_sums_per_person_and_by_total_are_exact(tmp_path_factory, rows, shape, per, price):
    """Before noise, DuckDB's sums are those of plain arithmetic over each person's rows; nothing is clipped."""
    asked = shape(by={"group": GROUPS}, per=per, **price)
    table = {"who": [r[0] for r in rows], "group": [r[1] for r in rows], "value": [r[2] for r in rows]}
    types = pa.schema([("who", pa.string()), ("group", pa.int32()), ("value", pa.float64())])
    with opened(tmp_path_factory.mktemp("q") / "l", pa.table(table, schema=types), budget=budget(asked)) as session:
        sums, _ = exact(session, asked)
    wanted = []
    for group in GROUPS:
        people = {who: [r[2] for r in rows if r[:2] == (who, group)] for who in "abc"}
        vectors = [contribution(asked, entries) for entries in people.values() if entries]
        wanted += [sum(each) for each in zip(*vectors, strict=True)] or [0] * asked.coordinates
    # the root of the number of groups is no whole number of steps: a person in all of them is shrunk by 1e-8 of a row
    assert all(abs(found - want) <= 4 for found, want in zip(sums, wanted, strict=True))


def budget(asked):
    from almoner import filters

    return filters.Basic(epsilon=1e3) if asked.pure else filters.Zcdp(rho=1e3)


def test_a_person_is_one_weight_whatever_the_number_of_their_rows(tmp_path):
    """One person has 90 rows of 1 and ten people have a row of 0: a mean of 1/11 per person, of 0.9 per row."""
    rows = pa.table({"who": [0] * 90 + list(range(1, 11)), "v": [1.0] * 90 + [0.0] * 10})
    with opened(tmp_path / "l", rows) as session:
        found = {}
        for per, more in (("person", {}), ("row", {"clip": 1000}), ("total", {})):
            asked = Mean("v", 0, 1, per=per, **more, **CHEAP)
            count, total = exact(session, asked)[0]
            found[per] = (1 + total / count) / 2
    assert found == pytest.approx({"person": 1 / 11, "row": 0.9, "total": 1 / 11})


def test_whole_totals_are_exact_in_bins(tmp_path):
    """A total that is an edge is in the bin that begins there, however it was added up."""
    rows = pa.table({"who": [1] * 10 + [2] * 3, "v": [1] * 10 + [3, 3, 3]})
    with opened(tmp_path / "l", rows) as session:
        asked = Histogram("v", (0, 9, 10, 11), per="total", **CHEAP)
        assert exact(session, asked)[0] == [0, asked.steps, asked.steps]


def test_a_clip_must_be_given_where_it_changes_the_question():
    """Rows need a clip; what is at most one full row in a group has the longest contribution as its clip."""
    for asked in (lambda: Count(rho=0.1), lambda: Mean("v", 0, 1, per="row", rho=0.1)):
        with pytest.raises(ArgumentError, match=r"clip= must be given"):
            asked()
    assert Mean("v", 0, 1, rho=0.1).clip == 1
    assert People(by={"g": [1, 2, 3, 4]}, rho=0.1).clip == 2
    assert People(by={"g": [1, 2, 3, 4]}, epsilon=0.1).clip == 4
    with pytest.raises(ArgumentError, match="per='row'"):
        Mean("v", 0, 1, clip=8, rho=0.1)
    with pytest.raises(ArgumentError, match="per"):
        Mean("v", 0, 1, per="people", rho=0.1)


def test_the_answer_names_its_estimand():
    """The words tell per whom it is."""
    assert "per person: each person has one weight" in Mean("v", 0, 1, rho=0.1).estimand
    assert "per row" in Quantiles("v", (0, 1), per="row", clip=1, rho=0.1).estimand
    assert "each person's total of v" in Variance("v", 0, 1, per="total", rho=0.1).estimand
