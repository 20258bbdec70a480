"""The tables that a file of questions names: one, or several with what is declared of each."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from almoner.errors import ArgumentError
from almoner.queries._engines.plugins import plugin_named
from almoner.queries._tables.tables import Lookup, Table

__all__ = ["check_tables", "tables_of"]

_READING: dict[str, type] = {"data": str, "table": str, "view": str, "types": dict}
_TABLE: dict[str, type] = {**_READING, "person": str, "one_row": bool, "columns": list}
_LOOKUP: dict[str, type] = {**_READING, "key": str, "on": str}


def check_tables(settings: Mapping[str, Any]) -> None:
    """Refuse settings that name no table, or describe one in words that are not known."""
    several = "tables" in settings
    for name in ("data", "table", "view", "types"):
        if several and name in settings:
            raise ArgumentError(f"{name} stands in [tables.NAME], beside the table that it is about")
    if not several and not isinstance(settings.get("data"), str):
        raise ArgumentError("data is missing, or is no text; or give [tables.NAME]")
    for what, takes, needed in (("tables", _TABLE, ("data",)), ("public", _LOOKUP, ("data", "key"))):
        for name, fields in settings.get(what, {}).items():
            _check_fields(f"{what}.{name}", fields, takes, needed)
    missing = not several or any("person" not in fields for fields in settings["tables"].values())
    if missing and not isinstance(settings.get("person"), str):
        raise ArgumentError("person is missing, or is no text")


def _check_fields(where: str, fields: object, takes: Mapping[str, type], needed: tuple[str, ...]) -> None:
    if not isinstance(fields, dict):
        raise ArgumentError(f"{where} must be a table")
    for name, value in fields.items():
        if name not in takes:
            raise ArgumentError(f"{where}: {name!r} is not known; known are {', '.join(sorted(takes))}")
        if not isinstance(value, takes[name]):
            kind = {str: "text", bool: "true or false", dict: "a table", list: "a list"}[takes[name]]
            raise ArgumentError(f"{where}: {name}={value!r} must be {kind}")
    for name in needed:
        if name not in fields:
            raise ArgumentError(f"{where}: {name} is missing")


def tables_of(settings: Mapping[str, Any], folder: Path) -> dict[str, Any]:
    """Arguments of ``Session.open`` about tables: ``data`` or ``tables``, ``public``, ``person`` and how they are read.

    Args:
        settings: of the file, checked.
        folder: that its paths start from.
    """
    public = {name: _lookup(fields, settings, folder) for name, fields in settings.get("public", {}).items()}
    given: dict[str, Any] = {"public": public or None, "person": settings.get("person")}
    if "tables" not in settings:
        data, how = _read(settings, settings, folder)
        return {**given, "data": data, **how}
    tables, people = {}, {}
    for name, fields in settings["tables"].items():
        data, how = _read(fields, settings, folder)
        tables[name] = Table(data, one_row=fields.get("one_row", False), columns=fields.get("columns"), **how)
        people[name] = fields.get("person", settings.get("person"))
    return {**given, "tables": tables, "person": people}


def _lookup(fields: Mapping[str, Any], settings: Mapping[str, Any], folder: Path) -> Lookup:
    data, how = _read(fields, settings, folder)
    return Lookup(data, fields["key"], on=fields.get("on"), **how)


def _read(fields: Mapping[str, Any], settings: Mapping[str, Any], folder: Path) -> tuple[Any, dict[str, Any]]:
    """(The data, how they are read)."""
    how: dict[str, Any] = {name: fields.get(name) for name in ("table", "view", "types")}
    plugin = plugin_named("pyspark") if "spark" in settings else None
    if plugin is not None:
        if how["table"] is not None or how["types"] is not None:
            raise ArgumentError("table= is for DuckDB files, types= for CSV files")
        return plugin.read(settings["spark"], folder / fields["data"], how["view"]), {}
    return folder / fields["data"], how
