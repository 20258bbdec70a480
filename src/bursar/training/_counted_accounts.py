"""Accounts that also count what each person contributes: for losses, or for running bounds."""

import numpy as np

from bursar._arrays import Array, Mask
from bursar.errors import ArgumentError, Unsupported
from bursar.individual import AccountsPerPerson, Losses
from bursar.individual import Odometer as PersonOdometer
from bursar.mechanisms import Gaussian, Mechanism, SampledGaussian
from bursar.training._card import Boundary

__all__ = ["LossCounting", "WithOdometer", "count_worst_case", "countable", "fresh_odometer"]


class LossCounting:
    """Accounts that also count each person's contributions, from which losses are computed; private throughout.

    Args:
        accounts: the accounts that are charged.
        losses: the counts; a person who is left out of a step contributes nothing to it.
    """

    def __init__(self, accounts: AccountsPerPerson, losses: Losses) -> None:
        self._accounts, self._losses = accounts, losses

    def allowance(self, step: Mechanism) -> Array:
        """(n,) the allowance of the accounts."""
        return self._accounts.allowance(step)

    def charge(self, step: Mechanism, norms: Array) -> Mask:
        """(n,) bool: charge each person, and count what those who pay contribute."""
        step = countable(step)
        active = self._accounts.charge(step, norms)
        self._losses.record(step, np.where(np.asarray(active), np.asarray(norms, dtype=np.float64), 0.0))
        return active


class WithOdometer:
    """Accounts with an odometer beside them, which counts what is charged; private where it is per person.

    Args:
        accounts: the accounts that are charged.
        odometer: one for each person, charged for what that person contributes; or one for the worst case.
    """

    def __init__(self, accounts: AccountsPerPerson, odometer: PersonOdometer | Boundary) -> None:
        self._accounts, self._odometer = accounts, odometer

    def allowance(self, step: Mechanism) -> Array:
        """(n,) the allowance of the accounts."""
        return self._accounts.allowance(step)

    def charge(self, step: Mechanism, norms: Array) -> Mask:
        """(n,) bool: charge each person, and count what those who pay contribute."""
        active = self._accounts.charge(step, norms)
        if isinstance(self._odometer, PersonOdometer):
            self._odometer.charge(step, np.where(np.asarray(active), np.asarray(norms, dtype=np.float64), 0.0))
        else:
            self._odometer.charge(step)
        return active


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
