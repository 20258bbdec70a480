"""Running a question on DuckDB, beside the ledger."""

from datetime import date, datetime
from typing import Any

from bursar.errors import DataError, LedgerError
from bursar.ledger import Ledger
from bursar.queries._compile import Compiled
from bursar.queries.questions import Question

__all__ = ["admit", "contributions", "sums"]


def admit(
    ledger: Ledger,
    asked: Question,
    plan: Compiled,
    *,
    analyst: str,
    purpose: str | None,
    reserved: str | None,
) -> None:
    """Work out everybody's contribution and price, and choose who takes part."""
    try:
        charges, parameters = contributions(ledger, plan)
        ledger.admit(charges, parameters, price=asked.price, analyst=analyst, purpose=purpose, reserved=reserved)
    except LedgerError:
        if ledger.store.connection is None:
            raise
        raise DataError("the data cannot be read; nothing was charged") from None


def contributions(ledger: Ledger, plan: Compiled) -> tuple[str, list[Any]]:
    """A query for everybody's price, and its parameters."""
    run = ledger.store.run
    for table, kind, keys in plan.keys:
        run(f"CREATE OR REPLACE TEMP TABLE {table}(key {kind}, place BIGINT)")
        told = [each.isoformat() if isinstance(each, date | datetime) else each for each in keys]
        run(
            f"INSERT INTO {table} SELECT unnest(CAST(? AS {kind}[])), unnest(range({len(keys):d}))",
            [[str(each).lower() if isinstance(each, bool) else each for each in told]],
        )
    if plan.cells is None:
        return plan.charges, list(plan.parameters)
    run(plan.cells, list(plan.parameters))
    return plan.charges, []


def sums(ledger: Ledger, asked: Question, plan: Compiled) -> list[int]:
    """Everybody's contributions added up, in whole steps, those of ``admitted`` only. Private."""
    width = asked.groups * asked.coordinates
    found = [0] * width
    rows = ledger.store.run(plan.sums)
    while block := rows.fetchmany(65_536):
        for cell, *values in block:
            place = cell * len(values)
            found[place : place + len(values)] = [int(value or 0) for value in values]
    return found
