"""Everybody's running bound: the same numbers as one odometer per person, on NumPy and PyTorch."""

import copy
import importlib.util
import math
import re

import numpy as np
import pytest
import torch

from almoner import errors, individual, odometers
from almoner import mechanisms as m

ORDERS = tuple(float(1 + x) for x in np.geomspace(0.05, 500, 24))
BOUNDARIES = {
    "renyi": lambda: odometers.Renyi(delta=1e-5, orders=ORDERS, sum_delta=0.0),
    "renyi_plan": lambda: odometers.Renyi(delta=1e-5, plan=0.5, sum_delta=0.0),
    "gaussian": lambda: odometers.Gaussian(delta=1e-5, sum_delta=0.0),
    "gaussian_plan": lambda: odometers.Gaussian(delta=1e-5, plan=0.5, sum_delta=0.0),
    "line": lambda: odometers.Line(delta=1e-5, plan=0.5, sum_delta=0.0),
    "feldman_zrnic": lambda: odometers.FeldmanZrnic(delta=1e-5, alpha=8.0, step=0.25),
    "gaussian_restarts": lambda: odometers.GaussianRestarts(delta=1e-5, step=0.1),
}
every = pytest.mark.parametrize("make", BOUNDARIES.values(), ids=BOUNDARIES)
PEOPLE = 40
STRICT = importlib.util.find_spec("array_api_strict") and importlib.import_module("array_api_strict")
libraries = pytest.mark.parametrize(
    "xp",
    [np, torch, pytest.param(STRICT, marks=pytest.mark.skipif(not STRICT, reason="array-api-strict is not installed"))],
    ids=["numpy", "torch", "strict"],
)


def norms_of(rng, sensitivity, n=PEOPLE):
    norms = rng.uniform(0, sensitivity, n)
    norms[:3] = 0.0, sensitivity, sensitivity / 2
    return norms


@pytest.mark.quick(9)
@every
@libraries
def test_everybody_has_an_odometer(make, xp):
    """Row by row the bounds of scalar odometers charged with the person's own norm, never below them."""
    rng = np.random.default_rng(3)
    accounts = individual.Odometer(PEOPLE, make(), xp=xp)
    alone = [make() for _ in range(PEOPLE)]
    for sigma, clip in ((20.0, 1.0), (33.0, 2.5), (10.0, 1.0)) * 4:
        norms = norms_of(rng, clip)
        accounts.charge(m.Gaussian(sigma, clip), xp.asarray(norms))
        for odometer, norm in zip(alone, norms, strict=True):
            if norm > 0:
                odometer.charge(m.Gaussian(sigma, float(norm)))
    assert type(accounts.epsilon()) is type(xp.asarray([0.0]))
    bounds = np.asarray(accounts.epsilon())
    expected = np.array([odometer.epsilon() for odometer in alone])
    np.testing.assert_allclose(bounds, expected, rtol=1e-7, atol=1e-9)
    assert np.all(bounds >= expected * (1 - 1e-11))
    assert bounds[0] == 0.0
    if not isinstance(make(), odometers.FeldmanZrnic | odometers.GaussianRestarts):
        ex_post = np.array([odometer.ex_post_epsilon() for odometer in alone])
        np.testing.assert_allclose(np.asarray(accounts.ex_post_epsilon()), ex_post, rtol=1e-7, atol=1e-9)


@libraries
def test_sampled_rounds_are_priced_by_the_persons_norm(xp):
    """Norms are rounded up to a grid of a hundredth: a little above the exact price, never below."""
    orders = (1.5, 3.0, 8.0, 20.0, 64.0)
    accounts = individual.Odometer(4, odometers.Renyi(delta=1e-5, orders=orders, sum_delta=0.0), xp=xp)
    norms = np.array([0.0, 0.3, 0.77, 1.0])
    accounts.charge(m.Repeated(m.SampledGaussian(2.0, 1.0, 0.01), 1000), xp.asarray(norms))
    for bound, norm in zip(np.asarray(accounts.epsilon())[1:], norms[1:], strict=True):
        exact = odometers.Renyi(delta=1e-5, orders=orders, sum_delta=0.0)
        exact.charge(m.Repeated(m.SampledGaussian(2.0, float(norm), 0.01), 1000))
        assert exact.epsilon() * (1 - 1e-9) <= bound <= 1.02 * exact.epsilon()


@every
def test_unknown_contributions_are_infinite(make):
    """NaN, negative and above the promise: that person's bound is infinite for good; the others are untouched."""
    accounts = individual.Odometer(4, make())
    step = m.Gaussian(20.0)
    accounts.charge(step, np.array([math.nan, -0.1, 1.0001, 1.0]))
    accounts.charge(step, np.ones(4))
    bounds = accounts.epsilon()
    assert np.all(np.isinf(bounds[:3]))
    assert np.isfinite(bounds[3])


@every
def test_small_contributions_count_in_full_where_the_clip_costs_more_than_accounts_hold(make):
    """A promise that is far above the noise does not make the bounds of smaller contributions smaller."""
    accounts, alone = (individual.Odometer(2, make()) for _ in range(2))
    norms = np.array([0.2, 0.01])
    accounts.charge(m.Gaussian(1.0, 1000.0), norms)
    alone.charge(m.Gaussian(1.0, 0.2), norms)
    assert np.all(accounts.epsilon() >= alone.epsilon() * (1 - 1e-9))


def test_restarts_fit_twice_into_int64():
    """What the open filter holds and what comes to it cannot come round at 2^63; larger filters are refused."""
    for make in (
        lambda step: odometers.FeldmanZrnic(delta=1e-5, alpha=2.0, step=step),
        lambda step: odometers.GaussianRestarts(delta=1e-5, step=step),
    ):
        with pytest.raises(errors.ArgumentError, match="step must be below 4600"):
            individual.Odometer(1, make(4600.0))
        accounts, alone = individual.Odometer(1, make(4599.0)), make(4599.0)
        for _ in range(5):
            accounts.charge(m.Gaussian(1.0, 60.0), np.array([60.0]))
            alone.charge(m.Gaussian(1.0, 60.0))
            assert accounts.epsilon()[0] == alone.epsilon()


def test_large_costs_saturate():
    """Totals that int64 cannot hold count as infinite instead of wrapping around."""
    accounts = individual.Odometer(2, odometers.Gaussian(delta=1e-5))
    for _ in range(5):
        accounts.charge(m.Gaussian(0.02), np.array([1.0, 0.001]))
    assert accounts.epsilon()[0] == math.inf
    assert accounts.epsilon()[1] < 2.0


@every
def test_state_is_exact(make):
    """Saved and restored at every round: the same totals and bounds."""
    rng, step = np.random.default_rng(8), m.Gaussian(15.0, 1.0)
    straight, restored = individual.Odometer(PEOPLE, make()), individual.Odometer(PEOPLE, make())
    for _ in range(6):
        norms = norms_of(rng, 1.0)
        straight.charge(step, norms)
        restored.charge(step, norms)
        restored = individual.Odometer.from_state(restored.state())
        np.testing.assert_array_equal(restored.state()["totals"], straight.state()["totals"])
        np.testing.assert_array_equal(restored.epsilon(), straight.epsilon())
    state = restored.state()
    with pytest.raises(errors.ArgumentError, match="stands for infinity"):  # the next charge would come round at 2^63
        individual.Odometer.from_state(state | {"totals": np.full_like(state["totals"], 2**63 - 1)})


def test_people_by_id():
    """Some of the people, by id; unknown ones are refused and nobody is charged; newcomers start at nothing."""
    accounts = individual.Odometer(["ada", "bo", "cy"], odometers.Gaussian(delta=1e-5, plan=1.0))
    accounts.charge(m.Gaussian(5.0), np.array([1.0, 0.5]), people=["cy", "ada"])
    ada, bo, cy = accounts.epsilon(people=["ada", "bo", "cy"])
    assert bo == 0.0 < ada < cy
    with pytest.raises(errors.UnknownPerson):
        accounts.charge(m.Gaussian(5.0), np.ones(2), people=["ada", "di"])
    assert accounts.epsilon(people=["ada"])[0] == ada
    accounts.join(["di"])
    assert accounts.epsilon(people=["di"])[0] == 0.0
    again = individual.Odometer.from_state(accounts.state())
    assert again.epsilon(people=["cy"])[0] == cy


def test_a_statement_is_for_one_person():
    """It gives that person's bounds, says that it is private, and shows nothing in a log."""
    accounts = individual.Odometer(["ada", "bo"], odometers.Renyi(delta=1e-5))
    accounts.charge(m.Gaussian(5.0), np.array([1.0, 0.5]))
    statement = accounts.statement("bo")
    assert statement.epsilon == accounts.epsilon()[1]
    assert statement.ex_post_epsilon == accounts.ex_post_epsilon()[1]
    assert "bo alone" in str(statement)
    told = float(re.search(r"epsilon ([\d.]+),", str(statement))[1])
    assert statement.epsilon <= told <= statement.epsilon * 1.001
    assert "ada" not in str(statement)
    assert str(statement.epsilon)[:4] not in repr(statement)
    restarts = individual.Odometer(2, odometers.GaussianRestarts(delta=1e-5, step=0.1))
    assert restarts.statement(1).ex_post_epsilon is None
    assert "if this number had been fixed in advance" in str(restarts.statement(1))
    assert "in advance" not in str(statement)


def test_refusals():
    """What has no theorem per person is refused, and nobody is charged."""
    with pytest.raises(errors.Unsupported):
        individual.Odometer(3, odometers.Stitched(delta=1e-5))
    used = odometers.Renyi(delta=1e-5)
    used.charge(m.Pure(0.1))
    with pytest.raises(errors.ArgumentError):
        individual.Odometer(3, used)
    accounts = individual.Odometer(3, odometers.GaussianRestarts(delta=1e-5, step=0.1))
    with pytest.raises(errors.Unsupported):
        accounts.charge(m.Repeated(m.Gaussian(20.0), 3), np.ones(3))
    with pytest.raises(errors.Unsupported):
        accounts.ex_post_epsilon()
    renyi = individual.Odometer(3, odometers.Renyi(delta=1e-5))
    with pytest.raises(errors.Unsupported):
        renyi.charge(m.Approximate(0.1, 1e-9), np.ones(3, bool))
    with pytest.raises(errors.ArgumentError):
        renyi.charge(m.Gaussian(1.0), np.ones(2))
    with pytest.raises(errors.CopyRefused):
        copy.deepcopy(renyi)
    assert "3" not in repr(renyi).split("delta")[0]
    assert np.all(renyi.epsilon() == 0.0)


@every
@pytest.mark.parametrize("delta", [0.0, 1.0, 1.5, -1.0, math.nan])
def test_bounds_are_read_at_a_probability_alone(make, delta):
    """A delta that is no probability of failure is refused, as it is by one odometer, and gives no small bound."""
    accounts = individual.Odometer(2, make())
    accounts.charge(m.Gaussian(20.0), np.array([1.0, 0.1]))
    with pytest.raises(errors.ArgumentError, match="delta"):
        accounts.epsilon(delta=delta)


def test_who_takes_part_in_a_pure_round():
    """Mechanisms without a sensitivity cost everybody who takes part the same, and the others nothing."""
    accounts = individual.Odometer(3, odometers.Renyi(delta=1e-5, sum_delta=0.0))
    accounts.charge(m.Pure(0.3), np.array([True, False, True]))
    one = odometers.Renyi(delta=1e-5, orders=odometers.Renyi(delta=1e-5).orders, sum_delta=0.0)
    one.charge(m.Renyi(one.orders, tuple(one.notion.costs(m.Pure(0.3))[j] / 1e15 for j in range(len(one.orders)))))
    bounds = accounts.epsilon()
    assert bounds[1] == 0.0
    np.testing.assert_allclose(bounds[[0, 2]], one.epsilon(), rtol=1e-9)


@pytest.mark.slow
def test_a_million_people_fit():
    """One charge and one reading for a million people at 24 orders: the totals are 192 MB of whole units."""
    accounts = individual.Odometer(1_000_000, odometers.Renyi(delta=1e-5, orders=ORDERS))
    norms = np.linspace(0, 1, 1_000_000)
    accounts.charge(m.Gaussian(20.0), norms)
    bounds = accounts.ex_post_epsilon()
    assert bounds[0] == 0.0
    assert np.all(np.diff(bounds[1:]) > -1e-9)


@pytest.mark.parametrize(
    "make", [lambda: odometers.Renyi(delta=1e-5), lambda: odometers.Line(delta=1e-5, plan=1.0)], ids=["Renyi", "Line"]
)
def test_the_callers_odometer_may_be_charged_elsewhere(make):
    """Accounts keep a boundary of their own: nothing they say or save depends on what others do with theirs."""
    boundary = make()
    people = individual.Odometer(3, boundary)
    people.charge(m.Gaussian(10.0), np.ones(3))
    before = people.epsilon()
    boundary.charge(m.Gaussian(1.0))
    people.boundary.charge(m.Gaussian(1.0))
    np.testing.assert_array_equal(people.epsilon(), before)
    np.testing.assert_array_equal(individual.Odometer.from_state(people.state()).epsilon(), before)


def test_the_filters_that_were_opened_for_each_person_are_algorithm_6():
    """A naive loop of Algorithm 6 finds the same O_t; unknown contributions are infinite."""
    alpha, step, sigma = 63.0, 0.00109, 170.0
    accounts = individual.Odometer(6, odometers.FeldmanZrnic(delta=1e-5, alpha=alpha, step=step))
    draw, opened, used = np.random.default_rng(4), np.zeros(6), np.full(6, np.inf)
    for _ in range(40):
        norms = draw.random(6) * [0.0, 0.2, 0.5, 0.9, 1.0, 1.0]
        accounts.charge(m.Gaussian(sigma), norms)
        cost = alpha * norms**2 / (2 * sigma**2)
        new = (cost > 0) & (used + cost > step)
        opened, used = opened + new, np.where(new, cost, used + cost)
    np.testing.assert_allclose(accounts.opened(), opened * step, rtol=1e-12)
    np.testing.assert_array_equal(accounts.opened([3, 1]), accounts.opened()[[3, 1]])
    accounts.charge(m.Gaussian(sigma), np.full(6, np.nan))
    assert np.all(np.isinf(accounts.opened()))
    with pytest.raises(errors.Unsupported, match="opens no filters"):
        individual.Odometer(1, odometers.Renyi(delta=1e-5)).opened()
