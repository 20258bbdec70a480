"""Events of dp_accounting as mechanisms, and mechanisms as events (extra ``interop``).

An event says what was run, not between which data sets the promise is. Here it is always "add or remove one person";
events that are about replacing a record, and fixed-size or shuffled batches, are refused by name.

>>> import dp_accounting
>>> from_event(dp_accounting.SelfComposedDpEvent(dp_accounting.GaussianDpEvent(170.0), 104))
Repeated(mechanism=Gaussian(sigma=170.0, sensitivity=1.0), count=104)
"""

from bursar import mechanisms
from bursar.curves import zcdp
from bursar.errors import MissingExtra, Unsupported

try:
    from dp_accounting import dp_event as events
except ImportError as error:  # pragma: no cover
    raise MissingExtra("bursar.interop.dp_accounting needs dp-accounting: pip install 'bursar[interop]'") from error

__all__ = ["from_event", "to_event"]

_KNOWN = (
    "NoOpDpEvent, GaussianDpEvent, LaplaceDpEvent, DiscreteLaplaceDpEvent, ZCDpEvent with xi=0, "
    "PoissonSampledDpEvent of a GaussianDpEvent, SelfComposedDpEvent and ComposedDpEvent"
)


def from_event(event: events.DpEvent) -> mechanisms.Mechanism:
    """The mechanism that an event describes. Noise multipliers become sigma at sensitivity 1.

    Args:
        event: a tree of events.

    Raises:
        Unsupported: some event in the tree is not known here, or does not bound anything; it is named.

    Guarantee: the mechanism's costs in this library hold for what the event describes, for adding or removing a person.
    Source: the docstrings of dp_accounting's events.
    """
    match event:
        case events.NoOpDpEvent():
            return mechanisms.Composed(())
        case events.GaussianDpEvent() if event.noise_multiplier > 0:
            return mechanisms.Gaussian(float(event.noise_multiplier))
        case events.LaplaceDpEvent() if event.noise_multiplier > 0:
            return mechanisms.Laplace(float(event.noise_multiplier))
        case events.DiscreteLaplaceDpEvent() if event.noise_parameter > 0 and event.sensitivity > 0:
            return mechanisms.Laplace(1 / float(event.noise_parameter), float(event.sensitivity))
        case events.ZCDpEvent() if event.xi == 0:
            return mechanisms.Zcdp(float(event.rho))
        case events.PoissonSampledDpEvent():
            return _sampled(event)
        case events.SelfComposedDpEvent():
            return mechanisms.Repeated(from_event(event.event), int(event.count))
        case events.ComposedDpEvent():
            return mechanisms.Composed(tuple(from_event(part) for part in event.events))
    raise Unsupported(f"{event!r} is not supported; known are {_KNOWN}, all with noise")


def _sampled(event: events.PoissonSampledDpEvent) -> mechanisms.Mechanism:
    inner, rate = event.event, float(event.sampling_probability)
    if isinstance(inner, events.NoOpDpEvent) or rate == 0:
        return mechanisms.Composed(())
    if isinstance(inner, events.GaussianDpEvent) and inner.noise_multiplier > 0:
        return mechanisms.SampledGaussian(float(inner.noise_multiplier), 1.0, rate)
    raise Unsupported(f"PoissonSampledDpEvent of {inner!r} is not supported; of a GaussianDpEvent with noise it is")


def to_event(mechanism: mechanisms.Mechanism) -> events.DpEvent:
    """The event that describes a mechanism; a zCDP event where dp_accounting has none of its own.

    Raises:
        Unsupported: dp_accounting has no event for it; it is named.

    Guarantee: the event describes the mechanism, or something that costs no less.
    Source: the docstrings of dp_accounting's events.
    """
    match mechanism:
        case mechanisms.Gaussian(sigma, sensitivity):
            return events.GaussianDpEvent(sigma / sensitivity)
        case mechanisms.Laplace(scale, sensitivity):
            return events.LaplaceDpEvent(scale / sensitivity)
        case mechanisms.SampledGaussian(sigma, sensitivity, sample_rate):
            return events.PoissonSampledDpEvent(sample_rate, events.GaussianDpEvent(sigma / sensitivity))
        case mechanisms.Zcdp(rho):
            return events.ZCDpEvent(rho)
        case (
            mechanisms.Pure()
            | mechanisms.RandomizedResponse()
            | mechanisms.Exponential()
            | mechanisms.DiscreteGaussian()
        ):
            return events.ZCDpEvent(zcdp.of(mechanism).rho)
        case mechanisms.Repeated(part, count):
            return events.SelfComposedDpEvent(to_event(part), count) if count else events.NoOpDpEvent()
        case mechanisms.Composed(()):
            return events.NoOpDpEvent()
        case mechanisms.Composed(parts):
            return events.ComposedDpEvent([to_event(part) for part in parts])
    raise Unsupported(f"dp_accounting has no event for {type(mechanism).__name__}")
