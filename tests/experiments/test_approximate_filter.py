"""The approximate filter of Koskela, Tobaben & Honkela (2023): what it prints, and that it proves nothing."""

import sys
from pathlib import Path

import numpy as np
import pytest

from almoner import filters, individual
from almoner import mechanisms as m
from almoner.curves import gaussian
from almoner.errors import ArgumentError, BudgetExceeded, Unsupported

sys.path.append(str(Path(__file__).parents[2] / "experiments" / "koskela_2023"))
from approximate_filter import ApproximateFilter


def test_it_prints_420_and_495_gaussian_rounds():
    """Section 4.1: sigma = 100, delta = 1e-5, an epsilon printed as 0.8 (0.8157). (5.3) goes by way of Rényi DP:
    the 420 rounds that are printed fit, and not one more; Gaussian DP allows the 495 that are printed, and no more."""
    step, budget = m.Gaussian(sigma=100.0), {"epsilon": 0.8157, "delta": 1e-5}
    account, exact = ApproximateFilter(**budget), filters.Gaussian(**budget)
    assert account.admits(m.Repeated(step, 420))
    assert not account.admits(m.Repeated(step, 421))
    assert exact.admits(m.Repeated(step, 495))
    assert not exact.admits(m.Repeated(step, 496))


def test_it_fits_mu_on_the_grid_and_the_fit_is_no_domination():
    """10,000 steps at q = 0.005, sigma = 2: 0.2670 on [0.01, 0.3]; at epsilon = 1.2 the composition is far above."""
    run = m.Repeated(m.SampledGaussian(2.0, 1.0, 0.005), 10_000)
    narrow = ApproximateFilter(epsilon=1.5, delta=1e-5, epsilons=np.linspace(0.01, 0.3, 30))
    narrow.charge(run)
    assert narrow.spent == pytest.approx(0.2670, abs=2e-4)
    truth = individual.losses([[10_000]], [2.0], sample_rate=0.005, epsilon=1.2)[0]
    assert truth > 1.1 * float(gaussian.delta(narrow.spent, epsilon=1.2))
    wide = ApproximateFilter(epsilon=1.5, delta=1e-5, epsilons=[1.2])
    wide.charge(run)
    assert wide.spent == pytest.approx(0.2696, abs=2e-4)


def test_it_promises_nothing_and_is_no_budget():
    """It is no Filter: accounts per person refuse it. A round too many is refused, and nothing is spent."""
    account = ApproximateFilter(epsilon=1.0, delta=1e-5)
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
        ApproximateFilter(epsilon=1.0, delta=1e-5, epsilons=[])
    with pytest.raises(ArgumentError, match=r"epsilons=-1\.0"):
        ApproximateFilter(epsilon=1.0, delta=1e-5, epsilons=[-1.0])
