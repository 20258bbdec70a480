"""Accounts that people leave for good when they cannot pay, and that answer a public question at each charge."""

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from threading import Lock
from typing import Any, cast

import array_api_compat
import numpy as np

from almoner import _check, individual, mechanisms
from almoner._arrays import Array, Library, Mask
from almoner._uncopyable import OwnProcess, Uncopyable
from almoner.errors import ArgumentError, Unsupported

__all__ = ["ActiveAnswer", "DropoutCount", "StoppingAccounts"]


@dataclass(frozen=True, slots=True)
class DropoutCount:
    """A noisy count of the people who have dropped out so far. Every field is public."""

    count: float
    standard_error: float
    price: mechanisms.Mechanism
    """The price that was booked in each account for all counts."""


@dataclass(frozen=True, slots=True)
class ActiveAnswer:
    """The answer to "are at least so many people still active?". Every field is public."""

    still: bool
    price: mechanisms.Mechanism
    """The price that was booked in each account for all answers."""


class StoppingAccounts(Uncopyable, ABC):
    """Accounts that people leave for good; the price of asking about them is booked in advance."""

    own_samples: bool
    """True if drops may depend on a person's own past samples, as they do where bounds depend on them."""

    def __init__(
        self,
        people: individual.Filter,
        price: mechanisms.Mechanism,
        norm: float | bool,
        noise: np.random.Generator | None,
        least: float,
    ) -> None:
        if not isinstance(people, individual.Filter):
            raise ArgumentError(f"people={people!r} must be an individual.Filter")
        _check.between(0, 1, least=least)
        if not people.budget.admits(price):
            raise ArgumentError(f"people: {price!r} costs more than the whole budget {people.budget!r}")
        self._people, self._price, self._least = people, price, least
        self._noise, self.reproducible = np.random.default_rng() if noise is None else noise, noise is not None
        spent = people.spent()
        self._xp: Library = array_api_compat.array_namespace(spent)
        self._device = array_api_compat.device(spent)
        dtype = self._xp.bool if norm is True else self._xp.float64
        norms = self._xp.full((spent.shape[0],), norm, dtype=dtype, device=self._device)
        # a person who cannot pay is not counted, and never takes part; all others have paid before the first release
        self._inside: Mask = people.charge(price, norms)
        self._before_first = 0
        self._all_gather: Callable[[Any], list[Any]] = lambda value: [value]
        self._process = OwnProcess()
        self._lock = Lock()  # one step after another: a drop is counted once

    def __repr__(self) -> str:
        return f"training.stopping.{type(self).__name__}(price={self._price!r}, budget={self._people.budget!r})"

    @property
    def people(self) -> individual.Filter:
        """The accounts that are charged. PRIVATE."""
        return self._people

    @property
    def most(self) -> int | None:
        """The number of steps that the price is for; None: any number. Public."""
        return None

    @property
    def price(self) -> mechanisms.Mechanism:
        """The price that was booked in each account. Public."""
        return self._price

    @property
    @abstractmethod
    def answer(self) -> DropoutCount | ActiveAnswer:
        """The latest answer, as a frozen value. Public."""

    def close(self) -> individual.Filter:
        """The accounts, for other uses."""
        return self._people

    def begin_after(self, steps: int) -> None:
        """Charge so many steps to the accounts directly before the first one that is counted; before any charge.

        Args:
            steps: public. A person who is out after them is in the first count.
        """
        self._before_first = steps

    @property
    def begun(self) -> bool:
        """True if a step was counted. Public."""
        return self._before_first < 0

    def undo(self) -> None:
        """Give back what was booked, before the first charge: nothing was asked, and nothing will be."""
        with self._lock:
            if self._people.refundable(self._price):
                self._people.refund(self._price, self._inside)
            self._inside = cast(Mask, self._xp.zeros_like(self._inside))

    def among(self, gathered: Callable[[Any], list[Any]]) -> None:
        """Count the people of several processes, each of which holds the accounts of its own people.

        ``Trainer.fit`` calls it; in a loop of your own, before the first charge, in every process.

        Args:
            gathered: gives every process's value, in the same order everywhere, e.g. by
                ``torch.distributed.all_gather_object``. What it carries is private. The first process's noise counts.
        """
        if len(set(gathered(self._terms()))) > 1:
            raise ArgumentError("group: the processes do not ask the same question; nothing was counted")
        self._all_gather = gathered

    def allowance(self, step: mechanisms.Mechanism) -> Array:
        """(n,) private: the largest norm each may still contribute to this step, the booked price left aside.

        Several steps, ``Repeated``, are allowed who can still contribute to one of them.
        """
        if self._before_first > 0:
            return self._people.allowance(step)
        one = mechanisms.repeated(step)[0]
        sensitivity, room = _sensitivity(one), self._people.allowance(one)
        staying = self._staying(sensitivity, room)
        allowance = room if step is one else self._people.allowance(step)
        return self._xp.where(staying, allowance, self._xp.zeros_like(allowance))

    def check(self, step: mechanisms.Mechanism) -> None:
        """Raise what ``charge`` would raise for a step, whoever is in it; nobody is charged."""
        if self._before_first <= 0:
            self._refuse_more()
            _sensitivity(step)
        self._people.check(step)

    def charge(self, step: mechanisms.Mechanism, norms: Array) -> Mask:
        """Charge each person who is still in and can pay, see who drops out, and answer the question anew.

        Args:
            step: public. What will be run: a mechanism with a sensitivity.
            norms: (n,) private, as for ``individual.Filter.charge``.

        Returns:
            (n,) bool, private: who takes part. A person who was refused, or could contribute less than the share
            ``least`` of the sensitivity, has dropped out for good.

        Guarantee: no account exceeds its budget; whether and when a person drops out is a function of that person's
            own data and past outputs.
        Source: theory 5.1, 5.2 and 5.8.
        """
        self._process.check(f"this {type(self).__name__}")
        with self._lock:
            if self._before_first > 0:
                active = self._people.charge(step, norms)
                self._before_first -= 1
                return active
            self._before_first = -1
            return self._charge(step, norms)

    def _charge(self, step: mechanisms.Mechanism, norms: Array) -> Mask:
        self._refuse_more()
        sensitivity = _sensitivity(step)
        staying = self._staying(sensitivity, self._people.allowance(step))
        norms = self._xp.asarray(norms, dtype=self._xp.float64, device=self._device)
        if tuple(norms.shape) != tuple(self._inside.shape):
            raise ArgumentError("norms must have one entry for each person who had an account when the counting began")
        norms = self._xp.where(staying, norms, self._xp.asarray(float("nan"), device=self._device))
        active: Mask = self._people.charge(step, norms)
        known = (norms >= 0) & (norms <= sensitivity)
        inside = staying & (active | ~known)  # NaN and the like: out of this step, but their budget is all there
        before, self._inside = self._inside, inside
        counts = int(self._xp.count_nonzero(before & ~inside)), int(self._xp.count_nonzero(inside))
        dropped, still_active = (sum(part) for part in zip(*self._all_gather(counts), strict=True))
        self._release(self._all_gather(self._noisy_answer(dropped, still_active))[0])
        return active

    def _staying(self, sensitivity: float, room: Array) -> Mask:
        if tuple(room.shape) != tuple(self._inside.shape):
            raise ArgumentError("people: nobody may join while drops are counted")
        staying: Mask = self._inside & (room >= self._least * sensitivity)
        return staying

    def _refuse_more(self) -> None:
        """Raise where no further step is possible."""

    @abstractmethod
    def _terms(self) -> str:
        """The question's terms, public: equal in every process."""

    @abstractmethod
    def _noisy_answer(self, dropped: int, active: int) -> float:
        """Something to release about this step's numbers, which are private."""

    @abstractmethod
    def _release(self, answer: float) -> None:
        """Keep the answer, which is public: that of the first process."""


def _sensitivity(step: mechanisms.Mechanism) -> float:
    """The most that a person can contribute to a step; refuses a step in which all contribute the same."""
    sensitivity: float | None = getattr(step, "sensitivity", None)
    if not isinstance(step, mechanisms.Mechanism) or sensitivity is None:
        raise Unsupported(f"step={step!r} must be a mechanism with a sensitivity")
    return sensitivity
