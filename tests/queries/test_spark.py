"""Questions on Spark: the same units and sums as on DuckDB, and accounts that only a commit puts in force."""

import ast
import datetime
import json
import math
import re
import string
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, Phase, assume, given, settings
from hypothesis import strategies as st
from typer.testing import CliRunner

import engine_checks
import forms
import shops
from almoner import filters, ledger
from almoner.cli import app
from almoner.errors import ArgumentError, DataError
from almoner.ledger import Ledger
from almoner.queries import (
    Count,
    Covariance,
    Distinct,
    Histogram,
    Keys,
    Mean,
    People,
    Quantiles,
    Ratio,
    Regression,
    Session,
    Sum,
    Table,
    Top,
    Variance,
)
from almoner.queries._questions.kinds_of import described
from almoner.queries._questions.noise import STEPS
from crashes import campaign_on_spark
from ledgers import counted, exact
from sparks import NO_CODE, cluster, needs_spark, opened, started

pytestmark = [pytest.mark.server, needs_spark]
RHO = 10**15
COUNTED = Count(clip=1, sigma=100.0).price
CHEAP = {"sigma": 1000.0}


@pytest.fixture(scope="module")
def spark(tmp_path_factory):
    """One session for all of this."""
    session = started(tmp_path_factory.mktemp("spark"), **NO_CODE)
    yield session
    session.stop()


@pytest.fixture(autouse=True)
def usual_settings(spark):
    """Each test begins in UTC and with ANSI's errors, whatever the test before has set."""
    spark.conf.set("spark.sql.session.timeZone", "UTC")
    spark.conf.set("spark.sql.ansi.enabled", True)


@pytest.fixture
def path(tmp_path):
    return tmp_path / "people.ledger"


def frame(spark, table, folder):
    """A data frame with the types of an Arrow table; names may differ by case alone."""
    pq.write_table(table.rename_columns([f"c{place}" for place in range(table.num_columns)]), folder / "rows.parquet")
    return spark.read.parquet(str(folder / "rows.parquet")).toDF(*table.column_names)


values = st.one_of(
    st.none(),
    st.floats(-50, 50),
    st.integers(-50, 50).map(float),
    st.sampled_from([math.nan, math.inf, -math.inf, 1e300, -1e-300, 0.5, -0.0, 2.0**53 + 2]),
)
wholes = st.one_of(st.none(), st.integers(-3, 3), st.sampled_from([2**63 - 1, -(2**63), 2**53 + 1]))
texts = st.one_of(st.none(), st.sampled_from(["x", "y", " 1 ", "1", "it's", "\\", "a\\'b", "X", "é", "e\u0301", ""]))
days = st.one_of(
    st.none(), st.dates(datetime.date(1, 1, 1), datetime.date(9999, 12, 31)), st.just(datetime.date(2011, 12, 9))
)
times = st.one_of(
    st.none(),
    st.datetimes(datetime.datetime(1700, 1, 1), datetime.datetime(2200, 1, 1)),
    st.just(datetime.datetime(2011, 3, 27, 2, 30)),
)
COLUMNS = {
    "who": (st.one_of(st.none(), st.sampled_from(["a", "A", "a ", "b", "é", "\\", "{data}"])), pa.string()),
    "x": (values, pa.float64()),
    "f": (st.one_of(st.none(), st.floats(width=32)), pa.float32()),
    "n": (wholes, pa.int64()),
    "N": (st.one_of(st.none(), st.integers(-128, 127)), pa.int8()),
    "t": (texts, pa.string()),
    "b": (st.one_of(st.none(), st.booleans()), pa.bool_()),
    "d": (days, pa.date32()),
    "ts": (times, pa.timestamp("us")),
    "m": (st.one_of(st.none(), st.decimals(-999, 999, places=3)), pa.decimal128(15, 3)),
}
wheres = st.sampled_from(
    [
        None,
        "x > 0.5 or n = 2",
        "not (x <= 3)",
        "x is null or f < 1e10",
        "n in (1, -9223372036854775808, 9007199254740993)",
        "n in (1, 2.5, 9007199254740993)",
        "n > x",
        "n between -2 and 2.0 and not b",
        "t = 'it''s' or t = 'a\\''b' or t in ('\\', '1')",
        "t > 'e' and t != 'x'",
        "t is not null",
        "b",
        "b = false or b is null",
        "d >= '2011-12-09'",
        "ts < '2011-03-27T02:30:00' or ts = '2011-03-27 02:30:00'",
        "m between -1.5 and 700.125",
        '"N" <= n',
        "who != 'a' or x = 7",
    ]
)
keys = st.sampled_from(
    [
        {},
        {"t": ["x", "1", "\\", "e\u0301"]},
        {"b": [True, False], "n": [2, -3, 2**63 - 1]},
        {"d": ["2011-12-09", "2011-12-10"]},
        {"n": [-3, -2, -1, 0, 1, 2, 3], "N": [*range(-4, 4)]},
        {"t": ["x", *string.ascii_uppercase, *string.ascii_lowercase[:20]]},
    ]
)
options = st.fixed_dictionaries(
    {
        "where": wheres,
        "by": keys,
        "clip": st.sampled_from([0.5, 1.0, 2.7, 1e5]),
        "per_group": st.sampled_from([None, None, 0.75, 1.3]),
    }
).flatmap(
    lambda shared: st.one_of(
        st.floats(1e4, 1e6).map(lambda sigma: {**shared, "sigma": sigma}),
        st.floats(1e-5, 1.0).map(lambda epsilon: {**shared, "epsilon": epsilon}),
    )
)
columns = st.sampled_from(["x", "f", "n", "N", "m"])
whose = st.sampled_from(["person", "total"])


def unclipped(shared):
    """The same without the clip, which follows."""
    return {name: value for name, value in shared.items() if name != "clip"}


questions = st.one_of(
    options.map(lambda o: Count(**o)),
    options.map(lambda o: People(**o)),
    st.builds(lambda c, o: Sum(c, -10.0, 7.5, **o), columns, options),
    st.builds(lambda c, o: Mean(c, -1.0, 20.25, per="row", **o), columns, options),
    st.builds(lambda c, o: Variance(c, 0.0, 30.0, per="row", **o), columns, options),
    st.builds(lambda c, o: Histogram(c, (-10.0, 0.0, 0.5, 10.0), **o), columns, options),
    st.builds(lambda c, o: Quantiles(c, tuple(range(-20, 21)), per="row", **o), columns, options),
    st.builds(lambda c, o, per: Mean(c, -1.0, 20.25, per=per, **unclipped(o)), columns, options, whose),
    st.builds(lambda c, o, per: Variance(c, 0.0, 30.0, per=per, **unclipped(o)), columns, options, whose),
    st.builds(
        lambda c, o, per: Histogram(c, (-10.0, 0.0, 0.5, 10.0), per=per, **unclipped(o)), columns, options, whose
    ),
    st.builds(lambda c, o, per: Quantiles(c, tuple(range(-20, 21)), per=per, **unclipped(o)), columns, options, whose),
    st.builds(lambda c, w, o: Ratio(c, numerator_bounds=(-3, 8.5), numerator_where=w, **o), columns, wheres, options),
    options.map(lambda o: Ratio(numerator_where="t = 'it''s'", denominator_where="t is not null", **o)),
    st.builds(lambda c, o: Covariance({c: (-10, 7.5), "x": (-3.5, 11.0)}, **o), columns, options),
    st.builds(lambda c, o: Regression("x", {c: (0, 9), "n": (-2, 5), "x": (-3, 11.0)}, **o), columns, options),
    st.builds(lambda o: Top(2, "t", ["x", "it's", "e\u0301", "é"], **o), options),
)


@st.composite
def tables(draw):
    size = draw(st.integers(0, 25))
    return pa.table(
        {
            name: pa.array(draw(st.lists(entries, min_size=size, max_size=size)), kind)
            for name, (entries, kind) in COLUMNS.items()
        }
    )


@settings(max_examples=3, phases=[Phase.explicit, Phase.generate], suppress_health_check=list(HealthCheck))
@given(table=tables(), asked=st.lists(questions, min_size=2, max_size=4), ansi=st.booleans(), zone=st.booleans())
def test_both_engines_charge_and_add_up_the_same(spark, tmp_path_factory, table, asked, ansi, zone):
    """Random tables with missing, odd and huge entries, random questions: the same sums and everybody's same units."""
    folder = tmp_path_factory.mktemp("same")
    spark.conf.set("spark.sql.ansi.enabled", ansi)
    spark.conf.set("spark.sql.session.timeZone", "Europe/Paris" if zone else "UTC")
    budget = filters.Zcdp(rho=1e3)
    with (
        opened(folder / "s", frame(spark, table, folder), budget=budget) as ours,
        opened(folder / "d", renamed(table), budget=budget) as theirs,
    ):
        for each in asked:
            assert exact(ours, each) == exact(theirs, as_duckdb(each)), each


def renamed(table):
    """DuckDB does not tell names apart by case."""
    return table.rename_columns(["N2" if name == "N" else name for name in table.column_names])


def as_duckdb(asked):
    changed = {"by": tuple(("N2" if name == "N" else name, tuple(found)) for name, found in asked.by)}
    for name in ("where", "numerator_where"):
        if getattr(asked, name, None) is not None:
            changed[name] = getattr(asked, name).replace('"N"', "N2")
    for name in ("column", "numerator"):
        if getattr(asked, name, None) == "N":
            changed[name] = "N2"
    if isinstance(asked, Covariance | Regression):
        changed["columns"] = tuple(("N2" if name == "N" else name, *bounds) for name, *bounds in asked.columns)
    return replace(asked, **changed)


ROWS = {
    "who": ["ann", "ann", "ann", "bob", "bob", "cy", None, "dee"],
    "amount": [1.0, 2.5, 1e9, 3.0, -4.0, math.nan, 7.0, None],
    "place": ["x", "y", "x", "x", "z", "x", "x", None],
    "n": [1, 2, 3, 4, 5, 6, 7, 8],
}


def test_both_engines_join_the_same(spark, tmp_path):
    """Columns of other tables, and steps over their rows; what was declared is checked as well."""
    frame = spark.createDataFrame
    tables = {"orders": frame(shops.ORDERS), "customers": Table(frame(shops.CUSTOMERS), one_row=True)}
    public = {name: replace(lookup, data=frame(lookup.data)) for name, lookup in shops.PUBLIC.items()}
    with pytest.raises(ArgumentError, match="cannot be in one session"):
        shops.opened(tmp_path / "a", tables=tables)
    with pytest.raises(DataError, match="'orders' was declared"):
        shops.opened(
            tmp_path / "a", tables={"orders": Table(tables["orders"], one_row=True)}, person="customer", public={}
        )
    with shops.opened(tmp_path / "a", tables=tables, public=public) as ours, shops.opened(tmp_path / "b") as theirs:
        for asked in shops.ON_BOTH:
            assert exact(ours, asked) == exact(theirs, asked), asked
        with pytest.raises(ArgumentError, match="made in Spark"):
            ours.check_view("SELECT * FROM data")


def test_nan_that_a_file_hides_is_missing_on_both_engines(spark, tmp_path):
    """Spark reads a Parquet file whose statistics leave NaN out as DuckDB reads the table in memory."""
    pq.write_table(forms.ROWS, tmp_path / "rows.parquet", row_group_size=4)
    pq.write_table(forms.CUSTOMERS, tmp_path / "customers.parquet", row_group_size=3)
    frames = {name: spark.read.parquet(str(tmp_path / f"{name}.parquet")) for name in ("rows", "customers")}
    asked = [*forms.filters("w", "f", "customers.w")[::5], *forms.asked("w")[1::9]]
    budget = filters.Zcdp(rho=1e3)
    ours = {"rows": frames["rows"], "customers": Table(frames["customers"], one_row=True)}
    theirs = {"rows": forms.ROWS, "customers": Table(forms.CUSTOMERS, one_row=True)}
    with (
        opened(tmp_path / "s", None, tables=ours, budget=budget) as here,
        opened(tmp_path / "d", None, tables=theirs, budget=budget) as there,
    ):
        for each in asked:
            assert exact(here, each) == exact(there, each), each


@pytest.fixture(scope="module")
def rows(spark):
    return spark.createDataFrame(pa.table(ROWS))


def holds(found):
    return all(finding.holds for finding in found)


@pytest.mark.parametrize("check", engine_checks.CHECKS)
def test_it_passes_the_checks_for_engines(check, spark, tmp_path_factory, tmp_path):
    """What whoever writes an engine runs, on Spark; tables are read from files, where times have no zone."""
    check(lambda table: frame(spark, table, tmp_path_factory.mktemp("table")), tmp_path)


def test_values_that_people_keep_are_the_same(spark, path):
    """Keys that nobody listed and numbers of different values: both engines keep the same ones, and charge the same."""
    who = ["a", "a", "a", "a", "b", "b", "é", "é", None, "c"] * 3
    table = pa.table(
        {
            "who": who,
            "t": [f"{'x' * (place % 4)}\\'{place % 7}" if place % 5 else None for place in range(30)],
            "n": [place % 11 - 3 for place in range(30)],
            "b": [bool(place % 3) for place in range(30)],
            "d": [datetime.date(2011, 12, 1 + place % 9) for place in range(30)],
        }
    )
    asked = [
        Keys("t", most=2, delta=1e-9, **CHEAP),
        Keys("d", most=1, delta=1e-9, **CHEAP),
        Distinct("n", most=3, by={"b": [True, False]}, **CHEAP),
    ]
    options = {"keys_delta": 1e-6}
    with opened(path, frame(spark, table, path.parent), **options) as ours:
        found = [counted(ours, each) for each in asked]
        told = ours.analyst("ann").ask(Keys("t", delta=4e-7, most=3, sigma=2.0), key="k")
        assert all(finding.holds for finding in ours.verify(replay=True))
    with opened(path.with_name("d"), table, **options) as theirs:
        for one, each in zip(found, asked, strict=True):
            assert one == counted(theirs, each), each
    assert len(told.keys) == len(set(told.keys)) == len(told.values)


def test_a_watch_counts_the_same_people(rows, path):
    """Those who are missing because they could not pay are as many as on DuckDB; a watch speaks, and for good."""
    question, missing = Count(clip=1, rho=0.4), []
    with opened(path, rows) as ours, opened(path.with_name("d"), pa.table(ROWS)) as theirs:
        for session in (ours, theirs):
            session.limit(0.3, analyst="ann")
            session.retire("bob")
            session.analyst("ann").ask(Count(clip=1, rho=0.2), key="a")

            counted = Count(clip=1, rho=0.25)

            def refused(turn, offer, price=counted.price):
                return turn.admit(offer, key="c", price=price, analyst="ann").people.refused()

            plan = session._rows.plan(counted, described(counted))
            missing.append(session.ledger.answer(session._rows.charges(plan), refused))
            bea = session.analyst("bea")
            session.watch(0, epsilon=0.1)
            told = [bea.ask(question, key="b").complete, bea.ask(question, key="c").complete]
            assert told in ([True, True], [True, False], [False, False])
        assert missing[0] == missing[1] > 0
        assert holds(ours.verify())


def test_a_file_of_questions_names_a_master(spark, tmp_path):
    """The nightly file asks Spark, with a view; the same again costs nothing; DuckDB's options are refused."""
    rows = pa.table({"who": [f"p{i % 40}" for i in range(200)], "hours": [i // 40 + 1 for i in range(200)]})
    pq.write_table(rows, tmp_path / "visits.parquet")
    head = 'data = "visits.parquet"\nperson = "who"\nledger = "people.ledger"\nrho = 1.0\nanalyst = "ann"\n'
    asked = '[[questions]]\nkey = "hours"\nask = "sum"\ncolumn = "hours"\nlow = 0\nhigh = 4\nclip = 9\nsigma = 1000\n'
    plan = tmp_path / "plan.toml"
    plan.write_text(f'{head}spark = "local[2]"\nview = "SELECT * FROM data WHERE hours < 5"\n{asked}')
    runner = CliRunner()
    assert runner.invoke(app, ["ledger", "create", str(plan)]).exit_code == 0
    first, again = (runner.invoke(app, ["query", "ask", str(plan), "--json"]) for _ in range(2))
    assert first.exit_code == 0
    assert again.output == first.output
    checked = runner.invoke(app, ["ledger", "verify", str(tmp_path / "people.ledger"), "--replay", str(plan)])
    assert checked.exit_code == 0
    with Session.open(
        spark.read.parquet(str(tmp_path / "visits.parquet")),
        person="who",
        budget=filters.Zcdp(rho=1.0),
        ledger=tmp_path / "people.ledger",
        create=True,
    ) as session:
        assert session.analyst("ann").answers()[0].key == "hours"
        assert session.ledger.spent("p0") == session.ledger.spent("p1") > 0
    plan.write_text(f'{head}spark = "local[2]"\ntable = "t"\n{asked}')
    assert "table= is for DuckDB files" in runner.invoke(app, ["query", "ask", str(plan)]).stderr
    plan.write_text(f'{head.replace("visits.parquet", "visits.csv")}spark = "local[2]"\n{asked}')
    assert "must be a Parquet file" in " ".join(runner.invoke(app, ["query", "ask", str(plan)]).stderr.split())


def test_data_frames_are_data_sets_too(spark, path):
    """Declared, filled in, charged again and refused as on DuckDB; an open ledger is shared with them."""
    data = spark.createDataFrame([("ann", 1.0, "FR"), ("bob", 2.0, "ES")], ["who", "n", "place"])
    with Session.open(data, person="who", budget=filters.Zcdp(rho=1.0), ledger=path, create=True) as session:
        columns = {"n": {"low": 0, "high": 9}, "place": {"keys": ["FR", "ES"]}}
        session.ledger.dataset("orders", person="who", columns=columns)
    with Session.open(data, person="who", ledger=path, dataset="orders") as session:
        answer = session.analyst("ann").ask(Sum("n", by="place", clip=2, rho=0.1), key="a")
        assert (answer.question.high, answer.groups) == (9, [("FR",), ("ES",)])
        assert all(finding.holds for finding in session.verify(replay=True))
    with pytest.raises(ArgumentError, match="column 'n': it is missing"):
        Session.open(data.drop("n"), person="who", ledger=path, dataset="orders")
    with Ledger.open(path) as book:
        for place, rows in enumerate((data, data.toArrow())):
            with Session.open(rows, person="who", ledger=book, dataset="orders") as session:
                session.analyst("ann").ask(Sum("n", by="place", clip=2, rho=0.1), key=f"{place}")
                assert holds(session.verify(replay=True))
        units = [units for _, units in book.charges("bob")]
        assert units == [units[0]] * 3


def test_a_ledger_of_spark_does_all_that_others_do(rows, path, tmp_path):
    """Pseudonyms, trainings, streams, periods, backups, compaction, erasure: with rows of Spark, and without it."""
    with opened(path, rows, pseudonyms=tmp_path / "key") as session:
        session.ledger.witnessed_by(tmp_path / "people.head")
        session.analyst("ann").ask(Count(clip=9, **CHEAP), key="a")
        book = session.ledger
        hold = ledger.Consumer(book, key="model", analyst="lab").reserve(["ann", "cy"], 100)
        hold.settle(hold.units)
        stream = ledger.Consumer(book, key="news", analyst="lab", claim="x").begin()
        stream.update(["cy", "dan"], 50, contribute=lambda most: most // 2, release=dict)
        assert holds(session.verify(replay=True))
        ledger.backup(book, tmp_path / "copy")
        units = book.spent("ann")
        ledger.compact(book)
        ledger.erase(book, "bob")
        session.analyst("ann").ask(Count(clip=9, **CHEAP), key="b")
        assert book.spent("ann") == 2 * (units - 100) + 100
    told = CliRunner().invoke(app, ["statement", str(path), "--person", "ann", "--json"])
    assert json.loads(told.output)["rho"] == pytest.approx((2 * units - 100) / RHO)
    assert CliRunner().invoke(app, ["ledger", "verify", str(path)]).exit_code == 0
    with opened(path, pa.table(ROWS), budget=None, create=False) as session:
        session.analyst("ann").ask(Count(clip=9, **CHEAP), key="c")
        assert session.ledger.spent("ann") == 3 * (units - 100) + 100


def test_periods_are_those_of_duckdb(spark, path):
    """Units of people by month, of names and of whole numbers, from dates and times before 1970 and in a zone."""
    spark.conf.set("spark.sql.session.timeZone", "America/Sao_Paulo")
    days = [datetime.date(1969, 12, 31), datetime.date(2018, 11, 4), datetime.date(2018, 11, 30), None]
    for place, (who, every) in enumerate(((["a", "b", "a", "a"], "month"), ([1, 2, 1, 1], "week"), ([7] * 4, "day"))):
        table = pa.table({"who": who, "day": pa.array(days, pa.date32())})
        spent = []
        for name, data in (("s", frame(spark, table, path.parent)), ("d", table)):
            periods = ledger.Periods("day", every=every, first="2018-10-01", last="2018-12-31")
            with opened(path.with_name(f"{name}{place}"), data, periods=periods) as session:
                session.analyst("ann").ask(Count(clip=2, rho=0.1), key="a")
                assert holds(session.verify(replay=True))
                book = session.ledger
                spent.append({unit: book.spent(unit) for each in set(who) for unit in book.accounts_of(each)})
        assert spent[0] == spent[1]
        assert sum(spent[0].values()) > 0


def test_what_comes_out_is_what_was_charged_even_for_random_rows(spark, path):
    """Rows that come out differently every time: whoever is added up is charged, for exactly what is added up."""
    from pyspark.sql import functions as F

    data = spark.range(400).select((F.col("id") % 100).alias("who"), F.floor(F.rand() * 3).cast("int").alias("n"))
    asked = Count(where="n = 1", clip=9, by={"n": [1]}, sigma=1000.0)
    with opened(path, data) as session:
        sums, units = exact(session, asked)
        steps = [math.isqrt(each * 2 * 10**6 // RHO) for each in units.values()]
        assert sums == [sum(steps) * STEPS]
        assert 0 < len(units) <= 100


HOSTILE = st.one_of(
    st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), min_size=1, max_size=8),
    st.sampled_from(
        [
            "`; DROP TABLE data; --",
            "' OR '1'='1",
            "{data}",
            "{",
            "${x}",
            "\\'",
            "c0",
            "d.c0",
            "*",
            "a.b",
            "ÄÖ\u202e",
            ":x",
            "?",
        ]
    ),
)


@settings(max_examples=3, phases=[Phase.explicit, Phase.generate], suppress_health_check=list(HealthCheck))
@given(names=st.lists(HOSTILE, min_size=3, max_size=3, unique=True), key=HOSTILE, person=HOSTILE, other=HOSTILE)
def test_hostile_names_keys_and_people(spark, tmp_path_factory, names, key, person, other):
    """Odd names of columns, keys and people are only names: the right rows count and the right person pays."""
    assume(person != other)
    who, group, flag = names
    rows = pa.table({"a": [person, person, other], "b": [key, key + "x", key], "c": [True, True, False]})
    folder = tmp_path_factory.mktemp("names")
    where = '"' + flag.replace('"', '""') + '"'
    with opened(folder / "it's a ledger", spark.createDataFrame(rows).toDF(*names), person=who) as session:
        asked = Count(where=f"{where} and {where} = true", by={group: [key, "no such key"]}, clip=9, sigma=100.0)
        assert exact(session, asked) == ([asked.steps, 0], {person: COUNTED + 1})
        text = "'" + key.replace("'", "''") + "'"
        column = '"' + group.replace('"', '""') + '"'
        assert set(exact(session, Count(clip=1, where=f"{column} = {text}", sigma=100.0))[1]) == {person, other}


OTHERS = {
    "ts": "timestamp'2020-10-25 00:00:00' + id * interval 15 minutes",
    "m": "CAST(id AS DECIMAL(18, 2)) / 4",
    "a": "array(id, 1)",
    "x": "unhex(hex(id))",
    "t": "CAST(id AS STRING) COLLATE UTF8_LCASE",
    "i": "id * interval 1 day",
    "odd name`": "named_struct('a', id)",
}
"""Columns that another engine reads otherwise, as SQL over the number of a row."""


def cured(refused, data):
    """What the line of a message makes of a data frame."""
    (line,) = re.findall(r"data\.selectExpr\((.*)\)", str(refused.value))
    return data.selectExpr(*ast.literal_eval(f"[{line}]"))


def test_columns_that_engines_read_differently_are_refused(spark, path):
    """Lists, intervals, texts that ignore case: nothing charged, and a line makes them usable."""
    others = {name: sql for name, sql in OTHERS.items() if name not in ("ts", "m")}
    listed = ", ".join(f"{sql} AS `{name.replace('`', '``')}`" for name, sql in others.items())
    data = spark.sql(f"SELECT CAST(id AS STRING) AS who, 1 AS ok, 2 AS OK, {listed} FROM range(40)")
    with opened(path, data) as session:
        for name in others:
            quoted = '"' + name + '"'
            with pytest.raises(ArgumentError, match=f"column {name!r} is of type [a-z].*: questions take") as refused:
                session.analyst("ann").quote(Count(clip=1, where=f"{quoted} is null", **CHEAP))
            data = cured(refused, data.drop("OK"))
        assert exact(session, Count(clip=1, where='ok = 1 and "OK" = 2', **CHEAP))[0] == [40 * STEPS]
        with pytest.raises(ArgumentError, match="not in the data"):
            session.analyst("ann").quote(Count(clip=1, where="Ok = 1", **CHEAP))
    named = [f"count(DISTINCT `{name.replace('`', '``')}`)" for name in others]
    assert tuple(data.selectExpr(*named).collect()[0]) == (40,) * len(others)
    with opened(path.with_name("cured"), data) as session:
        missing = " or ".join(f'"{name}" is null' for name in others)
        assert exact(session, Count(clip=1, where=missing, **CHEAP))[0] == [0]
    with pytest.raises(ArgumentError, match="same name"):
        opened(path, spark.sql("SELECT 1 AS who, 2 AS who"))
    with pytest.raises(ArgumentError, match="view="):
        opened(path, data, view="SELECT * FROM data")
    with pytest.raises(ArgumentError, match="spelling"):
        opened(path, spark.sql("SELECT 'a' COLLATE UTF8_LCASE AS t"), person="t")


def test_times_of_a_zone_and_decimals_are_read(spark, path):
    """Times are those that Spark shows in the zone of its session; a decimal of any length is the nearest double."""
    spark.conf.set("spark.sql.session.timeZone", "Europe/Paris")
    moments = "timestamp'2020-10-25 00:00:00+00:00' + id * interval 1 hour AS ts"
    data = spark.sql(f"SELECT id AS who, {moments}, CAST(id AS DECIMAL(38, 2)) / 4 AS m FROM range(40)")
    with opened(path, data) as session:
        twice = Count(where="ts >= '2020-10-25 02:00:00' and ts < '2020-10-25 03:00:00'", clip=1, **CHEAP)
        assert exact(session, twice)[1].keys() == {0, 1}  # the hour that comes twice
        assert exact(session, Sum("m", 0, 10, where="m < 0.6 or m > 9.7", clip=1, **CHEAP))[1].keys() == {1, 2, 39}
        assert holds(session.verify(replay=True))


def test_spark_connect(tmp_path):
    """Data frames of a Connect server: the same sums and units, an answer, and a replay; in a process of its own."""
    pytest.importorskip("grpc", reason="Spark Connect needs grpcio")
    script = f"""
import sys, warnings
sys.path.insert(0, {str(Path(__file__).parents[1] / "helpers")!r})
import pyarrow as pa
from pyspark.sql import SparkSession
from almoner.queries import Count, Mean
from ledgers import exact
from sparks import opened
spark = SparkSession.builder.remote("local[2]").config("spark.sql.shuffle.partitions", "2").getOrCreate()
rows = pa.table({{"who": [n % 30 for n in range(300)], "x": [n % 7 for n in range(300)]}})
asked = [Count(clip=5, rho=0.01, by={{"x": [1, 2, 3]}}), Mean("x", 0, 7, rho=0.01)]
frame = spark.createDataFrame(rows)
with opened({str(tmp_path / "s")!r}, frame) as ours, opened({str(tmp_path / "d")!r}, rows) as theirs:
    same = [exact(ours, each) == exact(theirs, each) for each in asked]
    ours.analyst("ann").ask(asked[0], key="a")
    print(type(ours._rows._tables["data"]).__module__, same, all(each.holds for each in ours.verify(replay=True)))
"""
    run = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr[-2000:]
    assert run.stdout.splitlines()[-1].endswith("pyspark.sql.connect.dataframe [True, True] True")


def test_names_of_other_types_are_taken_or_cured_and_nobody_is_lost(spark, tmp_path):
    """Whole decimals and dates name people; of floats, truths, bytes, times and others the line makes names."""
    taken = {
        "n": "CAST(id AS DECIMAL(10, 0))",
        "l": "CAST(id AS DECIMAL(38, 0))",
        "d": "date'2020-01-01' + CAST(id AS INT)",
    }
    refused_ = OTHERS | {"f": "CAST(id AS DOUBLE) / 4", "g": "CAST(id AS FLOAT) / 4"}
    listed = ", ".join(
        f"IF(id < 40, {sql}, NULL) AS `{name.replace('`', '``')}`" for name, sql in (taken | refused_).items()
    )
    data = spark.sql(f"SELECT {listed} FROM range(41)")
    counts = {}
    for place, name in enumerate(taken):
        with opened(tmp_path / f"taken{place}", data, person=name) as session:
            counts[name] = exact(session, Count(clip=1, **CHEAP))
    for place, name in enumerate(refused_):
        with pytest.raises(ArgumentError, match=f"person={name!r} is of type .* and must hold") as refused:
            opened(tmp_path / f"cured{place}", data, person=name)
        those = cured(refused, data)
        with opened(tmp_path / f"cured{place}", those, person=name) as session:
            if name in "fm":
                counts[name] = exact(session, Count(clip=1, **CHEAP))
        named = f"`{name.replace('`', '``')}`"
        there = those.selectExpr(f"count({named})", f"count(DISTINCT CAST({named} AS STRING))").collect()
        assert tuple(there[0]) == (40, 40), name
    assert all((sums, len(charged)) == ([40 * STEPS], 40) for sums, charged in counts.values()), counts
    nan = spark.sql("SELECT CAST('NaN' AS DOUBLE) AS who")
    with pytest.raises(ArgumentError) as refused:
        opened(tmp_path / "nan", nan)
    with opened(tmp_path / "nan", cured(refused, nan)) as session:
        assert exact(session, Count(clip=1, **CHEAP)) == ([0], {})


def test_the_cure_for_tables_that_name_people_differently_loses_nobody_on_spark(spark, tmp_path):
    """Whole numbers become text beside text."""
    tables = {"one": spark.sql("SELECT id AS who FROM range(40)"), "two": spark.sql("SELECT 'a' AS who")}
    with pytest.raises(ArgumentError, match="open table 'one' with") as refused:
        opened(tmp_path / "s", None, tables=tables)
    with opened(tmp_path / "s", None, tables=tables | {"one": cured(refused, tables["one"])}) as session:
        assert len(exact(session, Count(clip=1, **CHEAP))[1]) == 40


def test_bytes_that_are_no_text_name_nobody(spark, path):
    """Accounts are text; rows of a person whose name is none are in no answer."""
    data = spark.sql("SELECT CAST(x AS STRING) AS who FROM VALUES (X'ff'), (X'61') AS v(x)")
    with opened(path, data) as session:
        assert exact(session, Count(clip=1, sigma=100.0)) == ([STEPS], {"a": COUNTED})


def test_errors_of_spark_tell_nothing(spark, path):
    """A data frame that fails on an entry: an error of ours without the entry, and nothing is charged."""
    with opened(path, spark.sql("SELECT 1 AS who, CAST(raise_error('secret 4711') AS INT) AS n")) as session:
        with pytest.raises(DataError) as told:
            session.analyst("ann").ask(Sum("n", 0, 1, clip=1, **CHEAP), key="a")
        assert "4711" not in str(told.value)
        assert told.value.__context__ is None  # nor where it came from
        assert session.ledger.entries("answered") == []


def test_killed_in_the_middle_of_jobs(spark, tmp_path):
    """Kills of a working process, of its Java, or of both: every answer is stored and charged once, replay agrees."""
    recorded, revealed = campaign_on_spark(tmp_path, 3, None, spark)
    assert recorded >= revealed >= 0


def test_a_cluster_of_a_master_and_two_workers(tmp_path):
    """The same on executors of two workers, in processes of their own: the sums and units of DuckDB."""
    rows = pa.table({"who": [n % 300 for n in range(5000)], "x": [n % 17 / 4 for n in range(5000)]})
    pq.write_table(rows, tmp_path / "rows.parquet")
    asked = Mean("x", 0, 4, per="row", where="x > 0.5", clip=6, sigma=1000.0)
    with opened(tmp_path / "d", rows) as session:
        wanted = exact(session, asked)
    script = f"""
import sys
sys.path.insert(0, {str(Path(__file__).parents[1] / "helpers")!r})
from ledgers import exact
from sparks import opened, started
from almoner.queries import Mean
spark = started({str(tmp_path)!r}, sys.argv[1], **{{"spark.executor.memory": "512m", "spark.cores.max": "2",
    "spark.scheduler.minRegisteredResourcesRatio": "1.0", "spark.scheduler.maxRegisteredResourcesWaitingTime": "60s"}})
asked = {asked!r}
with opened({str(tmp_path / "s")!r}, spark.read.parquet({str(tmp_path / "rows.parquet")!r}).repartition(4)) as session:
    found = exact(session, asked)
    session.analyst("ann").ask(asked, key="a")
    workers = spark.sparkContext._jsc.sc().getExecutorMemoryStatus().size() - 1
    print(repr((workers, found, all(each.holds for each in session.verify(replay=True)))))
"""
    with cluster(tmp_path, 2) as master:
        run = subprocess.run([sys.executable, "-c", script, master], capture_output=True, text=True, check=False)
    if run.returncode and "Initial job has not accepted any resources" in run.stderr:
        pytest.skip("workers of a cluster could not start here")
    assert run.returncode == 0, run.stderr[-2000:]
    assert ast.literal_eval(run.stdout.splitlines()[-1]) == (2, wanted, True)
