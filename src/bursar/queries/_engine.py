"""Running a question on DuckDB, beside the ledger."""

from datetime import date, datetime

from bursar.errors import DataError, LedgerError
from bursar.ledger import Ledger
from bursar.queries._compile import Compiled
from bursar.queries.questions import Question

__all__ = ["contributions", "sums"]


def contributions(ledger: Ledger, plan: Compiled) -> None:
    """Make the tables ``cells`` and ``charges``."""
    run = ledger.store.run
    for table, kind, keys in plan.keys:
        run(f"CREATE OR REPLACE TEMP TABLE {table}(key {kind}, place BIGINT)")
        told = [each.isoformat() if isinstance(each, date | datetime) else each for each in keys]
        run(
            f"INSERT INTO {table} SELECT unnest(CAST(? AS {kind}[])), unnest(range({len(keys):d}))",
            [[str(each).lower() if isinstance(each, bool) else each for each in told]],
        )
    try:
        run(plan.cells, list(plan.parameters))
    except LedgerError:
        raise DataError("the data cannot be read; nothing was charged") from None
    run(plan.charges)


def sums(ledger: Ledger, asked: Question, plan: Compiled) -> list[int]:
    """Everybody's contributions added up, in whole steps, those of ``admitted`` only. Private."""
    width = asked.groups * asked.coordinates
    found = [0] * width
    for cell, *values in ledger.store.run(plan.sums).fetchall():
        place = cell * len(values)
        found[place : place + len(values)] = [int(value) for value in values]
    return found
