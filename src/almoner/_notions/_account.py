"""Base of filters and odometers: an account over a notion, with its totals, its lock and its saved state."""

from collections.abc import Callable, Iterable
from math import inf
from numbers import Real
from threading import Lock
from typing import Any, ClassVar, Generic, Self, TypeVar

from almoner import _check
from almoner._notions._notion import Notion, Totals
from almoner._uncopyable import Uncopyable
from almoner._units import whole
from almoner.errors import ArgumentError

__all__ = ["Account", "State"]

N = TypeVar("N", bound=Notion)

State = dict[str, Any]
"""Plain numbers, texts and lists: JSON-able."""


class Account(Uncopyable, Generic[N]):
    """An account that holds whole units, so its sums are exact and a charge costs the same however many there were."""

    KIND: ClassVar[str]
    """The name of the account's class in a saved state."""

    def __init__(self, notion: N, **parameters: object) -> None:
        self._notion = notion
        self._parameters = {name: _plain(value) for name, value in parameters.items()}
        self._totals: Totals = (0,) * notion.columns
        self._count = 0
        self._lock = Lock()

    @property
    def notion(self) -> N:
        """Prices of mechanisms in this account, and the meaning of its totals: a frozen value. Public."""
        return self._notion

    @property
    def count(self) -> int:
        """Number of rounds charged. Public."""
        return self._count

    def fresh(self) -> Self:
        """An account with the same parameters and nothing spent: another budget, for another interaction."""
        make: Callable[..., Self] = type(self)
        return make(**self._parameters)

    def state(self) -> State:
        """Everything needed to go on later, as plain numbers and lists (JSON-able). Restore it once only."""
        with self._lock:
            named = {self.KIND: type(self).__name__, "parameters": self._stated()}
            return {**named, **self._saved(), "count": self._count}

    @classmethod
    def from_state(cls, state: State) -> Self:
        """The account that ``state()`` described, to the last unit."""
        _check.saved(state, cls.KIND, "parameters", *cls._SAVED, "count")
        if state[cls.KIND] != cls.__name__:
            raise ArgumentError(f"state={state[cls.KIND]!r} must be the state of {cls.KIND}s.{cls.__name__}")
        try:
            account = cls(**state["parameters"])
        except TypeError as wrong:  # a parameter is missing, or unknown
            raise ArgumentError(f"state: its parameters are not those of {cls.KIND}s.{cls.__name__}") from wrong
        _check.whole(0, count=state["count"])
        account._restore(*(_units(name, state[name]) for name in cls._SAVED))
        account._count = int(state["count"])
        return account

    def __repr__(self) -> str:
        named = ", ".join(f"{name}={value!r}" for name, value in self._stated().items() if value is not None)
        return f"{type(self).__name__}({named})"

    def _stated(self) -> dict[str, object]:
        """The parameters, with those that the first charge fixed."""
        return {**self._parameters, **self._notion.chosen()}

    _SAVED: ClassVar[tuple[str, ...]]
    """The parts of the totals in a saved state."""

    def _saved(self) -> dict[str, Any]:
        """The totals, part by part, and what they are counted in where it is not said elsewhere."""
        raise NotImplementedError

    def _restore(self, *parts: Totals) -> None:
        raise NotImplementedError


def _units(name: str, values: object) -> Totals:
    if not isinstance(values, Iterable) or isinstance(values, str | bytes):
        raise ArgumentError(f"state: {name} must be a list of whole units")
    units = list(values)
    for value in units:
        if value != inf:
            _check.whole(0, **{name: value})
    return whole(units)


def _plain(value: object) -> object:
    """NumPy's numbers as Python's, so that a state is plain."""
    return float(value) if isinstance(value, Real) and not isinstance(value, int) else value
