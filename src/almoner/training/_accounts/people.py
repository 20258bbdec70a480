"""Accounts of all people by one worst case, and people who are named by ids. Private, but for the worst case."""

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from almoner import filters
from almoner.errors import ArgumentError, Unsupported
from almoner.individual import Filter
from almoner.mechanisms import Gaussian, Mechanism, SampledGaussian, repeated

__all__ = ["Everybody", "ids_and_rows", "join_new"]

Array = NDArray[np.float64]


@dataclass(frozen=True, eq=False, repr=False)
class Everybody:
    """Accounts without individual accounting: a step costs its worst case, charged to one public filter.

    Args:
        people: how many there are.
        budget: the public filter; None: nobody is charged and nobody refused, because something else counts.

    Guarantee: each person is charged the full sensitivity of every step, so the filter's guarantee holds for all.
    Source: theory.md statements 4.1 to 4.3; Feldman & Zrnic (2021), Algorithm 7.
    """

    people: int
    budget: filters.Filter | None

    def restored(self, state: dict[str, Any]) -> "Everybody":
        """The accounts that ``state`` describes, of as many people."""
        kind: Any = type(self.budget)
        return Everybody(self.people, kind.from_state(state))

    def admits(self, step: Mechanism) -> bool:
        """True if the public filter has room; asking changes nothing."""
        return self.budget is None or self.budget.admits(step)

    def check(self, step: Mechanism) -> None:
        """Raise Unsupported where a step has no price; nothing is charged."""
        if self.budget is not None:
            self.budget.admits(step)
        elif not isinstance(step, Gaussian | SampledGaussian):
            raise Unsupported(f"{step!r} can't be counted beside Gaussian steps; nothing was released")

    def state(self) -> dict[str, Any] | None:
        """The state of the public filter; None without one."""
        return None if self.budget is None else self.budget.state()

    def allowance(self, step: Mechanism) -> Array:
        """(n,) the sensitivity of the step, for each person; it is the same for several steps."""
        return np.full(self.people, repeated(step)[0].sensitivity)  # type: ignore[attr-defined]

    def charge(self, step: Gaussian | SampledGaussian, norms: Array) -> NDArray[np.bool_]:
        """Charge the worst case once, or raise BudgetExceeded; (n,) private: who keeps to the sensitivity."""
        if self.budget is not None:
            self.budget.charge(step)
        return np.asarray((norms >= 0) & (norms <= step.sensitivity))


def ids_and_rows(people: object, records: int) -> tuple[list[Hashable], list[int]]:
    """(m,) ids in the order of appearance, and (records,) their numbers; ArgumentError where an id is missing."""
    listed: Any = people.tolist() if hasattr(people, "tolist") else people  # whole numbers as Python's own
    if isinstance(listed, str | bytes) or not isinstance(listed, Sequence):
        raise ArgumentError(f"people must be a list of ids, one for each record, not {type(people).__name__}")
    if len(listed) != records:
        raise ArgumentError("people must have an id for each record")
    listed = [_plain(each) for each in listed]
    rows: dict[Hashable, int] = {}
    for person in listed:
        if not isinstance(person, Hashable) or isinstance(person, float | bool) or person is None or person != person:
            raise ArgumentError("people must be whole numbers, texts or other hashable ids; none may be missing")
        rows.setdefault(person, len(rows))
    return list(rows), [rows[person] for person in listed]


def _plain(person: Any) -> Any:
    """Numbers of NumPy and PyTorch as Python's own: tensors of one number are different to Python."""
    if not hasattr(person, "item") or not hasattr(person, "shape"):
        return person
    return None if person.shape else person.item()  # several numbers are no id


def join_new(accounts: Filter, ids: Sequence[Hashable]) -> None:
    new = accounts.missing(ids)
    if new and accounts.has_shares:
        raise Unsupported("people: accounts with shares are opened by join(), with the share of each person who joins")
    accounts.join(new)
