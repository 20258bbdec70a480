"""Parts of a ledger, as they know one another: what is said of accounts."""

from typing import NamedTuple

from almoner.ledger._payment import MASS, Payment

__all__ = ["MASS", "Charge", "Consistency", "Extent", "Payment", "Share"]

PrivateNote = dict[str, object]  # the private part of an entry of the record, as JSON


class Share(NamedTuple):
    """A limited scope (an analyst's or a purpose's), and the most that each person may spend on it; units, public."""

    scope: str
    most: int


class Charge(NamedTuple):
    """Units that one question cost one person; below 0 where something came back. Private."""

    question: int
    units: int


class Consistency(NamedTuple):
    """Results of two checks: every account is the sum of its charges; none of them breaks the budget."""

    sums: bool
    budget: bool


class Extent(NamedTuple):
    """Of a column of units: how many people, units in all, the most of one person. Private."""

    people: int
    units: int
    most: int
