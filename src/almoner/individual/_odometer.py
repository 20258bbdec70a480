"""Give each person an odometer: a running bound."""

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from math import inf
from types import ModuleType
from typing import Any, Self

import numpy as np

from almoner import _check, mechanisms, odometers
from almoner._arrays import Array, to_numpy
from almoner._notions import MOST, PersonBound
from almoner._units import MEASURE, shown, to_float
from almoner.errors import ArgumentError, Unsupported
from almoner.individual._accounts import Accounts, People
from almoner.individual._costs import Costs, costs_of
from almoner.individual._statements import ForOnePerson

Boundary = odometers.Odometer | odometers.FeldmanZrnic | odometers.GaussianRestarts

_KINDS = (odometers.Renyi, odometers.Gaussian, odometers.Line, odometers.FeldmanZrnic, odometers.GaussianRestarts)


@dataclass(frozen=True, slots=True, repr=False)
class Statement(ForOnePerson):
    """Statement to one person about that person's own privacy. Private: for that person alone.

    Attributes (private): person; epsilon, pathwise or that of restarts; ex_post_epsilon, or None. Public: delta.
    """

    person: Hashable
    epsilon: float
    ex_post_epsilon: float | None
    delta: float

    def __str__(self) -> str:
        fixed = "if this number had been fixed in advance, " if self.ex_post_epsilon is None else ""
        return (
            f"For {self.person} alone: {fixed}what was published so far depends on your data with epsilon "
            f"{shown(self.epsilon, 4)}, except with probability {self.delta:.3g}. This number is itself computed from "
            "your data: anyone you show it to learns something about them."
        )


class Odometer(Accounts):
    """One running bound per person. No person is ever left out; the bound says what it has come to.

    Args:
        people: a whole number n (people are then rows 0 to n-1), or the ids of the people, hashable and different.
        boundary: a fresh odometers.Renyi, Gaussian, Line, FeldmanZrnic or GaussianRestarts, what is read off for
            each person. It is a description here and is never charged itself.
        xp: the array library of the accounts (default NumPy); with PyTorch, device= says where they live.

    Every array that goes in or comes out with one entry per person is private: it belongs to the data holder and, row
    by row, to that person. Bounds must not steer what is run next. Contributions must be fixed by the person's data and
    past outputs: for bounds that follow the person's own samples (theory 5.6) nothing is proven here.

    >>> people = Odometer(2, odometers.Gaussian(delta=1e-5, plan=1.0))
    >>> people.charge(mechanisms.Gaussian(sigma=10.0), np.array([1.0, 0.1]))
    >>> people.epsilon().round(3)
    array([1.055, 0.936])

    Guarantee: for every person, by that person's own contributions, what the boundary promises, in both directions.
    Source: theory 6.8; Feldman & Zrnic (2021), Algorithm 6.
    """

    def __init__(
        self,
        people: int | Sequence[Hashable],
        boundary: Boundary,
        *,
        xp: ModuleType | None = None,
        device: object = None,
    ) -> None:
        if not isinstance(boundary, _KINDS):
            raise Unsupported(f"boundary={boundary!r}: accounts per person need Renyi, Gaussian, Line or restarts")
        if boundary.count:
            raise ArgumentError(f"boundary={boundary!r} must be fresh, not charged {boundary.count} times")
        self._boundary: Boundary = boundary.fresh()  # the caller's may be charged elsewhere
        self._notion: PersonBound = self._boundary.notion
        if self._notion.person_size >= MOST:
            below = f"{MOST / MEASURE:g} of its measure per person"
            raise ArgumentError(f"boundary={boundary!r}: step must be below {below}")
        self._costs = lru_cache(maxsize=64)(lambda step: costs_of(self._notion, step))
        super().__init__(people, self._notion.person_columns, xp, device)

    def __repr__(self) -> str:
        return f"individual.Odometer(boundary={self._boundary!r})"  # not even the number of people

    @property
    def boundary(self) -> Boundary:
        """Bound that is read off for each person: an odometer of its own, which charges nobody. Public."""
        return self._boundary.fresh()

    def check(self, step: mechanisms.Mechanism) -> None:
        """Raise what ``charge`` would raise for a step, whoever is in it; nobody is charged."""
        self._priced(step)

    def _priced(self, step: mechanisms.Mechanism) -> Costs:
        if not self._notion.person_repeats and isinstance(step, mechanisms.Repeated):
            raise Unsupported("charge repeated rounds one by one: each goes into the open filter or into a new one")
        return self._costs(step)

    def charge(self, step: mechanisms.Mechanism, norms: Array, people: People | None = None) -> None:
        """Count a step for each person, by what that person contributes, before it is run.

        Args:
            step: what will be run, public. Its sensitivity is the promise that no contribution is larger.
            norms: (n,) private, in the sensitivity's unit and norm. NaN, negative or above the promise: that person's
                bound is infinite from then on. Without a sensitivity (Pure, Zcdp, ...): bool, who takes part.
            people: (n,) rows or ids, whose norms these are; default all people in order.

        Raises:
            ArgumentError, UnknownPerson, Unsupported: nobody was charged.
        """
        self._process.check("these bounds")
        costs = self._priced(step)
        with self._lock:
            rows = self._rows(people)
            given = self._contributions(costs, norms, rows)
            for block, where in self._blocks(rows):
                spent = self._totals(where)
                cost, known = costs(given[block], spent, self._xp)
                self._set_totals(where, self._notion.person_after(spent, cost, known, self._xp))

    def epsilon(self, people: People | None = None, *, delta: float | None = None) -> Array:
        """(n,) float64, private: each person's pathwise bound; for restarts, their bound (see there)."""
        return self._read(people, self._notion.delta if delta is None else delta, ex_post=False)

    def ex_post_epsilon(self, people: People | None = None, *, delta: float | None = None) -> Array:
        """(n,) float64, private: each person's ex-post bound."""
        if not self._notion.person_ex_post:
            raise Unsupported(f"{type(self._boundary).__name__} makes no ex-post promise; use odometers.Renyi")
        return self._read(people, self._notion.delta if delta is None else delta, ex_post=True)

    def opened(self, people: People | None = None) -> Array:
        """(n,) float64, private: for restarts, the sizes of all filters opened for each person, together.

        They are in the measure that adds up, such as the Rényi divergence of the boundary's order: the odometer O_t of
        Algorithm 6. Infinity for people whose bound is infinite.

        Raises:
            Unsupported: the boundary does not restart.
        """
        size = self._notion.person_size
        if not size:
            raise Unsupported(f"{type(self._boundary).__name__} opens no filters; read epsilon()")
        kinds, which = np.unique(to_numpy(self._totals(self._rows(people)))[:, 0], return_inverse=True)
        values = np.asarray([inf if kind >= MOST else to_float(int(kind) * size) for kind in kinds])
        return self._xp.asarray(values[which], device=self._device)

    def statement(self, person: Hashable) -> Statement:
        """Tell one person about that person's own privacy: private, to be disclosed to this person alone."""
        ex_post = float(self.ex_post_epsilon([person])[0]) if self._notion.person_ex_post else None
        return Statement(person, float(self.epsilon([person])[0]), ex_post, self._notion.delta)

    def state(self) -> dict[str, Any]:
        """Everything needed to go on later, private: keep it where the data are. Restore it once only."""
        with self._lock:
            totals = to_numpy(self._spent).copy()
            return {"boundary": self._boundary.state(), "ids": self._ids_now(), "totals": totals}

    @classmethod
    def from_state(cls, state: dict[str, Any], *, xp: ModuleType | None = None, device: object = None) -> Self:
        """The accounts that ``state()`` described, to the last unit."""
        _check.saved(state, "boundary", "ids", "totals")
        kinds = {kind.__name__: kind for kind in _KINDS}
        name = state["boundary"]["odometer"]
        _check.one_of(tuple(kinds), odometer=name)
        totals = np.asarray(state["totals"])
        people = len(totals) if state["ids"] is None else state["ids"]
        accounts = cls(people, kinds[name].from_state(state["boundary"]), xp=xp, device=device)
        if totals.shape != tuple(accounts._spent.shape) or totals.dtype != np.int64 or np.any(totals < 0):
            raise ArgumentError("state: totals must be int64, >= 0, with a row for each person")
        if np.any(totals > MOST):
            raise ArgumentError(f"state: totals must be at most {MOST}, which stands for infinity")
        accounts._held = accounts._xp.asarray(totals.copy(), device=device)
        return accounts

    def _read(self, people: People | None, delta: float, *, ex_post: bool) -> Array:
        _check.between(0, 1, delta=delta)
        xp, totals = self._xp, self._totals(self._rows(people))
        bounds = xp.empty(totals.shape[0], dtype=xp.float64, device=self._device)
        step = self._block_size // 4
        for start in range(0, totals.shape[0], step):
            block = slice(start, min(start + step, totals.shape[0]))
            bounds[block] = self._notion.person_bound(totals[block, ...], delta=delta, ex_post=ex_post, xp=xp)
        return bounds
