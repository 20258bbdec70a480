"""One filter per person: whoever has budget left stays in, whoever has not is left out."""

from collections.abc import Hashable, Sequence
from functools import lru_cache
from typing import Any, Self, cast

import numpy as np

from bursar import _check, filters, mechanisms
from bursar._units import MEASURE, RANGE
from bursar.errors import ArgumentError, Unsupported
from bursar.individual._accounts import Accounts, to_numpy
from bursar.individual._costs import Quadratic, Table, Tariff, Whole, tariff
from bursar.individual._fast_charge import charge_all
from bursar.individual._residue_costs import Residual, residual, takes_bools

__all__ = ["Filter"]

Array = Any

_SEVERAL = RANGE // 2  # twice of it cannot overflow: with several totals, amounts from here on count as infinite

_BUDGETS: tuple[type[filters.Filter], ...] = (
    filters.Gaussian,
    filters.Zcdp,
    filters.RenyiOrder,
    filters.RenyiCurve,
    filters.Renyi,
    filters.Residue,
)


class Filter(Accounts):
    """One account per person, all with the same budget.

    Args:
        people: public or private as the caller decides: a whole number n (people are then rows 0 to n-1), or the ids of
            the people, hashable and different.
        budget: a fresh filters.Gaussian, Zcdp, RenyiOrder, RenyiCurve, Renyi or Residue: what everybody may spend. It
            is a description here and is never charged itself.
        xp: the array library of the accounts (default NumPy); with PyTorch, device= says where they live.

    Every array that goes in or comes out with one entry per person is private: it belongs to the data holder and, row
    by row, to that person.

    Guarantee: whoever takes part only where ``charge`` returns True, for the contribution that was charged, is
    protected by the budget: the whole adaptive interaction has the budget's guarantee for adding or removing any one
    person. A person's contribution may depend on that person's own data and on past outputs, on nothing else.
    Source: theory 5.1, 5.2; Feldman & Zrnic (2021), Alg. 3, Thm 4.5; Koskela, Tobaben & Honkela (2023), Thm 12.
    """

    def __init__(
        self, people: int | Sequence[Hashable], budget: filters.Filter, *, xp: Any = None, device: Any = None
    ) -> None:
        if not isinstance(budget, _BUDGETS):
            raise Unsupported(
                f"budget={budget!r}: accounts need a filters.Gaussian, Zcdp, RenyiOrder, RenyiCurve, Renyi or Residue"
            )
        if budget.count:
            raise ArgumentError(f"budget={budget!r} must be fresh, not charged {budget.count} times")
        self._budget = type(budget).from_state(budget.state())  # the caller's may be charged elsewhere
        self._shown: filters.Filter | None = None
        self._most = budget.person_budget()
        self._mixture = budget.person_mixture if isinstance(budget, filters.Renyi) else None
        range_ = RANGE if len(self._most) == 1 else _SEVERAL
        if max(self._most) >= range_:
            raise ArgumentError(f"budget={budget!r} must be below {range_ / MEASURE:g} of its measure per person")
        self._tariff = lru_cache(maxsize=64)(self._tariff_of)
        super().__init__(people, len(self._most), xp, device)

    def _tariff_of(self, step: mechanisms.Mechanism) -> Tariff | Residual:
        return residual(self._budget, step) if isinstance(self._budget, filters.Residue) else tariff(self._budget, step)

    def __repr__(self) -> str:
        return f"individual.Filter(budget={self._budget!r})"  # not even the number of people

    @property
    def budget(self) -> filters.Filter:
        """What everybody may spend: a filter of its own, which charges nobody. Public."""
        if self._shown is None:
            self._shown = type(self._budget).from_state(self._budget.state())
        return self._shown

    def charge(self, step: mechanisms.Mechanism, norms: Array, people: Any = None) -> Array:
        """Charge everybody who can pay; the others are left out and keep what they have.

        Args:
            step: what will be run, public. Its sensitivity is the promise that no contribution is larger.
            norms: (n,) private, in the sensitivity's unit and norm: what each person's data contributes. NaN, negative
                or above the promise: that person is out. For mechanisms without a sensitivity (Pure, Zcdp, ...):
                bool, who takes part.
            people: (n,) rows or ids that norms belong to; default everybody in order.

        Returns:
            (n,) bool, private: who takes part. For the mechanism, never for the analyst.

        Raises:
            ArgumentError, UnknownPerson, Unsupported: nobody was charged.

        Guarantee: for every person, the sum of the costs charged keeps within the budget.
        Source: theory 5.1; Feldman & Zrnic (2021), Thm 4.5.
        """
        price = self._tariff(step)
        with self._lock:
            rows = self._rows(people)
            given = self._contributions(price, norms, self._spent.shape[0] if rows is None else rows.shape[0])
            active = self._xp.empty(given.shape, dtype=self._xp.bool, device=self._device)
            if rows is None and isinstance(price, Quadratic) and self._plain(given):
                charge_all(price, self._most[0], cast(Any, self._spent[:, 0]), cast(Any, given), cast(Any, active))
                return self._like(active, norms)
            for start in range(0, given.shape[0], self._step()):
                block = slice(start, min(start + self._step(), given.shape[0]))
                where = block if rows is None else rows[block]
                active[block] = self._pay(price, given[block], where)
        return self._like(active, norms)

    def write_off(self, step: mechanisms.Mechanism) -> None:
        """Charge everybody for a step whose contributions are not known any more, after a crash.

        Guarantee: everybody is charged at least what any contribution to the step costs, or has nothing left.
        Source: theory 5.1; what was reserved counts as spent.
        """
        price = self._tariff(step)
        count = self._spent.shape[0]
        if isinstance(price, Whole) or takes_bools(price):
            norms = self._xp.ones(count, dtype=self._xp.bool, device=self._device)
        else:
            norms = self._xp.full((count,), price.sensitivity, dtype=self._xp.float64, device=self._device)
        broke = ~self.charge(step, norms)
        most = self._xp.asarray(self._most, dtype=self._xp.int64, device=self._device)
        nothing_left = most if len(self._most) == 1 else self._xp.full_like(most, _SEVERAL)
        with self._lock:
            self._spent[broke, ...] = nothing_left

    def admits(self, step: mechanisms.Mechanism, norms: Array, people: Any = None) -> Array:
        """(n,) bool, private: who could pay. Asking changes nothing; arguments as for ``charge``."""
        price = self._tariff(step)
        with self._lock:
            rows = self._rows(people)
            given = self._contributions(price, norms, self._spent.shape[0] if rows is None else rows.shape[0])
            before = self._spent if rows is None else self._spent[rows, ...]
            return self._like(self._fits(price, given, before)[1], norms)

    def allowance(self, step: mechanisms.Mechanism, people: Any = None) -> Array:
        """The largest contribution that each person can still pay for in this step: clip to it to spend the remainder.

        Args:
            step: what will be run, public.
            people: rows or ids; default everybody in order.

        Returns:
            (n,) float64, private, in the sensitivity's unit, at most the sensitivity; rounded down.

        Guarantee: whoever contributes at most this is admitted by ``charge`` with the same step.
        Source: theory 5.3; Feldman & Zrnic (2021), Alg. 8, corrected.
        """
        price = self._tariff(step)
        if isinstance(price, Whole) or takes_bools(price):
            raise Unsupported(f"{step!r} has no sensitivity: it costs everybody who takes part the same")
        rows = self._rows(people)
        spent = self._spent if rows is None else self._spent[rows, ...]
        if spent.shape[1] == 1 and not isinstance(price, Residual):
            return price.allowance(self._most[0] - spent[:, 0], self._xp)
        return self._search_allowance(price, spent)

    def spent(self, people: Any = None) -> Array:
        """(n,) or, with several orders, (n, m) float64, private: what was spent, in the budget's measure."""
        return self._show(self._spent, people)

    def left(self, people: Any = None) -> Array:
        """(n,) or, with several orders, (n, m) float64, private: what is left, in the budget's measure."""
        most = self._xp.asarray(self._most, dtype=self._xp.int64, device=self._device)
        return self._show(most - self._spent, people)

    def state(self) -> dict[str, Any]:
        """Everything needed to go on later, private: keep it where the data are. Restore it once only."""
        with self._lock:
            return {
                "budget": self._budget.state(),
                "ids": None if self._rows_of is None else list(self._rows_of),
                "spent": to_numpy(self._spent).copy(),
            }

    @classmethod
    def from_state(cls, state: dict[str, Any], *, xp: Any = None, device: Any = None) -> Self:
        """The accounts that ``state()`` described, to the last unit."""
        _check.saved(state, "budget", "ids", "spent")
        _check.saved(state["budget"], "filter", "parameters", "spent", "count")
        kinds = {kind.__name__: kind for kind in _BUDGETS}
        _check.one_of(tuple(kinds), filter=state["budget"]["filter"])
        budget = kinds[state["budget"]["filter"]].from_state(state["budget"])
        spent = np.asarray(state["spent"])
        people = len(spent) if state["ids"] is None else state["ids"]
        accounts = cls(people, budget, xp=xp, device=device)
        if spent.shape != tuple(accounts._spent.shape) or spent.dtype != np.int64 or np.any(spent < 0):
            raise ArgumentError("state: spent must be int64, >= 0, with a row for each person")
        if np.any(spent > (accounts._most[0] if len(accounts._most) == 1 else _SEVERAL)):
            raise ArgumentError("state: spent must fit the budget it came from")
        accounts._spent = accounts._xp.asarray(spent.copy(), device=device)
        return accounts

    def _give_back(self, step: mechanisms.Mechanism, who: Array) -> None:
        """Undo the full price of a step that was booked in advance and, for these people, released nothing.

        For rooms that book before they release. Whoever calls this proves that nothing was released about them.
        """
        price = self._tariff(step)
        if isinstance(price, Table | Residual):
            raise Unsupported(f"{step!r} has no exact full price")
        full = self._xp.asarray(price.full, dtype=self._xp.int64, device=self._device)
        with self._lock:
            undone = who[:, None] & (self._spent < _SEVERAL)  # what was not counted to the end stays so
            self._spent = self._spent - self._xp.where(undone, full[None, :], 0)

    def _plain(self, given: Array) -> bool:
        """Whether the fast path applies: one order, NumPy, float64."""
        small = len(self._most) == 1 and self._most[0] < 2**62  # twice of it does not overflow
        return small and isinstance(given, np.ndarray) and given.dtype == np.float64

    def _pay(self, price: Tariff | Residual, given: Array, where: Any) -> Array:
        before = self._spent[where, ...]
        after, fits = self._fits(price, given, before)
        if len(self._most) == 1:
            self._spent[where, ...] = after
        else:
            self._spent[where, ...] = self._xp.where(fits[:, None], after, before)
        return fits

    def _fits(self, price: Tariff | Residual, given: Array, before: Array) -> tuple[Array, Array]:
        """(what would be spent, who fits). With one order, whoever does not fit keeps what was spent before."""
        xp = self._xp
        if not isinstance(price, Whole):
            given = xp.astype(given, xp.float64, copy=False)
        if len(self._most) == 1:
            left = self._most[0] - before[:, 0]
            cost, known = price(given, left, xp) if isinstance(price, Residual) else price(given, xp)
            fits = known & (cost <= left)
            return before + xp.where(fits, cost, 0)[:, None], fits
        columns = [price(given, xp, column) for column in range(len(self._most))]
        known = columns[0][1]
        cap = xp.asarray(_SEVERAL)
        after = xp.minimum(before + xp.stack([xp.minimum(cost, cap) for cost, _ in columns], axis=1), cap)
        return after, known & self._holds(after)

    def _holds(self, totals: Array) -> Array:
        xp = self._xp
        within = totals <= xp.asarray(self._most, dtype=xp.int64, device=self._device)
        if self._mixture is None:
            return xp.all(within, axis=1)
        enough = xp.any(within, axis=1)
        doubtful = to_numpy(~enough)
        if not doubtful.any():
            return enough
        verdict = to_numpy(enough).copy()
        verdict[doubtful] = self._mixture(to_numpy(totals)[doubtful])
        return xp.asarray(verdict, device=self._device)

    def _search_allowance(self, price: Quadratic | Table | Residual, spent: Array) -> Array:
        """Bisection on the grid of norms, where no formula gives it."""
        grid = price.norms if isinstance(price, Table | Residual) else np.linspace(0.0, price.sensitivity, 1025)
        values = self._xp.asarray(grid, device=self._device)
        low = self._xp.zeros(spent.shape[0], dtype=self._xp.int64, device=self._device)
        high = low + len(grid)
        while int(self._xp.max(high - low)) > 1 if spent.shape[0] else False:
            middle = (low + high) // 2
            fits = self._fits(price, values[middle], spent)[1]
            low, high = self._xp.where(fits, middle, low), self._xp.where(fits, high, middle)
        return values[low]
