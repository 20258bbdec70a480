"""The filter that is recommended admits about as many rounds as the best one, and says why."""

import contextlib
import dataclasses
import math

import pytest

from almoner import filters, mechanisms
from almoner.accounting import calibrate
from almoner.errors import ArgumentError, CalibrationFailed, Unsupported
from almoner.mechanisms import Composed, Gaussian, Laplace, Pure, RandomizedResponse, Repeated, SampledGaussian

MIXED = Composed((Repeated(SampledGaussian(1.0, 1.0, 0.01), 10), Laplace(20.0)))


def admitted(budget, plan):
    """How many rounds of a plan a filter admits."""
    try:
        return calibrate.steps(budget, plan)
    except (Unsupported, CalibrationFailed):
        return 0


def best(plan, epsilon, delta):
    """The most rounds that any filter admits."""
    budgets = [kind(epsilon=epsilon, delta=delta) for kind in (filters.Basic, filters.Residue, filters.Zcdp)]
    budgets.append(filters.Renyi(epsilon=epsilon, delta=delta, plan=plan))
    with contextlib.suppress(ArgumentError, Unsupported):
        budgets.append(filters.Planned(plan, epsilon=epsilon, delta=delta))
    return max(admitted(budget, plan) for budget in budgets)


@pytest.mark.quick(6)
@pytest.mark.parametrize(
    ("plan", "epsilon", "expected"),
    [
        (SampledGaussian(0.6, 1.0, 0.001), 1.0, filters.Planned),
        (SampledGaussian(1.0, 1.0, 0.01), 2.0, filters.Planned),
        (SampledGaussian(0.5, 1.0, 0.01), 8.0, filters.Planned),
        (Laplace(20.0), 1.0, None),
        (Pure(0.1), 0.3, filters.Residue),
        (Pure(1.0), 8.0, filters.Residue),
        (RandomizedResponse(0.05), 1.0, None),
        (mechanisms.Exponential(0.3), 2.0, None),
        (mechanisms.Zcdp(0.001), 1.0, filters.Zcdp),
        (mechanisms.DiscreteGaussian(30.0), 1.0, filters.Planned),
        (mechanisms.Renyi((2.0, 8.0, 32.0), (0.001, 0.004, 0.016)), 3.0, filters.Renyi),
        (mechanisms.Approximate(0.1, 1e-8), 1.0, None),
        (MIXED, 2.0, filters.Planned),
    ],
    ids=str,
)
def test_it_admits_as_many_rounds_as_the_best_filter(plan, epsilon, expected):
    """At least 97 % of them, and one round at least wherever some filter admits one."""
    budget = filters.recommend(epsilon=epsilon, delta=1e-5, plan=plan).budget
    assert expected is None or type(budget) is expected
    most = best(plan, epsilon, 1e-5)
    assert most >= 1
    assert admitted(budget, plan) >= 0.97 * most


def test_gaussian_noise_gets_the_filter_that_is_exact_for_it():
    """Also where it is written as a sampled round of everyone."""
    for plan in (Gaussian(30.0), SampledGaussian(30.0), Composed((Gaussian(30.0), Repeated(Gaussian(40.0), 3)))):
        assert type(filters.recommend(epsilon=1.0, delta=1e-6, plan=plan).budget) is filters.Gaussian


@pytest.mark.slow
def test_without_a_plan_it_is_the_residue_filter():
    """At least 97 % of what the best filter without a plan admits, over mechanisms of several kinds."""
    kinds = (filters.Basic, filters.Renyi, filters.Zcdp, filters.Approximate)
    for plan in (RandomizedResponse(0.02), Laplace(40.0), Gaussian(40.0), SampledGaussian(2.0, 1.0, 0.01)):
        budget = filters.recommend(epsilon=1.0, delta=1e-5).budget
        assert type(budget) is filters.Residue
        most = max(admitted(kind(epsilon=1.0, delta=1e-5), plan) for kind in kinds)
        assert admitted(budget, plan) >= 0.97 * most


def test_delta_zero_is_pure_composition():
    """Laplace and pure rounds add up; a round that is not pure is refused."""
    plain = filters.recommend(epsilon=1.0, delta=0.0).budget
    assert type(plain) is filters.Basic
    assert calibrate.steps(filters.recommend(epsilon=1.0, delta=0, plan=Laplace(10.0)).budget, Laplace(10.0)) == 10
    with pytest.raises(Unsupported):
        filters.recommend(epsilon=1.0, delta=0, plan=Gaussian(10.0))


def test_the_number_of_rounds_in_the_reason_is_the_filters():
    """What is said of Planned is what it has left, counted in the least whole numbers of the plan's rounds."""
    step = SampledGaussian(1.0, 1.0, 0.01)
    said = filters.recommend(epsilon=2.0, delta=1e-5, plan=Repeated(step, 500))
    assert f"{said.budget.left:,} rounds" in said.why
    assert said.budget.left == filters.Planned(step, epsilon=2.0, delta=1e-5).left
    assert said.why.endswith(".")
    assert said.why.count(". ") == 0


@pytest.mark.parametrize(
    ("noise", "rate", "epsilon", "delta"),
    [(0.8, 0.01, 2.0, 1e-5), (0.614, 517989 / (13e12 / 1024), 2.0, 1.1e-10)],
)
def test_the_reason_says_how_many_rounds_and_hardly_more_fit_if_they_are_fixed(noise, rate, epsilon, delta):
    """The number is the filter's own, at most one per cent below that of a plan without a filter, at any delta."""
    step = mechanisms.SampledGaussian(noise, 1.0, rate)
    choice = filters.recommend(epsilon=epsilon, delta=delta, plan=step)
    assert f"pays for {choice.budget.left:,} rounds of the plan, whatever results decide" in choice.why
    fixed = calibrate.in_advance(epsilon=epsilon, delta=delta, noise_multiplier=noise, sample_rate=rate).steps
    assert 0.99 * fixed <= choice.budget.left <= fixed


def test_a_plan_that_fits_nowhere_still_gets_a_filter():
    """Its reason says so, and cheaper rounds fit."""
    said = filters.recommend(epsilon=0.1, delta=1e-6, plan=SampledGaussian(0.5, 1.0, 0.5))
    assert "no filter here admits a round of the plan" in said.why
    assert said.budget.admits(Gaussian(1000.0))
    free = filters.recommend(epsilon=0.1, delta=1e-6, plan=Pure(0.0)).budget
    assert free.admits(Repeated(Pure(0.0), 10**6))


def test_a_recommendation_is_a_frozen_value_with_a_fresh_budget():
    """Two calls give two budgets, and nothing was charged."""
    first, second = (filters.recommend(epsilon=1.0, delta=1e-6) for _ in range(2))
    assert first.budget is not second.budget
    assert first.budget.count == 0
    with pytest.raises(dataclasses.FrozenInstanceError):
        first.why = ""


@pytest.mark.parametrize(
    "wrong",
    [
        {"epsilon": 0.0},
        {"epsilon": math.nan},
        {"delta": -1e-9},
        {"delta": 1.0},
        {"delta": math.nan},
        {"plan": "step"},
        {"plan": Composed(())},
        {"plan": Repeated(Pure(0.1), 0)},
    ],
    ids=str,
)
def test_bad_arguments_are_refused(wrong):
    """By name."""
    with pytest.raises(ArgumentError, match=next(iter(wrong))):
        filters.recommend(**{"epsilon": 1.0, "delta": 1e-6, **wrong})
