"""Questions: exact sums and charges against plain Python, answers, quotes, secrecy."""

import datetime
import math
from concurrent.futures import ThreadPoolExecutor
from fractions import Fraction

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyarrow import csv, parquet

from bursar import filters
from bursar.curves import zcdp
from bursar.errors import ArgumentError, BudgetExceeded, CopyRefused, DataError, UnknownPerson
from bursar.ledger import Watch, _record
from bursar.queries import Count, Histogram, Mean, People, Quantiles, Session, Sum, Variance
from bursar.queries._answers import answer
from bursar.queries._noise import _measurement
from bursar.queries._questions import STEPS, described, question
from ledgers import RHO, exact

ROWS = {
    "who": ["ann", "ann", "ann", "bob", "bob", "cy", None, "dee"],
    "amount": [1.0, 2.5, 1e9, 3.0, -4.0, math.nan, 7.0, None],
    "place": ["x", "y", "x", "x", "z", "x", "x", None],
    "day": [datetime.date(2011, 12, day) for day in (1, 1, 2, 1, 2, 2, 1, 1)],
    "paid": [True, False, True, True, None, True, True, True],
    "n": [1, 2, 3, 4, 5, 6, 7, 8],
}
CHEAP = {"sigma": 1000.0}


@pytest.fixture
def path(tmp_path):
    return tmp_path / "people.ledger"


def opened(path, data=None, **options):
    data = pa.table(ROWS) if data is None else data
    return Session.open(data, **{"person": "who", "budget": filters.Zcdp(rho=1.0), "ledger": path, **options})


def without_noise(session, asked):
    """The values that the question would have without noise."""
    return answer(asked, exact(session, asked)[0], "key").values


def naive(rows, asked, keys):
    """The same by plain Python and fractions, without bounds per group: sums and everybody's units.

    Args:
        rows: (person, group, value) with values that are numbers.
        asked: Count, Sum, Mean, Variance or Histogram, with ``keys`` for its groups.
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
        square = sum(x * x for x in vector)
        if square > asked.clip_steps**2:
            factor = asked.clip_steps * (1 - 1e-8) / math.sqrt(square)
            vector = [math.trunc(x * factor) for x in vector]
            units[person] = asked.price
        elif square:
            cost = Fraction(square) * RHO / (2 * Fraction(asked.noise * STEPS) ** 2)
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
    clipped = max(asked.low, min(asked.high, value))
    if isinstance(asked, Sum):
        return [half_away(clipped * (asked.steps / asked.full))]
    away = clipped - asked.middle
    found = [asked.steps, half_away(away * (asked.steps / asked.half))]
    if isinstance(asked, Variance):
        found.append(half_away(away / asked.half * (away / asked.half) * asked.steps))
    return found


def half_away(value):
    return math.floor(abs(value) + 0.5) * (1 if value >= 0 else -1)


values = st.one_of(st.floats(-50, 50), st.integers(-50, 50).map(float), st.sampled_from([1e300, -math.inf, math.inf]))
events = st.lists(st.tuples(st.sampled_from([None, "a", "b", "c d", "é"]), st.integers(0, 3), values), max_size=30)
shapes = st.sampled_from(
    [
        lambda **o: Count(**o),
        lambda **o: Sum("value", -10.0, 7.5, **o),
        lambda **o: Mean("value", -1.0, 20.25, **o),
        lambda **o: Variance("value", 0.0, 30.0, **o),
        lambda **o: Histogram("value", (-10.0, 0.0, 0.5, 10.0), **o),
        lambda **o: Histogram("value", tuple(range(-20, 21)), **o),
    ]
)


@settings(max_examples=60)
@given(rows=events, shape=shapes, clip=st.sampled_from([0.5, 1.0, 2.7, 40.0]), sigma=st.floats(80, 1e6))
def test_sums_and_charges_are_exact(tmp_path_factory, rows, shape, clip, sigma):
    """Before noise, DuckDB's sums are those of plain whole-number arithmetic; charges are the exact ones rounded up."""
    asked = shape(by={"group": [2, 0, 1]}, clip=clip, sigma=sigma)
    table = pa.table(
        {
            "who": pa.array([row[0] for row in rows], pa.string()),
            "group": pa.array([row[1] for row in rows], pa.int32()),
            "value": pa.array([row[2] for row in rows], pa.float64()),
        }
    )
    with opened(tmp_path_factory.mktemp("q") / "l", table, budget=filters.Zcdp(rho=1e3)) as session:
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
        mean = without_noise(session, Mean("amount", 0, 10, clip=100, **CHEAP))[0]
        assert mean == pytest.approx((1 + 2.5 + 10 + 3 + 0) / 5, abs=1e-4)
        spread = without_noise(session, Variance("amount", 0, 10, clip=100, **CHEAP))[0]
        assert spread == pytest.approx(12.36, abs=1e-3)
        assert without_noise(session, Histogram("amount", (0, 2, 3, 10), clip=100, **CHEAP)) == [[2.0, 1.0, 2.0]]
        assert without_noise(session, Quantiles("n", tuple(range(10)), clip=100, **CHEAP))[0][0] == pytest.approx(
            5.0, abs=1
        )


WHERE = [
    ("place = 'x'", 4),
    ("place != 'x'", 2),
    ("place in ('y', 'z')", 2),
    ("place not in ('y')", 5),
    ("place is null", 1),
    ("place is not null and not place = 'x'", 2),
    ("paid", 5),
    ("not paid", 1),
    ("paid is null or n >= 6", 3),
    ("n between 2 and 4", 3),
    ("n not between 2 and 4", 4),
    ("n > 2.5 and n < 5.0", 2),
    ("n in (1, 2.0, 3.5)", 2),
    ("amount > n", 2),
    ("4 <= n", 4),
    ("day = '2011-12-01' and (n = 1 or (n = 2 or n = 4))", 3),
    ("\"day\" > '2011-12-01'", 3),
    ("paid = true", 5),
    ("n = 1e0", 1),
    ("amount < -1e300", 0),
]


@pytest.mark.parametrize(("where", "rows"), WHERE)
def test_filters_choose_rows(path, where, rows):
    """Each form of the language chooses the rows that SQL would."""
    with opened(path) as session:
        assert without_noise(session, Count(where=where, clip=100, **CHEAP)) == [rows]


REFUSED = [
    "",
    "n",
    "n =",
    "= n",
    "1 = 1",
    "n = 'x'",
    "place = 1",
    "nothing = 1",
    "day = 'yesterday'",
    "paid = 1",
    "n = 1; drop table data",
    "n = 1 -- comment",
    "n = (select 1)",
    "sum(n) > 1",
    "n + 1 = 2",
    "place like 'x%'",
    "place = 'x' or",
    "place is 'x'",
    "place not 'x'",
    "n in ()",
    "n in (n)",
    "n between n and 3",
    "place = x",
    "((n = 1)",
    "n = 1)",
    "place = 'it''s",
    "not " * 50 + "paid",
    "(" * 50 + "paid" + ")" * 50,
    "n = 1e999",
    "n = nan",
    "data.n = 1",
    "place = '\ud800'",
    "paid and" * 2000 + " paid",
]


@pytest.mark.parametrize("where", REFUSED, ids=lambda where: where[:20].encode("ascii", "replace").decode())
def test_what_is_not_in_the_language_is_refused(path, where):
    """Anything else is an argument error before anything is computed or charged."""
    with opened(path) as session:
        with pytest.raises(ArgumentError):
            session.analyst("a").ask(Count(where=where, **CHEAP), key="k")
        assert session.ledger.entries("answered") == []


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
            lambda **o: Mean("n", 0, 8, clip=2.0, per_group=1.2, **o),
            lambda **o: People(clip=1.0, **o),
        ):
            few = exact(session, make(by={"place": ["x", "y", "z"]}, **CHEAP))
            many = exact(session, make(by={"place": ["x", "y", "z", *map(str, range(40))]}, **CHEAP))
            assert many[0][: len(few[0])] == few[0]
            assert not any(many[0][len(few[0]) :])
            assert many[1] == few[1]


def test_nobody_is_charged_above_the_budget_and_the_rest_goes_on(path):
    """People are charged their own share, left out when they cannot pay, and all of that is invisible to analysts."""
    with opened(path, budget=filters.Zcdp(rho=1e-3)) as session:
        analyst = session.analyst("ann")
        asked = Count(clip=3, rho=4.5e-4)
        for turn in range(6):
            seen = analyst.ask(asked, key=f"turn {turn}")
            assert set(seen.__slots__) == {
                "key",
                "question",
                "groups",
                "values",
                "intervals",
                "rho",
                "released",
                "complete",
            }
            assert seen.complete is None  # no watch was asked for
            assert seen.rho == pytest.approx(4.5e-4)
        assert session.ledger.spent("ann") == pytest.approx(2 * 4.5e11, rel=1e-9)
        assert session.ledger.spent("bob") == pytest.approx(5 * 2e11, rel=1e-9)
        assert session.ledger.spent("dee") == pytest.approx(6 * 0.5e11, rel=1e-9)
        assert all(finding.holds for finding in session.verify(replay=True))
        assert "ann" not in repr(session)


def test_how_many_can_still_pay(path):
    """People with a spare amount are those, and only those, who have it left after paying for being counted."""
    rows = pa.table({"who": [f"p{i}" for i in range(300)], "heavy": [i < 200 for i in range(300)]})
    with opened(path, rows, budget=filters.Zcdp(rho=1.0)) as session:
        analyst = session.analyst("ann")
        assert analyst.ask(People(sigma=4.0, spare=0.9), key="a").value == pytest.approx(300, abs=30)
        for turn in range(4):
            analyst.ask(Count(where="heavy", rho=0.2), key=f"turn {turn}")
        assert analyst.ask(People(sigma=4.0, spare=0.2), key="b").value == pytest.approx(100, abs=30)
        assert session.ledger.spent("p0") == pytest.approx(0.8 * RHO + RHO / 32, rel=1e-9)
        assert session.ledger.spent("p299") == pytest.approx(RHO / 16, rel=1e-9)
        with pytest.raises(BudgetExceeded):
            analyst.ask(People(sigma=4.0, spare=1.0), key="c")
        session.limit(0.5, analyst="ann")
        assert abs(analyst.ask(People(sigma=4.0, spare=0.3), key="d").value - 100) < 30
        assert all(finding.holds for finding in session.verify(replay=True))
        assert question(described(People(sigma=4.0, spare=0.5))) == People(sigma=4.0, spare=0.5)


def test_the_same_key_gives_the_same_answer_and_costs_nothing(path):
    """Also after opening again; the key cannot be used for another question, analyst or purpose."""
    asked = Mean("n", 0, 8, by={"place": ["x", "y"]}, sigma=30.0)
    with opened(path) as session:
        first = session.analyst("ann").ask(asked, key="k")
        spent = session.ledger.spent("bob")
    with opened(path) as session:
        ann = session.analyst("ann")
        assert ann.ask(asked, key="k") == first
        assert ann.answers() == [first]
        assert session.analyst("bea").answers() == []
        assert session.ledger.spent("bob") == spent > 0
        for other, more in ((session.analyst("bea"), asked), (ann, Count(sigma=30.0))):
            with pytest.raises(ArgumentError, match="used for another question"):
                other.ask(more, key="k")
        with pytest.raises(ArgumentError, match="used for another question"):
            session.analyst("ann", purpose="p").ask(asked, key="k")


def test_quotes_are_public_and_change_nothing(path):
    """A quote tells the worst price, the standard error and a margin; it needs no rows of anybody."""
    with opened(path) as session:
        analyst = session.analyst("ann")
        quoted = analyst.quote(Sum("amount", 0, 10, clip=2, sigma=20.0))
        assert quoted.rho == pytest.approx(0.005)
        assert quoted.of_budget == pytest.approx(0.005)
        assert quoted.standard_errors == {"sum": 200.0}
        assert quoted.margins["sum"] == pytest.approx(392, abs=0.1)
        assert analyst.quote(Count(rho=0.02)).rho == pytest.approx(0.02, rel=1e-12)
        assert analyst.quote(Count(rho=0.02)).rho <= 0.02 * (1 + 1e-12)
        with pytest.raises(ArgumentError, match="not in the data"):
            analyst.quote(Sum("nothing", 0, 1, sigma=2.0))
        assert len(session.ledger.entries()) == 1


def test_a_question_dearer_than_the_budget_is_refused(path):
    """By public facts alone, nothing is recorded, and the session stays open."""
    with opened(path) as session:
        with pytest.raises(BudgetExceeded):
            session.analyst("ann").ask(Count(sigma=0.5), key="k")
        session.analyst("ann").ask(Count(sigma=2.0), key="k")
        session.limit(0.126, analyst="ann")
        with pytest.raises(BudgetExceeded):
            session.analyst("ann").ask(Count(sigma=1.9), key="l")
        session.analyst("bea").ask(Count(sigma=1.9), key="l")


def test_reserve_and_release(path):
    """What is reserved is there for its question, and no other."""
    with opened(path) as session:
        session.reserve(0.9, key="census")
        analyst = session.analyst("ann")
        with pytest.raises(BudgetExceeded):
            analyst.ask(Count(rho=0.2), key="a")
        analyst.ask(Count(rho=0.9), key="b", reserved="census")
        session.reserve(0.5, key="more")
        session.release("more")
        assert all(finding.holds for finding in session.verify(replay=True))


def test_statement(path):
    """Everybody's own statement lists the questions that charged them, the total, and what it means."""
    with opened(path, budget=filters.Zcdp(epsilon=1.0, delta=1e-6)) as session:
        analyst = session.analyst("ann", purpose="weekly")
        analyst.ask(Count(sigma=50.0), key="a")
        analyst.ask(Count(where="place = 'z'", sigma=50.0), key="b")
        analyst.ask(Sum("n", 0, 8, sigma=50.0), key="c")
        told = session.statement("dee")
        assert [line.key for line in told.lines] == ["a", "c"]
        assert told.rho == pytest.approx(4e-4)
        assert told.epsilon == pytest.approx(1.0)
        assert "2 answers used your records" in told.words
        assert str(told) == told.words
        assert "private" in repr(told)  # what was spent on somebody is in no repr, log or traceback
        assert not any(character.isdigit() for character in f"{told!r}{told.lines!r}")
        assert session.statement("nobody").lines == ()
        assert "1" in session.statement("bob", delta=1e-9).words


def test_a_statement_rounds_the_budget_up(path):
    """The epsilon of a statement is that of no smaller budget than the one that may be spent."""
    with opened(path, budget=filters.Zcdp(rho=0.3)) as session:
        told = session.statement("ann")
        assert Fraction(told.budget) * RHO >= session.ledger.budget_units
        assert told.epsilon >= zcdp.Zcdp(told.budget).epsilon(delta=told.delta)


def test_people_leave_and_return(path):
    """Who left is in no answer and keeps the account."""
    with opened(path) as session:
        session.retire("ann")
        analyst = session.analyst("x")
        analyst.ask(Count(sigma=5.0), key="a")
        assert session.ledger.spent("ann") == 0
        session.restore("ann")
        analyst.ask(Count(sigma=5.0), key="b")
        assert session.ledger.spent("ann") == RHO // 50
        assert all(finding.holds for finding in session.verify(replay=True))


def test_replay_sees_changed_rows(path):
    """When rows are not the same any more, re-running the charges gives other accounts, and verify says so."""
    with opened(path) as session:
        session.analyst("x").ask(Count(sigma=5.0, clip=3), key="a")
        head = session.ledger.head
    fewer = pa.table(ROWS).slice(1)
    with opened(path, fewer) as session:
        findings = session.verify(replay=True, head=head)
        assert [finding.holds for finding in findings] == [True] * (len(findings) - 1) + [False]


def test_noise_is_the_noise_that_was_promised(path):
    """Standard deviation and mean of 2000 answers' noise, within five standard errors."""
    with opened(path, budget=filters.Zcdp(rho=100.0)) as session:
        keys = list(range(2000))
        found = session.analyst("x").ask(Count(by={"n": keys}, clip=3, sigma=4.0), key="a").values[9:]
        spread = math.sqrt(sum(v * v for v in found) / len(found))
        assert abs(spread - 4.0) < 5 * 4.0 / math.sqrt(2 * len(found))
        assert abs(sum(found) / len(found)) < 5 * 4.0 / math.sqrt(len(found))


@pytest.mark.parametrize("sigma", [0.37, 20.0, 12345.678])
def test_the_price_is_what_the_library_of_the_noise_says(sigma):
    """OpenDP's own privacy map of the mechanism that is run gives the price, and not more."""
    asked = Count(clip=2.5, sigma=sigma)
    rho = _measurement(asked.mechanism.sigma).map(float(asked.clip_steps))
    assert rho <= asked.price / RHO * (1 + 1e-12)
    assert asked.price / RHO <= rho * (1 + 1e-9) + 1e-15


def test_clock_going_backwards(path, monkeypatch):
    """Times are noted and nothing depends on them."""
    times = iter([datetime.datetime(2030, 1, 1), datetime.datetime(2020, 1, 1), datetime.datetime(1970, 1, 1)])

    class Clock:
        @staticmethod
        def now(zone):
            return next(times)

    monkeypatch.setattr(_record, "datetime", Clock)
    with opened(path) as session:
        for key in ("a", "b"):
            session.analyst("x").ask(Count(sigma=5.0), key=key)
        assert [line.key for line in session.statement("ann").lines] == ["a", "b"]
        assert all(finding.holds for finding in session.verify(replay=True))


def test_questions_from_several_threads(path):
    """Questions wait for each other: every key is charged once, whoever asks it."""
    with opened(path) as session:
        analysts = [session.analyst(f"analyst {number}") for number in range(4)]

        def work(analyst):
            return [analyst.ask(Count(sigma=50.0), key=f"{analyst!r} {turn % 5}").value for turn in range(10)]

        with ThreadPoolExecutor(4) as pool:
            found = list(pool.map(work, analysts))
        assert all(values[:5] == values[5:] for values in found)
        assert len(session.statement("ann").lines) == 20
        assert all(finding.holds for finding in session.verify(replay=True))


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
                (Mean("v", 0, 100, by=by, clip=20, sigma=10.0), lambda g: 50.0),
                (Variance("v", 0, 100, by=by, clip=20, sigma=10.0), lambda g: (100**2 - 1) / 12),
                (Quantiles("v", tuple(range(0, 101, 5)), by=by, clip=20, sigma=3.0), lambda g: 50.0),
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


def test_engines_of_tables_agree(tmp_path):
    """pandas, Polars, Arrow, Parquet, CSV, folders, DuckDB tables and views give the same sums and charges."""
    import duckdb

    pandas, polars = pytest.importorskip("pandas"), pytest.importorskip("polars")
    from pyarrow import csv, parquet

    table = pa.table({name: column for name, column in ROWS.items() if name != "amount"})
    (tmp_path / "parts").mkdir()
    parquet.write_table(table, tmp_path / "all.parquet")
    parquet.write_table(table.slice(0, 3), tmp_path / "parts" / "a.parquet")
    parquet.write_table(table.slice(3), tmp_path / "parts" / "b.parquet")
    csv.write_csv(table, tmp_path / "all[1].csv")
    with duckdb.connect(str(tmp_path / "all.duckdb")) as connection:
        connection.execute(f'CREATE TABLE "odd ""table" AS SELECT * FROM \'{tmp_path}/all.parquet\'')
    sources = [
        (table, {}),
        (table.to_pandas(), {}),
        (polars.from_arrow(table), {}),
        (tmp_path / "all.parquet", {}),
        (tmp_path / "parts", {}),
        (str(tmp_path / "all[1].csv"), {}),
        (tmp_path / "all.duckdb", {"table": 'odd "table'}),
        (table, {"view": "SELECT * FROM data WHERE TRUE;"}),
    ]
    assert isinstance(sources[1][0], pandas.DataFrame)
    asked = Sum("n", 0, 8, where="paid and day <= '2011-12-02'", by={"place": ["x", "y"]}, clip=1.5, **CHEAP)
    found = []
    for number, (data, options) in enumerate(sources):
        with opened(tmp_path / f"l{number}", data, **options) as session:
            found.append(exact(session, asked))
    assert all(each == found[0] for each in found)
    assert any(found[0][0])


def test_data_that_cannot_be_read(tmp_path):
    """Missing files, wrong endings, mixed folders, broken files and views are errors that quote nothing from them."""
    broken = tmp_path / "broken.parquet"
    broken.write_text("secret " * 100)
    mixed = tmp_path / "mixed"
    mixed.mkdir()
    (mixed / "a.csv").write_text("who\n1\n")
    (mixed / "b.parquet").write_text("secret")
    other = tmp_path / "other.txt"
    other.write_text("secret")
    for data, options, error in [
        (tmp_path / "none.csv", {}, DataError),
        (other, {}, DataError),
        (broken, {}, DataError),
        (mixed, {}, DataError),
        (tmp_path / "mixed" / "a.csv", {"table": "t"}, ArgumentError),
        (pa.table(ROWS), {"view": "SELECT secret FROM data"}, DataError),
        (pa.table(ROWS), {"person": "amount"}, ArgumentError),
        (pa.table(ROWS), {"person": "nobody"}, ArgumentError),
        (17, {}, ArgumentError),
    ]:
        with pytest.raises(error) as refused:
            opened(tmp_path / "l", data, **options)
        assert "secret" not in str(refused.value)
        assert not (tmp_path / "l").exists()


def test_entries_that_break_a_view_quote_nothing(path):
    """A view that fails on an entry fails without the entry and charges nobody; whose it is cannot be probed for."""
    with opened(path, view="SELECT who, CAST(place AS INTEGER) AS secret FROM data") as session:
        with pytest.raises(DataError, match="nothing was charged") as refused:
            session.analyst("x").ask(Count(where="secret = 1", sigma=9.0), key="a")
        error = refused.value
        while error is not None:
            assert "'x'" not in str(error)
            error = error.__cause__ or error.__context__
        assert session.analyst("x").answers() == []
        with pytest.raises(DataError, match="open the session again"):  # also a question that touches no such entry
            session.analyst("y").ask(Count(sigma=9.0), key="b")
    with opened(path) as session:
        told = session.analyst("y").ask(Count(sigma=9.0), key="b")
    with opened(path, view="SELECT who, CAST(place AS INTEGER) AS secret FROM data") as session:
        with pytest.raises(DataError):
            session.analyst("x").ask(Count(where="secret = 1", sigma=9.0), key="a")
        assert session.analyst("y").ask(Count(sigma=9.0), key="b") == told


WRONG = [
    lambda: Count(),
    lambda: Count(sigma=1.0, rho=1.0),
    lambda: Count(sigma=math.nan),
    lambda: Count(sigma=0.0),
    lambda: Count(sigma=1.0, clip=math.inf),
    lambda: Count(sigma=1.0, clip=0),
    lambda: Count(sigma=1.0, per_group=-1),
    lambda: Count(sigma=0.001, clip=1e6),
    lambda: Count(sigma=1.0, by={"a": []}),
    lambda: Count(sigma=1.0, by={"a": "text"}),
    lambda: Count(sigma=1.0, by={"a": [1, 1]}),
    lambda: Count(sigma=1.0, by={"a": [1.5]}),
    lambda: Count(sigma=1.0, by={"a": [None]}),
    lambda: Count(sigma=1.0, by={"a": ["x" * 1001]}),
    lambda: Count(sigma=1.0, by={"a": range(10_000), "b": range(10_000)}),
    lambda: Sum("a", 1.0, 1.0, sigma=1.0),
    lambda: Sum("a", 2.0, 1.0, sigma=1.0),
    lambda: Sum("a", math.nan, 1.0, sigma=1.0),
    lambda: Sum("a", -math.inf, 1.0, sigma=1.0),
    lambda: Sum("a", 1.0, 1.0 + 1e-12, sigma=1.0),
    lambda: Sum(3, 0.0, 1.0, sigma=1.0),
    lambda: Histogram("a", (1.0,), sigma=1.0),
    lambda: Histogram("a", (1.0, 1.0), sigma=1.0),
    lambda: Histogram("a", (0.0, math.nan), sigma=1.0),
    lambda: Histogram("a", "01", sigma=1.0),
    lambda: Histogram("a", tuple(range(5000)), sigma=1.0),
    lambda: Quantiles("a", (0.0, 1.0), levels=(), sigma=1.0),
    lambda: Quantiles("a", (0.0, 1.0), levels=(1.5,), sigma=1.0),
    lambda: question({"ask": "delete"}),
    lambda: question({"ask": "count", "sigma": 1.0, "having": "x"}),
    lambda: question({"ask": "sum", "column": "a", "sigma": 1.0}),
    lambda: question({"ask": "count", "sigma": "much"}),
    lambda: question({"ask": "count", "sigma": 1.0, "by": [1]}),
]


@pytest.mark.parametrize("make", WRONG)
def test_questions_that_make_no_sense(make):
    """Each is an argument error."""
    with pytest.raises(ArgumentError):
        make()


def test_questions_as_plain_values():
    """What ``described`` wrote is the same question again."""
    for asked in (
        Count(where="a = 1", by={"b": ["x", 1, True], "c": (datetime.date(2011, 1, 2),)}, clip=3, rho=0.5),
        Quantiles("v", (0, 1, 2.5), levels=(0.1, 0.9), sigma=3.0, per_group=2.0),
        Variance("v", -1, 1, sigma=1e4),
    ):
        assert question(described(asked)) == asked


def test_columns_that_do_not_fit(path):
    """Texts are not summed, and nobody groups by a float."""
    with opened(path) as session:
        for asked in (
            Sum("place", 0, 1, sigma=9.0),
            Histogram("day", (0, 1), sigma=9.0),
            Count(by={"amount": [1]}, sigma=9.0),
            Count(by={"n": ["x"]}, sigma=9.0),
            Count(by={"day": ["2011-12-01", "20111201"]}, sigma=9.0),
            Count(by={"nothing": [1]}, sigma=9.0),
        ):
            with pytest.raises(ArgumentError):
                session.analyst("x").ask(asked, key="k")
        with pytest.raises(ArgumentError):
            session.analyst("x").ask("SELECT 1", key="k")
        with pytest.raises(ArgumentError):
            session.analyst("x").ask(Count(sigma=9.0), key="")
        with pytest.raises(ArgumentError):
            session.analyst("x\n")
        with pytest.raises(CopyRefused):
            __import__("copy").copy(session)


def test_whole_numbers_as_names(tmp_path):
    """People named by whole numbers have whole-number accounts; a ledger for texts refuses them."""
    rows = pa.table({"who": [1, 1, -5, None], "n": [1, 2, 3, 4]})
    with opened(tmp_path / "a", rows) as session:
        session.analyst("x").ask(Count(clip=2, sigma=9.0), key="k")
        assert session.ledger.spent(1) == 4 * session.ledger.spent("-5") > 0
        assert session.ledger.spent(np.int64(1)) == session.ledger.spent("1")
        for nobody in ("9" * 5000, "1.0", "0x1", "", "-", 1.0, True, None, 2**63):
            with pytest.raises(UnknownPerson):
                session.ledger.spent(nobody)
    with opened(tmp_path / "b"):
        pass
    with pytest.raises(ArgumentError, match="person"):
        opened(tmp_path / "b", rows)


def test_a_ledger_says_in_words_what_it_was_made_for(path):
    """Another budget or another kind of names: refused, with both values in rho and in words, not in units."""
    opened(path).close()
    with pytest.raises(ArgumentError, match="rho = 1 for each person, not 2"):
        opened(path, budget=filters.Zcdp(rho=2.0))
    with pytest.raises(ArgumentError, match=r"names that are text, not .*, whole numbers"):
        opened(path, pa.table({"who": [1, 2], "n": [1.0, 2.0]}))


@pytest.mark.parametrize(
    ("view", "words"),
    [
        ("SELEC who FROM data", "view: .*syntax error"),
        ("SELECT whom FROM data", "view: .*columns there that it names"),
        ("SELECT * FROM rows", "view: .*is called data"),
        ("SELECT amount FROM data", "person='who' is no column"),
    ],
)
def test_a_wrong_view_says_what_is_wrong_with_it(path, view, words):
    """The reason comes from the view's own text, and not from anybody's rows; no ledger is made."""
    with pytest.raises((DataError, ArgumentError), match=words):
        opened(path, view=view)
    assert not path.exists()


def test_threads_are_a_whole_number(path):
    """Refused by name, before a ledger is made or opened."""
    with pytest.raises(ArgumentError, match="threads=0"):
        opened(path, threads=0)


@pytest.mark.parametrize("library", ["pandas", "polars", "pyarrow"])
def test_keys_may_be_a_column_of_a_public_table(library):
    """Of texts, numbers and dates: the same question as with a list."""
    module, listed = pytest.importorskip(library), {"w": ["a", "b"], "n": [3, 1], "d": ["2011-01-01", "2011-01-02"]}
    days = [datetime.date.fromisoformat(day) for day in listed["d"]]
    wards = (module.table if library == "pyarrow" else module.DataFrame)(listed | {"d": days})
    for column, keys in listed.items():
        assert Count(sigma=2.0, by={column: wards[column]}) == Count(sigma=2.0, by={column: keys})


@pytest.mark.parametrize("kind", ["parquet", "csv"])
def test_a_folder_hides_nobodys_rows(tmp_path, kind):
    """Folders that are links, which no reader follows, and files without the person's column, whose rows would be
    nobody's, are refused."""
    folder, elsewhere = tmp_path / "data", tmp_path / "elsewhere"
    for where, name, column in ((folder, "a", "who"), (elsewhere, "b", "who")):
        where.mkdir()
        table = pa.table({column: ["ann", "bob"], "n": [1, 2]})
        if kind == "csv":
            csv.write_csv(table, where / f"{name}.csv")
        else:
            parquet.write_table(table, where / f"{name}.parquet")
    (folder / "more").symlink_to(elsewhere)
    with pytest.raises(DataError, match="link to a folder"):
        opened(tmp_path / "l", folder)
    (folder / "more").unlink()
    (folder / "more").symlink_to(tmp_path / "nowhere")
    with pytest.raises(DataError, match="or to nothing"):
        opened(tmp_path / "l", folder)
    (folder / "more").unlink()
    lacking = pa.table({"whose": ["cy", "dee"], "n": [1, 2]})
    if kind == "csv":
        csv.write_csv(lacking, folder / "c.csv")
    else:
        parquet.write_table(lacking, folder / "c.parquet")
    with pytest.raises(DataError, match="'who' must be in all files"):
        opened(tmp_path / "l", folder)
    with opened(
        tmp_path / "l", folder, view="SELECT coalesce(who, whose) AS person, n FROM data", person="person"
    ) as s:
        assert without_noise(s, People(sigma=100.0)) == [4]


def test_what_only_looks_equal_is_another_question(path):
    """To Python 1 is True; a question about the one is not answered by what was made ready for the other."""
    with opened(path) as session:
        analyst = session.analyst("ann")
        analyst.quote(Count(by={"n": [1, 0]}, sigma=100.0))
        with pytest.raises(ArgumentError):
            analyst.quote(Count(by={"n": [True, False]}, sigma=100.0))


def test_arguments_of_a_wrong_type_leave_the_session_open(path):
    """Whole numbers of NumPy are whole numbers; a key that is none is named."""
    with opened(path) as session:
        analyst = session.analyst("ann")
        with pytest.raises(ArgumentError, match="reserved="):
            analyst.ask(Count(sigma=100.0), key="a", reserved=[5])
        with pytest.raises(ArgumentError, match="key="):
            session.release([5])
        session.ledger.limit(np.int64(10**12), analyst="bea")
        session.ledger.reserve(np.int64(10**12), key="later")
        session.watch(np.int64(300), epsilon=0.2)
        analyst.ask(Count(sigma=100.0), key="a")
        assert all(finding.holds for finding in session.verify())


def test_a_watch_without_noise_and_a_budget_of_nothing_are_refused(path):
    """The threshold's noise is drawn by the session; less than a unit is no budget."""
    with opened(path) as session, pytest.raises(ArgumentError, match="no noise"):
        session.ledger.watch(Watch(300, 0.2))
    with pytest.raises(ArgumentError, match="1e-15 of rho"):
        opened(path.with_name("other"), budget=filters.Zcdp(rho=1e-16))


def test_passwords_are_in_no_message(tmp_path, monkeypatch):
    """Connection strings that are spelled otherwise are refused, not taken for files."""
    monkeypatch.chdir(tmp_path)
    for place in ("PostgreSQL://u:SECRET@h/db", "postgresql+psycopg://u:SECRET@h/db", " postgresql://u:SECRET@h/db",
                  "host=h password=SECRET"):  # fmt: skip
        with pytest.raises(ArgumentError, match="begins with postgresql") as refused:
            opened(place)
        assert "SECRET" not in str(refused.value)
    assert list(tmp_path.iterdir()) == []


def test_rows_are_read_once_for_a_question_and_its_watch(path):
    """Rows that come out differently at each reading do not make the watch speak."""
    people = pa.table({"who": list(range(2000))})
    with opened(path, people, view="SELECT * FROM data WHERE random() < 0.5") as session:
        session.watch(20, epsilon=1.0)
        analyst = session.analyst("ann")
        assert all(analyst.ask(People(sigma=50.0), key=f"{number}").complete for number in range(10))


def test_a_purpose_by_the_name_of_none_is_a_purpose(path):
    """A limit on it does not concern questions without any, not even when they are charged again."""
    with opened(path) as session:
        session.limit(0.25, purpose="None")
        session.analyst("ann").ask(Count(rho=0.2), key="a")
        session.analyst("ann", purpose="None").ask(Count(rho=0.2), key="b")
        assert all(finding.holds for finding in session.verify(replay=True))


def test_an_answer_is_there_when_its_column_is_not(path):
    """What was paid for is told again under its key, whatever became of the data."""
    with opened(path) as session:
        first = session.analyst("ann").ask(Sum("amount", 0, 4, sigma=1000.0), key="a")
    rest = {name: values for name, values in ROWS.items() if name != "amount"}
    with opened(path, pa.table(rest)) as session:
        assert session.analyst("ann").ask(Sum("amount", 0, 4, sigma=1000.0), key="a").values == first.values
        with pytest.raises(ArgumentError, match="amount"):
            session.analyst("ann").ask(Sum("amount", 0, 4, sigma=1000.0), key="b")
        with pytest.raises(ArgumentError, match="must be one of"):
            session.analyst("ann").ask(5, key="c")
