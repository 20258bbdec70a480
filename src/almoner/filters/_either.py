"""Charge several filters side by side, with delta split between them."""

from fractions import Fraction
from threading import Lock
from typing import Any, Self

from almoner import _check, mechanisms
from almoner._uncopyable import Uncopyable
from almoner._units import to_float
from almoner.errors import ArgumentError, BudgetExceeded, Unsupported
from almoner.filters._all import restored
from almoner.filters._filter import Filter


class Either(Uncopyable):
    """Go on while at least one of several filters has admitted *every* round so far.

    Each filter is charged for every round. The first round that it does not admit closes it for good. "Whichever of two
    filters admits", each with the whole delta, is wrong: which one that is depends on the results (theory 4.10).

    Args: filters, fresh, all with the same epsilon; their deltas add up to the delta of the whole. They belong to this
    account from then on: charge them nowhere else.

    Guarantee: the whole adaptive interaction is (epsilon, sum of the deltas)-DP.
    Source: theory 1.5; docs/proofs/residue-filter.md, section 7.

    >>> from almoner.filters import Renyi, Residue
    >>> both = Either(Residue(epsilon=1.0, delta=5e-7), Renyi(epsilon=1.0, delta=5e-7))
    >>> both.charge(mechanisms.RandomizedResponse(0.01))
    >>> both.charge(mechanisms.Zcdp(1e-4))  # closes Residue
    >>> both.open
    (False, True)
    """

    def __init__(self, *filters: Filter) -> None:
        epsilons = {account.notion.epsilon for account in filters}
        if len(filters) < 2 or len(epsilons) != 1 or None in epsilons:
            raise ArgumentError("filters: give two or more, all made with the same epsilon= and with delta=")
        if any(account.count for account in filters) or len(set(map(id, filters))) < len(filters):
            raise ArgumentError("filters must be fresh, each given once")
        self._filters = filters
        self._open = (True,) * len(filters)
        self._count = 0
        self._lock = Lock()

    def epsilon(self, *, delta: float | None = None) -> float:
        """The epsilon that the whole account promises, rounded up. Public.

        Args:
            delta: public, at least the delta of the whole, which is the default.

        Raises:
            Unsupported: the account promises nothing below its own delta.

        Guarantee: all that this account ever admits is together (epsilon, delta)-DP.
        Source: theory 1.5.
        """
        if delta is not None:
            _check.between(0, 1, delta=delta)
            if delta < self.delta:
                raise Unsupported(f"delta={delta!r}: the account promises nothing below its own delta={self.delta!r}")
        return self._filters[0].epsilon()

    @property
    def delta(self) -> float:
        """The delta of the promise, the sum of all, rounded up. Public."""
        return to_float(sum((Fraction(account.delta or 0.0) for account in self._filters), Fraction(0)), per=1)

    @property
    def count(self) -> int:
        """Number of rounds charged. Public."""
        return self._count

    @property
    def open(self) -> tuple[bool, ...]:
        """Which filters have admitted every round so far. Public."""
        return self._open

    @property
    def spent(self) -> tuple[Any, ...]:
        """Amount spent of each filter, in its own measure; of a closed one, until it closed. Public."""
        return tuple(account.spent for account in self._filters)

    @property
    def left(self) -> tuple[Any, ...]:
        """Amount left of each filter, in its own measure; None of a closed one. Public."""
        return tuple(account.left if is_open else None for account, is_open in self._pairs())

    def admits(self, mechanism: mechanisms.Mechanism) -> bool:
        """True if an open filter admits a mechanism. Asking changes nothing."""
        return any(self._admitting(mechanism))

    def charge(self, mechanism: mechanisms.Mechanism) -> None:
        """Charge the open filters that admit a mechanism, and close those that do not.

        Raises:
            BudgetExceeded: none admits it. Nothing is spent, and none is closed.
        """
        with self._lock:
            admitting = self._admitting(mechanism)
            if not any(admitting):
                words = f"{mechanism!r} does not fit any filter that is open"
                raise BudgetExceeded(words, asked=None, spent=self.spent, left=self.left)
            for account, admits in zip(self._filters, admitting, strict=True):
                if admits:
                    account.charge(mechanism)
            self._open = admitting
            self._count += mechanisms.rounds(mechanism)

    def forget(self) -> None:
        """Give up what is left of each filter, for good."""
        for account in self._filters:
            account.forget()

    def fresh(self) -> Self:
        """An account of the same filters with nothing spent: another budget, for another interaction."""
        return type(self)(*(account.fresh() for account in self._filters))

    def state(self) -> dict[str, Any]:
        """Everything needed to go on later, as plain numbers and lists (JSON-able). Restore it once only."""
        parts = [account.state() for account in self._filters]
        return {"filter": "Either", "parts": parts, "open": list(self._open), "count": self._count}

    @classmethod
    def from_state(cls, state: dict[str, Any]) -> Self:
        """The account that ``state()`` described, to the last unit."""
        _check.saved(state, "filter", "parts", "open", "count")
        if state["filter"] != cls.__name__:
            raise ArgumentError(f"state={state['filter']!r} must be the state of {cls.__name__}")
        parts = tuple(map(restored, state["parts"]))
        fresh = cls(*(account.fresh() for account in parts))
        if len(state["open"]) != len(parts) or not all(isinstance(value, bool) for value in state["open"]):
            raise ArgumentError("state: open must be one of true and false for each filter")
        _check.whole(0, count=state["count"])
        fresh._filters, fresh._open, fresh._count = parts, tuple(state["open"]), int(state["count"])
        if any(is_open and account.count != fresh.count for account, is_open in fresh._pairs()):
            raise ArgumentError("state: a filter that is open must have been charged for every round")
        return fresh

    def __repr__(self) -> str:
        return f"Either({', '.join(map(repr, self._filters))})"

    def _pairs(self) -> list[tuple[Filter, bool]]:
        return list(zip(self._filters, self._open, strict=True))

    def _admitting(self, mechanism: mechanisms.Mechanism) -> tuple[bool, ...]:
        return tuple(is_open and _admits(account, mechanism) for account, is_open in self._pairs())


def _admits(account: Filter, mechanism: mechanisms.Mechanism) -> bool:
    try:
        return account.admits(mechanism)
    except Unsupported:
        return False
