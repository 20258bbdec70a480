"""Checks of the tables of a session before its ledger is touched: types, people's names, declarations and views.

Entries that don't fit the type that was given for their column count as missing, which is PRIVATE. The data holder is
told when a session is opened, and nobody while questions are answered, because how many entries fit is a fact about
people. So a wrong type, or dates of another format, are noticed before the budget is spent on answers about nothing.
"""

import json
import logging
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from math import isclose, isnan
from pathlib import Path
from threading import Timer
from typing import Any

from almoner import _misfits
from almoner._misfits import Misfit
from almoner._spelling import EXACT
from almoner._workspace import duckdb, quoted
from almoner.errors import ArgumentError, DataError, Unsupported
from almoner.ledger import Terms
from almoner.queries._sql.columns import KEY_KINDS, Cure, as_dates, cure_of, key_kind, recast, shown_type
from almoner.queries._sql.dialects import duckdb_dialect
from almoner.queries._sql.rows import Schema
from almoner.queries._tables import sources
from almoner.queries._tables.engine import schema_elsewhere
from almoner.queries._tables.files import Files, files_of
from almoner.queries._tables.tables import TableInput, schema_of
from almoner.queries.engines import Plugin, kinds_of, plugin_of, told_nothing, types_of

LOG = logging.getLogger("almoner.queries")

_IMPURE = (
    "view: the rows that it gives for a person depend on other people's rows, as an average over all rows, a number of "
    "each row or a join with other people's rows would make them. Each person's rows must follow from that person's "
    "rows alone. (Table(data, view=..., check_view=False) leaves this check out)"
)


@dataclass(frozen=True, slots=True)
class ViewCheck:
    """Result of a check of a view. For the data holder.

    Fields:
        people: of how many people the rows were compared.
        skipped: why none, or no more, were; None if all of the sample were.
        undivided: other files and functions that the view reads, whose rows were not divided by person.
    """

    people: int
    skipped: str | None = None
    undivided: tuple[str, ...] = ()


_NOBODYS = {"data", "range()", "generate_series()", "unnest()"}


def _read_beside(connection: Any, view: str) -> set[str]:
    """Names, as the view writes them, of what it reads besides ``data``; of functions with brackets."""
    found, own = set[str](), set[str]()

    def walk(node: Any) -> None:
        if isinstance(node, dict):
            if node.get("type") == "BASE_TABLE":
                found.add(node["table_name"])
            elif node.get("type") == "TABLE_FUNCTION":
                found.add(f"{node['function']['function_name']}()")
            own.update(each["key"] for each in node.get("cte_map", {}).get("map", ()))
        for each in node.values() if isinstance(node, dict) else node if isinstance(node, list) else ():
            walk(each)

    ((parsed,),) = connection.execute("SELECT json_serialize_sql(?)", [view.strip().rstrip(";")]).fetchall()
    if json.loads(parsed)["error"]:
        return {"a statement that cannot be taken apart"}
    walk(json.loads(parsed))
    return found - own - _NOBODYS


class Division:
    """Rows of the tables of a session by person, in SQL over names of columns; for views."""

    def __init__(self, connection: Any, given: Sequence[TableInput], places: Sequence[int], schema: Schema) -> None:
        self._connection, self._given, self._places, self._schema = connection, given, places, schema
        self._owners: dict[str, str] = {}

    def who(self, each: TableInput) -> str:
        """Whose a row is, as text; NULL for nobody."""
        named = f'(CAST({quoted(str(each.person))} AS VARCHAR) COLLATE "binary")'  # two spellings are two people
        parent = self._schema.people[each.name or "data"].parent
        if parent is None:
            return named
        owners, above = f"view_owners_{len(self._owners):d}", self._schema.people[parent.table]
        if each.whose not in self._owners:
            key = f"CAST({parent.found_by} AS VARCHAR)"
            self._connection.execute(
                f"CREATE OR REPLACE TEMP TABLE {owners} AS SELECT {key} AS view_owner_key, "
                f"CAST({above.who} AS VARCHAR) AS view_owner FROM {above.rows} d WHERE {key} IS NOT NULL"
            )
            self._owners[str(each.whose)] = owners
        return f"(SELECT view_owner FROM {self._owners[str(each.whose)]} WHERE view_owner_key = {named})"

    def beside(self, view: str) -> tuple[str, tuple[str, ...]]:
        """(One person's rows of other tables that the view reads, to stand before it; what is not divided)."""
        divided, undivided = "", []
        for name in sorted(_read_beside(self._connection, view)):
            found = [
                (place, each)
                for place, each in zip(self._places, self._given, strict=True)
                if each.files is not None and each.files.listed == (Path(name).absolute(),)
            ]
            place, each = found[0] if found else (0, None)
            if each is None or (each.person is not None and (each.read_each_time is None or each.reading.types)):
                undivided.append(name)
            elif each.person is not None:
                rows = sources.view_name(place, "data" if each.reading.view is None else "source")
                divided += f", {quoted(name)} AS (SELECT * FROM {rows} WHERE {self.who(each)} = $person)"
        return divided, tuple(undivided)

    def check(self, which: int, *, sample: int, seconds: float, view: str | None = None) -> ViewCheck:
        """Check the view of a table, or another, for a ``sample`` of people, drawn at random, in so many seconds."""
        given, place, connection = self._given[which], self._places[which], self._connection
        whole, source = sources.view_name(place), sources.view_name(place, "source")
        sql = given.reading.view
        if view is not None:
            source = source if sql is not None else whole
            whole, sql, named = "view_given", view, None
            with suppress(duckdb().Error):  # its message may quote entries
                connection.execute(f"CREATE OR REPLACE TEMP VIEW {whole} AS {sources.over(source, view)}")
                named = [name for name, *_ in connection.execute(f"DESCRIBE {whole}").fetchall()]
            if named is None:
                raise DataError("view: cannot be read as a table: are the columns there that it names?")
            if given.person not in named:
                raise ArgumentError(f"view: it has no column {given.person!r}, which says whose row it is")
        try:
            return self.compared(str(sql), given, source, whole, sample, seconds)
        finally:
            connection.execute("DROP VIEW IF EXISTS view_given")

    def compared(self, view: str, given: TableInput, source: str, whole: str, sample: int, seconds: float) -> ViewCheck:
        """Run the view ``whole`` over the rows of one person at a time, and compare; a DataError says no entry."""
        library, run = duckdb(), self._connection.execute
        person, undivided = str(given.person), tuple[str, ...]()
        timer = Timer(seconds, self._connection.interrupt)
        compared = 0
        timer.start()
        try:
            beside, undivided = self.beside(view)
            if person not in [name for name, *_ in run(f"DESCRIBE {source}").fetchall()]:
                why = f"column {person!r} is made by the view: whose the rows were is not known"
                return ViewCheck(0, why, undivided)
            who = self.who(given)
            drawn = f"SELECT DISTINCT {who} AS person FROM {source} WHERE {who} IS NOT NULL"
            run(f"CREATE OR REPLACE TEMP TABLE view_people AS FROM ({drawn}) USING SAMPLE {sample:d} ROWS")
            theirs = f"SELECT * FROM {whole} WHERE {who} IN (SELECT person FROM view_people)"
            run(f"CREATE OR REPLACE TEMP TABLE view_rows AS {theirs}")
            alone = f"{sources.over(source, view, f'WHERE {who} = $person', beside)} WHERE {who} = $person"
            for (name,) in run("FROM view_people").fetchall():
                both = (alone, f"SELECT * FROM view_rows WHERE {who} = $person")
                if not _same(*(run(sql, {"person": name}).fetchall() for sql in both)):
                    if not _same(*(run(sql).fetchall() for sql in ("FROM view_rows", theirs))):
                        return ViewCheck(compared, "the view gives other rows each time", undivided)
                    raise DataError(_IMPURE)
                compared += 1
        except library.InterruptException:
            return ViewCheck(compared, f"it took more than {seconds:g} seconds", undivided)
        except library.Error:  # its message may quote entries
            return ViewCheck(compared, "the view fails on an entry", undivided)
        finally:
            timer.cancel()
            timer.join()
            for name in ("view_people", "view_rows", *self._owners.values()):
                run(f"DROP TABLE IF EXISTS {name}")
        return ViewCheck(compared, None, undivided)


def _same(rows: Sequence[tuple[Any, ...]], others: Sequence[tuple[Any, ...]]) -> bool:
    """True for equal rows, in any order; numbers to nine digits, since sums depend on their order."""
    if len(rows) != len(others):
        return False
    pairs = zip(sorted(map(_parts, rows)), sorted(map(_parts, others)), strict=True)
    return all(
        one[0] == other[0]
        and all(isclose(a, b, rel_tol=1e-9, abs_tol=1e-12) for a, b in zip(one[1], other[1], strict=True))
        for one, other in pairs
    )


def _parts(row: tuple[Any, ...]) -> tuple[tuple[str, ...], tuple[float, ...]]:
    """(All entries but numbers, as text; the numbers, of which NaN has a place of its own)."""
    exact = [repr(entry) for entry in row if not isinstance(entry, float) or isnan(entry)]
    return tuple(exact), tuple(entry for entry in row if isinstance(entry, float) and not isnan(entry))


_TYPES = {"number", "decimal comma", "decimal point", "whole"}
_FORMATS = {
    "date": ("CAST(try_strptime({0}, '%d/%m/%Y') AS DATE)", "31/12/2026"),
    "time": ("try_strptime({0}, '%d/%m/%Y %H:%M')", "31/12/2026 14:30"),
    "bool": ("CASE {0} WHEN 'ja' THEN true WHEN 'nein' THEN false END", "ja and nein"),
}


def refuse(found: list[Misfit]) -> None:
    """Refuse columns of which no entry can be read, with what to write. For the data holder, who opens the session."""
    _misfits.refuse(found, _cure(_misfits.unread(found)))


def _cure(unread: list[Misfit]) -> str:
    """Line to write: by the types alone, whatever the entries are."""
    cures = []
    numbers = [each for each in unread if each.kind in _TYPES]
    if numbers:
        types = ", ".join(f"'{each.column}': 'decimal comma'" for each in numbers)
        toml = ", ".join(f"'{each.column}' = 'decimal comma'" for each in numbers)
        cures.append(
            f"Table(data, types={{{types}}}) (in TOML: types = {{ {toml} }}) reads 1.234,5 and €12,50; 'decimal point' "
            "in its place reads 1,234.5 and €12.50; 'text' takes entries as they are, as ids with letters"
        )
    for kind in dict.fromkeys(each.kind for each in unread if each.kind in _FORMATS):
        columns = [each.column for each in unread if each.kind == kind]
        listed = ", ".join(f"{_FORMATS[kind][0].format(quoted(name))} AS {quoted(name)}" for name in columns)
        view = f"SELECT * REPLACE ({listed}) FROM data"
        cures.append(
            f"without a type for {', '.join(map(repr, columns))}, Table(data, view={view!r}) (in TOML: "
            f"view = '''{view}''') reads {_FORMATS[kind][1]}"
        )
    paths = [f"'{each.column} {each.kind}'" for each in unread if each.kind.startswith("->")]
    cures += [f"no row with a person is found there: are both columns of person={path} the same ids?" for path in paths]
    return "; ".join(cures)


def on_terms(given: list[TableInput], terms: Terms) -> list[TableInput]:
    """The tables with periods, of the only one of people, and the spelling, which is not for a plugin's rows."""
    if terms.periods is not None and sum(each.person is not None for each in given) > 1:
        raise Unsupported("periods: several tables of people can't be joined by person and period: make one of them")
    if terms.spelling not in (None, EXACT):
        for plugin in filter(None, (plugin_of(each.data) for each in given)):
            raise Unsupported(f"spelling={terms.spelling!r}: not for {plugin.data}: spell the ids alike in them")
    spelling = terms.spelling or EXACT
    return [each if each.person is None else replace(each, periods=terms.periods, spelling=spelling) for each in given]


_Columns = Sequence[Mapping[str, str]]
SAMPLE = 20  # a view is checked for so many people
CHECK_SECONDS = 5.0


def prepared(given: list[TableInput]) -> tuple[str, list[TableInput], dict[str | None, ViewCheck]]:
    """(How the data name people, the tables, what checks of views came to).

    Rows of short CSV files and of public tables are read once, here; what does not fit what was declared is refused.
    """
    for plugin in filter(None, (plugin_of(each.data) for each in given)):
        return _prepared_elsewhere(plugin, given), given, {}
    found = [(each, files_of(each.data)) for each in given]  # files as they are now
    given = [replace(each, data=data, files=data) if isinstance(data, Files) else each for each, data in found]
    with duckdb().connect() as connection:
        # all rows are read at once where they are wanted for a check, or are few
        above = {each.parent[0] for each in given if each.parent is not None}
        checked = [each.person is None or each.one_row or each.parent or each.name in above for each in given]
        both = zip(given, checked, strict=True)
        short = [bool(wanted) or sources.is_csv(each.data, below=sources.SHORT) for each, wanted in both]
        kinds = []
        for place, (each, load) in enumerate(zip(given, short, strict=True)):
            misfits, read = list[Misfit](), (each.data, each.reading)
            person = each.person or each.key
            kinds.append(sources.attach(connection, *read, person=person, load=load, place=place, misfits=misfits))
            given[place] = each.counting(misfits) if load or not sources.is_csv(each.data) else each
        refuse([misfit for each in given for misfit in each.misfits or ()])
        types = [sources.types_of(connection, place) for place in range(len(given))]
        person = _person_kind(given, kinds, types)
        _check_keys(given, kinds, types)
        _check_spelling(given, types)
        schema = _check_rows(connection, given, kinds, person)
        refuse([misfit for each in given for misfit in each.misfits or ()])
        views = _views_checked(connection, given, schema)
        for place, (each, load) in enumerate(zip(given, short, strict=True)):
            public = each.person is None
            if public or (load and sources.is_csv(each.data, below=sources.SHORT)):
                name = sources.view_name(place, "data" if public else sources.LOADED)
                rows = sources.Loaded(connection.sql(f"SELECT * FROM {name}").to_arrow_table())
                given[place] = replace(each, data=rows, reading=sources.ReadOptions() if public else each.reading)
    return person, given, views


def _prepared_elsewhere(plugin: Plugin, given: list[TableInput]) -> str:
    for each in given:
        if not plugin.takes(each.data):
            both = f"{plugin.data} and other tables"
            raise ArgumentError(f"tables: {both} cannot be in one session: make all of them one")
        if each.reading != sources.ReadOptions():
            rule = f"make the view, or local times, in {plugin.name}"
            raise ArgumentError(f"table=, view=, types= and zone= are not for {plugin.data}: {rule}")
        if each.parent is not None and each.one_row:
            raise Unsupported(f"one_row: not of {plugin.data} whose rows have an owner by {each.whose!r}")
    kinds = [kinds_of(plugin, each.data) for each in given]
    types = [types_of(plugin, each.data) for each in given]
    kind = _person_kind(given, kinds, types, plugin.cure)
    _check_keys(given, kinds, types, plugin.cure)
    schema, _, data = schema_elsewhere(plugin, given, kind)
    _check_twice(given, schema, lambda sql, _: told_nothing(plugin, lambda: plugin.run(sql, (), data)).to_pylist())
    return kind


def _views_checked(connection: Any, given: list[TableInput], schema: Schema) -> dict[str | None, ViewCheck]:
    checks = {}
    for place, each in enumerate(given):
        if each.check_view and each.reading.view is not None and each.person is not None:
            division = Division(connection, given, range(len(given)), schema)
            checks[each.name] = division.check(place, sample=SAMPLE, seconds=CHECK_SECONDS)
            if undivided := checks[each.name].undivided:
                what = f"other rows that the view of {each.label('the data')} reads were not divided by person"
                LOG.warning(f"{what}, and must be nobody's or follow from each person's rows: {', '.join(undivided)}")
    return checks


def _person_kind(given: list[TableInput], kinds: _Columns, types: _Columns, cure: Cure = cure_of) -> str:
    """Type by which all tables name people, BIGINT or VARCHAR; refuses keys of public tables that are not there."""
    people: dict[str, tuple[TableInput, str]] = {}
    for each, columns, own in zip(given, kinds, types, strict=True):
        if each.parent is not None:
            continue
        if each.person is not None:
            csv = sources.is_csv(each.data) and (each.reading.view is None or each.person not in columns)
            kind = sources.person_type(columns, own, each.person, each.label("the data"), csv=csv, cure=cure)
            if kind == "BIGINT" and each.spelling != EXACT:
                raise ArgumentError(f"spelling={each.spelling!r} is for text: {each.person!r} holds whole numbers")
            people[kind] = each, own[each.person]
            column = "" if each.periods is None else each.periods.column
            if each.periods is not None and column not in columns:
                raise ArgumentError(f"periods: {column!r} is no column of the data")
            if each.periods is not None and columns[column] not in ("date", "time"):
                raise ArgumentError(
                    f"periods: column {column!r} is of type {shown_type(own[column])} and must hold dates or times: "
                    f"open the data with {as_dates(column, own[column])}"
                )
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


def _check_spelling(given: list[TableInput], types: _Columns) -> None:
    """Refuse UUIDs beside text: text may spell the same UUID in several ways, each with an account of its own."""
    listed = zip(given, types, strict=True)
    people = [(each, own[each.person]) for each, own in listed if each.person is not None and each.parent is None]
    texts = [(each, sql_type) for each, sql_type in people if sql_type != "UUID"]
    if 0 < len(texts) < len(people):
        text, _ = texts[0]
        cure = f"open {text.label()} with {recast(str(text.person), 'CAST({0} AS UUID)')}"
        raise ArgumentError(f"person: some tables name people by UUID and others by text: {cure}")


def _check_keys(given: list[TableInput], kinds: _Columns, types: _Columns, cure: Cure = cure_of) -> None:
    """Refuse paths to the person by columns that are not there, or whose entries cannot be compared as keys."""
    places = {each.name: place for place, each in enumerate(given)}
    for place, each in enumerate(given):
        if each.parent is None:
            continue
        above, ends = places[each.parent[0]], list[tuple[TableInput, str, str, str]]()
        for end, at, column in ((each, place, str(each.person)), (given[above], above, each.parent[1])):
            if column not in kinds[at]:
                listed = ", ".join(kinds[at])
                raise ArgumentError(f"person: {each.whose!r}: {end.label()} has no column {column!r}; it has {listed}")
            ends.append((end, column, kinds[at][column], types[at][column]))
        ends = sorted(ends, key=lambda end: (end[2] in KEY_KINDS, end[2] == "text", end[3] == "UUID"))
        (end, column, kind, sql_type), (_, _, other, other_type) = ends
        if kind == other and kind in KEY_KINDS and (sql_type == "UUID") == (other_type == "UUID"):
            continue
        to = "UUID" if (kind, other_type) == ("text", "UUID") else KEY_KINDS.get(other, "VARCHAR")
        line = recast(column, f"CAST({{0}} AS {to})") if cure is cure_of else cure(column, sql_type, "text")
        told = " and ".join(f"{name!r} of {of.label()} is of type {shown_type(kind)}" for of, name, _, kind in ends)
        wanted = "both must hold texts, UUIDs, whole numbers, truth values or dates"
        raise ArgumentError(f"person: {each.whose!r}: {told}, and {wanted}: open {end.label()} with {line}")


def _check_rows(connection: Any, given: list[TableInput], kinds: _Columns, person_kind: str) -> Schema:
    """Refuse a second row where one was declared, and count rows whose path ends at nobody; for the data holder."""
    views = [sources.view_name(place) for place in range(len(given))]
    schema = schema_of(given, kinds, views, person_kind, [duckdb_dialect(columns) for columns in kinds])

    def run(sql: str, each: TableInput) -> list[Any]:
        with suppress(duckdb().Error):  # its message may quote entries
            return list(connection.execute(sql).fetchall())
        raise DataError(f"{each.label()} cannot be read")

    _check_twice(given, schema, run)
    for place, each in enumerate(given):
        table = schema.people.get(each.name or "data")
        if table is not None and table.parent is not None:
            who, key = table.who, table.parent.beside
            counts = run(f"SELECT count({key}), count({key}) FILTER (WHERE {who} IS NULL) FROM {table.rows} d", each)
            orphans = Misfit(each.name, str(each.person), f"-> {'.'.join(each.parent or ())}", *counts[0])
            given[place] = replace(each, misfits=(*(each.misfits or ()), orphans))
    return schema


def _check_twice(given: list[TableInput], schema: Schema, run: Callable[[str, TableInput], list[Any]]) -> None:
    """Refuse a second row where one was declared; ``run`` gives the rows of SQL about a table."""
    for each in given:
        name = each.name or "data"
        public, table, alone = schema.public.get(name), schema.people.get(name), list[tuple[str, str, str]]()
        if public is not None:
            why = f"public: {name!r} has several rows with the same {each.key!r}: each key must have one"
            alone.append((public.rows, public.found_by, why))
        if table is not None and (parent := table.parent) is not None:
            rule = f"each key must have one, which says whose the rows of {name!r} are: name another column"
            why = f"person: {each.whose!r}: {parent.table!r} has several rows with the same {parent.key!r}, and {rule}"
            alone.append((schema.people[parent.table].plain, parent.found_by, why))
        if table is not None and each.one_row:
            why = f"{each.name!r} was declared to have one row for each person (one_row=True), and has several"
            alone.append((table.rows, table.who, f"tables: {why}"))
        for rows, by, why in alone:
            sql = f"SELECT 1 AS twice FROM {rows} d WHERE {by} IS NOT NULL GROUP BY {by} HAVING count(*) > 1 LIMIT 1"
            if run(sql, each):
                raise DataError(why)
