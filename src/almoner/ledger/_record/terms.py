"""Terms of a ledger, as people write them and as its first entry says them: who may spend how much, and their names.

What is counted in a ledger depends on its budget:

    filters.Zcdp      rho, of noise that is rho-zCDP
    filters.Gaussian  rho = mu squared / 2, of rounded Gaussian noise only, which is mu-GDP
    filters.Basic     epsilon, of Laplace noise, with delta = 0
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from math import inf, nextafter, sqrt
from numbers import Integral
from typing import Any, Self

from almoner import _check
from almoner._spelling import EXACT, SPELLINGS, spelled
from almoner._units import MEASURE, RANGE, exact, to_float
from almoner.accounting import meaning
from almoner.curves import approximate, gaussian, tradeoff, zcdp
from almoner.errors import ArgumentError, LedgerError, UnknownPerson, Unsupported
from almoner.filters import Basic, Gaussian, Zcdp
from almoner.ledger._names import Person
from almoner.ledger._payment import exceeded
from almoner.ledger._periods import Periods

ZCDP, GAUSSIAN, PURE = "zCDP rho", "Gaussian rho", "epsilon"  # in first entries; Gaussian rho is mu squared / 2
LedgerBudget = Zcdp | Gaussian | Basic  # the budgets that a ledger may be made for
NAMES = {"BIGINT": "whole numbers", "VARCHAR": "text"}  # kinds of people's names, in words
_LEFT_OUT = {"keys_delta": None, "pseudonyms": None, "spelling": EXACT}  # which a first entry does not say


@dataclass(frozen=True, slots=True)
class Terms:
    """Terms on which a ledger is made, and with which it is opened: None for whatever it was made for. Public.

    Args:
        budget: what each person may spend: a fresh ``filters.Zcdp`` or ``filters.Gaussian``, or a ``filters.Basic``
            with delta = 0.
        person: how people are named: BIGINT (whole numbers) or VARCHAR (text); a session takes it from its data.
        keys_delta: what all questions for ``Keys`` together may cost in delta, beside the budget: all answers together
            keep what the budget promises but for this probability. Without it no keys can be asked for.
        periods: each of which brings every person a budget.
        spelling: which spellings of a text name one person: "exact" (letter by letter; so it is where nothing is
            given), "nfc" (Unicode's normal form C) or "caseless" (the same, and capital letters are small ones).
        datasets: that are declared, by name, each as the arguments of ``Ledger.dataset``: {"visits": {"person": "who",
            "columns": {"hours": {"low": 0, "high": 24}}}}.
        limits: of analysts and purposes, shares of each person's budget: {"analyst:ann": 0.1, "purpose:care": 0.5}.

    The first five are fixed when a ledger is made; data sets and limits are put in force where they are not so yet.
    """

    budget: LedgerBudget | None = None
    person: str | None = field(default=None, kw_only=True)
    keys_delta: float | None = field(default=None, kw_only=True)
    periods: Periods | None = field(default=None, kw_only=True)
    spelling: str | None = field(default=None, kw_only=True)
    datasets: Mapping[str, Mapping[str, Any]] = field(default_factory=dict, kw_only=True)
    limits: Mapping[str, float] = field(default_factory=dict, kw_only=True)

    def __post_init__(self) -> None:
        if self.spelling is not None:
            _check.one_of(tuple(SPELLINGS), spelling=self.spelling)
            if self.spelling != EXACT and self.person == "BIGINT":
                raise ArgumentError(f"spelling={self.spelling!r} is for people named by text, not by whole numbers")
        if self.periods is not None and not isinstance(self.periods, Periods):
            raise ArgumentError(f"periods={self.periods!r} must be a ledger.Periods")
        if self.periods is not None and self.keys_delta is not None:
            raise Unsupported("keys_delta with periods: what several periods of a person add to a delta is not proven")
        _check.given(_check.between, 0, 1, keys_delta=self.keys_delta)
        if self.keys_delta is not None and isinstance(self.budget, Basic):
            raise ArgumentError(f"keys_delta={self.keys_delta!r}: a pure budget has delta = 0; use Zcdp or Gaussian")
        _check.given(_check.one_of, tuple(NAMES), person=self.person)
        for scope, share in self.limits.items():
            if scope.partition(":")[0] not in ("analyst", "purpose"):
                raise ArgumentError(f"limits: {scope!r} must be 'analyst:NAME' or 'purpose:NAME'")
            _check.within(0, 1, **{f"limits[{scope!r}]": share})
        if self.budget is not None:
            _check_budget(self.budget)

    @classmethod
    def of(cls, given: "Terms | LedgerBudget | None") -> "Terms":
        return given if isinstance(given, Terms) else cls(given)


@dataclass(frozen=True, slots=True)
class RecordedTerms:
    """Terms that a ledger was made for. Public.

    Fields:
        budget: of each person, units of the measure; epsilon and delta are as it was given.
        person: how accounts are named: BIGINT or VARCHAR; with periods VARCHAR, or HUGEINT for numbers of units.
        keys_delta: what all questions for keys that are not public may cost in delta; None for no such questions.
        pseudonyms: by which the key of keyed hashes is known; None where people are named as in the data.
        names: with periods, how the data name people: BIGINT or VARCHAR.
    """

    budget: int
    epsilon: float | None
    delta: float | None
    person: str
    measure: str = ZCDP
    keys_delta: float | None = None
    pseudonyms: str | None = None
    periods: Periods | None = None
    names: str = "VARCHAR"
    spelling: str = EXACT

    @classmethod
    def of(cls, terms: Terms) -> Self:
        """The terms of a new ledger; a LedgerError where something is missing."""
        if terms.budget is None or terms.person is None:
            raise LedgerError(
                "a ledger that is not there cannot be made without a budget and a kind of names: "
                'terms=Terms(filters.Zcdp(rho=0.1), person="VARCHAR")',
                reason="missing",
            )
        measure, units = counted(terms.budget)
        amounts = (units, terms.budget.notion.epsilon, terms.budget.delta)
        made = cls(*amounts, terms.person, measure, terms.keys_delta, spelling=terms.spelling or EXACT)
        if terms.periods is None:
            return made
        return replace(made, person="VARCHAR", periods=terms.periods, names=terms.person)

    @classmethod
    def read(cls, public: Mapping[str, Any]) -> Self:
        delta, measure = public["delta"], public["measure"]
        if measure not in (ZCDP, GAUSSIAN, PURE):
            raise ValueError(f"measure {measure!r} is not known")
        said = {name: public[name] for name in _LEFT_OUT if name in public} | {"measure": measure}
        if "periods" in public:
            said |= {"periods": Periods.read(public["periods"]), "names": str(public["periods"]["names"])}
        amounts = (int(public["budget"]), public.get("epsilon"), None if delta is None else float(delta))
        return cls(*amounts, str(public["person"]), **said)

    @property
    def public(self) -> dict[str, object]:
        said = {name: getattr(self, name) for name in ("measure", "budget", "epsilon", "delta", "person")}
        said |= {name: value for name, default in _LEFT_OUT.items() if (value := getattr(self, name)) != default}
        if self.periods is not None:
            said["periods"] = {**self.periods.public, "names": self.names}
        return {"kind": "opened", "units": MEASURE, **said}

    @property
    def symbol(self) -> str:
        return PURE if self.measure == PURE else "rho"

    @property
    def whole(self) -> zcdp.Zcdp | gaussian.Gaussian | approximate.Approximate:
        """The guarantee of the whole budget, rounded up; without what keys may cost beside it."""
        total = to_float(self.budget)
        if self.measure == ZCDP:
            return zcdp.Zcdp(total)
        if self.measure == GAUSSIAN:
            return gaussian.Gaussian(nextafter(sqrt(to_float(2 * self.budget)), inf))
        return approximate.Approximate(total, 0.0)

    @property
    def data_names(self) -> str:
        """Type of people's names in the data: BIGINT or VARCHAR."""
        return self.person if self.periods is None else self.names

    def refuse_beyond_budget(self, price: int) -> None:
        """Refuse a question that costs more than the whole budget, in units."""
        if price > self.budget:
            raise exceeded(price, self.budget, self.budget, self.symbol)

    def promise(self, delta: float) -> float:
        if self.keys_delta is not None:
            delta = to_float(exact(delta) - exact(self.keys_delta), per=1, down=True)
            if not delta > 0:
                return inf
        whole = self.whole
        return whole.epsilon if isinstance(whole, approximate.Approximate) else whole.epsilon(delta=delta)

    def meaning(self) -> meaning.Meaning:
        return _meaning(self._together())

    def _together(self) -> "RecordedTerms":
        """These terms with one budget for good, as large as those of all periods together."""
        if self.periods is None:
            return self
        count = self.periods.count
        return replace(self, budget=self.budget * (count if self.measure == PURE else count**2), periods=None)

    def lifetime(self, delta: float) -> float:
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

    def refuse_other(self, name: str, terms: Terms) -> None:
        """Refuse to open a ledger of these terms for other ones; None in them is whatever it was made for."""
        measure, units = (self.measure, self.budget) if terms.budget is None else counted(terms.budget)
        fields = [(each, getattr(self, each), getattr(terms, each)) for each in ("periods", "keys_delta", "spelling")]
        differ = [f"{each}={own!r}, not {value!r}" for each, own, value in fields if value not in (None, own)]
        other = differ[0] if differ else None
        if measure != self.measure:
            other = f"a budget that counts {self.measure}, not {measure}"
        elif units != self.budget:
            own, new = to_float(self.budget), to_float(units)
            other = f"a budget of {self.symbol} = {own:.9g} for each person, not {new:.9g}"
        elif terms.person not in (None, self.data_names):
            other = f"person={self.data_names!r}, names that are {NAMES.get(self.data_names)}, "
            other += f"not {terms.person!r}, {NAMES.get(terms.person)}: cast the column in a view"
        if other is not None:
            raise ArgumentError(f"{name} was made for {other}")


@lru_cache(maxsize=16)  # each statement says it
def _meaning(terms: RecordedTerms) -> meaning.Meaning:
    if terms.keys_delta is None:
        return meaning.of(terms.whole)
    return meaning.of(tradeoff.of(terms.whole).with_failures(terms.keys_delta))


def _check_budget(budget: object) -> None:
    if not isinstance(budget, LedgerBudget) or budget.count:
        rule = "a fresh filters.Gaussian, pure filters.Basic or filters.Zcdp; for example `filters.Zcdp(rho=1.0)`"
        raise ArgumentError(f"budget={budget!r} must be {rule}")
    budget.refuse_if_given()
    if isinstance(budget, Basic) and budget.delta:
        raise ArgumentError(f"budget={budget!r} must have delta=0; filters.Gaussian makes more of a delta")
    measure, units = counted(budget)
    symbol = measure.removeprefix("zCDP ")
    if not units:
        raise ArgumentError(f"budget={budget!r} is less than 1e-15 of {symbol}, which no question costs")
    if units >= RANGE:
        raise ArgumentError(f"budget={budget!r} must be below {RANGE / MEASURE:g} of {symbol}")


def counted(budget: LedgerBudget) -> tuple[str, int]:
    """The measure in which a budget is counted, and its units there, rounded down."""
    units = budget.notion.person_limits()[0]
    if isinstance(budget, Gaussian):
        return GAUSSIAN, units // 2  # of mu squared / 2
    return (ZCDP if isinstance(budget, Zcdp) else PURE), units
