"""Charges every recorded question again, from the data, into a table of its own. For the data holder."""

from bursar.errors import BursarError
from bursar.ledger import Answered, Finding, Ledger
from bursar.queries._engines.rows import Rows
from bursar.queries._questions import described, recorded

__all__ = ["replayed"]


def replayed(ledger: Ledger, rows: Rows) -> Finding:
    """Whether charging every question again gives the same charges, to the unit.

    Args:
        ledger: open.
        rows: the data beside it.
    """
    what = "charging every question again from the data gives the same accounts"
    workspace, kind = ledger.store.workspace, ledger.person_kind
    again = workspace.fresh_name("again")
    workspace.run(f"CREATE TEMP TABLE {again}(question BIGINT, person {kind}, units BIGINT)")
    try:
        for answered in ledger.history():
            if not _charged(ledger, answered, rows, again):
                return Finding(what, False)
        different = (
            f"SELECT 1 FROM {again} a FULL JOIN ({ledger.accounts.charged()}) c "
            "ON a.question = c.question AND a.person = c.person "
            "WHERE coalesce(a.units, -1) <> coalesce(c.units, -1) LIMIT 1"
        )
        return Finding(what, not workspace.run(different).fetchall())
    finally:
        workspace.drop([again])


def _charged(ledger: Ledger, answered: Answered, rows: Rows, again: str) -> bool:
    """Charge one question again, by the plain sums of the charges so far; whether its price is the recorded one."""
    number = answered.entry.number
    try:
        asked = recorded(answered.entry.public)
        plan = rows.plan(asked, described(asked))
    except BursarError:  # a column is gone
        return False
    charges, workspace = rows.prices(plan), ledger.store.workspace
    spent = f"SELECT sum(a.units) FROM {again} a WHERE a.person = c.person"
    left = [f"{answered.allowance.most - asked.spare_units:d} - coalesce(({spent}), 0)"]
    for scope, most in answered.allowance.shares:
        listed = ", ".join(f"{before:d}" for before in answered.asked[scope]) or "-1"
        spent_on_it = f"{spent} AND a.question IN ({listed})"
        left.append(f"{most - asked.spare_units:d} - coalesce(({spent_on_it}), 0)")
    pays = asked.payment.sql(f"CAST(least({', '.join(left)}) AS BIGINT)", divide="//")
    here = f"c.units > 0 AND NOT list_contains(CAST(? AS {ledger.person_kind}[]), c.person)"
    workspace.make(charges.tables)
    workspace.run(
        f"INSERT INTO {again} SELECT {number:d}, c.person, {pays.units} FROM ({charges.sql}) c "
        f"WHERE {pays.taken} AND {here}",
        [*charges.parameters, list(answered.gone)],
    )
    workspace.drop(table.name for table in charges.tables)
    return asked.price == int(answered.entry.public["price"])
