"""The people's rows, in an engine that adds up what each of them contributes: DuckDB here, or a plugin's elsewhere.

Whatever the engine, contributions come into the ledger's workspace, and prices, charges and sums are worked out there:
so every ledger takes every engine's questions, and two engines charge the same units.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from functools import partial
from itertools import chain
from typing import Any, Self

from almoner._misfits import Misfit
from almoner._workspace import Query, TempTable, Workspace
from almoner.ledger import Ledger, Periods
from almoner.queries._sql.columns import CELLS
from almoner.queries._sql.compiler import Compiled, Compiler
from almoner.queries._sql.dialects import Dialect, duckdb_dialect
from almoner.queries._sql.rows import Schema
from almoner.queries._tables import sources
from almoner.queries._tables.files import Files
from almoner.queries._tables.tables import TableInput, schema_of
from almoner.queries.engines import Plugin, kinds_of, told_nothing


class Engine(ABC):
    """The people's rows. Private: it belongs to the data holder's session."""

    def __init__(self, workspace: Workspace, compiler: Compiler) -> None:
        self._workspace, self.plan, self.schema = workspace, compiler.plan, compiler.schema

    def check_files(self) -> None:  # noqa: B027 - most engines have no files
        """Refuse files that every question reads and that are not what they were when the session was opened.

        Raises:
            DataError: with its reason, "away" or "changed", which tells nothing about the rows.
        """

    @abstractmethod
    def charges(self, plan: Compiled) -> Query:
        """A query that gives each person's contribution and price, for ``Ledger.answer``; nothing is read yet."""

    def sums(self, plan: Compiled, admitted: str) -> list[int]:
        """The contributions of the people admitted, added up, in whole steps. Private."""
        return plan.added(self.people_by_value(plan, admitted))

    def people_by_value(self, plan: Compiled, admitted: str) -> Iterable[tuple[Any, ...]]:
        """(value, people) of a question about values: how many of the people admitted keep each. Private."""
        self.check_files()  # the rows were read since they were last checked
        rows = self._workspace.run(plan.sums.format(admitted=admitted))
        return chain.from_iterable(iter(lambda: rows.fetchmany(65_536), []))

    def close(self) -> None:  # noqa: B027 - there may be nothing to release
        """Release what the engine holds; no more questions follow. Called while the ledger is open."""


class DuckDB(Engine):
    def __init__(self, workspace: Workspace, compiler: Compiler, places: range, files: list[Files]) -> None:
        super().__init__(workspace, compiler)
        self._files = files
        self.places = places  # the number of each table in the workspace, in the order in which they were given

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
        files = filter(None, (each.read_each_time for each in given))
        return cls(workspace, Compiler(schema, dialects[0]), places, list(files))

    def check_files(self) -> None:
        for files in self._files:
            files.check()

    def charges(self, plan: Compiled) -> Query:
        self.check_files()
        tables = [keys.to_make() for keys in plan.keys]
        if plan.cells is None:
            return Query(plan.charges, plan.parameters, tuple(tables))
        return Query(plan.charges, (), (*tables, TempTable(CELLS, plan.cells, plan.parameters)))

    def close(self) -> None:
        """Let the tables go; the ledger, whose workspace it is, may go on."""
        if self._workspace.connection is not None:
            for place in self.places:
                sources.detach(self._workspace.connection, place)


class Elsewhere(Engine):
    """Rows of a plugin, whose engine gives each person's contributions, once for each question."""

    def __init__(self, workspace: Workspace, compiler: Compiler, plugin: Plugin, tables: Mapping[str, Any]) -> None:
        super().__init__(workspace, compiler)
        self._plugin, self._tables = plugin, tables

    @classmethod
    def open(cls, ledger: Ledger, given: list[TableInput], plugin: Plugin) -> Self:
        """The tables, all of them the plugin's."""
        person, periods = ledger.terms.person, ledger.terms.periods
        handed = f"CAST(person AS {person})"
        if periods is not None and person == Periods.NUMBERS:  # such numbers are DuckDB's alone
            person, handed = "VARCHAR", periods.number_sql("person")
        schema, dialect, data = schema_elsewhere(plugin, given, person)
        return cls(ledger.store.workspace, Compiler(schema, dialect, handed), plugin, data)

    def charges(self, plan: Compiled) -> Query:
        import pyarrow as pa

        keys = {each.table: pa.table({"key": each.values, "place": range(len(each.values))}) for each in plan.keys}
        run = partial(self._plugin.run, str(plan.rows), plan.parameters, {**self._tables, **keys})
        handed = partial(told_nothing, self._plugin, run)
        return Query(plan.charges, (), (TempTable(CELLS, str(plan.cells), (), handed),))

    def close(self) -> None:
        self._tables = {}


def schema_elsewhere(
    plugin: Plugin, given: list[TableInput], person_kind: str
) -> tuple[Schema, Dialect, dict[str, Any]]:
    """(The tables of a plugin, the dialect of the first, the data by the names that they have in SQL)."""
    kinds = [kinds_of(plugin, each.data) for each in given]
    dialects = [plugin.dialect([*columns]) for columns in kinds]
    data = {sources.view_name(place): each.data for place, each in enumerate(given)}
    rows = [dialects[0].table.format(name) for name in data]
    return schema_of(given, kinds, rows, person_kind, dialects), dialects[0], data
