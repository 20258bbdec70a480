"""Charge several filters together, or none of them."""

from collections.abc import Callable, Hashable, Iterable, Mapping
from threading import Lock
from typing import Any, Self

from almoner import _check, mechanisms
from almoner._uncopyable import OwnProcess, Uncopyable
from almoner.errors import ArgumentError, BudgetExceeded
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
        self._lock, self._process = Lock(), OwnProcess()
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
        self._process.check("this filter")
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
