"""Which tables a session has: of people, each with whose row it is, and public ones, each with a key."""

from collections.abc import Mapping
from dataclasses import dataclass

from almoner.errors import ArgumentError

__all__ = ["PeopleTable", "PublicTable", "Schema"]


@dataclass(frozen=True, slots=True)
class PeopleTable:
    """A table of people's rows, as an engine has it.

    Fields:
        rows: its rows as SQL, without an alias.
        kinds: of the columns that questions may use.
        columns: each column as SQL over the alias d.
        who: whose row it is, as SQL over the alias d; NULL for nobody.
        one_row: whether it was declared that each person has at most one row.
    """

    rows: str
    kinds: Mapping[str, str]
    columns: Mapping[str, str]
    who: str
    one_row: bool = False


@dataclass(frozen=True, slots=True)
class PublicTable:
    """A table that holds nobody's data, as an engine has it, with at most one row for each key.

    Fields:
        rows, kinds, columns: as of ``PeopleTable``.
        key: the column that names the row.
        on: the column of people's rows that holds the key, of the table that a question is about, or table.column.
    """

    rows: str
    kinds: Mapping[str, str]
    columns: Mapping[str, str]
    key: str
    on: str


@dataclass(frozen=True, slots=True)
class Schema:
    """The tables of a session by name.

    Fields:
        people: the first is the one that questions are about if they name none.
        public: beside them.
        named: whether the data holder gave names to the tables of people; else there is one of them.
    """

    people: Mapping[str, PeopleTable]
    public: Mapping[str, PublicTable]
    named: bool

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
