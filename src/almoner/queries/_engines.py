"""Open the engine over a session's tables: DuckDB, on the connection that holds the ledger, or that of a plugin."""

from collections.abc import Iterator
from typing import Any, Self

from almoner._misfits import Misfit
from almoner._workspace import Query, TempTable, Workspace
from almoner.ledger import Ledger
from almoner.ledger.interfaces import AccountWriter
from almoner.queries._sql.columns import CELLS
from almoner.queries._sql.compiler import Compiled, Compiler
from almoner.queries._sql.dialects import duckdb_dialect
from almoner.queries._tables import sources
from almoner.queries._tables.files import Files
from almoner.queries._tables.tables import TableInput, schema_of
from almoner.queries.engines import Engine, kinds_of, plugin_of

__all__ = ["DuckDB", "open_engine"]

_AT_A_TIME = 65_536


class DuckDB(Engine):
    """Rows in DuckDB. Private: it belongs to the data holder's session."""

    def __init__(self, workspace: Workspace, compiler: Compiler, places: range, files: list[Files]) -> None:
        super().__init__(compiler)
        self._workspace, self._files = workspace, files
        self.places = places
        """The number of each table in the workspace, in the order in which they were given."""

    @classmethod
    def open(cls, ledger: Ledger, given: list[TableInput]) -> Self:
        """Attach the tables beside the ledger; those whose entries were not counted yet become counted ones."""
        workspace = ledger.store.workspace
        first = workspace.places(len(given))
        places = range(first, first + len(given))
        kinds = []
        for nth, place in enumerate(places):
            each, misfits = given[nth], list[Misfit]()
            uncounted = misfits if each.misfits is None else None
            kinds.append(
                sources.attach(workspace.connection, each.data, each.reading, load=True, place=place, misfits=uncounted)
            )
            given[nth] = each if uncounted is None else each.counting(misfits)
        for each in given:
            if each.files is not None:  # what was checked of them is true of these rows
                each.files.check()
        rows = [sources.view_name(place) for place in places]
        dialects = [duckdb_dialect(columns) for columns in kinds]
        schema = schema_of(given, kinds, rows, ledger.terms.person, dialects)
        files = [each.read_each_time for each in given]
        return cls(workspace, Compiler(schema, dialects[0]), places, [each for each in files if each is not None])

    def check_files(self) -> None:
        for files in self._files:
            files.check()

    def charges(self, plan: Compiled) -> Query:
        self.check_files()
        tables = [keys.to_make() for keys in plan.keys]
        if plan.cells is None:
            return Query(plan.charges, plan.parameters, tuple(tables))
        return Query(plan.charges, (), (*tables, TempTable(CELLS, plan.cells, plan.parameters)))

    prices = charges

    def sums(self, plan: Compiled, admitted: object) -> list[int]:
        self.check_files()  # the rows were read since they were last checked
        rows = self._workspace.run(plan.sums.format(admitted=admitted))

        def blocks() -> Iterator[tuple[Any, ...]]:
            while block := rows.fetchmany(_AT_A_TIME):
                yield from block

        return plan.added(blocks())

    def people_by_value(self, plan: Compiled, admitted: object) -> list[tuple[Any, int]]:
        self.check_files()
        rows = self._workspace.run(plan.sums.format(admitted=admitted)).fetchall()
        return [(value, int(people)) for value, people in rows]

    def close(self) -> None:
        """Let the tables go; the ledger, whose workspace it is, may go on."""
        if self._workspace.connection is not None:
            for place in self.places:
                sources.detach(self._workspace.connection, place)


def open_engine(ledger: Ledger, given: list[TableInput], writer: AccountWriter | None) -> Engine:
    """The engine over tables: DuckDB, or the plugin's whose writer writes the accounts of the ledger."""
    plugin = plugin_of(given[0].data)
    if plugin is None or writer is None:
        return DuckDB.open(ledger, given)
    kinds = [kinds_of(plugin, each.data) for each in given]
    names = [sources.view_name(place) for place in range(len(given))]
    dialects = [plugin.dialect([*columns]) for columns in kinds]
    rows = [dialects[0].table.format(name) for name in names]
    schema = schema_of(given, kinds, rows, ledger.terms.person, dialects)
    data = {name: each.data for name, each in zip(names, given, strict=True)}
    return plugin.open(data, Compiler(schema, dialects[0]), writer)
