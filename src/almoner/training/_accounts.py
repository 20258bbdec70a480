"""Accounts of all people by one worst case, people who are named by ids, and the data holder's report. Private."""

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from almoner import filters
from almoner._private import LEVELS, MARK
from almoner.errors import ArgumentError, Unsupported
from almoner.individual import Filter
from almoner.mechanisms import Gaussian, Mechanism, SampledGaussian, repeated

__all__ = ["Everybody", "HolderReport", "ShareHistory", "ids_and_rows", "join_new"]

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


LOOKS = 100  # a report shows people's shares at about this many moments of the run
USED_UP = 1 - 1e-6  # from this share on a budget counts as used up


class HolderReport:
    """The used part of each person's budget, and how many people still take part. PRIVATE: for the data holder.

    Fields (all private):
        shares: (n,) the share of each person's budget that is used, in [0, 1], in the order of the people.
        steps: (m,) the steps after which the accounts were looked at.
        active: (m,) how many people still had budget left after those steps.
        quantiles: (m, 6) quantiles of the shares after those steps, at the levels 5, 25, 50, 75, 95 and 100 %.
    """

    def __init__(self, shares: ArrayLike, steps: ArrayLike, active: ArrayLike, quantiles: ArrayLike) -> None:
        self.shares: NDArray[np.float64] = np.asarray(shares, dtype=np.float64)
        self.steps: NDArray[np.int64] = np.asarray(steps, dtype=np.int64)
        self.active: NDArray[np.int64] = np.asarray(active, dtype=np.int64)
        self.quantiles: NDArray[np.float64] = np.asarray(quantiles, dtype=np.float64)

    def __repr__(self) -> str:
        return f"HolderReport({MARK})"

    def to_dict(self) -> dict[str, Any]:
        """All fields but the shares of single people, marked private. Not for publication."""
        return {
            "mark": MARK,
            "people": len(self.shares),
            "steps": self.steps.tolist(),
            "active": self.active.tolist(),
            "levels": list(LEVELS),
            "quantiles": self.quantiles.tolist(),
            "histogram": np.histogram(self.shares, bins=20, range=(0.0, 1.0))[0].tolist(),
        }


class ShareHistory:
    """Shares of budgets that are used, over so many steps, from each person's, ``spent``, (n,); private."""

    def __init__(self, spent: Callable[[], ArrayLike], steps: int) -> None:
        self._spent, self._last_step = spent, steps
        self._every = max(1, steps // LOOKS)
        self._rows: list[tuple[int, int, NDArray[np.float64]]] = []

    def add(self, step: int) -> None:
        """Keep the quantiles after this step, if it is one of the moments that the report shows."""
        if step % self._every and step != self._last_step:
            return
        shares = self.shares()
        self._rows.append((step, int(np.count_nonzero(shares < USED_UP)), np.quantile(shares, LEVELS)))

    def shares(self) -> NDArray[np.float64]:
        """(n,) the share of each person's budget that is used, private."""
        return np.clip(np.asarray(self._spent(), dtype=np.float64), 0.0, 1.0)

    def report(self) -> HolderReport:
        steps, active, quantiles = zip(*self._rows, strict=True) if self._rows else ((), (), ())
        return HolderReport(self.shares(), steps, active, quantiles)
