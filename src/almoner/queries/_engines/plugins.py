"""Find the plugin that reads data which DuckDB does not."""

import sys
from collections.abc import Mapping, Sequence
from functools import cache
from importlib import import_module
from importlib.metadata import EntryPoints, entry_points
from typing import Any

from almoner.errors import ArgumentError, DataError
from almoner.ledger import Ledger
from almoner.ledger.interfaces import AccountWriter
from almoner.queries._engines.duckdb_engine import DuckDB
from almoner.queries._engines.engine import Engine, Plugin
from almoner.queries._sources.sources import view_name
from almoner.queries._sources.table_input import TableInput, schema_of
from almoner.queries._sql.compiler import Compiler
from almoner.queries._sql.cures import Unusable, shown_type

__all__ = ["check_twice", "kinds_of", "open_engine", "plugin_named", "plugin_of", "types_of"]

GROUP = "almoner.engines"
"""Group of entry points."""
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
    return entry_points(group=GROUP)


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


def check_twice(plugin: Plugin, given: Sequence[TableInput], person_kind: str) -> None:
    """Refuse a second row where one was declared; for the data holder."""
    for each in given:
        if each.person is None or each.one_row:
            kinds = kinds_of(plugin, each.data)
            if plugin.has_twice(each.data, each.found_by(kinds, person_kind, plugin.dialect([*kinds]))):
                raise DataError(each.twice)


def open_engine(ledger: Ledger, given: list[TableInput], writer: AccountWriter | None) -> Engine:
    """The engine over tables: DuckDB, or the plugin's whose writer writes the accounts of the ledger."""
    plugin = plugin_of(given[0].data)
    if plugin is None or writer is None:
        return DuckDB.open(ledger, given)
    kinds = [kinds_of(plugin, each.data) for each in given]
    names = [view_name(place) for place in range(len(given))]
    dialects = [plugin.dialect([*columns]) for columns in kinds]
    rows = [dialects[0].table.format(name) for name in names]
    schema = schema_of(given, kinds, rows, ledger.terms.person, dialects)
    data = {name: each.data for name, each in zip(names, given, strict=True)}
    return plugin.open(data, Compiler(schema, dialects[0]), writer)
