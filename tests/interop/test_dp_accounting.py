"""Events of dp_accounting become mechanisms and back, at the same price, or are refused by name."""

import sys
from dataclasses import dataclass
from math import expm1, inf, log1p, nan

import numpy as np
import pytest

from almoner import mechanisms
from almoner.curves import renyi, tradeoff
from almoner.curves.losses import deltas, epsilons
from almoner.errors import ArgumentError, MissingExtra, Unsupported
from almoner.interop.dp_accounting import NOTIONS, accountant, from_event, from_pld, to_event

dp_event = pytest.importorskip("dp_accounting.dp_event")
UnsupportedEventError = pytest.importorskip("dp_accounting").UnsupportedEventError

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
    (dp_event.SampledWithReplacementDpEvent(100, 10, GAUSSIAN), "SampledWithReplacementDpEvent"),
    (dp_event.SampledWithoutReplacementDpEvent(100, 10, GAUSSIAN), "SampledWithoutReplacementDpEvent"),
    (dp_event.SingleEpochTreeAggregationDpEvent(1.0, 8), "SingleEpochTreeAggregationDpEvent"),
    (dp_event.TruncatedSubsampledGaussianDpEvent(100, 0.1, 20, 0.0), "TruncatedSubsampledGaussianDpEvent"),
    (dp_event.GaussianDpEvent(0.0), "GaussianDpEvent with noise_multiplier=0"),
    (dp_event.LaplaceDpEvent(0.0), "LaplaceDpEvent with noise_multiplier=0"),
    (dp_event.PoissonSampledDpEvent(0.1, dp_event.ZCDpEvent(1.0)), "PoissonSampledDpEvent of ZCDpEvent"),
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
        dp_event.RepeatAndSelectDpEvent(GAUSSIAN, 0.5, 1.0),
        dp_event.RepeatAndSelectDpEvent(GAUSSIAN, 2.0, nan),
        dp_event.MixtureOfGaussiansDpEvent(1.0, [0.0, 1.0], [0.5, 0.4]),
        dp_event.MixtureOfGaussiansDpEvent(1.0, [0.0, nan], [0.5, 0.5]),
        dp_event.MixtureOfGaussiansDpEvent(nan, [0.0, 1.0], [0.5, 0.5]),
        dp_event.TruncatedSubsampledGaussianDpEvent(100, 1.5, 20, 1.0),
        dp_event.TruncatedSubsampledGaussianDpEvent(100, nan, 20, 1.0),
    ],
    ids=str,
)
def test_broken_parameters_are_refused(event):
    """NaN, negative noise, rates above one and negative counts never become a mechanism."""
    with pytest.raises(ArgumentError):
        from_event(event)


@pytest.mark.parametrize(
    "mechanism",
    [
        mechanisms.Renyi((2.0,), (0.1,)),
        mechanisms.DominatingPair((0.75, 0.25), (0.25, 0.75)),
        mechanisms.BestOf(mechanisms.Gaussian(9.0), 3.0, -0.5),
    ],
)
def test_mechanisms_without_an_event_are_refused_by_name(mechanism):
    """to_event invents no event, at any depth."""
    for each in (mechanism, mechanisms.Composed((mechanisms.Repeated(mechanism, 2),))):
        with pytest.raises(Unsupported, match=type(mechanism).__name__):
            to_event(each)


WRITTEN = [
    mechanisms.Pure(0.7),
    mechanisms.RandomizedResponse(0.7),
    mechanisms.Approximate(0.7, 0.0),
    mechanisms.Exponential(0.7),
    mechanisms.DiscreteGaussian(2.0),
    mechanisms.Repeated(mechanisms.Composed((mechanisms.Exponential(0.2), mechanisms.Zcdp(0.01))), 3),
]


@pytest.mark.parametrize("mechanism", WRITTEN, ids=repr)
def test_an_event_that_is_written_costs_what_the_mechanism_does(mechanism):
    """Read back it costs no less at any order, and at most a millionth more, but for exponential ones."""
    own, back = (np.asarray(renyi.values(each, ORDERS)) for each in (mechanism, from_event(to_event(mechanism))))
    assert np.all(back >= own * (1 - 1e-15))
    if "Exponential" not in repr(mechanism):
        np.testing.assert_allclose(back, own, rtol=1e-6)


def test_a_pure_mechanism_is_written_as_its_worst_case():
    """Their own distribution of the event has the delta of a randomised response; that of Laplace noise is below it."""
    distributions = pytest.importorskip("dp_accounting.pld")
    for epsilon, at in ((0.5, 0.2), (1.5, 0.3), (1.5, 1.4)):
        exact = (np.exp(epsilon) - np.exp(at)) / (1 + np.exp(epsilon))
        found, wrong = (
            distributions.PLDAccountant().compose(event).get_delta(at)
            for event in (to_event(mechanisms.Pure(epsilon)), dp_event.LaplaceDpEvent(1 / epsilon))
        )
        assert wrong < exact * 0.95
        assert exact * (1 - 1e-9) <= found <= exact * 1.001


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


CALIBRATED = [("tightest", 1.0), ("gaussian", 1.0), ("zcdp", 1.12), ("renyi", 1.12), ("losses", 1.01)]


@pytest.mark.parametrize(("notion", "looser"), CALIBRATED)
def test_their_calibration_drives_our_accountants(notion, looser):
    """Noise for 100 Gaussian steps at (2, 1e-6): that of the analytic Gaussian, or a little more by looser notions."""
    dp = pytest.importorskip("dp_accounting")
    found = dp.calibrate_dp_mechanism(
        lambda: accountant(notion),
        lambda noise: dp_event.SelfComposedDpEvent(dp_event.GaussianDpEvent(noise), 100),
        2.0,
        1e-6,
        dp.LowerEndpointAndGuess(1.0, 10.0),
        tol=1e-3,
    )
    least = 10 * dp.get_sigma_gaussian(2.0, 1e-6)
    assert least * (1 - 1e-3) <= found <= least * looser + 2e-3


def test_what_is_composed_is_what_the_run_costs():
    """In pieces or at once; a non-private event exposes all; an event without a price is refused and not counted."""
    whole = accountant("losses").compose(dp_event.SelfComposedDpEvent(SAMPLED, 200)).get_epsilon(1e-5)
    pieces = accountant("losses").compose(SAMPLED, 150).compose(SAMPLED, 50)
    assert pieces.get_epsilon(1e-5) == pytest.approx(whole, rel=1e-3)
    assert not pieces.supports(dp_event.UnsupportedDpEvent())
    with pytest.raises(pytest.importorskip("dp_accounting").UnsupportedEventError, match="UnsupportedDpEvent"):
        pieces.compose(dp_event.UnsupportedDpEvent())
    assert pieces.supports(dp_event.NonPrivateDpEvent())
    pieces.compose(dp_event.ComposedDpEvent([SAMPLED, dp_event.NonPrivateDpEvent()]))
    assert pieces.get_epsilon(0.5) == np.inf
    assert accountant().get_epsilon(1e-6) == 0
    assert not accountant("gaussian").supports(SAMPLED)
    with pytest.raises(ArgumentError, match="notion"):
        accountant("mine")


def test_our_accountants_are_not_below_theirs():
    """Of privacy loss distributions: ours is an upper bound, and so is theirs; they agree to a hundredth."""
    pld = pytest.importorskip("dp_accounting.pld")
    run = dp_event.ComposedDpEvent([dp_event.SelfComposedDpEvent(SAMPLED, 300), dp_event.LaplaceDpEvent(4.0)])
    theirs = pld.PLDAccountant().compose(run).get_epsilon(1e-5)
    assert accountant("losses").compose(run).get_epsilon(1e-5) == pytest.approx(theirs, rel=1e-2)


def test_more_events():
    """Discrete Laplace by its ratio of neighbours, sampled pure rounds by the exact amplification, curves with xi."""
    assert from_event(dp_event.DiscreteLaplaceDpEvent(0.25, 2)).epsilon == pytest.approx(0.5, rel=1e-12)
    sampled = from_event(dp_event.PoissonSampledDpEvent(0.1, dp_event.LaplaceDpEvent(1.0)))
    exact = np.log(1 + 0.1 * (np.e - 1))
    assert exact <= sampled.epsilon == pytest.approx(exact, rel=1e-12)
    curve = from_event(dp_event.ZCDpEvent(0.1, 0.05))
    assert all(value >= 0.05 + 0.1 * order for order, value in zip(curve.orders, curve.values, strict=True))


def test_trees_are_for_null_records():
    """A leaf of a tree of seven steps is below three nodes; without a person all leaves move: refused there."""
    tree = dp_event.SingleEpochTreeAggregationDpEvent(2.0, [7, 3])
    with_nulls = accountant("gaussian", null_records=True)
    assert not accountant("gaussian").supports(tree)
    with_nulls.compose(tree)
    once = accountant("gaussian").compose(dp_event.GaussianDpEvent(2.0 / np.sqrt(3)))
    assert with_nulls.get_epsilon(1e-5) == pytest.approx(once.get_epsilon(1e-5), rel=1e-9)
    rdp = pytest.importorskip("dp_accounting.rdp")
    from dp_accounting import NeighboringRelation

    theirs = rdp.RdpAccountant([8.0], NeighboringRelation.REPLACE_SPECIAL).compose(tree)
    assert theirs.get_epsilon(1e-5) >= with_nulls.get_epsilon(1e-5)


def test_events_for_replaced_records_are_refused_by_name():
    """They have no meaning for adding or removing a person."""
    for event in (
        dp_event.RandomizedResponseDpEvent(0.5, 4),
        dp_event.SampledWithReplacementDpEvent(100, 5, GAUSSIAN),
        dp_event.SampledWithoutReplacementDpEvent(100, 5, GAUSSIAN),
    ):
        with pytest.raises(Unsupported, match="replaced records"):
            from_event(event)


def test_a_sample_of_a_mechanism_without_privacy_costs_what_the_mechanism_does():
    """exp(epsilon) is no float above 709: the gain of sampling is left out there."""
    event = dp_event.PoissonSampledDpEvent(0.5, dp_event.LaplaceDpEvent(1e-3))
    cost = from_event(event)
    assert isinstance(cost, mechanisms.Pure)
    assert 1000.0 <= cost.epsilon < 1000.001


@pytest.mark.slow
def test_repeating_and_selecting_costs_what_theirs_does():
    """At the same orders the same Rényi values, for logarithmic and geometric numbers; one run is one run."""
    rdp = pytest.importorskip("dp_accounting.rdp")
    orders = list(renyi.ORDERS)
    for mean, shape in ((5.0, 0.0), (10.0, 1.0)):
        event = dp_event.RepeatAndSelectDpEvent(SAMPLED, mean, shape)
        theirs = np.asarray(rdp.RdpAccountant(orders).compose(event)._rdp)
        ours = renyi.values(from_event(event), orders)
        np.testing.assert_allclose(ours, theirs, rtol=1e-6, atol=1e-9)
        assert to_event(from_event(event)) == event
    assert from_event(dp_event.RepeatAndSelectDpEvent(GAUSSIAN, 1.0, 0.0)) == mechanisms.Gaussian(2.0)
    poisson = from_event(dp_event.RepeatAndSelectDpEvent(GAUSSIAN, 0.5, np.inf))
    assert np.all(renyi.values(poisson, [2.0, 8.0]) >= 0)


def hockey_stick(first, second, epsilon):
    """Of two densities on a fine grid."""
    grid = np.linspace(-40, 40, 80_001)
    return float(np.maximum(first(grid) - np.exp(epsilon) * second(grid), 0).sum() * (grid[1] - grid[0]))


MIXTURES = [
    ([0.0, 1.0, 2.0], [0.2, 0.6, 0.2]),
    ([0.0, 0.5, 2.0], [0.7, 0.2, 0.1]),
    ([1.0, 2.0], [0.9, 0.1]),
    ([-1.0, 1.0], [0.5, 0.5]),
]


@pytest.mark.slow
@pytest.mark.parametrize(("sensitivities", "chances"), MIXTURES)
def test_mixtures_are_dominated(sensitivities, chances):
    """The true curve of a mixture of Gaussians, by a sum over a grid, is below that of its mechanism, both ways."""
    from scipy.stats import norm

    event = dp_event.MixtureOfGaussiansDpEvent(1.0, sensitivities, chances)
    mechanism = from_event(event)

    def mixed(x):
        return sum(chance * norm.pdf(x, at, 1.0) for at, chance in zip(sensitivities, chances, strict=True))

    for epsilon in (0.0, 0.1, 0.5, 1.0):
        (promised,) = deltas(np.ones((1, 1), np.int64), [mechanism], epsilon=epsilon)
        for one, other in ((mixed, lambda x: norm.pdf(x, 0, 1.0)), (lambda x: norm.pdf(x, 0, 1.0), mixed)):
            assert hockey_stick(one, other, epsilon) <= promised + 1e-9
    (found,) = epsilons(np.ones((1, 1), np.int64), [mechanism], delta=1e-6)
    if sensitivities == [0.0, 1.0, 2.0]:
        assert found == pytest.approx(8.733, abs=2e-3)


@pytest.mark.slow
def test_truncated_samples_move_by_two():
    """One of three people, batches of one: the exact law of the sum is below the mechanism's curve, and above half."""
    from scipy.stats import norm

    rate, noise = 0.4, 1.0
    event = dp_event.TruncatedSubsampledGaussianDpEvent(2, rate, 1, noise)
    mechanism = from_event(event)
    assert mechanism == mechanisms.TruncatedGaussian(noise, 1.0, rate, 1, 2)
    # the other two give -1, the person gives 1; the batch is one of those who were sampled, at random
    nobody, one, two = (1 - rate) ** 2, 2 * rate * (1 - rate), rate**2
    without = {0: nobody, -1: one + two}
    own = rate * (nobody + one / 2 + two / 3)
    within = {1: own, 0: (1 - rate) * nobody, -1: (1 - rate) * (one + two) + rate * (one / 2 + two * 2 / 3)}

    def density(law):
        return lambda x: sum(chance * norm.pdf(x, at, noise) for at, chance in law.items())

    for epsilon in (0.0, 0.2, 0.5, 1.0):
        (promised,) = deltas(np.ones((1, 1), np.int64), [mechanism], epsilon=epsilon)
        for first, second in ((within, without), (without, within)):
            assert hockey_stick(density(first), density(second), epsilon) <= promised + 1e-9
    whole = dp_event.TruncatedSubsampledGaussianDpEvent(10, rate, 11, noise)
    assert from_event(whole) == mechanisms.SampledGaussian(noise, 1.0, rate)


@pytest.mark.parametrize(("noise", "buckets", "true"), [(0.427, 4, 1.000264), (0.05, 20, 2.995732), (0.9, 2, 0.105361)])
def test_randomized_response_with_null_records(noise, buckets, true):
    """A uniform bucket for a null record: the larger log ratio, either way; one way alone would be too small."""
    with_nulls = accountant("basic", null_records=True)
    with_nulls.compose(dp_event.RandomizedResponseDpEvent(noise, buckets))
    found = with_nulls.get_epsilon(1e-9)
    ratios = (1 - noise + noise / buckets) * buckets, noise / buckets * buckets
    assert max(np.abs(np.log(ratios))) <= found == pytest.approx(true, abs=1e-6)
    assert buckets == 4 or found > np.log(ratios[0])
    silent = accountant("basic", null_records=True).compose(dp_event.RandomizedResponseDpEvent(0.0, 3))
    assert silent.get_epsilon(0.5) == np.inf


@pytest.mark.parametrize(("rate", "noise", "count"), [(0.1, 1.0, 20), (0.01, 0.7, 1000), (1.0, 2.0, 5)])
def test_replaced_records_as_their_accountant(rate, noise, count):
    """The same run under REPLACE_ONE, by their privacy loss distributions."""
    event = dp_event.SelfComposedDpEvent(dp_event.PoissonSampledDpEvent(rate, dp_event.GaussianDpEvent(noise)), count)
    ours = accountant(replace=True).compose(event)
    relation = pytest.importorskip("dp_accounting").NeighboringRelation.REPLACE_ONE
    theirs = pytest.importorskip("dp_accounting.pld").PLDAccountant(relation).compose(event).get_epsilon(1e-6)
    assert ours.neighboring_relation == relation
    assert ours.get_epsilon(1e-6) == pytest.approx(theirs, rel=1e-3)
    assert ours.get_epsilon(1e-6) > 1.2 * accountant().compose(event).get_epsilon(1e-6)
    with pytest.raises(ArgumentError, match="null_records and replace are two relations"):
        accountant(replace=True, null_records=True)


def test_replaced_records_need_a_theorem():
    """Events whose mechanism has no price for replaced records are refused."""
    ours = accountant(replace=True)
    assert ours.supports(dp_event.ZCDpEvent(0.1))
    assert not ours.supports(dp_event.TruncatedSubsampledGaussianDpEvent(100, 0.1, 12, 1.0))


def test_asking_for_a_price_does_not_work_it_out(monkeypatch):
    """supports() and compose() look at costs alone, and refuse as the epsilon does."""

    def worked_out(*arguments, **options):
        raise AssertionError

    for name in NOTIONS:
        monkeypatch.setitem(NOTIONS, name, worked_out)
    laplace, best = dp_event.LaplaceDpEvent(3.0), dp_event.RepeatAndSelectDpEvent(GAUSSIAN, 4.0, 1.0)
    expected = {
        GAUSSIAN: {"tightest", "losses", "gaussian", "zcdp", "renyi"},
        SAMPLED: {"tightest", "losses", "renyi"},
        laplace: {"tightest", "losses", "zcdp", "renyi", "basic"},
        best: {"tightest", "renyi"},
    }
    for event, notions in expected.items():
        assert {name for name in NOTIONS if accountant(name).supports(event)} == notions


class Unknown(dp_event.DpEvent):
    """An event of somebody else."""


@pytest.mark.parametrize("notion", NOTIONS)
def test_the_error_names_the_event_inside_that_is_at_fault(notion):
    """A run of many events is refused for one of them, which the error gives; nothing of the run is composed."""
    whole, unknown = accountant(notion), Unknown()
    run = dp_event.ComposedDpEvent(
        [dp_event.NoOpDpEvent(), dp_event.SelfComposedDpEvent(dp_event.ComposedDpEvent([unknown]), 10)]
    )
    assert whole._maybe_compose(run, 1, False).invalid_event is unknown
    assert not whole.supports(run)
    with pytest.raises(UnsupportedEventError, match="caused by subevent Unknown"):
        whole.compose(run)
    assert whole.get_epsilon(1e-12) == 0


@pytest.mark.parametrize("notion", NOTIONS)
def test_the_ends_of_delta_have_an_epsilon(notion):
    """Nothing costs 0 at every delta; at delta 1 everything costs 0, and at delta 0 what is pure has its epsilon."""
    empty = accountant(notion).compose(dp_event.NoOpDpEvent())
    assert [empty.get_epsilon(delta) for delta in (0, 1e-12, 1)] == [0, 0, 0]
    assert empty.supports(dp_event.SelfComposedDpEvent(dp_event.GaussianDpEvent(1.0), 0))
    if notion != "gaussian":
        laplace = accountant(notion).compose(dp_event.LaplaceDpEvent(2.0), 3)
        assert laplace.get_epsilon(0) == pytest.approx(1.5)
        assert laplace.get_epsilon(1) == 0
    if notion != "basic":
        noisy = accountant(notion).compose(dp_event.GaussianDpEvent(2.0))
        assert noisy.get_epsilon(0) == inf
    exposed = accountant(notion).compose(dp_event.NonPrivateDpEvent())
    assert [exposed.get_epsilon(delta) for delta in (0, 0.99, 1)] == [inf, inf, inf]


@pytest.mark.parametrize("count", [-3, 2.5, nan, np.float64(3)])
def test_a_count_that_is_none_is_refused_before_anything_is_composed(count):
    """Inside a run, too: the error names the event, and neither the account nor the record has it."""
    broken = dp_event.SelfComposedDpEvent(GAUSSIAN, 1)
    object.__setattr__(broken, "count", count)
    whole = accountant("tightest")
    with pytest.raises(UnsupportedEventError, match="caused by subevent SelfComposed"):
        whole.compose(dp_event.ComposedDpEvent([broken]))
    assert whole.ledger == dp_event.NoOpDpEvent()
    assert whole.get_epsilon(1e-6) == 0


@pytest.mark.parametrize("count", [3, 2**70])
def test_nested_counts_are_composed_as_their_product(count):
    """A count beyond the range of machine integers is looked at as a number, not searched for in a range."""
    nested = accountant("tightest").compose(dp_event.SelfComposedDpEvent(GAUSSIAN, count)).get_epsilon(1e-6)
    assert nested == accountant("tightest").compose(GAUSSIAN, count).get_epsilon(1e-6) > 0


@dataclass(frozen=True)
class EpsilonDeltaDpEvent(dp_event.DpEvent):
    """As later versions have it."""

    epsilon: float
    delta: float


@dataclass(frozen=True)
class DiscreteGaussianDpEvent(dp_event.DpEvent):
    """As later versions have it."""

    sigma: float
    sensitivity: float = 1.0
    dimension: int | None = None


@dataclass(frozen=True)
class ExponentialMechanismDpEvent(dp_event.DpEvent):
    """As later versions have it."""

    epsilon: float


@dataclass(frozen=True)
class PermuteAndFlipDpEvent(dp_event.DpEvent):
    """As later versions have it."""

    epsilon: float


def test_events_of_later_versions_are_read(monkeypatch):
    """Where the library has them, four more events have the mechanism of the same name."""
    for kind in (EpsilonDeltaDpEvent, DiscreteGaussianDpEvent, ExponentialMechanismDpEvent, PermuteAndFlipDpEvent):
        monkeypatch.setattr(dp_event, kind.__name__, kind, raising=False)
    assert from_event(EpsilonDeltaDpEvent(0.3, 1e-6)) == mechanisms.Approximate(0.3, 1e-6)
    assert from_event(EpsilonDeltaDpEvent(0.0, 0.0)) == mechanisms.Composed(())
    assert from_event(DiscreteGaussianDpEvent(3.0, 2.0, 1)) == mechanisms.DiscreteGaussian(3.0, 2.0, 1)
    assert from_event(DiscreteGaussianDpEvent(3.0, 2.0)) == mechanisms.DiscreteGaussian(3.0, 2.0)
    assert from_event(ExponentialMechanismDpEvent(0.4)) == mechanisms.Exponential(0.4)
    assert from_event(PermuteAndFlipDpEvent(0.4)) == mechanisms.Pure(0.4)
    sampled = from_event(dp_event.PoissonSampledDpEvent(0.1, PermuteAndFlipDpEvent(0.4)))
    assert sampled.epsilon == pytest.approx(log1p(0.1 * expm1(0.4)))
    for written in (
        mechanisms.Approximate(0.3, 1e-6),
        mechanisms.DiscreteGaussian(3.0, 2.0),
        mechanisms.Exponential(0.4),
    ):
        assert from_event(to_event(written)) == written
    assert from_event(to_event(mechanisms.PDP(0.3, 1e-6))) == mechanisms.Approximate(0.3, 1e-6)
    assert accountant("zcdp").compose(DiscreteGaussianDpEvent(0.0, 1.0)).get_epsilon(1e-6) == inf
    for wrong in (EpsilonDeltaDpEvent(-1.0, 0.0), DiscreteGaussianDpEvent(-1.0), PermuteAndFlipDpEvent(nan)):
        with pytest.raises(ArgumentError):
            from_event(wrong)
