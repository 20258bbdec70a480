"""Terms that a ledger was made for, as its first entry says them: what they promise, and how accounts are named."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from math import inf, nextafter, sqrt
from numbers import Integral
from typing import Any, Self

from almoner._spelling import EXACT, spelled
from almoner._units import MEASURE, exact, to_float
from almoner.accounting import meaning
from almoner.curves import approximate, gaussian, tradeoff, zcdp
from almoner.errors import ArgumentError, LedgerError, UnknownPerson
from almoner.ledger._names import Person
from almoner.ledger._record.periods import Periods
from almoner.ledger._record.terms import GAUSSIAN, NAMES, PURE, ZCDP, Terms, counted, exceeded

__all__ = ["TABLES", "RecordedTerms"]

TABLES = "tables"
"""The place of accounts where the terms say nothing else."""


@dataclass(frozen=True, slots=True)
class RecordedTerms:
    """Terms that a ledger was made for. Public.

    Fields:
        budget: of each person, units of the measure.
        epsilon, delta: as the budget was given, if it was given so.
        person: how accounts are named: BIGINT or VARCHAR; with periods VARCHAR, or HUGEINT for numbers of units.
        accounts: how accounts are kept.
        measure: what is counted.
        keys_delta: what all questions for keys that are not public may cost in delta; None for no such questions.
        pseudonyms: by which the key of keyed hashes is known; None where people are named as in the data.
        periods: each of which brings everybody a budget; None: there is one for good.
        names: with periods, how the data name people: BIGINT or VARCHAR.
        spelling: which spellings of a text name one person: exact, nfc or caseless.
    """

    budget: int
    epsilon: float | None
    delta: float | None
    person: str
    accounts: str = TABLES
    measure: str = ZCDP
    keys_delta: float | None = None
    pseudonyms: str | None = None
    periods: Periods | None = None
    names: str = "VARCHAR"
    spelling: str = EXACT

    @classmethod
    def of(cls, terms: Terms, accounts: str) -> Self:
        """The terms of a new ledger, whose accounts are kept so.

        Raises:
            LedgerError: a budget and a kind of names are missing.
        """
        if terms.budget is None or terms.person is None:
            raise LedgerError(
                "a ledger that is not there cannot be made without a budget and a kind of names: "
                'terms=Terms(filters.Zcdp(rho=0.1), person="VARCHAR")',
                reason="missing",
            )
        measure, units = counted(terms.budget)
        amounts = (units, terms.budget.notion.epsilon, terms.budget.delta)
        made = cls(*amounts, terms.person, accounts, measure, terms.keys_delta, spelling=terms.spelling or EXACT)
        if terms.periods is None:
            return made
        return replace(made, person="VARCHAR", periods=terms.periods, names=terms.person)

    @classmethod
    def read(cls, public: Mapping[str, Any]) -> Self:
        """The terms that a first entry says."""
        delta = public["delta"]
        accounts = str(public.get("accounts", TABLES))
        measure = str(public.get("measure", ZCDP))
        if measure not in (ZCDP, GAUSSIAN, PURE):
            raise ValueError(f"measure {measure!r} is not known")
        return cls(
            int(public["budget"]),
            public.get("epsilon"),
            None if delta is None else float(delta),
            str(public["person"]),
            accounts,
            measure,
            None if public.get("keys_delta") is None else float(public["keys_delta"]),
            public.get("pseudonyms"),
            Periods.read(public["periods"]) if "periods" in public else None,
            str(public["periods"]["names"]) if "periods" in public else "VARCHAR",
            str(public.get("spelling", EXACT)),
        )

    @property
    def public(self) -> dict[str, object]:
        """The public part of a first entry."""
        return {
            "kind": "opened",
            "measure": self.measure,
            "units": MEASURE,
            "budget": self.budget,
            "epsilon": self.epsilon,
            "delta": self.delta,
            "person": self.person,
            **({} if self.accounts == TABLES else {"accounts": self.accounts}),
            **({} if self.keys_delta is None else {"keys_delta": self.keys_delta}),
            **({} if self.pseudonyms is None else {"pseudonyms": self.pseudonyms}),
            **({} if self.periods is None else {"periods": {**self.periods.public, "names": self.names}}),
            **({} if self.spelling == EXACT else {"spelling": self.spelling}),
        }

    @property
    def symbol(self) -> str:
        """Of the measure: rho or epsilon."""
        return PURE if self.measure == PURE else "rho"

    @property
    def data_names(self) -> str:
        """Type of people's names in the data: BIGINT or VARCHAR."""
        return self.person if self.periods is None else self.names

    def refuse_beyond_budget(self, price: int) -> None:
        """Refuse a question that costs more than the whole budget, in units."""
        if price > self.budget:
            raise exceeded(price, self.budget, self.budget, self.symbol)

    def promise(self, delta: float) -> float:
        """The epsilon, rounded up, that the whole budget promises at delta.

        Where questions for keys may cost a delta of their own, it is taken off first: infinite where nothing is left.

        Guarantee: all that is charged within the budget is together (epsilon, delta)-DP.
        Source: theory 3.2 (zCDP), 3.3 (Gaussian), 4.5 (pure); docs/proofs/unknown-keys.md, Theorem 2.
        """
        total = to_float(self.budget)
        if self.keys_delta is not None:
            delta = to_float(exact(delta) - exact(self.keys_delta), per=1, down=True)
            if not delta > 0:
                return inf
        if self.measure == ZCDP:
            return zcdp.Zcdp(total).epsilon(delta=delta)
        if self.measure == GAUSSIAN:
            mu = nextafter(sqrt(to_float(2 * self.budget)), inf)
            return float(gaussian.epsilon(mu, delta=delta))
        return total

    def meaning(self) -> meaning.Meaning:
        """Bounds on how well anyone can tell whether a person was in, by all that budgets of all periods pay for."""
        return _meaning(self._together())

    def _together(self) -> "RecordedTerms":
        """These terms with one budget for good, as large as those of all periods together."""
        if self.periods is None:
            return self
        count = self.periods.count
        return replace(self, budget=self.budget * (count if self.measure == PURE else count**2), periods=None)

    def lifetime(self, delta: float) -> float:
        """The epsilon, rounded up, that the budgets of all periods together promise at delta.

        Guarantee: all that is charged is together (epsilon, delta)-DP for adding or removing a person with all rows.
        Source: docs/proofs/periods.md, Theorem 2.
        """
        return self._together().promise(delta)

    def accounts_named(self, people: Sequence[object]) -> list[Person]:
        """The names of accounts: people as the ledger keeps them, with periods each of them in one."""
        if self.periods is None:
            return self._names(people, self.person)
        return [self._name_in_period(person, self.periods) for person in people]

    def _name_in_period(self, person: object, periods: Periods) -> Person:
        if isinstance(person, str) and (period := periods.period_of(person)) is not None:
            who = person.removesuffix(f" {period}")
            (name,) = self._names([who], self.names)
            if self.names == "VARCHAR" or str(name) == who:
                return f"{name} {period}"
        raise UnknownPerson("person: here each person has an account for each period: 'NAME FIRST-DAY-OF-THE-PERIOD'")

    def names_of(self, person: object) -> list[Person]:
        """The names of all accounts of a person: one, or one for each period."""
        if self.periods is None:
            return self.accounts_named([person])
        return list(self.periods.units_of(str(self._names([person], self.names)[0])))

    def _names(self, people: Sequence[object], kind: str) -> list[Person]:
        names = [self._name(person, kind) for person in people]
        return names if self.spelling == EXACT else list(spelled(self.spelling, [str(name) for name in names]))

    def _name(self, person: object, kind: str) -> Person:
        if kind == "VARCHAR":
            if isinstance(person, str) and person == person.encode(errors="ignore").decode():
                return person
        elif isinstance(person, Integral | str) and not isinstance(person, bool):
            digits = str(person)
            if len(digits) <= 20 and digits.removeprefix("-").isdecimal() and -(2**63) <= int(digits) < 2**63:
                return int(digits)
        bits = " of 64 bits" if kind == "BIGINT" else ""
        raise UnknownPerson(f"person: people are named by {NAMES[kind]}{bits} here")

    def refuse_other(self, name: str, terms: Terms, *, accounts: str | None = None) -> None:
        """Refuse to open a ledger of these terms for other ones.

        Args:
            name: of the ledger.
            terms: that are wanted; None in them is whatever the ledger was made for.
            accounts: how accounts are kept there.
        """
        measure, units = (self.measure, self.budget) if terms.budget is None else counted(terms.budget)
        person, other = terms.person, None
        if measure != self.measure:
            other = f"a budget that counts {self.measure}, not {measure}"
        elif units != self.budget:
            own, new = to_float(self.budget), to_float(units)
            other = f"a budget of {self.symbol} = {own:.9g} for each person, not {new:.9g}"
        elif person not in (None, self.data_names):
            other = f"person={self.data_names!r}, names that are {NAMES.get(self.data_names)}, "
            other += f"not {person!r}, {NAMES.get(str(person))}: cast the column in a view"
        given = {field: getattr(terms, field) for field in ("periods", "keys_delta", "spelling")} | {
            "accounts": accounts
        }
        for field, value in given.items():
            if other is None and value not in (None, getattr(self, field)):
                other = f"{field}={getattr(self, field)!r}, not {value!r}"
        if other is not None:
            raise ArgumentError(f"{name} was made for {other}")


@lru_cache(maxsize=16)  # each statement says it
def _meaning(terms: RecordedTerms) -> meaning.Meaning:
    total = to_float(terms.budget)
    promise: object = approximate.Approximate(total, 0.0)
    if terms.measure == ZCDP:
        promise = zcdp.Zcdp(total)
    elif terms.measure == GAUSSIAN:
        promise = gaussian.Gaussian(nextafter(sqrt(to_float(2 * terms.budget)), inf))
    if terms.keys_delta is None:
        return meaning.of(promise)
    return meaning.of(tradeoff.of(promise).with_failures(terms.keys_delta))
