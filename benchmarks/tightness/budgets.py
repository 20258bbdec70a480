"""Measure the noise of counts for a number of questions under each kind of budget.

python benchmarks/tightness/budgets.py [--epsilon 1] [--delta 1e-5] [--json]

For each budget and number of questions it opens a ledger, asks one question at an equal share of the budget over 20,000
groups that nobody is in, and prints the standard deviation of the answers.
"""

import argparse
import json
from pathlib import Path
from statistics import pstdev
from tempfile import TemporaryDirectory

import pyarrow as pa

from almoner import filters
from almoner.queries import People, Session

QUESTIONS = (1, 5, 10, 100, 1000)
GROUPS = 20_000


def spread(budget: filters.Zcdp | filters.Gaussian | filters.Basic, questions: int) -> float:
    """Standard deviation of the noise of one of so many counts."""
    rows = pa.table({"who": ["a"], "n": [-1]})
    with TemporaryDirectory() as folder:
        session = Session.open(rows, person="who", budget=budget, ledger=Path(folder) / "l", create=True)
        with session:
            share = {session.ledger.symbol: session.ledger.budget / questions * (1 - 1e-12)}
            asked = People(by={"n": list(range(GROUPS))}, **share)
            return pstdev(session.analyst("a").ask(asked, key="a").values)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--epsilon", type=float, default=1.0)
    parser.add_argument("--delta", type=float, default=1e-5)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    both = {"epsilon": options.epsilon, "delta": options.delta}
    makers = {
        "zCDP": lambda: filters.Zcdp(**both),
        "Gaussian": lambda: filters.Gaussian(**both),
        "pure": lambda: filters.Basic(epsilon=options.epsilon),
    }
    rows = {name: {k: round(spread(make(), k), 3) for k in QUESTIONS} for name, make in makers.items()}
    print(json.dumps(rows) if options.json else "\n".join(f"{name}: {row}" for name, row in rows.items()))


if __name__ == "__main__":
    main()
