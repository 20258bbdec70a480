"""A warehouse for tests of the interface of engines: tables in a DuckDB of its own, which the ledger cannot reach.

Its classes use public names of Almoner alone, as those of another package would.
"""

from contextlib import contextmanager
from itertools import count
from types import SimpleNamespace

import duckdb

from almoner.errors import AlmonerError
from almoner.queries import engines as plugins
from almoner.queries.engines import duckdb_dialect

KINDS = {
    **dict.fromkeys(("INTEGER", "BIGINT"), "whole"),
    **dict.fromkeys(("FLOAT", "DOUBLE"), "number"),
    "VARCHAR": "text",
    "BOOLEAN": "bool",
    "DATE": "date",
    "TIMESTAMP": "time",
}


class WarehouseTable:
    """A table in a warehouse."""

    def __init__(self, warehouse, name):
        self.warehouse, self.name = warehouse, name


class Warehouse:
    """A connection, and tables that are loaded into it."""

    def __init__(self):
        self.connection, self._names = duckdb.connect(), (f"t{number}" for number in count())

    def load(self, rows):
        name = next(self._names)
        self.connection.register("given", rows)
        self.connection.execute(f"CREATE TABLE {name} AS FROM given")
        self.connection.unregister("given")
        return WarehouseTable(self, name)


class WarehousePlugin:
    """Tables of the warehouse as data."""

    name, data = "Warehouse", "tables of Warehouse"

    def takes(self, data):
        return isinstance(data, WarehouseTable)

    def types(self, data):
        return [
            (name, kind) for name, kind, *_ in data.warehouse.connection.execute(f"DESCRIBE {data.name}").fetchall()
        ]

    def kind(self, sql_type):
        return KINDS.get(sql_type)

    def cure(self, column, sql_type, wanted):
        return f"a view of the warehouse in which {column} is another one than {sql_type}, for a {wanted}"

    def dialect(self, columns):
        return duckdb_dialect(columns)

    def run(self, sql, parameters, tables):
        warehouse = next(each for each in tables.values() if isinstance(each, WarehouseTable)).warehouse
        for name, table in tables.items():
            if isinstance(table, WarehouseTable):
                warehouse.connection.execute(f"CREATE OR REPLACE TEMP VIEW {name} AS FROM {table.name}")
            else:
                warehouse.connection.register(name, table)
        return warehouse.connection.sql(sql, params=list(parameters)).to_arrow_table()

    def read(self, place, path, view):
        raise AlmonerError("files are not read by the warehouse")


plugin = WarehousePlugin()


@contextmanager
def installed(monkeypatch):
    """An empty warehouse, whose plugin is found as an entry point."""
    entry = SimpleNamespace(name="warehouse", load=lambda: plugin)
    monkeypatch.setattr(plugins, "entry_points", lambda group: [entry] * (group == "almoner.engines"))
    for each in (plugins.plugin_named, plugins._installed):
        each.cache_clear()
    yield Warehouse()
    for each in (plugins.plugin_named, plugins._installed):
        each.cache_clear()
