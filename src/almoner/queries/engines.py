"""The interface of engines, for whoever writes one for another warehouse: see docs/engines.md.

A ``Plugin`` says which data are its own and runs statements over them, whose SQL is that of its ``Dialect``. Every
engine must give the same whole contributions. ``almoner.queries.spark`` is one.
"""

import sys
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from importlib import import_module
from importlib.metadata import EntryPoints, entry_points
from pathlib import Path
from typing import Any, Protocol, TypeVar

from almoner.errors import AlmonerError, ArgumentError, DataError
from almoner.queries._sql.columns import Unusable, Wanted, shown_type
from almoner.queries._sql.dialects import Dialect, case_tables, double, duckdb_dialect, functions, like_regex

__all__ = [
    "Dialect", "Plugin", "case_tables", "double", "duckdb_dialect", "functions", "like_regex",
]  # fmt: skip

Result = TypeVar("Result")


class Plugin(Protocol):
    """An engine that is not in this package, for data that are objects of another package.

    It is found by the entry point of the group ``almoner.engines`` that has the name of that package.
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

    def run(self, sql: str, parameters: Sequence[object], tables: Mapping[str, Any]) -> Any:
        """The rows that a statement gives, each of them once, as an Arrow table; its errors are told to nobody.

        Args:
            sql: in the dialect.
            parameters: that the dialect's literals added, in their order.
            tables: what the statement reads, by the names that ``Dialect.table`` spells: data of the engine, whose
                columns are called as ``Dialect.columns`` says, and Arrow tables of keys (key, place).
        """

    def read(self, place: str, path: Path | str, view: str | None) -> Any:
        """Data in files, for a file of questions that names the engine's place.

        Args:
            place: the engine's, as the file says it.
            path: of the data; text where it has a scheme, such as s3a://bucket/visits.
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
        kinds[name] = kind or Unusable(shown_type(sql_type), plugin.cure(name, sql_type, "question"))
    return kinds


def told_nothing(plugin: Plugin, work: Callable[[], Result]) -> Result:
    """Work on the data: an engine's errors may quote entries, so they are not even the context of what is raised."""
    try:
        return work()
    except AlmonerError:
        raise
    except Exception:
        pass
    raise DataError(f"the data cannot be read, or {plugin.name} cannot work; nothing was charged")
