"""What was spent on one person, for that person. Everything here is private."""

from collections import Counter
from dataclasses import dataclass
from typing import Any

from bursar import _check
from bursar._units import as_float, exact, shown, to_float
from bursar.ledger import Entry, Ledger
from bursar.meaning import sentence

__all__ = ["Line", "Statement", "statement"]


@dataclass(frozen=True, slots=True, repr=False)
class Line:
    """A question, training or model update that charged a person. Private: rho is a function of that person's data."""

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
    guess: float = 1.0
    """How often a guess whether the person's records were used is right at most, from all that the budget pays for."""

    def __repr__(self) -> str:
        return "Statement(private: print it for the person it is about, and for no other person)"

    def __str__(self) -> str:
        return self.words

    @property
    def words(self) -> str:
        """The statement as text for that person."""
        kinds = Counter(
            line.question["ask"] for line in self.lines if line.analyst or line.question["ask"] == "earlier"
        )
        trained, updates = kinds.pop("training", 0), kinds.pop("update", 0)
        earlier = "Besides earlier uses, of which the sum alone is kept, " if kinds.pop("earlier", 0) else ""
        told = [(kinds.total(), "answer"), (trained, "training"), (updates, "model update")]
        used = earlier + " and ".join(_counted(*each) for place, each in enumerate(told) if each[0] or not place)
        rho, budget, epsilon, delta = (shown(each, 6) for each in (self.rho, self.budget, self.epsilon, self.delta))
        share = shown(100 * self.rho / self.budget, 3)
        return (
            f"{used} used your records. They used {share} % of your budget, which will never be exceeded. "
            f"{sentence(self.guess)} (In technical terms: {self.symbol} = {rho} of {budget}; the budget is "
            f"({epsilon}, {delta})-differential privacy.)"
        )


def statement(ledger: Ledger, person: object, *, delta: float | None = None) -> Statement:
    """Every question, training and update that charged a person, the total, and what it means. Private."""
    if delta is None:
        delta = as_float(exact(ledger.delta or 1e-6) + exact(ledger.keys_delta or 0))
    _check.between(0, 1, delta=delta)
    charged = ledger.charges(person)
    lines = [_line(entry, units) for entry, units in charged]
    watched = ledger.watched()
    lines += [_line(entry, int(entry.public["units"])) for entry in watched]
    lines.sort(key=lambda line: line.number)
    rho = to_float(ledger.spent(person) + sum(int(entry.public["units"]) for entry in watched))
    budget = to_float(ledger.budget_units)
    return Statement(tuple(lines), rho, budget, ledger.promise(delta), delta, ledger.symbol, ledger.meaning().guess())


def _counted(number: int, what: str) -> str:
    """A number of things in words."""
    return f"1 {what}" if number == 1 else f"{number} {what}s"


def _line(entry: Entry, units: int) -> Line:
    """A question, a training, or the watch, which is no analyst's."""
    public = entry.public
    asked = public.get("question", {"ask": "watch"})
    if entry.kind == "training":
        asked = {"ask": "training", **public["training"]}
    key = public.get("key", "")
    if entry.kind in ("merged", "erased"):
        asked = {"ask": "earlier", "through": public.get("through", entry.number)}
    if entry.kind == "update":
        asked, key = {"ask": "update", "stream": public["stream"]}, f"{public['stream']}: update {public['update']}"
    names = public.get("analyst", ""), public.get("purpose"), key
    return Line(entry.number, public["time"], *names, asked, to_float(units))
