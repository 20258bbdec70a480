"""Questions as SQL: exact sums and charges against plain Python."""

import datetime
import math
from fractions import Fraction

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from almoner import filters
from almoner.errors import ArgumentError, CopyRefused
from almoner.queries import Count, Covariance, Histogram, Mean, People, Quantiles, Ratio, Regression, Sum, Top, Variance
from almoner.queries._questions.noise import STEPS
from almoner.queries._sql import compiler
from ledgers import RHO, exact
from sessions import CHEAP, opened, without_noise


def naive(rows, asked, keys):
    """The same by plain Python and fractions, without bounds per group: sums and everybody's units.

    Args:
        rows: (person, group, value) with values that are numbers.
        asked: any question whose coordinates are sums over rows, with ``keys`` for its groups.
    """
    width = asked.coordinates
    everybody = {}
    for person, group, value in rows:
        if person is None or group not in keys:
            continue
        vector = everybody.setdefault(person, [0] * (width * len(keys)))
        start = keys.index(group) * width
        for place, step in enumerate(steps(asked, value)):
            vector[start + place] += step
    total, units = [0] * (width * len(keys)), {}
    for person, vector in everybody.items():
        square = sum(map(abs, vector)) if asked.pure else sum(x * x for x in vector)
        if square > (asked.clip_steps if asked.pure else asked.clip_steps**2):
            factor = asked.clip_steps * (1 - 1e-8) / (square if asked.pure else math.sqrt(square))
            vector = [math.trunc(x * factor) for x in vector]
            units[person] = asked.price
        elif square:
            noise = Fraction(asked.noise * STEPS)
            cost = Fraction(square) * RHO / (noise if asked.pure else 2 * noise**2)
            units[person] = math.ceil(cost)
        total = [a + b for a, b in zip(total, vector, strict=True)]
    return total, units


def steps(asked, value):
    """One row in whole steps."""
    if isinstance(asked, Count):
        return [asked.steps]
    if isinstance(asked, Histogram):
        place = max(0, min(asked.coordinates - 1, sum(value >= edge for edge in asked.edges) - 1))
        return [asked.steps * (place == j) for j in range(asked.coordinates)]
    if isinstance(asked, Top):
        return [asked.steps * (key == (value >= 1)) for key in asked.among]
    if isinstance(asked, Ratio):
        low, high = asked.numerator_bounds
        entry = max(low, min(high, value)) * (asked.steps / max(abs(low), abs(high)))
        return [half_away(entry) if value > -3 else 0, asked.steps]
    if isinstance(asked, Covariance | Regression):
        return second_moments(asked, value)
    clipped = max(asked.low, min(asked.high, value))
    if isinstance(asked, Sum):
        return [half_away(clipped * (asked.steps / asked.full))]
    if asked.pure:  # parts that add up to one full row
        ups, downs, whole = clipped - asked.low, clipped - asked.high, 2 * asked.half
        if isinstance(asked, Mean):
            return [half_away(each * (asked.steps / whole)) for each in (ups, downs)]
        pairs = ((ups / whole, ups / whole), (downs / whole, downs / whole), (ups / whole, downs / asked.half))
        return [half_away(one * other * asked.steps) for one, other in pairs]
    away = clipped - asked.middle
    found = [asked.steps, half_away(away * (asked.steps / asked.half))]
    if isinstance(asked, Variance):
        found.append(half_away(away / asked.half * (away / asked.half) * asked.steps))
    return found


def second_moments(asked, value):
    """One row of a matrix of second moments, of the columns value and twice (two times value)."""
    shares, found = [], [asked.steps]
    for name, low, high in asked.columns:
        entry = max(low, min(high, value if name == "value" else 2 * value))
        middle, half = low / 2 + high / 2, high / 2 - low / 2
        away = entry - middle if middle else entry
        shares.append(away / half)
        found.append(half_away(away * (asked.steps / half)))
    pairs = [(i, j) for i in range(len(shares)) for j in range(i, len(shares))]
    return found + [half_away(shares[i] * shares[j] * asked.steps) for i, j in pairs]


def half_away(value):
    return math.floor(abs(value) + 0.5) * (1 if value >= 0 else -1)


values = st.one_of(st.floats(-50, 50), st.integers(-50, 50).map(float), st.sampled_from([1e300, -math.inf, math.inf]))


events = st.lists(st.tuples(st.sampled_from([None, "a", "b", "c d", "é"]), st.integers(0, 3), values), max_size=30)


shapes = st.sampled_from(
    [
        lambda **o: Count(**o),
        lambda **o: Sum("value", -10.0, 7.5, **o),
        lambda **o: Mean("value", -1.0, 20.25, per="row", **o),
        lambda **o: Variance("value", 0.0, 30.0, per="row", **o),
        lambda **o: Histogram("value", (-10.0, 0.0, 0.5, 10.0), **o),
        lambda **o: Histogram("value", tuple(range(-20, 21)), **o),
        lambda **o: Top(1, "large", [True, False], count="rows", **o),
        lambda **o: Ratio("value", numerator_bounds=(-2, 9.5), numerator_where="value > -3", **o),
        lambda **o: Covariance({"value": (-10, 7.5), "twice": (-3.0, 11.0)}, **o),
        lambda **o: Regression("twice", {"value": (-10, 10), "twice": (-3.0, 11.0)}, **o),
    ]
)


prices = st.one_of(
    st.floats(80, 1e6).map(lambda sigma: {"sigma": sigma}), st.floats(1e-6, 5).map(lambda epsilon: {"epsilon": epsilon})
)


@settings(max_examples=100)
@given(rows=events, shape=shapes, clip=st.sampled_from([0.5, 1.0, 2.7, 40.0]), price=prices)
def test_sums_and_charges_are_exact(tmp_path_factory, rows, shape, clip, price):
    """Before noise, DuckDB's sums are those of plain whole-number arithmetic; charges are the exact ones rounded up."""
    asked = shape(by={"group": [2, 0, 1]}, clip=clip, **price)
    table = pa.table(
        {
            "who": pa.array([row[0] for row in rows], pa.string()),
            "group": pa.array([row[1] for row in rows], pa.int32()),
            "value": pa.array([row[2] for row in rows], pa.float64()),
            "twice": pa.array([2 * row[2] for row in rows], pa.float64()),
            "large": pa.array([row[2] >= 1 for row in rows], pa.bool_()),
        }
    )
    budget = filters.Basic(epsilon=1e3) if asked.pure else filters.Zcdp(rho=1e3)
    with opened(tmp_path_factory.mktemp("q") / "l", table, budget=budget) as session:
        found, units = exact(session, asked)
    total, wanted = naive(rows, asked, [2, 0, 1])
    assert found == total
    assert set(units) == set(wanted)
    for person, cost in wanted.items():
        assert cost <= units[person] <= cost + 1 + cost * 1e-14


def test_missing_and_odd_entries(path):
    """Rows of nobody, NULL and NaN entries count nowhere; infinite and huge ones are clipped."""
    with opened(path, budget=filters.Zcdp(rho=1.0)) as session:
        assert without_noise(session, Count(clip=100, **CHEAP)) == [7.0]
        assert without_noise(session, People(**CHEAP)) == [4.0]
        total = without_noise(session, Sum("amount", 0, 10, clip=100, **CHEAP))[0]
        assert total == pytest.approx(1 + 2.5 + 10 + 3, abs=1e-4)
        mean = without_noise(session, Mean("amount", 0, 10, per="row", clip=100, **CHEAP))[0]
        assert mean == pytest.approx((1 + 2.5 + 10 + 3 + 0) / 5, abs=1e-4)
        spread = without_noise(session, Variance("amount", 0, 10, per="row", clip=100, **CHEAP))[0]
        assert spread == pytest.approx(12.36, abs=1e-3)
        assert without_noise(session, Histogram("amount", (0, 2, 3, 10), clip=100, **CHEAP)) == [[2.0, 1.0, 2.0]]
        assert without_noise(session, Quantiles("n", tuple(range(10)), per="row", clip=100, **CHEAP))[0][
            0
        ] == pytest.approx(5.0, abs=1)


def test_groups_are_public(path):
    """There is an answer for each given key, in the data or not, in order; rows with other keys do not count."""
    with opened(path) as session:
        by = {"place": ["z", "nowhere", "x"], "day": [datetime.date(2011, 12, 1), "2011-12-02"]}
        asked = Count(by=by, clip=100, **CHEAP)
        assert asked.labels[:2] == [("z", "2011-12-01"), ("z", "2011-12-02")]
        assert without_noise(session, asked) == [0, 1, 0, 0, 2, 2]
        assert without_noise(session, People(by={"n": [1, 2, 9], "paid": [False, True]}, clip=9, **CHEAP)) == [
            0,
            1,
            1,
            0,
            0,
            0,
        ]


@pytest.mark.parametrize("many", [0, 40])
def test_bounds_per_group(path, many):
    """A person's contribution to each group is shrunk first, in few and in many groups alike."""
    rows = {"who": ["a"] * 7 + ["b"], "place": ["x"] * 5 + ["y"] * 2 + ["x"], "n": [1.0, 2, 3, 4, 5, 6, 7, 8]}
    places = ["x", "y", *(f"p{i}" for i in range(many))]
    with opened(path, pa.table(rows)) as session:
        asked = Count(by={"place": places}, per_group=2.0, clip=100, **CHEAP)
        values = without_noise(session, asked)
        assert values[:2] == pytest.approx([3.0, 2.0], abs=1e-5)
        assert not any(values[2:])
        histogram = Histogram("n", (0, 3, 10), by={"place": places}, per_group=1.0, clip=100, **CHEAP)
        first, second = without_noise(session, histogram)[:2]
        assert first == pytest.approx([2 / math.sqrt(13), 3 / math.sqrt(13) + 1], abs=1e-5)
        assert second == pytest.approx([0, 1], abs=1e-5)
        units = exact(session, asked)[1]
        assert units["a"] == pytest.approx(RHO * 8 / 2e6, rel=1e-5)


def test_few_and_many_coordinates_agree(path):
    """The wide and the long form give the same sums and the same charges."""
    with opened(path) as session:
        for make in (
            lambda **o: Count(clip=1.5, **o),
            lambda **o: Mean("n", 0, 8, per="row", clip=2.0, per_group=1.2, **o),
            lambda **o: People(clip=1.0, **o),
        ):
            few = exact(session, make(by={"place": ["x", "y", "z"]}, **CHEAP))
            many = exact(session, make(by={"place": ["x", "y", "z", *map(str, range(40))]}, **CHEAP))
            assert many[0][: len(few[0])] == few[0]
            assert not any(many[0][len(few[0]) :])
            assert many[1] == few[1]


def test_columns_that_do_not_fit(path):
    """Texts are not summed, and nobody groups by a float."""
    with opened(path) as session:
        for asked in (
            Sum("place", 0, 1, clip=1, sigma=9.0),
            Histogram("day", (0, 1), clip=1, sigma=9.0),
            Count(clip=1, by={"amount": [1]}, sigma=9.0),
            Count(clip=1, by={"n": ["x"]}, sigma=9.0),
            Count(clip=1, by={"day": ["2011-12-01", "20111201"]}, sigma=9.0),
            Count(clip=1, by={"nothing": [1]}, sigma=9.0),
        ):
            with pytest.raises(ArgumentError):
                session.analyst("x").ask(asked, key="k")
        with pytest.raises(ArgumentError):
            session.analyst("x").ask("SELECT 1", key="k")
        with pytest.raises(ArgumentError):
            session.analyst("x").ask(Count(clip=1, sigma=9.0), key="")
        with pytest.raises(ArgumentError):
            session.analyst("x\n")
        with pytest.raises(CopyRefused):
            __import__("copy").copy(session)


def test_what_only_looks_equal_is_another_question(path):
    """To Python 1 is True; a question about the one is not answered by what was made ready for the other."""
    with opened(path) as session:
        analyst = session.analyst("ann")
        analyst.quote(Count(clip=1, by={"n": [1, 0]}, sigma=100.0))
        with pytest.raises(ArgumentError):
            analyst.quote(Count(clip=1, by={"n": [True, False]}, sigma=100.0))


_PARTS = [
    Count(clip=40, by={"group": list(range(20))}, **CHEAP),
    People(by={"group": list(range(20))}, **CHEAP),
    Count(clip=9, per_group=1.5, by={"group": list(range(20))}, **CHEAP),
    Histogram("n", tuple(range(20)), clip=40, **CHEAP),
    Quantiles("n", tuple(range(20)), per="row", clip=40, **CHEAP),
    Quantiles("n", tuple(range(20)), per="person", **CHEAP),
    Quantiles("n", tuple(range(20)), per="total", **CHEAP),
    Sum("n", 0, 30, clip=40, by={"group": list(range(20))}, **CHEAP),
    Mean("n", 0, 30, per="row", clip=40, by={"group": list(range(20))}, **CHEAP),
    Count(clip=40, by={"group": list(range(20))}, epsilon=0.01),
    Sum("n", 0, 30, clip=40, by={"group": list(range(20))}, epsilon=0.01),
]


def of_parts(path, monkeypatch, asked, worth):
    """Sums and charges of some people, where the parts of squares that are added up are those of ``worth``."""
    rows = [(person, (person * place) % 20, (7 * place) % 19 + 0.37) for person in range(30) for place in range(person)]
    names = zip(("who", "group", "n"), map(list, zip(*rows, strict=True)), strict=True)
    budget = filters.Basic(epsilon=1e3) if asked.pure else filters.Zcdp(rho=1e3)
    with monkeypatch.context() as patched, opened(path, pa.table(dict(names)), budget=budget) as session:
        patched.setattr(compiler, "_worth", worth)
        return exact(session, asked)


@pytest.mark.parametrize("asked", _PARTS, ids=lambda asked: f"{type(asked).__name__} {asked.pure}")
def test_parts_that_are_left_out_are_zero(tmp_path, monkeypatch, asked):
    """Nobody pays less for it; if the first part were all of any other question, somebody would."""
    middle, high = compiler._MIDDLE, compiler._HIGH
    parts = [middle, compiler._ONE] if asked.pure else [high, middle, compiler._ONE]
    found = [
        of_parts(tmp_path / str(place), monkeypatch, asked, worth)
        for place, worth in enumerate((compiler._worth, lambda _: parts, lambda _: parts[:1]))
    ]
    assert found[0] == found[1]
    assert (found[2] == found[1]) == (len(compiler._worth(asked)) == 1)
