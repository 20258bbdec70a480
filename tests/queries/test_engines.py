"""Plugins for other engines: found by the package of the data, and refused where a session cannot use them."""

from datetime import date

import numpy as np
import pyarrow as pa
import pytest

import warehouse
from almoner import filters
from almoner.errors import ArgumentError, DataError, Unsupported
from almoner.ledger import Consumer, Periods, Terms, backup, compact, erase
from almoner.queries import Count, Distinct, Keys, Session, Sum, Table
from almoner.queries import engines as plugins
from almoner.queries._questions.kinds.counts import Extremes
from ledgers import counted, exact

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


def test_what_a_plugin_cannot_do_is_refused_in_its_words(load, tmp_path):
    """Messages name the data and the engine, and have the line that the plugin says."""
    data, path = load(ROWS), tmp_path / "l"
    with pytest.raises(Unsupported, match="not for tables of Warehouse: spell the ids alike in them"):
        opened(path, data, budget=Terms(filters.Zcdp(rho=1.0), spelling="nfc"))
    with pytest.raises(ArgumentError, match="not for tables of Warehouse: make the view, or local times, in Warehouse"):
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


def test_every_ledger_takes_every_engines_questions(load, tmp_path):
    """One ledger, open or not, for tables of a warehouse and for others; a training charges the same accounts."""
    path, question = tmp_path / "l", Count(clip=2, rho=0.1)
    with opened(path, load(ROWS), pseudonyms=tmp_path / "key") as session:
        session.analyst("ann").ask(question, key="a")
        with Session.open(ROWS, person="who", ledger=session.ledger) as other:
            other.analyst("ann").ask(question, key="b")
        with Session.open(load(ROWS), person="who", ledger=session.ledger) as other:
            other.analyst("ann").ask(question, key="c")
            assert all(each.holds for each in other.verify(replay=True))
        hold = Consumer(session.ledger, key="model", analyst="lab").reserve(["ann", "bob"], 100)
        hold.settle(np.minimum(hold.units, [60, 30]))
        assert session.ledger.spent("ann") == 0.3e15 + 60
        assert session.ledger.spent("bob") == 0.075e15 + 30
        backup(session.ledger, tmp_path / "copy")
        compact(session.ledger)
        erase(session.ledger, "bob")
        session.analyst("ann").ask(question, key="d")
        assert session.ledger.spent("ann") == 0.4e15 + 60
        assert session.ledger.spent("bob") == 0.075e15 + 30
        assert all(each.holds for each in session.verify())


@pytest.mark.parametrize("who", [["ann", "bob", "ann", "bob"], [1, 2, 1, 2]])
def test_periods_are_those_of_duckdb(who, load, tmp_path):
    """A budget for each month, with people named by text and by whole numbers: the same accounts."""
    days = [date(2026, month, 3) for month in (1, 1, 2, 5)]
    rows = pa.table({"who": who, "day": days})
    months = Periods("day", every="month", first="2026-01-01", last="2026-03-31")
    spent = []
    for place, data in (("ours", load(rows)), ("theirs", rows)):
        terms = Terms(filters.Zcdp(rho=1.0), periods=months)
        with opened(tmp_path / place, data, budget=terms) as session:
            session.analyst("ann").ask(Count(clip=2, rho=0.1), key="a")
            session.analyst("ann").ask(Count(where="day < '2026-02-01'", clip=2, rho=0.2), key="b")
            assert all(each.holds for each in session.verify(replay=True))
            names = [name for each in dict.fromkeys(who) for name in session.ledger.accounts_of(each)]
            spent.append({name: session.ledger.spent(name) for name in names})
    assert spent[0] == spent[1]
    assert sorted(spent[0].values())[-2:] == [0.075e15, 0.075e15]


def test_an_engine_that_fails_tells_nothing(load, tmp_path, monkeypatch):
    """No private word, nobody is charged, and the same key works later."""
    data, question = load(ROWS), Count(clip=2, rho=0.1)
    with opened(tmp_path / "l", data) as session:
        session.analyst("ann").ask(question, key="a")
        before = session.ledger.spent("ann")
        with monkeypatch.context() as patched:
            patched.setattr(warehouse.WarehousePlugin, "run", lambda *_: 1 / 0)
            with pytest.raises(DataError, match="or Warehouse cannot work; nothing was charged") as caught:
                session.analyst("ann").ask(question, key="b")
        assert caught.value.__context__ is None
        assert session.ledger.spent("ann") == before
    with opened(tmp_path / "l", data, budget=None, create=False) as session:
        session.analyst("ann").ask(question, key="b")
        assert session.ledger.spent("ann") == 2 * before


def test_who_comes_in_parts_is_charged_for_the_whole(load, tmp_path, monkeypatch):
    """An engine that hands rows over twice: sums and charges are those of twice the rows, and values are kept once."""
    twice, right = pa.concat_tables([ROWS, ROWS]), warehouse.WarehousePlugin.run
    monkeypatch.setattr(warehouse.WarehousePlugin, "run", lambda *given: pa.concat_tables([right(*given)] * 2))
    noise, terms = {"sigma": 1e4}, Terms(filters.Zcdp(rho=1.0), keys_delta=1e-6)
    asked = [
        (Count(clip=9, by={"n": [1, 2, 3]}, **noise), twice),
        (Sum("n", 0, 9, clip=9, per_group=2, **noise), twice),
        (Distinct("n", most=2, **noise), ROWS),
        (Keys("n", most=2, delta=1e-9, **noise), ROWS),
        (Extremes(column="n", **noise), ROWS),
    ]
    for place, (question, rows) in enumerate(asked):
        measure = counted if isinstance(question, Keys) else exact
        with opened(tmp_path / f"a{place}", load(ROWS), budget=terms) as ours:
            found = measure(ours, question)
        with opened(tmp_path / f"b{place}", rows, budget=terms) as theirs:
            assert found == measure(theirs, question), question


def test_a_ledger_anywhere_takes_other_engines(load, where):
    """In a file or on a server, one ledger for both kinds of rows, which charge the same."""
    question = Count(by={"n": [*range(12)]}, clip=2, rho=0.1)
    with opened(where, load(ROWS)) as session:
        spent = [0]
        for rows, key in ((load(ROWS), "a"), (ROWS, "b")):
            with Session.open(rows, person="who", ledger=session.ledger) as shared:
                shared.analyst("ann").ask(question, key=key)
                assert all(each.holds for each in shared.verify(replay=True))
            spent.append(session.ledger.spent("ann"))
        assert spent == [0, spent[1], 2 * spent[1]]
        assert spent[1] > 0
