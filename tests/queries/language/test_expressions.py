"""Expressions: random ones over nasty entries against plain Python, and where they may stand in questions."""

import json
import time
from random import Random

import duckdb
import pyarrow as pa
import pytest
from pyarrow import parquet

from almoner.errors import ArgumentError
from almoner.queries import Count, Histogram, Mean, Sum, ranges
from almoner.queries._language.expressions import checked_steps, parse, parse_value
from almoner.queries._questions.kinds_of import described, question
from almoner.queries._sql.columns import FilterCompiler
from almoner.queries._sql.dialects import Sql, duckdb_dialect
from almoner.queries._sql.rows import People, one_row_each
from almoner.queries.spark import spark_dialect
from expressions import KINDS, NASTY, grown, value, written
from sessions import opened, without_noise
from sparks import NO_CODE, needs_spark, started

MANY = {"clip": 100, "sigma": 1000.0}

TYPES = {
    "n": pa.int64(),
    "f": pa.float64(),
    "t": pa.string(),
    "b": pa.bool_(),
    "d": pa.date32(),
    "s": pa.timestamp("us"),
}
ROWS = [
    {name: NASTY[name][(5 * row + 3 * place) % len(NASTY[name])] for place, name in enumerate(KINDS)}
    for row in range(72)
]


@pytest.fixture(scope="module")
def table():
    """A connection with the rows as the table data."""
    with duckdb.connect() as connection:
        rows = pa.table({name: pa.array([row[name] for row in ROWS], TYPES[name]) for name in KINDS})
        connection.register("data", rows)
        yield connection


def computed(connection, texts):
    """The values of some expressions, for each a list of one for each row."""
    compiler = FilterCompiler(KINDS, duckdb_dialect(KINDS), "column")
    pieces = [compiler.value(parse_value(text, name="column"))[1] for text in texts]
    parameters = [each for piece in pieces for each in piece.parameters]
    rows = connection.execute(f"SELECT {', '.join(piece.text for piece in pieces)} FROM data d", parameters).fetchall()
    return [list(column) for column in zip(*rows, strict=True)]


@pytest.mark.parametrize("seed", range(10))
def test_expressions_mean_what_python_computes(table, seed):
    """Whatever the entries are, each value is Python's or missing, to the last bit; nothing fails."""
    choose = Random(seed).randrange
    trees = [grown(list(KINDS.values())[choose(6)], choose, 3) for _ in range(40)]
    texts = list(map(written, trees))
    for tree, text, values in zip(trees, texts, computed(table, texts), strict=True):
        assert values == [value(tree, row) for row in ROWS], text


ENGINE_TREES = 25


STEPS = {
    "rows": "count()",
    "big": "count(f > 0)",
    "any": "any(b)",
    "all": "all(b)",
    "sum": "sum(f * 1.1)",
    "n": "sum(n)",
}
STEPS |= {"kinds": "distinct(t)", "least": "min(d)", "most": "max(t)", "first": "first(t, d)", "last": "last(f, s)"}


def one_each(execute, dialect, rows):
    """One row for each day of the month, in order: as if that were the person."""
    kinds = {"place": "whole", **KINDS}
    people = People(Sql(rows), f"day({dialect.columns['d']})", kinds, dialect.columns)
    made = one_row_each(people, checked_steps(STEPS), dialect)
    result = execute(f"SELECT d.* FROM {made.rows.text} d ORDER BY d.person", made.rows.parameters)
    return [tuple(row) for row in (result.collect() if hasattr(result, "collect") else result.fetchall())]


@pytest.mark.server
@needs_spark
def test_spark_computes_what_duckdb_computes(table, tmp_path):
    """The same values to the last bit, also of dates, roundings and letters with marks."""
    choose = Random(99).randrange
    texts = [written(grown(list(KINDS.values())[choose(6)], choose, 2)) for _ in range(ENGINE_TREES)]
    texts += [f"{name}(f)" for name in ("floor", "round", "abs", "sqrt", "ln", "exp", "whole")]
    texts += [f"{name}({column})" for name in ("week", "month", "quarter", "year", "weekday") for column in "ds"]
    texts += [
        "lower(t)",
        "upper(t)",
        "number(t)",
        "whole(t)",
        "date(t)",
        "bucket(f, 0.1)",
        "contains(t, 'a')",
        "hour(s)",
        "t like '%a_b%'",
    ]
    rows = table.sql("SELECT row_number() OVER () AS place, * FROM data").to_arrow_table()
    parquet.write_table(rows.rename_columns([f"c{place}" for place in range(7)]), tmp_path / "rows.parquet")
    names = dict.fromkeys(["place", *KINDS])
    spark = started(tmp_path, **NO_CODE)
    try:
        compiler = FilterCompiler(KINDS, spark_dialect(names), "column")
        listed = [compiler.value(parse_value(text, name="column"))[1].text for text in texts]
        data = spark.read.parquet(str(tmp_path / "rows.parquet"))
        on_spark_each = one_each(lambda sql, _: spark.sql(sql, data=data), spark_dialect(names), "{data}")
        on_spark = spark.sql(f"SELECT d.c0, {', '.join(listed)} FROM {{data}} d", data=data).collect()
    finally:
        spark.stop()
    assert on_spark_each == one_each(table.execute, duckdb_dialect(names), "data")
    columns = list(zip(*sorted((tuple(row) for row in on_spark), key=lambda row: row[0]), strict=True))[1:]
    for text, column, values in zip(texts, columns, computed(table, texts), strict=True):
        assert list(column) == values, text


def test_expressions_stand_wherever_columns_do(path):
    """In filters, as the column that is added up or divided into bins, and among the groups."""
    with opened(path) as session:
        for asked, wanted in [
            (Mean("place = 'x'", 0, 1, per="row", **MANY), [4 / 6]),
            (Mean("paid", 0, 1, per="row", **MANY), [5 / 6]),
            (Sum("case when place = 'x' then n * 2 else 0 end", 0, 20, **MANY), [28]),
            (Count(by={"month(day)": ["2011-12-01"], "weekday(day)": [4, 5]}, **MANY), [4, 3]),
            (Count(by={"substring(coalesce(place, 'zed'), 1, 1)": ["x", "z"]}, **MANY), [4, 2]),
            (Count(by={"n": [(0, 2), (5, None), (2, 5)]}, **MANY), [1, 3, 3]),
            (Count(by={"n / 2": [(0, 1), (1, 2.5)], "paid": [True]}, **MANY), [1, 2]),
            (Count(by={"day": ranges(["2011-12-01", "2011-12-02", None])}, **MANY), [4, 3]),
            (Count(where="upper(place) like 'X%' and year(day) = 2011 and n / 0 is null", **MANY), [4]),
            (Count(where="n between -1 and 2 or -n = -8", **MANY), [3]),
        ]:
            assert without_noise(session, asked) == pytest.approx(wanted, rel=1e-6), asked
            assert question(json.loads(json.dumps(described(asked)))) == asked
        assert without_noise(session, Histogram("n * 2.0", (0, 4, 8, 20), per="row", **MANY)) == [[1, 2, 4]]


def test_dates_of_pandas_are_keys_and_edges(path):
    """Midnight is a date."""
    pandas = pytest.importorskip("pandas")
    days = pandas.date_range("2011-12-01", periods=3)
    with opened(path) as session:
        asked = Count(by={"day": days}, **MANY)
        assert asked.labels == [("2011-12-01",), ("2011-12-02",), ("2011-12-03",)]
        assert without_noise(session, asked) == [4, 3, 0]
        assert without_noise(session, Count(by={"day": ranges(days)}, **MANY)) == [4, 3]


@pytest.mark.quick(9)
@pytest.mark.parametrize(
    ("column", "message"),
    [
        ("year(place)", "there is year.date., but no year.text."),
        ("n + place", "a number is needed where there is a text"),
        ("nothing + 1", "column 'nothing' is not in the data"),
        ("place", "does not hold numbers"),
        ("case when n then 1 end", "column 'n' holds no truth values"),
        ("case when paid then n else place end", "cannot be in one case"),
        ("bucket(n, 0)", "a width above 0"),
        ("length(substring(place, 0))", "places that are whole numbers from 1"),
        ("least()", "needs values"),
        ("sum(n)", "'sum' is no function here"),
        ("month(day)", "does not hold numbers"),
        ("+".join(["n"] * 202), "nested more than"),
        ("round(" * 41 + "n" + ")" * 41, "nested more than"),
    ],
)
def test_wrong_types_are_refused_before_anything_is_charged(path, column, message):
    """By the kinds of the columns, whatever the entries are."""
    with opened(path) as session:
        with pytest.raises(ArgumentError, match=message):
            session.analyst("ann").ask(Sum(column, 0, 1, **MANY), key="k")
        assert session.ledger.entries("answered") == []


@pytest.mark.quick(7)
@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ([(0, 2), (1, 3)], "overlap"),
        ([(None, 2), (None, 1)], "overlap"),
        ([(2, 2)], "low end below"),
        ([(0, 2), 3], "either keys or ranges"),
        ([(None, None)], "no range"),
        ([(0, 1, 2)], "no range"),
        ([(0, "x")], "cannot be compared"),
        ([(0, float("nan"))], "no end of a range"),
    ],
)
def test_ranges_that_are_none_are_refused(path, keys, message):
    """Groups of ranges do not meet."""
    with opened(path) as session, pytest.raises(ArgumentError, match=message):
        session.analyst("ann").quote(Count(by={"n": keys}, **MANY))


def test_functions_inside_of_each_other_stay_short(path):
    """The text for an engine grows with the text of the expression, not with a power of it."""
    nested = "round(" * 35 + "f / (1 / f)" + ")" * 35
    for dialect in (duckdb_dialect(KINDS), spark_dialect(KINDS)):
        sql = FilterCompiler(KINDS, dialect).value(parse_value(nested, name="column"))[1]
        assert len(sql.text) < 40_000
    with opened(path) as session:
        asked = Sum("round(" * 35 + "n / (1 / n)" + ")" * 35, 0, 10, **MANY)
        assert without_noise(session, asked) == pytest.approx([1 + 4 + 9 + 4 * 10], rel=1e-6)


def test_patterns_are_matched_in_linear_time(table):
    """A pattern of many parts over a text that nearly matches does not try all ways to divide the text."""
    pattern, text = "%a" * 80 + "%b", "a" * 20_000
    _, condition = FilterCompiler({"t": "text"}, duckdb_dialect({"t": "text"})).value(parse(f"t like '{pattern}'"))
    start = time.process_time()
    query = f"SELECT {condition.text} FROM (SELECT ? AS t) d"
    assert table.execute(query.replace("?", "$1", 1).replace("?", "$2"), [*condition.parameters, text]).fetchall() == [
        (False,)
    ]
    assert time.process_time() - start < 5


def test_logarithms_roots_and_powers_are_missing_where_they_are_none(table):
    """No entry makes them fail; what is no finite number is missing."""
    for name in ("ln", "sqrt", "exp"):
        (found,) = computed(table, [f"{name}(f)"])
        wanted = [value(parse_value(f"{name}(f)", name="column"), row) for row in ROWS]
        assert [each is None for each in found] == [each is None for each in wanted]
        there = [(a, b) for a, b in zip(found, wanted, strict=True) if a is not None]
        assert all(a == pytest.approx(b, rel=1e-14) for a, b in there)


def test_a_hundred_columns_are_added(table):
    """A sum of many columns is one expression."""
    text = "+".join(["f"] * 100)
    assert computed(table, [text]) == [[value(parse_value(text, name="column"), row) for row in ROWS]]


def test_whole_numbers_of_a_number_are_keys(path):
    """Buckets of a whole width, floor and round need no whole() to group by; other numbers are refused."""
    with opened(path) as session:
        for column, keys in (("bucket(amount, 2)", [0, 2]), ("floor(amount)", [1, 2]), ("round(amount)", [1, 3])):
            asked, whole = (Count(by={text: keys}, **MANY) for text in (column, f"whole({column})"))
            assert without_noise(session, asked) == without_noise(session, whole) != [0, 0]
        with pytest.raises(ArgumentError, match="of kind number"):
            session.analyst("ann").quote(Count(by={"bucket(amount, 0.5)": [0, 1]}, **MANY))
