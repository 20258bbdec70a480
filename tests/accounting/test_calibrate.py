"""Noise and steps agree with the filter that will be charged."""

from functools import partial

import pytest

from almoner import filters, individual
from almoner import mechanisms as m
from almoner.accounting import calibrate
from almoner.curves._totals import tightest
from almoner.errors import ArgumentError, CalibrationFailed, Unsupported

BUDGETS = {
    "Gaussian": lambda: filters.Gaussian(epsilon=1.0, delta=1e-5),
    "Zcdp": lambda: filters.Zcdp(epsilon=1.0, delta=1e-5),
    "RenyiOrder": lambda: filters.RenyiOrder(alpha=20, epsilon=1.0, delta=1e-5),
    "Renyi": lambda: filters.Renyi(epsilon=1.0, delta=1e-5),
    "Approximate": lambda: filters.Approximate(epsilon=1.0, delta=1e-5),
}


@pytest.mark.quick(9)
@pytest.mark.parametrize("make", BUDGETS.values(), ids=BUDGETS)
@pytest.mark.parametrize(("steps", "sensitivity"), [(1, 1.0), (800, 3.7)])
def test_exactly_the_planned_steps_fit(make, steps, sensitivity):
    """With the calibrated noise the filter admits the planned steps one by one, not one more; less noise fails."""
    sigma = calibrate.sigma(make(), steps, sensitivity=sensitivity)
    account, step = make(), m.Gaussian(sigma, sensitivity)
    for _ in range(steps):
        account.charge(step)
    assert not account.admits(step)
    assert calibrate.steps(make(), step) == steps
    assert calibrate.steps(make(), m.Gaussian(sigma * (1 - 1e-6), sensitivity)) < steps


@pytest.mark.slow
@pytest.mark.parametrize("make", [BUDGETS["RenyiOrder"], BUDGETS["Renyi"]])
def test_sampling_needs_less_noise(make):
    """Poisson sampling is calibrated through the Rényi budgets, and refused where it has no cost."""
    sigma = calibrate.sigma(make(), 100, sample_rate=0.02)
    assert 0.4 < sigma < calibrate.sigma(make(), 100) / 5
    assert calibrate.steps(make(), m.SampledGaussian(sigma, 1.0, 0.02)) == 100
    with pytest.raises(Unsupported):
        calibrate.sigma(filters.Gaussian(epsilon=1.0, delta=1e-5), 100, sample_rate=0.02)


def test_asking_spends_nothing_and_what_is_left_counts():
    """Calibrating against a used filter plans for what is left, and charges nothing."""
    account = filters.Zcdp(rho=1.0)
    account.charge(m.Zcdp(0.5))
    before = account.state()
    assert calibrate.steps(account, m.Zcdp(0.1)) == 5
    calibrate.sigma(account, 10)
    assert account.state() == before


def test_impossible_targets_are_refused():
    """No steps, no budget left, or mechanisms that cost nothing."""
    account = filters.Zcdp(rho=1.0)
    for bad in (0, -1, 1.5):
        with pytest.raises(ArgumentError, match="steps="):
            calibrate.sigma(account, bad)
    account.charge(m.Zcdp(1.0))
    with pytest.raises(CalibrationFailed):
        calibrate.sigma(account, 10)
    with pytest.raises(CalibrationFailed):
        calibrate.steps(filters.Zcdp(rho=1.0), m.Zcdp(0.0))


@pytest.mark.slow
def test_sampled_noise_for_the_residue_filter_is_found_in_few_walks():
    """Within a part in 5,000 of the least: the steps fit, and a thousandth less noise is too little."""
    budget = filters.Residue(epsilon=1.0, delta=1e-5)
    sigma = calibrate.sigma(budget, 300, sensitivity=2.0, sample_rate=0.02)
    assert calibrate.steps(budget, m.SampledGaussian(sigma, 2.0, 0.02)) >= 300
    assert calibrate.steps(budget, m.SampledGaussian(sigma * 0.997, 2.0, 0.02)) < 300


def test_what_no_noise_can_do_is_said():
    """A sensitivity as large as the largest noise, and more steps than an account has units."""
    with pytest.raises(CalibrationFailed, match="noise is at most 1e60"):
        calibrate.sigma(BUDGETS["Zcdp"](), 10, sensitivity=1e60)
    with pytest.raises(CalibrationFailed, match="one unit"):
        calibrate.sigma(BUDGETS["Gaussian"](), 10**14)
    with pytest.raises(CalibrationFailed, match="more than"):
        calibrate.steps(filters.Residue(epsilon=1.0, delta=1e-5), m.Composed((m.Pure(0.0), m.Pure(0.0))))


@pytest.mark.slow
def test_all_filters_side_by_side_agree_with_each_alone():
    """The least noise for the steps, and the steps for that noise, whatever the clip is."""
    rows = calibrate.by_filter(epsilon=1.0, delta=1e-5, steps=100, max_grad_norm=3.0)
    assert [row.filter for row in rows] == ["Gaussian", "Zcdp", "Renyi", "Approximate", "Planned", "Residue"]
    for row in rows[:4]:
        assert row.sigma == calibrate.sigma(BUDGETS[row.filter](), 100, sensitivity=3.0)
        assert (row.noise_multiplier, row.steps, row.note) == (row.sigma / 3, 100, "")
    back = calibrate.by_filter(epsilon=1.0, delta=1e-5, noise_multiplier=rows[1].noise_multiplier, max_grad_norm=3.0)
    assert back[1].steps in (99, 100)  # the noise multiplier is the quotient to the nearest float
    assert back[1].sigma == pytest.approx(rows[1].sigma)


@pytest.mark.slow
def test_a_filter_that_has_no_price_says_so_beside_the_others():
    """Sampled steps are no Gaussian mechanisms; the other rows are there."""
    rows = calibrate.by_filter(epsilon=1.0, delta=1e-5, noise_multiplier=2.0, sample_rate=0.01)
    assert rows[0].steps is None
    assert "no Gaussian mechanism" in rows[0].note
    assert rows[2].steps == calibrate.steps(BUDGETS["Renyi"](), m.SampledGaussian(2.0, 1.0, 0.01))


@pytest.mark.parametrize("both", [{}, {"steps": 5, "noise_multiplier": 2.0}])
def test_steps_or_noise_but_not_both(both):
    """One of the two is asked for, so the other one must be given."""
    with pytest.raises(ArgumentError, match="either steps or noise_multiplier"):
        calibrate.by_filter(epsilon=1.0, delta=1e-5, **both)


@pytest.mark.slow
@pytest.mark.parametrize("sample_rate", [1.0, 0.01])
def test_noise_of_a_run_fixed_in_advance(sample_rate):
    """It is the least, to a relative 1e-4, whose certified epsilon keeps to the budget; a plan needs as much."""
    fixed = calibrate.in_advance(epsilon=1.0, delta=1e-5, steps=50, max_grad_norm=3.0, sample_rate=sample_rate)
    assert fixed.filter == "fixed in advance"
    assert fixed.sigma == pytest.approx(3 * fixed.noise_multiplier)

    def epsilon(noise_multiplier):
        return individual.losses([[50]], [noise_multiplier], sample_rate=sample_rate, delta=1e-5)[0]

    assert 0.999 < epsilon(fixed.noise_multiplier) <= 1 + 1e-12 < epsilon(fixed.noise_multiplier * (1 - 2e-4))
    planned, residue = calibrate.by_filter(epsilon=1.0, delta=1e-5, steps=50, sample_rate=sample_rate)[-2:]
    assert fixed.noise_multiplier <= planned.noise_multiplier * (1 + 1e-4) <= 1.005 * fixed.noise_multiplier
    for row, make in ((planned, planned_as), (residue, lambda _: filters.Residue(epsilon=1.0, delta=1e-5))):
        for factor, fits in ((1.0, True), (1 - 3e-3, False)):
            step = m.gaussian_step(row.noise_multiplier * factor, 1.0, sample_rate)
            assert make(step).admits(m.Repeated(step, 50)) == fits


def planned_as(step):
    return filters.Planned(step, epsilon=1.0, delta=1e-5)


@pytest.mark.slow
def test_steps_of_a_run_fixed_in_advance():
    """One more step than the answer has an epsilon above the budget's; no step fits where one costs too much."""
    fixed = calibrate.in_advance(epsilon=1.0, delta=1e-5, noise_multiplier=1.1, sample_rate=0.01)
    epsilons = individual.losses([[fixed.steps], [fixed.steps + 1]], [1.1], sample_rate=0.01, delta=1e-5)
    assert epsilons[0] <= 1.0 < epsilons[1]
    assert fixed.steps == 421
    (planned, _) = calibrate.by_filter(epsilon=1.0, delta=1e-5, noise_multiplier=1.1, sample_rate=0.01)[-2:]
    assert planned.steps == planned_as(m.SampledGaussian(1.1, 1.0, 0.01)).left >= 0.99 * 421
    none = {"epsilon": 0.1, "delta": 1e-5, "noise_multiplier": 0.5, "sample_rate": 0.5}
    assert calibrate.in_advance(**none).steps == calibrate.by_filter(**none)[4].steps == 0


def test_steps_that_cost_next_to_nothing_are_counted():
    """Where a thousand steps have no loss at all, the search goes on; without end it says so."""
    cheap = {"epsilon": 9.068, "delta": 2.04e-9, "noise_multiplier": 5.768, "sample_rate": 0.0003294}
    most = calibrate.in_advance(**cheap).steps  # 40,342 where the search stood still
    run = partial(m.Repeated, m.SampledGaussian(5.768, 1.0, 0.0003294))
    for count, fits in ((most, True), (round(most * (1 + 3e-6)), False)):
        assert (tightest(run(count), delta=2.04e-9).epsilon <= 9.068) == fits
    assert most > 6e8
    endless = calibrate.in_advance(epsilon=1.0, delta=1e-5, noise_multiplier=1e3, sample_rate=1e-9)
    assert endless.steps is None
    assert "more than 1099511627775 rounds fit" in endless.note


@pytest.mark.parametrize("bad", [{"epsilon": 0.0}, {"delta": 1.0}, {"steps": 0}, {"max_grad_norm": -1.0}])
def test_arguments_are_checked_before_anything_is_searched(bad):
    """Each is refused by its name."""
    with pytest.raises(ArgumentError, match=next(iter(bad))):
        calibrate.in_advance(**{"epsilon": 1.0, "delta": 1e-5, "steps": 5} | bad)
