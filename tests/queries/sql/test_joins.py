"""Whose the rows of joined tables are: removing one person changes that person's rows, and nobody else's."""

from dataclasses import replace
from random import Random

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from almoner import filters
from almoner.queries import Count, Lookup, Session, Sum, Table
from almoner.queries._language.expressions import checked_steps
from almoner.queries._sql import rows as joins
from almoner.queries._sql.dialects import duckdb_dialect
from almoner.queries._sql.rows import Joined, PeopleTable, PublicTable, Schema, one_row_each
from expressions import KINDS, grown
from joined_rows import check_joined
from joined_rows import given as given_tables
from joined_rows import joined as joined_columns
from ledgers import exact
from sessions import CHEAP

PEOPLE = "abcd"
who = st.sampled_from([*PEOPLE, None])
small = st.one_of(st.none(), st.integers(0, 2))
COLUMNS = {
    "visits": {"who": pa.string(), "n": pa.int64(), "v": pa.float64()},
    "homes": {"who": pa.string(), "n": pa.int64(), "v": pa.float64()},
    "codes": {"key": pa.int64(), "name": pa.string(), "next": pa.int64()},
    "names": {"key": pa.int64(), "name": pa.string(), "next": pa.int64()},
}
rows_of_people = st.lists(st.tuples(who, small, st.floats(-9, 9)), max_size=8)
rows_of_homes = st.lists(st.tuples(who, small, st.floats(-9, 9)), max_size=5, unique_by=lambda row: row[0] or object())
rows_of_codes = st.lists(st.tuples(small, st.sampled_from("xyz"), small), max_size=4, unique_by=lambda row: row[0])
worlds = st.fixed_dictionaries(
    {"visits": rows_of_people, "homes": rows_of_homes, "codes": rows_of_codes, "names": rows_of_codes}
)
NAMES = ["n", "v", "homes.n", "homes.v", "codes.name", "names.name", "names.next"]
STEPS = {
    "visits": "count()",
    "name": "max(codes.name)",
    "age": "max(homes.n)",
    "homes": "count(homes)",
    "gap": "sum(homes.v * 1.1)",
}
TURNED = {"mine": "max(v)", "rows": "count(visits)", "sum": "sum(visits.v * homes.n)", "name": "min(names.name)"}


@pytest.fixture(scope="module")
def connection():
    """To DuckDB, for one world after the other."""
    import duckdb

    with duckdb.connect() as connection:
        yield connection


def tables_of(world):
    """The tables of a world, for Arrow."""
    return {
        name: pa.table(
            [pa.array([row[place] for row in world[name]], kind) for place, kind in enumerate(kinds.values())],
            names=list(kinds),
        )
        for name, kinds in COLUMNS.items()
    }


def enter(connection, world):
    for name, table in tables_of(world).items():
        connection.register(name, table)


def schema(**changed):
    """The tables of a world, with some of the people's as another schema has them."""
    kinds = {
        name: {column: {pa.string(): "text", pa.int64(): "whole"}.get(kind, "number") for column, kind in each.items()}
        for name, each in COLUMNS.items()
    }
    spelled = {name: duckdb_dialect(each).columns for name, each in kinds.items()}
    people = {
        name: PeopleTable(name, kinds[name], spelled[name], 'CAST(d."who" AS VARCHAR)', one_row=name == "homes")
        for name in ("visits", "homes")
    }
    public = {
        name: PublicTable(name, kinds[name], spelled[name], "key", on, spelled[name]["key"])
        for name, on in (("codes", "homes.n"), ("names", "codes.next"))
    }
    return Schema({**people, **changed}, public, named=True)


def joined(connection, tables):
    """The rows of visits with everything that can be joined to them: pairs of a person and a row, in order."""
    rows = Joined(tables, "visits", duckdb_dialect([]))
    assert all(rows[name] for name in NAMES)
    listed = ", ".join(rows.columns[name] for name in NAMES)
    found = connection.execute(f"SELECT {rows.who}, {listed} FROM {rows.rows.text} d").fetchall()
    return sorted(found, key=repr)


def each_person(connection, tables, base, steps):
    """One row for each person, by the person."""
    people = one_row_each(Joined(tables, base, duckdb_dialect([])), checked_steps(steps), duckdb_dialect([]))
    listed = ", ".join(people.columns.values())
    sql = f"SELECT {people.who}, {listed} FROM {people.rows.text} d"
    return sorted(connection.execute(sql, people.rows.parameters).fetchall())


def without(world, person):
    """The world without all rows of a person; what is public stays."""
    return {
        name: [row for row in rows if name in ("codes", "names") or row[0] != person] for name, rows in world.items()
    }


def keeps_people_apart(connection, world, person, tables):
    """Whether the others' rows are the same without a person, and each row of visits is one row of the same person."""
    enter(connection, world)
    before = joined(connection, tables)
    enter(connection, without(world, person))
    after = joined(connection, tables)
    plain = sorted(((row[0], *row[1:]) for row in world["visits"]), key=repr)
    whole = sorted((row[:3] for row in before), key=repr) == plain
    return whole and after == [row for row in before if row[0] != person]


def steps_keep_people_apart(connection, world, person, tables):
    for base, steps in (("visits", STEPS), ("homes", TURNED)):
        enter(connection, world)
        before = each_person(connection, tables, base, steps)
        enter(connection, without(world, person))
        if each_person(connection, tables, base, steps) != [row for row in before if row[0] != person]:
            return False
    return True


@pytest.mark.slow
@settings(max_examples=50, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(world=worlds, person=st.sampled_from(PEOPLE))
def test_a_persons_rows_stay_that_persons(connection, world, person):
    """In random tables: without a person, the joined rows of the others are the same, and no row is lost or doubled."""
    assert keeps_people_apart(connection, world, person, schema())
    assert steps_keep_people_apart(connection, world, person, schema())


WORLD = {
    "visits": [("a", 1, 1.0), ("b", 1, 2.0), ("b", 0, 3.0), (None, 1, 4.0)],
    "homes": [("a", 1, 10.0), ("b", 0, 20.0), ("c", 2, 30.0)],
    "codes": [(0, "x", 1), (1, "y", 0)],
    "names": [(0, "p", 0), (1, "q", 1)],
}
TWICE = {**WORLD, "codes": [(0, "x", 1), (0, "z", 1)]}


def by_another_column(monkeypatch):
    """Homes are found by a number that others' may have, too."""
    number = 'TRY_CAST(d."n" AS BIGINT)'
    monkeypatch.setattr(Joined, "_by_person", lambda self, name, table: joins._Join(table, number, number))
    return WORLD, schema()


def by_how_many_people_there_are(monkeypatch):
    """A person's home says how many homes there are."""
    homes = schema().people["homes"]
    counted = "(SELECT who, n, v + (SELECT count(*) FROM homes) AS v FROM homes)"
    return WORLD, schema(homes=replace(homes, rows=counted))


def without_a_condition(monkeypatch):
    """Every home is joined to every visit."""
    right = joins._Join.onto
    monkeypatch.setattr(joins._Join, "onto", lambda self, rows: right(self, rows).rpartition(" ON ")[0] + " ON TRUE)")
    return WORLD, schema()


def rows_without_a_match_are_dropped(monkeypatch):
    right = joins._Join.onto
    monkeypatch.setattr(joins._Join, "onto", lambda self, rows: right(self, rows).replace("LEFT JOIN", "JOIN"))
    return WORLD, schema()


def a_key_has_two_rows(monkeypatch):
    """Which a session refuses when it is opened."""
    return TWICE, schema()


@pytest.mark.parametrize(
    "plant",
    [
        by_another_column,
        by_how_many_people_there_are,
        without_a_condition,
        rows_without_a_match_are_dropped,
        a_key_has_two_rows,
    ],
)
def test_planted_errors_are_found(connection, monkeypatch, plant):
    """Joins by what several people have, and rows that are lost or doubled, are what the test above looks for."""
    assert keeps_people_apart(connection, WORLD, "a", schema())
    world, tables = plant(monkeypatch)
    assert not keeps_people_apart(connection, world, "a", tables)


ASKED = [
    Sum("v * coalesce(homes.v, 1)", -99, 99, clip=5, by={"codes.name": ["x", "y"]}, table="visits", **CHEAP),
    Count(table="homes", each_person=TURNED, where="rows > 0 and sum is not null", **CHEAP),
]


@pytest.mark.slow
@settings(max_examples=8, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(world=worlds, person=st.sampled_from(PEOPLE))
def test_nobody_else_is_charged_otherwise(tmp_path_factory, world, person):
    """Without one person, questions over joined rows charge everybody else the same, to the unit, and add up less."""
    found = []
    for each in (world, without(world, person)):
        made = tables_of(each)
        with Session.open(
            tables={"visits": made["visits"], "homes": Table(made["homes"], one_row=True)},
            public={
                "codes": Lookup(made["codes"], "key", on="homes.n"),
                "names": Lookup(made["names"], "key", on="codes.next"),
            },
            person="who",
            budget=filters.Zcdp(rho=1.0),
            ledger=tmp_path_factory.mktemp("q") / "l",
            create=True,
        ) as session:
            found.append([exact(session, asked) for asked in ASKED])
    for (before, charged), (after, others) in zip(*found, strict=True):
        assert others == {name: units for name, units in charged.items() if name != person}
        assert person in charged or before == after


@pytest.mark.quick(4)
@pytest.mark.parametrize("seed", range(5))
def test_expressions_over_joined_columns_mean_what_python_computes(beside, seed):
    """Nasty entries, people without a home and rows without a code included; nothing fails."""
    choose = Random(seed).randrange
    for _ in range(30):
        check_joined(beside, joined_columns(grown(list(KINDS.values())[choose(6)], choose, 3), choose))


@pytest.fixture(scope="module")
def beside(tmp_path_factory):
    """A session over rows with homes and codes."""
    path = tmp_path_factory.mktemp("beside") / "l"
    with Session.open(budget=filters.Zcdp(rho=1.0), ledger=path, **given_tables(), create=True) as session:
        yield session
