"""Statement of what was spent on one person, for that person. Everything here is private."""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from math import isqrt
from typing import Any

from almoner import _check, mechanisms, odometers
from almoner._units import shown, to_float
from almoner.accounting.meaning import sentence
from almoner.ledger import Entry, Ledger, Periods


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
    """The price for this person, in the measure of the ledger: rho, or epsilon for pure budgets."""
    dataset: str | None = None
    """Which data set it was about; None where none was declared then."""

    def __repr__(self) -> str:
        return "Line(private: for the person of the statement and for the data holder)"


@dataclass(frozen=True, slots=True, repr=False)
class Lifetime:
    """Units spent on one person in all periods together, and what they mean. Private."""

    used: tuple[tuple[str, float], ...]
    """Each period in which something was spent, by its first day, and what, in the measure of the ledger."""
    every: str
    rho: float  # of all periods together, rounded up, in the measure of the ledger, for all of the person's records
    epsilon: float  # the epsilon of all spending so far, at the statement's delta: a running bound, which always holds
    at_most: float  # the epsilon at delta of the budgets of all periods together; infinite where nothing is promised

    def __repr__(self) -> str:
        return "Lifetime(private: for the person of the statement and for the data holder)"

    def words(self, share: str) -> str:
        """In words for that person; ``share`` is of the period that used most, in percent."""
        if not self.used:
            return f"Each {self.every} brings you a budget of its own, and none has been used."
        where, most = _counted(len(self.used), self.every), max(self.used, key=lambda each: each[1])[0]
        return (
            f"Each {self.every} brings you a budget of its own, which will never be exceeded. {where} of yours "
            f"{'was' if len(self.used) == 1 else 'were'} used, at most {share} % of it (the {self.every} from {most})."
        )

    @property
    def technical(self) -> str:
        """Meaning of all periods together, for those who know what an epsilon is."""
        epsilon, at_most = shown(self.epsilon, 3), shown(self.at_most, 3)
        return f"all {self.every}s together mean epsilon = {epsilon} so far, and never more than {at_most}"


@dataclass(frozen=True, slots=True, repr=False)
class Statement:
    """Statement of what was spent on one person. Private: for that person and the data holder."""

    lines: tuple[Line, ...]
    rho: float
    """In all, rounded up, in the measure of the ledger: rho, or epsilon for pure budgets."""
    budget: float
    """The most that may ever be spent, rounded up."""
    epsilon: float
    """The epsilon of the budget at delta."""
    delta: float
    symbol: str = "rho"
    """Of the measure: rho or epsilon."""
    guess: float = 1.0
    """The largest chance that a guess whether the person's records were used is right, from all that the budget
    pays for."""
    lifetime: Lifetime | None = None
    """Over all periods; None where there is one budget for good. Then ``rho`` is that of the period that used most."""

    def __repr__(self) -> str:
        return "Statement(private: print it for the person it is about, and for no other person)"

    def __str__(self) -> str:
        return self.words

    @property
    def words(self) -> str:
        """The statement as text for that person."""
        asks = [(line, line.question["ask"]) for line in self.lines]
        kinds = Counter(ask for line, ask in asks if line.analyst or ask == "earlier")
        trained, updates = kinds.pop("training", 0), kinds.pop("update", 0)
        earlier = "Besides earlier uses, of which the sum alone is kept, " if kinds.pop("earlier", 0) else ""
        told = [(kinds.total(), "answer"), (trained, "training"), (updates, "model update")]
        used = earlier + " and ".join(_counted(*each) for place, each in enumerate(told) if each[0] or not place)
        epsilon, delta = shown(self.epsilon, 6), shown(self.delta, 6)
        share = shown(100 * self.rho / self.budget, 3)
        whose = "the budget" if self.lifetime is None else f"the budget of a {self.lifetime.every}"
        they = "It" if sum(number for number, _ in told) == 1 and not earlier else "They"
        spent = f"{they} used {share} % of your budget, which will never be exceeded. {sentence(self.guess)}"
        if self.lifetime is not None:
            spent = f"{self.lifetime.words(share)} {sentence(self.guess)}"
        if not earlier and not any(number for number, _ in told):
            spent = f"If that is a surprise: names count letter by letter, as they are in the data. {spent}"
        together = "" if self.lifetime is None else f"; {self.lifetime.technical}"
        return (
            f"{used} used your records. {spent} "
            "This holds for your whole budget, also for results that are still to come. "
            f"(For specialists: {whose} is ({epsilon}, {delta})-differential privacy{together}.)"
        )


def statement(ledger: Ledger, person: object, *, delta: float | None = None) -> Statement:
    """Every question, training and update that charged a person, the total, and what it means. Private."""
    delta = ledger.stated_delta if delta is None else delta
    _check.between(0, 1, delta=delta)
    accounts = ledger.charges_by_account(person)
    lines = [_line(entry, _revealed(ledger, units)) for entry, units in _by_release(accounts)]
    watched = ledger.watched()
    lines += [_line(entry, int(entry.public["units"])) for entry in watched]
    lines.sort(key=lambda line: line.number)
    set_aside = sum(int(entry.public["units"]) for entry in watched)
    rho = to_float(max(ledger.accounts.spent(list(accounts)).values()) + set_aside)
    budget, guess = to_float(ledger.budget_units), ledger.meaning().guess()
    lifetime = None if ledger.periods is None else _lifetime(ledger, ledger.periods, accounts, delta)
    return Statement(tuple(lines), rho, budget, ledger.promise(delta), delta, ledger.symbol, guess, lifetime)


def _lifetime(
    ledger: Ledger, periods: Periods, accounts: Mapping[int | str, list[tuple[Entry, int]]], delta: float
) -> Lifetime:
    """Sum of a person's accounts of all periods; each may have moved a watch, whether or not it was ever charged.

    Guarantee: at most what is told was revealed about the person with all records.
    Source: docs/proofs/periods.md, Theorems 1 and 3.
    """
    releases = [units for _, units in _by_release(accounts)]
    releases += [[int(entry.public["units"])] * periods.count for entry in ledger.watched()]
    total = sum(_revealed(ledger, units) for units in releases)
    spent = {name: sum(units for _, units in charged) for name, charged in accounts.items()}
    used = tuple((str(periods.period_of(str(name))), to_float(units)) for name, units in spent.items() if units)
    rho = to_float(total)
    if ledger.symbol == "epsilon":
        return Lifetime(used, periods.every, rho, rho, ledger.lifetime(delta))
    so_far = odometers.Renyi(delta=delta)
    if total:
        so_far.charge(mechanisms.Zcdp(rho))
    return Lifetime(used, periods.every, rho, so_far.epsilon() if total else 0.0, ledger.lifetime(delta))


def _by_release(accounts: Mapping[int | str, list[tuple[Entry, int]]]) -> list[tuple[Entry, list[int]]]:
    """Every release that charged a person, in order, with what it charged each of the person's accounts."""
    found: dict[int, tuple[Entry, list[int]]] = {}
    for entry, units in (each for charged in accounts.values() for each in charged):
        number = 0 if entry.kind == "erased" else entry.number  # an erasure has an entry for each account
        found.setdefault(number, (entry, []))[1].append(units)
    return [found[number] for number in sorted(found)]


def _revealed(ledger: Ledger, units: list[int]) -> int:
    """Units that a release can have revealed about all records of a person, of whom it charged several accounts."""
    return sum(units) if ledger.symbol == "epsilon" else together(units)


def together(units: Iterable[int]) -> int:
    """The square of the sum of the roots, rounded up; of one number it is that number.

    Guarantee: not less than (sqrt(a) + sqrt(b) + ...)^2.
    Source: docs/proofs/periods.md, Theorem 1.
    """
    listed = list(units)
    if len(listed) == 1:
        return listed[0]
    scale = 2**64  # roots of whole numbers with 32 bits behind the point, rounded up
    root = sum(isqrt(each * scale - 1) + 1 for each in listed if each)
    return -(-root * root // scale)


def _counted(number: int, what: str) -> str:
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
    return Line(entry.number, public["time"], *names, asked, to_float(units), public.get("dataset"))
