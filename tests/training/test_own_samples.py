"""Bounds that use a person's own past samples: both divergences by quadrature, and two ways of cheating."""

import numpy as np
import pytest
from scipy.optimize import brentq

from almoner import mechanisms
from almoner.curves import renyi

FIRST = 0.8
NODES, WEIGHTS = np.polynomial.hermite_e.hermegauss(120)
FIRST_OUTPUT, SECOND, THIRD = NODES[:, None, None], NODES[None, :, None], NODES[None, None, :]


def cost(bound, order, rate):
    return float(renyi.cost(mechanisms.SampledGaussian(sigma=1.0, sensitivity=bound, sample_rate=rate), order))


def bound_for(price, order, rate):
    return brentq(lambda bound: cost(bound, order, rate) - price, 1e-3, 5.0)


def sampled(bound, output, rate):
    """The likelihood ratio of one round's output with a person against without."""
    return 1 - rate + rate * contributed(bound, output)


def contributed(bound, output):
    return np.exp(bound * output - bound**2 / 2)


def divergences(ratio, order):
    """Rényi divergences, in both directions, of three outputs with the person and without."""
    weights = WEIGHTS[:, None, None] * WEIGHTS[None, :, None] * WEIGHTS[None, None, :] / WEIGHTS.sum() ** 3
    return [np.log((weights * ratio**power).sum()) / (order - 1) for power in (order, 1 - order)]


@pytest.mark.parametrize("order", [2.0, 8.0])
@pytest.mark.parametrize("rate", [0.1, 0.5, 0.9])
def test_bounds_may_use_own_past_coins(order, rate):
    """All that is left is spent in the second round after a one, in the third after a zero: within what was paid."""
    paid_first = cost(FIRST, order, rate)
    later = bound_for(2 * paid_first, order, rate)
    ratio = (1 - rate) * sampled(later, THIRD, rate) + rate * contributed(FIRST, FIRST_OUTPUT) * sampled(
        later, SECOND, rate
    )
    worst = max(divergences(ratio, order))
    assert 0.6 * 3 * paid_first < worst <= 3 * paid_first * (1 + 1e-9)


@pytest.mark.parametrize("rate", [0.1, 0.5, 0.9])
def test_a_coin_that_is_used_again_exceeds_what_was_paid(rate):
    """The same bound in three rounds, each paid at the rate of a fresh coin, with one coin for all."""
    one = contributed(FIRST, FIRST_OUTPUT) * contributed(FIRST, SECOND) * contributed(FIRST, THIRD)
    assert max(divergences(1 - rate + rate * one, 2.0)) > 1.05 * 3 * cost(FIRST, 2.0, rate)


def test_paying_only_where_the_coin_fell_exceeds_what_was_paid():
    """After a zero the whole budget would be left."""
    order, rate = 2.0, 0.1
    paid_first = cost(FIRST, order, rate)
    after_zero, after_one = (bound_for(left * paid_first, order, rate) for left in (3, 2))
    ratio = (1 - rate) * sampled(after_zero, THIRD, rate) + rate * contributed(FIRST, FIRST_OUTPUT) * sampled(
        after_one, SECOND, rate
    )
    assert max(divergences(ratio, order)) > 1.1 * 3 * paid_first
