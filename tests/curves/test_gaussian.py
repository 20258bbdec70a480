"""Gaussian differential privacy against exact arithmetic."""

import mpmath as mp
import numpy as np
import pytest
from dp_accounting import pld
from hypothesis import given
from hypothesis import strategies as st

from almoner import mechanisms as m
from almoner.curves import gaussian

DELTAS = (1e-18, 1e-10, 1e-5, 1e-2, 0.5)


@pytest.fixture
def precise():
    with mp.workdps(60):
        yield


def exact_gaussian_delta(mu, epsilon):
    mu, epsilon = mp.mpf(float(mu)), mp.mpf(float(epsilon))
    return mp.ncdf(-epsilon / mu + mu / 2) - mp.exp(epsilon) * mp.ncdf(-epsilon / mu - mu / 2)


@pytest.mark.slow
@pytest.mark.usefixtures("precise")
def test_gaussian_delta_is_exact_and_never_too_small():
    """Against 60 digits, for mu from 1e-8 to 60 and into the far tail: above the truth by less than 2e-11."""
    rng = np.random.default_rng(1)
    for _ in range(2000):
        mu = 10 ** rng.uniform(-8, 1.8)
        epsilon = max(0.0, (rng.uniform(-mu / 2, 35) + mu / 2) * mu)
        truth = exact_gaussian_delta(mu, epsilon)
        if truth > 1e-290:
            assert 0 <= gaussian.delta(mu, epsilon=epsilon) / truth - 1 < 2e-11


@pytest.mark.usefixtures("precise")
@pytest.mark.parametrize("delta", DELTAS)
def test_gaussian_epsilon_is_the_upper_end(delta):
    """epsilon(mu) holds at delta, and nothing noticeably smaller does; for everybody's mu at once."""
    mus = np.geomspace(1e-6, 60, 60)
    for mu, epsilon in zip(mus, gaussian.epsilon(mus, delta=delta), strict=True):
        assert exact_gaussian_delta(mu, epsilon) <= delta
        if epsilon > 0:
            assert exact_gaussian_delta(mu, epsilon * (1 - 1e-9)) > delta * (1 - 1e-7)


@given(st.floats(1e-4, 50), st.sampled_from(DELTAS))
def test_gaussian_mu_inverts_epsilon(epsilon, delta):
    """The largest mu for a budget spends all of it but rounding, and not more."""
    mu = gaussian.mu(epsilon=epsilon, delta=delta)
    assert gaussian.Gaussian(mu).delta(epsilon=epsilon) <= delta
    assert gaussian.Gaussian(mu * (1 + 1e-9)).delta(epsilon=epsilon) > delta


def test_gaussian_bound_against_dp_accountings_losses():
    """Exact Gaussian accounting equals dp-accounting's privacy loss distributions for a composition."""
    theirs = pld.privacy_loss_distribution.from_gaussian_mechanism(
        20.0, value_discretization_interval=1e-4
    ).self_compose(50)
    ours = gaussian.of(m.Repeated(m.Gaussian(20.0), 50)).epsilon(delta=1e-6)
    assert ours == pytest.approx(theirs.get_epsilon_for_delta(1e-6), rel=1e-3)
