"""Questions on Spark: the same units and sums as on DuckDB, accounts in generations that only a commit puts in force."""

import datetime
import json
import math
import shutil
import stat
import string
from functools import reduce

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, Phase, assume, given, settings
from hypothesis import strategies as st
from sparks import NO_CODE, cluster, needs_spark, started
from typer.testing import CliRunner

from bursar import filters
from bursar.cli import app
from bursar.errors import ArgumentError, BudgetExceeded, DataError, LedgerError
from bursar.ledger import Ledger, verify
from bursar.queries import Count, Histogram, Mean, People, Quantiles, Session, Sum, Variance, _generations
from bursar.queries.questions import STEPS

pytestmark = needs_spark
RHO = 10**15
CHEAP = {"sigma": 1000.0}


@pytest.fixture(scope="module")
def spark(tmp_path_factory):
    """One session for all of this."""
    session = started(tmp_path_factory.mktemp("spark"), **NO_CODE)
    yield session
    session.stop()


@pytest.fixture
def path(tmp_path):
    return tmp_path / "people.ledger"


def opened(path, data, **options):
    return Session.open(data, **{"person": "who", "budget": filters.Zcdp(rho=1.0), "ledger": path, **options})


def frame(spark, table, folder):
    """A data frame with the types of an Arrow table; names may differ by case alone."""
    pq.write_table(table.rename_columns([f"c{place}" for place in range(table.num_columns)]), folder / "rows.parquet")
    return spark.read.parquet(str(folder / "rows.parquet")).toDF(*table.column_names)


def exact(session, asked):
    """Before noise: sums in whole steps, and everybody's units."""
    session._rows.offer(asked)
    session._rows.admit(asked, analyst="ann", purpose=None, reserved=None)
    keeper = session.ledger.keeper
    if hasattr(keeper, "admitted"):
        charged = [(row["person"], row["units"]) for row in keeper.admitted().select("person", "units").collect()]
    else:
        charged = session.ledger.store.desk.run("SELECT person, units FROM admitted").fetchall()
    assert len(dict(charged)) == len(charged)
    return session._rows.sums(asked), dict(charged)


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
        "sigma": st.floats(1e4, 1e6),
        "per_group": st.sampled_from([None, None, 0.75, 1.3]),
    }
)
columns = st.sampled_from(["x", "f", "n", "N", "m"])
questions = st.one_of(
    options.map(lambda o: Count(**o)),
    options.map(lambda o: People(**o)),
    st.builds(lambda c, o: Sum(c, -10.0, 7.5, **o), columns, options),
    st.builds(lambda c, o: Mean(c, -1.0, 20.25, **o), columns, options),
    st.builds(lambda c, o: Variance(c, 0.0, 30.0, **o), columns, options),
    st.builds(lambda c, o: Histogram(c, (-10.0, 0.0, 0.5, 10.0), **o), columns, options),
    st.builds(lambda c, o: Quantiles(c, tuple(range(-20, 21)), **o), columns, options),
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
        found = together(spark, ours._rows, asked)
        for place, each in enumerate(asked):
            assert found[place] == exact(theirs, as_duckdb(each)), each


def together(spark, rows, asked):
    """What ``exact`` gives for each of several questions, if everybody is admitted; in few jobs, which are slow."""
    from pyspark.sql import functions as F

    rows._keeper.finish = lambda: None  # the files of one question stay while the next is prepared
    units, sums = [], []
    for place, each in enumerate(asked):
        priced = rows.prices(each)
        added = spark.sql(rows._compiled(each).sums, admitted=priced, **rows._cells)
        units.append(priced.select(F.lit(place), "person", "units"))
        cell, *totals = added.columns
        sums.append(
            added.toDF("cell", *(f"t{n}" for n in range(len(totals)))).select(
                F.lit(place), "cell", F.array(*(F.col(f"t{n}") for n in range(len(totals))))
            )
        )
    found = [([0] * (each.groups * each.coordinates), {}) for each in asked]
    for place, person, each in reduce(lambda a, b: a.union(b), units).collect():
        assert person not in found[place][1]
        found[place][1][person] = each
    for place, cell, totals in reduce(lambda a, b: a.union(b), sums).collect():
        start = cell * len(totals)
        found[place][0][start : start + len(totals)] = [int(total or 0) for total in totals]
    return found


def renamed(table):
    """DuckDB does not tell names apart by case."""
    return table.rename_columns(["N2" if name == "N" else name for name in table.column_names])


def as_duckdb(asked):
    changed = {"by": tuple(("N2" if name == "N" else name, tuple(found)) for name, found in asked.by)}
    if asked.where is not None:
        changed["where"] = asked.where.replace('"N"', "N2")
    if getattr(asked, "column", None) == "N":
        changed["column"] = "N2"
    return type(asked)(**{name: changed.get(name, getattr(asked, name)) for name in asked.__dataclass_fields__})
