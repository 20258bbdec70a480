"""Measurements of OpenDP are charged before they run, at what their own maps say, or refused by name."""

from math import inf, nan

import pytest

from almoner import filters, mechanisms
from almoner.errors import ArgumentError, BudgetExceeded, Unsupported
from almoner.interop import opendp as ours

dp = pytest.importorskip("opendp.prelude")
OpenDPException = pytest.importorskip("opendp.mod").OpenDPException
dp.enable_features("contrib", "honest-but-curious")

DOMAIN = dp.vector_domain(dp.atom_domain(T=float, nan=False))
L1, L2 = dp.l1_distance(T=float), dp.l2_distance(T=float)
GAUSSIAN = dp.m.make_gaussian(DOMAIN, L2, scale=10.0)
LAPLACE = dp.m.make_laplace(DOMAIN, L1, scale=10.0)
CALLS = []


def user(measure, cost, metric=L2):
    """A measurement that counts its calls and costs what it is told to."""

    def function(data):
        CALLS.append(1)
        return 0.0

    return dp.m.make_user_measurement(DOMAIN, metric, measure, function, lambda d_in: cost, TO=float)


def filtered(budget, metric=L2, **options):
    return ours.Filtered(budget, [1.0, 2.0], d_in=1.0, domain=DOMAIN, metric=metric, **options)


def test_zcdp_and_pure_cost_what_the_maps_say():
    """rho = (d / scale)^2 / 2 and epsilon = d / scale, by hand, and never less."""
    rho = ours.mechanism(GAUSSIAN, 2.0)
    assert isinstance(rho, mechanisms.Zcdp)
    assert 0.02 <= rho.rho == pytest.approx(0.02, rel=1e-9)
    assert ours.mechanism(LAPLACE, 2.0) == mechanisms.Pure(LAPLACE.map(2.0))
    assert 0.2 <= LAPLACE.map(2.0) == pytest.approx(0.2, rel=1e-9)


def test_approximate_measures():
    """Failures are counted beside the cost; without any they are the plain measures; profiles need a delta."""
    approximate = dp.c.make_approximate(GAUSSIAN)
    assert ours.mechanism(approximate, 1.0) == mechanisms.Zcdp(GAUSSIAN.map(1.0))
    failing = user(dp.approximate(dp.zero_concentrated_divergence()), (0.01, 1e-9))
    assert ours.mechanism(failing, 1.0) == mechanisms.Composed(
        (mechanisms.Zcdp(0.01), mechanisms.Approximate(0.0, 1e-9))
    )
    profile = dp.c.make_zCDP_to_approxDP(GAUSSIAN)
    with pytest.raises(Unsupported, match="give delta="):
        ours.mechanism(profile, 1.0)
    read = ours.mechanism(profile, 1.0, delta=1e-6)
    fixed = ours.mechanism(dp.c.make_fix_delta(profile, 1e-6), 1.0)
    assert read == fixed == mechanisms.Approximate(profile.map(1.0).epsilon(1e-6), 1e-6)


def test_a_curve_is_read_at_the_orders():
    """Each order at the value that the curve gives there."""
    curve = user(dp.renyi_divergence(), lambda order: order / 100)
    assert ours.mechanism(curve, 1.0, orders=(2.0, 8.0)) == mechanisms.Renyi((2.0, 8.0), (0.02, 0.08))


@pytest.mark.parametrize("cost", [nan, inf, -1.0])
def test_what_is_no_cost_is_refused(cost):
    """NaN, infinite and negative costs, before anything runs."""
    with pytest.raises((ArgumentError, OpenDPException)):
        ours.mechanism(user(dp.max_divergence(), cost), 1.0)


def test_unknown_measures_are_refused_by_name():
    """A measure of the user's own has no mechanism, even if it is called like another one."""
    for measure in (dp.user_divergence("MaxDivergence"), dp.user_divergence("mine")):
        with pytest.raises(Unsupported, match="ExtrinsicDivergence"):
            ours.mechanism(user(measure, 1.0), 1.0)
    with pytest.raises(ArgumentError, match="Measurement"):
        ours.mechanism("gaussian", 1.0)


@pytest.mark.parametrize(
    ("budget", "measurement", "metric"),
    [
        (lambda: filters.Zcdp(rho=0.05), GAUSSIAN, L2),
        (lambda: filters.Basic(epsilon=1.0), LAPLACE, L1),
        (lambda: filters.Renyi(epsilon=2.0, delta=1e-6), GAUSSIAN, L2),
        (lambda: filters.Residue(epsilon=1.0, delta=1e-6), LAPLACE, L1),
        (lambda: filters.Approximate(epsilon=3.0, delta=1e-6), LAPLACE, L1),
    ],
)
def test_a_budget_admits_as_many_as_the_filter_alone(budget, measurement, metric):
    """Release after release until it is refused: as many as charging the mechanism by hand."""
    session, alone, admitted = filtered(budget(), metric), budget(), 0
    while alone.admits(ours.mechanism(measurement, 1.0)):
        assert session.admits(measurement)
        alone.charge(ours.mechanism(measurement, 1.0))
        assert len(session(measurement)) == 2
        admitted += 1
    assert 3 <= admitted < 1000
    assert not session.admits(measurement)
    with pytest.raises(BudgetExceeded):
        session(measurement)
    assert session.budget.state() == alone.state()


def test_a_refused_measurement_is_not_run():
    """Charge before invoke: the function is called once for each charge, never for a refusal."""
    CALLS.clear()
    measurement = user(dp.zero_concentrated_divergence(), 0.4)
    session = filtered(filters.Zcdp(rho=1.0))
    assert (session(measurement), session(measurement)) == (0.0, 0.0)
    with pytest.raises(BudgetExceeded):
        session(measurement)
    assert len(CALLS) == 2
    assert session.budget.spent == pytest.approx(0.8)


def test_an_error_of_a_measurement_is_charged():
    """It was charged before it ran, and its error may tell something."""

    def breaks(data):
        raise ValueError("no")

    measurement = dp.m.make_user_measurement(
        DOMAIN, L2, dp.zero_concentrated_divergence(), breaks, lambda d_in: 0.3, TO=float
    )
    session = filtered(filters.Zcdp(rho=1.0))
    with pytest.raises(Exception, match="no"):
        session(measurement)
    assert session.budget.spent == pytest.approx(0.3)


def test_failures_are_counted_in_the_filter():
    """Approximate zCDP: as many as delta has room for, however small rho is."""
    failing = user(dp.approximate(dp.zero_concentrated_divergence()), (1e-6, 1e-7))
    session, count = filtered(filters.Renyi(epsilon=1.0, delta=1e-6, sum_delta=5e-7)), 0
    while session.admits(failing):
        session(failing)
        count += 1
    assert count == 5


def test_another_domain_or_metric_is_refused():
    """d_in means something else there; nothing is charged."""
    session = filtered(filters.Zcdp(rho=1.0))
    with pytest.raises(ArgumentError, match="metric"):
        session(LAPLACE)
    whole = dp.m.make_gaussian(dp.vector_domain(dp.atom_domain(T=int)), dp.l2_distance(T=float), scale=10.0)
    with pytest.raises(ArgumentError, match="domain"):
        session(whole)
    with pytest.raises(ArgumentError, match="Measurement"):
        session(5)
    with pytest.raises(ArgumentError, match="filter"):
        ours.Filtered(1.0, [1.0], d_in=1.0, domain=DOMAIN, metric=L2)
    assert session.budget.spent == 0


def test_interactive_measurements_give_nothing():
    """A queryable could be asked again without a charge: it is not handed out."""
    composed = dp.c.make_adaptive_composition(
        DOMAIN, L2, dp.zero_concentrated_divergence(), d_in=1.0, d_mids=[0.1, 0.1]
    )
    session = filtered(filters.Zcdp(rho=1.0))
    with pytest.raises(Unsupported, match="interactive"):
        session(composed)


def test_nothing_private_is_shown():
    """The repr has the budget, not the data."""
    assert repr(filtered(filters.Zcdp(rho=1.0))) == "opendp.Filtered(Zcdp(rho=1.0))"


def test_a_cost_that_is_no_float_is_rounded_up():
    """A cost between two floats becomes the larger one."""
    from fractions import Fraction

    cost = Fraction(2**60 + 1, 2**60)
    assert Fraction(ours._amount("epsilon", cost)) >= cost
    for bad in (nan, inf, -1.0):
        with pytest.raises(ArgumentError, match="no cost"):
            ours._amount("epsilon", bad)
