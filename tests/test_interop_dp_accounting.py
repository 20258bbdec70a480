"""dp_accounting's events: every supported one costs here what it costs there, all others are refused by name."""

import numpy as np
import pytest
from dp_accounting import dp_event as dp
from dp_accounting import rdp

from bursar import filters
from bursar import mechanisms as m
from bursar.curves import renyi
from bursar.errors import ArgumentError, Unsupported
from bursar.interop.dp_accounting import from_event, to_event

GAUSS = dp.GaussianDpEvent(3.0)
TREE = dp.ComposedDpEvent(
    [
        dp.SelfComposedDpEvent(dp.PoissonSampledDpEvent(0.01, dp.GaussianDpEvent(1.1)), 50),
        dp.NoOpDpEvent(),
        GAUSS,
        dp.ComposedDpEvent([dp.LaplaceDpEvent(4.0), dp.ZCDpEvent(0.01)]),
    ]
)


@pytest.mark.parametrize("event", [GAUSS, dp.LaplaceDpEvent(4.0), dp.ZCDpEvent(0.01), dp.NoOpDpEvent(), TREE], ids=repr)
def test_totals_equal_dp_accountings(event):
    """The Rényi totals of a tree, at whole orders, are those of dp_accounting's own accountant."""
    orders = [2.0, 3.0, 8.0, 32.0, 64.0]
    accountant = rdp.RdpAccountant(orders)
    accountant.compose(event)
    assert renyi.values(from_event(event), orders) == pytest.approx(np.array(accountant._rdp), rel=1e-9, abs=1e-15)


@pytest.mark.parametrize(
    "mechanism",
    [
        m.Gaussian(3.0),
        m.Laplace(4.0),
        m.SampledGaussian(2.0, 1.0, 0.1),
        m.Zcdp(0.3),
        m.Repeated(m.Gaussian(3.0), 7),
        m.Composed((m.Gaussian(3.0), m.Repeated(m.Zcdp(0.1), 2))),
        m.Composed(()),
    ],
    ids=repr,
)
def test_round_trip(mechanism):
    """A mechanism described as an event and read again is the same mechanism."""
    assert from_event(to_event(mechanism)) == mechanism


def test_noise_multipliers_are_relative_to_the_sensitivity():
    """sigma and clip become one number there, and come back at sensitivity 1."""
    assert from_event(to_event(m.Gaussian(6.0, 2.0))) == m.Gaussian(3.0, 1.0)
    assert from_event(dp.DiscreteLaplaceDpEvent(0.5, 2)) == m.Laplace(2.0, 2.0)


@pytest.mark.parametrize(
    ("event", "name"),
    [
        (dp.NonPrivateDpEvent(), "NonPrivateDpEvent"),
        (dp.UnsupportedDpEvent(), "UnsupportedDpEvent"),
        (dp.GaussianDpEvent(0.0), "GaussianDpEvent"),
        (dp.GaussianDpEvent(float("nan")), "GaussianDpEvent"),
        (dp.LaplaceDpEvent(-1.0), "LaplaceDpEvent"),
        (dp.ZCDpEvent(0.1, 0.2), "ZCDpEvent"),
        (dp.RandomizedResponseDpEvent(0.5, 2), "RandomizedResponseDpEvent"),
        (dp.SampledWithReplacementDpEvent(100, 10, GAUSS), "SampledWithReplacementDpEvent"),
        (dp.SampledWithoutReplacementDpEvent(100, 10, GAUSS), "SampledWithoutReplacementDpEvent"),
        (dp.PoissonSampledDpEvent(0.1, dp.LaplaceDpEvent(1.0)), "LaplaceDpEvent"),
        (dp.ComposedDpEvent([GAUSS, dp.NonPrivateDpEvent()]), "NonPrivateDpEvent"),
        ("Gaussian", "Gaussian"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_unknown_events_are_refused_by_name(event, name):
    """What has no proven cost here is named, wherever it hides in a tree; NaN noise is no noise."""
    with pytest.raises(Unsupported, match=name):
        from_event(event)


def test_impossible_events_are_refused():
    """Rates above one and negative counts do not become mechanisms."""
    for event in (dp.PoissonSampledDpEvent(1.5, GAUSS), dp.SelfComposedDpEvent(GAUSS, -1)):
        with pytest.raises(ArgumentError):
            from_event(event)
    with pytest.raises(Unsupported, match="Approximate"):
        to_event(m.Approximate(0.1, 1e-9))


@pytest.mark.parametrize("mechanism", [m.Pure(0.1), m.Exponential(0.5), m.DiscreteGaussian(3.0)], ids=repr)
def test_what_has_no_event_of_its_own_costs_no_less_as_an_event(mechanism):
    """Pure, bounded-range and discrete Gaussian mechanisms become zCDP events that bound them."""
    orders = [1.5, 2.0, 16.0]
    assert np.all(renyi.values(from_event(to_event(mechanism)), orders) >= renyi.values(mechanism, orders))


def test_filters_charge_events():
    """A filter guards a dp_accounting script: the event is charged before it is run."""
    account = filters.Renyi(epsilon=8.0, delta=1e-5)
    account.charge(from_event(TREE))
    assert account.count == 53
