"""Record every release of a run, run it again with the recorded outputs, and compare: what tells of a person?

Everything that the runs make public must follow from what was released, so it must be the same in both.

Names and symbols
    shift         the difference of what noise was added to, in one call; private
    tolerance     by what share of a sensitivity floating-point sums may differ because they are added up otherwise
"""

from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from contextlib import suppress
from copy import deepcopy
from dataclasses import dataclass, field, fields, is_dataclass, replace
from datetime import date
from decimal import Decimal
from enum import Enum
from fractions import Fraction
from math import inf, pi
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from almoner import filters, individual
from almoner._arrays import to_numpy
from almoner._audit_hook import Part
from almoner._units import MEASURE
from almoner.errors import ArgumentError, BudgetExceeded, UnknownPerson, Unsupported
from almoner.mechanisms import DiscreteGaussian, Exponential, Gaussian, Laplace, Repeated, SampledGaussian

T = TypeVar("T")
Array = NDArray[np.float64]
CLOSE = 1e-9  # largest difference, relative and absolute, that rounding may make between two sums of the same charges
ADDITIVE = (filters.Gaussian, filters.Zcdp, filters.RenyiOrder, filters.RenyiCurve, filters.Renyi, filters.Basic)
"""Budgets in which less cost is less spent, whatever came before."""
OTHERWISE = 2  # times what was paid may be spent in other budgets, where prices are by what is left


@dataclass(frozen=True)
class Amount:
    """A person's account as amounts of a measure that adds up. Private.

    Args:
        paid: what the person paid in all.
        budget: the most that the person may pay, public.
        measure: public, as ledgers name it: "zCDP rho", "Gaussian rho" (mu squared / 2), or "epsilon".
        reserved: what was set aside of everybody's budget beside what was paid, such as the price of a watch; public.
    """

    paid: float
    budget: float
    measure: str = "Gaussian rho"
    reserved: float = 0.0

    def __post_init__(self) -> None:
        if self.measure not in _COSTS:
            raise ArgumentError(f"measure={self.measure!r} must be one of {list(_COSTS)}")

    def compared(self) -> "_Sums":
        """A fresh comparison, to which shifts are charged."""
        return _Sums(self)


class _Sums:
    """Adds up what shifts cost in a measure that adds up, and compares with what was paid."""

    def __init__(self, account: Amount) -> None:
        self._account, self.revealed, self._aside = account, 0.0, 0.0

    def charge(self, mechanism: Any, norm: float) -> None:
        """Count a shift of this norm, in the mechanism's own unit and norm, at this mechanism."""
        if hasattr(mechanism, "price"):  # a watch: set aside for everybody, paid by nobody
            self._aside += float(mechanism.price(self._account.measure)) / MEASURE
        else:
            self.revealed += _COSTS[self._account.measure](mechanism, norm)

    def problem(self) -> str:
        """A description of what is wrong; empty if all is paid for."""
        account = self._account
        if _more(self.revealed, account.paid):
            return MORE_THAN_PAID
        if _more(account.paid + account.reserved, account.budget):
            return "the account paid more than its budget"
        return "a watch reveals more than was set aside for it" if _more(self._aside, account.reserved) else ""


MORE_THAN_PAID = "what was released reveals more of the person than the account paid"
MORE_THAN_BUDGET = "what was released reveals more of the person than the whole budget"


def _more(amount: float, than: float) -> bool:
    """True if an amount exceeds another one by more than rounding; also if it is not a number."""
    return not amount <= than * (1 + CLOSE) + CLOSE


def _rho(mechanism: Any, norm: float) -> float:
    if isinstance(mechanism, Gaussian | DiscreteGaussian):
        return (norm / mechanism.sigma) ** 2 / 2
    if isinstance(mechanism, Exponential):  # docs/proofs/chosen-quantiles.md, Theorem 2
        return pi / 16 * _epsilon(mechanism, norm) ** 2
    return _epsilon(mechanism, norm) ** 2 / 2


def _epsilon(mechanism: Any, norm: float) -> float:
    if isinstance(mechanism, Laplace):
        return norm / mechanism.scale
    if isinstance(mechanism, Exponential):  # eta for a norm of 1
        return norm * mechanism.eta
    epsilon = getattr(mechanism, "epsilon", inf) if getattr(mechanism, "delta", 0) == 0 else inf
    return float(epsilon) if norm > 0 else 0.0


_COSTS: dict[str, Callable[[Any, float], float]] = {"zCDP rho": _rho, "Gaussian rho": _rho, "epsilon": _epsilon}


def account_of(accounts: Any, person: Any) -> "Account | None":
    """The account of a person as it is now, from what a pipeline gives as its accounts; private."""
    if accounts is None or hasattr(accounts, "compared"):
        return accounts  # type: ignore[no-any-return]
    if isinstance(accounts, individual.Filter):
        spent = np.zeros(1)  # where the person was never there
        with suppress(UnknownPerson, ArgumentError):
            spent = _as_vector(accounts.spent([person])[0])
        return _Charged(lambda: individual.Filter(1, accounts.budget.fresh()), spent)
    if isinstance(accounts, filters.Filter):
        return _Charged(accounts.fresh, _as_vector(accounts.spent))
    accounts = getattr(accounts, "ledger", accounts)
    if hasattr(accounts, "watched"):
        aside = sum(int(str(entry.public["units"])) for entry in accounts.watched())  # what watches have set aside
        return Amount(accounts.spent(person) / MEASURE, accounts.budget, accounts.measure, aside / MEASURE)
    if hasattr(accounts, "state"):  # training's accounts of everybody
        state = accounts.state()
        return account_of(getattr(filters, str(state["filter"])).from_state(state), person)
    if callable(accounts):
        return account_of(accounts(person), person)
    raise ArgumentError(f"accounts: {type(accounts).__name__} is not known: give an individual.Filter or a function")


@dataclass(frozen=True, eq=False)
class _Charged:
    """Totals of a filter, of one person or of everybody."""

    fresh: Callable[[], Any]
    spent: NDArray[np.float64]

    @property
    def paid(self) -> float:
        return float(np.max(self.spent, where=np.isfinite(self.spent), initial=0.0))

    def compared(self) -> "_Shadow":
        return _Shadow(self.fresh(), self.spent)


class _Shadow:
    """Charges the shifts to a fresh filter like the person's."""

    def __init__(self, shadow: Any, spent: NDArray[np.float64]) -> None:
        self._shadow, self._spent, self._refused = shadow, spent, False
        self._own = isinstance(shadow, individual.Filter)

    def charge(self, mechanism: Any, norm: float) -> None:
        moved = replace(mechanism, sensitivity=norm) if hasattr(mechanism, "sensitivity") else mechanism
        try:
            if self._own:
                given = norm if hasattr(mechanism, "sensitivity") else True
                self._refused |= not bool(to_numpy(self._shadow.charge(moved, np.array([given])))[0])
            else:
                self._shadow.charge(moved)
        except (ArgumentError, BudgetExceeded, Unsupported):
            self._refused = True

    @property
    def revealed(self) -> float:
        return inf if self._refused else float(np.max(self._totals(), where=np.isfinite(self._spent), initial=0.0))

    def _totals(self) -> NDArray[np.float64]:
        return _as_vector(self._shadow.spent()[0] if self._own else self._shadow.spent)

    def problem(self) -> str:
        if self._refused:
            return MORE_THAN_BUDGET
        times = 1 if isinstance(self._shadow.budget if self._own else self._shadow, ADDITIVE) else OTHERWISE
        pairs = zip(self._totals(), self._spent, strict=False)
        return MORE_THAN_PAID if any(_more(float(one), times * float(paid)) for one, paid in pairs) else ""


def _as_vector(spent: Any) -> NDArray[np.float64]:
    return np.atleast_1d(np.array(to_numpy(spent), np.float64))


Account = Amount | _Charged  # one person's: what it ``paid``, the largest of several totals. Private
Comparison = _Sums | _Shadow


class Diverged(BaseException):
    """A replay released something else than the recorded run: it is over. No error, so that nobody handles it."""

    def __init__(self, call: int, says: str) -> None:
        super().__init__(says)
        self.call, self.says = call, says


@dataclass(frozen=True)
class Values:
    """An exact value as numbers: a vector, or labels with their numbers. Private."""

    numbers: Array
    labels: tuple[Any, ...] | None = None

    @property
    def shape(self) -> str:
        """The form that two runs must agree on; labels may differ, and count as zero where they are not."""
        return "numbers with labels" if self.labels is not None else f"{self.numbers.size} numbers"

    def minus(self, other: "Values") -> Array:
        """The difference, label by label."""
        if self.labels is None or other.labels is None:
            return np.asarray(self.numbers - other.numbers, np.float64)
        mine, theirs = (dict(zip(each.labels or (), each.numbers, strict=True)) for each in (self, other))
        shifts: list[float] = [mine.get(key, 0) - theirs.get(key, 0) for key in dict.fromkeys([*mine, *theirs])]
        return np.asarray(shifts, np.float64)

    @property
    def whole(self) -> bool:
        """True if the numbers are whole, and so exact."""
        return bool(np.issubdtype(self.numbers.dtype, np.integer))


def values_of(exact: object) -> Values:
    """Numbers, arrays, tensors, lists of them or {label: number}, as one vector of doubles."""
    return Values(_flat([*exact.values()]), tuple(exact)) if isinstance(exact, Mapping) else Values(_flat(exact))


def _flat(exact: object) -> Any:
    if hasattr(exact, "detach"):  # a tensor
        exact = exact.detach().cpu().double().numpy()
    if isinstance(exact, Sequence) and not isinstance(exact, str):
        parts = [_flat(each) for each in exact]
        return np.concatenate(parts) if parts else np.zeros(0, np.int64)
    numbers = np.array(exact)
    whole: Any = np.int64 if np.issubdtype(numbers.dtype, np.integer) else np.float64
    return np.asarray(numbers.astype(whole)).reshape(-1)


@dataclass
class Call:
    """One release. ``exact`` is private; the rest is public."""

    number: int  # from 1
    mechanism: Any  # what was said to be run
    exact: Values  # what noise was added to
    released: Any
    of: int | None = None  # which of the mechanisms that take several calls it belongs to; None: it is one by itself
    part: Part | None = None  # how it belongs to it

    @property
    def by_coins(self) -> bool:
        """True if coins say whose records are in it."""
        return bool(getattr(_once(self.mechanism), "sample_rate", 1.0) < 1)

    def same_as(self, other: "Call") -> str:
        """Describe how another run's call differs from this call; empty if they are equal."""
        mine, theirs = (getattr(each.mechanism, "public", each.mechanism) for each in (self, other))
        if mine != theirs:
            return f"{theirs!r} in place of {mine!r}"
        if self.exact.shape != other.exact.shape:
            return f"{other.exact.shape} in place of {self.exact.shape}"
        return "" if self.of == other.of else "a call of another mechanism"


@dataclass
class Run:
    """The releases of one run, in order, and the coins that decided who was sampled. Private."""

    calls: list[Call] = field(default_factory=list)
    coins: list[Array] = field(default_factory=list)


class Recorder:
    """An audit hook that writes down what an ordinary run releases."""

    def __init__(self) -> None:
        self.run = Run()
        self._inside = False
        self._objects: dict[Any, int] = {}

    def released(self, release: Callable[[], T], exact: object, mechanism: object, part: Part | None) -> T:
        if self._inside:  # a release that is a part of another
            return release()
        values = values_of(exact)  # before the release: it may add the noise in place
        number = len(self.run.calls) + 1
        of = None if part is None else self._objects.setdefault(part.of, len(self._objects))
        call = Call(number, mechanism, values, None, of, part)
        self._inside = True
        try:
            return self._given(call, release)
        finally:
            self._inside = False

    def _given(self, call: Call, release: Callable[[], T]) -> T:
        given = release()
        call.released = deepcopy(given)
        self.run.calls.append(call)
        return given

    def coins(self, draw: Callable[[], Array]) -> Array:
        drawn = draw()
        self.run.coins.append(np.array(drawn))
        return drawn


class Frozen(Recorder):
    """The audit hook of a replay: gives the recorded outputs, and the recorded coins but for a person's ``forced``."""

    def __init__(self, recorded: Run, forced: tuple[int, float] | None = None) -> None:
        super().__init__()
        self._recorded, self._forced = recorded, forced

    def _given(self, call: Call, release: Callable[[], T]) -> T:
        place = call.number - 1
        if place >= len(self._recorded.calls):
            raise Diverged(call.number, f"one release more than recorded: {call.mechanism!r}")
        before = self._recorded.calls[place]
        if differs := before.same_as(call):
            raise Diverged(call.number, differs)
        release()  # so that all generators are where they were
        given: T = deepcopy(before.released)
        call.released = before.released
        self.run.calls.append(call)
        return given

    def coins(self, draw: Callable[[], Array]) -> Array:
        drawn, place = np.array(draw()), len(self.run.coins)
        if place < len(self._recorded.coins):
            recorded = self._recorded.coins[place]
            shared = min(len(recorded), len(drawn))
            drawn[:shared] = recorded[:shared]
        if self._forced is not None and self._forced[0] < len(drawn):
            drawn[self._forced[0]] = self._forced[1]
        self.run.coins.append(drawn)
        return drawn


SIMPLE = (str, bytes, int, bool, type(None), date, Decimal, Fraction, Path, Enum)  # compared as they are


class Found(NamedTuple):
    """A rule that is broken: which, in which call (0: in all together), and how. Private."""

    rule: str
    call: int
    says: str


class Pair(NamedTuple):
    found: list[Found]
    revealed: float | None
    paid: float | None
    largest: float  # the largest shift of a call, as a share of its sensitivity


def compare(there: Run, absent: Run, account: Account | None, tolerance: float, left_out: bool) -> Pair:
    """Compare the runs with a person, who paid by this account (None: check single calls alone), and without.

    Guarantee: where nothing is found, each call's exact values differ by at most its sensitivity, and what all calls
        together reveal of the person, for these outputs, costs no more than the account paid; up to the tolerance.
    Source: docs/audit.md
    """
    compared = None if account is None else account.compared()
    found, largest, groups = [], 0.0, {}  # type: list[Found], float, dict[int, list[tuple[Call, Array]]]
    for mine, other in zip(there.calls, absent.calls, strict=True):
        shift = np.asarray(mine.exact.minus(other.exact), np.float64)
        if not np.isfinite(shift).all():
            found.append(Found("not a number", mine.number, "the person makes a sum something that is not finite"))
            continue
        shift = _beyond_rounding(mine, shift, tolerance)
        if mine.of is not None:
            groups.setdefault(mine.of, []).append((mine, shift))
            continue
        norm, limit = _norm(mine.mechanism, shift), _limit(mine.mechanism)
        largest = max(largest, norm / limit)
        if norm > limit:
            found.append(Found("sensitivity", mine.number, _too_far(norm, limit)))
        if left_out and mine.by_coins and norm > 0:
            found.append(Found("sensitivity", mine.number, "a person whom the coins leave out moves the sum"))
        if compared is not None and norm > 0:
            compared.charge(mine.mechanism, norm)
    for calls in groups.values():
        found += _group(calls, compared)
    if compared is not None and compared.problem():
        found.append(Found("account", 0, compared.problem()))
    revealed, paid = (None, None) if account is None or compared is None else (compared.revealed, account.paid)
    return Pair(found, revealed, paid, largest)


def _too_far(norm: float, limit: float) -> str:
    return f"the person moves the sum by {norm:.6g}, and its sensitivity is {limit:.6g}"


def _beyond_rounding(call: Call, shift: Array, tolerance: float) -> Array:
    """The shift, shortened by what floating-point sums may be off; whole numbers are exact."""
    length, size = _norm(call.mechanism, shift), _norm(call.mechanism, call.exact.numbers) * 1e-14
    if call.exact.whole or not length > 0:
        return shift
    limit = call.part.most if call.part is not None and call.part.rule != "rows" else _limit(call.mechanism)
    room = tolerance * limit if limit < inf else 0.0  # where no sensitivity is stated, any move reveals all of it
    return shift * max(0.0, 1 - (room + size) / length)


def _norm(mechanism: Any, shift: Array) -> float:
    return float(np.linalg.norm(shift, 1 if isinstance(_once(mechanism), Laplace | Exponential) else None))


def _limit(mechanism: Any) -> float:
    """The sensitivity that a mechanism states; infinite where it states none."""
    once = _once(mechanism)
    return float(getattr(once, "sensitivity", max(getattr(once, "sensitivities", (inf,)))))


def _once(mechanism: Any) -> Any:
    """The mechanism that is repeated, if it is one of those."""
    return _once(mechanism.mechanism) if isinstance(mechanism, Repeated) else mechanism


def _group(calls: Sequence[tuple[Call, Array]], compared: Comparison | None) -> Iterator[Found]:
    first = calls[0][0]
    part: Any = first.part
    if part.rule == "rows":
        yield from _rows(calls, compared)
        return
    shifts = np.array([float(shift.sum()) for _, shift in calls])
    if part.rule == "counter":
        moved = float(np.abs(np.diff(shifts, prepend=0.0)).sum())
    else:
        moved = float(np.abs(shifts).max())
        if part.one_way and (shifts > 0).any() and (shifts < 0).any():
            yield Found("sensitivity", first.number, "the person moves numbers up and down that must move one way")
    if moved > part.most:
        yield Found("sensitivity", first.number, _too_far(moved, part.most))
    if compared is not None and moved > 0:
        compared.charge(first.mechanism, getattr(_once(first.mechanism), "sensitivity", 1.0))


def _rows(calls: Sequence[tuple[Call, Array]], compared: Comparison | None) -> Iterator[Found]:
    """Rows of correlated noise: what is private is C times the shifts, all rows together."""
    last: Any = calls[-1][0].part
    factor = last.factor
    shifts = np.zeros((factor.steps, calls[0][1].size))
    for call, shift in calls:
        if call.part is not None:
            shifts[call.part.step] = shift
        if float(np.linalg.norm(shift)) > _limit(call.mechanism):
            yield Found("sensitivity", call.number, _too_far(float(np.linalg.norm(shift)), _limit(call.mechanism)))
    moved = float(np.linalg.norm(factor.columns(range(factor.steps)) @ shifts))
    mechanism = calls[0][0].mechanism
    if not isinstance(mechanism, Gaussian | SampledGaussian):
        raise Unsupported(f"{mechanism!r}: correlated noise must be Gaussian")
    if compared is not None and moved > 0:
        compared.charge(mechanism, moved)


def plain(value: Any) -> Any:
    """A value as texts, numbers, lists and dictionaries, which are compared entry by entry; else ArgumentError."""
    if isinstance(value, SIMPLE):
        return value
    if isinstance(value, float | np.generic):
        return repr(value)  # so that NaN is NaN
    if hasattr(value, "detach"):  # a tensor
        value = value.detach().cpu().numpy()
    if isinstance(value, np.ndarray):
        return [str(value.dtype), list(value.shape), [plain(each) for each in value.reshape(-1).tolist()]]
    if is_dataclass(value) and not isinstance(value, type):
        return {"": type(value).__name__} | {each.name: plain(getattr(value, each.name)) for each in fields(value)}
    if isinstance(value, Mapping):
        return {str(key): plain(each) for key, each in value.items()}
    if isinstance(value, Set):
        return sorted(repr(plain(each)) for each in value)
    if isinstance(value, list | tuple | range):
        return [plain(each) for each in value]
    if isinstance(value, BaseException):
        return f"{type(value).__name__}: {value}"
    raise ArgumentError(
        f"public: {type(value).__name__} cannot be compared: give numbers, texts, arrays, tensors, dataclasses, or "
        "lists and dictionaries of them"
    )


def difference(one: Any, other: Any, place: str = "public") -> str:
    """Where two plain values differ first; nothing where they do not."""
    if type(one) is not type(other):
        return f"{place} is of another kind"
    if isinstance(one, dict):
        if one.keys() != other.keys():
            return f"{place} has other names"
        return next(filter(None, (difference(one[key], other[key], f"{place}.{key}") for key in one)), "")
    if isinstance(one, list):
        if len(one) != len(other):
            return f"{place} is of another length"
        pairs = enumerate(zip(one, other, strict=True))
        return next(filter(None, (difference(*pair, f"{place}[{at}]") for at, pair in pairs)), "")
    return "" if one == other else f"{place} differs"
