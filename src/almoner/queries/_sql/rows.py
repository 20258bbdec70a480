"""The rows that a question is about, as SQL: a table of people, what is joined to it, and a column for each expression.

``customers.age`` is column ``age`` of the table ``customers``. Rows of another table of people are found by the person,
who must have at most one of them; rows of a public table by their key. Each row of the first table stays one row of the
same person: where nothing is found, or several rows of the person, the columns are missing.

What is made of a table keeps whose each row is, and a person's rows of it follow from that person's rows alone. So for
adding or removing a person with all rows, they are that person's rows and nobody else's: no step here costs privacy.

Wherever a question names a column, an expression may stand. A name that is a column of the data is that column; a name
with a dot may be a column of another table.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Any, NamedTuple

from almoner.errors import ArgumentError
from almoner.queries._language import expressions as tree
from almoner.queries._language.expressions import parse, parse_step, parse_value, parts
from almoner.queries._language.keys import Range
from almoner.queries._sql.columns import FilterCompiler, around, cast, check_usable, joined, kind_of, literal
from almoner.queries._sql.dialects import Dialect, Sql, filled


class Parent(NamedTuple):
    """Where a row's owner is found: in the row of ``table`` whose ``key`` equals the row's own ``column``."""

    column: str
    table: str
    key: str
    found_by: str  # the key, as SQL over the alias d of the parent's rows; NULL for none
    beside: str  # the column, as SQL over the alias d of the own rows; NULL for none


@dataclass(frozen=True, slots=True)
class PeopleTable:
    """A table of people's rows: columns and ``who``, which is NULL for nobody, are SQL over the alias d.

    With a ``parent``, rows belong to whoever the parent's row belongs to; ``plain`` are the rows without their owners.
    """

    rows: str
    kinds: Mapping[str, str]
    columns: Mapping[str, str]
    who: str
    one_row: bool = False
    parent: Parent | None = None
    plain: str = ""
    person: str = ""  # the column that says whose row it is
    domains: Mapping[str, Any] = field(default_factory=dict)
    """Keys or bounds of columns, as the data holder declares them."""


@dataclass(frozen=True, slots=True)
class PublicTable:
    """A table of nobody's data: ``key`` names its row, ``on`` is the column of people's rows that holds the key."""

    rows: str
    kinds: Mapping[str, str]
    columns: Mapping[str, str]
    key: str
    on: str
    found_by: str  # the key, as SQL over the alias d


@dataclass(frozen=True, slots=True)
class Schema:
    """The tables of a session, where given by name: of people, of which the first is the default; and public ones."""

    people: Mapping[str, PeopleTable]
    public: Mapping[str, PublicTable]
    named: bool

    def path(self, table: str) -> list[str]:
        """The tables by which it is known whose a row is, from this one up to the one with the person's column."""
        path = [table]
        while (parent := self.people[path[-1]].parent) is not None:
            path.append(parent.table)
        return path

    def name(self, table: str | None) -> str:
        """The table that a question is about; refuses one that is not there."""
        first = next(iter(self.people))
        if table is None or (table in self.people and self.named):
            return first if table is None else table
        if not self.named:
            raise ArgumentError(f"table={table!r}: this session has one table, without a name: leave table= out")
        if table in self.public:
            raise ArgumentError(f"table={table!r} is a public table: questions are about the tables of people")
        raise ArgumentError(f"table={table!r} is not there: there are {', '.join(self.people)}")


_KEY = "joined_key"


@dataclass(frozen=True, slots=True)
class _Join:
    """A table to join by a key over d of its rows, equal to one over d of the rows so far; columns asked for."""

    table: PeopleTable | PublicTable
    found_by: str
    beside: str
    columns: dict[str, str] = field(default_factory=dict)
    parameters: tuple[object, ...] = ()

    def onto(self, rows: str) -> str:
        """The rows with the columns that were asked for.

        Guarantee: there is one row for each of ``rows``, with its columns; the columns that are added are a function of
            the rows of the same person in the other table, or of a public table alone.
        Source: docs/queries/tables.md.
        """
        listed = ", ".join(f"j.{name} AS {name}" for name in self.columns)
        entry, group = "{0}", ""
        if isinstance(self.table, PeopleTable):
            entry, group = "any_value({0})", f" GROUP BY {self.found_by} HAVING count(*) = 1"
        inner = ", ".join(f"{entry.format(column)} AS {name}" for name, column in self.columns.items())
        found = (
            f"SELECT {self.found_by} AS {_KEY}, {inner} FROM {self.table.rows} d "
            f"WHERE {self.found_by} IS NOT NULL{group}"
        )
        return f"(SELECT d.*, {listed} FROM {rows} d LEFT JOIN ({found}) j ON j.{_KEY} = {self.beside})"


def owned(rows: str, names: Iterable[str], above: PeopleTable, parent: Parent) -> tuple[str, str]:
    """(The rows with a column for their owner, who that is as SQL over the alias d).

    Guarantee: a row belongs to at most one person, the one of the only row of the table above that has its key; where
        keys there are unique, removing a person with all rows in every table changes nobody else's rows.
    Source: docs/proofs/paths.md, Lemma 1.
    """
    taken, owner = {name.casefold() for name in names}, "row_owner"
    while owner in taken:
        owner += "_"
    return _Join(above, parent.found_by, parent.beside, {owner: above.who}).onto(rows), f"d.{owner}"


class _Kinds(Mapping[str, str]):
    """The kinds of columns by name, some of which are made when they are first looked up, under names of ours."""

    def __init__(self, kinds: dict[str, str], taken: Iterable[str]) -> None:
        self._kinds, self._taken = kinds, {column.casefold() for column in taken}

    def __iter__(self) -> Iterator[str]:
        return iter(self._kinds)

    def __len__(self) -> int:
        return len(self._kinds)

    def _free(self, name: str) -> str:
        name = f"{name}{len(self._taken)}"
        while name in self._taken:
            name += "_"
        self._taken.add(name)
        return name


class Joined(_Kinds):
    """The kinds of the columns of a table of people, and of all that is joined to it when it is looked up."""

    def __init__(self, schema: Schema, name: str, dialect: Dialect) -> None:
        self.name = name
        self.schema = schema
        self._dialect = dialect
        self._table = schema.people[name]
        self.who, self.kinds = self._table.who, self
        own = {name: kind for name, kind in self._table.kinds.items() if not self._has(*self._parts(name))}
        super().__init__(own, self._table.columns)
        self._joins: dict[str, _Join] = {}
        self.columns = dict(self._table.columns)
        """Each column looked up so far, and each of the table's own, as SQL over the alias d."""

    @property
    def rows(self) -> Sql:
        """The rows, with all columns looked up so far; without an alias."""
        rows = self._table.rows
        for join in self._joins.values():
            rows = join.onto(rows)
        return Sql(rows, tuple(each for join in self._joins.values() for each in join.parameters))

    def add(self, own: "People") -> None:
        """Add the columns of one row for each person to each row of the person."""
        table = PeopleTable(own.rows.text, own.kinds, own.columns, own.who, one_row=True)
        join = self._joins[""] = _Join(table, own.who, self.who, parameters=own.rows.parameters)
        for name, kind in own.kinds.items():
            if name in self:
                raise ArgumentError(f"beside: {name!r} is a column already: give it another name")
            alias = self._free("joined")
            join.columns[alias] = own.columns[name]
            self._kinds[name], self.columns[name] = kind, f"d.{alias}"

    def __getitem__(self, name: str) -> str:
        """The kind of a column; ArgumentError where another table's cannot be joined."""
        if name not in self._kinds:
            table, column = self._parts(name)
            if not table:
                raise KeyError(name)
            self._kinds[name] = self._look_up(name, table, column)
        return self._kinds[name]

    def __contains__(self, name: object) -> bool:
        return isinstance(name, str) and (name in self._kinds or self._has(*self._parts(name)))

    def other_table(self, name: str) -> str | None:
        """The table of people, if another one, that a name stands for, or a column of it that cannot be joined."""
        table, dot, _ = name.partition(".")
        found = self.schema.people.get(table) if self.schema.named and name not in self._table.kinds else None
        return None if found is None or table == self.name or (dot and found.one_row) else table

    def _parts(self, name: str) -> tuple[str, str]:
        """(Table, column) of table.column; no table where there is only one, which has no name."""
        table, dot, column = name.partition(".")
        return (table, column) if dot and (self.schema.named or self.schema.public) else ("", name)

    def _has(self, table: str, column: str) -> bool:
        return column in self._columns_of(table)

    def _columns_of(self, table: str) -> Mapping[str, str]:
        known = (self.schema.people.get(table) if self.schema.named else None) or self.schema.public.get(table)
        return {} if known is None else known.kinds

    def _look_up(self, name: str, table: str, column: str) -> str:
        people, public = self.schema.people if self.schema.named else {}, self.schema.public
        if table not in people and table not in public:
            raise ArgumentError(
                f"column {name!r}: no table {table!r} is here; there are {', '.join([*people, *public])}"
            )
        kinds = self._columns_of(table)
        if column not in kinds:
            raise ArgumentError(f"column {name!r}: table {table!r} has no column {column!r}")
        check_usable(name, kinds[column], column)
        if name in self._table.kinds:
            raise ArgumentError(
                f"column {name!r} is a column of {self.name!r}, and column {column!r} of {table!r}: the first is "
                f"called {self.name + '.' + name!r}"
            )
        if table == self.name:
            self.columns[name] = self.columns[column]
            return kinds[column]
        if table not in self._joins:
            self._joins[table] = self._join(name, table)  # after those that it is found by
        join = self._joins[table]
        alias = self._free("joined")
        join.columns[alias] = join.table.columns[column]
        self.columns[name] = f"d.{alias}"
        return kinds[column]

    def step_to(self, table: str) -> tuple[str, Parent | None]:
        """(Whose rows lead to a table, on the path from a row to its person; by what): None where it is not there."""
        path = self.schema.path(self.name)
        child = path[path.index(table) - 1] if table in path[1:] else self.name
        return child, self.schema.people[child].parent if table in path[1:] else None

    def _join(self, name: str, table: str) -> _Join:
        if table not in self.schema.people:
            return self._by_key(self.schema.public[table])
        above, (child, parent) = self.schema.people[table], self.step_to(table)
        if parent is None:
            return self._by_person(name, above)
        beside = parent.beside
        if child != self.name:
            if child not in self._joins:
                self._joins[child] = self._join(name, child)
            alias = self._free("joined")
            self._joins[child].columns[alias], beside = beside, f"d.{alias}"
        return _Join(replace(above, rows=above.plain), parent.found_by, beside)

    def _by_person(self, name: str, table: PeopleTable) -> _Join:
        if not table.one_row:
            raise ArgumentError(
                f"column {name!r}: a person may have several rows there: take one value of each person, as in "
                f"each_person={{'total': 'sum({name})'}} (or the data holder declares Table(..., one_row=True))"
            )
        return _Join(table, table.who, self.who)

    def _by_key(self, table: PublicTable) -> _Join:
        if table.on not in self:
            raise ArgumentError(f"column {table.on!r}, by which public rows are found, is not in table {self.name!r}")
        kind, wanted = kind_of(table.on, self), table.kinds[table.key]
        if kind != wanted:
            raise ArgumentError(f"column {table.on!r} is of kind {kind}, and the key {table.key!r} of kind {wanted}")
        return _Join(table, table.found_by, cast(table.on, kind, replace(self._dialect, columns=self.columns)))


_COUNTED = ("whole", "text", "bool", "date", "time")
_NUMBERS = ("count", "distinct")  # aggregates that are 0 for a person without rows
_GIVES = {
    **dict.fromkeys(("any", "all"), ("bool", ("bool",))), "count": ("whole", ("bool",)),
    "distinct": ("whole", _COUNTED), "sum": ("number", ("whole", "number")),
}  # fmt: skip
"""Aggregates with a kind of their own: that kind, and the kinds that they take."""


@dataclass(frozen=True, slots=True)
class People:
    """Rows of people, in brackets and without an alias: it has what a ``Joined`` has; nothing can be joined to it."""

    rows: Sql
    who: str
    kinds: Mapping[str, str]
    columns: Mapping[str, str]


def one_row_each(people: People | Joined, steps: tree.Steps, dialect: Dialect, key: str | None = None) -> People:
    """One row for each person with rows, with a column for each step; with a ``key``, for each of a person's keys.

    A step may be about the person's rows of another table, where there is no key. Where the person has none there, what
    it gives is missing; a number of rows is 0. Rows whose key is missing are in no row.

    Guarantee: the row of each person is a function of that person's rows, whatever other people's are.
    Source: theory 2.6 and docs/proofs/noise.md, Theorem 3: contributions may be any function of a person's rows.
    """
    parsed = [(name, *parse_step(text)) for name, text in steps]
    tables = [_table_of(people, arguments) if key is None else None for _, _, arguments in parsed]
    others = {name: Joined(people.schema, name, dialect) for name in tables if name and isinstance(people, Joined)}
    kinds, columns, beside, value_of_key = {}, {}, [], None
    if key is not None:
        compiler = FilterCompiler(people.kinds, replace(dialect, columns=people.columns), "each")
        kinds[key], value_of_key = compiler.value(
            tree.Column(key) if key in people.kinds else parse_value(key, name="each")
        )
        columns[key] = "d.each_key"
        if kinds[key] not in _COUNTED:
            raise ArgumentError(f"each: {key!r} is a {kinds[key]}: rows are divided by {', '.join(_COUNTED)}")
    listed: dict[str | None, list[tuple[str, Sql]]] = {table: [] for table in (None, *tables)}
    for place, ((name, aggregate, arguments), table) in enumerate(zip(parsed, tables, strict=True)):
        rows, step = others.get(table or "", people), f"step{place:d}"
        compiler = FilterCompiler(rows.kinds, replace(dialect, columns=rows.columns), "each_person")
        if aggregate == "count" and isinstance(rows, Joined) and arguments == (tree.Column(rows.name),):
            arguments = ()  # count(orders): all rows
        kinds[name], value = _aggregate(aggregate, arguments, compiler)
        listed[table].append((step, value))
        columns[name] = f"d.{step}"
        if table is not None:
            taken = f"other{tables.index(table):d}.{step}"
            beside.append(f"coalesce({taken}, 0) AS {step}" if aggregate in _NUMBERS else f"{taken} AS {step}")
    sql = _grouped(people, listed.pop(None), value_of_key)
    if beside:
        joins = {f"other{tables.index(name):d}": _grouped(others[str(name)], each) for name, each in listed.items()}
        text = " ".join(f"LEFT JOIN {each.text} {alias} ON {alias}.person = d.person" for alias, each in joins.items())
        parameters = (*sql.parameters, *(each for join in joins.values() for each in join.parameters))
        sql = Sql(f"(SELECT d.*, {', '.join(beside)} FROM {sql.text} d {text})", parameters)
    return People(sql, "d.person", kinds, columns)


def _grouped(people: People | Joined, listed: list[tuple[str, Sql]], key: Sql | None = None) -> Sql:
    """A row for each person, or for each of a person's keys, with these aggregates under their names."""
    values = "".join(f", {value.text} AS {step}" for step, value in listed)
    parameters = [each for _, value in listed for each in value.parameters]
    rows, by, there = people.rows, people.who, f"{people.who} IS NOT NULL"
    if key is not None:
        name = "each_key"
        while name in {column.casefold() for column in people.columns}:
            name += "_"
        rows = Sql(f"(SELECT d.*, {key.text} AS {name} FROM {rows.text} d)", (*key.parameters, *rows.parameters))
        values, by, there = f", d.{name} AS each_key{values}", f"{by}, d.{name}", f"{there} AND d.{name} IS NOT NULL"
    sql = f"(SELECT {people.who} AS person{values} FROM {rows.text} d WHERE {there} GROUP BY {by})"
    return Sql(sql, (*parameters, *rows.parameters))


def _table_of(people: People | Joined, arguments: tuple[tree.Expression, ...]) -> str | None:
    """The other table of people that a step is about; None for that of the question."""
    if not isinstance(people, Joined) or not people.schema.named:
        return None
    named = [each for argument in arguments for each in _columns(argument)]
    tables = {table for table in map(people.other_table, named) if table is not None}
    own = [name for name in named if name not in tables and name.partition(".")[0] in (name, people.name)]
    if (own or len(tables) > 1) and all(people.step_to(table)[1] for table in tables):
        return None  # columns of tables on the path stand in the question's own rows
    if len(tables) > 1:
        both = " and ".join(sorted(tables))
        raise ArgumentError(f"each_person: a step is about the rows of one table, not of {both}")
    for name in named if tables else ():
        if "." not in name and name not in tables:
            (table,) = tables
            raise ArgumentError(f"each_person: column {name!r} stands in a step about {table!r}: name its table")
    return next(iter(tables), None)


def _columns(node: tree.Expression) -> list[str]:
    return [node.name] if isinstance(node, tree.Column) else [name for part in parts(node) for name in _columns(part)]


def _aggregate(name: str, arguments: tuple[tree.Expression, ...], compiler: FilterCompiler) -> tuple[str, Sql]:
    """The kind of an aggregate, and its SQL: the same in whatever order the rows come."""
    if name == "count" and not arguments:
        return "whole", Sql("CAST(count(*) AS BIGINT)")
    if any(isinstance(each, tree.Literal) for each in arguments):
        raise ArgumentError(f"each_person: {name}() takes columns or expressions, not a literal alone")
    functions, values = compiler.dialect.functions, [compiler.value(each) for each in arguments]
    own, pieces = values[0][0], [value for _, value in values]
    kind, wanted = _GIVES.get(name, (own, (own,)))
    if own not in wanted:
        raise ArgumentError(f"each_person: {name}() takes a {' or '.join(wanted)}, not a {own}")
    if name == "sum":
        pieces = [filled("CAST({0} AS DOUBLE)", *pieces, bound="")]
    return kind, compiler.lettered(kind, filled(functions[f"each {name}"], *pieces, bound=""))


_RANGED = ("whole", "number", "date", "time")


class Relation(_Kinds):
    """The kinds of columns, and of expressions, which become columns of ``source`` when they are looked up."""

    def __init__(self, people: People | Joined, dialect: Dialect) -> None:
        super().__init__(dict(people.kinds), people.kinds)
        self._people, self.who = people, people.who
        self._columns = dict(people.columns)
        self._base = FilterCompiler(people.kinds, replace(dialect, columns=people.columns), "column")
        self._values: dict[str, Sql] = {}
        self._places: dict[str, Sql] = {}
        self.dialect = replace(dialect, columns=self._columns)

    def __getitem__(self, name: str) -> str:
        if name not in self._kinds:
            named = tree.Column(name) if name in self._base.kinds else parse_value(name, name="column")
            kind, value = self._base.value(named)
            self._kinds[name], self._columns[name] = kind, self._added(self._values, value)
        return self._kinds[name]

    def __contains__(self, name: object) -> bool:
        """True if it names a column or an expression; raises ArgumentError where an expression is wrong."""
        return isinstance(name, str) and bool(self[name])

    def place(self, column: str, ranges: tuple[Range, ...]) -> str:
        """SQL for the place of the range that an entry is in; NULL where it is in none."""
        kind = kind_of(column, self)
        if kind not in _RANGED:
            raise ArgumentError(f"by: column {column!r} is of kind {kind}; ranges are of numbers, dates or times")
        if kind == "whole" and any(isinstance(end, float) for each in ranges for end in each):
            kind = "number"
        spelled: list[list[Any]] = [[None if end is None else literal(end, kind) for end in each] for each in ranges]
        ends = sorted(
            [(low, high, place) for place, (low, high) in enumerate(spelled)],
            key=lambda each: (each[0] is not None, each[0]),
        )
        for low, high, _ in ends:
            if low is not None and high is not None and not low < high:
                raise ArgumentError(f"by: ranges of column {column!r} must have a low end below their high end")
        for (_, high, _), (low, _, _) in pairwise(ends):
            if high is None or low is None or high > low:
                raise ArgumentError(f"by: two ranges of column {column!r} overlap")
        return self._added(self._places, self._halved(cast(column, kind, self.dialect), ends))

    def _halved(self, value: str, ends: list[tuple[Any, Any, int]]) -> Sql:
        """SQL for (low, high, place) in order, by halving, so that thousands of ranges are no trouble."""
        if len(ends) == 1:
            low, high, place = ends[0]
            tests = [] if low is None else [around(f"{value} >= ", self._base.constant(low))]
            tests += [] if high is None else [around(f"{value} < ", self._base.constant(high))]
            return around("CASE WHEN ", joined(" AND ", tests, brackets=False), f" THEN {place:d} END")
        half = len(ends) // 2
        test = around(f"CASE WHEN {value} < ", self._base.constant(ends[half][0]), " THEN ")
        both = joined(" ELSE ", [self._halved(value, ends[:half]), self._halved(value, ends[half:])], brackets=False)
        return joined("", [test, around("", both, " END")], brackets=False)

    def _added(self, listed: dict[str, Sql], value: Sql) -> str:
        name = self._free("value")
        listed[name] = value
        return f"d.{name}"

    def condition(self, where: str | None) -> Sql:
        """A filter over the columns; true for None."""
        if where is None:
            return Sql("TRUE")
        return FilterCompiler(self._base.kinds, self._base.dialect).value(parse(where))[1]

    @property
    def source(self) -> Sql:
        """The rows with a column for each expression looked up so far; a table or a query, without an alias."""
        rows = self._people.rows  # with what was joined to them
        for columns in (self._values, self._places):
            if columns:
                listed = ", ".join(f"{value.text} AS {name}" for name, value in columns.items())
                parameters = tuple(each for value in columns.values() for each in value.parameters)
                rows = Sql(f"(SELECT d.*, {listed} FROM {rows.text} d)", parameters + rows.parameters)
        return rows
