"""What totals at many orders say together is certified."""

from math import exp

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from almoner._notions import _order_mixture
from almoner.curves import renyi


@given(
    st.lists(st.floats(1e-3, 5), min_size=4, max_size=4),
    st.lists(st.floats(0.01, 1), min_size=4, max_size=4),
    st.floats(0.1, 10),
)
def test_the_mixtures_supremum_is_certified(totals, weights, epsilon):
    """G is never below the function it is the supremum of, on a fine grid, and close to its maximum."""
    lam, shares = np.array([0.5, 3.0, 20.0, 200.0]), np.array(weights) / sum(weights)
    bound = float(_order_mixture.allowed_delta(np.array(totals), lam, np.log(shares), epsilon))
    t = np.geomspace(1e-6, 50, 20000)
    logs = np.logaddexp.reduce(np.log(shares) + lam * ((epsilon + t)[:, None] - np.array(totals)), axis=1)
    best = float(np.max(np.log(-np.expm1(-t)) - logs))
    assert exp(best) <= bound <= exp(best) * (1 + 1e-5)


def test_one_order_of_the_mixture_is_the_plain_conversion():
    """With a single order G gives 3.2 exactly, so the whole-curve filter contains the one-order filter."""
    for order, total, epsilon in ((16.0, 0.3, 1.0), (4.0, 1.0, 3.0), (64.0, 0.1, 0.5)):
        g = float(_order_mixture.allowed_delta(np.array([total]), np.array([order - 1]), np.zeros(1), epsilon))
        assert renyi.epsilon([total], [order], delta=g) == pytest.approx(epsilon, rel=1e-9)
