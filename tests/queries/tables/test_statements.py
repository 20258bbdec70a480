"""SELECT statements: what they come to is what DuckDB says of the same rows, and what is not known is refused."""

import os
import random
from collections import Counter
from datetime import datetime

import duckdb
import pyarrow as pa
import pytest

from almoner import filters
from almoner.errors import ArgumentError
from almoner.ledger import Domain, Ledger, Terms
from almoner.queries import Keys, Lookup, Quantiles, Session, Several, Sql, Table
from sessions import opened
from statements import (
    BY,
    GIVEN,
    ROWS,
    asked_of,
    compare,
    duckdb_says,
    hostile,
    mutated,
    nested,
    random_statement,
    without_noise,
)

MANY = int(os.environ.get("ALMONER_STATEMENTS", "60"))


@pytest.fixture(scope="module")
def session(tmp_path_factory):
    with opened(tmp_path_factory.mktemp("sql") / "l", ROWS, budget=filters.Zcdp(rho=5e3)) as session:
        yield session


@pytest.mark.quick(20)
def test_statements_mean_what_duckdb_says(session):
    """Random statements in the subset: keys, filters, cases, functions, every aggregate, and SELECTs inside of FROM."""
    of, kept = random.Random(os.environ.get("ALMONER_SEED", "1")), Counter()
    for place in range(MANY):
        text, keys = random_statement(of)
        text = nested(of, text) if place % 2 else text
        try:
            duckdb_says(text)
        except duckdb.Error:
            continue
        try:
            compare(session, text, keys, wide=place % 2)
            kept[place % 2] += 1
        except ArgumentError:  # of two literals, or too deep
            continue
    assert min(kept[0], kept[1]) > MANY / 6


def test_whatever_is_written_is_refused_or_understood(session):
    """Statements with words put in, left out and swapped, and hostile ones: an argument error or a question."""
    of, analyst, meant = random.Random(os.environ.get("ALMONER_SEED", "2")), session.analyst("ann"), Counter()
    for place in range(5 * MANY):
        text = hostile(of) if place % 5 == 0 else mutated(of, random_statement(of)[0])
        try:
            analyst.quote(Sql(text, by=BY, **GIVEN))
            meant[place % 5 == 0] += 1
        except ArgumentError:
            continue
    assert min(meant[True], meant[False]) > 0


REFUSED = {
    "SELECT n FROM data": "must be an aggregate",
    "SELECT t, count(*) FROM data GROUP BY t": "write WHERE t IN (...), or give by={'t': [...]}",
    "SELECT upper(t) AS big, count(*) FROM data GROUP BY big": "WHERE the same expression IN (...), or give by={'big'",
    "SELECT upper(t), count(*) FROM data GROUP BY 1": "WHERE the same expression IN (...), or give by={'upper(t)'",
    "SELECT sum(n) FROM data": "for example `bounds={'n': (0, 100)}`",
    "SELECT max(n) FROM data": "write `quantile_cont(x, 0.99)`",
    "SELECT var_samp(n) FROM data": "write `var_pop`",
    "SELECT stddev(n) FROM data": "write `stddev_pop`",
    "SELECT count(DISTINCT t) FROM data": "`count(DISTINCT who)`; see queries.Distinct",
    "SELECT median(n), count(*) FROM data": "quantiles are a release of their own",
    "SELECT count(*) FROM data UNION SELECT 1": "SET_OPERATION_NODE",
    "SELECT count(*) FROM other": "no table 'other' is here; there are data",
    "SELECT count(*) FROM data WHERE secret > 1": "column 'secret' is not there",
    "SELECT DISTINCT count(*) FROM data": "'DISTINCT_MODIFIER' is not known here",
    "SELECT sum(n) OVER () FROM data": "'WINDOW_AGGREGATE' is not known here",
    "SELECT count(*) FROM data TABLESAMPLE 10%": "'sample' is not taken",
    "SELECT count(*) FROM data QUALIFY n > 1": "'qualify' is not taken",
    "WITH a(z) AS (SELECT n FROM data) SELECT sum(z) FROM a": "'aliases' is not taken",
    "SELECT count(*) FROM (SELECT 1)": "'EMPTY' is not known here",
    "SELECT count(*) FROM read_csv('/etc/passwd')": "'TABLE_FUNCTION' is not known here",
    "SELECT count(*) FROM data WHERE n IN (SELECT 1)": "'SUBQUERY' is not known here",
    "SELECT count(*) FROM data WHERE random() > 0.5": "'random' is not known here",
    "SELECT count(*) FROM data WHERE t ILIKE 'a'": "'~~*' is not known here",
    "SELECT avg(DISTINCT n) FROM data": "'DISTINCT' is for count(DISTINCT person)",
    "SELECT count(*) FROM (SELECT who, t FROM data GROUP BY ROLLUP (who, t))": "'GROUPING SETS'",
    "SELECT count(*) FROM data, data e": "is not taken",
    "SELECT count(*) FROM other.data": "'schema_name' is not taken",
    "SELECT sum(n)/count(*) AS mean FROM data": "an aggregate must stand alone in its column",
    "SELECT count(*) FROM data LIMIT 10%": "'LIMIT_MODIFIER'",
    "SELECT sum(x::INTEGER) FROM data": "'INTEGER' is not known here; write `round(x)`",
    "SELECT 1; SELECT 2": "must be one SELECT statement",
    "DROP TABLE data": "must be one SELECT statement",
    "SELECT count(*), count(*) FROM data": "two columns have one name",
    "": "must be a SELECT of 1 to",
}


@pytest.mark.parametrize("text", REFUSED)
def test_what_is_not_known_is_refused_by_its_name(session, text):
    """Each with the word, and with what to write where there is something."""
    with pytest.raises(ArgumentError) as refused:
        session.analyst("ann").filled(Sql(text, clip=1, sigma=300.0))
    assert REFUSED[text] in str(refused.value)


def test_an_unknown_word_in_a_known_node_is_refused(session, monkeypatch):
    """The wrong variant, in which a field that is not known is passed over, takes a sample for the whole table."""
    from almoner.queries._language import nodes, sql

    text = "SELECT count(*) FROM data TABLESAMPLE 10%"
    with pytest.raises(ArgumentError):
        sql.statement(text, lambda _: lambda _, name: name)
    monkeypatch.setattr(nodes, "_empty", lambda _: True)
    assert sql.statement(text, lambda _: lambda _, name: name).table == "data"


def test_rows_are_kept_ordered_and_cut_as_the_statement_says(session):
    """HAVING, ORDER BY, LIMIT and OFFSET are about released values; hidden aggregates are paid for, and not shown."""
    text = (
        "SELECT t AS letter, avg(x) AS mean FROM data WHERE t IN ('a', 'b', 'it''s') GROUP BY t "
        "HAVING count(*) > 3 AND letter <> 'zz' ORDER BY sum(x) DESC NULLS FIRST, 1 LIMIT 2 OFFSET 1"
    )
    rows = without_noise(session, Sql(text, **GIVEN))
    assert rows.columns == ("letter", "mean", "mean_low", "mean_high")
    assert [row[0] for row in rows.rows] == [letter for letter, _ in duckdb_says(text)]
    assert [name for name, _ in rows.answer.question.members] == ["mean", "count(*)", "sum(x)"]
    assert rows.to_arrow().num_rows == len(rows.to_pandas()) == 2
    none = without_noise(session, Sql("SELECT count(*) AS c FROM data HAVING c < 0", **GIVEN))
    assert none.rows == []
    assert none.to_arrow().num_rows == 0


@pytest.mark.parametrize("group", ["1", "n", "data.n"])
def test_columns_of_the_rows_come_before_names_of_the_select(session, group):
    """GROUP BY and HAVING take a name for a column that stands in GROUP BY, and ORDER BY for one of the answer."""
    text = f"SELECT n AS k, count(*) AS n FROM data GROUP BY {group} HAVING n > 2 ORDER BY n DESC, k"
    rows = without_noise(session, asked_of(text)).rows
    assert [(row[0], round(row[1])) for row in rows if row[0] != 99] == duckdb_says(text)


def test_a_name_of_the_select_does_not_hide_a_column_that_rows_are_grouped_by(session):
    """An expression under the name of a column is no key, and two entries with one value of it are two groups."""
    made = "CASE WHEN t = 'a' THEN 'b' ELSE t END AS t, count(*) AS n FROM data"
    with pytest.raises(ArgumentError, match="'t' must be an aggregate, or stand in GROUP BY; there a column comes"):
        session.analyst("ann").filled(asked_of(f"SELECT {made} GROUP BY t"))
    compare(session, f"SELECT count(*) FROM (SELECT who, {made} WHERE t <> '' GROUP BY who, t) q", [])


def test_one_release_for_all_aggregates(session):
    """One question, one price, one entry of the record; under the same key it is there for nothing."""
    analyst = session.analyst("sam")
    text = "SELECT b, count(*), avg(n), sum(n), count(DISTINCT who) FROM data WHERE n IS NOT NULL GROUP BY b"
    options = {"clip": 4, "rho": 0.1, "bounds": {"n": (-4, 7)}}
    first, again = (analyst.sql(text, key="one", **options) for _ in range(2))
    assert first == again
    assert len(analyst.answers()) == 1
    assert isinstance(first.answer.question, Several)
    assert first.answer.question.coordinates == 3
    assert first.answer.rho == pytest.approx(0.1)
    assert {row[0] for row in first.rows} == {True, False}


def test_quantiles_are_asked_alone(session):
    """Of one column, at several levels, between its bounds."""
    text = "SELECT b, median(n) AS half, quantile_cont(n, 0.9) FROM data GROUP BY b ORDER BY half"
    rows = without_noise(session, Sql(text, quantile_bins=11, **GIVEN))
    assert isinstance(rows.answer.question, Quantiles)
    assert rows.answer.question.levels == (0.5, 0.9)
    assert len(rows.rows) == 2
    assert rows.columns[4] == "quantile_cont(n, 0.9)"


@pytest.fixture(scope="module")
def shop(tmp_path_factory):
    """Visits, customers with one row each, and public regions."""
    visits = pa.table(
        {"who": ["a", "a", "b", "c", "x"], "zip": ["n", "s", "n", "n", "s"], "spent": [1.0, 2.0, 3.0, 4.0, 5.0]}
    )
    customers = pa.table({"id": ["a", "b", "c"], "age": [20, 30, None], "member": [True, False, True]})
    zips = pa.table({"zip": ["n", "s"], "region": ["north", "south"]})
    tables = {"visits": visits, "customers": Table(customers, one_row=True)}
    with Session.open(
        tables=tables, public={"zips": Lookup(zips, "zip")}, person={"visits": "who", "customers": "id"},
        budget=filters.Zcdp(rho=5e3), ledger=tmp_path_factory.mktemp("shop") / "l", create=True,
    ) as session:  # fmt: skip
        yield session


def test_tables_are_joined_by_the_person_or_a_public_key(shop):
    """LEFT JOIN keeps rows without a match, JOIN does not; another condition is refused with the one to write."""
    by_age = (
        "SELECT count(*) AS n, sum(v.spent) AS s FROM visits v {} customers c ON {} WHERE c.age > 25 OR c.age IS NULL"
    )
    given = {"clip": 9, "sigma": 300.0, "bounds": {"spent": (0, 9)}}
    left = without_noise(shop, Sql(by_age.format("LEFT JOIN", "v.who = c.id"), **given)).rows[0]
    inner = without_noise(shop, Sql(by_age.format("JOIN", "c.id = v.who"), **given)).rows[0]
    assert (round(left[0]), round(left[3])) == (3, 12)
    assert (round(inner[0]), round(inner[3])) == (2, 7)
    regions = (
        "SELECT region, count(*) FROM visits JOIN zips USING (zip) WHERE region IN ('north', 'south') GROUP BY region"
    )
    assert [round(row[1]) for row in without_noise(shop, Sql(regions, **given)).rows] == [3, 2]
    with pytest.raises(ArgumentError, match=r"write JOIN customers ON who = customers\.id"):
        shop.analyst("ann").filled(Sql(by_age.format("JOIN", "v.zip = c.id"), **given))
    one = shop.analyst("ann").filled(Sql("SELECT count(*), avg(member) FROM customers", rho=0.1))
    assert (one.clip, one.table) == (1, "customers")
    assert dict(one.aggregates)["avg(member)"][-1] == ("bounds_hold", True)


def test_a_join_that_gives_several_rows_is_refused(shop):
    """DuckDB makes a row of each pair, and a question about customers would count each of these once."""
    text = "SELECT count(*) FROM customers c LEFT JOIN visits v ON c.id = v.who"
    with pytest.raises(
        ArgumentError, match=r"several rows in table 'visits': begin FROM with it, or .*count\(visits\)"
    ):
        shop.analyst("ann").filled(Sql(text, clip=9, sigma=300.0))


def test_public_rows_are_found_by_a_column_of_another_table_or_of_this_one(tmp_path):
    """A public table whose ``on`` names a table is joined to this table as it is to those that lead to it."""
    visits = pa.table({"who": ["a", "a", "b"], "spent": [1.0, 2.0, 3.0]})
    customers = pa.table({"id": ["a", "b", "c"], "zip": ["n", "s", "n"]})
    zips = pa.table({"zip": ["n", "s"], "region": ["north", "south"]})
    with Session.open(
        tables={"visits": visits, "customers": Table(customers, one_row=True)},
        public={"zips": Lookup(zips, "zip", on="customers.zip")}, person={"visits": "who", "customers": "id"},
        budget=filters.Zcdp(rho=5e3), ledger=tmp_path / "l", create=True,
    ) as shop:  # fmt: skip
        for joined in (
            "customers JOIN zips ON customers.zip = zips.zip",
            "customers JOIN zips USING (zip)",
            "visits JOIN customers ON who = id JOIN zips ON customers.zip = zips.zip",
        ):
            asked = Sql(f"SELECT count(*) FROM {joined} WHERE region = 'north'", clip=9, sigma=300.0)
            assert round(without_noise(shop, asked).rows[0][0]) == 2


def test_times_are_compared_as_they_are_cast(tmp_path):
    """A literal cast to a date loses its hour, and a time that is cast to text is refused: its hour would be lost."""
    times = pa.table({"who": ["a", "b", "c"], "tm": [datetime(2011, 12, 1, hour) for hour in (0, 8, 12)]})
    with opened(tmp_path / "l", times, budget=filters.Zcdp(rho=5e3)) as session:
        for literal, wanted in (
            ("CAST('2011-12-01 10:00:00' AS DATE)", 3),
            ("DATE '2011-12-01 10:00:00'", 3),
            ("CAST('2011-12-01 10:00:00' AS TIMESTAMP)", 1),
        ):
            asked = Sql(f"SELECT count(*) FROM data WHERE tm >= {literal}", clip=1, sigma=300.0)
            assert round(without_noise(session, asked).rows[0][0]) == wanted
        asked = Sql("SELECT count(*) FROM data WHERE CAST(tm AS VARCHAR) LIKE '%12:00:00'", clip=1, sigma=300.0)
        with pytest.raises(ArgumentError, match=r"but no text\(time\)"):
            without_noise(session, asked)


def test_keys_and_bounds_may_be_those_of_the_data_set(tmp_path):
    """Declared domains close a statement: no list of keys and no bounds are given."""
    with Ledger.open(tmp_path / "l", Terms(filters.Zcdp(rho=5e3), person="VARCHAR"), create=True) as book:
        book.dataset("data", person="who", columns={"n": Domain(low=-4, high=7), "t": Domain(keys=["a", "b"])})
        with Session.open(ROWS, person="who", ledger=book, dataset="data") as session:
            rows = session.analyst("ann").sql("SELECT t, avg(n) FROM data GROUP BY t", key="k", clip=9, rho=0.1)
            assert [row[0] for row in rows.rows] == ["a", "b"]


def test_bounds_of_expressions():
    """Literals, cases, least and greatest bound an expression, and then nothing is clipped; given ones may clip."""
    from almoner.queries._language.expressions import parse_value
    from almoner.queries._language.sql import statement
    from almoner.queries._tables.statements import _Meaning

    def found(text, **given):
        asked = Sql("SELECT count(*) FROM data", bounds={"n": (0, 50)}, sigma=1.0, **given)
        told = statement(asked.sql, lambda _: lambda _, name: name)
        meaning = _Meaning(asked, told, {"b": "bool", "n": "whole"}, lambda _: None)
        return meaning.bounds(parse_value(text, name="column"))

    assert found("greatest(least(x, 99), 0)") == (0, 99, True)
    assert found("case when x > 3 then 1 else 0 end") == (0, 1, True)
    assert found("b") == found("x > 3") == (0, 1, True)
    assert found("n") == (0, 50, False)
    assert found("n", bounds_hold=True) == (0, 50, True)
    assert found("greatest(n, 60)") == (60, 60, False)
    assert found("least(n, 10)") == (0, 10, False)
    assert found("least(case when b then 1 end, 9)") == (1, 9, True)  # 9 where the case is missing
    assert found("greatest(case when b then 1 end, -9)") == (-9, 1, True)
    assert found("least(coalesce(n, 3), n, 99)", bounds_hold=True)[2] is True
    assert found("x + 1")[:2] == (float("-inf"), float("inf"))


def test_tables_are_joined_along_the_path_to_the_person(tmp_path):
    """The lines of orders by what their orders and customers are; people are those at the end of the path."""
    lines = pa.table({"order": [1, 1, 2, 3, 9], "price": [1.0, 2.0, 3.0, 4.0, 5.0]})
    orders = pa.table({"id": [1, 2, 3], "buyer": ["ann", "bob", "ann"], "web": [True, False, True]})
    buyers = Table(pa.table({"name": ["ann", "bob"], "age": [30, 40]}), one_row=True)
    with Session.open(
        tables={"lines": lines, "orders": orders, "buyers": buyers},
        person={"lines": "order -> orders.id", "orders": "buyer", "buyers": "name"},
        budget=filters.Zcdp(rho=5e3), ledger=tmp_path / "l", create=True,
    ) as market:  # fmt: skip
        both = 'FROM lines JOIN orders ON lines."order" = orders.id JOIN buyers ON orders.buyer = buyers.name'
        given = {"clip": 9, "sigma": 300.0, "bounds": {"price": (0, 9)}}
        asked = Sql(f"SELECT web, count(*) AS n, sum(price) AS s {both} WHERE age < 45 GROUP BY web", **given)
        rows = without_noise(market, asked)
        wanted = {True: (3, 7.0), False: (1, 3.0)}
        n, s = rows.columns.index("n"), rows.columns.index("s")
        assert {row[0]: (round(row[n]), round(row[s], 2)) for row in rows.rows} == wanted
        web = (
            f"SELECT buyer, count(*) AS n, count(price) AS k {both} WHERE web GROUP BY buyer"  # of lines, not of orders
        )
        step = Sql(f"SELECT count(*), avg(n) AS a, avg(k) FROM ({web})", sigma=300.0, bounds={"n": (0, 9), "k": (0, 9)})
        assert without_noise(market, step).rows[0][::3] == pytest.approx([1, 3, 3], abs=1e-3)
        people = Sql('SELECT count(DISTINCT orders.buyer) FROM lines JOIN orders ON "order" = id', **given)
        assert round(without_noise(market, people).rows[0][0]) == 2
        with pytest.raises(ArgumentError, match=r"write JOIN orders ON order = orders\.id"):
            market.analyst("ann").filled(Sql("SELECT count(*) FROM lines JOIN orders ON price = id", **given))


def test_a_clip_may_be_chosen(session):
    """``clip="auto"`` is for a statement as for other questions, and is refused where it has nothing to choose."""
    options = {"clip": "auto", "rho": 500, "bounds": {"n": (-4, 7)}}
    rows = session.analyst("eve").sql("SELECT count(*), avg(n) FROM data WHERE n IS NOT NULL", key="a", **options)
    assert 1 <= rows.answer.question.clip <= 9
    with pytest.raises(ArgumentError, match="nobody counts for more than one full row"):
        session.analyst("eve").sql("SELECT count(DISTINCT who) FROM data", key="b", **options)


INSIDE = {
    "SELECT count(*) FROM (SELECT t, count(*) AS k FROM data GROUP BY t)": "write GROUP BY who, there too",
    "SELECT count(*) FROM (SELECT who, t, n FROM data GROUP BY ALL)": "GROUP BY who and one more column, then",
    "SELECT count(*) FROM (SELECT sum(n) AS s FROM data)": "inside of FROM, beside GROUP BY",
    "SELECT count(*) FROM (SELECT n FROM data LIMIT 3)": "stand in the last SELECT",
    "SELECT count(*) FROM (SELECT who, n FROM data GROUP BY who)": "'n' must be an aggregate, or stand in GROUP BY",
    "SELECT count(*) FROM (SELECT who, sum(n) AS who FROM data GROUP BY who)": "'who' is there twice",
    "SELECT count(*) FROM (SELECT *, n + 1 AS n FROM data)": "'n' is there twice",
    "SELECT sum(x) FROM (SELECT n FROM data)": "column 'x' is not there",
    "SELECT count(*) FROM (SELECT who FROM data GROUP BY who) q JOIN data USING (who)": "JOIN stands inside",
    "SELECT count(*) FROM (SELECT * FROM data) q JOIN data b USING (who)": "table 'data' may stand there once",
    "WITH RECURSIVE a AS (SELECT n FROM data UNION SELECT n FROM a) SELECT count(*) FROM a": "WITH without RECURSIVE",
    "WITH a AS (SELECT * FROM a) SELECT count(*) FROM a": "no table 'a' is here",
    "SELECT avg(s) FROM (SELECT who, sum(n) AS s FROM data GROUP BY who)": "for example `bounds={'s': (0, 100)}`",
    "SELECT t, count(DISTINCT who) FROM data GROUP BY t": "delta=1e-9 for keys that nobody lists",
}


@pytest.mark.parametrize("text", INSIDE)
def test_what_cannot_be_read_into_a_question_is_refused(session, text):
    """SELECTs inside of FROM that are no columns, no filter and no step over a person's rows."""
    with pytest.raises(ArgumentError) as refused:
        session.analyst("ann").filled(Sql(text, sigma=300.0))
    assert INSIDE[text] in str(refused.value)


def test_a_select_that_groups_by_the_person_is_a_step_over_a_persons_rows(session):
    """Nobody counts for more than one row then, so that no clip is needed; other names may bound its columns."""
    text = (
        "WITH bits AS (SELECT who, t, sum(n) AS s FROM data WHERE t <> '' GROUP BY who, t), "
        "people AS (SELECT who, max(s) AS most, avg(s) AS mean FROM bits GROUP BY who HAVING count(*) > 1) "
        "SELECT count(*) AS c, avg(most), avg(mean) AS m, count(DISTINCT who) AS who FROM people"
    )
    asked = session.analyst("ann").filled(Sql(text, sigma=300.0, bounds={"most": (-9, 40), "mean": (-9, 40)}))
    assert (asked.clip, dict(asked.each).keys(), len(asked.each_person)) == (1, {"t"}, 4)
    row = without_noise(session, Sql(text, sigma=300.0, bounds={"most": (-9, 40), "mean": (-9, 40)})).rows[0]
    assert row[::3] == pytest.approx([float(each) for each in duckdb_says(text)[0]], abs=1e-3)


def test_steps_are_not_what_is_declared_of_columns_of_their_names(tmp_path):
    """The wrong variant clips a person's sum to the bounds of an entry, and says that nothing is clipped."""
    with Ledger.open(tmp_path / "l", Terms(filters.Zcdp(rho=5e3), person="VARCHAR"), create=True) as book:
        book.dataset("data", person="who", columns={"n": Domain(low=-4, high=7), "t": Domain(keys=["a", "b"])})
        with Session.open(ROWS, person="who", ledger=book, dataset="data") as session:
            text = "SELECT avg(n) FROM (SELECT who, sum(n) AS n FROM data GROUP BY who)"
            with pytest.raises(ArgumentError, match="bounds of 'n' are not known"):
                session.analyst("ann").filled(Sql(text, rho=0.1))
            asked = session.analyst("ann").filled(Sql(text, rho=0.1, bounds={"n": (-9, 99)}))
            assert dict(asked.plain()["avg(n)"]) == {
                "ask": "mean",
                "column": "n",
                "low": -9,
                "high": 99,
                "per": "row",
                "bounds_hold": False,
            }


def test_keys_that_nobody_listed_are_asked_for_with_a_delta(tmp_path):
    """One question of ``Keys``; HAVING, ORDER BY and LIMIT are about the keys that are told."""
    many = pa.table({"who": [*range(600)], "t": ["a", "b", "b"] * 200})
    with opened(tmp_path / "l", many, budget=filters.Zcdp(rho=5e3), keys_delta=1e-6) as session:
        text = "SELECT t, count(DISTINCT who) AS people FROM data GROUP BY t HAVING people > 300 ORDER BY people"
        rows = session.analyst("ann").sql(text, key="k", rho=10, delta=1e-9)
        assert (rows.answer.question, rows.columns[:2]) == (Keys("t", delta=1e-9, rho=10), ("t", "people"))
        assert [(key, round(people, -1)) for key, people, *_ in rows.rows] == [("b", 400)]
        for wrong in ({"by": {"t": ["a"]}}, {"clip": 3}):
            with pytest.raises(ArgumentError):
                session.analyst("ann").sql(text, key="w", rho=1, delta=1e-9, **wrong)
        with pytest.raises(ArgumentError, match=r"count\(DISTINCT person\) alone"):
            session.analyst("ann").sql("SELECT t, count(*) FROM data GROUP BY t", key="w", rho=1, delta=1e-9)
