"""Rules that the record puts in force: limits, reservations, watches, who left; and what they leave to a question.

This is the one place that reads the kinds of entries in their order. Charging, checking, charging again and statements
all use it.
"""

import json
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from functools import partial
from itertools import groupby
from typing import Any, NamedTuple, Self
from unicodedata import normalize

from almoner import _check
from almoner._units import exact, to_float
from almoner.errors import ArgumentError, BudgetExceeded
from almoner.ledger._names import Person
from almoner.ledger._payment import Charge, Payment, Share, exceeded
from almoner.ledger._record.datasets import Dataset
from almoner.ledger._record.entries import START, Entry, Row, Run, read_rows
from almoner.ledger._record.terms import PURE, RecordedTerms
from almoner.ledger._record.watch import Watch

CHARGING = ("answered", "training", "settled", "update", "merged")  # charge, give back, or stand for such entries
EVERYTHING = ""  # the scope of a watch over all questions


class Earmark(NamedTuple):
    """Units set aside for a question to come, and whose: {"analyst": ..., "purpose": ...}, each where given."""

    units: int
    whose: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class ConsumerState:
    """A training or a stream as the record has it. Every field is public, but the claim and the order.

    Attributes:
        kind: "training", which reserves for people and is settled; or "stream", each of whose updates charges people.
        key, analyst, purpose: what it is called, whose limits it is under, and what for.
        number, hash, time: of the entry that began it.
        described: what its trainer said of it.
        units: the most that a training reserved for a person; 0 of a stream.
        state: "open"; of a training also "settled" or "written off".
        model: the digest of a training's numbers, once it is settled.
        updates: how many a stream made.
        last: the public part of the entry of the last update; None where there is none.
        claim: what the process knows that may go on with it; None once it is over.
        order: the digest of a training's people, in their order.
    """

    kind: str
    key: str
    analyst: str
    purpose: str | None
    number: int
    hash: str
    time: str
    described: Mapping[str, Any]
    units: int = 0
    state: str = "open"
    model: str | None = None
    updates: int = 0
    last: Mapping[str, Any] | None = None
    claim: str | None = field(default=None, repr=False)
    order: str | None = field(default=None, repr=False)

    @property
    def record(self) -> str:
        return f"{self.number}:{self.hash}"

    @property
    def reserves(self) -> bool:
        """True if it is a training that may still be settled."""
        return self.kind == "training" and self.state == "open"

    @classmethod
    def begun(cls, entry: Entry) -> Self:
        public, private = entry.public, entry.private
        begun = str(public["key"]), str(public["analyst"]), public["purpose"], entry.number, entry.hash
        more: dict[str, Any] = {"claim": str(private["claim"]), "order": private.get("order")}
        return cls(entry.kind, *begun, str(public["time"]), public[entry.kind], int(public.get("price", 0)), **more)


class Watched(NamedTuple):
    """A watch, and the entry that began it. Private, because of the threshold's noise."""

    watch: Watch
    entry: Entry


class Allowance(NamedTuple):
    """The most that each person may have spent after a question: in all, and on each limited scope; units, public."""

    most: int
    shares: tuple[Share, ...]

    @property
    def least(self) -> int:
        return min([self.most, *(share.most for share in self.shares)])


Places = tuple[int, int]  # first and last period that a question can be about, by place in the ledger's list


class HighestCharge:
    """The most units that any account of each period can have been charged, by runs of periods with one number."""

    __slots__ = ("runs",)

    def __init__(self) -> None:
        self.runs: list[tuple[int, int]] = [(0, 0)]
        """(first place, units) of each run, in order: up to the place where the next one begins."""

    def most(self, places: Places | None = None) -> int:
        """The highest over these periods; over all for None."""
        return max(units for _, units in self._within(places))

    def charge(self, places: Places | None, after: Callable[[int], int]) -> None:
        """Follow a question about these periods, or all; ``after``: the most of those who had so much, or less."""
        if places is None:
            self.runs = [(start, after(units)) for start, units in self.runs]
            return
        first, beyond = places[0], places[1] + 1
        low, high = max(0, self._next(first - 1) - 1), self._next(beyond)
        before = [run for run in self.runs[low : low + 1] if run[0] < first]
        runs = [*before, *((start, after(units)) for start, units in self._within(places)), (beyond, self.at(beyond))]
        self.runs[low:high] = [next(same) for _, same in groupby(runs, key=lambda run: run[1])]

    def at(self, place: int) -> int:
        return self.runs[self._next(place) - 1][1]

    def or_all_of(self, parts: "Sequence[HighestCharge]") -> "HighestCharge":
        """In each period the lower of this bound and the sum of others, which bound the parts of what is charged."""
        least = HighestCharge()
        starts = sorted({start for each in (self, *parts) for start, _ in each.runs})
        runs = [(start, min(self.at(start), sum(each.at(start) for each in parts))) for start in starts]
        least.runs = [next(same) for _, same in groupby(runs, key=lambda run: run[1])]
        return least

    def _within(self, places: Places | None) -> list[tuple[int, int]]:
        """The runs from the first to the last of these places; they begin there at the earliest."""
        if places is None:
            return self.runs
        first, last = places
        return [(first, self.at(first)), *self.runs[self._next(first) : self._next(last)]]

    def _next(self, place: int) -> int:
        """Which run is the first that begins after a place."""
        return bisect_right(self.runs, place, key=lambda run: run[0])


class Rules:
    """The state that the entries of a record lead to, read one by one in order. Private, because of ``gone``.

    Fields:
        asked: by scope, limited or not, the numbers of its questions; of trainings, of both reserving and giving back.
        consumers: trainings and streams by key, in the order in which they began. Private, because of the claims.
        erased: the people who were erased, with the number of the last entry that did it. Private.
        merged: by analyst and purpose, the last entry whose charges were merged with others.
        settled: for each entry that gave back, the number of the entry that had reserved.
        watches, spoke: by scope, "" for all questions, the watch and its entry; and those that spoke.
        charged: the most units, by what is public, that a person can have been charged in a period: ``charged_in_all``.
        charged_by_scope: the same in each scope; of a person who came back after an erasure, the whole total in each.
    """

    terms: RecordedTerms

    def __init__(self) -> None:
        self.number, self.hash = -1, START
        self.keys: set[str] = set()
        self.limits: dict[str, int] = {}
        self.earmarked: dict[str, Earmark] = {}
        self.asked: dict[str, list[int]] = {}
        self.consumers: dict[str, ConsumerState] = {}
        self.settled: dict[int, int] = {}
        self.erased: dict[Person, int] = {}
        self.merged: dict[tuple[str, str | None], int] = {}
        self.watches: dict[str, Watched] = {}
        self.spoke: set[str] = set()
        self.gone: set[Person] = set()
        self.witness: str | None = None
        self.delta = Fraction(0)
        self.charged = HighestCharge()
        self.charged_by_scope: dict[str, HighestCharge] = {}
        self.came_back = False
        self.datasets: dict[str, Dataset] = {}

    @classmethod
    def of(cls, rows: Iterable[Row]) -> Self:
        rules = cls()
        for row in rows:
            rules.read(row)
        return rules

    def read(self, row: Row) -> None:
        """Take in the next entry. Of an answer's public part only the terms are read: price, pace, periods."""
        if row.key is not None:
            self.keys.add(row.key)
        if row.kind in CHARGING:
            for scope in _scopes(str(row.analyst), row.purpose):
                self.asked.setdefault(scope, []).append(row.number)
        if row.kind in ("answered", "training", "update"):
            self._charge(row)
            if row.kind == "training":
                self.consumers[str(row.key)] = ConsumerState.begun(row.entry(private=True))
            if row.kind == "update":
                public = json.loads(row.public)
                self._follow(public["stream"], updates=int(public["update"]), last=public)
            if row.reserved is not None:
                self.earmarked.pop(row.reserved, None)
        else:
            self._read(row.entry(private=True))
        self.number, self.hash = row.number, row.hash

    def _charge(self, row: Row) -> None:
        """Follow what an answer can have cost anybody at most; by its public part and what was in force before it."""
        terms = json.loads(row.public)
        price, payment = int(terms["price"]), Payment(terms.get("pace"))
        allowance = self.allowance(analyst=str(row.analyst), purpose=row.purpose, reserved=row.reserved)
        limits, price = dict(allowance.shares), min(price, payment.allowed(allowance.least))
        places = self.places(terms.get("periods") if row.kind == "answered" else None)
        self.charged.charge(places, lambda spent: payment.after(spent, allowance.most, price))
        for scope in _scopes(str(row.analyst), row.purpose):
            worst = self.charged_by_scope.setdefault(scope, HighestCharge())
            if scope in limits:
                worst.charge(places, partial(payment.after, most=limits[scope], price=price))
            else:
                worst.charge(places, lambda spent: spent + price)

    def places(self, periods: Sequence[str] | None) -> Places | None:
        """The places of the first and the last period that a question can be about; None for all."""
        if periods is None:
            return None
        if self.terms.periods is None:
            raise ArgumentError(f"periods={periods!r}: this ledger has none")
        first, last = map(self.terms.periods.place_of, periods)
        if first > last:
            raise ArgumentError(f"periods={periods!r} must have the first before the last")
        return first, last

    def _read(self, entry: Entry) -> None:
        public = entry.public
        match entry.kind:
            case "opened":
                self.terms = RecordedTerms.read(public)
            case "limited":
                self.limits[public["scope"]] = int(public["units"])
            case "reserved":
                self.earmarked[public["name"]] = Earmark(int(public["units"]), public.get("whose", {}))
            case "released":
                self.earmarked.pop(public["name"], None)
            case "claimed" | "written off":
                state = "open" if entry.kind == "claimed" else entry.kind
                self._follow(public["training"], state=state, claim=entry.private.get("claim"))
            case "settled":
                self.settled[entry.number] = self.consumers[public["training"]].number
                self._follow(public["training"], state="settled", claim=None, model=public.get("model"))
            case "merged":
                whose = (public["analyst"], public["purpose"])
                self.merged[whose] = max(self.merged.get(whose, -1), int(public["through"]))
            case "retired" | "returned" | "erased":
                self._mark(entry)
            case "stream":
                self.consumers[public["key"]] = ConsumerState.begun(entry)
            case "watched":
                self.watches[public.get("scope", EVERYTHING)] = Watched(Watch.recorded(public, entry.private), entry)
            case "dataset":
                self.datasets[public["dataset"]] = Dataset.read(public, entry.number)
            case "delta":
                self.delta += exact(public["delta"])
            case "witnessed":
                self.witness = public["where"]
            case "spoke":
                self.spoke.add(public.get("scope", EVERYTHING))

    def _follow(self, key: str, **changed: Any) -> None:
        self.consumers[key] = replace(self.consumers[key], **changed)

    def _mark(self, entry: Entry) -> None:
        person = entry.private["person"]
        if entry.kind == "returned":
            self.gone.discard(person)
            self.came_back |= bool(self.erased)
        else:
            self.gone.add(person)
        if entry.kind == "erased":
            self.erased[person] = entry.number

    @property
    def chargeable(self) -> int:
        """The budget without what watches took of it, units."""
        return self.terms.budget - sum(watched.watch.price(self.terms.measure) for watched in self.watches.values())

    def watching(self, analyst: str, purpose: str | None) -> dict[str, Watch]:
        """The watches over a question, by scope: that over all questions, its analyst's and its purpose's."""
        scopes = [EVERYTHING, *_scopes(analyst, purpose)]
        return {scope: self.watches[scope].watch for scope in scopes if scope in self.watches}

    def refuse_twin(self, analyst: str) -> None:
        """Refuse a name that was never used, and is another analyst's but for case or spelling: limits go by name."""
        known = {scope for scope in (*self.asked, *self.limits) if scope.startswith("analyst:")}
        if f"analyst:{analyst}" not in known and _folded(f"analyst:{analyst}") in map(_folded, known):
            raise ArgumentError(f"analyst={analyst!r} is in the record already, spelt or capitalised otherwise")

    def set_aside(self, *, but: str | None = None) -> int:
        """Units that are reserved, but for one key."""
        return sum(earmark.units for key, earmark in self.earmarked.items() if key != but)

    def refuse_beyond(self, units: int, charged: int) -> None:
        """Refuse to set more aside than is left beside what is set aside already, and what was charged."""
        left = max(0, self.chargeable - self.set_aside() - charged)
        if units > left:
            raise exceeded(units, self.terms.budget, left, self.terms.symbol)

    def allowance(self, *, analyst: str, purpose: str | None, reserved: str | None) -> Allowance:
        """The most that each person may have spent after a question; it may use what is reserved under its key."""
        shares = [Share(scope, self.limits[scope]) for scope in _scopes(analyst, purpose) if scope in self.limits]
        return Allowance(self.chargeable - self.set_aside(but=reserved), tuple(shares))

    def left(self, allowance: Allowance, places: Places | None = None) -> int:
        """Units that every person has left for a question at least, about these periods: the least over all limits.

        Guarantee: nobody has less in these periods; it is known from the public parts of the record alone.
        Source: docs/proofs/individual-filter.md, "How complete an answer is".
        """
        return min(most - worst.most(places) for most, worst in self._worst(allowance))

    def left_by_period(self, analyst: str, purpose: str | None) -> dict[str, int]:
        """Units, at least 0, that everybody has left for a new question, by the first day of each run of periods."""
        worst = self._worst(self.allowance(analyst=analyst, purpose=purpose, reserved=None))
        starts = sorted({start for _, each in worst for start, _ in each.runs})
        labels = ("",) if self.terms.periods is None else self.terms.periods.labels
        lefts = {place: min(most - each.at(place) for most, each in worst) for place in starts if place < len(labels)}
        return {labels[place]: max(0, units) for place, units in lefts.items()}

    @property
    def charged_in_all(self) -> HighestCharge:
        """The most that any person can have been charged: not more than under every analyst's limit together."""
        by_scope = self.charged_by_scope.items()
        analysts = [worst for scope, worst in by_scope if scope.startswith("analyst:")]
        return self.charged if self.came_back else self.charged.or_all_of(analysts)

    def _worst(self, allowance: Allowance) -> list[tuple[int, HighestCharge]]:
        """For the budget and each limit: the most that may be spent, and the most anybody can have been charged."""
        own, none = self.charged_by_scope, HighestCharge()
        shares = [(most, self.charged if self.came_back else own.get(scope, none)) for scope, most in allowance.shares]
        return [(allowance.most, self.charged_in_all), *shares]

    def allow_delta(self, delta: float) -> None:
        """Refuse a question that costs a delta which is not declared, or not left.

        Guarantee: the deltas of all questions that are answered add up to at most what the ledger declared.
        Source: theory 4.5; docs/proofs/unknown-keys.md, Theorem 2.
        """
        if not delta:
            return
        declared = self.terms.keys_delta
        if self.terms.measure == PURE:
            raise ArgumentError(f"delta={delta!r}: this ledger has a pure budget, which allows no delta for keys")
        if declared is None:
            raise ArgumentError(f"delta={delta!r}: this ledger was made without keys_delta=, so keys must be public")
        left = exact(declared) - self.delta
        if not 0 < exact(delta) <= left:
            rest = to_float(left, per=1, down=True)
            said = f"delta = {delta:.6g} for keys; {rest:.6g} is left of the ledger's keys_delta = {declared:.6g}"
            raise BudgetExceeded(f"this costs {said}", asked=delta, spent=declared - rest, left=rest)

    def admit(
        self,
        price: int,
        payment: Payment,
        *,
        who: tuple[str, str | None],
        spare: int,
        reserved: str | None,
        delta: float,
        periods: Sequence[str] | None,
        anyway: bool,
    ) -> tuple[Allowance, int]:
        """The ``allowance`` of a question and the units that every person can pay; else as ``Transaction.admit``."""
        self.allow_delta(delta)
        analyst, purpose = who
        self.refuse_twin(analyst)
        earmark = None if reserved is None else self.earmarked.get(reserved)
        asks = {"analyst": analyst, "purpose": purpose}
        if reserved is not None and (earmark is None or not earmark.whose.items() <= asks.items()):
            raise ArgumentError(f"reserved={reserved!r} reserves nothing for this analyst and purpose")
        allowance = self.allowance(analyst=analyst, purpose=purpose, reserved=reserved)
        if price + spare > allowance.least:
            raise exceeded(price + spare, self.terms.budget, allowance.least, self.terms.symbol)
        if earmark is not None and price > earmark.units:
            raise exceeded(price, earmark.units, earmark.units, self.terms.symbol)
        left = self.left(allowance, self.places(periods)) - spare
        floor = payment.floor(left, price)
        if floor < price and not anyway and not self.watching(analyst, purpose):
            payment.refuse_uncertain(left, price, self.terms.budget, self.terms.symbol)
        return allowance, floor


class Answered(NamedTuple):
    """An entry that charges people, and what was in force before it. Private, because of ``gone``.

    Fields:
        entry: a question's; or a training's, where it reserved or settled.
        allowance: the most that each person may have spent after it.
        gone: the people who had left.
        left: units that every person had left for it at least, by what is public; see ``Rules.left``.
    """

    entry: Entry
    allowance: Allowance
    gone: frozenset[Person]
    left: int


def history(rows: Iterable[Row]) -> Iterator[Answered]:
    """Every entry that charged people or gave something back, in order, with what was in force before it."""
    rules = Rules()
    for row in rows:
        if row.kind in CHARGING:
            allowance = rules.allowance(analyst=str(row.analyst), purpose=row.purpose, reserved=row.reserved)
            entry, gone = row.entry(private=True), frozenset(rules.gone)
            places = rules.places(entry.public.get("periods") if entry.kind == "answered" else None)
            yield Answered(entry, allowance, gone, rules.left(allowance, places))
        rules.read(row)


def net_charges(run: Run, charges: Mapping[Person, Sequence[Charge]]) -> dict[Person, list[tuple[Entry, int]]]:
    """Entries that charged these people, with the units in the end: what a training gave back is below 0. Private."""
    charged = {name: dict(listed) for name, listed in charges.items()}
    listed = ", ".join(f"{number:d}" for number in sorted({n for each in charged.values() for n in each})) or "-1"
    entries = [row.entry() for row in read_rows(run, f"number IN ({listed})")]
    for entry in entries:
        for units in charged.values():
            if entry.kind == "settled" and entry.number in units:
                units[int(entry.public["of"])] += units[entry.number]
    remain = [entry for entry in entries if entry.kind != "settled"]
    return {
        name: [(entry, units[entry.number]) for entry in remain if entry.number in units]
        for name, units in charged.items()
    }


def scope_of(analyst: str | None, purpose: str | None) -> str:
    """The scope under which the limit of an analyst, or of a purpose, is filed."""
    if (analyst is None) == (purpose is None):
        raise ArgumentError("give either analyst= or purpose=")
    kind, name = ("analyst", analyst) if purpose is None else ("purpose", purpose)
    _check.name(**{kind: name})
    return f"{kind}:{name}"


def _folded(name: str) -> str:
    """One spelling for names that differ by case, blanks around them, or by how Unicode spells them."""
    return normalize("NFKC", normalize("NFKC", name).casefold()).strip()


def _scopes(analyst: str, purpose: str | None) -> list[str]:
    return [f"analyst:{analyst}", *([] if purpose is None else [f"purpose:{purpose}"])]
