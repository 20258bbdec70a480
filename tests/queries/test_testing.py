"""The checks for engines: one that keeps the interface passes them, and each mistake that is planted is found."""

from dataclasses import replace

import pytest

import warehouse
from almoner.queries import testing

BY_NAME = {check.__name__: check for check in testing.CHECKS}


@pytest.fixture
def load(monkeypatch):
    """Puts tables into a warehouse."""
    with warehouse.installed(monkeypatch) as made:
        yield made.load


@pytest.mark.parametrize("check", testing.CHECKS)
def test_a_warehouse_that_keeps_the_interface_passes(check, load, tmp_path):
    """A plugin that uses public names alone charges, adds up and writes accounts as DuckDB does."""
    check(load, tmp_path)


def mistakes():
    """(The check that finds it, the class, the method, the mistake)."""
    plugin, writer, engine = warehouse.WarehousePlugin, warehouse.Writer, warehouse.WarehouseEngine
    dialect, judge, sums = plugin.dialect, writer.judge, engine.sums
    by_value, charges, judged = engine.people_by_value, writer.write_charges, warehouse.Judged.refused
    yield "same_sums", plugin, "dialect", lambda self, columns: replace(dialect(self, columns), rounded="floor({0})")
    yield "same_sums", engine, "sums", lambda self, plan, admitted: [each + 1 for each in sums(self, plan, admitted)]
    yield "same_values", engine, "people_by_value", lambda self, *given: [(v, n + 1) for v, n in by_value(self, *given)]
    yield "same_joins", plugin, "has_twice", lambda *_: False
    yield "same_accounts", writer, "judge", lambda self, prepared, accounts, *rest: judge(self, prepared, None, *rest)
    yield "same_accounts", writer, "judge", lambda self, p, a, marks, shares, *rest: judge(self, p, a, marks, [], *rest)
    yield "same_missing", warehouse.Judged, "refused", lambda self: judged(self) + 1
    yield "nothing_is_charged_by_halves", writer, "write_charges", lambda self, *given: swallowed(charges, self, *given)


def swallowed(work, *given):
    """An error of the disk that is passed over, as if the work had been done."""
    work(*given)
    given[-1].joinpath("more.parquet").write_bytes(given[-1].joinpath("all.parquet").read_bytes())


@pytest.mark.parametrize(("name", "where", "method", "mistake"), [*mistakes()])
def test_each_mistake_is_found(name, where, method, mistake, load, tmp_path, monkeypatch):
    """What rounds, adds up, judges or writes otherwise fails the check that is about it."""
    monkeypatch.setattr(where, method, mistake)
    with pytest.raises(Exception, match=r"the engine gives|does not hold|were not refused|could not be written"):
        BY_NAME[name](load, tmp_path)
