"""A table as the data holder gave it: its rows, how they are read, and what was declared of them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from almoner._misfits import Misfit
from almoner._spelling import EXACT, spelling_sql
from almoner.errors import ArgumentError, DataError, DataReason
from almoner.ledger import Periods
from almoner.queries._sources.files import Files
from almoner.queries._sources.sources import ReadOptions
from almoner.queries._sql.columns import cast
from almoner.queries._sql.dialects import Dialect
from almoner.queries._sql.schemas import PeopleTable, PublicTable, Schema

__all__ = ["TableInput", "changed", "schema_of"]


@dataclass(frozen=True, slots=True)
class TableInput:
    """A table of people, or a public one.

    Fields:
        name: as questions name it; None for the only one.
        data: where the rows are, or the rows. Private.
        reading: how they are read.
        person: the column that says whose row it is; None in public tables.
        one_row: whether it was declared that each person has at most one row.
        key, on: of a public table, see ``PublicTable``.
        columns: that questions may use; None for all.
        check_view: whether to check that a view gives each person rows of that person's rows alone.
        periods: where a person has an account for each of them.
        spelling: which spellings of a text name one person.
        files: that the rows are in, as they were when the session was opened; None for rows from elsewhere.
        misfits: the columns with a type, and how many entries cannot be read; None where they were not counted yet.
            Private.
    """

    name: str | None
    data: Any = field(repr=False)
    reading: ReadOptions = field(default_factory=ReadOptions)
    person: str | None = None
    one_row: bool = False
    key: str = ""
    on: str = ""
    columns: tuple[str, ...] | None = None
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
    def twice(self) -> str:
        """Error text for two rows of a person, or of a key, where one was declared."""
        if self.person is None:
            return f"public: {self.name!r} has several rows with the same {self.key!r}: each key must have one"
        return f"tables: {self.name!r} was declared to have one row for each person (one_row=True), and has several"

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
            unit = self.periods.sql(who, dialect.columns[self.periods.column], whole=whole)
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
    people, public = {}, {}
    for each, columns, sql, dialect in zip(given, kinds, rows, dialects, strict=True):
        if each.person is None:
            public[str(each.name)] = PublicTable(sql, columns, dialect.columns, each.key, each.on)
        else:
            who = each.found_by(columns, person_kind, dialect)
            people[each.name or "data"] = PeopleTable(sql, each.seen(columns), dialect.columns, who, each.one_row)
    return Schema(people, public, named=all(each.name is not None for each in given))
