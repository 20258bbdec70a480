"""Sessions whose ledger names accounts otherwise than the rows name people: by period, or by one spelling of many."""

from collections.abc import Mapping
from dataclasses import replace

from almoner._spelling import EXACT
from almoner.errors import ArgumentError, Unsupported
from almoner.ledger import Periods, Terms
from almoner.queries._engines.plugins import plugin_of
from almoner.queries._sources.table_input import TableInput
from almoner.queries._sql.cures import as_dates, shown_type

__all__ = ["check_column_of", "on_terms"]


def on_terms(given: list[TableInput], terms: Terms) -> list[TableInput]:
    """The tables, with the periods of the rows of the only one of people, and the spelling by which they are named.

    Raises:
        Unsupported: there are several tables of people, or the rows are in the engine of a plugin, which need not have
            a normal form C.
    """
    if terms.periods is not None and sum(each.person is not None for each in given) > 1:
        raise Unsupported("periods: several tables of people can't be joined by person and period: make one of them")
    if terms.periods is not None or terms.spelling not in (None, EXACT):
        what = "periods" if terms.periods is not None else f"spelling={terms.spelling!r}"
        for plugin in filter(None, (plugin_of(each.data) for each in given)):
            raise Unsupported(f"{what}: not for {plugin.data}: write them as Parquet files")
    spelling = terms.spelling or EXACT
    return [each if each.person is None else replace(each, periods=terms.periods, spelling=spelling) for each in given]


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
