"""Noise: as large as promised, and priced as the library that draws it says."""

import math

import pytest

from bursar import filters
from bursar.queries import Count
from bursar.queries._noise import _measurement
from ledgers import RHO
from sessions import opened


def test_noise_is_the_noise_that_was_promised(path):
    """Standard deviation and mean of 2000 answers' noise, within five standard errors."""
    with opened(path, budget=filters.Zcdp(rho=100.0)) as session:
        keys = list(range(2000))
        found = session.analyst("x").ask(Count(by={"n": keys}, clip=3, sigma=4.0), key="a").values[9:]
        spread = math.sqrt(sum(v * v for v in found) / len(found))
        assert abs(spread - 4.0) < 5 * 4.0 / math.sqrt(2 * len(found))
        assert abs(sum(found) / len(found)) < 5 * 4.0 / math.sqrt(len(found))


@pytest.mark.parametrize("sigma", [0.37, 20.0, 12345.678])
def test_the_price_is_what_the_library_of_the_noise_says(sigma):
    """OpenDP's own privacy map of the mechanism that is run gives the price, and not more."""
    asked = Count(clip=2.5, sigma=sigma)
    rho = _measurement(asked.mechanism.sigma).map(float(asked.clip_steps))
    assert rho <= asked.price / RHO * (1 + 1e-12)
    assert asked.price / RHO <= rho * (1 + 1e-9) + 1e-15
