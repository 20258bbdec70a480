"""Plugins for other engines: found by the package of the data, and refused where a session cannot use them."""

import pyarrow as pa
import pytest

import warehouse
from almoner import filters
from almoner.errors import ArgumentError, DataError, Unsupported
from almoner.ledger import Ledger, Periods, Terms
from almoner.queries import Count, Session, Sum, Table
from almoner.queries import engines as plugins

ROWS = pa.table({"who": ["ann", "bob", "ann"], "n": [1, 2, 3], "day": pa.array([0, 1, 2], pa.timestamp("s", "UTC"))})


@pytest.fixture
def load(monkeypatch):
    """Puts tables into a warehouse."""
    with warehouse.installed(monkeypatch) as made:
        yield made.load


def opened(path, data, **options):
    return Session.open(
        data, **{"person": "who", "budget": filters.Zcdp(rho=1.0), "ledger": path, "create": True, **options}
    )


def test_the_package_of_the_data_names_the_plugin(load, tmp_path):
    """No other plugin is loaded; data that it does not take are not its own, nor are those of other packages."""
    assert plugins.plugin_of(load(ROWS)) is warehouse.plugin
    assert plugins.plugin_of(warehouse.Warehouse()) is None
    assert [plugins.plugin_of(each) for each in (ROWS, "rows.parquet", {}, None, tmp_path)] == [None] * 5
    with opened(tmp_path / "l", load(ROWS)) as session:
        assert session.columns == {"data": {"who": "text", "n": "whole", "day": "TIMESTAMP WITH TIME ZONE"}}
        assert session.analyst("ann").ask(Count(clip=2, rho=0.1), key="a").value is not None
        assert session.ledger.accounts.kind == "parquet"


def test_what_a_plugin_cannot_do_is_refused_in_its_words(load, tmp_path):
    """Messages name the data and the engine, and have the line that the plugin says."""
    data, path = load(ROWS), tmp_path / "l"
    months = Periods("day", every="month", first="2026-01-01", last="2026-12-31")
    for options in ({"spelling": "nfc"}, {"periods": months}):
        with pytest.raises(Unsupported, match="not for tables of Warehouse: write them as Parquet files"):
            opened(path, data, budget=Terms(filters.Zcdp(rho=1.0), **options))
    with pytest.raises(ArgumentError, match="are not for tables of Warehouse: make the view in Warehouse"):
        opened(path, Table(data, view="SELECT * FROM data"))
    with pytest.raises(ArgumentError, match="tables of Warehouse and other tables cannot be in one session"):
        opened(path, None, tables={"a": data, "b": Table(ROWS)})
    with pytest.raises(ArgumentError, match=r"open the data with a view of the warehouse .* for a person"):
        opened(path, data, person="day")
    with pytest.raises(DataError, match="was declared to have one row"):
        opened(path, None, tables={"a": Table(data, one_row=True)})
    assert not path.exists()
    with opened(path, data) as session:
        with pytest.raises(ArgumentError, match=r"open.* a view of the warehouse in which day .* for a question"):
            session.analyst("ann").quote(Sum("day", 0, 1, clip=1, rho=0.1))
        with pytest.raises(ArgumentError, match="views are made in Warehouse"):
            session.check_view("SELECT * FROM data")
    with Ledger.open(path) as book, pytest.raises(Unsupported, match="sessions with tables of Warehouse open ledgers"):
        Session.open(data, person="who", ledger=book)
    with opened(path, ROWS) as session, pytest.raises(ArgumentError, match="kept in Parquet files"):
        session.analyst("ann").ask(Count(clip=2, rho=0.1), key="b")
