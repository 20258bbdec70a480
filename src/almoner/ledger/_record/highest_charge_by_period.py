"""The most that can have been charged to anybody, by what is public, in each period of the rows."""

from bisect import bisect_right
from collections.abc import Callable, Sequence
from itertools import groupby

__all__ = ["HighestCharge", "Places"]

Places = tuple[int, int]
"""The first and the last of the periods, by their places in the ledger's list, that a question can be about."""


class HighestCharge:
    """The most units that any account of each period can have been charged. A ledger without periods has one for all.

    It is kept for runs of periods with the same number of units.
    """

    __slots__ = ("_runs",)

    def __init__(self) -> None:
        self._runs: list[tuple[int, int]] = [(0, 0)]
        """(first place, units): up to the place where the next one begins."""

    def most(self, places: Places | None = None) -> int:
        """The highest over these periods; over all for None."""
        return max(units for _, units in self._within(places))

    def runs(self) -> list[tuple[int, int]]:
        """(first place, units) of each run, in order."""
        return list(self._runs)

    def charge(self, places: Places | None, after: Callable[[int], int]) -> None:
        """Follow a question about these periods; about all for None.

        Args:
            places: of the periods.
            after: the most that anybody has been charged afterwards who had been charged so much, or less, before.
        """
        if places is None:
            self._runs = [(start, after(units)) for start, units in self._runs]
            return
        first, beyond = places[0], places[1] + 1
        low, high = max(0, self._next(first - 1) - 1), self._next(beyond)
        before = [run for run in self._runs[low : low + 1] if run[0] < first]
        charged = [(start, after(units)) for start, units in self._within(places)]
        runs = [*before, *charged, (beyond, self.at(beyond))]
        self._runs[low:high] = [next(same) for _, same in groupby(runs, key=lambda run: run[1])]

    def at(self, place: int) -> int:
        """The units of one period."""
        return self._runs[self._next(place) - 1][1]

    def or_all_of(self, parts: "Sequence[HighestCharge]") -> "HighestCharge":
        """In each period the lower of this bound and the sum of others, which bound the parts of what is charged."""
        least = HighestCharge()
        starts = sorted({start for each in (self, *parts) for start, _ in each.runs()})
        runs = [(start, min(self.at(start), sum(each.at(start) for each in parts))) for start in starts]
        least._runs = [next(same) for _, same in groupby(runs, key=lambda run: run[1])]
        return least

    def _within(self, places: Places | None) -> list[tuple[int, int]]:
        """The runs from the first to the last of these places; they begin there at the earliest."""
        if places is None:
            return self._runs
        first, last = places
        return [(first, self.at(first)), *self._runs[self._next(first) : self._next(last)]]

    def _next(self, place: int) -> int:
        """Which run is the first that begins after a place."""
        return bisect_right(self._runs, place, key=lambda run: run[0])
