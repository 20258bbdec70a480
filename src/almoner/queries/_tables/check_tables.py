"""Checks of the tables of a session before its ledger is touched."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from almoner._spelling import EXACT
from almoner._workspace import duckdb
from almoner.errors import ArgumentError, DataError
from almoner.queries._engines.engine import Plugin, Wanted
from almoner.queries._engines.plugins import check_twice, kinds_of, plugin_of, types_of
from almoner.queries._sources import sources
from almoner.queries._sources.files import Files
from almoner.queries._sources.table_input import TableInput
from almoner.queries._sources.view_check import ViewCheck, check_view
from almoner.queries._sql.cures import cure_of, recast
from almoner.queries._sql.dialects import duckdb_dialect
from almoner.queries._sql.keys import key_kind
from almoner.queries._tables.periods import check_column_of
from almoner.queries._tables.unparsed_entries import Misfit, refuse

__all__ = ["CHECK_SECONDS", "SAMPLE", "prepared"]

SAMPLE = 20  # a view is checked for so many people
CHECK_SECONDS = 5.0


def prepared(given: list[TableInput]) -> tuple[str, list[TableInput], dict[str | None, ViewCheck]]:
    """(How the data name people, the tables, what checks of views came to).

    Rows of short CSV files and of public tables are read once, here.

    Raises:
        ArgumentError: a column is missing or of the wrong kind.
        DataError: what was declared of a table does not hold, no entry of a column can be read as its type, or a view
            mixes people.
    """
    for plugin in filter(None, (plugin_of(each.data) for each in given)):
        kinds = [_kinds_of(plugin, each) for each in given]
        types = [types_of(plugin, each.data) for each in given]
        kind = _person_kind(given, kinds, types, plugin.cure)
        check_twice(plugin, given, kind)
        return kind, given, {}
    given = [_with_files(each) for each in given]
    with duckdb().connect() as connection:
        short = [_is_loaded(each) for each in given]
        kinds = []
        for place, load in enumerate(short):
            columns, given[place] = _attached(connection, given[place], load, place)
            kinds.append(columns)
        refuse(misfit for each in given for misfit in each.misfits or ())
        types = [sources.types_of(connection, place) for place in range(len(given))]
        person = _person_kind(given, kinds, types)
        _check_spelling(given, types)
        checked = {}
        for place, each in enumerate(given):
            _check_rows(connection, each, kinds[place], person, place)
            if each.check_view and each.reading.view is not None and each.person is not None:
                checked[each.name] = view_checked(connection, each, place, sample=SAMPLE, seconds=CHECK_SECONDS)
        return (
            person,
            [_with_rows(connection, *each) for each in zip(given, short, range(len(given)), strict=True)],
            checked,
        )


def _attached(connection: Any, given: TableInput, load: bool, place: int) -> tuple[dict[str, str], TableInput]:
    """(The kinds of the columns, the table with how many of its entries cannot be read, if its rows were)."""
    misfits: list[Misfit] = []
    column = given.person or given.key
    kinds = sources.attach(
        connection, given.data, given.reading, person=column, load=load, place=place, misfits=misfits
    )
    return kinds, given.counting(misfits) if load or not sources.is_csv(given.data) else given


def view_checked(
    connection: Any, given: TableInput, place: int, *, sample: int, seconds: float, view: str | None = None
) -> ViewCheck:
    """Check the view of a table, or one over the rows that questions see.

    Args:
        connection: to DuckDB, with the table.
        given: the table, whose view it is unless
        view: is another one, over its rows.
        place: of the table.
        sample, seconds: as of ``check_view``.
    """
    whole, source = sources.view_name(place), sources.view_name(place, "source")
    sql = given.reading.view
    if view is not None:
        source = source if sql is not None else whole
        whole, sql = "view_given", view
        _make_view(connection, sources.over(source, view), str(given.person))
    try:
        return check_view(
            connection, str(sql), str(given.person), sample=sample, seconds=seconds, source=source, whole=whole
        )
    finally:
        if view is not None:
            connection.execute("DROP VIEW IF EXISTS view_given")


def _make_view(connection: Any, sql: str, person: str) -> None:
    """A view to be checked, as ``view_given``."""
    named = None
    try:
        connection.execute(f"CREATE OR REPLACE TEMP VIEW view_given AS {sql}")
        named = [name for name, *_ in connection.execute("DESCRIBE view_given").fetchall()]
    except duckdb().Error:  # its message may quote entries
        pass
    if named is None:
        raise DataError("view: cannot be read as a table: are the columns there that it names?")
    if person not in named:
        raise ArgumentError(f"view: it has no column {person!r}, which says whose row it is")


def _with_files(given: TableInput) -> TableInput:
    """A table with its files as they are now."""
    found = sources.found(given.data)
    return replace(given, data=found, files=found) if isinstance(found, Files) else given


def _is_loaded(given: TableInput) -> bool:
    """True if all rows are read at once: they are wanted for a check, or are few."""
    return given.person is None or given.one_row or sources.is_short_csv(given.data)


def _with_rows(connection: Any, given: TableInput, short: bool, place: int) -> TableInput:
    """A table with its rows where they were read."""
    if given.person is None:
        rows = sources.loaded(connection, sources.view_name(place))
        return replace(given, data=rows, reading=sources.ReadOptions())
    if short and sources.is_short_csv(given.data):
        return replace(given, data=sources.loaded(connection, sources.view_name(place, sources.LOADED)))
    return given


def _kinds_of(plugin: Plugin, given: TableInput) -> Mapping[str, str]:
    if not plugin.takes(given.data):
        raise ArgumentError(f"tables: {plugin.data} and other tables cannot be in one session: make all of them one")
    if given.reading != sources.ReadOptions():
        raise ArgumentError(f"table=, view= and types= are not for {plugin.data}: make the view in {plugin.name}")
    return kinds_of(plugin, given.data)


def _person_kind(
    given: list[TableInput],
    kinds: Sequence[Mapping[str, str]],
    types: Sequence[Mapping[str, str]],
    cure: Callable[[str, str, Wanted], str] = cure_of,
) -> str:
    """Type by which all tables name people, BIGINT or VARCHAR; refuses keys of public tables that are not there."""
    people: dict[str, tuple[TableInput, str]] = {}
    for each, columns, own in zip(given, kinds, types, strict=True):
        if each.person is not None:
            csv = each.reading.view is None and sources.is_csv(each.data)
            kind = sources.person_type(columns, own, each.person, each.label("the data"), csv=csv, cure=cure)
            if kind == "BIGINT" and each.spelling != EXACT:
                raise ArgumentError(
                    f"spelling={each.spelling!r} is for ids of text: {each.person!r} holds whole numbers"
                )
            people[kind] = each, own[each.person]
            check_column_of(each.periods, columns, own)
        elif each.key not in columns:
            raise ArgumentError(f"public: {each.name!r} has no column {each.key!r}, its key")
        else:
            key_kind(each.key, columns)
    if len(people) > 1:
        (whole, sql_type), (text, _) = people["BIGINT"], people["VARCHAR"]
        raise ArgumentError(
            f"person: {whole.label()} names people by {whole.person!r}, {text.label()} by {text.person!r}: one holds "
            f"whole numbers and the other text; open {whole.label()} with {cure(str(whole.person), sql_type, 'text')}"
        )
    return next(iter(people))


def _check_spelling(given: list[TableInput], types: Sequence[Mapping[str, str]]) -> None:
    """Refuse UUIDs beside text: text may spell the same UUID in several ways, each with an account of its own."""
    people = [(each, own[each.person]) for each, own in zip(given, types, strict=True) if each.person is not None]
    texts = [(each, sql_type) for each, sql_type in people if sql_type != "UUID"]
    if 0 < len(texts) < len(people):
        text, _ = texts[0]
        cure = recast(str(text.person), "CAST({0} AS UUID)")
        raise ArgumentError(
            f"person: some tables name people by UUID and others by text: open {text.label()} with {cure}"
        )


def _check_rows(connection: Any, given: TableInput, kinds: Mapping[str, str], person_kind: str, place: int) -> None:
    """Refuse a second row where one was declared; for the data holder."""
    if given.person is not None and not given.one_row:
        return
    found_by = given.found_by(kinds, person_kind, duckdb_dialect(kinds))
    rows = f"SELECT 1 FROM {sources.view_name(place)} d WHERE {found_by} IS NOT NULL GROUP BY {found_by}"
    problem = f"{given.label()} cannot be read"
    try:
        twice = connection.execute(f"{rows} HAVING count(*) > 1 LIMIT 1").fetchall()
        if not twice:
            return
        problem = given.twice
    except duckdb().Error:  # its message may quote entries
        pass
    raise DataError(problem)
