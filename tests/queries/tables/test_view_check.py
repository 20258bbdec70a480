"""Views that mix people are refused when a session is opened; views of each person's own rows are not."""

import pyarrow as pa
import pytest
from pyarrow import parquet

from almoner import filters
from almoner.errors import ArgumentError, DataError
from almoner.queries import Count, Session, Table
from sessions import CHEAP, opened, without_noise

PURE = [
    "SELECT * FROM data WHERE n > 2",
    "SELECT who, sum(x) AS total, count(*) AS rows FROM data GROUP BY who",
    "SELECT *, row_number() OVER (PARTITION BY who ORDER BY n) AS visit FROM data",
    "SELECT d.who, d.x * e.x AS product FROM data d JOIN data e ON d.who = e.who AND d.n = e.n;",
    "SELECT *, NULL AS nothing FROM data -- a remark",
    "SELECT who, n FROM data UNION ALL SELECT who, n + 1 FROM data",
]
IMPURE = [
    "SELECT * FROM data WHERE x >= (SELECT avg(x) FROM data)",
    "SELECT *, row_number() OVER () AS number FROM data",
    "SELECT *, rank() OVER (ORDER BY x) AS place FROM data",
    "SELECT d.who, e.x FROM data d JOIN data e ON d.n = e.n",
    "SELECT * FROM data WHERE x < (SELECT quantile_cont(x, 0.9) FROM data)",
    "SELECT who + 1 AS who, x FROM data",
    "SELECT * FROM data ORDER BY x DESC LIMIT 7",
]
SLOW = "SELECT d.* FROM data d WHERE (SELECT count(*) FROM range(3000000000) r WHERE r.range % 7 = 3) > 0"
ROWS = pa.table(
    {
        "who": [k % 40 for k in range(400)],
        "n": [k % 17 for k in range(400)],
        "x": [float(k * k % 101) + 0.125 for k in range(400)],
    }
)


@pytest.mark.quick(5)
@pytest.mark.parametrize("view", PURE)
def test_views_of_each_persons_own_rows_are_taken(path, view):
    """Also aggregates, windows and joins of a person's own rows; and it is said how many people were compared."""
    with opened(path, ROWS, view=view) as session:
        assert session.view_check.people == 20
        assert session.view_check.skipped is None
        assert without_noise(session, Count(clip=100, **CHEAP))[0] > 0


@pytest.mark.quick(6)
@pytest.mark.parametrize("view", IMPURE)
def test_views_that_mix_people_are_refused(path, view):
    """Before the ledger is made, and without an entry in the message; unless the data holder wants no check."""
    with pytest.raises(DataError, match="depend on other people's rows") as refused:
        opened(path, ROWS, view=view)
    assert not any(number in str(refused.value) for number in "0123456789")
    assert refused.value.__context__ is None
    assert not path.exists()
    with opened(path, ROWS, view=view, check_view=False) as session:
        assert session.view_check is None


def test_what_cannot_be_checked_is_said(path, tmp_path):
    """A view that names people itself, one that fails on an entry, one that draws, and one that takes too long."""
    renamed = "SELECT who AS person, n FROM data"
    with opened(path, ROWS, view=renamed, person="person") as session:
        assert "is made by the view" in session.view_check.skipped
    fails = "SELECT who, CAST(CASE WHEN n = 3 THEN 'x' ELSE '1' END AS INTEGER) AS n FROM data"
    with opened(tmp_path / "b", ROWS, view=fails) as session:
        assert "fails on an entry" in session.view_check.skipped
    with opened(tmp_path / "c", ROWS, view="SELECT * FROM data WHERE random() < 0.5") as session:
        assert "other rows each time" in session.view_check.skipped


def test_a_slow_view_is_not_waited_for(path, monkeypatch):
    """The check stops after some seconds and says so; the session opens."""
    monkeypatch.setattr("almoner.queries._tables.checks.CHECK_SECONDS", 0.2)
    with opened(path, ROWS, view=SLOW) as session:
        assert "took more than" in session.view_check.skipped


def test_sums_in_another_order_are_the_same(path):
    """The last digits of sums of doubles depend on the order of rows; that makes no view impure."""
    many = pa.table({"who": [k % 7 for k in range(200_000)], "x": [0.1 * (k % 1013) for k in range(200_000)]})
    with opened(path, many, view="SELECT who, sum(x) AS total, avg(x) AS mean FROM data GROUP BY who") as session:
        assert session.view_check.people == 7


def test_a_holder_checks_a_view_again(path):
    """With a larger sample, or before it is used: over the rows that were given."""
    with opened(path, ROWS, view=PURE[0]) as session:
        assert session.check_view(sample=40).people == 40
        assert session.check_view(PURE[1], sample=7).people == 7
        with pytest.raises(DataError, match="depend on other people's rows"):
            session.check_view(IMPURE[0], sample=30)
        with pytest.raises(DataError, match="cannot be read"):
            session.check_view("SELECT nothing FROM data")
        with pytest.raises(ArgumentError, match="no column 'who'"):
            session.check_view("SELECT n FROM data")
        with pytest.raises(ArgumentError, match="sample=0"):
            session.check_view(sample=0)
        assert session.check_view(SLOW, seconds=0.2).skipped is not None
        assert without_noise(session, Count(clip=100, where="n = 3", **CHEAP))[0] > 0


def test_rows_without_a_view_can_be_checked_with_one(path):
    """The rows that were given are those that questions see."""
    with opened(path, ROWS) as session:
        assert session.check_view(PURE[2], sample=5).people == 5
        with pytest.raises(DataError, match="depend on other people's rows"):
            session.check_view(IMPURE[1], sample=5)
        with pytest.raises(ArgumentError, match="the data has no view"):
            session.check_view()


LINES = pa.table({"order": [k % 90 for k in range(600)], "x": [float(k * k % 101) for k in range(600)]})
ORDERS = pa.table({"id": list(range(80)), "who": [k % 25 for k in range(80)], "n": [k % 7 for k in range(80)]})
MINE = "(SELECT who, sum(n) AS n FROM 'orders.parquet' GROUP BY who)"
EVERYBODYS = "(SELECT n, count(*) AS others FROM 'orders.parquet' GROUP BY n)"


def lines(path, view, **options):
    """Lines of orders, whose view may read the file of the orders."""
    parquet.write_table(LINES, "lines.parquet")
    parquet.write_table(ORDERS, "orders.parquet")
    return Session.open(
        tables={"lines": Table("lines.parquet", view=view, **options), "orders": "orders.parquet"},
        person={"lines": "order -> orders.id", "orders": "who"},
        budget=filters.Zcdp(rho=1.0),
        ledger=path,
        create=True,
    )


@pytest.mark.quick(4)
def test_other_tables_that_a_view_reads_are_divided_by_person_too(path, tmp_path, monkeypatch, caplog):
    """By their path: a person's rows may follow from all that person's rows in both tables, and from nobody else's."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("almoner.queries._tables.checks.CHECK_SECONDS", 60.0)
    joined = "FROM data l JOIN 'orders.parquet' o ON o.id = l.order"
    with lines(path, f"SELECT l.*, m.n {joined} JOIN {MINE} m ON m.who = o.who") as session:
        assert session.view_check.people == 20
        assert session.view_check.undivided == ()
        assert not [record for record in caplog.records if "divided" in record.message]
        assert session.check_view(sample=25).people == 25
    for mixed in (
        f"SELECT l.*, e.others {joined} JOIN {EVERYBODYS} e USING (n)",
        "SELECT *, avg(x) OVER () AS m FROM data",
    ):
        with pytest.raises(DataError, match="depend on other people's rows"):
            lines(tmp_path / "b", mixed)
    assert not (tmp_path / "b").exists()


@pytest.mark.quick(3)
def test_what_a_view_reads_and_is_not_divided_is_said(path, tmp_path, monkeypatch, caplog):
    """Once, when the session is opened: files by a function, and files that are no table of the session."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("almoner.queries._tables.checks.CHECK_SECONDS", 60.0)
    parquet.write_table(pa.table({"order": [1, 2], "y": [1, 2]}), "other.parquet")
    reads = "WITH mine AS (FROM data) SELECT m.* FROM mine m LEFT JOIN 'other.parquet' USING (\"order\"), range(1)"
    beside = " LEFT JOIN read_parquet('orders.parquet') o ON o.id = m.order"
    with lines(path, reads + beside) as session:
        assert session.view_check.undivided == ("other.parquet", "read_parquet()")
        (told,) = [record.message for record in caplog.records if "divided" in record.message]
        assert "view of table 'lines' reads" in told
        assert told.endswith("other.parquet, read_parquet()")
