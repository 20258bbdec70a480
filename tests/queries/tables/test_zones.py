"""Times with a zone: days, months and hours are those of the zone that is named, whatever form the data have."""

from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import duckdb
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from pyarrow import parquet

from almoner import filters
from almoner.errors import ArgumentError
from almoner.ledger import Periods, Terms
from almoner.queries import Count, Lookup, Table
from almoner.queries.plans import Plan
from ledgers import exact
from sessions import CHEAP, opened

ZONE = "Europe/Berlin"
START = datetime(2024, 3, 30, 20, tzinfo=UTC)  # the clock goes forward on the next morning
TIMES = [START + timedelta(hours=n) for n in range(60)] + [datetime(2024, 10, 27, n, 30, tzinfo=UTC) for n in range(3)]
ROWS = pa.table({
    "who": [f"p{n}" for n in range(len(TIMES))], "at": pa.array(TIMES, pa.timestamp("us", "UTC")),
    "plain": pa.array([each.replace(tzinfo=None) for each in TIMES], pa.timestamp("us"))})  # fmt: skip


def counted(session, column, keys):
    """Rows by key, without noise."""
    return [round(each / 2**20) for each in exact(session, Count(by={column: keys}, clip=1, **CHEAP))[0]]


def wanted(part, keys, zone=ZONE):
    """As Python has it, for each key."""
    local = [part(each.astimezone(ZoneInfo(zone))) for each in TIMES]
    return [local.count(key) for key in keys]


DAYS = ["2024-03-30", "2024-03-31", "2024-04-01", "2024-04-02", "2024-10-27"]


def forms(folder):
    """The same rows in each form that data may have."""
    parquet.write_table(ROWS, folder / "rows.parquet")
    with duckdb.connect(folder / "rows.duckdb") as connection:
        connection.execute("CREATE TABLE t AS SELECT * FROM ROWS")
    connection = duckdb.connect()
    connection.execute("SET TimeZone = 'Asia/Tokyo'")
    connection.execute("CREATE TABLE t AS SELECT * FROM ROWS")
    abroad = ROWS.set_column(1, "at", ROWS["at"].cast(pa.timestamp("ns", "America/New_York")))
    pandas = pd.DataFrame({name: ROWS[name].to_pandas() for name in ROWS.column_names})
    return [
        {"data": ROWS}, {"data": abroad}, {"data": pandas}, {"data": pl.from_arrow(ROWS)},
        {"data": folder / "rows.parquet"}, {"data": [folder / "rows.parquet"]},
        {"data": folder / "rows.duckdb", "table": "t"}, {"data": connection, "table": "t"},
    ]  # fmt: skip


def test_days_months_and_hours_are_local_in_every_form(tmp_path):
    """Also where the clock changes; the days of UTC are others, so that no zone at all would be noticed."""
    for place, given in enumerate(forms(tmp_path)):
        with opened(tmp_path / f"{place}.ledger", Table(**given, zone=ZONE)) as session:
            assert session.columns["data"] == {"who": "text", "at": "time", "plain": "time"}
            assert counted(session, "date(at)", DAYS) == wanted(lambda each: each.date().isoformat(), DAYS)
            assert counted(session, "hour(at)", [*range(24)]) == wanted(lambda each: each.hour, range(24))
            assert counted(session, "month(at)", ["2024-03-01", "2024-04-01"]) == wanted(
                lambda each: each.date().replace(day=1).isoformat(), ["2024-03-01", "2024-04-01"])  # fmt: skip
            assert counted(session, "date(plain)", DAYS) == wanted(lambda each: each.date().isoformat(), DAYS, "UTC")
            inside = exact(
                session, Count(where="at >= '2024-03-31T03:00' and at < '2024-03-31T04:00'", clip=1, **CHEAP)
            )
            assert inside[0] == [2**20]  # two o'clock is not there
    assert wanted(lambda each: each.date(), DAYS) == [0] * 5  # compared as text above
    assert wanted(lambda each: each.date().isoformat(), DAYS) != wanted(
        lambda each: each.date().isoformat(), DAYS, "UTC"
    )


def test_a_view_periods_and_a_public_table_have_local_times(tmp_path):
    """The zone comes first: what is made of the data sees local times, whatever the machine's zone is."""
    view = 'SELECT who, CAST("at" AS DATE) AS day, "at" FROM data'
    with opened(tmp_path / "a.ledger", Table(ROWS, zone=ZONE, view=view)) as session:
        assert counted(session, "day", DAYS) == wanted(lambda each: each.date().isoformat(), DAYS)
    periods = Periods("at", every="day", first="2024-03-30", last="2024-04-02")
    terms = Terms(filters.Zcdp(rho=1.0), periods=periods)
    with opened(tmp_path / "b.ledger", Table(ROWS, zone=ZONE), budget=terms) as session:
        assert session.columns["data"]["at"] == "time"
    public = pa.table({"who": ["p0"], "seen": pa.array(TIMES[:1], pa.timestamp("us", "UTC"))})
    given = {"all": Lookup(public, "who", zone=ZONE)}
    with opened(tmp_path / "c.ledger", Table(ROWS, zone=ZONE), public=given) as session:
        assert counted(session, "hour(all.seen)", [20, 21]) == [0, 1]


def test_a_file_of_questions_names_the_zone(tmp_path):
    """By the same word."""
    parquet.write_table(ROWS, tmp_path / "rows.parquet")
    (tmp_path / "q.toml").write_text(
        f'data = "rows.parquet"\nperson = "who"\nledger = "l.ledger"\nrho = 1.0\nanalyst = "a"\nzone = "{ZONE}"\n'
        '[[questions]]\nkey = "k"\nask = "count"\nby = { "date(at)" = ["2024-03-31"] }\nclip = 1\nrho = 0.1\n'
    )
    with Plan.read(tmp_path / "q.toml").open(create=True) as session:
        assert session.columns["data"]["at"] == "time"
        assert counted(session, "date(at)", DAYS) == wanted(lambda each: each.date().isoformat(), DAYS)


def test_times_beyond_all_are_missing_and_nothing_fails(tmp_path):
    """No entry makes a question fail, which everybody would see."""
    extreme = pa.table(
        {"who": ["a", "b", "c"], "at": pa.array([2**63 - 1, -(2**63) + 2, 0], pa.timestamp("us", "UTC"))}
    )
    with opened(tmp_path / "a.ledger", Table(extreme, zone="Pacific/Kiritimati")) as session:
        assert counted(session, "year(at)", [1970, 1969]) in ([1, 0], [0, 1])
        assert exact(session, Count(where="date(at) is not null", clip=1, **CHEAP))[0] == [2**20]


def test_without_a_zone_a_zoned_column_is_refused_with_the_line(tmp_path):
    """An hour of no zone is nobody's; the line says which zone to name. Unknown zones, and zones for nothing, too."""
    words = r"'at' is of type TIMESTAMP WITH TIME ZONE.*Table\(data, zone='UTC'\)`, or"
    with opened(tmp_path / "a.ledger", ROWS) as session, pytest.raises(ArgumentError, match=words):
        session.analyst("ann").quote(Count(by={"date(at)": DAYS}, clip=1, **CHEAP))
    with pytest.raises(ArgumentError, match="zone='Europe/Berlinn' must be the name of a time zone"):
        opened(tmp_path / "b.ledger", Table(ROWS, zone="Europe/Berlinn"))
    with pytest.raises(ArgumentError, match="zone=2 must be the name"):
        opened(tmp_path / "b.ledger", Table(ROWS, zone=2))
    with pytest.raises(ArgumentError, match="there are none: leave it out"):
        opened(tmp_path / "b.ledger", Table(ROWS.drop_columns(["at"]), zone=ZONE))
