"""A warehouse for tests of the interface of engines: tables in a DuckDB of its own, which the ledger cannot reach.

Its classes use public names of Almoner alone, as those of another package would. Accounts are Parquet files.
"""

import shutil
from contextlib import contextmanager
from itertools import count
from types import SimpleNamespace

import duckdb

from almoner.errors import AlmonerError, ArgumentError, DataError
from almoner.ledger.interfaces import Extent
from almoner.queries import engines as plugins
from almoner.queries.engines import Engine, Query, duckdb_dialect

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

    def run(self, sql, parameters=()):
        try:
            return self.connection.execute(sql, list(parameters)).fetchall()
        except duckdb.Error:  # its message may quote entries
            pass
        raise DataError("the data cannot be read, or the warehouse cannot work; nothing was charged")


class Charges:
    """A question that is to be worked out."""

    def __init__(self, work_out):
        self.work_out = work_out


class Judged:
    """Charges with a verdict on each, in a table."""

    def __init__(self, run, payment):
        self._run, self._payment = run, payment
        self.admitted = "admitted"

    def refused(self):
        return self._run("SELECT count(*) FROM judged WHERE paid < wanted")[0][0]

    def missing_mass(self, price):
        return int(self._run(f"SELECT {self._payment.mass_sql(price)} FROM judged WHERE paid < wanted")[0][0])

    def extent(self):
        return Extent(
            *self._run("SELECT count(*), coalesce(sum(units), 0)::BIGINT, coalesce(max(units), 0) FROM admitted")[0]
        )


class Writer:
    """Accounts in Parquet files, written by the warehouse."""

    def __init__(self, warehouse):
        self.run = warehouse.run

    def open(self, folder, person):
        self.folder, self._person = folder, person

    def prepare(self, charges):
        if not isinstance(charges, Charges):
            raise ArgumentError("the accounts of this ledger are kept by a warehouse: ask about its tables")
        charges.work_out()

    def judge(self, prepared, accounts, marks, shares, most, payment):
        joins, left = "", [f"{most} - coalesce(a.spent, 0)"]
        for place, (share, of_scope) in enumerate(shares):
            joins += f" LEFT JOIN {self._rows(share, spent='BIGINT')} s{place} ON s{place}.person = c.person"
            left.append(f"{of_scope} - coalesce(s{place}.spent, 0)")
        pays = payment.sql(f"least({', '.join(left)})", divide="//")
        self.run(
            f"CREATE OR REPLACE TABLE judged AS SELECT c.* EXCLUDE (units, factor), {pays.units} AS units, "
            f"{pays.factor} AS factor, {pays.taken} AS taken, c.units AS wanted, "
            f"CASE WHEN {pays.taken} THEN {pays.part} ELSE 0 END AS paid FROM charges c "
            f"LEFT JOIN {self._rows(accounts, spent='BIGINT', gone='BOOLEAN')} a ON a.person = c.person "
            f"LEFT JOIN {self._rows(marks, gone='BOOLEAN')} m ON m.person = c.person{joins} "
            "WHERE c.units > 0 AND NOT coalesce(m.gone, a.gone, FALSE)"
        )
        self.run("CREATE OR REPLACE TABLE admitted AS SELECT * EXCLUDE (taken, wanted, paid) FROM judged WHERE taken")
        return Judged(self.run, payment)

    def write_charges(self, verdicts, question, into):
        self._write(f"SELECT {question}::BIGINT AS question, person, units FROM {verdicts.admitted}", into)

    def write_accounts(self, charges, accounts, marks, into):
        self._write(
            "SELECT person, sum(spent)::BIGINT AS spent, coalesce(max(mark), max(gone)) AS gone FROM ("
            "SELECT person, spent, gone, NULL::BOOLEAN AS mark "
            f"FROM {self._rows(accounts, spent='BIGINT', gone='BOOLEAN')} "
            f"UNION ALL SELECT person, units, FALSE, NULL FROM {self._rows(charges)} "
            f"UNION ALL SELECT person, 0, FALSE, gone FROM {self._rows(marks)}) GROUP BY person",
            into,
        )
        return Extent(
            *self.run(
                f"SELECT count(*), coalesce(sum(spent), 0)::BIGINT, coalesce(max(spent), 0) FROM {self._rows(into)}"
            )[0]
        )

    def write_share(self, charges, share, into):
        self._write(
            "SELECT person, sum(spent)::BIGINT AS spent FROM ("
            f"SELECT person, spent FROM {self._rows(share, spent='BIGINT')} "
            f"UNION ALL SELECT person, units FROM {self._rows(charges)}) GROUP BY person",
            into,
        )

    def _rows(self, path, **columns):
        if path is not None:
            return f"read_parquet('{path}{'' if path.is_file() else '/*.parquet'}')"
        listed = {"person": self._person, **columns}
        return f"(SELECT {', '.join(f'NULL::{kind} AS {name}' for name, kind in listed.items())} WHERE FALSE)"

    def _write(self, sql, into):
        into.mkdir(mode=0o700)
        self.run(f"COPY ({sql}) TO '{into}/all.parquet'")


class WarehouseEngine(Engine):
    """Rows in the warehouse."""

    def __init__(self, tables, compiler, writer):
        super().__init__(compiler)
        self._tables, self._writer, self.run = tables, writer, writer.run

    def charges(self, plan):
        return Charges(lambda: self._work_out(plan))

    def prices(self, plan):
        self._work_out(plan)
        place = self._writer.folder / "work" / "prices"
        shutil.rmtree(place, ignore_errors=True)
        self._writer._write("SELECT person, units FROM charges", place)
        return Query("SELECT person, units FROM read_parquet(?)", (f"{place}/*.parquet",))

    def sums(self, plan, admitted):
        return plan.added(self.run(plan.sums.format(admitted=admitted)))

    def people_by_value(self, plan, admitted):
        return [(value, int(people)) for value, people in self.run(plan.sums.format(admitted=admitted))]

    def _work_out(self, plan):
        for name, table in self._tables.items():
            self.run(f"CREATE OR REPLACE TEMP VIEW {name} AS FROM {table.name}")
        for keys in plan.keys:
            values = [str(key).lower() if isinstance(key, bool) else str(key) for key in keys.values]
            self.run(
                f"CREATE OR REPLACE TEMP TABLE {keys.table} AS SELECT unnest(CAST(? AS {keys.kind}[])) AS key, "
                f"unnest(range({len(values)})) AS place",
                [values],
            )
        if plan.cells is not None:
            self.run(f"CREATE OR REPLACE TABLE cells AS {plan.cells}", plan.parameters)
        self.run(f"CREATE OR REPLACE TABLE charges AS {plan.charges}", () if plan.cells else plan.parameters)


class WarehousePlugin:
    """Tables of the warehouse as data."""

    name, data = "Warehouse", "tables of Warehouse"

    def takes(self, data):
        return isinstance(data, WarehouseTable)

    def types(self, data):
        return [(name, kind) for name, kind, *_ in data.warehouse.run(f"DESCRIBE {data.name}")]

    def kind(self, sql_type):
        return KINDS.get(sql_type)

    def cure(self, column, sql_type, wanted):
        return f"a view of the warehouse in which {column} is another one than {sql_type}, for a {wanted}"

    def dialect(self, columns):
        return duckdb_dialect(columns)

    def has_twice(self, data, value):
        sql = f"SELECT 1 FROM {data.name} d WHERE {value} IS NOT NULL GROUP BY {value} HAVING count(*) > 1"
        return bool(data.warehouse.run(sql))

    def writer(self, data):
        return Writer(data.warehouse)

    def open(self, tables, compiler, writer):
        return WarehouseEngine(tables, compiler, writer)

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
