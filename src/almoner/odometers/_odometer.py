"""Charge and read: an account with a boundary that is right at every moment at once."""

from typing import ClassVar, TypeVar

from almoner import mechanisms
from almoner._notions import Account, Boundary, PersonBound, Totals
from almoner.errors import ArgumentError

Bound = TypeVar("Bound", bound=PersonBound)


class Counting(Account[Bound]):
    """An account without a budget. ``charge`` is the only method that changes it."""

    KIND: ClassVar[str] = "odometer"
    _SAVED: ClassVar[tuple[str, ...]] = ("totals", "excess", "failures")

    @property
    def delta(self) -> float:
        """The failure probability of the promise. Public."""
        return self._notion.delta

    def charge(self, mechanism: mechanisms.Mechanism) -> None:
        """Count a mechanism, before it is run.

        Raises:
            BudgetExceeded: of restarts, one round costs more than a filter holds. Nothing is counted: do not run it.
            Unsupported: no theorem gives this mechanism a cost here. Nothing is counted: do not run it.
        """
        self._process.check("this odometer")
        with self._lock:
            after = self._notion.after(self._totals, mechanism)
            self._notion, self._totals = self._notion.settle(mechanism, after)
            self._count += mechanisms.rounds(mechanism)

    def check(self, mechanism: mechanisms.Mechanism) -> None:
        """Raise what ``charge`` would raise for a mechanism; nothing is counted.

        Raises:
            Unsupported: no theorem gives this mechanism a cost here.
        """
        notion, totals = self._now()
        notion.after(totals, mechanism)

    def _now(self) -> tuple[Bound, Totals]:
        with self._lock:
            return self._notion, self._totals


class Odometer(Counting[Boundary]):
    """An account with a boundary that is right at every moment at once. ``charge`` is the only method that changes it.

    Weights, orders and scales are fixed before the first charge, and so is ``sum_delta``, the part of delta that is
    kept for rounds with a delta of their own. By default it is half of delta if the first mechanism charged may fail
    (which is known before there is a result), otherwise a thousandth: the same rule as that of filters.
    """

    def epsilon(self, *, delta: float | None = None) -> float:
        """The pathwise bound now; see the class for what it promises. Reading changes nothing.

        Another delta than the odometer's own, in (0, 1), public, is chosen without looking at the results.
        """
        notion, totals = self._now()
        return notion.epsilon(totals, notion.delta if delta is None else delta, ex_post=False)

    def ex_post_epsilon(self, *, delta: float | None = None, after: mechanisms.Mechanism | None = None) -> float:
        """The ex-post bound now, as ``epsilon``; with ``after``, if this mechanism were charged as well."""
        notion, totals = self._now()
        if after is not None:
            totals = notion.after(totals, after)
        return notion.epsilon(totals, notion.delta if delta is None else delta, ex_post=True)

    def _saved(self) -> dict[str, list[int | float]]:
        width = self._notion.width
        totals = list(self._totals)[-2 * (width + 1) :]  # all of them, where no plan stands before
        return {"totals": totals[:width], "excess": totals[width + 1 : -1], "failures": [totals[width], totals[-1]]}

    def _restore(self, *parts: Totals) -> None:
        costs, excess, failures = parts
        width = self._notion.width
        for name, part, length in (("totals", costs, width), ("excess", excess, width), ("failures", failures, 2)):
            if len(part) != length:
                raise ArgumentError(f"state: {name} must have the length that the parameters imply")
        self._totals = (*costs, failures[0], *excess, failures[1])
