"""Three epsilons of one run: fixed in advance, within a filter's budget, read from an odometer."""

import pytest

from almoner import filters, individual, odometers
from almoner import mechanisms as m
from almoner.accounting import answers
from almoner.errors import ArgumentError

DELTA = 1e-5
STEP, STEPS = m.SampledGaussian(1.1, 1.0, 0.01), 421


@pytest.fixture(scope="module")
def sampled():
    return answers.of_run(STEP, rounds=STEPS, delta=DELTA)


def test_the_first_is_the_certified_epsilon_of_loss_distributions(sampled):
    """It is that of `individual.losses`, and agrees with dp_accounting's loss distributions to half a percent."""
    fixed = sampled[0]
    assert (fixed.promise, fixed.bound) == ("fixed", "privacy loss distributions")
    everybody = individual.losses([[STEPS]], [1.1], sample_rate=0.01, delta=DELTA)[0]
    assert 0.999 * everybody < fixed.epsilon < everybody
    dp_accounting = pytest.importorskip("dp_accounting")
    event = dp_accounting.PoissonSampledDpEvent(0.01, dp_accounting.GaussianDpEvent(1.1))
    theirs = dp_accounting.pld.PLDAccountant(value_discretization_interval=1e-4)
    theirs.compose(event, STEPS)
    assert fixed.epsilon == pytest.approx(theirs.get_epsilon(DELTA), rel=5e-3)


def test_the_second_is_what_a_filter_needs_to_admit_the_run(sampled):
    """A planned filter with this budget admits the run; one with 0.3 % less does not; adaptivity costs under 1 %."""
    within, run = sampled[1], m.Repeated(STEP, STEPS)
    assert (within.promise, within.bound) == ("filter", "filters.Planned")
    assert filters.Planned(STEP, epsilon=within.epsilon, delta=DELTA).admits(run)
    assert not filters.Planned(STEP, epsilon=within.epsilon * 0.997, delta=DELTA).admits(run)
    assert sampled[0].epsilon <= within.epsilon <= 1.01 * sampled[0].epsilon


def test_the_third_is_an_odometers_bound_at_the_end_of_the_run(sampled):
    """Read from an odometer with the run as its plan, and above what holds for a run that was fixed."""
    odometer = odometers.Renyi(delta=DELTA, plan=m.Repeated(STEP, STEPS))
    odometer.charge(m.Repeated(STEP, STEPS))
    assert sampled[2].epsilon == odometer.ex_post_epsilon() > sampled[0].epsilon


@pytest.mark.parametrize("rounds", [1, 5, 50])
def test_the_filter_that_is_named_admits_rounds_of_a_pair(rounds):
    """A pair that is mu-GDP is no Gaussian noise: its epsilon fixed in advance is not what a Gaussian filter needs."""
    pair = m.DominatingPair((0.51, 0.49), (0.49, 0.51))
    run = m.Repeated(pair, rounds)
    fixed, within, stopped = answers.of_run(pair, rounds=rounds, delta=DELTA)
    if within.bound == "filters.Planned":
        account = filters.Planned(pair, epsilon=within.epsilon, delta=DELTA)
    else:
        assert within.bound == "odometers.Capped"
        account = odometers.Capped(odometers.Renyi(delta=DELTA, plan=run), epsilon=within.epsilon)
    assert account.admits(run)
    assert fixed.epsilon <= within.epsilon <= stopped.epsilon


@pytest.mark.parametrize("sigma", [0.01, 1.0, 20.0, 1e4])
@pytest.mark.parametrize("delta", [1e-10, 1e-5, 0.1])
def test_gaussian_noise_has_formulas(sigma, delta):
    """The filter is exact, and the odometer's number is what `odometers.Line` says at the end of its plan."""
    fixed, within, stopped = answers.of_run(m.Gaussian(sigma), rounds=100, delta=delta)
    line = odometers.Line(delta=delta, plan=m.Repeated(m.Gaussian(sigma), 100), sum_delta=0.0)
    line.charge(m.Repeated(m.Gaussian(sigma), 100))
    assert fixed.epsilon == within.epsilon == pytest.approx(filters.Gaussian(mu=10 / sigma).epsilon(delta=delta))
    assert (fixed.bound, within.bound) == ("Gaussian DP, exact", "filters.Gaussian")
    assert stopped.epsilon == pytest.approx(line.ex_post_epsilon(), rel=1e-9, abs=1e-9)
    assert stopped.epsilon >= fixed.epsilon


def test_rounds_of_other_kinds():
    """Laplace rounds have a plan; zCDP rounds, of which no loss distribution is known, a Rényi filter."""
    laplace = answers.of_run(m.Laplace(10.0), rounds=50, delta=DELTA)
    assert [each.bound for each in laplace][:2] == ["privacy loss distributions", "filters.Planned"]
    assert laplace[0].epsilon <= laplace[1].epsilon <= 1.01 * laplace[0].epsilon
    concentrated = answers.of_run(m.Zcdp(0.01), rounds=10, delta=DELTA)
    assert [each.bound for each in concentrated][:2] == ["zCDP", "filters.Renyi, planned"]
    assert filters.Renyi(epsilon=concentrated[1].epsilon, delta=DELTA, plan=m.Zcdp(0.01)).admits(
        m.Repeated(m.Zcdp(0.01), 10)
    )


@pytest.mark.slow
@pytest.mark.parametrize(
    ("step", "rounds", "delta"),
    [
        (m.SampledGaussian(0.1, 1.0, 0.1), 100, 1e-5),  # losses wider than any window of distributions
        (m.SampledGaussian(0.614, 1.0, 4.08e-5), 100_000, 1.1e-10),  # no planned filter admits so many
        (m.SampledGaussian(1.0, 1.0, 0.01), 1000, 1e-9),
        (m.Laplace(20.0), 100, 1e-12),
    ],
)
def test_no_answer_is_above_one_that_needs_less(step, rounds, delta):
    """A fixed run needs at most the epsilon of a filter, and a filter at most that of an odometer; each one holds."""
    fixed, within, stopped = answers.of_run(step, rounds=rounds, delta=delta)
    assert 0 < fixed.epsilon <= within.epsilon <= stopped.epsilon < float("inf")
    run = m.Repeated(step, rounds)
    if within.bound == "odometers.Capped":
        odometer = odometers.Renyi(delta=delta, plan=run)
        assert odometers.Capped(odometer, epsilon=within.epsilon).admits(run)
    else:
        assert filters.Planned(step, epsilon=within.epsilon, delta=delta).admits(run)
    if fixed.bound.startswith(("filters.", "odometers.")):
        assert (fixed.bound, fixed.epsilon) == (within.bound, within.epsilon)


def test_what_is_no_run_is_refused():
    """No rounds, half a round, no mechanism, no delta."""
    for rounds in (0, -1, 1.5):
        with pytest.raises(ArgumentError, match="rounds="):
            answers.of_run(STEP, rounds=rounds, delta=DELTA)
    with pytest.raises(ArgumentError, match="mechanism="):
        answers.of_run("gaussian", rounds=1, delta=DELTA)
    with pytest.raises(ArgumentError, match="delta="):
        answers.of_run(STEP, rounds=1, delta=0.0)


def test_more_rounds_than_a_plan_has():
    """Beyond 10**7 rounds the filter and the odometer are those of Rényi accounting."""
    many = answers.of_run(m.SampledGaussian(100.0, 1.0, 1e-3), rounds=10**7 + 1, delta=DELTA)
    assert [each.bound for each in many] == [
        "privacy loss distributions",
        "filters.Renyi, planned",
        "odometers.Renyi, planned",
    ]
    assert many[0].epsilon <= many[1].epsilon <= 1.2 * many[0].epsilon
