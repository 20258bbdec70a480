"""The demonstration's shop: customers counted every week, with an account for each, and with one budget for all."""

import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from almoner.filters import Filter
    from almoner.queries import Statement

__all__ = ["CUSTOMERS", "PERSON", "WEEKS", "Counts", "weekly_counts"]

CUSTOMERS, WEEKS, FULL_WEEKS = 3000, 52, 8
"""Generated customers, weeks with a question, and weeks that a budget pays for in full."""

PERSON = 17
SIGMA, DELTA = 10.0, 1e-6


@dataclass(frozen=True, slots=True, eq=False)
class Counts:
    """The shop's published counts, and what one customer may be told. The customers are generated: all is public."""

    truth: list[int]
    answers: list[float]
    one_budget: int
    """Number of weeks that one budget of the same size for all people answers."""
    epsilon: float
    statement: "Statement"

    @property
    def late_share(self) -> float:
        """The last eight weeks' answers, as a share of the truth."""
        return sum(self.answers[-8:]) / sum(self.truth[-8:])

    def to_dict(self) -> dict[str, object]:
        """The figures that are printed."""
        return {
            "weeks asked": len(self.answers),
            "weeks that one budget answers": self.one_budget,
            "epsilon": self.epsilon,
            "delta": DELTA,
            "share of the truth, last eight weeks": self.late_share,
        }


def weekly_counts(observe: Callable[[int, int], None]) -> Counts:
    """Ask for the number of customers of each week, through a session with its ledger on disk.

    Args:
        observe: called with the weeks that are done and their number.

    Raises:
        MissingExtra: DuckDB is not installed.
    """
    from almoner import filters
    from almoner.queries import People, Session, Table

    rng = np.random.default_rng(0)  # the same customers every time; the noise is the operating system's
    there = rng.random((WEEKS, CUSTOMERS)) < rng.beta(1.0, 19.0, CUSTOMERS)
    weeks, customers = np.nonzero(there)
    budget = filters.Zcdp(rho=FULL_WEEKS * People(sigma=SIGMA).price / 10**15)
    answers = []
    with tempfile.TemporaryDirectory() as folder:
        visits = Path(folder) / "visits.csv"
        rows = zip(customers.tolist(), weeks.tolist(), strict=True)
        visits.write_text("customer,week\n" + "".join(f"{who},{week + 1}\n" for who, week in rows), encoding="utf-8")
        session = Session.open(
            Table(visits, types={"customer": "whole", "week": "whole"}),
            person="customer",
            budget=budget,
            ledger=Path(folder) / "shop.ledger",
            create=True,
        )
        with session:
            analyst = session.analyst("the shop", purpose="weekly report")
            for week in range(1, WEEKS + 1):
                question = People(where=f"week = {week}", sigma=SIGMA, pace=None)
                answers.append(float(analyst.ask(question, key=f"customers of week {week}", anyway=True).value))
                observe(week, WEEKS)
            statement = session.statement(PERSON)
    truth = there.sum(axis=1).tolist()
    return Counts(truth, answers, _in_full(budget), statement.epsilon, statement)


def _in_full(budget: "Filter") -> int:
    """Number of weeks that a filter without accounts per person admits."""
    from almoner.mechanisms import Gaussian

    one, weeks = budget.fresh(), 0
    while weeks < WEEKS and one.admits(Gaussian(SIGMA)):
        one.charge(Gaussian(SIGMA))
        weeks += 1
    return weeks
