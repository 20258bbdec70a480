"""Lines that refusals tell the data holder to write: each is executed, and no person is lost or united with another."""

import ast
import datetime
import json
import re
import uuid
from decimal import Decimal

import duckdb
import pyarrow as pa
import pytest
from pyarrow import parquet as pq

from almoner import filters
from almoner.errors import ArgumentError, DataError
from almoner.ledger import Periods
from almoner.queries import Count, People, Session, Table
from ledgers import exact
from terms import grouped

DAY, NOON = datetime.date(2020, 1, 1), datetime.datetime(2020, 10, 25)
HOURS, MICROSECOND = datetime.timedelta(minutes=15), datetime.timedelta(microseconds=1)
NUMBERS = range(300)
UUIDS = [str(uuid.uuid5(uuid.NAMESPACE_OID, str(n))) for n in NUMBERS]
NAMES = {
    "dates": [DAY + datetime.timedelta(n) for n in NUMBERS],
    "unsigned": pa.array([2**64 - 1 - n for n in NUMBERS], pa.uint64()),
    "whole decimals": pa.array([Decimal(n - 150) for n in NUMBERS], pa.decimal128(18, 0)),
    "long decimals": pa.array([Decimal(10**37 + n) for n in NUMBERS], pa.decimal128(38, 0)),
}
"""Names of people that are taken as they are."""
CAST = {
    "halves": [n / 2 - 0.25 for n in NUMBERS],
    "floats": [2.0**53 + 2 * n for n in NUMBERS],
    "singles": pa.array([n / 8 for n in NUMBERS], pa.float32()),
    "binary": [bytes([n % 256, n // 256, 92]) for n in NUMBERS],
    "decimals": [Decimal(n) / 4 for n in NUMBERS],
    "truths": [True, False],
    "times": [NOON + n * MICROSECOND for n in NUMBERS],
    "nanoseconds": pa.array([1_600_000_000_000_000_000 + n for n in NUMBERS], pa.timestamp("ns")),
    "zoned": pa.array([NOON + n * HOURS for n in NUMBERS], pa.timestamp("us", "Europe/Paris")),
    "zoned nanoseconds": pa.array([1_600_000_000_000_000_000 + n for n in NUMBERS], pa.timestamp("ns", "UTC")),
    "clock": [datetime.time(0, n // 60, n % 60, n) for n in NUMBERS],
    "lists": [[f"{n}, 1"] if n % 2 else [str(n - 1), "1"] for n in NUMBERS],
    "records": [{"a": n, "b": None} if n % 2 else {"a": None, "b": n} for n in NUMBERS],
}
"""Names of people that must be cast first."""


def line(error):
    """(Which argument, its value) of the line that a message proposes."""
    found = re.search(r"(view|types|zone)=('(?:[^'\\]|\\.)*'|\"(?:[^\"\\]|\\.)*\"|\{.*\})", str(error))
    assert found is not None, str(error)
    return {found[1]: ast.literal_eval(found[2])}


def session(folder, data=None, **options):
    terms = {"person": "p", "budget": filters.Zcdp(rho=1.0), "ledger": folder / "l.ledger", "create": True}
    return Session.open(**grouped({"data": data, **terms, **options}))


def people(opened):
    """How many people there are to a question, and how many accounts are charged."""
    sums, charged = exact(opened, Count(clip=9, sigma=1000.0))
    everybody, _ = exact(opened, People(sigma=1000.0), "bea")
    return sums[0] // Count(clip=9, sigma=1000.0).steps, everybody[0] // People(sigma=1000.0).steps, len(charged)


def twice(names, others=()):
    """A table in which each person has two rows; rows of nobody beside them."""
    column = pa.chunked_array([names, names]) if isinstance(names, pa.Array) else pa.array([*names, *names])
    column = column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
    nobody = pa.array([None, *others], column.type)
    return pa.table({"p": pa.concat_arrays([column, nobody])})


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_names_with_one_spelling_are_taken_as_they_are(tmp_path, name):
    """Dates, and whole numbers of any length: nobody is lost or united with another, in memory and in files."""
    table = twice(NAMES[name])
    pq.write_table(table, tmp_path / "rows.parquet")
    for data in (table, tmp_path / "rows.parquet"):
        (tmp_path / "l.ledger").unlink(missing_ok=True)
        with session(tmp_path, data) as opened:
            assert people(opened) == (600, 300, 300)
            assert all(finding.holds for finding in opened.verify(replay=True))


@pytest.mark.quick(2)
@pytest.mark.parametrize("name", CAST)
def test_the_cure_for_names_loses_nobody(tmp_path, name):
    """The view that the refusal proposes: as many people as before, and rows of nobody stay so."""
    several = len(NAMES["dates"]) if name != "truths" else 2
    table = twice(CAST[name], [float("nan")] if name in ("halves", "floats", "singles") else [])
    pq.write_table(table, tmp_path / "rows.parquet")
    for data in (table, tmp_path / "rows.parquet"):
        (tmp_path / "l.ledger").unlink(missing_ok=True)
        with pytest.raises(ArgumentError, match=r"is of type .* and must hold whole numbers, text or dates") as refused:
            session(tmp_path, data)
        with session(tmp_path, data, **line(refused.value)) as opened:
            assert people(opened) == (2 * several, several, several)


def test_zeros_of_both_signs_name_one_person(tmp_path):
    """To SQL 0 and -0 are the same: so they are after the cure."""
    table = pa.table({"p": [0.0, -0.0, 0.5]})
    with pytest.raises(ArgumentError) as refused:
        session(tmp_path, table)
    with session(tmp_path, table, **line(refused.value), check_view=False) as opened:
        assert people(opened) == (3, 2, 2)


@pytest.mark.parametrize("ids", [[f"{10**19 + n}" for n in NUMBERS], [f"{n}.50" for n in NUMBERS]])
def test_the_cure_for_names_in_csv_files_keeps_every_letter(tmp_path, ids):
    """Types for all columns, with text for the person: long numbers are not made into numbers with a point."""
    rows = "".join(f"{each},{n / 4},2011-12-09\n" for n, each in enumerate([*ids, *ids]))
    (tmp_path / "rows.csv").write_text(f"p,hours,day\n{rows}")
    with pytest.raises(ArgumentError, match="is of type DOUBLE") as refused:
        session(tmp_path, tmp_path / "rows.csv")
    cure = line(refused.value)
    assert cure == {"types": {"p": "text", "hours": "number", "day": "date"}}
    with session(tmp_path, tmp_path / "rows.csv", **cure) as opened:
        assert people(opened) == (600, 300, 300)
        assert opened.columns["data"] == {"p": "text", "hours": "number", "day": "date"}


def test_the_cure_for_tables_that_name_people_differently_loses_nobody(tmp_path):
    """Whole numbers become text beside text; text becomes UUIDs beside UUIDs, so that capital letters are no person."""
    numbers = {"one": pa.table({"p": list(NUMBERS)}), "two": pa.table({"p": [str(n) for n in NUMBERS]})}
    with pytest.raises(ArgumentError, match="table 'one' names people by 'p', table 'two' by 'p'") as refused:
        session(tmp_path, tables=numbers)
    assert "open table 'one' with" in str(refused.value)
    cured = numbers | {"one": Table(numbers["one"], **line(refused.value))}
    with session(tmp_path, tables=cured) as opened:
        assert people(opened) == (300, 300, 300)
        both = Count(each_person={"n": "count(two)"}, where="n = 1", sigma=1000.0)
        assert len(exact(opened, both, "cy")[1]) == 300
    (tmp_path / "l.ledger").unlink()
    with duckdb.connect(tmp_path / "a.duckdb") as connection:
        connection.register("given", pa.table({"p": UUIDS}))
        connection.execute("CREATE TABLE t AS SELECT CAST(p AS UUID) AS p FROM given")
    spelled = {"one": Table(tmp_path / "a.duckdb", table="t"), "two": pa.table({"p": [each.upper() for each in UUIDS]})}
    with pytest.raises(ArgumentError, match="some tables name people by UUID and others by text") as refused:
        session(tmp_path, tables=spelled)
    assert "open table 'two' with" in str(refused.value)
    with session(tmp_path, tables=spelled | {"two": Table(spelled["two"], **line(refused.value))}) as opened:
        assert people(opened) == (300, 300, 300)
        both = Count(each_person={"n": "count(two)"}, where="n = 1", sigma=1000.0)
        assert len(exact(opened, both, "cy")[1]) == 300


@pytest.mark.slow
@pytest.mark.parametrize(
    "days",
    [
        pa.array([NOON + n * HOURS for n in NUMBERS], pa.timestamp("us", "UTC")),
        pa.array([str(DAY + datetime.timedelta(n % 7)) for n in NUMBERS]),
        pa.array([1_577_836_800 + 3600 * (n % 7) for n in NUMBERS]),
        pa.array([1_577_836_800.5 + 3600 * (n % 7) for n in NUMBERS]),
    ],
)
def test_the_cure_for_periods_keeps_every_row(tmp_path, days):
    """Times with a zone, texts and seconds become dates or times."""
    table = pa.table({"p": list(NUMBERS), "day": days})
    periods = Periods("day", every="year", first="2020-01-01", last="2020-12-31")
    with pytest.raises(ArgumentError, match="and must hold dates or times: open the data with") as refused:
        session(tmp_path, table, periods=periods)
    with session(tmp_path, table, periods=periods, **line(refused.value)) as opened:
        assert people(opened) == (300, 300, 300)


@pytest.mark.quick(4)
@pytest.mark.parametrize("name", ["binary", "zoned", "zoned nanoseconds", "clock", "lists", "records"])
def test_the_cure_for_columns_of_other_types_keeps_every_entry(tmp_path, name):
    """A question names the type and what to write; then as many entries differ as before, and none is missing."""
    table = pa.table({"p": [*map(str, NUMBERS), "none"], "c": twice(CAST[name])["p"].slice(300)})
    told = pytest.raises(ArgumentError, match=r"column 'c' is of type [A-Z_ ]+: questions take numbers")
    with session(tmp_path, table) as opened, told as refused:
        opened.analyst("ann").quote(Count(where="c is null", clip=1, sigma=1000.0))
    with session(tmp_path, table, **line(refused.value)) as opened:
        missing = exact(opened, Count(where="c is null", clip=1, sigma=1000.0))[1]
        assert set(missing) == {"none"}
        connection = opened.ledger.store.workspace.connection
        assert connection.sql("SELECT count(DISTINCT c) FROM data").fetchall() == [(300,)]


def test_the_cure_for_a_joined_column_names_the_column_of_its_table(tmp_path):
    """Not table.column, which is no column there."""
    one = pa.table({"p": ["a"], "day": pa.array([NOON], pa.timestamp("us", "UTC"))})
    tables = {"rows": pa.table({"p": ["a"]}), "visits": Table(one, one_row=True)}
    told = pytest.raises(ArgumentError, match=r"column 'visits\.day' is of type TIMESTAMP WITH")
    with session(tmp_path, tables=tables) as opened, told as refused:
        opened.analyst("ann").quote(Count(where="visits.day is null", clip=1, sigma=1000.0))
    assert line(refused.value) == {"zone": "UTC"}


def test_a_refusal_shows_no_values_of_a_type(tmp_path):
    """The values of an ENUM are entries: a type that is made of one is named without them."""
    with duckdb.connect(tmp_path / "a.duckdb") as connection:
        connection.execute("CREATE TYPE mood AS ENUM ('secret', 'y')")
        made = "['y']::mood[] AS p, {'a': 'y'::mood} AS s, MAP {'y'::mood: 1} AS m, ['y']::mood[1] AS f"
        connection.execute(f"CREATE TABLE t AS SELECT {made}")
    for column in "psmf":
        with pytest.raises(ArgumentError) as refused:
            session(tmp_path, tmp_path / "a.duckdb", table="t", person=column)
        assert "secret" not in str(refused.value)
    with session(tmp_path, tmp_path / "a.duckdb", table="t", view="SELECT 1 AS q, * FROM data", person="q") as opened:
        assert opened.columns["data"] == {"q": "whole", "p": "LIST", "s": "STRUCT", "m": "MAP", "f": "ARRAY"}


def test_the_cure_for_json_lines_keeps_every_letter(tmp_path, monkeypatch):
    """Columns are named, so that ids of 20 digits do not become numbers with a point."""
    monkeypatch.chdir(tmp_path)
    rows = [{"who": who, "hours": n / 2} for n, who in enumerate([*(10**20 + n for n in NUMBERS), "007", "7"])]
    (tmp_path / "rows.jsonl").write_text("\n".join(map(json.dumps, rows)))
    with pytest.raises(DataError, match="write it as Parquet first") as refused:
        session(tmp_path, tmp_path / "rows.jsonl", person="who")
    (sql,) = re.findall(r'duckdb\.execute\("(.*)"\)', str(refused.value))
    duckdb.execute(sql)
    with session(tmp_path, tmp_path / "rows.parquet", person="who") as opened:
        assert people(opened) == (302, 302, 302)
        assert opened.columns["data"] == {"who": "text", "hours": "number"}
