"""The rows of one table of people, with columns of other tables joined to them as questions name them.

``customers.age`` is column ``age`` of the table ``customers``. Rows of another table of people are found by the person,
who must have at most one of them; rows of a public table by their key. Each row of the first table stays one row of the
same person: where nothing is found, or several rows of the person, the columns are missing.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace

from almoner.errors import ArgumentError
from almoner.queries._sql.columns import cast, check_usable, kind_of
from almoner.queries._sql.dialects import Dialect
from almoner.queries._sql.functions import Sql
from almoner.queries._sql.schemas import PeopleTable, PublicTable, Schema

__all__ = ["Joined"]

_KEY = "joined_key"


@dataclass(frozen=True, slots=True)
class _Join:
    """A table to join.

    Fields:
        table: the table.
        found_by: its key as SQL over the alias d of its rows.
        beside: what the key must equal, over the alias d of the rows so far.
        columns: that were asked for: each name of ours, and the column over the alias d of the table's rows.
    """

    table: PeopleTable | PublicTable
    found_by: str
    beside: str
    columns: dict[str, str] = field(default_factory=dict)

    def onto(self, rows: str) -> str:
        """The rows with the columns that were asked for.

        Guarantee: there is one row for each of ``rows``, with its columns; the columns that are added are a function of
            the rows of the same person in the other table, or of a public table alone.
        Source: docs/queries.md, "Several tables".
        """
        listed = ", ".join(f"j.{name} AS {name}" for name in self.columns)
        if isinstance(self.table, PublicTable):
            inner = ", ".join(f"{column} AS {name}" for name, column in self.columns.items())
            group = ""
        else:
            inner = ", ".join(f"any_value({column}) AS {name}" for name, column in self.columns.items())
            group = f" GROUP BY {self.found_by} HAVING count(*) = 1"
        found = (
            f"SELECT {self.found_by} AS {_KEY}, {inner} FROM {self.table.rows} d "
            f"WHERE {self.found_by} IS NOT NULL{group}"
        )
        return f"(SELECT d.*, {listed} FROM {rows} d LEFT JOIN ({found}) j ON j.{_KEY} = {self.beside})"


class Joined(Mapping[str, str]):
    """The kinds of the columns of a table of people and of all that can be joined to it, by name.

    A column of another table is joined when it is first looked up; ``rows`` has all that were.
    """

    def __init__(self, schema: Schema, name: str, dialect: Dialect) -> None:
        self.name = name
        self.schema = schema
        self._dialect = dialect
        self._table = schema.people[name]
        self._kinds = {name: kind for name, kind in self._table.kinds.items() if not self._has(*self._parts(name))}
        self._joins: dict[str, _Join] = {}
        self._taken = {column.casefold() for column in self._table.columns}
        self.columns = dict(self._table.columns)
        """Each column looked up so far, and each of the table's own, as SQL over the alias d."""

    @property
    def who(self) -> str:
        """Whose row it is, as SQL over the alias d; NULL for nobody."""
        return self._table.who

    @property
    def kinds(self) -> Mapping[str, str]:
        """The kinds of the columns, by name."""
        return self

    @property
    def rows(self) -> Sql:
        """The rows, with all columns looked up so far; without an alias."""
        rows = self._table.rows
        for join in self._joins.values():
            rows = join.onto(rows)
        return Sql(rows)

    def __getitem__(self, name: str) -> str:
        """The kind of a column; ArgumentError where another table's cannot be joined."""
        if name not in self._kinds:
            table, column = self._parts(name)
            if not table:
                raise KeyError(name)
            self._kinds[name] = self._look_up(name, table, column)
        return self._kinds[name]

    def __contains__(self, name: object) -> bool:
        if not isinstance(name, str):
            return False
        return name in self._kinds or self._has(*self._parts(name))

    def __iter__(self) -> Iterator[str]:
        return iter(self._kinds)

    def __len__(self) -> int:
        return len(self._kinds)

    def other_table(self, name: str) -> str | None:
        """The table of people, if another one, that a name stands for, or a column of it that cannot be joined."""
        if name in self._table.kinds or not self.schema.named:
            return None
        table = name.partition(".")[0]
        found = self.schema.people.get(table)
        if found is None or table == self.name or ("." in name and found.one_row):
            return None
        return table

    def _parts(self, name: str) -> tuple[str, str]:
        """(Table, column) of table.column; no table where there is only one, which has no name."""
        table, dot, column = name.partition(".")
        return (table, column) if dot and (self.schema.named or self.schema.public) else ("", name)

    def _has(self, table: str, column: str) -> bool:
        return column in self._columns_of(table)

    def _columns_of(self, table: str) -> Mapping[str, str]:
        found = self.schema.people.get(table) if self.schema.named else None
        known = found or self.schema.public.get(table)
        return {} if known is None else known.kinds

    def _look_up(self, name: str, table: str, column: str) -> str:
        """Join a column, under its name; its kind."""
        people, public = self.schema.people if self.schema.named else {}, self.schema.public
        if table not in people and table not in public:
            raise ArgumentError(
                f"column {name!r}: there is no table {table!r}; there are {', '.join([*people, *public])}"
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
            self._joins[table] = (
                self._by_person(name, people[table]) if table in people else self._by_key(public[table])
            )
        join = self._joins[table]
        alias = self._free(f"joined{len(self._taken)}")
        join.columns[alias] = join.table.columns[column]
        self.columns[name] = f"d.{alias}"
        return kinds[column]

    def _by_person(self, name: str, table: PeopleTable) -> _Join:
        if not table.one_row:
            raise ArgumentError(
                f"column {name!r}: a person may have several rows there: take one value of each person, as in "
                f"each_person={{'total': 'sum({name})'}} (or the data holder declares Table(..., one_row=True))"
            )
        return _Join(table, table.who, self.who)

    def _by_key(self, table: PublicTable) -> _Join:
        if table.on not in self:
            raise ArgumentError(
                f"column {table.on!r}, by which rows of a public table are found, is not in table {self.name!r}"
            )
        kind, wanted = kind_of(table.on, self), table.kinds[table.key]
        if kind != wanted:
            raise ArgumentError(f"column {table.on!r} is of kind {kind}, and the key {table.key!r} of kind {wanted}")
        spelled = cast(table.key, wanted, self._spelled(table.columns))
        return _Join(table, spelled, cast(table.on, kind, self._spelled(self.columns)))

    def _spelled(self, columns: Mapping[str, str]) -> Dialect:
        return replace(self._dialect, columns=columns)

    def _free(self, name: str) -> str:
        """A name that no column of the rows has."""
        while name in self._taken:
            name += "_"
        self._taken.add(name)
        return name
