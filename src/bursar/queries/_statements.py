"""What was spent on one person, for that person. Everything here is private."""

from dataclasses import dataclass
from typing import Any

from bursar import _check
from bursar._units import shown, to_float
from bursar.curves import zcdp
from bursar.ledger import Ledger

__all__ = ["Line", "Statement", "statement"]


@dataclass(frozen=True, slots=True, repr=False)
class Line:
    """One question that charged a person. Private: rho is a function of that person's data."""

    number: int
    time: str
    analyst: str
    purpose: str | None
    key: str
    question: dict[str, Any]
    rho: float

    def __repr__(self) -> str:
        return "Line(private: for the person of the statement and for the data holder)"


@dataclass(frozen=True, slots=True, repr=False)
class Statement:
    """What was spent on one person. Private: for that person and the data holder."""

    lines: tuple[Line, ...]
    rho: float
    """In all, rounded up."""
    budget: float
    """The most that may ever be spent, rounded up."""
    epsilon: float
    """What the budget means at delta."""
    delta: float

    def __repr__(self) -> str:
        return "Statement(private: print it for the person it is about, and for nobody else)"

    def __str__(self) -> str:
        return self.words

    @property
    def words(self) -> str:
        """What it means."""
        number = sum(bool(line.key) for line in self.lines)
        answers = "1 answer" if number == 1 else f"{number} answers"
        rho, budget, epsilon, delta = (shown(each, 6) for each in (self.rho, self.budget, self.epsilon, self.delta))
        return (
            f"{answers} used your records. They cost rho = {rho} of your budget of "
            f"{budget}, which will never be exceeded. So whoever knows all answers that are ever given, and "
            "everything about everybody else, can tell whether your records were there only as well as "
            f"(epsilon = {epsilon}, delta = {delta})-differential privacy allows."
        )


def statement(ledger: Ledger, person: object, *, delta: float | None = None) -> Statement:
    """Every question that charged a person, the total, and what it means. Private."""
    delta = (ledger.delta or 1e-6) if delta is None else delta
    _check.between(0, 1, delta=delta)
    lines = tuple(
        Line(
            entry.number,
            entry.public["time"],
            entry.public["analyst"],
            entry.public["purpose"],
            entry.public["key"],
            entry.public["question"],
            to_float(units),
        )
        for entry, units in ledger.charges(person)
    )
    watches = ledger.entries("watched")
    watched = tuple(
        Line(entry.number, entry.public["time"], "", None, "", {"ask": "watch"}, to_float(entry.public["units"]))
        for entry in watches
    )
    lines = tuple(sorted((*lines, *watched), key=lambda line: line.number))
    rho = to_float(ledger.spent(person) + sum(int(entry.public["units"]) for entry in watches))
    budget = to_float(ledger.budget_units)
    return Statement(lines, rho, budget, zcdp.Zcdp(budget).epsilon(delta=delta), delta)
