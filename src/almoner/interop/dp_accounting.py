"""Convert mechanisms to and from the events of Google's dp_accounting (extra ``interop``).

An event does not say which data sets are neighbours. Almoner reads every event under its own relation, add or remove
one person with all of that person's records; an event that only has a meaning under another relation is refused.

    NoOp              Composed(())                    Composed        Composed
    Gaussian          Gaussian                        SelfComposed    Repeated
    Laplace           Laplace                         ZCDp, xi = 0    Zcdp
    DiscreteLaplace   Pure                            ZCDp, xi > 0    Renyi
    EpsilonDelta      Approximate                     PermuteAndFlip  Pure
    DiscreteGaussian  DiscreteGaussian                ExponentialMechanism  Exponential
    PoissonSampled of Gaussian                        SampledGaussian
    PoissonSampled of Laplace or DiscreteLaplace      Pure
    RepeatAndSelect                                   BestOf
    MixtureOfGaussians                                MixtureOfGaussians
    TruncatedSubsampledGaussian                       TruncatedGaussian
    SingleEpochTreeAggregation, null records only     Gaussian
    RandomizedResponse, null records only             Pure

``accountant`` drives their interface: ``calibrate_dp_mechanism`` finds noise for our bounds.

Classes are compared exactly: a subclass may mean something else, so it is refused like every unknown event.
"""

from collections.abc import Callable
from contextlib import suppress
from fractions import Fraction
from math import expm1, fsum, inf, log, log1p, nextafter, sqrt
from types import ModuleType
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from almoner import _check, _extras, mechanisms
from almoner.curves import approximate, gaussian, losses, renyi, zcdp
from almoner.curves._totals import tightest
from almoner.errors import ArgumentError, Unsupported
from almoner.interop.opendp import ORDERS

if TYPE_CHECKING:
    from dp_accounting import PrivacyAccountant, dp_event
    from dp_accounting.pld.privacy_loss_distribution import PrivacyLossDistribution

__all__ = ["accountant", "from_event", "from_pld", "to_event"]

_OTHER_RELATION = ("RandomizedResponseDpEvent", "SampledWithReplacementDpEvent", "SampledWithoutReplacementDpEvent")


def _by_losses(run: mechanisms.Mechanism, delta: float, *, taken: bool = True) -> float:
    """The certified epsilon; where it is not ``taken`` nobody takes part, and only laws are made."""
    rounds = {each: count * taken for each, count in mechanisms.leaves(run).items()}
    counts = np.asarray([[*rounds.values()]], None if taken else np.int64)
    return float(losses.epsilons(counts, [*rounds], delta=delta)[0])


def _basic(run: mechanisms.Mechanism, delta: float) -> float:
    sums = approximate.of(run)
    return sums.epsilon if sums.delta <= delta else inf


def _at(epsilon: Callable[[mechanisms.Mechanism, float], float], run: mechanisms.Mechanism, delta: float) -> float:
    """The epsilon of a run at delta, in [0, 1]; at 0 its pure one, inf where a round has none."""
    if delta == 1 or not mechanisms.leaves(run):
        return 0.0
    try:
        return float(epsilon(run, delta) if delta else _basic(run, 0.0))
    except Unsupported:
        if delta:
            raise
        return inf


NOTIONS: dict[str, Callable[[mechanisms.Mechanism, float], float]] = {
    "tightest": lambda run, delta: tightest(run, delta=delta).epsilon,
    "losses": _by_losses,
    "gaussian": lambda run, delta: gaussian.of(run).epsilon(delta=delta),
    "zcdp": lambda run, delta: zcdp.of(run).epsilon(delta=delta),
    "renyi": lambda run, delta: renyi.of(run).epsilon(delta=delta),
    "basic": _basic,
}

_CHECKS: dict[str, Callable[[mechanisms.Mechanism], object]] = {
    "gaussian": gaussian.cost,
    "zcdp": zcdp.cost,
    "basic": approximate.cost,
    "renyi": lambda run: renyi.of(run, (2.0,)),
    "losses": lambda run: _by_losses(run, 0.5, taken=False),
}  # functions that raise Unsupported where a mechanism has no price in a notion, without working the price out


def _check_priced(notion: str, run: mechanisms.Mechanism) -> None:
    if notion != "tightest":
        _CHECKS[notion](run)
        return
    for check in _CHECKS.values():
        with suppress(Unsupported):
            check(run)
            return
    raise Unsupported(f"{run!r} has no price in any notion of privacy")


def accountant(notion: str = "tightest", *, null_records: bool = False, replace: bool = False) -> "PrivacyAccountant":
    """A fresh accountant in the interface of dp_accounting, for ``calibrate_dp_mechanism`` and the like.

    Args:
        notion: public, one of ``NOTIONS``: "tightest" of all, "losses" (certified privacy loss distributions),
            "gaussian", "zcdp", "renyi" or "basic".
        null_records: public. Neighbours are data where one person's records are null, in place of absent: their
            REPLACE_SPECIAL; else ADD_OR_REMOVE_ONE.
        replace: public. Neighbours are data where one person's records are others, by ``mechanisms.replaced``: their
            REPLACE_ONE.

    Returns:
        A ``PrivacyAccountant``: ``compose``, ``supports``, ``ledger``, ``get_epsilon``. It adds up a run that was fixed
        in advance; it is no filter and no odometer. Without noise epsilon is infinite, as in their accountants, and a
        sample of rate 0 costs nothing, whatever is in it; ``from_event`` refuses both.

    Guarantee: what was composed, if fixed in advance, is (epsilon, delta)-DP with the epsilon that it gives.
    Source: theory 2, 3 and 7, by notion.
    """
    _check.one_of(list(NOTIONS), notion=notion)
    if null_records and replace:
        raise ArgumentError("null_records and replace are two relations: give one of them")
    relation = "REPLACE_SPECIAL" if null_records else "REPLACE_ONE" if replace else "ADD_OR_REMOVE_ONE"
    with _extras.need("dp_accounting", extra="interop"):
        from dp_accounting import NeighboringRelation, PrivacyAccountant
    epsilon = NOTIONS[notion]

    class Accountant(PrivacyAccountant):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__(NeighboringRelation[relation])
            self._rounds: list[mechanisms.Mechanism] = []
            self._exposed = False

        def _maybe_compose(self, event: Any, count: int, do_compose: bool) -> Any:
            if type(event) is _events().ComposedDpEvent:
                found = (self._maybe_compose(part, count, do_compose) for part in event.events)
                return next((refused for refused in found if refused is not None), None)
            if type(event) is _events().SelfComposedDpEvent and isinstance(event.count, int) and event.count >= 0:
                return self._maybe_compose(event.event, count * event.count, do_compose) if event.count else None
            try:
                mechanism = None if _exposes(event) else _read(_without_idle(event), null_records=null_records)
                if mechanism is not None:
                    mechanism = mechanisms.replaced(mechanism) if replace else mechanism
                    _check_priced(notion, mechanism)
            except (ArgumentError, Unsupported) as refused:
                return self.CompositionErrorDetails(event, str(refused))
            if mechanism is None:
                self._exposed |= do_compose and count > 0
            elif do_compose:
                self._rounds.append(mechanisms.Repeated(mechanism, count))
            return None

        def get_epsilon(self, target_delta: float) -> float:
            return inf if self._exposed else _at(epsilon, mechanisms.Composed(tuple(self._rounds)), target_delta)

    return Accountant()


def from_event(event: object) -> mechanisms.Mechanism:
    """The mechanism that an event describes; noise is in units of the sensitivity, which is 1.

    Raises:
        Unsupported: the event, or one inside it, has no mechanism here; the message names its class.
        ArgumentError: a parameter of the event breaks a rule (a negative noise multiplier, a rate above 1).

    Guarantee: what the event says was run, was run by the mechanism: no cost is lost.
    Source: the docstrings of dp_accounting.dp_event, version 0.6; theory 2.1, 2.2, 2.6.
    """
    return _read(event, null_records=False)


def _read(event: object, *, null_records: bool) -> mechanisms.Mechanism:
    reader = _readers(null_records=null_records).get(type(event))
    if reader is None:
        name = type(event).__name__
        why = "; it has a meaning for replaced records only" if name in _OTHER_RELATION else ""
        with_null = [kind.__name__ for kind in _readers(null_records=True)]
        supported = f"{', '.join(with_null[:-2])}, and with null records {' and '.join(with_null[-2:])}"
        raise Unsupported(f"{name} has no mechanism in Almoner{why}; supported are {supported}")
    return reader(event)


def _exposes(event: Any) -> bool:
    """Tell whether an event tells all about a person, because it has no noise."""
    events, kind = _events(), type(event)
    if kind is events.ComposedDpEvent:
        return any(map(_exposes, event.events))
    if kind is events.SelfComposedDpEvent:
        return bool(event.count) and _exposes(event.event)
    if kind is events.PoissonSampledDpEvent:
        return bool(event.sampling_probability) and _exposes(event.event)
    if kind is events.RepeatAndSelectDpEvent:
        return _exposes(event.event)
    if kind is events.MixtureOfGaussiansDpEvent:
        chances = zip(event.sensitivities, event.sampling_probs, strict=False)
        return bool(event.standard_deviation == 0) and any(chance and each for each, chance in chances)
    if kind is events.RandomizedResponseDpEvent:
        return bool(event.noise_parameter == 0 and event.num_buckets != 1)
    if kind is getattr(events, "DiscreteGaussianDpEvent", None):
        return bool(event.sigma == 0 and event.sensitivity)
    sampled = kind is events.TruncatedSubsampledGaussianDpEvent and event.sampling_probability
    noisy = (events.GaussianDpEvent, events.LaplaceDpEvent, events.SingleEpochTreeAggregationDpEvent)
    return bool(event.noise_multiplier == 0) if sampled or kind in noisy else kind is events.NonPrivateDpEvent


def _without_idle(event: Any) -> Any:
    """An event, or the empty one in the place of a sample of rate 0, which takes nobody."""
    events = _events()
    samples = (events.PoissonSampledDpEvent, events.TruncatedSubsampledGaussianDpEvent)
    return events.NoOpDpEvent() if type(event) in samples and event.sampling_probability == 0 else event


def to_event(mechanism: mechanisms.Mechanism) -> "dp_event.DpEvent":
    """The event that describes a mechanism; noise multipliers are rounded down, costs up.

    A pure mechanism is at worst a randomised response, which is discrete Laplace noise in a count: its losses are
    epsilon and -epsilon. Version 0.6 has no event for an approximate one, and those of zCDP and of pure ones for a
    discrete Gaussian and an exponential mechanism.

    Raises:
        Unsupported: the mechanism, or one inside it, has no event; the message names its class.

    Guarantee: the event costs at least what the mechanism costs.
    Source: the docstrings of dp_accounting.dp_event, versions 0.6 and later; theory 2.3, 2.7.
    """
    events = _events()
    match mechanism:
        case mechanisms.Composed(()) | mechanisms.Pure(0) | mechanisms.Zcdp(0) | mechanisms.Exponential(0):
            return events.NoOpDpEvent()
        case mechanisms.Gaussian(sigma, sensitivity):
            return events.GaussianDpEvent(_ratio(sigma, sensitivity))
        case mechanisms.SampledGaussian(sigma, sensitivity, rate):
            return events.PoissonSampledDpEvent(rate, events.GaussianDpEvent(_ratio(sigma, sensitivity)))
        case mechanisms.Laplace(scale, sensitivity):
            return events.LaplaceDpEvent(_ratio(scale, sensitivity))
        case mechanisms.Pure(epsilon) | mechanisms.RandomizedResponse(epsilon) | mechanisms.Approximate(epsilon, 0):
            return events.DiscreteLaplaceDpEvent(float(epsilon), 1)
        case mechanisms.Approximate(epsilon, delta) if hasattr(events, "EpsilonDeltaDpEvent"):
            return events.EpsilonDeltaDpEvent(epsilon, delta)
        case mechanisms.DiscreteGaussian(sigma, sensitivity, dimension) if hasattr(events, "DiscreteGaussianDpEvent"):
            return events.DiscreteGaussianDpEvent(sigma, sensitivity, dimension)
        case mechanisms.DiscreteGaussian():
            return events.ZCDpEvent(zcdp.of(mechanism).rho)
        case mechanisms.Exponential(eta) if hasattr(events, "ExponentialMechanismDpEvent"):
            return events.ExponentialMechanismDpEvent(eta)
        case mechanisms.Exponential(eta):
            return events.DiscreteLaplaceDpEvent(float(eta), 1)
        case mechanisms.Zcdp(rho):
            return events.ZCDpEvent(rho)
        case mechanisms.Repeated(inner, count):
            return events.SelfComposedDpEvent(to_event(inner), count)
        case mechanisms.BestOf(inner, runs, shape) if shape >= 0:
            return events.RepeatAndSelectDpEvent(to_event(inner), runs, shape)
        case mechanisms.Composed(parts):
            return events.ComposedDpEvent([to_event(part) for part in parts])
    raise Unsupported(f"{type(mechanism).__name__} has no event in this version of dp_accounting: {mechanism!r}")


def from_pld(pld: "PrivacyLossDistribution") -> mechanisms.DominatingPair:
    """The mechanism that a pessimistic privacy loss distribution of dp_accounting bounds, composed or not.

    What rounding and Fourier transforms leave in it is taken against the spender: masses below zero count as zero, and
    lists of losses that belong to no pair of laws become those of one that dominates them. At epsilon >= 0 its deltas
    stay as they are, but for more than 100,000 losses, which are spread over fewer.

    Raises:
        Unsupported: the distribution is an optimistic estimate.

    Guarantee: the pair dominates what the distribution bounds, in both directions, as far as that is pessimistic.
    Source: Doroshenko et al. (2022), https://arxiv.org/abs/2207.04380; theory 2.10.
    """
    with _extras.need("dp_accounting", extra="interop"):
        from dp_accounting.pld.privacy_loss_distribution import PrivacyLossDistribution
    if not isinstance(pld, PrivacyLossDistribution):
        raise ArgumentError(f"pld must be a PrivacyLossDistribution, not {type(pld).__name__}")
    lists: dict[str, Any] = {}
    for end, pmf in (("", pld._pmf_remove), ("_add", pld._pmf_add)):
        if not pmf._pessimistic_estimate:
            raise Unsupported("an optimistic estimate is no bound: pessimistic_estimate must be True")
        dense = pmf.to_dense_pmf()
        masses = np.asarray(dense._probs, np.float64)
        losses = (dense._lower_loss + np.arange(masses.size)) * float(dense._discretization)
        found, weights, infinity = of_a_pair(losses, masses, float(dense._infinity_mass))
        lists |= {f"losses{end}": found.tolist(), f"masses{end}": weights.tolist(), f"infinity{end}": infinity}
    return mechanisms.DominatingPair.from_losses(**lists)


_MOST = 100_000 - 2  # most losses of a pair, beside an infinite one and what Q alone has
_WIDER = 1e-12  # relative widening of a part of a mass: more than rounding moves it
Floats = NDArray[np.float64]
LossList = tuple[Floats, Floats, float]  # losses, increasing; their masses under P; that of an infinite loss


def of_a_pair(losses: Floats, masses: Floats, infinity: float) -> LossList:
    """Losses of a pair of laws that dominates what a list bounds: (n,) losses, increasing, nats, finite, and masses.

    Masses are (n,) probabilities under P, rounded; below zero counts as zero. ``infinity`` is that of an infinite loss.

    Pessimistic rounding and Fourier transforms leave lists that are nearly, but not quite, those of two laws P and Q:
    masses that add up to a little more or less than one, or more than one of mass * exp(-loss), which is what Q has.
    Each step keeps the divergence, or makes it larger, wherever it bounds that of a mechanism:

    fewer losses  a mass between two losses that are kept is split over both so that P and Q keep theirs. To merge the
                  two parts again is post-processing, so the split pair dominates (connecting the dots).
    too much P    what masses and infinity have above one is taken from the least losses. From the least loss that is
                  left on, nothing changes. Below, the divergence is now the chord from exp(epsilon) = 0, where it is 1
                  for every mechanism, and a convex function is below its chords.
    too little P  what is missing has an infinite loss.
    too much Q    the floor, the least loss, is raised until Q has at most one. It is never above 0, for there Q has no
                  more than P; so at every epsilon >= 0 nothing changes.

    Source: Doroshenko et al. (2022), https://arxiv.org/abs/2207.04380 (connecting the dots); theory 2.10.
    """
    masses, infinity = np.maximum(masses, 0.0), min(max(infinity, 0.0), 1.0)
    losses, masses = _fewer(losses[masses > 0], masses[masses > 0])
    masses = _at_most_one(masses, 1 - infinity)
    losses, masses = losses[masses > 0], masses[masses > 0]
    infinity = max(infinity, min(1.0, 1 - fsum(masses)))
    return *_with_floor(losses, masses), infinity


def _fewer(losses: Floats, masses: Floats) -> tuple[Floats, Floats]:
    """At most so many losses as a pair may have: every so many-th is kept, and the last."""
    count = losses.size
    step = -(-count // (_MOST - 1))
    if count <= _MOST:
        return losses, masses
    kept = np.append(np.arange(0, count - 1, step), count - 1)
    place = np.searchsorted(kept, np.arange(count), side="right") - 1
    place = np.minimum(place, kept.size - 2)
    low, high = losses[kept[place]], losses[kept[place + 1]]
    part = np.expm1(losses - low) / np.expm1(high - low) * np.exp(high - losses)
    upper = np.minimum(part * (1 + _WIDER), 1.0) * masses
    found = np.bincount(place, masses - upper, kept.size) + np.bincount(place + 1, upper, kept.size)
    return losses[kept], np.maximum(found, 0.0)


def _at_most_one(masses: Floats, most: float) -> Floats:
    """The masses without what they have above ``most``, which is taken from the first ones."""
    excess = fsum(masses) - most
    if excess <= 0:
        return masses
    whole = np.cumsum(masses)
    return np.where(whole <= excess, 0.0, np.minimum(masses, whole - excess))


def _with_floor(losses: Floats, masses: Floats) -> tuple[Floats, Floats]:
    """With the least losses raised to one of them, or to 0, until Q has at most one."""
    if not losses.size:
        return np.zeros(1), np.zeros(1)
    with np.errstate(over="ignore"):
        of_q = masses * np.exp(-losses)
        above = np.append(np.cumsum(of_q[::-1])[::-1], 0.0)  # Q of each loss and of all larger ones
        floors = np.where(losses < 0, losses, 0.0)
        whole = np.cumsum(masses) * np.exp(-floors) + above[1:]  # Q, where all up to one are raised to it
    fitting = np.flatnonzero((whole * (1 + _WIDER) <= 1) & (losses < 0))
    least = losses[fitting[0]] if fitting.size else 0.0
    distinct, where = np.unique(np.maximum(losses, least), return_inverse=True)
    return distinct, np.bincount(where, masses, distinct.size).astype(np.float64)


def _readers(*, null_records: bool) -> dict[type, Callable[[Any], mechanisms.Mechanism]]:
    events = _events()
    newer: dict[str, Callable[[Any], mechanisms.Mechanism]] = {
        "EpsilonDeltaDpEvent": _approximate,
        "DiscreteGaussianDpEvent": _discrete_gaussian,
        "ExponentialMechanismDpEvent": lambda event: mechanisms.Exponential(event.epsilon),
        "PermuteAndFlipDpEvent": lambda event: mechanisms.Pure(event.epsilon),
    }

    def inner(event: object) -> mechanisms.Mechanism:
        return _read(event, null_records=null_records)

    def best_of(event: Any) -> mechanisms.Mechanism:
        one = inner(event.event)  # one expected run, of a law that never has none, is one run
        return one if event.mean == 1 and 0 <= event.shape < inf else mechanisms.BestOf(one, event.mean, event.shape)

    readers: dict[type, Callable[[Any], mechanisms.Mechanism]] = {
        **{getattr(events, name): reader for name, reader in newer.items() if hasattr(events, name)},
        events.NoOpDpEvent: lambda _: mechanisms.Composed(()),
        events.GaussianDpEvent: lambda event: mechanisms.Gaussian(_noise(event)),
        events.LaplaceDpEvent: lambda event: mechanisms.Laplace(_noise(event)),
        events.DiscreteLaplaceDpEvent: _discrete_laplace,
        events.ZCDpEvent: _zcdp,
        events.PoissonSampledDpEvent: _sampled,
        events.MixtureOfGaussiansDpEvent: _mixture,
        events.TruncatedSubsampledGaussianDpEvent: _truncated,
        events.SelfComposedDpEvent: lambda event: mechanisms.Repeated(inner(event.event), event.count),
        events.ComposedDpEvent: lambda event: mechanisms.Composed(tuple(map(inner, event.events))),
        events.RepeatAndSelectDpEvent: best_of,
    }
    if null_records:
        readers |= {events.SingleEpochTreeAggregationDpEvent: _tree}
        readers |= {events.RandomizedResponseDpEvent: _randomized_response}
    return readers


def _zcdp(event: "dp_event.ZCDpEvent") -> mechanisms.Mechanism:
    """Its Rényi value at an order alpha is at most xi + rho alpha."""
    if event.xi == 0:
        return mechanisms.Zcdp(event.rho)
    _check.amount(rho=event.rho, xi=event.xi)
    return mechanisms.Renyi(ORDERS, tuple((event.xi + event.rho * order) * _UP for order in ORDERS))


_UP = 1 + 1e-15
_LARGEST_EXPONENT = 700.0  # largest exponent at which exp fits a double


def _discrete_laplace(event: "dp_event.DiscreteLaplaceDpEvent") -> mechanisms.Mechanism:
    """Two whole numbers that are so far apart differ in probability by at most the exponential of the product."""
    _check.positive(noise_parameter=event.noise_parameter, sensitivity=event.sensitivity)
    return mechanisms.Pure(event.noise_parameter * event.sensitivity * _UP)


def _approximate(event: Any) -> mechanisms.Mechanism:
    one = mechanisms.Approximate(event.epsilon, event.delta)
    return one if one.epsilon or one.delta else mechanisms.Composed(())


def _discrete_gaussian(event: Any) -> mechanisms.Mechanism:
    if event.sensitivity == 0:
        mechanisms.Gaussian(event.sigma)  # refuses what is no noise
        return mechanisms.Composed(())
    return mechanisms.DiscreteGaussian(event.sigma, event.sensitivity, event.dimension)


def _randomized_response(event: "dp_event.RandomizedResponseDpEvent") -> mechanisms.Mechanism:
    """The largest ratio, either way, of a bucket's probability to that of a uniform one, which a null record gives."""
    _check.whole(1, num_buckets=event.num_buckets)
    _check.within(0, 1, noise_parameter=event.noise_parameter)
    if event.noise_parameter == 0 and event.num_buckets > 1:
        raise Unsupported("RandomizedResponseDpEvent with noise_parameter=0 is not private; it has no finite cost")
    if event.noise_parameter in (0, 1) or event.num_buckets == 1:
        return mechanisms.Composed(())
    most = log1p((event.num_buckets - 1) * (1 - event.noise_parameter))  # of the own bucket; of another one:
    return mechanisms.Pure(max(most, -log(event.noise_parameter)) * (1 + 1e-14))


def _mixture(event: "dp_event.MixtureOfGaussiansDpEvent") -> mechanisms.Mechanism:
    """A sensitivity below zero is no worse than one as far above it, which is moved in the same direction as others."""
    _check.noise(standard_deviation=event.standard_deviation)
    sensitivities, chances = list(event.sensitivities), list(event.sampling_probs)
    _check.number(**{f"sensitivities[{place}]": each for place, each in enumerate(sensitivities)})
    _check.each(_check.within, 0, 1, sampling_probs=chances)
    if len(sensitivities) != len(chances) or not abs(fsum(chances) - 1) <= 1e-9:
        raise ArgumentError("sampling_probs must add up to 1, one for each of sensitivities")
    moves = {abs(each) for each, chance in zip(sensitivities, chances, strict=True) if chance}
    if moves == {0.0}:
        return mechanisms.Composed(())
    if len(moves - {0.0}) == 1:
        still = fsum(chance for each, chance in zip(sensitivities, chances, strict=True) if not each)
        return mechanisms.gaussian_step(event.standard_deviation, max(moves), min(1.0, (1 - still) * (1 + 1e-14)))
    return mechanisms.MixtureOfGaussians(event.standard_deviation, tuple(map(abs, sensitivities)), tuple(chances))


def _truncated(event: "dp_event.TruncatedSubsampledGaussianDpEvent") -> mechanisms.Mechanism:
    """The data set may have one person more than it says, or one less; a batch of nobody is nothing."""
    _check.whole(0, dataset_size=event.dataset_size, truncated_batch_size=event.truncated_batch_size)
    _check.within(0, 1, sampling_probability=event.sampling_probability)
    noise = _noise(event)
    size, people = event.truncated_batch_size, event.dataset_size
    if not size or event.sampling_probability == 0:
        mechanisms.Gaussian(noise)  # refuses what is no noise
        return mechanisms.Composed(())
    if size > people:
        return mechanisms.gaussian_step(noise, 1.0, event.sampling_probability)
    return mechanisms.TruncatedGaussian(noise, 1.0, event.sampling_probability, size, people)


def _tree(event: "dp_event.SingleEpochTreeAggregationDpEvent") -> mechanisms.Mechanism:
    """A null record moves the nodes above one leaf, of the tallest tree: as many as its steps have binary digits."""
    counts = event.step_counts if isinstance(event.step_counts, list | tuple) else [event.step_counts]
    if not counts:
        return mechanisms.Composed(())
    _check.each(_check.whole, 1, step_counts=counts)
    return mechanisms.Gaussian(_noise(event), sqrt(max(int(count).bit_length() for count in counts)) * _UP)


def _sampled(event: "dp_event.PoissonSampledDpEvent") -> mechanisms.Mechanism:
    """Rate 1 takes all people, rate 0 nobody; the inner event is read first, so it may be refused at any rate."""
    inner, rate = from_event(event.event), event.sampling_probability
    if not 0 <= rate <= 1:
        raise ArgumentError(f"sampling_probability={rate!r} of PoissonSampledDpEvent must be in [0, 1]")
    if rate == 1:
        return inner
    if rate == 0 or inner == mechanisms.Composed(()):
        return mechanisms.Composed(())
    if isinstance(inner, mechanisms.Gaussian):
        return mechanisms.SampledGaussian(inner.sigma, inner.sensitivity, rate)
    if isinstance(inner, mechanisms.Laplace | mechanisms.Pure):
        epsilon = inner.epsilon if isinstance(inner, mechanisms.Pure) else inner.sensitivity / inner.scale
        if epsilon > _LARGEST_EXPONENT:
            return mechanisms.Pure(epsilon * _UP)  # without the gain of sampling
        # Balle, Barthe & Gaboardi (2018), Theorem 8
        return mechanisms.Pure(log1p(rate * expm1(epsilon * _UP)) * (1 + 1e-14))
    known = "PoissonSampledDpEvent of GaussianDpEvent, LaplaceDpEvent, DiscreteLaplaceDpEvent or NoOpDpEvent"
    name = f"PoissonSampledDpEvent of {type(event.event).__name__}"
    raise Unsupported(f"{name} has no mechanism in Almoner; supported is {known}")


def _noise(event: Any) -> float:
    if event.noise_multiplier == 0:
        raise Unsupported(f"{type(event).__name__} with noise_multiplier=0 is not private; it has no finite cost")
    return float(event.noise_multiplier)


def _ratio(noise: float, sensitivity: float) -> float:
    """The noise divided by the sensitivity, rounded down."""
    ratio = noise / sensitivity
    return nextafter(ratio, 0.0) if Fraction(ratio) * Fraction(sensitivity) > Fraction(noise) else ratio


def _events() -> ModuleType:
    with _extras.need("dp_accounting", extra="interop"):
        from dp_accounting import dp_event
    events: ModuleType = dp_event
    return events
