"""Accounts with observers beside them, which count what each person contributes: for losses, or for running bounds.

What cannot be priced or counted is refused by all of them together, before anything is announced or charged.
"""

from collections.abc import Callable, Hashable, Sequence
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from almoner._arrays import Array, Mask
from almoner.errors import ArgumentError, Unsupported
from almoner.individual import AccountsPerPerson, Losses
from almoner.individual import Odometer as PersonOdometer
from almoner.mechanisms import Gaussian, Mechanism, SampledGaussian
from almoner.training._card import Boundary

__all__ = [
    "BoundsBeside",
    "Counted",
    "LossesBeside",
    "Observer",
    "check_bound",
    "check_price",
    "count_worst_case",
    "countable",
    "fresh_odometer",
]


class Observer(Protocol):
    """Counts what people contribute. Private where it is per person."""

    def check(self, step: Mechanism) -> None:
        """Raise Unsupported where the step cannot be counted; changes nothing."""

    def count(self, step: Mechanism, given: NDArray[np.float64]) -> None:
        """Count what each person contributes, (n,) private; 0 for those who were left out."""


class LossesBeside:
    """Losses that count each person's contributions."""

    def __init__(self, losses: Losses) -> None:
        self._losses = losses

    def check(self, step: Mechanism) -> None:
        """Refuse what is not Gaussian."""
        countable(step)

    def count(self, step: Mechanism, given: NDArray[np.float64]) -> None:
        """Count one step."""
        self._losses.record(countable(step), given)


class BoundsBeside:
    """Running bounds: one for each person, charged for what that person contributes; or one for the worst case.

    Args:
        odometer: private where it is per person.
        ids: (m,) whom the contributions are of; None: all people in order.
    """

    def __init__(self, odometer: PersonOdometer | Boundary, ids: Sequence[Hashable] | None = None) -> None:
        self._odometer, self._ids = odometer, ids

    def check(self, step: Mechanism) -> None:
        """Refuse what has no price in the odometer."""
        check_bound(self._odometer, step)

    def count(self, step: Mechanism, given: NDArray[np.float64]) -> None:
        """Count one step."""
        if isinstance(self._odometer, PersonOdometer):
            self._odometer.charge(step, given, self._ids)
        else:
            self._odometer.charge(step)


class Counted:
    """Accounts that tell observers what the people who pay contribute; private throughout.

    Args:
        accounts: the accounts that are charged.
        observers: told afterwards; a person who is left out of a step contributes nothing to it.
        before: called before anybody is charged.
    """

    def __init__(
        self, accounts: AccountsPerPerson, observers: Sequence[Observer], before: Callable[[], object] = lambda: None
    ) -> None:
        self._accounts, self._observers, self._before = accounts, observers, before

    def allowance(self, step: Mechanism) -> Array:
        """(n,) the allowance of the accounts."""
        return self._accounts.allowance(step)

    def check(self, step: Mechanism) -> None:
        """Raise Unsupported where anybody cannot price or count a step; nobody is charged."""
        check_price(self._accounts, step)
        for observer in self._observers:
            observer.check(step)

    def charge(self, step: Mechanism, norms: Array) -> Mask:
        """(n,) bool: charge each person, and count what those who pay contribute.

        Raises:
            Unsupported: the step cannot be priced or counted; nobody was charged.
        """
        self.check(step)
        self._before()
        active = self._accounts.charge(step, norms)
        given = np.where(np.asarray(active), np.asarray(norms, dtype=np.float64), 0.0)
        for observer in self._observers:
            observer.count(step, given)
        return active


def check_price(accounts: object, step: Mechanism) -> None:
    """Raise Unsupported where a step has no price in accounts; nobody is charged."""
    if callable(check := getattr(accounts, "check", None)):
        check(step)


def check_bound(odometer: PersonOdometer | Boundary, step: Mechanism) -> None:
    """Raise Unsupported where a step has no price in an odometer; nothing is counted."""
    if isinstance(odometer, PersonOdometer):
        countable(step, by="odometer")
    odometer.check(step)


def countable(mechanism: Mechanism, *, by: str = "losses") -> Gaussian | SampledGaussian:
    """The mechanism; what losses, or an odometer, cannot count is refused."""
    if not isinstance(mechanism, Gaussian | SampledGaussian):
        raise Unsupported(f"{by}: {mechanism!r} can't be counted beside Gaussian steps; nothing was released")
    return mechanism


def count_worst_case(odometer: PersonOdometer | Boundary, mechanism: Mechanism, people: int) -> None:
    """Charge an odometer for as much as a mechanism allows of each of so many people."""
    if isinstance(odometer, PersonOdometer):
        odometer.charge(mechanism, np.full(people, countable(mechanism, by="odometer").sensitivity))
    else:
        odometer.charge(mechanism)


def fresh_odometer(odometer: Boundary) -> Boundary:
    """An odometer of one's own, with the settings of one that was charged for nothing."""
    if not isinstance(odometer, Boundary) or odometer.count:
        raise ArgumentError(f"odometer={odometer!r} must be a fresh odometer")
    return odometer.fresh()
