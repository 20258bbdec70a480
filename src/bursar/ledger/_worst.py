"""What can have been charged to anybody at most, by what is public, in each period of the rows."""

from collections.abc import Callable
from itertools import groupby

__all__ = ["Places", "Worst"]

Places = tuple[int, int]
"""The first and the last of the periods, by their places in the ledger's list, that a question can be about."""


class Worst:
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
        self._runs = (
            [(start, after(units)) for start, units in self._runs] if places is None else self._split(places, after)
        )

    def _split(self, places: Places, after: Callable[[int], int]) -> list[tuple[int, int]]:
        first, beyond = places[0], places[1] + 1
        before = [run for run in self._runs if run[0] < first]
        behind = [run for run in self._runs if run[0] > beyond]
        charged = [(start, after(units)) for start, units in self._within(places)]
        runs = [*before, *charged, (beyond, self._at(beyond)), *behind]
        return [next(same) for _, same in groupby(runs, key=lambda run: run[1])]

    def _within(self, places: Places | None) -> list[tuple[int, int]]:
        """The runs from the first to the last of these places; they begin there at the earliest."""
        if places is None:
            return self._runs
        first, last = places
        return [(first, self._at(first)), *((start, units) for start, units in self._runs if first < start <= last)]

    def _at(self, place: int) -> int:
        return next(units for start, units in reversed(self._runs) if start <= place)
