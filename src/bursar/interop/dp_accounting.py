"""Convert mechanisms to and from the events of Google's dp_accounting (extra ``interop``).

An event does not say which data sets are neighbours. Bursar reads every event under its own relation, add or remove
one person with all of that person's records; an event that only has a meaning under another relation is refused.

    NoOp              Composed(())                    Composed        Composed
    Gaussian          Gaussian                        SelfComposed    Repeated
    Laplace           Laplace                         ZCDp, xi = 0    Zcdp
    PoissonSampled of Gaussian    SampledGaussian

Classes are compared exactly: a subclass may mean something else, so it is refused like every unknown event.
"""

from collections.abc import Callable
from fractions import Fraction
from math import nextafter
from types import ModuleType
from typing import TYPE_CHECKING, Any

from bursar import _extras, mechanisms
from bursar.errors import ArgumentError, Unsupported

if TYPE_CHECKING:
    from dp_accounting import dp_event
    from dp_accounting.pld.privacy_loss_distribution import PrivacyLossDistribution

__all__ = ["from_event", "from_pld", "to_event"]

_SUPPORTED = (
    "NoOpDpEvent, GaussianDpEvent, LaplaceDpEvent, ZCDpEvent (xi=0), PoissonSampledDpEvent of a GaussianDpEvent, "
    "SelfComposedDpEvent and ComposedDpEvent"
)


def from_event(event: object) -> mechanisms.Mechanism:
    """The mechanism that an event describes; noise is in units of the sensitivity, which is 1.

    Raises:
        Unsupported: the event, or one inside it, has no mechanism here; the message names its class.
        ArgumentError: a parameter of the event breaks a rule (a negative noise multiplier, a rate above 1).

    Guarantee: what the event says was run, was run by the mechanism: no cost is lost.
    Source: the docstrings of dp_accounting.dp_event, version 0.6; theory 2.1, 2.2, 2.6.
    """
    read = _readers().get(type(event))
    if read is None:
        raise Unsupported(f"{type(event).__name__} has no mechanism in Bursar; supported are {_SUPPORTED}")
    return read(event)


def to_event(mechanism: mechanisms.Mechanism) -> "dp_event.DpEvent":
    """The event that describes a mechanism; noise multipliers are rounded down.

    Raises:
        Unsupported: the mechanism, or one inside it, has no event; the message names its class.

    Guarantee: the event costs at least what the mechanism costs.
    Source: the docstrings of dp_accounting.dp_event, version 0.6.
    """
    events = _events()
    match mechanism:
        case mechanisms.Gaussian(sigma, sensitivity):
            return events.GaussianDpEvent(_ratio(sigma, sensitivity))
        case mechanisms.SampledGaussian(sigma, sensitivity, rate):
            return events.PoissonSampledDpEvent(rate, events.GaussianDpEvent(_ratio(sigma, sensitivity)))
        case mechanisms.Laplace(scale, sensitivity):
            return events.LaplaceDpEvent(_ratio(scale, sensitivity))
        case mechanisms.Zcdp(rho):
            return events.ZCDpEvent(rho)
        case mechanisms.Repeated(inner, count):
            return events.SelfComposedDpEvent(to_event(inner), count)
        case mechanisms.Composed(()):
            return events.NoOpDpEvent()
        case mechanisms.Composed(parts):
            return events.ComposedDpEvent([to_event(part) for part in parts])
    raise Unsupported(
        f"{type(mechanism).__name__} has no event in dp_accounting; supported are Gaussian, SampledGaussian, Laplace, "
        "Zcdp, Repeated and Composed"
    )


def from_pld(pld: "PrivacyLossDistribution") -> mechanisms.DominatingPair:
    """The mechanism that a pessimistic privacy loss distribution of dp_accounting bounds, composed or not.

    Masses below zero, which its Fourier transforms leave, count as zero.

    Raises:
        Unsupported: the distribution is an optimistic estimate.
        ArgumentError: it has more than 100,000 losses: give it a larger value_discretization_interval.

    Guarantee: the pair dominates what the distribution bounds, in both directions, as far as that is pessimistic.
    Source: Doroshenko et al. (2022), https://arxiv.org/abs/2207.04380; theory 2.10.
    """
    with _extras.need("dp_accounting", extra="interop"):
        from dp_accounting.pld.privacy_loss_distribution import PrivacyLossDistribution
    if not isinstance(pld, PrivacyLossDistribution):
        raise ArgumentError(f"pld must be a PrivacyLossDistribution, not {type(pld).__name__}")
    orders = []
    for pmf in (pld._pmf_remove, pld._pmf_add):
        if not pmf._pessimistic_estimate:
            raise Unsupported("an optimistic estimate is no bound: pessimistic_estimate must be True")
        dense = pmf.to_dense_pmf()
        masses = [max(float(mass), 0.0) for mass in dense._probs]
        losses = [(dense._lower_loss + place) * dense._discretization for place in range(len(masses))]
        orders.append((losses, masses, max(float(dense._infinity_mass), 0.0)))
    (losses, masses, infinity), (losses_add, masses_add, infinity_add) = orders
    return mechanisms.DominatingPair.from_losses(
        losses, masses, infinity=infinity, losses_add=losses_add, masses_add=masses_add, infinity_add=infinity_add
    )


def _readers() -> dict[type, Callable[[Any], mechanisms.Mechanism]]:
    events = _events()
    return {
        events.NoOpDpEvent: lambda event: mechanisms.Composed(()),
        events.GaussianDpEvent: lambda event: mechanisms.Gaussian(_noise(event)),
        events.LaplaceDpEvent: lambda event: mechanisms.Laplace(_noise(event)),
        events.ZCDpEvent: _zcdp,
        events.PoissonSampledDpEvent: _sampled,
        events.SelfComposedDpEvent: lambda event: mechanisms.Repeated(from_event(event.event), event.count),
        events.ComposedDpEvent: lambda event: mechanisms.Composed(tuple(map(from_event, event.events))),
    }


def _zcdp(event: "dp_event.ZCDpEvent") -> mechanisms.Mechanism:
    if event.xi != 0:
        raise Unsupported(f"ZCDpEvent with xi={event.xi!r} has no mechanism in Bursar; supported is xi=0")
    return mechanisms.Zcdp(event.rho)


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
    raise Unsupported(
        f"PoissonSampledDpEvent of {type(event.event).__name__} has no mechanism in Bursar; supported is "
        "PoissonSampledDpEvent of GaussianDpEvent or NoOpDpEvent"
    )


def _noise(event: "dp_event.GaussianDpEvent | dp_event.LaplaceDpEvent") -> float:
    if event.noise_multiplier == 0:
        raise Unsupported(f"{type(event).__name__} with noise_multiplier=0 is not private; it has no finite cost")
    return float(event.noise_multiplier)


def _ratio(noise: float, sensitivity: float) -> float:
    """The noise divided by the sensitivity, rounded down."""
    ratio = noise / sensitivity
    too_large = Fraction(ratio) * Fraction(sensitivity) > Fraction(noise)
    return nextafter(ratio, 0.0) if too_large else ratio


def _events() -> ModuleType:
    with _extras.need("dp_accounting", extra="interop"):
        from dp_accounting import dp_event
    events: ModuleType = dp_event
    return events
