"""Sessions whose ledger names accounts otherwise than the rows name people: by period, or by one spelling of many."""

from collections.abc import Mapping
from dataclasses import replace

from almoner._spelling import EXACT, check_spelling
from almoner.errors import ArgumentError, Unsupported
from almoner.ledger import Ledger, Periods
from almoner.queries._engines.plugins import plugin_of
from almoner.queries._sources.table_input import TableInput
from almoner.queries._sql.cures import as_dates, shown_type

__all__ = ["check_column_of", "in_periods", "in_spelling", "refuse_other_names"]


def in_periods(given: list[TableInput], periods: Periods | None) -> list[TableInput]:
    """The tables, with the periods of the rows of the only one of people.

    Raises:
        ArgumentError: the periods are no ``ledger.Periods``.
        Unsupported: there are several tables of people, or the rows are in the engine of a plugin.
    """
    if periods is None:
        return given
    if not isinstance(periods, Periods):
        raise ArgumentError(f"periods={periods!r} must be a ledger.Periods")
    if sum(each.person is not None for each in given) > 1:
        raise Unsupported("periods: several tables of people can't be joined by person and period: make one of them")
    _refuse_plugins("periods", given)
    return [each if each.person is None else replace(each, periods=periods) for each in given]


def in_spelling(given: list[TableInput], spelling: str) -> list[TableInput]:
    """The tables, whose people are named by this spelling.

    Raises:
        ArgumentError: there is no such spelling.
        Unsupported: the rows are in the engine of a plugin, which need not have a normal form C.
    """
    check_spelling(spelling)
    if spelling != EXACT:
        _refuse_plugins(f"spelling={spelling!r}", given)
    return [each if each.person is None else replace(each, spelling=spelling) for each in given]


def _refuse_plugins(what: str, given: list[TableInput]) -> None:
    for plugin in filter(None, (plugin_of(each.data) for each in given)):
        raise Unsupported(f"{what}: not for {plugin.data}: write them as Parquet files")


def check_column_of(periods: Periods | None, kinds: Mapping[str, str], types: Mapping[str, str]) -> None:
    """Refuse a column of periods that is missing or holds no dates; ``types`` are the engine's names."""
    if periods is None:
        return
    if periods.column not in kinds:
        raise ArgumentError(f"periods: {periods.column!r} is no column of the data")
    if kinds[periods.column] not in ("date", "time"):
        raise ArgumentError(
            f"periods: column {periods.column!r} is of type {shown_type(types[periods.column])} and must hold dates or "
            f"times: open the data with {as_dates(periods.column, types[periods.column])}"
        )


def refuse_other_names(book: Ledger, periods: Periods | None, spelling: str) -> None:
    """Refuse a ledger with periods, or a spelling, where none is given: its accounts have other names.

    Raises:
        ArgumentError: it was made for others.
    """
    if book.spelling != spelling:
        raise ArgumentError(f"{book.store.name} was made for spelling={book.spelling!r}, not {spelling!r}")
    if book.periods != periods:
        raise ArgumentError(f"{book.store.name} was made for periods={book.periods!r}, not {periods!r}")
