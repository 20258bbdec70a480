"""Charging every recorded question again, from the data, in accounts of its own. For the data holder."""

from bursar.errors import BursarError
from bursar.ledger import Entry, Finding, Ledger
from bursar.queries._engines.duckdb_engine import Rows
from bursar.queries._forms import question

__all__ = ["replayed"]


def replayed(ledger: Ledger, rows: Rows) -> Finding:
    """Whether charging every question again gives the same charges, to the unit.

    Args:
        ledger: open.
        rows: the data beside it.
    """
    what = "charging every question again from the data gives the same accounts"
    run = ledger.store.desk.run
    run(f"CREATE OR REPLACE TEMP TABLE again(question BIGINT, person {ledger.person_kind}, units BIGINT)")
    run(f"CREATE OR REPLACE TEMP TABLE out(person {ledger.person_kind})")
    limits: dict[str, int] = {}
    reserved: dict[str, int] = {}
    before: dict[tuple[str, str | None], list[int]] = {}
    for entry in ledger.entries():
        match entry.kind:
            case "limited":
                limits[entry.public["scope"]] = entry.public["units"]
            case "reserved":
                reserved[entry.public["name"]] = entry.public["units"]
            case "watched":
                reserved[""] = entry.public["units"]  # no key is empty
            case "released":
                reserved.pop(entry.public["name"], None)
            case "retired":
                run("INSERT INTO out VALUES (?)", [entry.private["person"]])
            case "returned":
                run("DELETE FROM out WHERE person = ?", [entry.private["person"]])
            case "answered":
                if not _charged(ledger, entry, rows, limits, reserved, before):
                    return Finding(what, False)
    charged = ledger.keeper.charged()
    different = (
        f"SELECT 1 FROM again a FULL JOIN ({charged}) c ON a.question = c.question AND a.person = c.person "
        "WHERE coalesce(a.units, -1) <> coalesce(c.units, -1) LIMIT 1"
    )
    return Finding(what, not run(different).fetchall())


def _charged(
    ledger: Ledger,
    entry: Entry,
    rows: Rows,
    limits: dict[str, int],
    reserved: dict[str, int],
    before: dict[tuple[str, str | None], list[int]],
) -> bool:
    """Charge one question again, by the plain sums of the charges so far."""
    public = entry.public
    try:
        asked = question(public["question"])
        rows.check(asked)
    except BursarError:  # a column is gone
        return False
    charges, parameters = rows.charges(asked)
    spare = asked.spare_units
    most = ledger.budget_units - spare - sum(units for key, units in reserved.items() if key != public["reserved"])
    tests = [f"c.units <= {most:d} - coalesce((SELECT sum(a.units) FROM again a WHERE a.person = c.person), 0)"]
    for role in ("analyst", "purpose"):
        scope, asked_before = f"{role}:{public[role]}", before.setdefault((role, public[role]), [])
        if public[role] is not None and scope in limits:
            listed = ", ".join(f"{number:d}" for number in asked_before) or "-1"
            tests.append(
                f"c.units <= {limits[scope] - spare:d} - coalesce((SELECT sum(a.units) FROM again a "
                f"WHERE a.person = c.person AND a.question IN ({listed})), 0)"
            )
        asked_before.append(entry.number)
    ledger.store.desk.run(
        f"INSERT INTO again SELECT {entry.number:d}, c.person, c.units FROM ({charges}) c "
        f"WHERE {' AND '.join(tests)} AND c.person NOT IN (SELECT person FROM out)",
        parameters,
    )
    reserved.pop(public["reserved"], None)
    return asked.price == int(public["price"])
