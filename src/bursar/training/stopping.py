"""When to stop: noisy counts of the people who dropped out, and "are at least so many still active?".

How many people have budget left is private, so it is counted with noise, and the noise is paid for from the same
accounts. Counting everybody who is active anew at each step would charge everybody at each step. But each person drops
out once at most, so a running count of *drops* is cheap: one person moves it by one unit, from one step on.

Both questions book their price in everybody's account before the first step. What remains is the budget for training,
so whoever takes part at all has paid, and nobody's total exceeds the budget, whatever else the accounts are used for.

Names and symbols
    steps     T   how many steps there may be; public
    drop          a person's first step at which that person cannot pay, or has almost nothing left; private

Source: theory 5.8; the proof is in docs/proofs/dropouts.md.
"""

import os
from abc import ABC, abstractmethod
from collections.abc import Callable
from math import log
from threading import Lock
from typing import Any

import array_api_compat
import numpy as np

from bursar import _check, individual, mechanisms
from bursar._arrays import Array, Library, Mask
from bursar._uncopyable import Uncopyable
from bursar.errors import ArgumentError, Unsupported
from bursar.training._counters import Counter, SquareRoot, Tree, rounded

__all__ = ["Dropouts", "SquareRoot", "StillActive", "Tree"]

LEAST = 0.01
"""Whoever can contribute less than this share of a step's sensitivity has dropped out."""


class Doors(Uncopyable, ABC):
    """Accounts that people leave once and for good; the price of asking about them is booked in advance."""

    _answered: Any
    own_samples: bool
    """Whether drops may depend on a person's own past samples, as they do where bounds depend on them."""

    def __init__(
        self, people: individual.Filter, price: mechanisms.Mechanism, norm: Any, noise: Any, least: float
    ) -> None:
        if not isinstance(people, individual.Filter):
            raise ArgumentError(f"people={people!r} must be an individual.Filter")
        _check.between(0, 1, least=least)
        if not people.budget.admits(price):
            raise ArgumentError(f"people: {price!r} costs more than the whole budget {people.budget!r}")
        self._people, self._price, self._least = people, price, least
        self._noise, self.reproducible = np.random.default_rng() if noise is None else noise, noise is not None
        held = people.spent()
        self._xp: Library = array_api_compat.array_namespace(held)
        self._device = array_api_compat.device(held)
        kind = self._xp.bool if norm is True else self._xp.float64
        norms = self._xp.full((held.shape[0],), norm, dtype=kind, device=self._device)
        # whoever cannot pay is not counted, and never takes part; the others have paid before anything is released
        self._inside: Mask = people.charge(price, norms)
        self._gathered: Callable[[Any], list[Any]] = lambda value: [value]
        self._process = os.getpid()
        self._lock = Lock()  # one step after another: a drop is counted once

    def __repr__(self) -> str:
        return f"training.stopping.{type(self).__name__}(price={self._price!r}, budget={self._people.budget!r})"

    @property
    def people(self) -> individual.Filter:
        """The accounts that it stands in front of. PRIVATE."""
        return self._people

    @property
    def most(self) -> int | None:
        """How many steps the price is for; None: any number. Public."""
        return None

    def close(self) -> individual.Filter:
        """The accounts, for other uses."""
        return self._people

    @property
    def price(self) -> mechanisms.Mechanism:
        """What was booked in everybody's account. Public."""
        return self._price

    def among(self, gathered: Callable[[Any], list[Any]]) -> None:
        """Count everybody of several processes, each of which holds the accounts of its own people.

        ``Trainer.fit`` calls it; in a loop of one's own, before the first charge, in every process.

        Args:
            gathered: gives every process's value, in the same order everywhere, e.g. by
                ``torch.distributed.all_gather_object``. What it carries is private. The first process's noise counts.
        """
        if len(set(gathered(self._terms()))) > 1:
            raise ArgumentError("group: the processes do not ask the same question; nothing was counted")
        self._gathered = gathered

    def allowance(self, step: mechanisms.Mechanism) -> Array:
        """(n,) private: the largest norm each may still contribute to this step, the booked price left aside."""
        room = self._people.allowance(_sized(step))
        return self._xp.where(self._stay(step, room), room, self._xp.zeros_like(room))

    def charge(self, step: mechanisms.Mechanism, norms: Array) -> Mask:
        """Charge everybody who is still in and can pay, see who drops out, and answer the question anew.

        Args:
            step: public. What will be run: a mechanism with a sensitivity.
            norms: (n,) private, as for ``individual.Filter.charge``.

        Returns:
            (n,) bool, private: who takes part. Whoever was refused, or could contribute less than the share ``least``
            of the sensitivity, has dropped out for good.

        Guarantee: no account exceeds its budget; whether and when a person drops out is a function of that person's
            own data and past outputs.
        Source: theory 5.1, 5.2 and 5.8.
        """
        if os.getpid() != self._process:
            raise ArgumentError("this process was forked since: it would answer with the same noise as the other")
        with self._lock:
            return self._charge(step, norms)

    def _charge(self, step: mechanisms.Mechanism, norms: Array) -> Mask:
        self._refuse_more()
        room = self._people.allowance(_sized(step))
        stay = self._stay(step, room)
        asked = self._xp.asarray(norms, dtype=self._xp.float64, device=self._device)
        if tuple(asked.shape) != tuple(self._inside.shape):
            raise ArgumentError("norms must have one entry for everybody who had an account when the counting began")
        asked = self._xp.where(stay, asked, self._xp.asarray(float("nan"), device=self._device))
        active: Mask = self._people.charge(step, asked)
        known = (asked >= 0) & (asked <= step.sensitivity)  # type: ignore[attr-defined]
        after = stay & (active | ~known)  # NaN and the like: out of this step, but their budget is all there
        before, self._inside = self._inside, after
        here = int(self._xp.count_nonzero(before & ~after)), int(self._xp.count_nonzero(after))
        everywhere = [sum(part) for part in zip(*self._gathered(here), strict=True)]
        self._answered = self._gathered(self._answer(*everywhere))[0]
        return active

    def _stay(self, step: Any, room: Array) -> Mask:
        if tuple(room.shape) != tuple(self._inside.shape):
            raise ArgumentError("people: nobody may join while drops are counted")
        stay: Mask = self._inside & (room >= self._least * step.sensitivity)
        return stay

    def _refuse_more(self) -> None:
        """Raise where no further step is possible."""

    @abstractmethod
    def _terms(self) -> str:
        """What is asked, public: the same in every process."""

    @abstractmethod
    def _answer(self, dropped: int, active: int) -> Any:
        """Something to release about this step's numbers, which are private."""


class Dropouts(Doors):
    """Everybody's accounts, and after each step a noisy count of the people who have dropped out so far.

    Args:
        people: private. The accounts. The price of the counts is booked in each of them now; whoever cannot pay it is
            not counted and takes no part.
        counter: public. A Tree or a SquareRoot: how many steps there are at most, and the noise.
        noise: public. The generator of the noise; by default one that the operating system seeds. A card says of
            any other that the noise is reproducible.
        least: public, in (0, 1). Whoever can contribute less than this share of a step's sensitivity has dropped out.

    Use it in place of the accounts: in ``descend``, or in a loop of one's own. Public after each charge: ``count``,
    and its ``standard_error``. It cannot be saved: after a restart, make a new one, which books its price anew and
    counts the drops from then on.

    Guarantee: all counts and everything else that the accounts paid for are together as private as the budget says,
        for adding or removing any one person.
    Source: theory 5.8 and 5.1; docs/proofs/dropouts.md.

    >>> from bursar import filters
    >>> people = individual.Filter(1000, filters.Gaussian(epsilon=1.0, delta=1e-5))
    >>> accounts = Dropouts(people, SquareRoot(steps=100, sigma=50.0), noise=np.random.default_rng(0))
    >>> step = mechanisms.Gaussian(sigma=10.0)
    >>> for _ in range(10):
    ...     active = accounts.charge(step, np.ones(1000))
    >>> bool(abs(accounts.count - 1000) < 4 * accounts.standard_error), round(accounts.standard_error, 1)
    (True, 66.9)
    """

    own_samples = True  # each count is a Gaussian round, whatever the samples were

    def __init__(
        self,
        people: individual.Filter,
        counter: Counter,
        *,
        noise: np.random.Generator | None = None,
        least: float = LEAST,
    ) -> None:
        if not isinstance(counter, Counter):
            raise ArgumentError(f"counter={counter!r} must be a Tree or a SquareRoot")
        super().__init__(people, counter.mechanism, counter.mechanism.sensitivity, noise, least)
        self._counter, self._step, self._dropped, self._closed = counter, 0, 0, False
        self._errors = counter.errors(self._noise)
        self._answered = 0.0

    @property
    def most(self) -> int:
        """How many counts there may be. Public."""
        return self._counter.steps

    @property
    def count(self) -> float:
        """The noisy count after the last step; 0 before the first. Public."""
        return float(self._answered)

    @property
    def standard_error(self) -> float:
        """The standard deviation of ``count``. Public."""
        return self._counter.standard_error(self._step) if self._step else 0.0

    def close(self) -> individual.Filter:
        """End the counting; whoever never dropped out was in no count, and gets back what was booked.

        Returns:
            The accounts, for other uses. No further charge is possible here.
        """
        with self._lock:
            if not self._closed:
                if self._people.spent().shape[0] != self._inside.shape[0]:
                    raise ArgumentError("people: nobody may join while drops are counted")
                self._closed = True
                self._people.refund(self._price, self._inside)
        return self._people

    def _refuse_more(self) -> None:
        if self._closed:
            raise ArgumentError("the counting was closed")
        if self._step == self._counter.steps:
            raise ArgumentError(f"all {self._counter.steps} counts that were paid for are released")

    def _terms(self) -> str:
        return repr(self._counter)

    def _answer(self, dropped: int, active: int) -> float:
        self._step += 1
        self._dropped += dropped
        return rounded(self._dropped + next(self._errors), self._counter.sigma)


class StillActive(Doors):
    """Everybody's accounts, and after each step the answer to "are at least so many people still active?".

    Args:
        people: private. The accounts, with a budget that takes pure mechanisms (Zcdp, Renyi, ...). The whole price is
            booked in each of them now; whoever cannot pay it is not counted and takes no part.
        at_least: public. So many people.
        epsilon: public, > 0. The price, whatever the number of steps.
        noise: public. As for ``Dropouts``.
        least: public, in (0, 1). As for ``Dropouts``.

    Public after each charge: ``still``. Once it is False it remains so, and no more is asked.

    Guarantee: all answers together are epsilon-DP, whatever else is released in between, for adding or removing any
        one person; with everything else that the accounts paid for they are as private as the budget says.
    Source: theory 5.8; Dwork & Roth (2014), Alg. 1; for queries that all move one way Lyu, Su & Li (2017), Thm 5; for
        other releases in between Vadhan & Wang (2021). docs/proofs/dropouts.md.
    """

    own_samples = False  # its price is not a sum of prices of rounds

    def __init__(
        self,
        people: individual.Filter,
        *,
        at_least: float,
        epsilon: float,
        noise: np.random.Generator | None = None,
        least: float = LEAST,
    ) -> None:
        _check.number(at_least=at_least)
        _check.positive(epsilon=epsilon)
        super().__init__(people, mechanisms.Pure(epsilon), True, noise, least)
        self._at_least, self._scale = at_least, 2.0 / epsilon
        self._threshold = at_least + self._noise.laplace(0.0, self._scale)  # secret
        self._answered = True

    @property
    def still(self) -> bool:
        """Whether at least so many were active, as far as noisy answers tell. Public."""
        return bool(self._answered)

    def margin(self, *, steps: int, beta: float) -> float:
        """With probability 1 - beta every one of so many answers is right but for this number of people. Public."""
        _check.whole(1, steps=steps)
        _check.between(0, 1, beta=beta)
        return self._scale * (log(2 / beta) + log(2 * steps / beta))

    def _terms(self) -> str:
        return f"{self._at_least!r}, {self._price!r}"

    def _answer(self, dropped: int, active: int) -> bool:
        return self._answered and bool(active + self._noise.laplace(0.0, self._scale) >= self._threshold)


def _sized(step: Any) -> Any:
    """A step in which people can contribute more or less."""
    if not isinstance(step, mechanisms.Mechanism) or not hasattr(step, "sensitivity"):
        raise Unsupported(f"step={step!r} must be a mechanism with a sensitivity")
    return step
