"""One filter per person: whoever has budget left stays in, whoever has not is left out."""

from collections.abc import Hashable, Sequence
from functools import lru_cache
from threading import Lock
from typing import Any, Self

import array_api_compat
import numpy as np
from numpy.typing import NDArray

from bursar import _check, filters, mechanisms
from bursar._uncopyable import Uncopyable
from bursar._units import MEASURE, RANGE
from bursar.errors import ArgumentError, UnknownPerson, Unsupported
from bursar.individual._blocks import charge_all
from bursar.individual._tariff import Quadratic, Table, Tariff, Whole, tariff

__all__ = ["Filter"]

Array = Any

_BUDGETS: tuple[type[filters.Filter], ...] = (
    filters.Gaussian,
    filters.Zcdp,
    filters.RenyiOrder,
    filters.RenyiCurve,
    filters.Renyi,
)
_BLOCK = 2**15  # people at a time: temporary arrays stay in the processor's cache


class Filter(Uncopyable):
    """One account per person, all with the same budget.

    Args:
        people: public or private as the caller decides: a whole number n (people are then rows 0 to n-1), or the ids of
            the people, hashable and different.
        budget: a fresh filters.Gaussian, Zcdp, RenyiOrder, RenyiCurve or Renyi: what everybody may spend. It is a
            description here and is never charged itself.
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
        if not isinstance(
            budget, filters.Gaussian | filters.Zcdp | filters.RenyiOrder | filters.RenyiCurve | filters.Renyi
        ):
            raise Unsupported(
                f"budget={budget!r}: individual accounts need a Gaussian, Zcdp, RenyiOrder, RenyiCurve or Renyi budget"
            )
        if budget.count:
            raise ArgumentError(f"budget={budget!r} must be fresh, not charged {budget.count} times")
        self._budget, self._device = budget, device
        self._xp = array_api_compat.array_namespace((np if xp is None else xp).zeros(1))
        self._most = budget.person_budget()
        self._mixture = budget.person_mixture if isinstance(budget, filters.Renyi) else None
        for most in self._most:
            if most >= RANGE:
                raise ArgumentError(f"budget={budget!r} must be below {RANGE / MEASURE:g} of its measure per person")
        self._tariff = lru_cache(maxsize=64)(lambda step: tariff(self._budget, step))
        self._lock = Lock()
        self._rows_of: dict[Hashable, int] | None = None if _is_count(people) else {}
        self._spent = self._zeros(0)
        self.join(people)

    def __repr__(self) -> str:
        return f"individual.Filter(budget={self._budget!r})"  # not even the number of people

    @property
    def budget(self) -> filters.Filter:
        """What everybody may spend. Public."""
        return self._budget

    def join(self, people: int | Sequence[Hashable]) -> None:
        """Open accounts with the full budget for people who were never here before.

        Args:
            people: how many rows to append; or new ids. Keep the account of whoever leaves: a returning person must
                not get a fresh budget.
        """
        if _is_count(people):
            _check.whole(0, people=people)
            if self._rows_of is not None:
                raise ArgumentError("people: these accounts have ids, so give the ids of the people who join")
            count = int(people)  # type: ignore[arg-type]
        else:
            ids = list(people)  # type: ignore[arg-type]
            if self._rows_of is None:
                raise ArgumentError("people: these accounts have rows, so give the number of people who join")
            if len(set(ids)) != len(ids) or not self._rows_of.keys().isdisjoint(ids):
                raise ArgumentError("people: every id must be new and different")
            count, start = len(ids), len(self._rows_of)
            self._rows_of.update({person: start + j for j, person in enumerate(ids)})
        self._spent = self._xp.concat([self._spent, self._zeros(count)])

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
                charge_all(price, self._most[0], self._spent[:, 0], given, active)
                return self._like(active, norms)
            for start in range(0, given.shape[0], self._step()):
                block = slice(start, min(start + self._step(), given.shape[0]))
                where = block if rows is None else rows[block]
                active[block] = self._pay(price, given[block], where)
        return self._like(active, norms)

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
        if isinstance(price, Whole):
            raise Unsupported(f"{step!r} has no sensitivity: it costs everybody who takes part the same")
        rows = self._rows(people)
        spent = self._spent if rows is None else self._spent[rows, ...]
        if spent.shape[1] == 1:
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
        return {
            "budget": self._budget.state(),
            "ids": None if self._rows_of is None else list(self._rows_of),
            "spent": _to_numpy(self._spent).copy(),
        }

    @classmethod
    def from_state(cls, state: dict[str, Any], *, xp: Any = None, device: Any = None) -> Self:
        """The accounts that ``state()`` described, to the last unit."""
        kinds = {kind.__name__: kind for kind in _BUDGETS}
        _check.one_of(tuple(kinds), filter=state["budget"]["filter"])
        budget = kinds[state["budget"]["filter"]].from_state(state["budget"])
        spent = np.asarray(state["spent"])
        people = len(spent) if state["ids"] is None else state["ids"]
        accounts = cls(people, budget, xp=xp, device=device)
        if spent.shape != tuple(accounts._spent.shape) or spent.dtype != np.int64 or np.any(spent < 0):
            raise ArgumentError("state: spent must be int64, >= 0, with a row for each person")
        accounts._spent = accounts._xp.asarray(spent.copy(), device=device)
        return accounts

    def _zeros(self, count: int) -> Array:
        return self._xp.zeros((count, len(self._most)), dtype=self._xp.int64, device=self._device)

    def _step(self) -> int:
        return _BLOCK if self._device is None or "cpu" in str(self._device) else 2**24

    def _rows(self, people: Any) -> Array | None:
        """Rows of the people addressed; None for everybody."""
        if people is None:
            return None
        if self._rows_of is not None:
            found = [self._rows_of.get(person, -1) for person in people]
            rows = np.asarray(found, np.int64)
        else:
            rows = _to_numpy(people)
            if rows.size and not np.issubdtype(rows.dtype, np.integer):
                raise ArgumentError(f"people must be whole numbers (rows), not {rows.dtype}")
            rows = rows.astype(np.int64)
        if rows.ndim != 1:
            raise ArgumentError(f"people must be a list of people, not an array of shape {rows.shape}")
        unknown = (rows < 0) | (rows >= self._spent.shape[0])
        if unknown.any():
            raise UnknownPerson(f"people: {unknown.sum()} of {len(rows)} have no account here; see join()")
        if len(np.unique(rows)) != len(rows):
            raise ArgumentError("people: nobody may be charged twice in one step")
        return self._xp.asarray(rows, device=self._device)

    def _contributions(self, price: Tariff, norms: Array, count: int) -> Array:
        """Norms, or who takes part, in the accounts' own array library, checked."""
        xp = self._xp
        given = norms if _same_library(norms, xp) else xp.asarray(_to_numpy(norms))
        given = array_api_compat.to_device(given, self._device) if self._device is not None else given
        if tuple(given.shape) != (count,):
            raise ArgumentError(
                f"norms must have shape ({count},), one for each person addressed, not {tuple(given.shape)}"
            )
        if isinstance(price, Whole):
            if given.dtype != xp.bool:
                raise ArgumentError(
                    f"norms must be bool (who takes part) for a mechanism without a sensitivity, not {given.dtype}"
                )
        elif not xp.isdtype(given.dtype, ("real floating", "integral")):
            raise ArgumentError(f"norms must be real numbers, not {given.dtype}")
        return given

    def _plain(self, given: Array) -> bool:
        """Whether the fast path applies: one order, NumPy, float64."""
        small = len(self._most) == 1 and self._most[0] < 2**62  # twice of it does not overflow
        return small and isinstance(given, np.ndarray) and given.dtype == np.float64

    def _pay(self, price: Tariff, given: Array, where: Any) -> Array:
        before = self._spent[where, ...]
        after, fits = self._fits(price, given, before)
        if len(self._most) == 1:
            self._spent[where, ...] = after
        else:
            self._spent[where, ...] = self._xp.where(fits[:, None], after, before)
        return fits

    def _fits(self, price: Tariff, given: Array, before: Array) -> tuple[Array, Array]:
        """(what would be spent, who fits). With one order, whoever does not fit keeps what was spent before."""
        xp = self._xp
        if not isinstance(price, Whole):
            given = xp.astype(given, xp.float64, copy=False)
        if len(self._most) == 1:
            cost, known = price(given, xp)
            fits = known & (cost <= self._most[0] - before[:, 0])
            return before + xp.where(fits, cost, 0)[:, None], fits
        columns = [price(given, xp, column) for column in range(len(self._most))]
        known = columns[0][1]
        cap = RANGE // 2  # twice of it cannot overflow, and no budget reaches it
        after = xp.minimum(
            before + xp.stack([xp.minimum(cost, xp.asarray(cap)) for cost, _ in columns], axis=1), xp.asarray(cap)
        )
        return after, known & self._holds(after)

    def _holds(self, totals: Array) -> Array:
        xp = self._xp
        within = totals <= xp.asarray(self._most, dtype=xp.int64, device=self._device)
        if self._mixture is None:
            return xp.all(within, axis=1)
        enough = xp.any(within, axis=1)
        doubtful = _to_numpy(~enough)
        if not doubtful.any():
            return enough
        verdict = _to_numpy(enough).copy()
        verdict[doubtful] = self._mixture(_to_numpy(totals)[doubtful])
        return xp.asarray(verdict, device=self._device)

    def _search_allowance(self, price: Quadratic | Table, spent: Array) -> Array:
        """Bisection on the grid of norms for budgets with several orders."""
        grid = price.norms if isinstance(price, Table) else np.linspace(0.0, price.sensitivity, 1025)
        values = self._xp.asarray(grid, device=self._device)
        low = self._xp.zeros(spent.shape[0], dtype=self._xp.int64, device=self._device)
        high = low + len(grid)
        while int(self._xp.max(high - low)) > 1 if spent.shape[0] else False:
            middle = (low + high) // 2
            fits = self._fits(price, values[middle], spent)[1]
            low, high = self._xp.where(fits, middle, low), self._xp.where(fits, high, middle)
        return values[low]

    def _show(self, units: Array, people: Any) -> Array:
        rows = self._rows(people)
        chosen = self._xp.astype(units if rows is None else units[rows, ...], self._xp.float64) / MEASURE
        return chosen[:, 0] if chosen.shape[1] == 1 else chosen

    def _like(self, active: Array, norms: Array) -> Array:
        """The answer in the library of the question."""
        if _same_library(norms, self._xp) or not array_api_compat.is_array_api_obj(norms):
            return active
        asked = array_api_compat.array_namespace(norms)
        return asked.asarray(_to_numpy(active), device=array_api_compat.device(norms))


def _is_count(people: object) -> bool:
    return isinstance(people, int | np.integer | float) or people is None


def _same_library(array: Any, xp: Any) -> bool:
    return array_api_compat.is_array_api_obj(array) and array_api_compat.array_namespace(array) is xp


def _to_numpy(array: Any) -> NDArray[Any]:
    if array_api_compat.is_torch_array(array):
        return np.asarray(array.detach().cpu())
    return np.asarray(array)
