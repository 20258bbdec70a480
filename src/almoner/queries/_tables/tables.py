"""Tables that a session is opened over: of people, and public ones, as the data holder describes them."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache, partial
from pathlib import Path
from typing import Any

from almoner._misfits import Misfit
from almoner._spelling import EXACT, spelling_sql
from almoner.errors import ArgumentError, DataError, DataReason, LedgerError
from almoner.ledger import Dataset, Domain, Ledger, Periods
from almoner.queries._language.keys import check_column, check_table
from almoner.queries._questions.kinds.several import Several
from almoner.queries._questions.kinds.sql import Sql
from almoner.queries._questions.question import Question
from almoner.queries._sql.columns import cast, key_kind, literal
from almoner.queries._sql.dialects import Dialect
from almoner.queries._sql.rows import Parent, PeopleTable, PublicTable, Schema, owned
from almoner.queries._tables import sources
from almoner.queries._tables.files import Files
from almoner.queries._tables.statements import domain_of, meant
from almoner.queries.engines import plugin_of


@dataclass(frozen=True, slots=True)
class TableInput:
    """A table of people, or a public one (no ``person``), as the data holder gave it; see ``Table``, ``Lookup``.

    ``person`` is the column that says whose row it is: by the row of the ``parent``, (table, key), whose key it holds.
    ``files`` are as they were when the session was opened; None for rows from elsewhere. ``misfits`` are the columns
    with a type, and how many entries cannot be read, private; None where they were not counted yet.
    """

    name: str | None
    data: Any = field(repr=False)
    reading: sources.ReadOptions = field(default_factory=sources.ReadOptions)
    person: str | None = None
    parent: tuple[str, str] | None = None
    one_row: bool = False
    key: str = ""
    on: str = ""
    columns: tuple[str, ...] | None = None
    domains: Mapping[str, Domain] = field(default_factory=dict)
    check_view: bool = True
    periods: Periods | None = None
    spelling: str = EXACT
    files: Files | None = None
    misfits: tuple[Misfit, ...] | None = field(default=None, repr=False)

    @property
    def read_each_time(self) -> Files | None:
        """The files that every question reads; None where the rows are in memory, as those of CSV files are."""
        return None if self.files is None or self.data is not self.files or self.files.csv else self.files

    def counting(self, misfits: Sequence[Misfit]) -> "TableInput":
        """The table, of which these columns were counted."""
        return replace(self, misfits=tuple(each._replace(table=self.name) for each in misfits))

    def label(self, alone: str = "data") -> str:
        """The table in a message; ``alone`` where it has no name."""
        return alone if self.name is None else f"table {self.name!r}"

    @property
    def whose(self) -> str | None:
        """Text of ``person=``, as the data holder may write it."""
        return self.person if self.parent is None else f"{self.person} -> {'.'.join(self.parent)}"

    def seen(self, kinds: Mapping[str, str]) -> Mapping[str, str]:
        """Of all columns with their kinds, those that questions may use."""
        for column in self.columns or ():
            if column not in kinds:
                raise ArgumentError(f"columns: {self.label()} has no column {column!r}")
        return kinds if self.columns is None else {column: kinds[column] for column in self.columns}

    def found_by(self, kinds: Mapping[str, str], person_kind: str, dialect: Dialect) -> str:
        """Whose row it is, or the key of a public one, as SQL over the alias d."""
        if self.person is not None:
            whole = person_kind == Periods.NUMBERS
            who = dialect.person["BIGINT" if whole else person_kind].format(dialect.columns[self.person])
            if self.spelling != EXACT:  # DuckDB's alone; a function's result has no collation of its own
                who = dialect.letters.format(spelling_sql(self.spelling, who))
            if self.periods is None:
                return who
            column, text = dialect.columns[self.periods.column], dialect.types["text"]
            unit = self.periods.sql(who, column, whole=whole, text=text)
            return unit if whole else dialect.letters.format(unit)
        return cast(self.key, kinds[self.key], dialect)


def changed(given: Sequence[TableInput]) -> dict[str, DataReason]:
    """The tables whose files are not what they were, each with the reason."""
    found: dict[str, DataReason] = {}
    for each in given:
        try:
            if each.files is not None:
                each.files.check()
        except DataError as error:
            found[each.name or "data"] = error.reason
    return found


def schema_of(
    given: list[TableInput],
    kinds: Sequence[Mapping[str, str]],
    rows: list[str],
    person_kind: str,
    dialects: list[Dialect],
) -> Schema:
    """The tables of a session, from the kinds of columns, the SQL of the rows and the SQL of the columns of each."""
    listed = {str(part[0].name or "data"): part for part in zip(given, kinds, rows, dialects, strict=True)}

    @cache
    def table(name: str) -> PeopleTable:
        each, columns, sql, dialect = listed[name]
        shown, person = each.seen(columns), str(each.person)
        own = PeopleTable(sql, shown, dialect.columns, "", each.one_row, None, sql, person, each.domains)
        if each.parent is None:
            return replace(own, who=each.found_by(columns, person_kind, dialect))
        above, key = each.parent
        found_by = cast(key, listed[above][1][key], listed[above][3])
        parent = Parent(person, above, key, found_by, cast(person, columns[person], dialect))
        joined, owner = owned(sql, columns, table(above), parent)
        return replace(own, rows=joined, who=dialect.person[person_kind].format(owner), parent=parent)

    ordered = {name: table(name) for name, (each, *_) in listed.items() if each.person is not None}
    public = {
        name: PublicTable(sql, columns, dialect.columns, each.key, each.on, each.found_by(columns, "", dialect))
        for name, (each, columns, sql, dialect) in listed.items()
        if each.person is None
    }
    return Schema(ordered, public, named=all(each.name is not None for each in given))


@dataclass(frozen=True, slots=True)
class Table(sources.ReadOptions):
    """A table of people's rows, for ``Session.open(Table(...))`` or ``Session.open(tables={name: Table(...)})``.

    Args:
        data: as of ``Session.open``. Private.
        one_row: declares that each person has at most one row, as in a table of customers: then questions about other
            tables may use its columns, as ``customers.age``. It is checked when the session is opened.
        columns: the columns that questions may use, public; None for all. The others are as if they were not there. As
            {column: ledger.Domain(...)} with keys or bounds for the questions that leave them out.
        table: which table or view of a DuckDB file or connection; that of a connection is read once.
        view: SQL over ``data`` that gives the rows that questions see: by the data holder, run as it is. What it does
            to a person's rows must depend on that person's rows alone.
        types: of the columns of CSV files, such as ``{"hours": "number"}``: text (where none is given), whole, number,
            "decimal comma" (1.234,5), "decimal point" (1,234.5), bool, date or time; also of columns of text elsewhere.
            Entries that are spelled otherwise are missing: ``misfits`` counts them, and a column of nothing else is
            refused. Without it types of CSV files are guessed from all entries, so that one person's can change them.
        zone: such as "Europe/Berlin", for times that have a zone: days and hours are those there, also in a view.
        check_view: whether to run the view over the rows of single people too, a few drawn at random, and refuse it
            where that gives them other rows; for at most a few seconds. ``session.view_check`` says what was compared.
            What no drawn person shows is not found.
    """

    data: Any = field(repr=False)
    one_row: bool = field(default=False, kw_only=True)
    columns: Sequence[str] | Mapping[str, Any] | None = field(default=None, kw_only=True)
    check_view: bool = field(default=True, kw_only=True)

    def given(self, name: str | None, person: str) -> TableInput:
        """The table as a session takes it, under its name; ``person`` as of ``Session.open``."""
        if isinstance(self.columns, str):
            raise ArgumentError(f"tables: {name!r}: columns={self.columns!r} must be a list of names")
        shown = None if self.columns is None else tuple(self.columns)
        column, arrow, end = (part.strip() for part in person.partition("->"))
        column = column if arrow else person
        parent, _, key = (part.strip() for part in end.partition("."))
        read = _read(self.data, self.reading, column)
        path = (parent, key or column) if arrow else None
        domains = self.columns if isinstance(self.columns, Mapping) else {}
        return TableInput(name, *read, column, path, bool(self.one_row), "", "", shown, domains, self.check_view)


@dataclass(frozen=True, slots=True)
class Lookup(sources.ReadOptions):
    """A public table with one row for each key, for ``Session.open(public={name: Lookup(...)})``.

    By giving it the data holder declares that it holds nobody's data: it does not depend on who is among the people. It
    is read once, when the session is opened; a key with two rows is refused.

    Args:
        data: as of ``Session.open``.
        key: the column that names its row: text, whole numbers, truth values or dates.
        on: the column of people's rows that holds the key; None where it is called like ``key``. It may also be a
            column of another table, as ``customers.zip`` or ``products.category``.
        table, view, types, zone: as of ``Table``.
    """

    data: Any = field(repr=False)
    key: str
    on: str | None = field(default=None, kw_only=True)


def given_tables(
    data: Any,
    person: str | Mapping[str, str],
    tables: Mapping[str, Any] | None,
    public: Mapping[str, Lookup] | None,
    dataset: str | None,
) -> list[TableInput]:
    """The tables that a session is opened over, those of people first; those in memory as Arrow tables."""
    if dataset is not None:  # the only table is called like its data set
        if tables is not None:
            raise ArgumentError(f"dataset={dataset!r}: of several tables, each is the data set of its own name")
        tables, data = (None if data is None else {dataset: data}), None
    if (data is None) == (tables is None):
        raise ArgumentError("give either data, or tables={name: data}")
    if tables is None:
        if not isinstance(person, str):
            cure = "; where each row is a person, add a column of ids that stay with the rows" if person is None else ""
            raise ArgumentError(f"person={person!r} must be a column's name{cure}")
        listed = [(data if isinstance(data, Table) else Table(data)).given(None, person)]
    else:
        listed = _named_tables(tables, person)
    for name, lookup in (public or {}).items():
        _check_name("public", name, listed)
        if not isinstance(lookup, Lookup):
            raise ArgumentError(f"public: {name!r} must be a Lookup(data, key=...)")
        check_column(lookup.key)
        read = _read(lookup.data, lookup.reading, lookup.key)
        listed.append(TableInput(name, *read, key=lookup.key, on=lookup.on or lookup.key))
    on = {str(each.name): each.on.partition(".")[0] for each in listed if each.person is None}
    if first := _leads_back(on):
        raise ArgumentError(f"public: the rows of {first!r} are found by columns (on=) that lead back to it")
    _check_paths(listed)
    return listed


def _leads_back(to: Mapping[str, str]) -> str | None:
    """The first name from which the steps never end."""
    for first in to:
        name = first
        for _ in to:
            name = to.get(name, "")
        if name in to:
            return first
    return None


def _check_paths(listed: list[TableInput]) -> None:
    """Refuse paths to the person that end at no table with a person's column."""
    people = [str(each.name) for each in listed if each.person is not None and each.name is not None]
    for each in listed:
        if each.parent is None:
            continue
        if each.parent[0] not in people:
            public = any(each.parent[0] == other.name for other in listed)
            what = "a public table, whose rows are nobody's" if public else "no table here"
            told = ", ".join(other for other in people if other != each.name) or "the others, in tables={name: data}"
            line = f"person={{{each.name or 'items'!r}: '{each.person} -> TABLE.KEY'}} with a table of people: {told}"
            raise ArgumentError(f"person: {each.whose!r} leads to {each.parent[0]!r}, {what}; write {line}")
    if first := _leads_back({str(each.name): each.parent[0] for each in listed if each.parent is not None}):
        line = "give one of these tables the column that names the person"
        raise ArgumentError(f"person: from the rows of {first!r} the path leads in a circle and to nobody: {line}")


def _named_tables(tables: Mapping[str, Any], person: str | Mapping[str, str]) -> list[TableInput]:
    if not isinstance(tables, Mapping) or not tables:
        raise ArgumentError("tables must be {name: data}, with one table or more")
    if not isinstance(person, str) and (not isinstance(person, Mapping) or set(person) != set(tables)):
        raise ArgumentError("person must be a column's name, or {table: column} with each of the tables")
    listed: list[TableInput] = []
    for name, each in tables.items():
        _check_name("tables", name, listed)
        table = each if isinstance(each, Table) else Table(each)
        listed.append(table.given(name, person if isinstance(person, str) else person[name]))
    return listed


def _check_name(argument: str, name: object, listed: list[TableInput]) -> None:
    """Refuse a name that could not stand in an expression, or is another table's."""
    check_table(**{argument: name})
    if any(str(name).casefold() == str(each.name or "data").casefold() for each in listed):
        raise ArgumentError(f"{argument}: two tables are called {name!r}")


def _read(data: Any, reading: sources.ReadOptions, person: str) -> tuple[Any, sources.ReadOptions]:
    """(The data, how they are read): paths, data of a plugin, or an Arrow table."""
    if isinstance(data, str | Path) or plugin_of(data) is not None:
        return data, reading
    if isinstance(data, list | tuple) and data and all(isinstance(each, str | Path) for each in data):
        return list(map(Path, data)), reading
    return sources.as_arrow(data, person=person, table=reading.table), replace(reading, table=None)


def check_shared(ledger: Ledger, own: Mapping[str, object]) -> None:
    """Refuse an open ledger that a session cannot share; ``own`` is what only one with a ledger of its own may say."""
    for name, value in own.items():
        if value is not None:
            raise ArgumentError(f"{name}= is for a ledger that the session opens; this one is open")
    if ledger.store.closed:
        raise LedgerError(f"{ledger.store.name} is closed; open it again", reason="closed")
    ledger.refuse_inside("a session can't be opened")


def fitting(book: Ledger, given: list[TableInput], schema: Schema, *, dataset: str | None) -> dict[str, Dataset]:
    """The data sets that the tables of people are, by name; none where the ledger knows none, and none is asked for."""
    known = book.datasets
    if not known and dataset is None:
        return {}
    listed = f"the data sets of this ledger are {', '.join(known)}" if known else "this ledger knows no data sets"
    people = [each for each in given if each.person is not None]
    if any(each.name is None for each in people):
        raise ArgumentError(f"dataset= is missing: {listed}")
    for each in people:
        if each.name not in known:
            raise ArgumentError(f"dataset={each.name!r} is not declared (Ledger.dataset): {listed}")
        _check_fits(known[each.name], each, schema)
    return {str(each.name): known[str(each.name)] for each in people}


def _check_fits(declared: Dataset, given: TableInput, schema: Schema) -> None:
    """Refuse a table with another person's column, or without a column, or with one of another kind."""
    name, person = declared.name, declared.person
    if given.whose != person:
        raise ArgumentError(f"person={given.whose!r}: data set {name!r} was declared with person={person!r}")
    table = schema.people[name]
    for column, domain in declared.columns.items():
        if column not in table.columns:
            raise ArgumentError(f"the data set {name!r} was declared with a column {column!r}: it is missing")
        kind = table.kinds.get(column)
        if kind is None:  # no question may use it
            continue
        if domain.keys is not None:
            key_kind(column, table.kinds)
        elif kind not in ("whole", "number"):
            raise ArgumentError(f"the data set {name!r} was declared with bounds of {column!r}, whose kind is {kind}")
        for key in domain.keys or ():
            literal(key, kind)


def filled(asked: Question, datasets: Mapping[str, Dataset], schema: Schema) -> Question:
    """The question with bounds and keys that it leaves out as its table, or data set, declares them; or refused."""
    if not asked.unfilled:
        return asked
    of_sets = {name: each.columns for name, each in datasets.items()}
    declared = {name: dict(of_sets.get(name, {})) for name in schema.people}
    for name, table in schema.people.items():
        declared[name] |= {column: each for column, each in table.domains.items() if each.keys or each.low is not None}
    if isinstance(asked, Sql):
        return filled(meant(asked, schema, declared), datasets, schema)
    declared = {} if asked.each or asked.each_person else declared  # columns are steps, whatever they are called
    domain = partial(domain_of, table=schema.name(asked.table), declared=declared)
    changes: dict[str, Any] = {}
    if isinstance(asked, Several):
        pairs = zip(asked.plain().items(), asked.members, strict=True)
        changes["aggregates"] = {name: {**own, **_bounds(each, domain)} for (name, own), (_, each) in pairs}
    else:
        changes |= _bounds(asked, domain)
    by = []
    for column, keys in asked.keys:
        found = keys or getattr(domain(column), "keys", None)
        if not found:
            line = f"by={{{column!r}: ['a', 'b']}}"
            raise ArgumentError(f"by: no data set declares keys of {column!r}; for example `{line}`")
        by.append((column, found))
    return replace(asked, **changes, by=tuple(by))


def _bounds(one: Question, domain: Callable[[str], Domain | None]) -> dict[str, Any]:
    """Bounds that a question, or one of its aggregates, leaves out, as they are declared."""
    names = one.left_out()
    if not names:
        return {}
    found = domain(str(getattr(one, "column", "")))
    if found is None or found.low is None or getattr(one, "per", None) == "total":
        listed, column = " and ".join(f"{name}=" for name in names), repr(getattr(one, "column", None))
        about = f"a person's total of {column}" if getattr(one, "per", None) == "total" else column
        line = "; for example `low=0, high=100`" if names == ("low", "high") else ""
        raise ArgumentError(f"{listed} must be given: no data set declares bounds of {about}{line}")
    return {name: getattr(found, name) for name in names}
