"""Rows in DuckDB, on the connection that holds the ledger."""

from collections.abc import Iterator
from typing import Any, Self

from almoner._misfits import Misfit
from almoner._workspace import Query, TempTable, Workspace
from almoner.ledger import Ledger
from almoner.queries._engines.engine import Engine
from almoner.queries._sources import sources
from almoner.queries._sources.files import Files
from almoner.queries._sources.table_input import TableInput, schema_of
from almoner.queries._sql.compiler import Compiled, Compiler
from almoner.queries._sql.dialects import duckdb_dialect
from almoner.queries._sql.keys import CELLS

__all__ = ["DuckDB"]

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
        """Attach the tables beside the ledger.

        Args:
            ledger: that is open.
            given: the tables; those whose entries were not counted yet are replaced by counted ones.
        """
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
