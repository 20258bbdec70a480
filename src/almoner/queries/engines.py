"""The interface of engines, for whoever writes one for another warehouse: see docs/engines.md.

A ``Plugin`` says which data are its own and opens an ``Engine`` over them, whose SQL is that of its ``Dialect``. Every
engine must give the same whole sums and units. ``almoner.queries.spark`` is one; ``almoner.queries.testing`` compares
another one with DuckDB.
"""

import sys
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from functools import cache
from importlib import import_module
from importlib.metadata import EntryPoints, entry_points
from pathlib import Path
from typing import Any, Protocol

from almoner._workspace import Query
from almoner.errors import ArgumentError
from almoner.ledger.interfaces import AccountWriter
from almoner.queries._questions.question import Question
from almoner.queries._sql.columns import Keys, Unusable, Wanted, shown_type
from almoner.queries._sql.compiler import Compiled, Compiler
from almoner.queries._sql.dialects import Dialect, case_tables, double, duckdb_dialect, functions, like_regex
from almoner.queries._sql.rows import Schema

__all__ = [
    "Compiled", "Compiler", "Dialect", "Engine", "Keys", "Plugin", "Query", "case_tables", "double", "duckdb_dialect",
    "functions", "like_regex",
]  # fmt: skip


class Engine(ABC):
    """The people's rows, in an engine that adds up. Private.

    Args:
        compiler: makes the statements of questions, in the engine's dialect.
    """

    def __init__(self, compiler: Compiler) -> None:
        self._compiler = compiler

    @property
    def schema(self) -> Schema:
        """Which tables there are."""
        return self._compiler.schema

    def plan(self, asked: Question, described: Mapping[str, object]) -> Compiled:
        """The statements of a question; refuses what cannot be asked of these columns, by their names and types."""
        return self._compiler.plan(asked, described)

    def check_files(self) -> None:  # noqa: B027 - most engines have no files
        """Refuse files that every question reads and that are not what they were when the session was opened.

        Engines call it before rows are read, and again before what was read is told.

        Raises:
            DataError: with its reason, "away" or "changed", which tells nothing about the rows.
        """

    @abstractmethod
    def charges(self, plan: Compiled) -> object:
        """Describe each person's contribution and price, for ``Ledger.answer``; nothing is read yet.

        A query of the workspace, or what ``AccountWriter.prepare`` takes: it works out ``plan.charges``.
        """

    @abstractmethod
    def prices(self, plan: Compiled) -> Query:
        """A query of the workspace that gives each person's price: person, units."""

    @abstractmethod
    def sums(self, plan: Compiled, admitted: object) -> list[int]:
        """The contributions of the people admitted, added up, in whole steps. Private.

        Args:
            plan: of the question.
            admitted: ``Verdicts.admitted``; ``plan.added`` takes the rows that ``plan.sums`` gives over it.
        """

    @abstractmethod
    def people_by_value(self, plan: Compiled, admitted: object) -> list[tuple[Any, int]]:
        """(value, people) of a question about values: how many of the people admitted keep each. Private."""

    def close(self) -> None:  # noqa: B027 - there may be nothing to release
        """Release what the engine holds; no more questions follow. Called while the ledger is open."""


class Plugin(Protocol):
    """An engine that is not in this package, for data that are objects of another package.

    It is found by the entry point of the group ``almoner.engines`` that has the name of that package. Errors of the
    engine may quote entries: what fails on the data raises a DataError without them, and without a context.
    """

    name: str
    """For messages, such as "Spark"."""
    data: str
    """In the plural, for messages, such as "data frames of Spark"."""

    def takes(self, data: object) -> bool:
        """True if these are data of the engine."""

    def types(self, data: Any) -> Sequence[tuple[str, str]]:
        """The columns in their order, each with the engine's name of its type, in which no entry may stand."""

    def kind(self, sql_type: str) -> str | None:
        """The kind of the columns of a type: whole, number, text, bool, date or time.

        None where questions cannot use it, or where DuckDB would read its entries otherwise.
        """

    def cure(self, column: str, sql_type: str, wanted: Wanted) -> str:
        """Line to write so that a column, of a type that cannot be used, can be; it must lose no entry."""

    def dialect(self, columns: Sequence[str]) -> Dialect:
        """The engine's SQL, over a table whose columns have these names."""

    def has_twice(self, data: Any, value: str) -> bool:
        """True if two rows have the same value of an expression, over the alias d."""

    def writer(self, data: Any) -> AccountWriter:
        """Writes the accounts of a ledger that is opened with data of the engine."""

    def open(self, tables: Mapping[str, Any], compiler: Compiler, writer: Any) -> Engine:
        """The engine of a session.

        Args:
            tables: the data by the names that the statements have for them, as ``Dialect.table`` spells them.
            compiler: for ``Engine``.
            writer: what ``writer`` returned for the first table.
        """

    def read(self, place: str, path: Path, view: str | None) -> Any:
        """Data in files, for a file of questions that names the engine's place.

        Args:
            place: the engine's, as the file says it.
            path: of the data.
            view: SQL over them as ``data``, by the data holder.
        """


_OURS = {"pyspark": "almoner.queries.spark"}


def plugin_of(data: object) -> Plugin | None:
    """The plugin that takes these data, found out without loading any other; None where none does."""
    for package in dict.fromkeys(kind.__module__.partition(".")[0] for kind in type(data).__mro__):
        found = None if package in sys.stdlib_module_names else plugin_named(package)
        if found is not None and found.takes(data):
            return found
    return None


@cache
def plugin_named(package: str) -> Plugin | None:
    """The plugin for objects of a package; None where there is none."""
    if package in _OURS:
        found: Plugin = import_module(_OURS[package]).plugin
        return found
    for each in _installed():
        if each.name == package:
            loaded: Plugin = each.load()
            return loaded
    return None


@cache
def _installed() -> EntryPoints:
    """The entry points of plugins; looking at all that is installed takes time."""
    return entry_points(group="almoner.engines")


def types_of(plugin: Plugin, data: Any) -> dict[str, str]:
    """The columns of data, each with the engine's name of its type."""
    listed = plugin.types(data)
    types = dict(listed)
    if len(types) < len(listed):
        raise ArgumentError("data: two columns have the same name")
    return types


def kinds_of(plugin: Plugin, data: Any) -> Mapping[str, str]:
    """The kind of each column of data."""
    kinds = {}
    for name, sql_type in types_of(plugin, data).items():
        kind = None if "\0" in name else plugin.kind(sql_type)
        kinds[name] = kind or Unusable.made(shown_type(sql_type), plugin.cure(name, sql_type, "question"))
    return kinds
