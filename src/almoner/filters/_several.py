"""Charge several filters: together or none of them, or side by side with delta split between them."""

from collections.abc import Callable, Hashable, Iterable, Mapping
from fractions import Fraction
from threading import Lock
from typing import Any, Self

from almoner import _check, mechanisms
from almoner._uncopyable import Uncopyable
from almoner._units import to_float
from almoner.errors import ArgumentError, BudgetExceeded, Unsupported
from almoner.filters import _filters, _published
from almoner.filters._filter import Filter

KINDS: dict[str, type[Filter]] = {
    name: kind
    for name, kind in sorted((vars(_filters) | vars(_published)).items())
    if isinstance(kind, type) and issubclass(kind, Filter) and kind is not Filter
}

Charges = mechanisms.Mechanism | Mapping[Hashable, mechanisms.Mechanism]  # one for all, or one for each key


class All(Uncopyable):
    """Several budgets by key: a round is charged to all that it names, or, where one of them has too little, to none.

    For budgets that hold side by side: of a site and of all sites together, of a week and of the year, of a querier
    and of the device. A budget can be opened when its key is first charged.

    Args:
        budgets: public: fresh filters by key. They belong to this account from then on: charge them nowhere else.
        open: makes a fresh filter for a key that is charged for the first time, by its key alone; None: the keys are
            those of ``budgets``.

    Guarantee: each budget keeps its own promise, for all that was charged under its key.
    Source: that of each filter. Checking all before charging any changes nothing that a filter admits.

    >>> from almoner.filters import Basic
    >>> budgets = All({"everywhere": Basic(epsilon=2.0)}, open=lambda site: Basic(epsilon=1.0))
    >>> budgets.charge({"everywhere": mechanisms.Pure(0.75), "news": mechanisms.Pure(0.75)})
    >>> budgets.charge({"everywhere": mechanisms.Pure(0.75), "shop": mechanisms.Pure(0.75)})
    >>> budgets.admits({"everywhere": mechanisms.Pure(0.75), "games": mechanisms.Pure(0.75)})
    False
    >>> budgets.left("everywhere"), budgets.left("games")
    ((0.5, 0.0), (1.0, 0.0))
    """

    def __init__(
        self, budgets: Mapping[Hashable, Filter] | None = None, *, open: Callable[[Any], Filter] | None = None
    ) -> None:
        self._budgets = dict(budgets or {})
        self._open = open
        self._lock = Lock()
        if not self._budgets and open is None:
            raise ArgumentError("budgets: give filters by key, or open=, which makes a filter for a key")
        for key, account in self._budgets.items():
            _refuse_used(account, repr(key))
        if len(set(map(id, self._budgets.values()))) < len(self._budgets):
            raise ArgumentError("budgets: each filter can be given under one key alone")

    @property
    def keys(self) -> tuple[Hashable, ...]:
        """Keys of the budgets that are there, in the order in which they came."""
        return tuple(self._budgets)

    def spent(self, key: Hashable) -> Any:
        """Amount spent of one budget, in its own measure, rounded up."""
        return self._known(key).spent

    def left(self, key: Hashable) -> Any:
        """Amount left of one budget, in its own measure, rounded down: all of it, if the key is new."""
        return self._known(key).left

    def admits(self, charges: Charges) -> bool:
        """True if every budget that is named has enough left. Asking changes nothing.

        Args:
            charges: a mechanism for each of some keys; or one mechanism, for every budget that is there.

        Raises:
            ArgumentError: a key has no budget, and none can be opened.
            Unsupported: no theorem gives a mechanism a cost in the budget of its key.
        """
        with self._lock:
            return all(account.admits(mechanism) for _, account, mechanism in self._named(charges))

    def charge(self, charges: Charges) -> None:
        """Charge every budget that is named, as in ``admits``, before anything is run.

        Raises:
            BudgetExceeded: one of them has too little left. None was charged; the error is that budget's own.
            ArgumentError, Unsupported: as ``admits``. None was charged.
        """
        with self._lock:
            named = self._named(charges)
            for key, account, mechanism in named:
                if not account.admits(mechanism):
                    spent, left = account.spent, account.left
                    words = f"the budget of {key!r}, of which {spent!r} was spent, and {left!r} is left; no budget"
                    words = f"{mechanism!r} does not fit {words} was charged"
                    raise BudgetExceeded(words, asked=None, spent=spent, left=left)
            for key, account, mechanism in named:
                account.charge(mechanism)
                self._budgets[key] = account

    def forget(self, keys: Iterable[Hashable] | None = None) -> None:
        """Give up what is left of some budgets (None: all there are), for good; of a new key too, which is opened."""
        with self._lock:
            accounts = {key: self._known(key) for key in (self.keys if keys is None else keys)}
            for account in accounts.values():
                account.forget()
            self._budgets.update(accounts)

    def state(self) -> dict[str, Any]:
        """Everything needed to go on later, JSON-able where the keys are. Restore it once only."""
        with self._lock:
            return {"filter": "All", "parts": [[key, account.state()] for key, account in self._budgets.items()]}

    @classmethod
    def from_state(cls, state: dict[str, Any], *, open: Callable[[Any], Filter] | None = None) -> Self:
        """The account that ``state()`` described, to the last unit; ``open`` is for new keys, as before.

        Keys that were tuples may be lists, as JSON writes them.
        """
        _check.saved(state, "filter", "parts")
        if state["filter"] != cls.__name__:
            raise ArgumentError(f"state={state['filter']!r} must be the state of {cls.__name__}")
        account = cls(open=open if open is not None else lambda _: _filters.Basic(epsilon=1.0))
        account._open, account._budgets = open, {_hashable(key): restored(part) for key, part in state["parts"]}
        if len(account._budgets) != len(state["parts"]):
            raise ArgumentError("state: each key must stand there once")
        return account

    def __repr__(self) -> str:
        return f"All({len(self._budgets)} budgets)"

    def _named(self, charges: Charges) -> list[tuple[Hashable, Filter, mechanisms.Mechanism]]:
        """Each key with its budget, which is kept once it is charged, and what it is charged."""
        if isinstance(charges, mechanisms.Mechanism):
            charges = dict.fromkeys(self._budgets, charges)
        if not isinstance(charges, Mapping) or not charges:
            wanted = "{key: mechanism} with one key or more, or a mechanism for all that are there"
            raise ArgumentError(f"charges must be {wanted}")
        named = [(key, self._known(key), mechanism) for key, mechanism in charges.items()]
        if len({id(account) for _, account, _ in named}) < len(named):
            raise ArgumentError("open must make a filter of its own for each key")
        return named

    def _known(self, key: Hashable) -> Filter:
        """The budget of a key; a fresh one, which is not kept, for a new key."""
        known = self._budgets.get(key)
        if known is not None:
            return known
        if self._open is None:
            raise ArgumentError(f"key={key!r} has no budget here, and open= was not given")
        account = self._open(key)
        _refuse_used(account, f"open({key!r})")
        if any(account is each for each in self._budgets.values()):
            raise ArgumentError("open must make a filter of its own for each key")
        return account


def restored(state: dict[str, Any]) -> Filter:
    """The filter that a state describes, of whatever kind."""
    _check.saved(state, "filter", "parameters")
    _check.one_of(tuple(KINDS), filter=state["filter"])
    return KINDS[state["filter"]].from_state(state)


def _refuse_used(account: object, name: str) -> None:
    if not isinstance(account, Filter) or type(account).__name__ not in KINDS:
        raise ArgumentError(f"budgets: {name} must be a filter, one of filters.{', '.join(sorted(KINDS))}")
    account.refuse_if_given()
    if account.count:
        raise ArgumentError(f"budgets: {name} must be fresh, not charged {account.count} times")


def _hashable(key: Any) -> Hashable:
    return tuple(_hashable(part) for part in key) if isinstance(key, list) else key


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
        """The epsilon that the whole account promises, rounded up. Public; so is delta, by default that of the whole.

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
