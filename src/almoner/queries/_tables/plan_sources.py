"""Models of the tables, the ledger and the budget that a file names, and the tables as a session takes them."""

from collections.abc import Mapping
from datetime import date
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from almoner._reading import Field, Model, Rule, broken, model_validator
from almoner.errors import ArgumentError
from almoner.queries._engines.plugins import plugin_named
from almoner.queries._tables.tables import Lookup, Table

__all__ = ["AccountsPart", "LookupPart", "PlanPart", "RowsPart", "TablePart", "tables_of"]

Amount = Annotated[float, Rule("a finite number")]
Start = Annotated[date | str, Rule("a date, such as 2026-01-01")]


class _ReadPart(Model):
    table: str | None = None
    """the table or view of a DuckDB file"""
    view: str | None = None
    """SQL over `data`, whose rows questions read"""
    types: dict[str, str] | None = None
    """types of columns: `"text"`, `"whole"`, `"number"`, `"decimal comma"` (`1.234,5`), `"decimal point"` (`1,234.5`),
    `"bool"`, `"date"` or `"time"`; of a CSV file, others are text"""


class RowsPart(_ReadPart):
    """A table of people's rows."""

    data: str
    """the path of the file or folder: CSV, Parquet or DuckDB"""
    person: str | None = None
    """the column that says whose row it is, where it differs"""
    one_row: bool = False
    """each person has at most one row here"""


class TablePart(RowsPart):
    """A table of people's rows in a file of questions."""

    columns: list[str] | None = None
    """the columns that questions may use; all, if left out"""


class LookupPart(_ReadPart):
    """A table that holds nobody's data."""

    data: str
    """the path of the file: CSV, Parquet or DuckDB"""
    key: str
    """the column of this table that names a row"""
    on: str | None = None
    """the column of people's tables that holds the key, where it is called otherwise"""


class PeriodsPart(Model):
    """Periods of the rows, in each of which every person has a budget."""

    column: str
    """the column, of dates or times, that says in which period a row is"""
    every: Literal["day", "week", "month", "quarter", "year"]
    """how long a period is"""
    first: Start
    """a day in the first period; rows before it are in no answer"""
    last: Start
    """a day in the last period; rows after it are in no answer"""


class AccountsPart(Model):
    """The ledger and each person's budget, as files of questions and policies name them."""

    ledger: str
    """the path of the ledger, or `"postgresql://server/database"`"""
    person: str | None = None
    """the column that says whose row it is, unless each table says it"""
    public: dict[str, LookupPart] = Field(default={})
    """tables that hold nobody's data: `[public.NAME]`"""
    budget: Literal["zcdp", "gaussian", "pure"] = "zcdp"
    """the notion of the budget"""
    epsilon: Amount | None = None
    """each person's budget, for all analysts together; or `rho`, or `mu`"""
    delta: Amount | None = None
    """the failure probability of that budget; `"pure"` takes none"""
    rho: Amount | None = None
    """a `"zcdp"` budget, in place of `epsilon` and `delta`"""
    mu: Amount | None = None
    """a `"gaussian"` budget, in place of `epsilon` and `delta`"""
    keys_delta: Amount | None = None
    """what all questions for `"keys"` together may cost in delta, beside the budget; without it they are refused"""
    pseudonyms: str | None = None
    """the path of a key: the ledger then holds keyed hashes of people's names"""
    periods: PeriodsPart | None = None
    """each person has a budget in each period of the rows, such as each month"""
    spelling: str | None = None
    """which spellings of an id are one person's: `"nfc"` or `"caseless"`"""
    memory_limit: str | None = None
    """the memory that DuckDB may use, such as `"4GB"`"""
    witness: str | None = None
    """the path of a file on another volume that remembers the ledger's newest entry"""
    spark: str | None = None
    """the master of Spark, such as `"local[*]"`, which then reads Parquet files"""


class PlanPart(AccountsPart, _ReadPart):
    """The data, the ledger and the budget of a file of questions."""

    data: str | None = None
    """the path of the file or folder with people's rows"""
    tables: dict[str, TablePart] | None = None
    """several tables of people's rows, in place of `data`: `[tables.NAME]`"""
    dataset: str | None = None
    """which of the ledger's data sets it is, where some are declared"""

    @model_validator(mode="after")
    def _tables(self) -> Self:
        """Refuse data that are named twice or not at all, and rows of nobody."""
        for name in ("data", "table", "view", "types"):
            if self.tables is not None and getattr(self, name) is not None:
                raise broken(f".{name} stands in [tables.NAME], beside the table that it is about")
        if self.tables is None and self.data is None:
            raise broken(".data is missing; or give [tables.NAME]")
        if self.person is None and (self.tables is None or any(each.person is None for each in self.tables.values())):
            raise broken(".person is missing")
        return self


def tables_of(settings: PlanPart, folder: Path) -> dict[str, Any]:
    """Arguments of ``Session.open`` about tables: ``data`` or ``tables``, ``public``, ``person`` and how they are read.

    Args:
        settings: of the file.
        folder: that its paths start from.
    """
    public = {name: _lookup(part, settings, folder) for name, part in settings.public.items()}
    given: dict[str, Any] = {"public": public or None, "person": settings.person}
    if settings.tables is None:
        data, how = _read(settings, settings, folder)
        return {**given, "data": Table(data, **how)}
    tables, people = {}, {}
    for name, part in settings.tables.items():
        data, how = _read(part, settings, folder)
        tables[name] = Table(data, one_row=part.one_row, columns=part.columns, **how)
        people[name] = part.person or settings.person
    return {**given, "tables": tables, "person": people}


def _lookup(part: LookupPart, settings: PlanPart, folder: Path) -> Lookup:
    data, how = _read(part, settings, folder)
    return Lookup(data, part.key, on=part.on, **how)


def _read(part: Any, settings: PlanPart, folder: Path) -> tuple[Any, Mapping[str, Any]]:
    """(The data, how they are read)."""
    how = {name: getattr(part, name) for name in ("table", "view", "types")}
    plugin = None if settings.spark is None else plugin_named("pyspark")
    if plugin is not None and settings.spark is not None:
        if how["table"] is not None or how["types"] is not None:
            raise ArgumentError("table= is for DuckDB files, types= for CSV files")
        return plugin.read(settings.spark, folder / part.data, how["view"]), {}
    return folder / part.data, how
