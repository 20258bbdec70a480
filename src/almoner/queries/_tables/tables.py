"""Which tables a session is opened over: of people, and public ones, as the data holder describes them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from almoner.errors import ArgumentError
from almoner.queries._engines.plugins import plugin_of
from almoner.queries._language.keys import check_column, check_table
from almoner.queries._sources import sources
from almoner.queries._sources.table_input import TableInput

__all__ = ["Lookup", "Table", "given_tables", "named_alone"]


@dataclass(frozen=True, slots=True)
class Table:
    """A table of people's rows, for ``Session.open(Table(...))`` or ``Session.open(tables={name: Table(...)})``.

    Args:
        data: as of ``Session.open``. Private.
        one_row: declares that each person has at most one row, as in a table of customers: then questions about other
            tables may use its columns, as ``customers.age``. It is checked when the session is opened.
        columns: the columns that questions may use, public; None for all. The others are as if they were not there.
        table: which table or view of a DuckDB file or connection; that of a connection is read once.
        view: SQL over ``data`` that gives the rows that questions see: by the data holder, run as it is. What it does
            to a person's rows must depend on that person's rows alone.
        types: of the columns of CSV files, such as ``{"hours": "number"}``: text (where none is given), whole, number,
            "decimal comma" (1.234,5), "decimal point" (1,234.5), bool, date or time; also of columns of text elsewhere.
            Entries that are spelled otherwise are missing: ``misfits`` counts them, and a column of nothing else is
            refused. Without it types of CSV files are guessed from all entries, so that one person's can change them.
        check_view: whether to run the view over the rows of single people too, a few drawn at random, and refuse it
            where that gives them other rows; for at most a few seconds. ``session.view_check`` says what was compared.
            What no drawn person shows is not found.
    """

    data: Any = field(repr=False)
    one_row: bool = field(default=False, kw_only=True)
    columns: Sequence[str] | None = field(default=None, kw_only=True)
    table: str | None = field(default=None, kw_only=True)
    view: str | None = field(default=None, kw_only=True)
    types: Mapping[str, str] | None = field(default=None, kw_only=True)
    check_view: bool = field(default=True, kw_only=True)

    def given(self, name: str | None, person: str) -> TableInput:
        """The table as a session takes it, under its name, with the column that says whose row it is."""
        if isinstance(self.columns, str):
            raise ArgumentError(f"tables: {name!r}: columns={self.columns!r} must be a list of names")
        shown = None if self.columns is None else tuple(self.columns)
        read = _read(self.data, sources.ReadOptions(self.table, self.view, self.types), person)
        return TableInput(name, *read, person, bool(self.one_row), columns=shown, check_view=self.check_view)


@dataclass(frozen=True, slots=True)
class Lookup:
    """A public table with one row for each key, for ``Session.open(public={name: Lookup(...)})``.

    By giving it the data holder declares that it holds nobody's data: it does not depend on who is among the people. It
    is read once, when the session is opened; a key with two rows is refused.

    Args:
        data: as of ``Session.open``.
        key: the column that names its row: text, whole numbers, truth values or dates.
        on: the column of people's rows that holds the key; None where it is called like ``key``. It may also be a
            column of another table, as ``customers.zip`` or ``products.category``.
        table, view, types: as of ``Table``.
    """

    data: Any = field(repr=False)
    key: str
    on: str | None = field(default=None, kw_only=True)
    table: str | None = field(default=None, kw_only=True)
    view: str | None = field(default=None, kw_only=True)
    types: Mapping[str, str] | None = field(default=None, kw_only=True)


def given_tables(
    data: Any,
    person: str | Mapping[str, str],
    tables: Mapping[str, Any] | None,
    public: Mapping[str, Lookup] | None,
) -> list[TableInput]:
    """The tables that a session is opened over, those of people first; those in memory as Arrow tables.

    Args:
        data: the only table of people; or
        tables: several by name, each a ``Table`` or its data.
        person: the column that says whose row it is, of all tables or by table.
        public: public tables by name.
    """
    if (data is None) == (tables is None):
        raise ArgumentError("give either data, or tables={name: data}")
    if tables is None:
        if not isinstance(person, str):
            raise ArgumentError(f"person={person!r} must be a column's name")
        listed = [_table(data).given(None, person)]
    else:
        listed = _named_tables(tables, person)
    for name, lookup in (public or {}).items():
        _check_name("public", name, listed)
        if not isinstance(lookup, Lookup):
            raise ArgumentError(f"public: {name!r} must be a Lookup(data, key=...)")
        check_column(lookup.key)
        how = sources.ReadOptions(lookup.table, lookup.view, lookup.types)
        read = _read(lookup.data, how, lookup.key)
        listed.append(TableInput(name, *read, key=lookup.key, on=lookup.on or lookup.key))
    _check_chains({str(each.name): each.on for each in listed if each.person is None})
    return listed


def _named_tables(tables: Mapping[str, Any], person: str | Mapping[str, str]) -> list[TableInput]:
    if not isinstance(tables, Mapping) or not tables:
        raise ArgumentError("tables must be {name: data}, with one table or more")
    if not isinstance(person, str) and (not isinstance(person, Mapping) or set(person) != set(tables)):
        raise ArgumentError("person must be a column's name, or {table: column} with each of the tables")
    listed: list[TableInput] = []
    for name, each in tables.items():
        _check_name("tables", name, listed)
        listed.append(_table(each).given(name, person if isinstance(person, str) else person[name]))
    return listed


def named_alone(dataset: str, data: Any, tables: Mapping[str, Any] | None) -> dict[str, Any]:
    """The only table of a session under the name of its data set."""
    if tables is not None:
        raise ArgumentError(f"dataset={dataset!r}: of several tables, each is the data set of its own name")
    if data is None:
        raise ArgumentError("give either data, or tables={name: data}")
    return {dataset: data}


def _table(data: Any) -> Table:
    return data if isinstance(data, Table) else Table(data)


def _check_name(argument: str, name: object, listed: list[TableInput]) -> None:
    """Refuse a name that could not stand in an expression, or is another table's."""
    check_table(**{argument: name})
    if any(str(name).casefold() == str(each.name or "data").casefold() for each in listed):
        raise ArgumentError(f"{argument}: two tables are called {name!r}")


def _check_chains(on: Mapping[str, str]) -> None:
    """Refuse public tables whose rows would be found by each other's columns."""
    for first in on:
        name = first
        for _ in on:
            name = on[name].partition(".")[0]
            if name not in on:
                break
        else:
            raise ArgumentError(f"public: the rows of {first!r} are found by columns (on=) that lead back to it")


def _read(data: Any, reading: sources.ReadOptions, person: str) -> tuple[Any, sources.ReadOptions]:
    """(The data, how they are read): paths, data of a plugin, or an Arrow table."""
    if isinstance(data, str | Path) or plugin_of(data) is not None:
        return data, reading
    if isinstance(data, list | tuple) and data and all(isinstance(each, str | Path) for each in data):
        return list(map(Path, data)), reading
    rows = sources.as_arrow(data, person=person, table=reading.table)
    return rows, sources.ReadOptions(None, reading.view, reading.types)
