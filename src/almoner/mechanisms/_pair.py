"""Mechanisms that a pair of laws dominates, your own or known; and all mechanisms as plain values, and back."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from math import exp, fsum, inf, log
from typing import Any, Self

from almoner import _check
from almoner.errors import ArgumentError, Unsupported
from almoner.mechanisms import _rounds
from almoner.mechanisms._rounds import Composed, Gaussian, Laplace, Mechanism, Pure, Repeated, SampledGaussian, Zcdp

_MOST = 100_000  # outcomes of a pair
_TOLERANCE = 1e-9  # by which probabilities may miss one
_ROUNDING = 1e-12  # up to here what misses is rounding
_SHOWN = 6  # outcomes in a repr


class Paired(Mechanism):
    """Any mechanism that is priced by a dominating pair: its losses count as infinite with a tiny probability."""

    __slots__ = ()


@dataclass(frozen=True, slots=True)
class MixtureOfGaussians(Paired):
    """A sum plus Gaussian noise, to which a person adds a random vector; theory 2.11.

    What others add is independent of it. With probability probabilities[j] the vector's norm is at most
    sensitivities[j]; which of them was drawn stays secret.

    Guarantee: the mixture of N(sensitivities[j], sigma^2) against N(0, sigma^2) dominates it, in any dimension.
    Source: docs/proofs/further-pairs.md, section 1; Choquette-Choo et al. (2024), https://arxiv.org/abs/2310.15526

    >>> MixtureOfGaussians(1.0, (0.0, 1.0, 2.0), (0.2, 0.6, 0.2)).sensitivities
    (0.0, 1.0, 2.0)
    """

    sigma: float
    sensitivities: tuple[float, ...]
    probabilities: tuple[float, ...]

    def __post_init__(self) -> None:
        Mechanism.__post_init__(self)
        for name in ("sensitivities", "probabilities"):
            object.__setattr__(self, name, _floats(name, getattr(self, name)))
        _check_law("probabilities", self.probabilities)
        _check.each(_check.amount, sensitivity=self.sensitivities)
        _check.equally_long(sensitivities=self.sensitivities, probabilities=self.probabilities)


@dataclass(frozen=True, slots=True)
class SampledRecords(Paired):
    """A sum over a Poisson sample of *records*, plus Gaussian noise, where a person has up to so many; theory 2.11.

    Each record is sampled by its own coin, and clipped to the sensitivity by itself. Records = 1 is SampledGaussian.

    Guarantee: holds for adding or removing a person with all records; the mixture of N(j sensitivity, sigma^2),
    j binomial, against N(0, sigma^2) dominates it.
    Source: docs/proofs/further-pairs.md, section 2.
    """

    sigma: float
    sensitivity: float = 1.0
    sample_rate: float = 1.0
    records: int = 1


@dataclass(frozen=True, slots=True)
class TruncatedGaussian(Paired):
    """A sum over a Poisson sample of people, cut at random to at most batch_size of them, plus Gaussian noise.

    The data hold exactly so many people, a number that is public; the cut takes every subset with the same
    probability, afresh each time, and the sum is divided by a public number.

    Guarantee: holds for adding a person to so many, and for removing one of them.
    Source: theory 2.11; docs/proofs/further-pairs.md, section 3; Ganesh et al. (2025), https://arxiv.org/abs/2508.15089
    """

    sigma: float
    sensitivity: float
    sample_rate: float
    batch_size: int
    people: int


@dataclass(frozen=True, slots=True)
class ReplacedGaussian(Paired):
    """A sum over a Poisson sample of people, plus Gaussian noise, where one person's records are *replaced* by others.

    Neighbours have equally many people. The price also holds for adding or removing a person, and is larger.

    Guarantee: (1-q) N(0, sigma^2) + q N(s, sigma^2) against the same with -s dominates it, in any dimension and under
    composition, q the sample rate and s the sensitivity.
    Source: docs/proofs/further-pairs.md, section 6; Lebeda et al. (2024), https://arxiv.org/abs/2405.20769
    """

    sigma: float
    sensitivity: float = 1.0
    sample_rate: float = 1.0


@dataclass(frozen=True, slots=True)
class RandomAllocation(Paired):
    """One epoch: each person in one of so many batches, drawn for each person alone, and a noisy sum of each batch.

    This is not a shuffle into batches of equal size: there one person's batch depends on the others'.

    Guarantee: the mean of the N(e_i, sigma^2) against N(0, sigma^2), with one coordinate for each batch, dominates all
    sums together, also where a batch's function depends on the sums before; round = epoch.
    Source: theory 2.11; docs/proofs/further-pairs.md, section 4; Feldman & Shenfeld (2025),
    https://arxiv.org/abs/2502.08202
    """

    sigma: float
    sensitivity: float
    batches: int


@dataclass(frozen=True, slots=True)
class Shuffled(Paired):
    """Reports of so many people, all by one epsilon-DP local randomiser, in a random order that nobody knows.

    Neighbours have one person's record replaced, so that removing a person means a report on a fixed public record.

    Guarantee: the clones' pair dominates it, with a clone among the others at probability exp(-epsilon).
    Source: docs/proofs/further-pairs.md, section 5; Feldman, McMillan & Talwar (2021), Theorem 3.2,
    https://arxiv.org/abs/2012.12803
    """

    epsilon: float
    people: int


@dataclass(frozen=True, slots=True, repr=False)
class DominatingPair(Paired):
    """Any mechanism that a discrete pair of laws dominates, P and Q, given as probabilities of the same outcomes.

    P is the law with the person, Q the law without, and the pair dominates the mechanism if at every real epsilon
    (below zero too) and for every two such data sets the hockey-stick divergence of the mechanism is at most that of
    the pair. Then the mirror image, Q against P, dominates the other order. Where a better pair is known for the other
    order, P_add is its law without the person and Q_add its law with.

    Whether a pair dominates cannot be checked here: it is your promise, as a sensitivity is. An outcome with q = 0 has
    infinite loss, and counts as a failure (theory 2.4). Probabilities that miss one by at most 1e-12 are rounding,
    and taken against the spender: what is missing is added to the largest loss, what is too much is taken from the
    least. Up to 1e-9, what is missing counts as an infinite loss. More is refused.

    Args:
        p, q: (k,) public, probabilities of the outcomes.
        p_add, q_add: (j,) public, of other outcomes; both or neither.

    >>> DominatingPair(p=(0.75, 0.25), q=(0.25, 0.75))  # randomised response with epsilon = log 3
    DominatingPair(p=(0.75, 0.25), q=(0.25, 0.75))
    """

    p: tuple[float, ...]
    q: tuple[float, ...]
    p_add: tuple[float, ...] | None = None
    q_add: tuple[float, ...] | None = None

    def __post_init__(self) -> None:
        if (self.p_add is None) != (self.q_add is None):
            raise ArgumentError("p_add and q_add must be given together, or not at all")
        for field in fields(self):
            values = getattr(self, field.name)
            if values is not None:
                object.__setattr__(self, field.name, _floats(field.name, values))
        for p, q in (("p", "q"), ("p_add", "q_add")):
            one, other = getattr(self, p), getattr(self, q)
            if one is not None:
                _check_law(p, one)
                _check_law(q, other)
                _check.equally_long(**{p: one, q: other})

    def __repr__(self) -> str:
        given = [(field.name, getattr(self, field.name)) for field in fields(self)]
        return f"DominatingPair({', '.join(f'{name}={_shown(each)}' for name, each in given if each is not None)})"

    @classmethod
    def from_losses(
        cls,
        losses: Sequence[float],
        masses: Sequence[float],
        *,
        infinity: float = 0.0,
        losses_add: Sequence[float] | None = None,
        masses_add: Sequence[float] | None = None,
        infinity_add: float = 0.0,
    ) -> Self:
        """The pair that a privacy loss distribution describes.

        Args:
            losses: (k,) public, nats, finite: log P/Q of the outcomes, P the law with the person.
            masses: (k,) public, their probabilities under P.
            infinity: public, the probability under P of an infinite loss.
            losses_add, masses_add, infinity_add: the same for the other order, P the law without the person. Without
                them the other order is the mirror image.

        Raises:
            ArgumentError: a loss is not finite; masses and infinity do not add up to one; or the losses belong to no
                pair of laws: the sum of masses * exp(-losses), which is the probability that is left for Q, is above
                one. Such losses do not dominate any mechanism in the other order.

        >>> DominatingPair.from_losses([0.0], [0.75], infinity=0.25)
        DominatingPair(p=(0.75, 0.25, 0.0), q=(0.75, 0.0, 0.25))
        """
        if (losses_add is None) != (masses_add is None) or (losses_add is None and infinity_add):
            raise ArgumentError("losses_add and masses_add must be given together, or not at all")
        p, q = _laws("", losses, masses, infinity)
        if losses_add is None or masses_add is None:
            return cls(p, q)
        return cls(p, q, *_laws("_add", losses_add, masses_add, infinity_add))


def replaced(mechanism: Mechanism) -> Mechanism:
    """The run as it is where one person's records are *replaced*: adjacency "replace", for runs fixed in advance.

    Accounts per person stay with adding and removing: that a person takes part is private there.

    Raises:
        Unsupported: no theorem carries a part of the run over.

    Guarantee: what holds for adding or removing a person of the run returned, fixed in advance, holds for replacing a
    person's records in the run given.
    Source: docs/proofs/further-pairs.md, section 6; Bun & Steinke (2016), Proposition 1.9 (zCDP).

    >>> replaced(Repeated(SampledGaussian(1.0, 1.0, 0.1), 20))
    Repeated(mechanism=ReplacedGaussian(sigma=1.0, sensitivity=1.0, sample_rate=0.1), count=20)
    """
    match mechanism:
        case Repeated(inner, count):
            return Repeated(replaced(inner), count)
        case Composed(parts):
            return Composed(tuple(map(replaced, parts)))
        case Gaussian(sigma, sensitivity) | SampledGaussian(sigma, sensitivity, 1):
            return Gaussian(sigma, 2 * sensitivity)
        case SampledGaussian(sigma, sensitivity, rate):
            return ReplacedGaussian(sigma, sensitivity, rate)
        case Laplace(scale, sensitivity):
            return Laplace(scale, 2 * sensitivity)
        case Pure(epsilon):
            return Pure(2 * epsilon)
        case Zcdp(rho):
            return Zcdp(4 * rho)
        case ReplacedGaussian() | Shuffled():
            return mechanism
    raise Unsupported(
        f"{type(mechanism).__name__} has no price for replaced records; Gaussian, SampledGaussian, Laplace, Pure, Zcdp "
        "and Shuffled have one"
    )


def _floats(name: str, values: object) -> tuple[float, ...]:
    if isinstance(values, str) or not isinstance(values, Iterable):
        raise ArgumentError(f"{name} must be a list of numbers")
    numbers = [each.item() if getattr(each, "ndim", None) == 0 else each for each in values]
    _check.each(_check.number, **{name: numbers})
    if not 1 <= len(numbers) <= _MOST:
        raise ArgumentError(f"{name} must have 1 to {_MOST} numbers, not {len(numbers)}")
    return tuple(map(float, numbers))


def _check_law(name: str, probabilities: tuple[float, ...]) -> None:
    _check.each(_check.within, 0, 1, **{name: probabilities})
    _check_sum(name, fsum(probabilities))


def _check_sum(name: str, total: float) -> None:
    if not abs(total - 1) <= _TOLERANCE:
        raise ArgumentError(f"{name} must add up to 1 (to 1e-9), not to {total!r}")


def _laws(
    ending: str, losses: Sequence[float], masses: Sequence[float], infinity: float
) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """P and Q of a privacy loss distribution; what is left for Q is an outcome that P does not have."""
    points, weights = _floats(f"losses{ending}", losses), _floats(f"masses{ending}", masses)
    _check.equally_long(**{f"losses{ending}": points, f"masses{ending}": weights})
    _check.each(_check.between, -inf, inf, **{f"losses{ending}": points})
    _check.each(_check.within, 0, 1, **{f"masses{ending}": weights})
    _check.within(0, 1, **{f"infinity{ending}": infinity})
    _check_sum(f"masses{ending} and infinity{ending}", fsum((*weights, infinity)))
    without = [mass * exp(-loss) if loss > -700 else inf for loss, mass in zip(points, weights, strict=True) if mass]
    total = fsum(without) if inf not in without else inf
    if not total <= 1 + _TOLERANCE:
        more = f"; add {log(total)!r} to every loss" if total < inf else ""
        raise ArgumentError(
            f"losses{ending} and masses{ending} belong to no pair of laws: masses{ending} * exp(-losses{ending}) add "
            f"up to {total!r}, above one{more}"
        )
    p, q = [mass for mass in weights if mass], without
    if infinity:
        p, q = [*p, float(infinity)], [*q, 0.0]
    if 1 - total > _ROUNDING:
        p, q = [*p, 0.0], [*q, 1 - total]
    return tuple(p), tuple(q)


def _shown(probabilities: tuple[float, ...]) -> str:
    if len(probabilities) <= _SHOWN:
        return repr(probabilities)
    return f"({', '.join(map(repr, probabilities[: _SHOWN - 2]))}, ... {len(probabilities)} outcomes)"


_KINDS: dict[str, type[Mechanism]] = {
    name: kind
    for name, kind in (vars(_rounds) | globals()).items()
    if isinstance(kind, type) and issubclass(kind, Mechanism) and kind not in (Mechanism, Paired)
}


def to_fields(mechanism: Mechanism) -> dict[str, object]:
    """A mechanism as its kind and its parameters: plain values, which JSON can hold.

    >>> from almoner.mechanisms import Pure, Repeated
    >>> to_fields(Repeated(Pure(0.1), 2))
    {'kind': 'Repeated', 'mechanism': {'kind': 'Pure', 'epsilon': 0.1}, 'count': 2}
    """
    described: dict[str, object] = {"kind": type(mechanism).__name__}
    for field in fields(mechanism):  # type: ignore[arg-type]
        value = getattr(mechanism, field.name)
        if isinstance(value, Mechanism):
            value = to_fields(value)
        elif isinstance(value, tuple):
            value = [to_fields(each) if isinstance(each, Mechanism) else each for each in value]
        described[field.name] = value
    return described


def from_fields(described: Mapping[str, object], *, where: str = "described") -> Mechanism:
    """The mechanism that :func:`to_fields` described; ``where`` is its place, in errors.

    Raises:
        ArgumentError: there is no such mechanism, or its parameters break a rule.

    >>> from_fields({"kind": "Repeated", "mechanism": {"kind": "Pure", "epsilon": 0.1}, "count": 2})
    Repeated(mechanism=Pure(epsilon=0.1), count=2)
    """
    from almoner._reading import read  # which most processes never need

    kind = described.get("kind")
    if not isinstance(kind, str) or kind not in _KINDS:
        raise ArgumentError(f"{where}: {_check.told(kind=kind)} must be the name of a mechanism")
    parameters: dict[str, Any] = {}
    for name, value in described.items():
        if isinstance(value, Mapping):
            value = from_fields(value, where=f"{where}.{name}")
        elif isinstance(value, list | tuple):
            value = tuple(
                from_fields(each, where=f"{where}.{name}.{place}") if isinstance(each, Mapping) else each
                for place, each in enumerate(value)
            )
        parameters[name] = value
    read(model_of(kind), parameters, where=where)
    del parameters["kind"]
    with _check.placed(where):
        return _KINDS[kind](**parameters)


def model_of(kind: str) -> Any:
    from almoner._reading import model_of

    return model_of(_KINDS[kind], kind=kind)  # type: ignore[arg-type]


def fields_schema() -> dict[str, Any]:
    """JSON Schema of mechanisms as plain values."""
    from almoner._reading import one_of, schema_of

    return schema_of(one_of("kind", map(model_of, _KINDS)))
