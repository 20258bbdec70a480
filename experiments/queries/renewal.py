"""Weekly counts of a shop with a budget for each customer and week: what a lifetime of weeks really reveals of whom.

    python experiments/queries/renewal.py           # 44 weeks of Online Retail; writes the record and the page
    python experiments/queries/renewal.py --quick   # four weeks, twenty customers; writes nothing

Each week a count of its customers spends the whole budget of that week, (1, 1e-6)-DP. The privacy losses are those of
customers drawn at random; they would be private for other data.
"""

import argparse
import json
import sys
import tempfile
from datetime import date, timedelta
from pathlib import Path
from typing import Any

import duckdb
import numpy as np

from almoner import filters
from almoner.curves import gaussian
from almoner.ledger import Periods, Terms
from almoner.queries import People, Session, Table

HERE = Path(__file__).parent
sys.path.append(str(HERE.parent))
import pages  # noqa: E402
from data_sets import folder  # noqa: E402

PAGE = HERE.parents[1] / "docs" / "experiments" / "renewal.md"
EPSILON, DELTA = 1.0, 1e-6
FIRST, WEEKS, CUSTOMERS = date(2011, 1, 3), 44, 500
SHARES = (0.1, 0.5, 0.9, 0.99, 1.0)

ROWS = (
    "SELECT TRY_CAST(CustomerID AS BIGINT) AS customer, CAST(InvoiceDate AS DATE) AS day FROM data "
    "WHERE CustomerID IS NOT NULL AND Quantity > 0"
)


def ask(session: Session, weeks: int) -> None:
    """Count each week's customers with all of that week's budget."""
    analyst = session.analyst("shop")
    for week in range(weeks):
        start = FIRST + timedelta(days=7 * week)
        where = f"day >= '{start}' and day < '{start + timedelta(days=7)}'"
        analyst.ask(People(rho=session.ledger.budget, where=where), key=f"week of {start}")


def customers_of(path: Path, last: date) -> list[str]:
    """The customers who bought something from the first week to this day, in the order of their names."""
    with duckdb.connect() as rows:
        rows.execute("CREATE TABLE data AS SELECT * FROM read_csv(?)", [str(path)])
        found = rows.execute(f"SELECT DISTINCT customer FROM ({ROWS}) r WHERE day BETWEEN ? AND ?", [FIRST, last])
        return sorted(str(customer) for (customer,) in found.fetchall() if customer is not None)


def result(given: Path | None, weeks: int, customers: int) -> dict[str, Any]:
    """The distribution of lifetime epsilons over customers who bought something in these weeks."""
    path, last = folder("online_retail", given) / "online_retail.csv.gz", FIRST + timedelta(days=7 * weeks - 1)
    with (
        tempfile.TemporaryDirectory() as place,
        Session.open(
            Table(path, view=ROWS),
            person="customer",
            budget=Terms(
                filters.Gaussian(epsilon=EPSILON, delta=DELTA),
                periods=Periods("day", every="week", first=FIRST, last=last),
            ),
            ledger=Path(place) / "ledger",
            create=True,
        ) as session,
    ):
        ask(session, weeks)
        sigma = 1 / np.sqrt(2 * session.ledger.budget)
        people = customers_of(path, last)
        drawn = np.random.default_rng(0).choice(people, size=min(customers, len(people)), replace=False)
        lifetimes = [session.statement(str(person), delta=DELTA).lifetime for person in drawn]
        known = {"promise": session.ledger.lifetime(DELTA), "customers": len(people)}
    epsilons = np.array([each.epsilon for each in lifetimes])
    active = np.array([len(each.used) for each in lifetimes])
    return {
        "weeks": weeks,
        "epsilon of a week": EPSILON,
        "delta": DELTA,
        "noise of a count, standard deviation": round(float(sigma), 2),
        "sum of epsilons": EPSILON * weeks,
        "composed": float(gaussian.epsilon(np.sqrt(weeks) / sigma, delta=DELTA)),
        **known,
        "drawn": len(drawn),
        "weeks with a purchase": {str(share): float(np.quantile(active, share)) for share in SHARES},
        "lifetime epsilon": {str(share): float(np.quantile(epsilons, share)) for share in SHARES},
    }


def table(record: dict[str, Any]) -> str:
    """The table of the page."""
    names = ("a tenth has at most", "half have at most", "nine of ten have at most", "99 of 100", "the most")
    lines = ["| of the customers | weeks with a purchase | lifetime epsilon |", "|---|---|---|"]
    for name, share in zip(names, map(str, SHARES), strict=True):
        lines.append(
            f"| {name} | {record['weeks with a purchase'][share]:g} | {record['lifetime epsilon'][share]:.2f} |"
        )
    everybody = {
        "everybody, if the epsilons of a budget that is reset each week are added up": "sum of epsilons",
        "everybody, if all weeks are composed as Gaussian noise": "composed",
        "everybody, whatever is asked (the promise of the ledger)": "promise",
    }
    for name, entry in everybody.items():
        lines.append(f"| {name} | {record['weeks']} | {record[entry]:.2f} |")
    return "\n".join(lines)


def main() -> None:
    """Run, and write the record and the page's table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, help="the folder of the data sets; else ALMONER_DATA")
    parser.add_argument("--quick", action="store_true", help="four weeks, twenty customers; nothing is written")
    given = parser.parse_args()
    if given.quick:
        print(table(result(given.data, 4, 20)))
        return
    record = result(given.data, WEEKS, CUSTOMERS)
    (pages.RESULTS / "renewal.json").write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")
    pages.insert(PAGE, table(record) + "\n")
    print(table(record))


if __name__ == "__main__":
    main()
