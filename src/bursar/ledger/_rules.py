"""What is agreed on beside the budget: limits, reservations and a watch; and what they leave to a question."""

from collections.abc import Mapping
from typing import Any

from bursar.errors import ArgumentError
from bursar.ledger._terms import exceeded, scopes_of
from bursar.ledger._watch import Watch

__all__ = ["Agreed"]


class Agreed:
    """What the record says, read entry by entry. Public, but for the noise of the watch.

    Fields:
        limits: units by scope.
        reserved: units by key, and whose question may use them.
        watch: the watch, if one was begun; ``spoke``: whether it has spoken.
    """

    def __init__(self, budget: int) -> None:
        self._budget = budget
        self.limits: dict[str, int] = {}
        self.reserved: dict[str, tuple[int, dict[str, str]]] = {}
        self.watch: Watch | None = None
        self.spoke = False

    def read(self, public: Mapping[str, Any], private: Mapping[str, Any]) -> None:
        """Take in an entry that is no answer."""
        match public["kind"]:
            case "limited":
                self.limits[public["scope"]] = int(public["units"])
            case "reserved":
                self.reserved[public["name"]] = int(public["units"]), public.get("whose", {})
            case "released":
                self.reserved.pop(public["name"], None)
            case "watched":
                self.watch = Watch.recorded(public, private)
            case "spoke":
                self.spoke = True

    def used(self, reserved: str | None) -> None:
        """Take in an answer that used what was reserved under this key, if under any."""
        if reserved is not None:
            self.reserved.pop(reserved, None)

    @property
    def open_to_all(self) -> int:
        """The budget without what a watch took of it, units."""
        return self._budget - (0 if self.watch is None else self.watch.units)

    def set_aside(self, but: str | None = None) -> int:
        """Units that are reserved, but for one key."""
        return sum(units for key, (units, _) in self.reserved.items() if key != but)

    def limits_of(self, analyst: str, purpose: str | None) -> list[tuple[str, int]]:
        """The limits that a question falls under."""
        return [(scope, self.limits[scope]) for scope in scopes_of(analyst, purpose) if scope in self.limits]

    def most(
        self, price: int, spare: int, *, analyst: str, purpose: str | None, reserved: str | None
    ) -> tuple[int, list[tuple[str, int]]]:
        """What anybody may have spent in all, and within each limit, after a question of this price.

        Raises:
            BudgetExceeded: nobody could pay so much and have ``spare`` left.
        """
        if reserved is not None:
            asks = {"analyst": analyst, "purpose": purpose}
            if reserved not in self.reserved or not self.reserved[reserved][1].items() <= asks.items():
                raise ArgumentError(f"reserved={reserved!r} reserves nothing for this analyst and purpose")
        most, limits = self.open_to_all - self.set_aside(but=reserved), self.limits_of(analyst, purpose)
        least = min([most, *(units for _, units in limits)])
        if price + spare > least:
            raise exceeded(price + spare, self._budget, least)
        if reserved is not None and price > self.reserved[reserved][0]:
            raise exceeded(price, self.reserved[reserved][0], self.reserved[reserved][0])
        return most, limits
