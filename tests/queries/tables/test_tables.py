"""Questions about one of several tables, with columns of others: what they mean, and what is refused."""

from contextlib import suppress

import pyarrow as pa
import pytest

from almoner import queries
from almoner.errors import ArgumentError, DataError
from almoner.queries import Count, Keys, Lookup, Mean, People, Sum, Table
from almoner.queries._questions.kinds_of import described, question
from ledgers import counted
from sessions import CHEAP, without_noise
from shops import GROUPS, ORDERS, PERSON, PRODUCTS, PUBLIC, REGIONS, TABLES, opened

MANY = {"clip": 9, **CHEAP}


@pytest.fixture(scope="module")
def shop(tmp_path_factory):
    """A session for questions that charge nobody."""
    with opened(tmp_path_factory.mktemp("shop") / "l") as session:
        yield session


@pytest.mark.parametrize(
    ("asked", "wanted"),
    [
        (Count(by={"products.category": ["X", "Y"]}, **MANY), [2, 1]),
        (Count(by={"sections.title": ["one", "two"]}, **MANY), [2, 1]),
        (Count(by={"regions.name": ["north", "south"]}, **MANY), [3, 1]),
        (Count(where="customers.age is null", **MANY), [1]),
        (Count(where="products.category is null", **MANY), [2]),
        (Count(where="orders.amount > 1 and customers.age < 50", **MANY), [2]),
        (Count(where='"products.group no" = 1', **MANY), [2]),
        (Count(by={"customers.age": [(None, 40), (40, None)]}, **MANY), [2, 2]),
        (Sum("amount * customers.age", 0, 1000, **MANY), [410]),
        (Mean("customers.age", 0, 100, per="row", **MANY), [37.5]),
        (People(table="customers", **CHEAP), [4]),
        (Count(table="customers", by={"regions.name": ["north", "south"]}, **MANY), [2, 2]),
        (Count(table="customers", by={"customers.zip": ["n", "s"]}, **MANY), [2, 2]),
        (Count(by={"age": [(0, 45), (45, None)]}, each_person={"age": "max(customers.age)"}, **CHEAP), [2, 1]),
    ],
)
def test_columns_of_other_tables(shop, asked, wanted):
    """Found by the person or by a key, also by a key in another table; rows without a match stay, with nothing."""
    assert without_noise(shop, asked) == pytest.approx(wanted, abs=1e-3)


@pytest.mark.parametrize(
    ("step", "where", "people"),
    [
        ("count(orders)", "x = 0", 1),
        ("count(orders)", "x = 2", 1),
        ("count(orders.amount >= 2)", "x = 1", 3),
        ("sum(orders.amount)", "x = 3", 2),
        ("sum(orders.amount)", "x is null", 1),
        ("any(products.category = 'X' and orders.amount > 0)", "x", 2),
        ("first(orders.product, orders.day)", "x = 'a'", 2),
        ("max(orders.amount / customers.age)", "x > 0.07", 2),
        ("distinct(orders.product)", "x = 2", 1),
        ("count(customers)", "x = 1", 4),
        ("max(age)", "x > 45", 2),
    ],
)
def test_steps_over_a_persons_rows_of_another_table(shop, step, where, people):
    """Each person of the question's table has one row; who has none in the other has 0 rows there, and no entries."""
    asked = Count(table="customers", each_person={"x": step, "n": "count()"}, where=where, **CHEAP)
    assert without_noise(shop, asked) == [people]


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        ({"where": "shops.x = 1"}, "no table 'shops' is here; there are orders, customers, products"),
        ({"where": "customers.aged = 1"}, "table 'customers' has no column 'aged'"),
        ({"where": "age = 1"}, "column 'age' is not in the data"),
        ({"table": "customers", "where": "orders.amount > 1"}, "several rows there.*each_person=.*sum\\(orders.amount"),
        (
            {"table": "customers", "where": "products.category = 'X'"},
            "'product', by which.*is not in table 'customers'",
        ),
        ({"table": "shops"}, "table='shops' is not there: there are orders, customers"),
        ({"table": "products"}, "'products' is a public table"),
        ({"table": "a b"}, "table='a b' must be a name"),
        ({"by": {"customers.nothing": [1]}}, "has no column 'nothing'"),
        ({"table": "customers", "each_person": {"x": "sum(orders.amount * age)"}}, "'age' stands in a step about"),
        ({"table": "customers", "each_person": {"x": "sum(orders)"}}, "'orders' is not in the data"),
    ],
)
def test_what_cannot_be_joined_is_refused(shop, asked, message):
    """By names alone, before anything is charged."""
    with pytest.raises(ArgumentError, match=message):
        shop.analyst("a").quote(Count(**asked, **MANY))


def test_a_name_that_could_be_two_columns_is_refused(path):
    """A column of the question's table that is called like another table's; the others can be used."""
    odd = ORDERS.append_column("customers.age", pa.array([1] * 6))
    with opened(path, tables={**TABLES, "orders": odd}) as session:
        with pytest.raises(ArgumentError, match="is a column of 'orders', and column 'age' of 'customers'"):
            session.analyst("a").quote(Count(where='"customers.age" = 1', **MANY))
        assert without_noise(session, Count(where="customers.zip = 'n'", **MANY)) == [3]
        assert without_noise(session, Count(where='"orders.customers.age" = 1', **MANY)) == [5]


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"data": ORDERS}, ArgumentError, "either data, or tables="),
        ({"tables": {}}, ArgumentError, "one table or more"),
        ({"data": Table(ORDERS, view="SELECT 1")}, ArgumentError, "either data, or tables="),
        ({"person": {"orders": "customer"}}, ArgumentError, "with each of the tables"),
        ({"person": "customer"}, ArgumentError, "person='customer' is no column of table 'customers'"),
        ({"person": {**PERSON, "customers": "zip"}}, ArgumentError, "'orders' names people by 'customer'.*by 'zip'"),
        ({"tables": {"my orders": ORDERS}, "person": "customer", "public": None}, ArgumentError, "must be a name"),
        ({"public": {"Orders": Lookup(REGIONS, "zip")}}, ArgumentError, "two tables are called 'Orders'"),
        ({"public": {"regions": REGIONS}}, ArgumentError, "must be a Lookup"),
        ({"public": {"regions": Lookup(REGIONS, "code")}}, ArgumentError, "'regions' has no column 'code', its key"),
        ({"public": {"a": Lookup(REGIONS, "zip", on="a.name")}}, ArgumentError, "lead back to it"),
        (
            {"public": {"a": Lookup(REGIONS, "zip", on="b.name"), "b": Lookup(REGIONS, "zip", on="a.name")}},
            ArgumentError,
            "lead back to it",
        ),
        (
            {"public": {"products": Lookup(PRODUCTS, "category")}},
            DataError,
            "'products' has several rows with the same",
        ),
        (
            {"tables": {**TABLES, "orders": Table(ORDERS, one_row=True)}},
            DataError,
            "'orders' was declared to have one row for each person",
        ),
    ],
)
def test_what_the_data_holder_got_wrong_is_said(path, options, error, message):
    """When the session is opened, before the ledger is made, and without an entry of a person."""
    with pytest.raises(error, match=message):
        opened(path, **options)
    assert not path.exists()


def test_kinds_of_keys_must_agree(path):
    """A key of whole numbers finds nothing by a text, so such a question is refused."""
    wrong = {"products": Lookup(GROUPS, "number", on="product")}
    with (
        opened(path, public=wrong) as session,
        pytest.raises(ArgumentError, match="of kind text, and the key 'number'"),
    ):
        session.analyst("a").quote(Count(where="products.title = 'one'", **MANY))


def test_the_record_says_which_table_it_was(path):
    """Also where the question left it out, so that it is the same in a session that lists the tables otherwise."""
    asked = Count(where="customers.age > 30", **MANY)
    with opened(path) as session:
        answer = session.analyst("a").ask(asked, key="k")
        assert answer.question.table == "orders"
        assert answer.estimand.endswith("in table orders")
        assert str(session.analyst("a").quote(asked)).startswith("about table orders: ")
        assert question(described(answer.question)) == answer.question
    turned = dict(reversed(TABLES.items()))
    with opened(path, tables=turned) as session:
        with pytest.raises(ArgumentError, match="another question"):
            session.analyst("a").ask(asked, key="k")
        assert session.analyst("a").ask(Count(table="orders", where="customers.age > 30", **MANY), key="k") == answer
        assert session.verify(replay=True)[-1].holds
    with opened(path, tables={"orders": ORDERS}, person="customer", public=None) as session:
        assert not session.verify(replay=True)[-1].holds


def test_one_account_for_a_person_of_several_tables(path):
    """Who is in both tables pays for questions about either; choices of clips and bounds are about the right table."""
    with opened(path) as session:
        for asked in (Count(table="customers", **MANY), Count(**MANY)):
            session.analyst("a").ask(asked, key=f"{asked.table}")
        price = Count(**MANY).price  # of nine rows
        for person, square in ((1, 1 + 4), (5, 1), (4, 1)):
            assert price * square <= 81 * session.ledger.spent(person) <= price * square + 2 * 81
        auto = Sum("age", low=0, high="auto", clip="auto", rho=0.2, table="customers")
        with suppress(ArgumentError):  # five people may be too few, by the noise
            session.analyst("a").ask(auto, key="auto")
        asked = [entry.public["question"] for entry in session.ledger.entries("answered")][2:]
        assert {each["table"] for each in asked} == {"customers"}
        keys = Keys("products.category", delta=1e-9, most=2, sigma=9.0, table="orders")
        assert counted(session, keys)[0] == {"X": 2, "Y": 1}


def test_tables_without_a_name(path):
    """One table of people may have public ones beside it; it has no name itself."""
    with opened(path, data=ORDERS, tables=None, person="customer", public={"products": PUBLIC["products"]}) as session:
        assert without_noise(session, Count(where="products.category = 'X'", **MANY)) == [2]
        with pytest.raises(ArgumentError, match="one table, without a name"):
            session.analyst("a").quote(Count(table="data", **MANY))
        with pytest.raises(ArgumentError, match="no table 'data' is here"):
            session.analyst("a").quote(Count(where="data.amount > 1", **MANY))
        assert "table" not in described(session.analyst("a").ask(Count(**MANY), key="k").question)


def test_files_and_views_of_several_tables(path, tmp_path):
    """Two tables of one DuckDB file, a CSV file with types, and a view over one of the tables."""
    import duckdb

    with duckdb.connect(str(tmp_path / "shop.duckdb")) as connection:
        connection.register("given", ORDERS)
        connection.execute("CREATE TABLE orders AS FROM given; CREATE TABLE codes AS SELECT 'a' AS code, 1 AS n")
    (tmp_path / "customers.csv").write_text("id,age\n1,30\n2,old\n")
    shop = tmp_path / "shop.duckdb"
    older = "SELECT id, age + 1 AS age FROM data"
    tables = {
        "orders": Table(shop, table="orders"),
        "customers": Table(tmp_path / "customers.csv", types={"id": "whole", "age": "whole"}, view=older, one_row=True),
    }
    public = {"codes": Lookup(shop, "code", on="product", table="codes")}
    with opened(path, tables=tables, public=public) as session:
        assert session.view_check.people == 2
        assert without_noise(session, Count(where="customers.age = 31", **MANY)) == [2]
        assert without_noise(session, Count(by={"codes.n": [1, 2]}, **MANY)) == [2, 0]
        assert session.check_view(table="customers", sample=1).people == 1
        with pytest.raises(ArgumentError, match="has no view"):
            session.check_view()


def test_the_same_uuid_in_other_letters_is_no_second_account(tmp_path):
    """A table that names people by UUID, and one that names them by text, which may spell it in capitals."""
    name = "6ba7b810-9dad-11d1-80b4-00c04fd430c8"
    text = pa.table({"who": [name.upper()], "n": [1]})
    typed = Table(pa.table({"who": [name], "m": [1]}), view="SELECT who::UUID AS who, m FROM data")
    with pytest.raises(ArgumentError, match="some tables name people by UUID and others by text"):
        opened(tmp_path / "l", tables={"text": text, "typed": typed}, public={}, person="who")
    same = Table(text, view="SELECT who::UUID AS who, n FROM data")
    with opened(tmp_path / "l", tables={"text": same, "typed": typed}, public={}, person="who") as session:
        session.analyst("ann").ask(Count(clip=1, sigma=9.0), key="k")
        assert session.ledger.spent(name) > 0


HIDDEN = [
    Count(where="secret = 'x'", **MANY),
    Count(where="who = 'ann'", **MANY),
    Count(by={"secret": ["x"]}, **MANY),
    Count(each_person={"n": "count(secret)"}, where="n > 1", **MANY),
    Count(where="customers.secret = 'x'", **MANY),
    Count(each_person={"n": "max(customers.secret)"}, where="n = 'x'", **MANY),
    queries.Sum("secret", 0, 1, **MANY),
    queries.Sum("number(secret)", 0, 1, **MANY),
    queries.Mean("secret", 0, 1, sigma=9.0),
    queries.Variance("secret", 0, 1, sigma=9.0),
    queries.Ratio("secret", numerator_bounds=(0, 1), **MANY),
    queries.Histogram("secret", [0, 1], **MANY),
    queries.Quantiles("secret", [0, 1, 2], levels=[0.5], sigma=9.0),
    queries.Covariance({"n": (0, 1), "secret": (0, 1)}, **MANY),
    queries.Regression("secret", {"n": (0, 1), "secret": (0, 1)}, **MANY),
    queries.Top(1, "secret", ["x"], **MANY),
    queries.Distinct("secret", most=2, sigma=9.0),
]


@pytest.mark.quick(4)
@pytest.mark.parametrize("asked", HIDDEN, ids=lambda asked: type(asked).__name__.lower())
def test_columns_that_are_not_listed_cannot_be_used(tmp_path, asked):
    """A column that the data holder does not list is refused in every question, as one that is not there."""
    rows = pa.table({"who": ["ann", "bob"], "n": [1, 2], "secret": ["1", "x"]})
    tables = {
        "orders": Table(rows, columns=["n"]),
        "customers": Table(rows, columns=["n"], one_row=True),
    }
    with opened(tmp_path / "l", tables=tables, public={}, person="who") as session:
        assert session.columns == {"orders": {"n": "whole"}, "customers": {"n": "whole"}}
        with pytest.raises(ArgumentError) as refused:
            session.analyst("ann").quote(asked)
        message = str(refused.value)
        session.analyst("ann").ask(Count(where="n > 1 and customers.n > 1", **MANY), key="k")
    plain = {"orders": Table(rows.select(["who", "n"])), "customers": Table(rows.select(["who", "n"]), one_row=True)}
    if "who" not in str(asked):
        with (
            opened(tmp_path / "m", tables=plain, public={}, person="who") as session,
            pytest.raises(ArgumentError) as same,
        ):
            session.analyst("ann").quote(asked)
        assert str(same.value) == message


def test_a_listed_column_must_be_there(tmp_path):
    """A column that is listed and not there is refused when the session is opened."""
    rows = pa.table({"who": ["ann"], "n": [1]})
    for columns, message in ((["m"], "has no column 'm'"), ("n", "must be a list of names")):
        with pytest.raises(ArgumentError, match=message):
            opened(tmp_path / "l", tables={"orders": Table(rows, columns=columns)}, public={}, person="who")
