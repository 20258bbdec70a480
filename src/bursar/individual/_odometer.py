"""Everybody's running bound: one odometer per person."""

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Self

import numpy as np

from bursar import _check, mechanisms, odometers
from bursar._units import MEASURE, RANGE, shown
from bursar.errors import ArgumentError, Unsupported
from bursar.individual._accounts import Accounts, to_numpy
from bursar.individual._costs import Table, Tariff, tariff
from bursar.odometers._normal import Clocked
from bursar.odometers.published._restarts import Restarts

__all__ = ["Odometer", "Statement"]

Array = Any

_KINDS = (odometers.Renyi, odometers.Gaussian, odometers.Line, odometers.FeldmanZrnic, odometers.GaussianRestarts)
_STEPS = 4  # of Newton's method: every iterate is a bound, and four are within 1e-6 of the root
_MOST = RANGE // 2  # twice of it fits into int64; amounts from here on count as infinite


@dataclass(frozen=True, slots=True)
class Statement:
    """What one person may be told about that person's own privacy. Private: for that person alone.

    Attributes (private): person; epsilon, the pathwise bound; ex_post_epsilon, the ex-post bound (None if the odometer
    has none). Public: delta.
    """

    person: Hashable
    epsilon: float
    ex_post_epsilon: float | None
    delta: float

    def __repr__(self) -> str:
        return "Statement(private: print it for the person it is about, and for nobody else)"

    def __str__(self) -> str:
        return (
            f"For {self.person} alone: what was published so far depends on your data with epsilon "
            f"{shown(self.epsilon, 4)}, "
            f"except with probability {self.delta:.3g}. This number is itself computed from your data: whoever you "
            "show it to learns something about them."
        )


class Odometer(Accounts):
    """One running bound per person. Nobody is ever refused; the bound says what it has come to.

    Args:
        people: a whole number n (people are then rows 0 to n-1), or the ids of the people, hashable and different.
        boundary: a fresh odometers.Renyi, Gaussian, Line, FeldmanZrnic or GaussianRestarts, what is read off for
            everybody. It is a description here and is never charged itself.
        xp: the array library of the accounts (default NumPy); with PyTorch, device= says where they live.

    Every array that goes in or comes out with one entry per person is private: it belongs to the data holder and, row
    by row, to that person. Bounds must not steer what is run next.

    >>> people = Odometer(2, odometers.Gaussian(delta=1e-5, plan=1.0))
    >>> people.charge(mechanisms.Gaussian(sigma=10.0), np.array([1.0, 0.1]))
    >>> people.epsilon().round(3)
    array([1.055, 0.936])

    Guarantee: for every person, by that person's own contributions, what the boundary promises, in both directions.
    Source: theory 6.8; Feldman & Zrnic (2021), Algorithm 6.
    """

    def __init__(
        self, people: int | Sequence[Hashable], boundary: odometers.Odometer, *, xp: Any = None, device: Any = None
    ) -> None:
        if not isinstance(boundary, _KINDS):
            raise Unsupported(f"boundary={boundary!r}: accounts per person need Renyi, Gaussian, Line or restarts")
        if isinstance(boundary, Restarts) and boundary._size >= _MOST:
            raise ArgumentError(
                f"boundary={boundary!r}: step must be below {_MOST / MEASURE:g} of its measure per person"
            )
        if boundary.count:
            raise ArgumentError(f"boundary={boundary!r} must be fresh, not charged {boundary.count} times")
        self._boundary = type(boundary).from_state(boundary.state())  # the caller's may be charged elsewhere
        self._tariff = lru_cache(maxsize=64)(lambda step: tariff(self._boundary, step))
        columns = len(boundary.orders) if isinstance(boundary, odometers.Renyi) else 1
        super().__init__(people, columns + isinstance(boundary, Restarts), xp, device)

    def __repr__(self) -> str:
        return f"individual.Odometer(boundary={self._boundary!r})"  # not even the number of people

    @property
    def boundary(self) -> odometers.Odometer:
        """What is read off for everybody: an odometer of its own, which charges nobody. Public."""
        return type(self._boundary).from_state(self._boundary.state())

    def charge(self, step: mechanisms.Mechanism, norms: Array, people: Any = None) -> None:
        """Count a step for everybody, by what each person contributes, before it is run.

        Args:
            step: what will be run, public. Its sensitivity is the promise that no contribution is larger.
            norms: (n,) private, in the sensitivity's unit and norm. NaN, negative or above the promise counts as
                infinite: that person's bound is infinite from then on. For mechanisms without a sensitivity (Pure,
                Zcdp, ...): bool, who takes part.
            people: (n,) rows or ids that norms belong to; default everybody in order.

        Raises:
            ArgumentError, UnknownPerson, Unsupported: nobody was charged.
        """
        if isinstance(self._boundary, Restarts) and isinstance(step, mechanisms.Repeated):
            raise Unsupported("charge repeated rounds one by one: each goes into the open filter or into a new one")
        price = self._tariff(step)
        with self._lock:
            rows = self._rows(people)
            given = self._contributions(price, norms, self._spent.shape[0] if rows is None else rows.shape[0])
            for start in range(0, given.shape[0], self._step()):
                block = slice(start, min(start + self._step(), given.shape[0]))
                where = block if rows is None else rows[block]
                self._spent[where, ...] = self._after(price, given[block], self._spent[where, ...])

    def epsilon(self, people: Any = None, *, delta: float | None = None) -> Array:
        """(n,) float64, private: everybody's pathwise bound; for restarts, their bound (see there)."""
        return self._read(people, self._boundary.delta if delta is None else delta, ex_post=False)

    def ex_post_epsilon(self, people: Any = None, *, delta: float | None = None) -> Array:
        """(n,) float64, private: everybody's ex-post bound."""
        if isinstance(self._boundary, Restarts):
            raise Unsupported(f"{type(self._boundary).__name__} makes no ex-post promise; use odometers.Renyi")
        return self._read(people, self._boundary.delta if delta is None else delta, ex_post=True)

    def statement(self, person: Hashable) -> Statement:
        """What this person may be told: private, to be disclosed to this person alone."""
        one = [person]
        ex_post = None if isinstance(self._boundary, Restarts) else float(self.ex_post_epsilon(one)[0])
        return Statement(person, float(self.epsilon(one)[0]), ex_post, self._boundary.delta)

    def state(self) -> dict[str, Any]:
        """Everything needed to go on later, private: keep it where the data are. Restore it once only."""
        with self._lock:
            return {
                "boundary": self._boundary.state(),
                "ids": None if self._rows_of is None else list(self._rows_of),
                "totals": to_numpy(self._spent).copy(),
            }

    @classmethod
    def from_state(cls, state: dict[str, Any], *, xp: Any = None, device: Any = None) -> Self:
        """The accounts that ``state()`` described, to the last unit."""
        _check.saved(state, "boundary", "ids", "totals")
        kinds = {kind.__name__: kind for kind in _KINDS}
        name = state["boundary"]["odometer"]
        if name not in kinds:
            raise ArgumentError(f"state: no accounts per person with odometers.{name}")
        totals = np.asarray(state["totals"])
        people = len(totals) if state["ids"] is None else state["ids"]
        accounts = cls(people, kinds[name].from_state(state["boundary"]), xp=xp, device=device)
        if totals.shape != tuple(accounts._spent.shape) or totals.dtype != np.int64 or np.any(totals < 0):
            raise ArgumentError("state: totals must be int64, >= 0, with a row for each person")
        if np.any(totals > _MOST):
            raise ArgumentError(f"state: totals must be at most {_MOST}, which stands for infinity")
        accounts._spent = accounts._xp.asarray(totals.copy(), device=device)
        return accounts

    def _after(self, price: Tariff, given: Array, before: Array) -> Array:
        """Totals after a step; _MOST stands for infinity."""
        xp = self._xp
        if given.dtype != xp.bool:
            given = xp.astype(given, xp.float64, copy=False)
        if isinstance(self._boundary, Restarts):
            return self._restarted(*price(given, xp), before)
        if isinstance(price, Table):
            index, known = price.place(given, xp)
            cost = xp.take(xp.asarray(price.units, device=self._device), index, axis=0)
            total = before + xp.where(known[:, None] & (cost < _MOST), cost, _MOST)
            return xp.where(total < _MOST, total, _MOST)
        after = xp.empty_like(before)
        for column in range(self._columns):
            cost, known = price(given, xp, column)
            total = before[:, column] + xp.where(known & (cost < _MOST), cost, _MOST)
            after[:, column] = xp.where(total < _MOST, total, _MOST)
        return after

    def _restarted(self, cost: Array, known: Array, before: Array) -> Array:
        """Algorithm 6: (filters opened, units held) for everybody; a cost above the step counts as infinite."""
        xp, size = self._xp, self._boundary._size  # type: ignore[union-attr]
        opened, held = before[:, 0], before[:, 1]
        fits = (opened > 0) & (held + xp.where(cost < size, cost, size) <= size)
        lost = ~known | (cost > size) | (opened >= _MOST)
        held = xp.where(cost == 0, held, xp.where(fits, held + cost, cost))
        opened = xp.where(lost, _MOST, opened + xp.astype((cost > 0) & ~fits, xp.int64))
        return xp.stack((opened, xp.where(lost, 0, held)), axis=1)

    def _read(self, people: Any, delta: float, *, ex_post: bool) -> Array:
        rows, xp = self._rows(people), self._xp
        totals = self._spent if rows is None else self._spent[rows, ...]
        bounds = xp.empty(totals.shape[0], dtype=xp.float64, device=self._device)
        step = self._step() // 4
        for start in range(0, totals.shape[0], step):
            block = slice(start, min(start + step, totals.shape[0]))
            bounds[block] = self._bounds(totals[block, ...], delta, ex_post)
        return bounds

    def _bounds(self, units: Array, delta: float, ex_post: bool) -> Array:
        xp, boundary = self._xp, self._boundary
        if isinstance(boundary, Restarts):
            opened = to_numpy(units[:, 0])
            kinds, which = np.unique(opened, return_inverse=True)
            values = [np.inf if k >= _MOST else float(boundary._bound((int(k), 0), delta=delta)) for k in kinds]
            return xp.asarray(np.asarray(values)[which], device=self._device)
        totals = xp.astype(units, xp.float64) * ((1 + 1e-15) / MEASURE)
        totals = xp.where(units >= _MOST, np.inf, totals)
        if isinstance(boundary, Clocked):
            return boundary._at_clock(totals[:, 0], delta=delta, ex_post=ex_post, steps=_STEPS, xp=xp)
        bounds = boundary._at_orders(totals, delta=delta, ex_post=ex_post, steps=_STEPS, xp=xp)
        return xp.where(xp.all(units == 0, axis=1), 0.0, bounds)
