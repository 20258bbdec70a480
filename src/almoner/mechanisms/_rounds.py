"""Single rounds, how rounds are put together, and the best of a random number of runs."""

from collections.abc import Iterator
from dataclasses import dataclass, fields
from functools import lru_cache
from math import inf
from numbers import Integral
from typing import Any, TypeVar

from almoner import _check
from almoner.errors import ArgumentError

Value = TypeVar("Value")

_MOST = 10**30  # rounds in one Repeated; nested ones may count further
_MOST_RUNS = 1e6  # expected runs of which the best is released


class Mechanism:
    """Description of what was run. Every field of every mechanism is public."""

    __slots__ = ()

    def __post_init__(self) -> None:
        """Check each field by the rule of its name."""
        _settle(self)
        noise: dict[str, object] = {}
        for name in self.__dataclass_fields__:  # type: ignore[attr-defined]
            value = getattr(self, name)
            if name in ("sigma", "scale", "sensitivity"):
                noise[name] = value
            elif name in ("epsilon", "eta", "rho"):
                _check.amount(**{name: value})
            elif name == "delta":
                _check.within(0, 1, delta=value)
            elif name == "sample_rate":
                _check.positive(sample_rate=value)
                _check.within(0, 1, sample_rate=value)
            elif name in ("records", "people", "batches", "batch_size"):
                _check.whole(1, **{name: value})
        if noise:
            _check.noise(**noise)

    @classmethod
    def __get_pydantic_core_schema__(cls, _: Any, handler: Any) -> dict[str, Any]:
        """In the models of others: a mechanism, which is a table with its kind in JSON."""
        from pydantic_core import core_schema

        table = handler.generate_schema(dict[str, Any])
        return core_schema.json_or_python_schema(table, core_schema.is_instance_schema(cls))  # type: ignore[return-value]


@dataclass(frozen=True, slots=True)
class Gaussian(Mechanism):
    """A sum plus Gaussian noise of standard deviation sigma; theory 2.1."""

    sigma: float
    sensitivity: float = 1.0


@dataclass(frozen=True, slots=True)
class SampledGaussian(Mechanism):
    """A sum over a Poisson sample of people, plus Gaussian noise; theory 2.6.

    Only true Poisson sampling counts: shuffled or fixed-size batches do not.
    """

    sigma: float
    sensitivity: float = 1.0
    sample_rate: float = 1.0


@dataclass(frozen=True, slots=True)
class DiscreteGaussian(Mechanism):
    """Whole numbers plus discrete Gaussian noise in each: zCDP, but not Gaussian DP; theory 2.7, 2.11.

    Its own losses are known where a person moves one number: dimension is 1, or the L2 sensitivity below sqrt(2).
    """

    sigma: float
    sensitivity: float = 1.0
    dimension: int | None = None

    def __post_init__(self) -> None:
        Mechanism.__post_init__(self)
        _check.given(_check.whole, 1, dimension=self.dimension)


@dataclass(frozen=True, slots=True)
class Laplace(Mechanism):
    """A sum plus Laplace noise; sensitivity is in L1; theory 2.2."""

    scale: float
    sensitivity: float = 1.0


@dataclass(frozen=True, slots=True)
class RandomizedResponse(Mechanism):
    """One bit, told truthfully with probability e^epsilon / (1 + e^epsilon); theory 2.3."""

    epsilon: float

    def __post_init__(self) -> None:
        _check.positive(epsilon=self.epsilon)
        Mechanism.__post_init__(self)


@dataclass(frozen=True, slots=True)
class Pure(Mechanism):
    """Any epsilon-DP mechanism; theory 2.3."""

    epsilon: float


@dataclass(frozen=True, slots=True)
class Approximate(Mechanism):
    """Any (epsilon, delta)-DP mechanism; theory 2.4."""

    epsilon: float
    delta: float


@dataclass(frozen=True, slots=True)
class PDP(Approximate):
    """Any mechanism of (epsilon, delta)-probabilistic DP: |loss| > epsilon has probability delta at most; theory 2.4.

    So it is under both data sets. It is (epsilon, delta)-DP, and is priced as such, except by odometers whose bound is
    on the loss itself (pathwise): they take it as it is, where an ``Approximate`` one has to be converted.
    """


@dataclass(frozen=True, slots=True)
class Exponential(Mechanism):
    """The exponential mechanism, or any mechanism of bounded range eta; theory 2.5.

    With score sensitivity s and weights exp(epsilon * score / (2 s)), eta is epsilon (and less for one-sided
    scores). Bounded range eta implies eta-DP.
    """

    eta: float


@dataclass(frozen=True, slots=True)
class Zcdp(Mechanism):
    """Any rho-zCDP mechanism."""

    rho: float


@dataclass(frozen=True, slots=True)
class Renyi(Mechanism):
    """Any mechanism whose Rényi curve is known at some orders: at orders[j] at most values[j], in both directions.

    Between its orders a curve is never interpolated: the value at the next order above is used, which is larger.
    """

    orders: tuple[float, ...]
    values: tuple[float, ...]

    def __post_init__(self) -> None:
        object.__setattr__(self, "orders", tuple(map(_whole, self.orders)))
        object.__setattr__(self, "values", tuple(map(_whole, self.values)))
        _check.equally_long(orders=self.orders, values=self.values)
        _check.each(_check.between, 1, inf, order=self.orders)
        _check.each(_check.amount, value=self.values)
        if any(a >= b for a, b in zip(self.orders, self.orders[1:], strict=False)):
            raise ArgumentError(f"orders={self.orders!r} must increase strictly")


def _no_mechanism(given: object) -> ArgumentError:
    """The refusal of what is no mechanism; a bare number is most often meant as an epsilon."""
    line = f"mechanisms.Pure({given!r})" if isinstance(given, float) else "mechanisms.Gaussian(sigma=10.0)"
    return ArgumentError(f"mechanism={given!r} must be a mechanism; for example `{line}`")


@dataclass(frozen=True, slots=True)
class Repeated(Mechanism):
    """One mechanism, run count times, with fresh noise each time."""

    mechanism: Mechanism
    count: int

    def __post_init__(self) -> None:
        _settle(self)
        if not isinstance(self.mechanism, Mechanism):
            raise _no_mechanism(self.mechanism)
        _check.whole(0, count=self.count)
        if self.count > _MOST:
            raise ArgumentError(f"count={self.count!r} must be at most {_MOST}")


@dataclass(frozen=True, slots=True)
class Composed(Mechanism):
    """Several mechanisms, one after the other; empty means that nothing was run."""

    mechanisms: tuple[Mechanism, ...]

    def __post_init__(self) -> None:
        object.__setattr__(self, "mechanisms", tuple(self.mechanisms))
        for mechanism in self.mechanisms:
            if not isinstance(mechanism, Mechanism):
                raise ArgumentError(f"mechanisms: {mechanism!r} must be a mechanism")


def leaves(mechanism: Mechanism) -> dict[Mechanism, int]:
    """The single rounds that are run, each with how often, at least once; nested ones are flattened.

    >>> leaves(Repeated(Composed((Pure(0.1), Repeated(Pure(0.2), 3))), 2))
    {Pure(epsilon=0.1): 2, Pure(epsilon=0.2): 6}
    """
    counts: dict[Mechanism, int] = {}
    _count(mechanism, 1, counts)
    return counts


def _count(mechanism: Mechanism, times: int, counts: dict[Mechanism, int]) -> None:
    inner, repeats = repeated(mechanism)
    if isinstance(inner, Composed) and repeats:
        for part in inner.mechanisms:
            _count(part, times * repeats, counts)
    elif repeats:
        counts[inner] = counts.get(inner, 0) + times * repeats


def repeated(mechanism: Mechanism) -> tuple[Mechanism, int]:
    """Return the repeated mechanism and its count: nested Repeated are flattened, a Composed is not taken apart.

    >>> repeated(Repeated(Repeated(Pure(0.2), 3), 2))
    (Pure(epsilon=0.2), 6)
    """
    count = 1
    while isinstance(mechanism, Repeated):
        count *= mechanism.count
        mechanism = mechanism.mechanism
    if not isinstance(mechanism, Mechanism):
        raise _no_mechanism(mechanism)
    return mechanism, count


def in_order(mechanism: Mechanism) -> Iterator[tuple[Mechanism, int]]:
    """The single rounds in the order in which they are run, as (round, how often in a row).

    >>> list(in_order(Repeated(Composed((Pure(0.1), Repeated(Pure(0.2), 3))), 2)))[:2]
    [(Pure(epsilon=0.1), 1), (Pure(epsilon=0.2), 3)]
    """
    inner, repeats = repeated(mechanism)
    if not repeats:
        return
    if not isinstance(inner, Composed):
        yield inner, repeats
    elif repeats == 1:
        for part in inner.mechanisms:
            yield from in_order(part)
    elif len(runs := [run for part in inner.mechanisms for run in in_order(part)]) == 1:
        yield runs[0][0], runs[0][1] * repeats
    elif runs:
        for _ in range(repeats):
            yield from runs


@lru_cache(maxsize=1024)
def rounds(mechanism: Mechanism) -> int:
    """Count the rounds that a mechanism stands for: 1, or the sum over its parts."""
    return sum(leaves(mechanism).values())


def _settle(mechanism: Mechanism) -> None:
    for field in fields(mechanism):  # type: ignore[arg-type]
        object.__setattr__(mechanism, field.name, _whole(getattr(mechanism, field.name)))


def _whole(value: Value) -> Value | int:
    """NumPy's whole numbers as Python's: products of the former come round again at 2^63."""
    return int(value) if isinstance(value, Integral) and not isinstance(value, bool) else value


def gaussian_step(sigma: float, sensitivity: float = 1.0, sample_rate: float = 1.0) -> Gaussian | SampledGaussian:
    """One noisy sum over everyone, or below rate 1 over a Poisson sample, as in a step of DP-SGD."""
    return Gaussian(sigma, sensitivity) if sample_rate == 1 else SampledGaussian(sigma, sensitivity, sample_rate)


@dataclass(frozen=True, slots=True)
class BestOf(Mechanism):
    """The best of a random number of independent runs of one mechanism; nothing else is released; theory 8.2.

    "Best" is by any order that was fixed in advance on what a run gives (its score, say, which the mechanism's price
    must cover); of equals one is taken at random, or the first. A run may begin by drawing candidate settings from a
    fixed public list. The number of runs is drawn from a law that does not depend on the data, and stays secret, as do
    the other runs.

    Args:
        mechanism: one run, public, with all that its score reads.
        runs: public; how many runs are expected, above 1 (for Poisson above 0), at most a million.
        shape: public; of the truncated negative binomial law, in [-0.9, 1000]: 0 is logarithmic, 1 geometric. Smaller
            shapes are cheaper and vary more. inf is Poisson; then there may be no run, and what is released in that
            case must not depend on the data.

    >>> from almoner.mechanisms import Gaussian, Repeated
    >>> BestOf(Repeated(Gaussian(sigma=100.0), 50), runs=10)
    BestOf(mechanism=Repeated(mechanism=Gaussian(sigma=100.0, sensitivity=1.0), count=50), runs=10, shape=0.0)
    """

    mechanism: Mechanism
    runs: float
    shape: float = 0.0

    def __post_init__(self) -> None:
        if not isinstance(self.mechanism, Mechanism):
            raise _no_mechanism(self.mechanism)
        _check.positive(runs=self.runs)
        _check.within(-0.9, inf, shape=self.shape)
        if self.shape != inf:
            _check.within(-0.9, 1000, shape=self.shape)
        least = 0.0 if self.shape == inf else 1.0
        if not least < self.runs <= _MOST_RUNS:
            raise ArgumentError(f"runs={self.runs!r} must be in ({least:g}, {_MOST_RUNS:g}] with shape={self.shape!r}")
