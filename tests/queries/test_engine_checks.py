"""The checks for engines: one that keeps the interface passes them, and each mistake that is planted is found."""

from dataclasses import replace

import pyarrow as pa
import pytest

import engine_checks
import warehouse

BY_NAME = {check.__name__: check for check in engine_checks.CHECKS}


@pytest.fixture
def load(monkeypatch):
    """Puts tables into a warehouse."""
    with warehouse.installed(monkeypatch) as made:
        yield made.load


@pytest.mark.parametrize("check", engine_checks.CHECKS)
def test_a_warehouse_that_keeps_the_interface_passes(check, load, tmp_path):
    """A plugin that uses public names alone charges, adds up and writes accounts as DuckDB does."""
    check(load, tmp_path)


def mistakes():
    """(The check that finds it, the method, the mistake)."""
    plugin = warehouse.WarehousePlugin
    dialect, run = plugin.dialect, plugin.run

    def told(change):
        return lambda self, *given: change(run(self, *given))

    def more(rows):
        """Somebody's contribution in one cell becomes larger by a step."""
        if "x0" not in rows.column_names or not rows.num_rows:
            return rows
        first = [value + (place == 0) for place, value in enumerate(rows["x0"].to_pylist())]
        return rows.set_column(rows.column_names.index("x0"), "x0", pa.array(first, pa.float64()))

    yield "same_sums", "dialect", lambda self, columns: replace(dialect(self, columns), rounded="floor({0})")
    yield "same_sums", "run", told(more)
    yield "same_values", "run", told(lambda rows: rows.slice(1))
    yield "same_joins", "run", told(lambda rows: rows.slice(0, 0) if rows.column_names == ["twice"] else rows)
    yield "same_accounts", "run", told(lambda rows: rows.slice(0, rows.num_rows - 1))
    yield "same_missing", "run", told(lambda rows: pa.concat_tables([rows, rows.slice(0, 1)]))


@pytest.mark.parametrize(("name", "method", "mistake"), [*mistakes()])
def test_each_mistake_is_found(name, method, mistake, load, tmp_path, monkeypatch):
    """What rounds, adds up, finds or hands over otherwise fails the check that is about it."""
    monkeypatch.setattr(warehouse.WarehousePlugin, method, mistake)
    with pytest.raises(AssertionError, match=r"the engine gives|does not hold|were not refused|two prices"):
        BY_NAME[name](load, tmp_path)
