"""Filters as papers state them, beside the ones that are recommended."""

import math

import pytest

from almoner import filters
from almoner import mechanisms as m
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
