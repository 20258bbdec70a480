"""Tables whose rows belong to a person by a path of keys: whose they are, what is charged, and what is refused."""

import datetime
import json
import math
import re
import uuid
from collections import Counter
from dataclasses import replace
from random import Random

import pyarrow as pa
import pytest
from pyarrow import csv, parquet

from almoner import filters, ledger
from almoner._workspace import duckdb
from almoner.errors import ArgumentError, DataError, Unsupported
from almoner.queries import Count, Lookup, Mean, People, Session, Sum, Table, plans
from almoner.queries._questions.kinds_of import described, question
from almoner.queries._questions.noise import STEPS
from almoner.queries._sql import rows as joins
from almoner.queries._sql.columns import kind_of_type
from almoner.queries._sql.compiler import Compiler
from almoner.queries._sql.dialects import duckdb_dialect
from almoner.queries._sql.rows import Joined
from almoner.queries._tables import tables as given_tables
from almoner.queries._tables.tables import TableInput, schema_of
from ledgers import exact
from sessions import CHEAP, without_noise

PEOPLE = 5
IDS = {
    "BIGINT": lambda number: number,
    "VARCHAR": lambda number: f"{'Éa' if number % 2 else 'éA'}{number // 2}",
    "DATE": lambda number: datetime.date(2011, 1, 1) + datetime.timedelta(number),
    "UUID": lambda number: uuid.UUID(int=number + 2**100),
}
PATHS = {"items": ("order", ("orders", "id")), "parts": ("item", ("items", "id"))}
KINDS = [f"{a} {b} {c}" for a in ("BIGINT", "VARCHAR") for b in IDS for c in ("BIGINT", "VARCHAR", "DATE")]
SIGMA = 3.0
ASKED = [
    Count(table="items", clip=100, sigma=SIGMA),
    Sum("price * (1 + coalesce(customers.age, 1))", 0, 40, table="items", clip=100, sigma=SIGMA),
    Count(table="parts", clip=100, where="items.price > 1", by={"orders.country": ["x", "y"]}, sigma=SIGMA),
    People(table="parts", where="customers.age >= 1", sigma=SIGMA),
    Count(
        table="items",
        each={"orders.country": {"total": "sum(price)", "n": "count()"}},
        where="total + n > 3",
        by={"orders.country": ["x", "y", "z"]},
        clip=100,
        sigma=SIGMA,
    ),
    Count(
        table="items",
        beside={"most": "max(case when price < 9 then price end)", "orders": "distinct(order)"},
        where="price >= most and orders > 1 and order is not null",
        clip=100,
        sigma=SIGMA,
    ),
]


def world(seed, kinds):
    """Rows of four tables, with orphans and missing keys; ``kinds`` are those of people, orders and items."""
    choose = Random(seed).randrange
    person, order, item = (IDS[kind] for kind in kinds.split())

    def key(of, most):
        number = choose(most + 2)  # the last one is nobody's key
        return None if number > most else of(number)

    def keys(of, most, rows):
        return [of(number) if choose(8) else None for number in Random(choose(99)).sample(range(most), rows)]

    ordered, listed = keys(order, 9, 7), keys(item, 14, 11)
    return {
        "customers": [(person(number), choose(4)) for number in range(PEOPLE) if choose(5)],
        "orders": [(each, key(person, PEOPLE), "xyz"[choose(3)]) for each in ordered],
        "items": [(each, key(order, 9), choose(5)) for each in listed],
        "parts": [(key(item, 14), choose(5)) for _ in range(20)],
    }


def owners(made):
    """Whose each row of each table is, in plain Python."""
    order = {row[0]: row[1] for row in made["orders"] if row[0] is not None}
    item = {row[0]: order.get(row[1]) for row in made["items"] if row[0] is not None}
    return {
        "customers": [row[0] for row in made["customers"]],
        "orders": [row[1] for row in made["orders"]],
        "items": [order.get(row[1]) for row in made["items"]],
        "parts": [item.get(row[0]) for row in made["parts"]],
    }


def without(made, person):
    """The world without all rows of a person."""
    whose = owners(made)
    return {
        name: [row for row, owner in zip(rows, whose[name], strict=True) if owner != person]
        for name, rows in made.items()
    }


def enter(connection, made, kinds):
    person, order, item = kinds.split()
    columns = {
        "customers": f"id {person}, age BIGINT",
        "orders": f"id {order}, customer {person}, country VARCHAR",
        "items": f'id {item}, "order" {order}, price DOUBLE',
        "parts": f"item {item}, n BIGINT",
    }
    for name, listed in columns.items():
        connection.execute(f"CREATE OR REPLACE TEMP TABLE {name} ({listed})")
        if made[name]:
            row = f"({', '.join('?' * len(made[name][0]))})"
            entries = [entry for each in made[name] for entry in each]
            connection.execute(f"INSERT INTO {name} VALUES {', '.join([row] * len(made[name]))}", entries)


def charged(connection, made, kinds):
    """For each question, what each person is charged and contributes, by the question's statements."""
    enter(connection, made, kinds)
    given = [TableInput(name, None, person=column, parent=parent) for name, (column, parent) in PATHS.items()]
    given += [TableInput("orders", None, person="customer"), TableInput("customers", None, person="id", one_row=True)]
    names = [each.name for each in given]
    found = [
        {column: kind_of_type(kind) for column, kind, *_ in connection.execute(f"DESCRIBE {name}").fetchall()}
        for name in names
    ]
    dialects = [duckdb_dialect(each) for each in found]
    compiler = Compiler(schema_of(given, found, names, kinds.split()[0], dialects), dialects[0])
    listed = []
    for asked in ASKED:
        plan = compiler.plan(asked, described(asked))
        for keys in plan.keys:
            table = keys.to_make()
            connection.execute(f"CREATE OR REPLACE TEMP TABLE {table.name} AS {table.sql}", table.parameters)
        relation = connection.execute(plan.charges, plan.parameters)
        columns = [column for column, *_ in relation.description]
        listed.append({row[0]: dict(zip(columns[1:], row[1:], strict=True)) for row in relation.fetchall()})
    return listed


def in_python(made, asked):
    """Each person's contribution to each group of a question, in full rows."""
    whose = owners(made)
    order = {row[0]: row for row in made["orders"] if row[0] is not None}
    item = {row[0]: row for row in made["items"] if row[0] is not None}
    age = dict(made["customers"])
    sums, totals = Counter(), Counter()
    for row, owner in zip(made[asked.table], whose[asked.table], strict=True):
        if owner is None:
            continue
        if asked is ASKED[0]:
            sums[owner, 0] += 1
        elif asked is ASKED[1]:
            factor = age.get(owner)
            sums[owner, 0] += min(row[2] * (1 + (1 if factor is None else factor)), 40) / 40
        elif asked is ASKED[2]:
            country = order[item[row[0]][1]][2]
            if item[row[0]][2] > 1 and country != "z":
                sums[owner, country] += 1
        elif asked is ASKED[4]:
            totals[owner, order[row[1]][2]] += row[2] + 1
        elif asked is ASKED[5]:
            mine = [each for each, other in zip(made["items"], whose["items"], strict=True) if other == owner]
            if row[2] == max(price for _, _, price in mine) and len({number for _, number, _ in mine}) > 1:
                sums[owner, 0] += 1
        elif age.get(owner, 0) >= 1:
            sums[owner, 0] = 1
    sums |= {key: 1 for key, total in totals.items() if total > 3}
    return {key: value for key, value in sums.items() if value}


def keeps_to_its_price(connection, made, kinds):
    """True if everybody is charged for all that their rows add, and nobody for others'."""
    before = charged(connection, made, kinds)
    for asked, rows in zip(ASKED, before, strict=True):
        wanted = in_python(made, asked)
        squares = Counter()
        for (person, _), value in wanted.items():
            squares[str(person) if isinstance(person, uuid.UUID) else person] += value**2
        paid = {name: row["units"] for name, row in rows.items()}
        if {*squares} != {*paid} or any(
            not math.isclose(squares[name] / (2 * SIGMA**2) * 1e15, units, rel_tol=1e-3) for name, units in paid.items()
        ):
            return False
        added = sum(value for row in rows.values() for name, value in row.items() if name.startswith("x")) / STEPS
        if not math.isclose(added, sum(wanted.values()), abs_tol=1e-4):
            return False
    for person in {*owners(made)["orders"]} - {None}:
        after = charged(connection, without(made, person), kinds)
        if after != [{name: row for name, row in rows.items() if name != person} for rows in before]:
            return False
    return True


@pytest.fixture(scope="module")
def connection():
    """To DuckDB, for one world after the other."""
    with duckdb().connect() as connection:
        yield connection


@pytest.mark.quick(10)
@pytest.mark.parametrize("seed", range(3))
def test_a_person_moves_an_answer_by_no_more_than_is_charged(connection, seed):
    """In random tables with orphans and missing keys of several kinds; other people's charges stay the same."""
    choose = Random(seed)
    for place in range(2):
        kinds = choose.choice(KINDS)
        assert keeps_to_its_price(connection, world(100 * seed + place, kinds), kinds)


@pytest.mark.slow
@pytest.mark.parametrize("kinds", KINDS)
def test_a_person_moves_an_answer_by_no_more_than_is_charged_whatever_the_ids_are(connection, kinds):
    """Whole numbers, texts that differ by case or accent, dates and UUIDs."""
    for seed in range(6):
        assert keeps_to_its_price(connection, world(seed, kinds), kinds)


def rows_for_two_people(monkeypatch):
    """A join that ignores that keys are unique: a line of a key with two rows is two people's."""
    right = joins._Join.onto
    monkeypatch.setattr(
        joins._Join,
        "onto",
        lambda self, rows: (
            right(self, rows)
            .replace("any_value", "")
            .replace(" HAVING count(*) = 1", "")
            .replace(f" GROUP BY {self.found_by}", "")
        ),
    )
    return TWICE


def keys_are_not_unique(monkeypatch):
    """Which a session refuses when it is opened: without one person, another one's lines appear."""
    return TWICE


def orphans_are_somebodys(monkeypatch):
    """Rows without an owner are the least owner's."""
    right = given_tables.owned

    def wrong(rows, names, above, parent):
        text, who = right(rows, names, above, parent)
        return text, f"coalesce({who}, (SELECT min({above.who}) FROM {above.rows} d))"

    monkeypatch.setattr(given_tables, "owned", wrong)
    return WORLD


def the_key_is_the_person(monkeypatch):
    """Accounts are those of orders, so that a person has several."""
    monkeypatch.setattr(given_tables, "owned", lambda rows, names, above, parent: (rows, parent.beside))
    return WORLD


def every_row_above(monkeypatch):
    """Each line is joined to every order."""
    right = joins._Join.onto
    monkeypatch.setattr(joins._Join, "onto", lambda self, rows: right(self, rows).rpartition(" ON ")[0] + " ON TRUE)")
    return WORLD


def steps_over_everybodys_rows(monkeypatch):
    """One row for each country, for whoever is first."""
    right = joins._grouped

    def wrong(people, listed, key=None):
        sql = right(people, listed, key)
        if key is None:
            return sql
        text = sql.text.replace(f"{people.who} AS person", f"min({people.who}) AS person", 1)
        return joins.Sql(text.replace(f"GROUP BY {people.who}, ", "GROUP BY "), sql.parameters)

    monkeypatch.setattr(joins, "_grouped", wrong)
    return WORLD


def columns_of_everybody(monkeypatch):
    """What stands beside a row is about all people's rows."""
    right = Joined.add

    def wrong(self, own):
        text = own.rows.text.replace(f"GROUP BY {self.who}", "GROUP BY ALL").replace(
            f"SELECT {self.who} AS", "SELECT 1 AS"
        )
        everybody = f"(SELECT o.person, d.* EXCLUDE (person) FROM {own.rows.text} o, {text} d)"
        right(self, replace(own, rows=joins.Sql(everybody, own.rows.parameters * 2)))

    monkeypatch.setattr(Joined, "add", wrong)
    return WORLD


WORLD = {
    "customers": [(0, 2), (1, 3)],
    "orders": [(7, 0, "x"), (8, 1, "y"), (9, None, "x"), (None, 1, "x"), (6, 1, "x")],
    "items": [(1, 7, 2), (2, 8, 3), (3, 9, 4), (None, 7, 5), (4, None, 2), (5, 99, 4), (6, 6, 4)],
    "parts": [(1, 1), (1, 2), (2, 3), (3, 4), (5, 5), (77, 6), (None, 7), (6, 1)],
}
TWICE = {**WORLD, "orders": [*WORLD["orders"], (7, 1, "y")]}


@pytest.mark.quick(5)
@pytest.mark.parametrize(
    "plant",
    [
        rows_for_two_people,
        keys_are_not_unique,
        orphans_are_somebodys,
        the_key_is_the_person,
        every_row_above,
        steps_over_everybodys_rows,
        columns_of_everybody,
    ],
)
def test_planted_errors_are_found(connection, monkeypatch, plant):
    """Lines of two people, of nobody, or of other accounts, are what the test above looks for."""
    assert keeps_to_its_price(connection, WORLD, "BIGINT BIGINT BIGINT")
    made = plant(monkeypatch)
    assert not keeps_to_its_price(connection, made, "BIGINT BIGINT BIGINT")


SHOP = {
    "customers": pa.table({"id": ["a", "b", "c"], "age": [20, 30, 40]}),
    "orders": pa.table(
        {
            "id": [1, 2, 3, 4, None],
            "customer": ["a", "b", "b", None, "c"],
            "country": ["FR", "ES", "FR", "DE", "FR"],
            "zip": [10, 20, 10, 20, 10],
        }
    ),
    "items": pa.table({"order": [1, 1, 2, 3, 3, 4, 9, None], "price": [1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.5]}),
}
PERSON = {"items": "order -> orders.id", "orders": "customer", "customers": "id"}


def opened(path, *, person=PERSON, budget=None, **changed):
    """A session over the shop, with some tables as they are given."""
    tables = {name: changed.pop(name, SHOP[name]) for name in ("items", "orders", "customers")}
    budget = filters.Zcdp(rho=1.0) if budget is None else budget
    return Session.open(tables=tables, person=person, budget=budget, ledger=path, create=True, **changed)


@pytest.mark.quick(3)
def test_a_session_charges_whoever_the_path_leads_to(path):
    """Lines of orders of nobody, and of no order, are in no answer; the data holder is told how many there are."""
    with opened(path, customers=Table(SHOP["customers"], one_row=True)) as session:
        assert exact(session, Count(table="items", clip=8, **CHEAP))[1].keys() == {"a", "b"}
        assert without_noise(session, Count(table="items", clip=8, **CHEAP)) == [5.0]
        by = {"orders.country": ["FR", "ES", "DE"]}
        assert without_noise(session, Sum("price", 0, 10, clip=9, by=by, **CHEAP)) == pytest.approx(
            [12, 3, 0], abs=1e-4
        )
        assert without_noise(session, Count(clip=9, where="customers.age >= 30", **CHEAP)) == [3.0]
        assert [each.words() for each in session.misfits] == [
            "column 'order' of table 'items': 2 of 7 entries are no '-> orders.id', and count as missing"
        ]
        assert "2" not in repr(session.misfits)
        assert session.columns["items"] == {"order": "whole", "price": "number"}


@pytest.mark.quick(2)
def test_public_tables_may_hang_on_a_column_of_a_table_on_the_path(path):
    """Also where the columns of the path are none that questions may use."""
    zips = Lookup(pa.table({"zip": [10, 20], "region": ["n", "s"]}), "zip", on="orders.zip")
    hidden = Table(SHOP["items"], columns=["price"])
    with opened(path, items=hidden, public={"zips": zips}) as session:
        by = {"zips.region": ["n", "s"]}
        assert without_noise(session, Count(table="items", clip=8, by=by, **CHEAP)) == [4.0, 1.0]
        with pytest.raises(ArgumentError, match="column 'order' is not in the data"):
            session.analyst("ann").quote(Count(clip=8, where="order = 1", **CHEAP))


@pytest.mark.quick(2)
def test_steps_and_rows_use_tables_on_the_path(path):
    """A step about columns of one other table is about its rows; with own columns beside, about the own rows."""
    steps = {
        "orders": "count(orders)",
        "lines": "count()",
        "french": "sum(case when orders.country = 'FR' then price end)",
    }
    with opened(path) as session:
        asked = Count(each_person=steps, where="orders = 2 and lines = 3 and french = 9", **CHEAP)
        assert without_noise(session, asked) == [1.0]


REFUSED = {
    "order -> baskets.id": "no table here; write person=.'items': 'order -> TABLE.KEY'. with a table of people: orders",
    "order -> zips.zip": "a public table, whose rows are nobody's",
    "order -> items.order": "in a circle and to nobody: give one of these tables the column that names the person",
    "basket -> orders.id": "table 'items' has no column 'basket'; it has order, price",
    "order -> orders": "table 'orders' has no column 'order'; it has id, customer",
    "order -> orders.country": r"'CAST\(\"order\" AS VARCHAR\) AS \"order\"\) FROM data'\)".replace("'CAST", "CAST"),
    "price -> orders.id": r"'price' of table 'items' is of type DOUBLE .*CAST\(\"price\" AS BIGINT\)",
}


@pytest.mark.quick(3)
@pytest.mark.parametrize("person", REFUSED)
def test_paths_that_lead_nowhere_are_refused(path, person):
    """Each with what came and what to write, before there is a ledger."""
    zips = {"zips": Lookup(pa.table({"zip": [10, 20]}), "zip", on="orders.zip")}
    with pytest.raises(ArgumentError, match=REFUSED[person]):
        opened(path, person={**PERSON, "items": person}, public=zips)
    assert not path.exists()


def test_the_key_has_the_columns_own_name_where_none_is_given(path):
    """``"order -> orders"`` means the column ``order`` there."""
    orders = SHOP["orders"].rename_columns(["order", "customer", "country", "zip"])
    with opened(path, orders=orders, person={**PERSON, "items": "order->orders"}) as session:
        assert without_noise(session, Count(clip=8, **CHEAP)) == [5.0]


def test_a_key_with_two_rows_and_a_path_that_finds_nothing_are_refused(path):
    """For the data holder, without an entry; other tables may have a key twice that no path uses."""
    twice = pa.concat_tables([SHOP["orders"], SHOP["orders"].slice(2, 1)])
    with pytest.raises(
        DataError, match="'orders' has several rows with the same 'id', and each key must have one,"
    ) as refused:
        opened(path, orders=twice)
    assert "3" not in str(refused.value)
    elsewhere = SHOP["items"].set_column(0, "order", pa.array([50] * 8))
    with pytest.raises(DataError, match=r"no row with a person is found there: are both columns of person='order"):
        opened(path, items=elsewhere)
    periods = ledger.Periods("at", every="day", first="2011-01-01", last="2011-12-31")
    with pytest.raises(Unsupported, match="periods: several tables"):
        opened(path, budget=ledger.Terms(filters.Zcdp(rho=1.0), periods=periods))
    assert not path.exists()


def test_spellings_of_a_person_hold_along_the_path(path):
    """Two spellings of a person are one account, for rows at the end of a path too."""
    orders = SHOP["orders"].set_column(1, "customer", pa.array(["a", "B", "b", None, "c"]))
    with opened(path, orders=orders, budget=ledger.Terms(filters.Zcdp(rho=1.0), spelling="caseless")) as session:
        sums, charges = exact(session, Count(table="items", clip=8, **CHEAP))
        assert (sums[0] / STEPS, len(charges)) == (5.0, 2)


@pytest.mark.quick(3)
def test_a_data_set_is_declared_with_its_path(path):
    """As it is written in a session; a replay tells of another path above that it is another one."""
    with ledger.Ledger.open(path, ledger.Terms(filters.Zcdp(rho=1.0), person="VARCHAR"), create=True) as book:
        for name, person in PERSON.items():
            book.dataset(name, person=person)
        given = {"tables": SHOP, "ledger": book}
        with Session.open(person=PERSON, **given) as session:
            session.analyst("ann").ask(Count(table="items", clip=2, sigma=9.0), key="lines")
            assert all(finding.holds for finding in session.verify(replay=True))
        with pytest.raises(ArgumentError, match="'orders' was declared with person='customer'"):
            Session.open(person={**PERSON, "orders": "country"}, **given)
        book.dataset("orders", person="country", new_version=True)
        with Session.open(person={**PERSON, "orders": "country"}, **given) as session:
            replayed = session.verify(replay=True)[-1]
            assert replayed.holds
            assert "items with another person column" in replayed.what


PLAN = """
ledger = "people.ledger"
rho = 1.0
analyst = "ann"

[tables.items]
data = "items.csv"
person = "order -> orders"
types = { order = "whole", price = "number" }

[tables.orders]
data = "orders.parquet"
person = "customer"

[[questions]]
key = "lines"
ask = "count"
by = { "orders.country" = ["FR", "ES"] }
clip = 8
sigma = 20
"""


@pytest.mark.quick(2)
def test_a_file_of_questions_has_paths(tmp_path):
    """As text, in the same words; and it counts what leads to nobody."""
    csv.write_csv(SHOP["items"], tmp_path / "items.csv")
    orders = SHOP["orders"].rename_columns(["order", "customer", "country", "zip"])
    parquet.write_table(orders, tmp_path / "orders.parquet")
    (tmp_path / "plan.toml").write_text(PLAN)
    plan = plans.Plan.read(tmp_path / "plan.toml")
    with plan.open(create=True) as session:
        assert without_noise(session, dict(plan.questions)["lines"]) == [4.0, 1.0]
        assert {each.column: each.unfit for each in session.misfits if each.unfit} == {"order": 2}
        parquet.write_table(orders.slice(1), tmp_path / "orders.parquet")
        with pytest.raises(DataError, match="is another file than when"):
            plan.ask(session)


@pytest.mark.quick(3)
def test_rows_of_a_key_become_one_row_of_their_person(path):
    """Baskets of each person, and of those one value of the person; keys may be expressions with literals."""
    basket = {"total": "sum(price)", "age": "max(customers.age)"}
    kind = "case when price > 4.5 then 'a' else orders.country end"
    with opened(path, customers=Table(SHOP["customers"], one_row=True)) as session:
        dear = Count(each={"order": basket}, where="total >= 3", by={"age": [20, 30]}, clip=5, **CHEAP)
        assert without_noise(session, dear) == [1.0, 2.0]
        mean = Mean("total", 0, 99, per="row", each={kind: basket}, where="total >= 1 and age > 10", clip=4, **CHEAP)
        assert without_noise(session, mean) == pytest.approx([3.75], rel=1e-4)
        both = {"each": {"orders.country": basket}, "each_person": {"most": "max(total)", "countries": "count()"}}
        assert without_noise(session, Count(where="most = 9 and countries = 2", **both, **CHEAP)) == [1.0]
        assert question(json.loads(json.dumps(described(mean)))) == mean
        steps = {"first": "first(orders.country, order)", "n": "count(case when price > 1 then true end)"}
        later = Count(
            beside=steps, where="n = 3", by={"first": ["ES", "FR"], "orders.country": ["FR"]}, clip=9, **CHEAP
        )
        assert without_noise(session, later) == [2.0, 0.0]
        with pytest.raises(ArgumentError, match="'price' is a column already"):
            session.analyst("ann").quote(Count(beside={"price": "count()"}, clip=2, sigma=9.0))
        ann = session.analyst("ann")
        ann.ask(replace(mean, sigma=50.0), key="baskets")
        assert session.verify(replay=True)[-1].holds


@pytest.mark.parametrize(
    ("each", "told"),
    [
        ({"order": "sum(price)"}, "each must be {column: {name: aggregate}}"),
        ({"order": {"a": "count()"}, "price": {"a": "count()"}}, "each must be {column: {name: aggregate}}"),
        ({"order": {"Order": "count()"}}, "the column has its own name in the rows that are made"),
        ({"order": {"n": "price"}}, "must be one of all, any, count"),
        ({"price": {"n": "count()"}}, "each: 'price' is a number"),
        ({"day": {"n": "count()"}}, "column 'day' is not in the data"),
        ({"order": {"n": "sum(customers.age)"}}, "a person may have several rows there"),
    ],
)
def test_steps_for_each_key_that_make_no_sense_are_refused(path, each, told):
    """When the question is made, or when it is quoted."""
    with opened(path) as session, pytest.raises(ArgumentError, match=re.escape(told)):
        session.analyst("ann").quote(Count(each=each, clip=2, sigma=9.0))
