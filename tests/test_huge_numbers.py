"""Whole numbers that no float is as large as, and deltas whose parts vanish, are refused with a sentence."""

import pytest

from almoner import filters, individual, mechanisms, odometers, queries
from almoner.accounting import calibrate
from almoner.curves import gaussian, renyi, zcdp
from almoner.errors import AlmonerError, ArgumentError

HUGE = 10**400
STEP = mechanisms.Gaussian(30.0)

REFUSED = {
    "DominatingPair": lambda: mechanisms.DominatingPair((HUGE, 0.5), (0.5, 0.5)),
    "from_losses": lambda: mechanisms.DominatingPair.from_losses([HUGE], [1.0]),
    "masses": lambda: mechanisms.DominatingPair.from_losses([0.0], [HUGE]),
    "Planned": lambda: filters.Planned(STEP, epsilon=HUGE, delta=1e-6),
    "Zcdp epsilon": lambda: filters.Zcdp(epsilon=HUGE, delta=1e-6),
    "Zcdp rho": lambda: filters.Zcdp(rho=HUGE),
    "Gaussian mu": lambda: filters.Gaussian(mu=HUGE),
    "Renyi epsilon": lambda: filters.Renyi(epsilon=HUGE, delta=1e-6),
    "Renyi orders": lambda: filters.Renyi(epsilon=1.0, delta=1e-6, orders=[2, HUGE], weights=[1, 1]),
    "Renyi weights": lambda: filters.Renyi(epsilon=1.0, delta=1e-6, orders=[2, 3], weights=[1, HUGE]),
    "RenyiOrder": lambda: filters.RenyiOrder(alpha=HUGE, rho=1.0),
    "people": lambda: individual.Filter(HUGE, filters.Zcdp(rho=1.0)),
    "zcdp": lambda: zcdp.epsilon(HUGE, delta=1e-6),
    "gaussian": lambda: gaussian.epsilon(HUGE, delta=1e-6),
    "gaussian mu": lambda: gaussian.mu(epsilon=HUGE, delta=1e-6),
    "renyi values": lambda: renyi.epsilon([HUGE], [2.0], delta=1e-6),
    "renyi orders": lambda: renyi.epsilon([1.0], [HUGE], delta=1e-6),
    "steps": lambda: calibrate.sigma(filters.Zcdp(rho=1.0), HUGE),
    "error": lambda: queries.Count(clip=1, error=HUGE),
    "clip": lambda: queries.Count(clip=HUGE, rho=0.1),
}


@pytest.mark.parametrize("make", REFUSED.values(), ids=REFUSED)
def test_a_whole_number_beyond_floats_is_refused(make):
    """10**400 is out of range everywhere, and the error is one of ours."""
    with pytest.raises(AlmonerError):
        make()


def test_the_error_says_what_is_wanted():
    """The name, the range, and how large the number is."""
    with pytest.raises(
        ArgumentError, match=r"^rho must be in \[-1.79769e\+308, 1.79769e\+308\], not a number of 1329 b"
    ):
        filters.Zcdp(rho=HUGE)


@pytest.mark.parametrize("delta", [5e-324, 1e-320, 1e-301])
def test_a_delta_whose_parts_vanish_is_refused(delta):
    """Of the planned odometer, which divides delta into small parts."""
    with pytest.raises(ArgumentError, match="must be at least 1e-300"):
        odometers.Planned(STEP, delta=delta)
    assert odometers.Planned(STEP, delta=1e-300).epsilon() == 0
