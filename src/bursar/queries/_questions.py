"""WHAT is asked: frozen and public descriptions. What a question costs, and its answer, are elsewhere.

A row of the data becomes a vector of length at most 1, *one full row*. A person's rows are added up, group by group;
the sum is that person's contribution, and is shrunk to length ``clip`` if it is longer. The answer is the sum of
everybody's contributions, plus noise of standard deviation ``sigma`` on each of its coordinates. All three are counted
in full rows, so a count, a sum and a mean with the same clip and sigma cost the same.

What every question takes, by keyword:
    where: which rows count, a filter (see ``bursar.queries``); None for all.
    by: public keys to group by, {column: keys}; an answer for each combination, whether or not it is in the data.
    clip: the length to which a person's contribution is shrunk.
    per_group: the length to which a person's contribution to each single group is shrunk first; None for no such bound.
    sigma: the noise; or
    rho: the price for whoever contributes the full clip, from which the noise follows.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import date, datetime
from fractions import Fraction
from itertools import pairwise, product
from math import floor, inf, nextafter, prod, sqrt
from numbers import Real
from typing import Any

from bursar import _check
from bursar._units import MEASURE, RANGE, up
from bursar.errors import ArgumentError
from bursar.mechanisms import DiscreteGaussian
from bursar.queries._where import parse

__all__ = [
    "STEPS",
    "Count",
    "Histogram",
    "Mean",
    "People",
    "Quantiles",
    "Question",
    "Sum",
    "Variance",
    "units_per_step",
]

STEPS = 2**20
"""Whole steps in one full row: contributions are rounded to them, added up exactly, and given whole noise."""

_MOST_CELLS = 1_000_000
_MOST_BINS = 4096
_MOST_CLIP = 1e6
_LARGEST = 1e100
_LONGEST_KEY = 1000

Key = str | int | bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """What all questions share."""

    where: str | None = None
    by: tuple[tuple[str, tuple[Key, ...]], ...] | Mapping[str, Any] = ()
    clip: float = 1.0
    per_group: float | None = None
    sigma: float | None = None
    rho: float | None = None

    def __post_init__(self) -> None:
        if self.where is not None:
            parse(self.where)
        object.__setattr__(self, "by", _keys(self.by))
        _plain(self, "clip", "per_group", "sigma", "rho")
        _check.within(1e-3, _MOST_CLIP, clip=self.clip)
        if self.per_group is not None:
            _check.within(1e-3, _MOST_CLIP, per_group=self.per_group)
        if (self.sigma is None) == (self.rho is None):
            raise ArgumentError("give either sigma= or rho=")
        if self.sigma is not None:
            _check.within(1e-3, 1e9, sigma=self.sigma)
        else:
            _check.within(1e-12, 1e3, rho=self.rho)
        if self.groups * self.coordinates > _MOST_CELLS:
            raise ArgumentError(f"by: an answer has at most {_MOST_CELLS} numbers")
        if self.price >= RANGE:
            raise ArgumentError(f"sigma={self.sigma!r} is too small for clip={self.clip!r}")

    @property
    def noise(self) -> float:
        """Standard deviation of the noise on each coordinate, in full rows."""
        if self.sigma is not None:
            return float(self.sigma)
        return nextafter(self.clip / sqrt(2 * float(self.rho or 0)) * (1 + 1e-15), inf)

    @property
    def mechanism(self) -> DiscreteGaussian:
        """What is run, in whole steps."""
        return DiscreteGaussian(sigma=self.noise * STEPS, sensitivity=float(self.clip_steps))

    @property
    def clip_steps(self) -> int:
        """The clip in whole steps, rounded down."""
        return floor(Fraction(self.clip) * STEPS)

    @property
    def price(self) -> int:
        """The most that the question costs anybody, in units of rho, rounded up.

        Guarantee: whoever contributes at most the clip is charged at most this.
        Source: theory 2.7.
        """
        return int(up(Fraction(self.clip_steps**2) / (2 * Fraction(self.noise * STEPS) ** 2)))

    @property
    def spare_units(self) -> int:
        """What must be left to everybody who is counted, after paying; units of rho."""
        return 0

    @property
    def groups(self) -> int:
        """How many groups there are: the product of the numbers of keys."""
        return prod(len(keys) for _, keys in self._by)

    @property
    def labels(self) -> list[tuple[Key, ...]]:
        """The keys of each group, in the order of the answer."""
        return list(product(*(keys for _, keys in self._by)))

    @property
    def coordinates(self) -> int:
        """Numbers in each group."""
        return 1

    @property
    def steps(self) -> int:
        """Whole steps in a coordinate of a row that is as large as it can be."""
        return STEPS

    @property
    def _by(self) -> tuple[tuple[str, tuple[Key, ...]], ...]:
        return self.by  # type: ignore[return-value]


@dataclass(frozen=True, slots=True)
class Count(Question):
    """How many rows."""


@dataclass(frozen=True, slots=True)
class People(Question):
    """How many people have at least one row, in each group.

    With ``spare``, a price in rho: of those, how many can still pay that much afterwards. It tells an analyst when to
    stop trusting totals, and costs those who are counted what any count costs.
    """

    spare: float | None = None

    def __post_init__(self) -> None:
        if self.spare is not None:
            _plain(self, "spare")
            _check.within(1e-12, 1e3, spare=self.spare)
        Question.__post_init__(self)

    @property
    def spare_units(self) -> int:
        """What must be left to everybody who is counted, after paying; units of rho."""
        return 0 if self.spare is None else int(up(self.spare))


@dataclass(frozen=True, slots=True)
class _Bounded(Question):
    column: str
    low: float
    high: float

    def __post_init__(self) -> None:
        _column(self.column)
        _plain(self, "low", "high")
        _check.number(low=self.low, high=self.high)
        if not -_LARGEST <= self.low < self.high <= _LARGEST:
            raise ArgumentError(f"low={self.low!r} and high={self.high!r} must be increasing, within {_LARGEST:g}")
        if not self.high - self.low > max(1e-100, 1e-9 * max(abs(self.low), abs(self.high))):
            raise ArgumentError(f"low={self.low!r} and high={self.high!r} are too close to each other")
        Question.__post_init__(self)

    @property
    def middle(self) -> float:
        """Between the bounds."""
        return self.low / 2 + self.high / 2

    @property
    def half(self) -> float:
        """From the middle to a bound."""
        return self.high / 2 - self.low / 2


@dataclass(frozen=True, slots=True)
class Sum(_Bounded):
    """The sum of a column, each entry clipped to [low, high]; a full row is an entry of max(|low|, |high|)."""

    @property
    def full(self) -> float:
        """The largest entry there may be."""
        return max(abs(self.low), abs(self.high))


@dataclass(frozen=True, slots=True)
class Mean(_Bounded):
    """The mean of a column, each entry clipped to [low, high]: a noisy sum over a noisy count, paid once."""

    @property
    def coordinates(self) -> int:
        """The count, and the sum of what entries differ from the middle."""
        return 2

    @property
    def steps(self) -> int:
        """So that a row with both coordinates at their largest has length 1."""
        return floor(STEPS / sqrt(2))


@dataclass(frozen=True, slots=True)
class Variance(_Bounded):
    """The variance of a column, each entry clipped to [low, high]: noisy count, sum and sum of squares, paid once."""

    @property
    def coordinates(self) -> int:
        """The count, the sum, and the sum of squares."""
        return 3

    @property
    def steps(self) -> int:
        """So that a row with all coordinates at their largest has length 1."""
        return floor(STEPS / sqrt(3))


@dataclass(frozen=True, slots=True)
class _Binned(Question):
    column: str
    edges: tuple[float, ...]

    def __post_init__(self) -> None:
        _column(self.column)
        edges = tuple(float(edge) for edge in _numbers("edges", self.edges))
        object.__setattr__(self, "edges", edges)
        if not 2 <= len(edges) <= _MOST_BINS + 1 or not all(a < b for a, b in pairwise(edges)):
            raise ArgumentError(f"edges must be 2 to {_MOST_BINS + 1} increasing numbers")
        Question.__post_init__(self)

    @property
    def coordinates(self) -> int:
        """One count for each bin."""
        return len(self.edges) - 1


@dataclass(frozen=True, slots=True)
class Histogram(_Binned):
    """How many rows have an entry between two neighbouring edges; the outer bins also take what is beyond them."""


@dataclass(frozen=True, slots=True)
class Quantiles(_Binned):
    """Quantiles of a column (0.5 is the median), read off a noisy histogram; they lie between the outer edges."""

    levels: tuple[float, ...] = (0.5,)

    def __post_init__(self) -> None:
        levels = tuple(float(level) for level in _numbers("levels", self.levels))
        object.__setattr__(self, "levels", levels)
        if not 1 <= len(levels) <= 100:
            raise ArgumentError("levels must be 1 to 100 numbers")
        for level in levels:
            _check.within(0, 1, level=level)
        _Binned.__post_init__(self)


def units_per_step(asked: Question) -> float:
    """What one squared step costs, in units, rounded up."""
    exact = Fraction(MEASURE) / (2 * Fraction(asked.noise * STEPS) ** 2)
    return nextafter(nextafter(float(exact) * (1 + 1e-15), inf), inf)


def _plain(asked: Question, *names: str) -> None:
    """Numbers of NumPy become those that the record can hold."""
    for name in names:
        object.__setattr__(asked, name, _number(getattr(asked, name)))


def _number(value: Any) -> Any:
    plain = type(value) in (int, float, bool, Fraction) or not isinstance(value, Real)
    return value if plain else float(value)


def _column(column: object) -> None:
    if not isinstance(column, str) or not 1 <= len(column) <= 1000:
        raise ArgumentError("column must be a name")


def _numbers(name: str, values: object) -> tuple[float, ...]:
    if isinstance(values, str | bytes) or not hasattr(values, "__iter__"):
        raise ArgumentError(f"{name} must be numbers")
    found = tuple(map(_number, values))
    for value in found:
        _check.within(-_LARGEST, _LARGEST, **{name: value})
    return found


def _keys(by: object) -> tuple[tuple[str, tuple[Key, ...]], ...]:
    """{column: keys} as tuples; dates as text; each key once."""
    pairs = tuple(by.items()) if isinstance(by, Mapping) else tuple(by)  # type: ignore[arg-type]
    found = []
    for pair in pairs:
        if (
            not isinstance(pair, tuple)
            or len(pair) != 2
            or isinstance(pair[1], str)
            or not hasattr(pair[1], "__iter__")
        ):
            raise ArgumentError("by must be {column: keys}")
        _column(pair[0])
        keys = tuple(_key(value) for value in pair[1])
        if not keys or len({(type(key), key) for key in keys}) < len(keys):
            raise ArgumentError(f"by: column {pair[0]!r} needs keys, each of them once")
        found.append((pair[0], keys))
    if len({column for column, _ in found}) < len(found):
        raise ArgumentError("by: each column once")
    return tuple(found)


def _key(value: Any) -> Key:
    if hasattr(value, "as_py"):
        value = value.as_py()  # of Arrow
    if isinstance(value, datetime | date):
        return value.isoformat()
    if hasattr(value, "item"):
        value = value.item()  # a number of NumPy
    if not isinstance(value, str | int | bool):
        raise ArgumentError(f"by: key {value!r} must be text, a whole number, a truth value or a date")
    if isinstance(value, str) and len(value) > _LONGEST_KEY:  # the record keeps it for ever
        raise ArgumentError(f"by: key {value[:20]!r}... must be at most {_LONGEST_KEY} characters")
    return value
