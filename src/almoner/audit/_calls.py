"""Record every release of a run, and run it again with the recorded outputs in place of fresh ones."""

from collections.abc import Callable, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, field
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from almoner._audit_hook import Part

__all__ = ["Call", "Diverged", "Frozen", "Recorder", "Run", "Values", "values_of"]

T = TypeVar("T")
Array = NDArray[np.float64]


class Diverged(BaseException):
    """A replay released something else than the recorded run: it is over. No error, so that nobody handles it."""

    def __init__(self, call: int, says: str) -> None:
        super().__init__(says)
        self.call, self.says = call, says


@dataclass(frozen=True)
class Values:
    """An exact value as numbers: a vector, or labels with their numbers. Private."""

    numbers: Array
    labels: tuple[Any, ...] | None = None

    @property
    def shape(self) -> str:
        """The form that two runs must agree on; labels may differ, and count as zero where they are not."""
        return "numbers with labels" if self.labels is not None else f"{self.numbers.size} numbers"

    def minus(self, other: "Values") -> Array:
        """The difference, label by label."""
        if self.labels is None or other.labels is None:
            return np.asarray(self.numbers - other.numbers, np.float64)
        mine, theirs = (dict(zip(each.labels or (), each.numbers, strict=True)) for each in (self, other))
        shifts: list[float] = [mine.get(key, 0) - theirs.get(key, 0) for key in dict.fromkeys([*mine, *theirs])]
        return np.asarray(shifts, np.float64)

    @property
    def whole(self) -> bool:
        """True if the numbers are whole, and so exact."""
        return bool(np.issubdtype(self.numbers.dtype, np.integer))


def values_of(exact: object) -> Values:
    """Numbers, arrays, tensors, lists of them or {label: number}, as one vector of doubles."""
    if isinstance(exact, Mapping):
        return Values(_flat(list(exact.values())), tuple(exact))
    return Values(_flat(exact))


def _flat(exact: object) -> Any:
    if hasattr(exact, "detach"):  # a tensor
        exact = exact.detach().cpu().double().numpy()
    if isinstance(exact, Sequence) and not isinstance(exact, str):
        parts = [_flat(each) for each in exact]
        return np.concatenate(parts) if parts else np.zeros(0, np.int64)
    numbers = np.array(exact)
    whole: Any = np.int64 if np.issubdtype(numbers.dtype, np.integer) else np.float64
    return np.asarray(numbers.astype(whole)).reshape(-1)


@dataclass
class Call:
    """One release. ``exact`` is private; the rest is public.

    Fields:
        number: from 1.
        mechanism: what was said to be run.
        exact: what noise was added to.
        released: what came out.
        of: which of the mechanisms that take several calls it belongs to, from 0; None where it is one by itself.
        part: how it belongs to it.
    """

    number: int
    mechanism: Any
    exact: Values
    released: Any
    of: int | None = None
    part: Part | None = None

    def same_as(self, other: "Call") -> str:
        """Describe how another run's call differs from this call; empty if they are equal."""
        mine, theirs = (getattr(each.mechanism, "public", each.mechanism) for each in (self, other))
        if mine != theirs:
            return f"{theirs!r} in place of {mine!r}"
        if self.exact.shape != other.exact.shape:
            return f"{other.exact.shape} in place of {self.exact.shape}"
        return "" if self.of == other.of else "a call of another mechanism"


@dataclass
class Run:
    """The releases of one run, in order, and the coins that decided who was sampled. Private."""

    calls: list[Call] = field(default_factory=list)
    coins: list[Array] = field(default_factory=list)


class Recorder:
    """An audit hook that writes down what an ordinary run releases."""

    def __init__(self) -> None:
        self.run = Run()
        self._inside = False
        self._objects: dict[Any, int] = {}

    def released(self, release: Callable[[], T], exact: object, mechanism: object, part: Part | None) -> T:
        if self._inside:  # a release that is a part of another
            return release()
        values = values_of(exact)  # before the release: it may add the noise in place
        number = len(self.run.calls) + 1
        of = None if part is None else self._objects.setdefault(part.of, len(self._objects))
        call = Call(number, mechanism, values, None, of, part)
        self._inside = True
        try:
            return self._given(call, release)
        finally:
            self._inside = False

    def _given(self, call: Call, release: Callable[[], T]) -> T:
        given = release()
        call.released = deepcopy(given)
        self.run.calls.append(call)
        return given

    def coins(self, draw: Callable[[], Array]) -> Array:
        drawn = draw()
        self.run.coins.append(np.array(drawn))
        return drawn


class Frozen(Recorder):
    """The audit hook of a replay: whatever is released, the recorded run's output is given.

    Args:
        recorded: the run whose outputs are given.
        forced: the number of a person, and that person's coin; None: the recorded coins.
    """

    def __init__(self, recorded: Run, forced: tuple[int, float] | None = None) -> None:
        super().__init__()
        self._recorded, self._forced = recorded, forced

    def _given(self, call: Call, release: Callable[[], T]) -> T:
        place = call.number - 1
        if place >= len(self._recorded.calls):
            raise Diverged(call.number, f"one release more than recorded: {call.mechanism!r}")
        before = self._recorded.calls[place]
        difference = before.same_as(call)
        if difference:
            raise Diverged(call.number, difference)
        release()  # so that all generators are where they were
        given: T = deepcopy(before.released)
        call.released = before.released
        self.run.calls.append(call)
        return given

    def coins(self, draw: Callable[[], Array]) -> Array:
        drawn, place = np.array(draw()), len(self.run.coins)
        if place < len(self._recorded.coins):
            recorded = self._recorded.coins[place]
            shared = min(len(recorded), len(drawn))
            drawn[:shared] = recorded[:shared]
        if self._forced is not None and self._forced[0] < len(drawn):
            drawn[self._forced[0]] = self._forced[1]
        self.run.coins.append(drawn)
        return drawn
