"""WHAT is asked: frozen and public descriptions. What a question costs, and its answer, are elsewhere.

A row of the data becomes a vector of length at most 1, *one full row*. A person's rows are added up, group by group;
the sum is that person's contribution, and is shrunk to length ``clip`` if it is longer. The answer is the sum of
all contributions, plus noise of standard deviation ``sigma`` on each of its coordinates. All three are counted
in full rows, so a count, a sum and a mean with the same clip and sigma cost the same.

What every question takes, by keyword:
    where: which rows count, a filter (see ``bursar.queries``); None for all.
    by: public keys to group by, {column: keys}; an answer for each combination, whether or not it is in the data.
    clip: the length to which a person's contribution is shrunk.
    per_group: the length to which a person's contribution to each single group is shrunk first; None for no such bound.
    sigma: the noise; or
    rho: the price for a person who contributes the full clip, from which the noise follows; or, for pure budgets,
    epsilon: that price. The noise is then discrete Laplace noise, and all lengths are L1 norms.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from datetime import date, datetime
from fractions import Fraction
from itertools import pairwise, product
from math import floor, inf, nextafter, prod, sqrt
from numbers import Real
from typing import Any

from bursar import _check
from bursar._units import RANGE, up
from bursar.errors import ArgumentError
from bursar.mechanisms import Gaussian, Laplace
from bursar.queries._prices import STEPS, price_of, pure_price_of
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
    "described",
    "question",
]

_MOST_CELLS = 1_000_000
_MOST_BINS = 4096
_MOST_CLIP = 1e6
_LARGEST = 1e100
_LONGEST_KEY = 1000
_MOST_NOISE = 2.0**53

Key = str | int | bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """What all questions share. Fields without a place in ``Question(...)`` follow from the others."""

    where: str | None = None
    by: tuple[tuple[str, tuple[Key, ...]], ...] | Mapping[str, Any] = ()
    clip: float = 1.0
    per_group: float | None = None
    sigma: float | None = None
    rho: float | None = None
    epsilon: float | None = None

    keys: tuple[tuple[str, tuple[Key, ...]], ...] = field(init=False, repr=False, compare=False)
    """``by``: each column with its keys."""
    groups: int = field(init=False, repr=False, compare=False)
    """How many groups there are: the product of the numbers of keys."""
    coordinates: int = field(init=False, repr=False, compare=False)
    """Numbers in each group."""
    steps: int = field(init=False, repr=False, compare=False)
    """Whole steps in a coordinate of a row that is as large as it can be."""
    noise: float = field(init=False, repr=False, compare=False)
    """Of the noise on each coordinate, in full rows: sigma of Gaussian noise, the scale of Laplace noise."""
    clip_steps: int = field(init=False, repr=False, compare=False)
    """The clip in whole steps, rounded down."""
    price: int = field(init=False, repr=False, compare=False)
    """The most that the question costs a person, in units of rho or epsilon, rounded up; see ``price_of``."""
    spare_units: int = field(init=False, repr=False, compare=False)
    """What must be left to each person who is counted, after paying; units."""

    def __post_init__(self) -> None:
        if self.where is not None:
            parse(self.where)
        keys = _keys(self.by)
        _set(self, by=keys, keys=keys)
        _plain(self, "clip", "per_group", "sigma", "rho", "epsilon")
        _check.within(1e-3, _MOST_CLIP, clip=self.clip)
        if self.per_group is not None:
            _check.within(1e-3, _MOST_CLIP, per_group=self.per_group)
        self._check_noise()
        coordinates, steps = self._shape()
        groups = prod(len(each) for _, each in keys)
        if groups * coordinates > _MOST_CELLS:
            raise ArgumentError(f"by: an answer has at most {_MOST_CELLS} numbers")
        _set(self, groups=groups, coordinates=coordinates, steps=steps, spare_units=self._spare())
        _set(self, noise=_noise(self), clip_steps=floor(Fraction(self.clip) * STEPS))
        price = pure_price_of if self.pure else price_of
        _set(self, price=price(self.clip_steps, self.noise))
        if self.price >= RANGE:
            raise ArgumentError(f"sigma={self.sigma!r} is too small for clip={self.clip!r}")
        if self.noise * STEPS >= _MOST_NOISE:
            raise ArgumentError(f"clip={self.clip!r} is too large for so small a price: the noise would be above 2**33")

    def _check_noise(self) -> None:
        """Refuse noise that is given in more than one way, in none, or out of its range."""
        if sum(each is not None for each in (self.sigma, self.rho, self.epsilon)) != 1:
            raise ArgumentError("give either sigma=, rho= or epsilon=")
        if self.sigma is not None:
            _check.within(1e-3, 1e9, sigma=self.sigma)
        elif self.rho is not None:
            _check.within(1e-12, 1e3, rho=self.rho)
        else:
            _check.within(1e-6, 1e3, epsilon=self.epsilon)

    @property
    def pure(self) -> bool:
        """Whether the noise is discrete Laplace noise, lengths are L1 norms, and the price is an epsilon."""
        return self.epsilon is not None

    def _shape(self) -> tuple[int, int]:
        """(Numbers in each group, whole steps in a coordinate that is as large as it can be)."""
        return 1, STEPS

    def _spare(self) -> int:
        return 0

    @property
    def mechanism(self) -> Gaussian | Laplace:
        """What is run, in whole steps."""
        if self.pure:
            return Laplace(scale=self.noise * STEPS, sensitivity=float(self.clip_steps))
        return Gaussian(sigma=self.noise * STEPS, sensitivity=float(self.clip_steps))

    @property
    def spread(self) -> float:
        """Standard deviation of the noise on each coordinate, in full rows."""
        return self.noise * sqrt(2) if self.pure else self.noise

    @property
    def labels(self) -> list[tuple[Key, ...]]:
        """The keys of each group, in the order of the answer."""
        return list(product(*(keys for _, keys in self.keys)))


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

    def _spare(self) -> int:
        return 0 if self.spare is None else int(up(self.spare))


@dataclass(frozen=True, slots=True)
class _Bounded(Question):
    column: str
    low: float
    high: float

    middle: float = field(init=False, repr=False, compare=False)
    """Between the bounds."""
    half: float = field(init=False, repr=False, compare=False)
    """From the middle to a bound."""

    def __post_init__(self) -> None:
        _column(self.column)
        _plain(self, "low", "high")
        _check.number(low=self.low, high=self.high)
        if not -_LARGEST <= self.low < self.high <= _LARGEST:
            raise ArgumentError(f"low={self.low!r} and high={self.high!r} must be increasing, within {_LARGEST:g}")
        if not self.high - self.low > max(1e-100, 1e-9 * max(abs(self.low), abs(self.high))):
            raise ArgumentError(f"low={self.low!r} and high={self.high!r} are too close to each other")
        _set(self, middle=self.low / 2 + self.high / 2, half=self.high / 2 - self.low / 2)
        Question.__post_init__(self)


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

    def _shape(self) -> tuple[int, int]:
        """The count, and the sum of differences from the middle; a row with both at their largest has length 1."""
        return 2, STEPS // 2 if self.pure else floor(STEPS / sqrt(2))


@dataclass(frozen=True, slots=True)
class Variance(_Bounded):
    """The variance of a column, each entry clipped to [low, high]: noisy count, sum and sum of squares, paid once."""

    def _shape(self) -> tuple[int, int]:
        """The count, the sum and the sum of squares; a row with all of them at their largest has length 1."""
        return 3, STEPS // 3 if self.pure else floor(STEPS / sqrt(3))


@dataclass(frozen=True, slots=True)
class _Binned(Question):
    column: str
    edges: tuple[float, ...]

    def __post_init__(self) -> None:
        _column(self.column)
        edges = tuple(float(edge) for edge in _numbers("edges", self.edges))
        _set(self, edges=edges)
        if not 2 <= len(edges) <= _MOST_BINS + 1 or not all(a < b for a, b in pairwise(edges)):
            raise ArgumentError(f"edges must be 2 to {_MOST_BINS + 1} increasing numbers")
        Question.__post_init__(self)

    def _shape(self) -> tuple[int, int]:
        """One count for each bin."""
        return len(self.edges) - 1, STEPS


@dataclass(frozen=True, slots=True)
class Histogram(_Binned):
    """How many rows have an entry between two neighbouring edges; the outer bins also take what is beyond them."""


@dataclass(frozen=True, slots=True)
class Quantiles(_Binned):
    """Quantiles of a column (0.5 is the median), read off a noisy histogram; they lie between the outer edges."""

    levels: tuple[float, ...] = (0.5,)

    def __post_init__(self) -> None:
        levels = tuple(float(level) for level in _numbers("levels", self.levels))
        _set(self, levels=levels)
        if not 1 <= len(levels) <= 100:
            raise ArgumentError("levels must be 1 to 100 numbers")
        for level in levels:
            _check.within(0, 1, level=level)
        _Binned.__post_init__(self)


_KINDS: dict[str, type[Question]] = {
    kind.__name__.lower(): kind for kind in (Count, People, Sum, Mean, Variance, Histogram, Quantiles)
}


def described(asked: Question) -> dict[str, object]:
    """A question as plain values, for the record and for files."""
    if not isinstance(asked, Question):
        raise ArgumentError("question must be one of bursar.queries' questions")
    values: dict[str, object] = {"ask": type(asked).__name__.lower()}
    for each in fields(asked):
        value = getattr(asked, each.name) if each.init else None
        if each.name == "by":
            value = [[column, list(keys)] for column, keys in asked.keys] or None
        if value is not None:
            values[each.name] = list(value) if isinstance(value, tuple) else value
    return values


def question(values: Mapping[str, Any]) -> Question:
    """The question that ``described`` described; ``by`` may also be a table of keys by column."""
    values = dict(values)
    kind = values.pop("ask", None)
    if not isinstance(kind, str) or kind not in _KINDS:
        raise ArgumentError(f"ask={kind!r} must be one of {', '.join(_KINDS)}")
    takes = {each.name for each in fields(_KINDS[kind]) if each.init}
    for name in values:
        if name not in takes:
            raise ArgumentError(f"{name!r} is nothing that {kind!r} takes; it takes {', '.join(sorted(takes))}")
    if isinstance(values.get("by"), list):
        try:
            values["by"] = dict(values["by"])
        except (TypeError, ValueError):
            raise ArgumentError("by must be {column: keys}") from None
    try:
        return _KINDS[kind](**values)
    except TypeError as error:
        if isinstance(error, ArgumentError):
            raise
        needed = [name for name in ("column", "low", "high", "edges") if name in takes and name not in values]
        raise ArgumentError(f"{kind!r} needs {', '.join(needed) or 'other types of values'}") from None


def _noise(asked: Question) -> float:
    """The noise, in full rows: as given, or as the price that was given allows, rounded up."""
    if asked.sigma is not None:
        return float(asked.sigma)
    if asked.epsilon is not None:
        return nextafter(asked.clip / asked.epsilon * (1 + 1e-15), inf)
    return nextafter(asked.clip / sqrt(2 * float(asked.rho or 0)) * (1 + 1e-15), inf)


def _set(asked: Question, **values: object) -> None:
    """Set fields while a question is made."""
    for name, value in values.items():
        object.__setattr__(asked, name, value)


def _plain(asked: Question, *names: str) -> None:
    """Make numbers of NumPy those that the record can hold."""
    _set(asked, **{name: _number(getattr(asked, name)) for name in names})


def _number(value: Any) -> Any:
    plain = type(value) in (int, float, bool, Fraction) or not isinstance(value, Real)
    return value if plain else float(value)


def _column(column: object) -> None:
    if not isinstance(column, str) or not 1 <= len(column) <= 1000:
        raise ArgumentError("column must be a name")


def _numbers(name: str, values: object) -> tuple[float, ...]:
    if isinstance(values, str | bytes) or not hasattr(values, "__iter__"):
        raise ArgumentError(f"{name} must be numbers")
    numbers = tuple(map(_number, values))
    for value in numbers:
        _check.within(-_LARGEST, _LARGEST, **{name: value})
    return numbers


def _keys(by: object) -> tuple[tuple[str, tuple[Key, ...]], ...]:
    """{column: keys} as tuples; dates as text; each key once."""
    pairs = tuple(by.items()) if isinstance(by, Mapping) else tuple(by)  # type: ignore[arg-type]
    columns = []
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
        columns.append((pair[0], keys))
    if len({column for column, _ in columns}) < len(columns):
        raise ArgumentError("by: each column once")
    return tuple(columns)


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
