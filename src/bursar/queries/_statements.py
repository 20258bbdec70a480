"""What was spent on one person, for that person. Everything here is private."""

from dataclasses import dataclass
from typing import Any

from bursar import _check
from bursar._units import as_float, exact, shown, to_float
from bursar.ledger import Entry, Ledger

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
    """What it cost this person, in the measure of the ledger: rho, or epsilon for pure budgets."""

    def __repr__(self) -> str:
        return "Line(private: for the person of the statement and for the data holder)"


@dataclass(frozen=True, slots=True, repr=False)
class Statement:
    """What was spent on one person. Private: for that person and the data holder."""

    lines: tuple[Line, ...]
    rho: float
    """In all, rounded up, in the measure of the ledger: rho, or epsilon for pure budgets."""
    budget: float
    """The most that may ever be spent, rounded up."""
    epsilon: float
    """What the budget means at delta."""
    delta: float
    symbol: str = "rho"
    """Of the measure: rho or epsilon."""

    def __repr__(self) -> str:
        return "Statement(private: print it for the person it is about, and for no other person)"

    def __str__(self) -> str:
        return self.words

    @property
    def words(self) -> str:
        """The statement as text for that person."""
        number = sum(bool(line.key) for line in self.lines)
        answers = "1 answer" if number == 1 else f"{number} answers"
        rho, budget, epsilon, delta = (shown(each, 6) for each in (self.rho, self.budget, self.epsilon, self.delta))
        return (
            f"{answers} used your records. They cost {self.symbol} = {rho} of your budget of "
            f"{budget}, which will never be exceeded. So a person who knows all answers that are ever given, and "
            "everything about all other people, can tell whether your records were there only as well as "
            f"(epsilon = {epsilon}, delta = {delta})-differential privacy allows."
        )


def statement(ledger: Ledger, person: object, *, delta: float | None = None) -> Statement:
    """Every question that charged a person, the total, and what it means. Private."""
    if delta is None:
        delta = as_float(exact(ledger.delta or 1e-6) + exact(ledger.keys_delta or 0))
    _check.between(0, 1, delta=delta)
    charged = ledger.charges(person)
    lines = [_line(entry, units) for entry, units in charged]
    watched = ledger.watched()
    watch_units = 0 if watched is None else int(watched.public["units"])
    if watched is not None:
        lines.append(_line(watched, watch_units))
    lines.sort(key=lambda line: line.number)
    rho = to_float(ledger.spent(person) + watch_units)
    budget = to_float(ledger.budget_units)
    return Statement(tuple(lines), rho, budget, ledger.promise(delta), delta, ledger.symbol)


def _line(entry: Entry, units: int) -> Line:
    """A question, or the watch, which is no analyst's."""
    public = entry.public
    asked = public.get("question", {"ask": "watch"})
    names = public.get("analyst", ""), public.get("purpose"), public.get("key", "")
    return Line(entry.number, public["time"], *names, asked, to_float(units))
