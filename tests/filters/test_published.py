"""Filters as papers state them, beside the ones that are recommended."""

import math

import numpy as np
import pytest

from almoner import filters, individual
from almoner import mechanisms as m
from almoner.curves import gaussian
from almoner.errors import ArgumentError, BudgetExceeded, Unsupported
from almoner.filters import _published


def admitted(account, step):
    """How many equal rounds one after the other."""
    while account.admits(step):
        account.charge(step)
    return account.count


def test_users_of_the_papers_find_the_names_in_the_room_itself():
    """Each published filter is served as filters.NAME too."""
    for name in _published.__all__:
        assert getattr(filters, name) is getattr(_published, name)


@pytest.mark.parametrize("epsilon", [0.5, 1.0, 4.0])
def test_feldman_and_zrnic_admit_by_their_formula(epsilon):
    """Half the sum of epsilon squared against (sqrt(l + epsilon) - sqrt(l))^2, l = log(1 / delta): theory 4.7."""
    start = math.log(1e5)
    rho = (math.sqrt(start + epsilon) - math.sqrt(start)) ** 2
    assert admitted(filters.Pure(epsilon=epsilon, delta=1e-5), m.Pure(0.05)) == math.floor(rho / (0.05**2 / 2))


@pytest.mark.parametrize("epsilon", [0.5, 1.0, 4.0])
def test_recommended_filters_admit_more(epsilon):
    """Zcdp admits at least as many pure rounds as Feldman & Zrnic's filter, which admits more than Rogers et al."""
    counts = [
        admitted(make(epsilon=epsilon, delta=1e-5), m.Pure(0.02))
        for make in (filters.Zcdp, filters.Pure, filters.Rogers)
    ]
    assert counts[0] >= counts[1] > counts[2] > 0


@pytest.mark.parametrize("delta", [1e-310, 5e-324])
@pytest.mark.parametrize("kind", ["Rogers", "Pure", "Zcdp", "Renyi", "Residue", "Approximate", "Gaussian", "Basic"])
def test_the_smallest_deltas_are_answered(kind, delta):
    """No division by zero, no complaint about a delta that nobody gave: a round that is hardly private is refused."""
    account = getattr(filters, kind)(epsilon=1.0, delta=delta)
    assert not account.admits(m.Gaussian(0.1) if kind == "Gaussian" else m.Pure(30.0))
    if kind not in ("Gaussian", "Residue"):
        assert account.admits(m.Pure(1e-4))


def test_a_count_beyond_floats_is_refused_in_silence():
    """1e60 rounds whose cost is beyond every float do not fit, and no warning is given."""
    huge = m.Repeated(m.Repeated(m.Gaussian(1e-60, 1e60), 10**30), 10**30)
    for kind in (filters.Renyi, filters.Zcdp, filters.Gaussian, filters.Residue):
        assert not kind(epsilon=1.0, delta=1e-5).admits(huge)


# ---- Koskela, Tobaben & Honkela (2023), section 5 -------------------------------------------------------------------


def test_koskela_prints_420_and_495_gaussian_rounds():
    """Section 4.1: sigma = 100, delta = 1e-5, an epsilon printed as 0.8 (0.8157). (5.3) goes by way of Rényi DP:
    the 420 rounds that are printed fit, and not one more; Gaussian DP allows the 495 that are printed, and no more."""
    step, budget = m.Gaussian(sigma=100.0), {"epsilon": 0.8157, "delta": 1e-5}
    account, exact = filters.Koskela(**budget), filters.Gaussian(**budget)
    assert account.admits(m.Repeated(step, 420))
    assert not account.admits(m.Repeated(step, 421))
    assert exact.admits(m.Repeated(step, 495))
    assert not exact.admits(m.Repeated(step, 496))


def test_koskela_fits_mu_on_the_grid_and_the_fit_is_no_domination():
    """10,000 steps at q = 0.005, sigma = 2: 0.2670 on [0.01, 0.3]; at epsilon = 1.2 the composition is far above."""
    run = m.Repeated(m.SampledGaussian(2.0, 1.0, 0.005), 10_000)
    narrow = filters.Koskela(epsilon=1.5, delta=1e-5, epsilons=np.linspace(0.01, 0.3, 30))
    narrow.charge(run)
    assert narrow.spent == pytest.approx(0.2670, abs=2e-4)
    truth = individual.losses([[10_000]], [2.0], sample_rate=0.005, epsilon=1.2)[0]
    assert truth > 1.1 * float(gaussian.delta(narrow.spent, epsilon=1.2))
    wide = filters.Koskela(epsilon=1.5, delta=1e-5, epsilons=[1.2])
    wide.charge(run)
    assert wide.spent == pytest.approx(0.2696, abs=2e-4)


def test_koskela_promises_nothing_and_is_no_budget():
    """It is no Filter: accounts per person refuse it. A round too many is refused, and nothing is spent."""
    account = filters.Koskela(epsilon=1.0, delta=1e-5)
    assert not isinstance(account, filters.Filter)
    with pytest.raises((ArgumentError, TypeError, AttributeError)):
        individual.Filter(3, account)
    step = m.SampledGaussian(2.0, 1.0, 0.01)
    account.charge(m.Repeated(step, 1500))
    spent, left = account.spent, account.left
    with pytest.raises(BudgetExceeded, match="does not fit"):
        account.charge(m.Repeated(step, 1500))
    assert (account.count, account.spent, account.left) == (1500, spent, left)
    assert account.mu**2 == pytest.approx(spent**2 + left)
    with pytest.raises(Unsupported):
        account.admits(m.Zcdp(0.1))
    with pytest.raises(ArgumentError, match="epsilons"):
        filters.Koskela(epsilon=1.0, delta=1e-5, epsilons=[])
    with pytest.raises(ArgumentError, match=r"epsilons=-1\.0"):
        filters.Koskela(epsilon=1.0, delta=1e-5, epsilons=[-1.0])
