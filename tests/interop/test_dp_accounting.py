"""Events of dp_accounting become mechanisms and back, at the same price, or are refused by name."""

import sys
from math import nan

import numpy as np
import pytest

from bursar import mechanisms
from bursar.curves import renyi, tradeoff
from bursar.errors import ArgumentError, MissingExtra, Unsupported
from bursar.interop.dp_accounting import from_event, from_pld, to_event

dp_event = pytest.importorskip("dp_accounting.dp_event")

ORDERS = [2, 3, 4, 8, 16, 32, 64]
GAUSSIAN = dp_event.GaussianDpEvent(2.0)
SAMPLED = dp_event.PoissonSampledDpEvent(0.01, dp_event.GaussianDpEvent(1.1))
EVENTS = [
    dp_event.NoOpDpEvent(),
    GAUSSIAN,
    dp_event.LaplaceDpEvent(3.0),
    dp_event.ZCDpEvent(0.05),
    SAMPLED,
    dp_event.SelfComposedDpEvent(SAMPLED, 1000),
    dp_event.ComposedDpEvent([GAUSSIAN, dp_event.SelfComposedDpEvent(dp_event.LaplaceDpEvent(5.0), 7), SAMPLED]),
]


@pytest.mark.parametrize("event", EVENTS, ids=str)
def test_an_event_comes_back_as_it_was(event):
    """to_event undoes from_event, at any depth."""
    assert to_event(from_event(event)) == event


@pytest.mark.parametrize("event", EVENTS, ids=str)
def test_prices_agree_with_dp_accounting(event):
    """At whole orders the curve is the one of the independent accountant, to nine digits, and not below it."""
    rdp = pytest.importorskip("dp_accounting.rdp")
    theirs = rdp.RdpAccountant(ORDERS).compose(event)._rdp
    ours = renyi.values(from_event(event), ORDERS)
    np.testing.assert_allclose(ours, theirs, rtol=1e-9, atol=1e-15)
    assert np.all(ours >= np.asarray(theirs) * (1 - 1e-12))


def test_every_way_to_sample_nothing_or_everybody():
    """Rate 1 is the mechanism itself, rate 0 and a sampled nothing are nothing."""
    assert from_event(dp_event.PoissonSampledDpEvent(1.0, GAUSSIAN)) == mechanisms.Gaussian(2.0)
    nothing = mechanisms.Composed(())
    assert from_event(dp_event.PoissonSampledDpEvent(0.0, GAUSSIAN)) == nothing
    assert from_event(dp_event.PoissonSampledDpEvent(0.5, dp_event.NoOpDpEvent())) == nothing


class Subclass(dp_event.GaussianDpEvent):
    """It could mean anything."""


REFUSED = [
    (dp_event.NonPrivateDpEvent(), "NonPrivateDpEvent"),
    (dp_event.UnsupportedDpEvent(), "UnsupportedDpEvent"),
    (dp_event.RandomizedResponseDpEvent(0.5, 2), "RandomizedResponseDpEvent"),
    (dp_event.DiscreteLaplaceDpEvent(1.0, 1), "DiscreteLaplaceDpEvent"),
    (dp_event.SampledWithReplacementDpEvent(100, 10, GAUSSIAN), "SampledWithReplacementDpEvent"),
    (dp_event.SampledWithoutReplacementDpEvent(100, 10, GAUSSIAN), "SampledWithoutReplacementDpEvent"),
    (dp_event.SingleEpochTreeAggregationDpEvent(1.0, 8), "SingleEpochTreeAggregationDpEvent"),
    (dp_event.RepeatAndSelectDpEvent(GAUSSIAN, 2.0, 1.0), "RepeatAndSelectDpEvent"),
    (dp_event.MixtureOfGaussiansDpEvent(1.0, [0.0, 1.0], [0.5, 0.5]), "MixtureOfGaussiansDpEvent"),
    (dp_event.TruncatedSubsampledGaussianDpEvent(100, 0.1, 20, 1.0), "TruncatedSubsampledGaussianDpEvent"),
    (dp_event.ZCDpEvent(0.1, 0.2), "ZCDpEvent with xi=0.2"),
    (dp_event.GaussianDpEvent(0.0), "GaussianDpEvent with noise_multiplier=0"),
    (dp_event.LaplaceDpEvent(0.0), "LaplaceDpEvent with noise_multiplier=0"),
    (dp_event.PoissonSampledDpEvent(0.1, dp_event.LaplaceDpEvent(1.0)), "PoissonSampledDpEvent of LaplaceDpEvent"),
    (dp_event.PoissonSampledDpEvent(0.0, dp_event.NonPrivateDpEvent()), "NonPrivateDpEvent"),
    (Subclass(1.0), "Subclass"),
    ("GaussianDpEvent", "str"),
]


@pytest.mark.parametrize(("event", "name"), REFUSED, ids=[name for _, name in REFUSED])
def test_refusals_name_the_event(event, name):
    """What has no exact counterpart is refused by name, alone and deep inside other events."""
    deep = dp_event.ComposedDpEvent([GAUSSIAN, dp_event.SelfComposedDpEvent(event, 3)])
    for each in (event, deep):
        with pytest.raises(Unsupported, match=name):
            from_event(each)


@pytest.mark.parametrize(
    "event",
    [
        dp_event.GaussianDpEvent(nan),
        dp_event.LaplaceDpEvent(-1.0),
        dp_event.ZCDpEvent(nan),
        dp_event.PoissonSampledDpEvent(1.5, GAUSSIAN),
        dp_event.PoissonSampledDpEvent(nan, GAUSSIAN),
        dp_event.SelfComposedDpEvent(GAUSSIAN, -1),
    ],
    ids=str,
)
def test_broken_parameters_are_refused(event):
    """NaN, negative noise, rates above one and negative counts never become a mechanism."""
    with pytest.raises(ArgumentError):
        from_event(event)


@pytest.mark.parametrize(
    "mechanism", [mechanisms.Pure(0.1), mechanisms.Approximate(0.1, 1e-9), mechanisms.RandomizedResponse(1.0)]
)
def test_mechanisms_without_an_event_are_refused_by_name(mechanism):
    """to_event invents no event, at any depth."""
    for each in (mechanism, mechanisms.Composed((mechanisms.Repeated(mechanism, 2),))):
        with pytest.raises(Unsupported, match=type(mechanism).__name__):
            to_event(each)


def test_noise_multipliers_are_rounded_down():
    """The exported noise, times the sensitivity, is never above the noise that was run."""
    from fractions import Fraction

    for sensitivity in np.random.default_rng(5).uniform(0.1, 10, 200):
        multiplier = to_event(mechanisms.Gaussian(1.7, float(sensitivity))).noise_multiplier
        assert Fraction(multiplier) * Fraction(float(sensitivity)) <= Fraction(1.7)


def test_a_missing_library_names_the_extra(monkeypatch):
    """Without dp_accounting both functions name the extra that brings it."""
    monkeypatch.setitem(sys.modules, "dp_accounting", None)
    for call in (lambda: from_event(GAUSSIAN), lambda: to_event(mechanisms.Gaussian(1.0))):
        with pytest.raises(MissingExtra, match="interop"):
            call()


def test_their_privacy_loss_distributions_become_dominating_pairs():
    """A sampled Gaussian's and a composed Laplace's: deltas as theirs and never below; others are refused by name."""
    distributions = pytest.importorskip("dp_accounting.pld.privacy_loss_distribution")
    sampled = distributions.from_gaussian_mechanism(1.0, sampling_prob=0.1, value_discretization_interval=1e-2)
    laplace = distributions.from_laplace_mechanism(4.0, value_discretization_interval=1e-2).self_compose(8)
    for pld in (sampled, laplace):
        curve = tradeoff.of(from_pld(pld), points=600)
        for epsilon in (0.1, 0.5, 1.5):
            theirs = pld.get_delta_for_epsilon(epsilon)
            assert theirs * (1 - 1e-9) - 1e-12 <= float(curve.delta(epsilon)) <= theirs * 1.005 + 1e-9
    optimistic = distributions.from_laplace_mechanism(
        4.0, pessimistic_estimate=False, value_discretization_interval=1e-2
    )
    with pytest.raises(Unsupported, match="optimistic"):
        from_pld(optimistic)
    with pytest.raises(ArgumentError, match="pld must be"):
        from_pld(1.0)
