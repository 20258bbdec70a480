"""Give each person a filter: a person with budget left takes part, a person without is left out."""

import os
from collections.abc import Hashable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from functools import cached_property, lru_cache
from types import ModuleType
from typing import Any, Self, cast

import numpy as np
from numpy.typing import ArrayLike, NDArray

from almoner import _check, filters, mechanisms
from almoner._arrays import Array, Library, Mask, to_numpy
from almoner._notions import MOST, Budget
from almoner._units import FINE, MEASURE, RANGE
from almoner.accounting import meaning
from almoner.errors import ArgumentError, Unsupported
from almoner.individual._accounts import Accounts, People, with_rows
from almoner.individual._costs import Costs, FromPlan, Power, TakingPart, charge_all, costs_of, search_allowance
from almoner.individual._shares import checked_shares, guesses, promised
from almoner.individual._statements import BudgetStatement

_NAMES = ("Basic", "Gaussian", "Zcdp", "RenyiOrder", "RenyiCurve", "Renyi", "Residue", "Planned")
_BUDGETS: dict[str, type[filters.Filter]] = {name: getattr(filters, name) for name in _NAMES}


@dataclass(slots=True)
class _Owed:
    """Rounds of one step, which everybody was charged for, and (n,) how many of them are in each account."""

    costs: Costs
    norms: Any
    prices: Any  # (n, m), where they don't depend on what is left
    paid: Any
    rounds: int = 0
    settled: int = 0  # so many are in every account


class Filter(Accounts):
    """One account per person, all with the same budget.

    Args:
        people: public or private as the caller decides: a whole number n (people are then rows 0 to n-1), or the ids of
            the people, hashable and different.
        budget: a fresh filters.Basic (with delta=0: pure budgets, of which Laplace noise takes the L1 norm over its
            scale), Gaussian, Zcdp, RenyiOrder, RenyiCurve, Renyi, Residue or Planned: what each person may spend. It is
            a description here and is never charged itself.
        shares: (n,) private, in (0, 1]: the part of the budget, in its measure, that each person may spend (of planned
            rounds, rounded down); fixed by public facts, or by that person's own data and wishes. None: all of it. See
            :func:`almoner.individual.shares` for epsilons. The budgets are private unless they are public by
            construction: so is who can still take part.
        xp: the array library of the accounts (default NumPy); with PyTorch, device= says where they live.

    Every array with one entry per person is private: it belongs to the data holder and, row by row, to that person.
    ``people`` of its methods are rows or ids, (n,); None: all people in order.

    Guarantee: a person who takes part only where ``charge`` returns True, for the contribution that was charged, is
    protected by the budget: the whole adaptive interaction has the budget's guarantee for adding or removing any one
    person. A person's contribution may depend on that person's own data and on past outputs, on nothing else: with
    Residue, Planned and Renyi not on that person's own past samples either (theory 5.6). With shares, each person
    has the guarantee of their own part of the budget: see :meth:`epsilon`.
    Source: theory 5.1, 5.2, 5.10; Feldman & Zrnic (2021), Alg. 3, Thm 4.5; Koskela, Tobaben & Honkela (2023), Thm 12.
    """

    _whole = True  # an account has all of its person

    def __init__(
        self,
        people: int | Sequence[Hashable],
        budget: filters.Filter,
        *,
        shares: ArrayLike | Array | None = None,
        xp: ModuleType | None = None,
        device: object = None,
    ) -> None:
        if not isinstance(budget, tuple(_BUDGETS.values())):
            kinds = f"filters.{', '.join(_NAMES[:-1])} or {_NAMES[-1]}"
            raise Unsupported(f"budget={budget!r}: accounts need a {kinds}; for example `filters.Zcdp(rho=1.0)`")
        budget.refuse_if_given()
        if budget.count:
            raise ArgumentError(f"budget={budget!r} must be fresh, not charged {budget.count} times")
        self._budget = budget.fresh()  # the caller's may be charged elsewhere
        self._shown: filters.Filter | None = None
        self._guard: AbstractContextManager[object] = nullcontext()
        self._notion = self._budget.notion
        self._most: tuple[int, ...] = self._notion.person_limits()
        if max(self._most) >= (range_ := RANGE if len(self._most) == 1 else MOST):
            raise ArgumentError(f"budget={budget!r} must be below {range_ / MEASURE:g} of its measure per person")
        self._costs = lru_cache(maxsize=64)(lambda step: costs_of(self._notion, step, self._most[0]))
        self._shares: NDArray[np.float64] | None = None
        self._taken: NDArray[np.int64] | None = None  # units that were spent elsewhere
        self._over = lru_cache(maxsize=64)(lambda step: self._rests.over(step, self._costs(step)))
        super().__init__(people, len(self._most), xp, device)
        if shares is not None:
            self._shares = checked_shares(shares, self._spent.shape[0])
            self._held = self._units(self._notion.person_opening(self._shares))
        self._rests = Rests(self._notion, self._xp, self._device, shares=shares is not None)

    @classmethod
    def with_left(cls, budget: filters.Filter, units: NDArray[np.int64]) -> Self:
        """Accounts, in rows, of which each has so many units left of a budget with one total; at most all of it.

        For one charge of accounts that are kept elsewhere, as in a ledger. Units are (n,), private, >= 0.
        """
        accounts = cls(len(units), budget)
        (most,) = accounts._most
        accounts._taken = most - np.minimum(units, most)
        accounts._held = accounts._units(accounts._taken[:, None].copy())  # charged in place
        accounts._rests._start = 0  # what the limit is rounded down by is not there anew with each charge
        return accounts

    def __repr__(self) -> str:
        return f"individual.Filter(budget={self._budget!r})"  # not even the number of people

    @property
    def budget(self) -> filters.Filter:
        """Budget of each person: a filter of its own, which charges nobody. Public."""
        if self._shown is None:
            self._shown = self._budget.fresh()
        return self._shown

    @property
    def has_shares(self) -> bool:
        """True if people have budgets of their own. Public."""
        return self._shares is not None

    def join(self, people: int | Sequence[Hashable], *, shares: ArrayLike | Array | None = None) -> None:
        """Open accounts for people who were never here before: for so many rows more, or for new ids.

        Keep the accounts of people who leave: a returning person must not get a fresh one. Shares are (n,), private, of
        the people who join; they are given if and only if these accounts have shares.
        """
        with self._lock:  # what is being charged goes into the accounts that stay
            self._settle(slice(None))
            self._owed, before = None, self._held.shape[0]
            if (shares is None) != (self._shares is None):
                raise ArgumentError("shares must be given for people who join if these accounts have shares, else not")
            if shares is None or self._shares is None:
                return self._join(people)
            own = checked_shares(shares, int(people) if isinstance(people, int | np.integer) else len(people))
            spent = self._units(self._notion.person_opening(own))
            self._join(people)
            self._spent[before:, ...] = spent
            self._shares = np.concatenate([self._shares, own])
        return None

    def epsilon(self, people: People | None = None, *, delta: float | None = None) -> NDArray[np.float64]:
        """(n,) private: the epsilon that each person's own budget promises, rounded up; it does not change.

        It is that at delta, public, in (0, 1); by default the budget's own.

        Raises:
            ArgumentError: no delta is given, and the budget has none of its own.

        Guarantee: all that is ever admitted for a person is (epsilon, delta)-DP for adding or removing that person.
        Source: theory 5.10 and 5.1.
        """
        rows = self._rows(people)
        own = self._shares_of(rows)
        if own is None:
            return np.full(self._count(rows), self._budget.epsilon(delta=delta))
        return promised(self._notion, own, delta)

    def guess(self, people: People | None = None) -> NDArray[np.float64]:
        """(n,) private: how often a guess whether a person's data were used is right at most, at even odds.

        Guarantee: from all that is ever admitted for a person, no attack is right with a larger probability.
        Source: theory 8.1, 5.10; ``meaning`` of the curve of the person's own budget.
        """
        if not self._whole:
            raise Unsupported("accounts of people in one period each: queries.statement(ledger, person) tells of all")
        rows = self._rows(people)
        own = self._shares_of(rows)
        return np.full(self._count(rows), self._common_guess) if own is None else guesses(self._notion, own)

    def _shares_of(self, rows: slice | Array) -> NDArray[np.float64] | None:
        return None if self._shares is None else self._shares[rows if isinstance(rows, slice) else to_numpy(rows)]

    @cached_property
    def _common_guess(self) -> float:
        return meaning.of(self._notion.person_curve((0,) * len(self._most))).guess()

    def charge(
        self, step: mechanisms.Mechanism, norms: Array, people: People | None = None, *, sample: Array | None = None
    ) -> Mask:
        """Charge each person who can pay; the others are left out and keep what they have.

        Args:
            step: what will be run, public. Its sensitivity is the promise that no contribution is larger.
            norms: (n,) private, in the sensitivity's unit and norm: what each person's data contributes. NaN, negative
                or above the promise: that person is out. Without a sensitivity (Pure, Zcdp, ...): bool, who takes part.
            people: whose norms these are.
            sample: (k,) places in norms, private: of those alone it is said who takes part. If norms are of all people
                and the same float64 array at each call, which can't be written (``norms.flags.writeable = False``), a
                charge costs what the sample does: other accounts are brought up to date when somebody looks at them.

        Returns:
            (n,) or (k,) bool, private: who takes part. For the mechanism, never for the analyst.

        Raises:
            ArgumentError, UnknownPerson, Unsupported: nobody was charged.

        Guarantee: for every person, the sum of the costs charged keeps within the budget.
        Source: theory 5.1; Feldman & Zrnic (2021), Thm 4.5; docs/proofs/individual-filter.md, "Rounds that are owed".
        """
        if os.getpid() != self._process.number:
            self._process.check("these accounts")
        costs, over = self._costs(step), self._over(step)
        kept = isinstance(norms, np.ndarray) and norms.dtype == np.float64 and not norms.flags.writeable
        kept = kept and cast(Any, norms).base is None  # what a view shows can be written through its owner
        later = kept and isinstance(self._held, np.ndarray) and costs.sensitivity is not None and not over
        with self._guard, self._lock:
            if sample is not None and people is None and later and mechanisms.repeated(step)[1] == 1:
                return self._charge_later(costs, norms, np.asarray(sample))
            rows = self._rows(people)
            given = self._contributions(costs, norms, rows)
            active = self._xp.empty(given.shape, dtype=self._xp.bool, device=self._device)
            fast = isinstance(given, np.ndarray) and len(self._most) == 1 and self._most[0] < 2**62  # twice it is int64
            if isinstance(rows, slice) and isinstance(costs, Power) and not over and fast:
                charge_all(costs, self._most[0], cast(Any, self._spent)[:, 0], cast(Any, given), cast(Any, active))
            else:
                for block, where in self._blocks(rows):
                    after, active[block] = self._after(costs, given[block], where, over, keep=True)
                    self._set_totals(where, after)
        return self._like(active if sample is None else active[sample], norms)

    def _charge_later(self, costs: Costs, norms: Any, rows: Any) -> Mask:
        """Charge everybody in one number, and put what they owe into the accounts of a sample."""
        owed = self._owed
        if owed is None or owed.costs is not costs or owed.norms is not norms:
            self._contributions(costs, norms, slice(None))
            self._settle(slice(None))
            prices = None
            if not isinstance(costs, FromPlan):
                cost, known = costs(norms, self._held, self._xp)
                prices = self._xp.where(known[:, None], cost, RANGE)
            owed = self._owed = _Owed(costs, norms, prices, np.zeros(len(norms), np.int64))
        owed.rounds += 1  # from here on all have been charged
        return self._pay(owed, rows)

    def _pay(self, owed: _Owed, rows: slice | Array) -> Mask:
        """Put what these people owe into their accounts; who paid for all of it: nobody pays after a refusal."""
        held = cast(Any, self._held)
        spent, asked = held[rows], owed.rounds - owed.paid[rows]
        if isinstance(owed.costs, FromPlan):
            cost, done, _ = owed.costs.rounds(owed.norms[rows], spent, asked, self._xp)
            held[rows] = spent + cost
        else:
            held[rows], done = self._notion.person_rounds(spent, owed.prices[rows], asked, self._xp)
        owed.paid[rows] = owed.rounds
        return cast(Mask, done == asked)

    def _settle(self, where: slice | Array) -> None:
        with self._lock:
            if (owed := self._owed) is None or owed.settled == owed.rounds:
                return
            whole = isinstance(where, slice) and where == slice(None)
            for rows in [each for _, each in self._blocks(where)] if whole else [where]:
                self._pay(owed, rows)
            owed.settled = owed.rounds if whole else owed.settled

    def charge_within(self, guard: AbstractContextManager[object], *, whole: bool) -> None:
        """Charge nobody but within this context: a ledger reserved it, for a ``whole`` person or one in a period."""
        self._guard, self._whole = guard, whole

    def check(self, step: mechanisms.Mechanism) -> None:
        """Raise what ``charge`` would raise for a step, whoever is in it; nobody is charged."""
        self._costs(step)

    def write_off(self, step: mechanisms.Mechanism, norms: Array | None = None, people: People | None = None) -> None:
        """Charge people for a step whose contributions are not known any more, after a crash.

        Args:
            step: what may have been run, public.
            norms: (n,) private: the most that each person can have contributed; None: the sensitivity.
            people: whose norms these are.

        Guarantee: each person is charged at least what any such contribution to the step costs, or has nothing left.
        Source: theory 5.1; what was reserved counts as spent.
        """
        costs, rows = self._costs(step), self._rows(people)
        shape = (self._count(rows),)
        if norms is None and costs.sensitivity is None:
            norms = self._xp.ones(shape, dtype=self._xp.bool, device=self._device)
        elif norms is None:
            norms = self._xp.full(shape, costs.sensitivity, dtype=self._xp.float64, device=self._device)
        self._empty(rows, ~self.charge(step, norms, people))

    def forget(self, people: People | None = None) -> None:
        """Give up what people have left: all of it counts as spent, and they contribute nothing from now on.

        A step that was booked before can still be refunded; what it gives back is then left again.

        Raises:
            ArgumentError, UnknownPerson: nobody's account was changed.
        """
        rows = self._rows(people)
        self._empty(rows, self._xp.ones((self._count(rows),), dtype=self._xp.bool, device=self._device))

    def _empty(self, where: slice | Array, lost: Mask) -> None:
        """Leave nothing to these (k,) of some rows, or of all."""
        with self._lock:
            emptied = self._xp.asarray(self._notion.person_nothing_left(), dtype=self._xp.int64, device=self._device)
            self._set_totals(where, self._xp.where(lost[:, None], emptied, self._totals(where)))
            self._rests.clear(where, self._spent.shape[0], lost)

    def admits(self, step: mechanisms.Mechanism, norms: Array, people: People | None = None) -> Mask:
        """(n,) bool, private: who could pay. Asking changes nothing; arguments as for ``charge``."""
        costs = self._costs(step)
        with self._lock:
            where = self._rows(people)
            given = self._contributions(costs, norms, where)
            return self._like(self._after(costs, given, where, self._over(step))[1], norms)

    def allowance(self, step: mechanisms.Mechanism, people: People | None = None) -> Array:
        """The largest contribution that each person can still pay for in this step: clip to it to spend the remainder.

        (n,) float64, private, in the sensitivity's unit, at most the sensitivity; rounded down. The step is public.

        Guarantee: a person who contributes at most this is admitted by ``charge`` with the same step.
        Source: theory 5.3; Feldman & Zrnic (2021), Alg. 8, corrected.
        """
        costs = self._costs(step)
        if costs.sensitivity is None:
            raise Unsupported(f"{step!r} has no sensitivity: it costs each person who takes part the same")
        where, spent = self._chosen(people)
        if len(self._most) == 1:
            allowance = costs.allowance(self._most[0] - spent[:, 0], self._xp)
            if allowance is not None:
                return allowance
        return search_allowance(
            costs, lambda given: self._after(costs, given, where)[1], spent.shape[0], self._xp, self._device
        )

    def refundable(self, step: mechanisms.Mechanism) -> bool:
        """True if a step has one exact full price, so that ``refund`` can undo it. Public."""
        return self._costs(step).full is not None

    def refund(self, step: mechanisms.Mechanism, people: Mask) -> None:
        """Undo the full price of a step that was booked in advance and, for these people, released nothing.

        For rules that book a price before they release anything, such as ``training.stopping.Dropouts``.

        Args:
            step: what was booked, public, at its full price: a Gaussian mechanism, or one without a sensitivity.
            people: (n,) bool, private: each was charged the full price of this step, has not been refunded for it, and
                nothing that was released, or will be, for this step depends on that person's data. The caller proves
                it. Whether a person is refunded may depend on that person's own data and on past outputs.

        Raises:
            Unsupported: the step has no exact full price. ArgumentError: no bool for each person. Nothing is refunded.

        Guarantee: what remains charged to each person covers all that was released about that person.
        Source: theory 5.8; docs/proofs/dropouts.md.
        """
        full = self._costs(step).full
        if full is None:
            raise Unsupported(f"{step!r} has no exact full price")
        xp = self._xp
        with self._lock:  # what was not counted to the end stays so
            undone = self._contributions(TakingPart(full), people, slice(None))[:, None] & (self._spent < MOST)
            self._held = self._spent - xp.where(undone, xp.asarray(full, dtype=xp.int64, device=self._device), 0)
            if over := self._over(step):
                self._held = self._spent + self._rests.undo(undone, over)

    def spent(self, people: People | None = None) -> Array:
        """(n,) or, with several orders, (n, m) float64, private: what was spent, in the budget's measure."""
        rows, chosen = self._chosen(people)
        own = self._shares_of(rows)
        start = self._xp.zeros_like(chosen) if own is None else self._units(self._notion.person_opening(own))
        return self._notion.person_spent(chosen, start, self._xp)

    def charged_units(self) -> NDArray[np.int64]:
        """(n,) private: units of a budget with one total that each person was charged here, in all."""
        with self._lock:
            charged = to_numpy(self._spent)[:, 0].astype(np.int64)
            if self._shares is not None:
                charged -= self._notion.person_opening(self._shares)[:, 0]
            return np.maximum(charged if self._taken is None else charged - self._taken, 0)

    def left(self, people: People | None = None) -> Array:
        """(n,) or, with several orders, (n, m) float64, private: what is left, in the budget's measure."""
        return self._notion.person_left(self._chosen(people)[1], self._xp)

    def used(self, people: People | None = None) -> NDArray[np.float64]:
        """(n,) private, in [0, 1]: the share of each person's own budget that is spent.

        With totals at several orders, of which one alone must keep within its budget (``filters.Renyi``), the share at
        the order with the most left; else the largest.
        """
        spent, left = (np.asarray(to_numpy(part), dtype=np.float64) for part in (self.spent(people), self.left(people)))
        most = spent + left
        shares: NDArray[np.float64] = np.divide(spent, most, out=np.full_like(spent, np.inf), where=most > 0)
        if shares.ndim > 1:
            shares = shares.min(axis=1) if isinstance(self._budget, filters.Renyi) else shares.max(axis=1)
        return np.asarray(np.minimum(shares, 1.0))

    def statement(self, person: Hashable, *, delta: float | None = None) -> BudgetStatement:
        """Tell one person, a row or an id, about that person's own budget: private, for this person alone.

        Epsilon is at delta, public, in (0, 1); by default the budget's own.

        Raises:
            ArgumentError: no delta is given, and the budget has none of its own.
            UnknownPerson: there is no such account.

        Guarantee: that of ``epsilon``: what the person's whole budget promises. What is spent so far is no bound by
            itself, because it depends on results: ``individual.Odometer`` has bounds for every moment.
        Source: theory 5.1, 5.9.
        """
        stated = self._budget.delta if delta is None else delta
        epsilon, guess = float(self.epsilon([person], delta=delta)[0]), float(self.guess([person])[0])
        return BudgetStatement(person, float(self.used([person])[0]), epsilon, float(stated or 0.0), guess)

    def _units(self, units: NDArray[np.int64]) -> Array:
        return self._xp.asarray(units, device=self._device)

    def state(self) -> dict[str, Any]:
        """Everything needed to go on later, private: keep it where the data are. Restore it once only."""
        with self._lock:
            return {
                "budget": self._budget.state(),
                "ids": self._ids_now(),
                "spent": to_numpy(self._spent).copy(),
                **({} if self._shares is None else {"shares": self._shares.copy()}),
                **({} if self._notion.person_units() is None else {"units": self._notion.person_units()}),
                **self._rests.state(),
            }

    @classmethod
    def from_state(cls, state: dict[str, Any], *, xp: ModuleType | None = None, device: object = None) -> Self:
        """The accounts that ``state()`` described, to the last unit."""
        _check.saved(state, "budget", "ids", "spent")
        _check.saved(state["budget"], "filter", "parameters", "spent", "count")
        _check.one_of(_NAMES, filter=state["budget"]["filter"])
        budget = _BUDGETS[state["budget"]["filter"]].from_state(state["budget"])
        spent = np.asarray(state["spent"])
        people = len(spent) if state["ids"] is None else state["ids"]
        accounts = cls(people, budget, shares=state.get("shares"), xp=xp, device=device)
        if spent.shape != tuple(accounts._spent.shape) or spent.dtype != np.int64 or np.any(spent < 0):
            raise ArgumentError("state: spent must be int64, >= 0, with a row for each person")
        if not accounts._notion.person_holds(spent) or np.any(spent < to_numpy(accounts._spent)):
            raise ArgumentError("state: spent must fit the budget it came from")
        if state.get("units") != accounts._notion.person_units():
            raise ArgumentError("state: its change is counted in other units: go on where the state was saved")
        accounts._held = accounts._xp.asarray(spent.copy(), device=device)
        accounts._rests.restore(state, len(spent))
        return accounts

    def _after(
        self, costs: Costs, given: Array, where: slice | Array, over: int = 0, *, keep: bool = False
    ) -> tuple[Array, Mask]:
        """Return the totals after a charge, and who fits; a person who does not fit keeps what was spent before."""
        spent = self._totals(where)
        cost, known = costs(given, spent, self._xp)
        cost = self._xp.where(known[:, None], cost, RANGE)
        if not over or costs.full is None:
            return self._notion.person_fits(spent, cost, self._xp)
        rest = self._rests.of(where, self._spent.shape[0])
        cost, paid = self._rests.lessen(cost, costs.full[0], over, rest)
        after, fits = self._notion.person_fits(spent, cost, self._xp)
        if keep:
            self._rests.keep(where, self._xp.where(fits[:, None], paid, rest))
        return after, fits


_GRAINS = FINE // MEASURE  # fine units in one of an account


class Rests:
    """Amounts that people have paid too much, in fine units. Made at the first step whose full price is rounded up.

    Three steps that cost a third would not fit into a budget of one in whole units. What each who paid the full price
    has paid too much is kept, and taken off the next one: who takes part fully can afford what a filter admits.
    ``over`` is by how much a full price is rounded up, public; a rest, (n, 1) int64, private, is below one unit, and
    begins with what the limit is rounded down by.

    Guarantee: units * 10**15 - rest + spare, in fine units, is never below the sum of the exact prices. So where units
        are within the limit, that sum is within the exact limit, limit * 10**15 + spare.
    Source: theory 5.1; docs/proofs/individual-filter.md, "Whole units".
    """

    def __init__(self, notion: Budget[Any], xp: Library, device: object, *, shares: bool) -> None:
        self._notion, self._xp, self._device = notion, xp, device
        self._start = 0 if shares else notion.person_spare()
        self._held: Array | None = None

    def over(self, step: mechanisms.Mechanism, costs: Costs) -> int:
        """Fine units by which the full price is rounded up; 0 where that is not kept.

        Of steps that charge by the norm it is kept only where a full payer would lose a round by it: it is slow.
        """
        if costs.full is None or len(costs.full) > 1 or not 0 < costs.full[0] < MOST:
            return 0
        leaf, count = mechanisms.repeated(step)
        over = self._notion.person_over(self._notion.person_round(leaf), count)
        if isinstance(costs, TakingPart) or not over:
            return over
        most = self._notion.person_limits()[0]
        most_exactly = (most * _GRAINS + self._start) // (costs.full[0] * _GRAINS - over)
        return over if most // costs.full[0] < most_exactly else 0

    def of(self, where: slice | Array, people: int) -> Array:
        """(n, 1) rests in a block of rows, or in rows by number, of so many people in all."""
        held = self._held
        known = 0 if held is None else held.shape[0]
        if held is None or known < people:
            new = self._xp.full((people - known, 1), self._start, dtype=self._xp.int64, device=self._device)
            self._held = held = new if held is None else self._xp.concat([held, new])
        return held[where, ...] if isinstance(where, slice) else self._xp.take(held, where, axis=0)

    def lessen(self, cost: Array, full: int, over: int, rest: Array) -> tuple[Array, Array]:
        """(n, 1) costs less what was paid too much, and the rests of those who then pay."""
        whole = cost == full
        after = rest + self._xp.where(whole, over, 0)
        back = whole & (after >= _GRAINS)
        return cost - self._xp.astype(back, cost.dtype), after - self._xp.where(back, _GRAINS, 0)

    def keep(self, where: slice | Array, rest: Array) -> None:
        if self._held is not None:
            self._held = with_rows(self._held, where, rest, self._xp, self._device)

    def undo(self, people: Mask, over: int) -> Array:
        """Take back what was kept of one full price of (n, 1) people: units to add to those who have less than that."""
        rest = self.of(slice(None), people.shape[0]) - self._xp.where(people, over, 0)
        borrowed = rest < 0
        self._held = rest + self._xp.where(borrowed, _GRAINS, 0)
        return self._xp.astype(borrowed, self._xp.int64)

    def clear(self, where: slice | Array, people: int, lost: Mask) -> None:
        """Leave nothing to those, (k,), of a block of rows, or of rows by number, of so many people in all."""
        if self._held is not None or self._start:
            self.keep(where, self._xp.where(lost[:, None], 0, self.of(where, people)))

    def state(self) -> dict[str, list[int]]:
        return {} if self._held is None else {"rests": to_numpy(self._held)[:, 0].tolist()}

    def restore(self, state: dict[str, Any], people: int) -> None:
        """Take over saved rests, checked."""
        if "rests" not in state:
            return
        rests = np.asarray(state["rests"])
        known = rests.dtype == np.int64 and rests.ndim == 1 and len(rests) <= people
        if not known or np.any(rests < 0) or np.any(rests >= _GRAINS):
            raise ArgumentError("state: rests must be whole numbers below one unit, one for each person")
        self._held = self._xp.asarray(rests[:, None].copy(), device=self._device)
