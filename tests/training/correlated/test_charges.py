"""Charges: what a contribution commits a person to, in exact arithmetic and in the accounts' whole units."""

from fractions import Fraction
from math import sqrt

import numpy as np
import pytest

from almoner import filters, individual, mechanisms
from almoner.training.correlated import Banded, BandedInverse, PrefixSums
from almoner.training.correlated._factor import Pattern, largest_norm, price

FACTORS = [PrefixSums(), Banded(4), BandedInverse(3)]
each_factor = pytest.mark.parametrize("description", FACTORS, ids=repr)


def all_rows(factor, places, norms):
    """The exact sum over rows of the squared largest move, by norms, of a person's contributions."""
    columns = factor.columns(places)
    return sum(
        sum(Fraction(abs(float(entry))) * Fraction(float(norm)) for entry, norm in zip(row, norms, strict=True)) ** 2
        for row in columns
    )


@pytest.mark.quick(12)
@each_factor
@pytest.mark.parametrize("apart", [1, 3, 5])
@pytest.mark.parametrize("seed", range(3))
def test_accounts_hold_what_all_rows_tell(description, apart, seed):
    """In whole units: after every place, each person has paid at least for all rows, also those still to come."""
    factor, rng, sigma, clip = description.factor(20), np.random.default_rng(seed), 3.0, 1.0
    pattern = Pattern(factor, range(seed, 20, apart), clip)
    budget = filters.Gaussian(mu=0.6)
    people, mu_squared = individual.Filter(6, budget), Fraction(6, 10) ** 2
    given = np.zeros((6, len(pattern.places)))
    refused = False
    for turn in range(len(pattern.places)):
        norms = rng.uniform(0, clip, size=6)
        norms[0], norms[1] = clip, 0.0
        step = mechanisms.Gaussian(sigma, pattern.most(turn))
        own, cross = pattern.own(turn), pattern.cross(turn, given[:, :turn])
        active = people.charge(step, price(own, cross, norms))
        given[:, turn] = np.where(active, norms, 0.0)
        refused |= not active.all()
        for person in range(6):
            square = all_rows(factor, pattern.places[: turn + 1], given[person, : turn + 1])
            paid = Fraction(int(people.state()["spent"][person, 0]), 10**15)
            assert square / Fraction(sigma) ** 2 <= min(paid, mu_squared)
    assert refused
    assert active[1]


@each_factor
def test_equal_norms_cost_the_published_sensitivity(description):
    """Everybody at the clip, at every place: the squared charges add up to the squared sensitivity, to 1e-9."""
    factor = description.factor(60)
    for apart in (1, 2, 5, 10, 60):
        pattern = Pattern(factor, range(0, 60, apart), 1.0)
        together = sum(Fraction(pattern.most(turn)) ** 2 for turn in range(len(pattern.places)))
        assert Fraction(pattern.together()) ** 2 >= together
        assert pattern.together() == pytest.approx(factor.sensitivity_at(range(0, 60, apart)), rel=1e-9)


def test_half_the_norm_costs_a_quarter():
    """A person with half the norm of another at every place is charged a quarter, in units to rounding."""
    pattern = Pattern(Banded(4).factor(12), range(0, 12, 4), 2.0)
    people = individual.Filter(2, filters.Gaussian(mu=2.0))
    for turn in range(3):
        norms = np.array([2.0, 1.0])
        people.charge(mechanisms.Gaussian(4.0, pattern.most(turn)), price(pattern.own(turn), np.zeros(2), norms))
    large, small = people.state()["spent"][:, 0].tolist()
    assert 0 <= 4 * small - large <= 40
    assert large == pytest.approx(3 * (2.0 / 4.0) ** 2 * 1e15, rel=1e-12)


@pytest.mark.parametrize("seed", range(20))
def test_the_largest_norm_is_admitted(seed):
    """What may be contributed with an allowance costs at most the allowance, and hardly less."""
    rng = np.random.default_rng(seed)
    own, cross, allowance = rng.uniform(0.5, 3), rng.uniform(0, 4, size=9), rng.uniform(0, 5, size=9)
    cross[0] = allowance[1] = 0.0
    norms = largest_norm(own, cross, allowance)
    paid = price(own, cross, norms)
    assert (paid <= allowance).all()
    assert np.allclose(paid, allowance, rtol=1e-12, atol=0)


def test_prices_are_rounded_up_and_nothing_vanishes():
    """In exact arithmetic the squared price is at least the quadratic form; too small to square costs infinity."""
    rng = np.random.default_rng(0)
    norms, cross = rng.uniform(0, 1, 200), rng.uniform(0, 2, 200)
    found = price(1.25, cross, norms)
    for n, q, p in zip(norms, cross, found, strict=True):
        assert Fraction(p) ** 2 >= Fraction(n) * (Fraction(1.25) * Fraction(n) + 2 * Fraction(q))
    assert price(1.0, np.zeros(3), np.array([1e-300, 0.0, np.nan])).tolist()[:2] == [np.inf, 0.0]
    assert np.isnan(price(1.0, np.zeros(1), np.array([np.nan]))[0])


def test_the_step_sensitivity_covers_everybody():
    """Whoever kept to the clip before is charged at most the step's sensitivity, which is what a crash costs."""
    pattern = Pattern(PrefixSums().factor(30), range(2, 30, 7), 0.7)
    rng = np.random.default_rng(1)
    for turn in range(len(pattern.places)):
        past = np.where(rng.random((50, turn)) < 0.5, 0.7, rng.uniform(0, 0.7, (50, turn)))
        past[0] = 0.7
        paid = price(pattern.own(turn), pattern.cross(turn, past), np.full(50, 0.7))
        assert (paid <= pattern.most(turn)).all()
        assert paid.max() == pytest.approx(pattern.most(turn), rel=1e-12)
        assert pattern.most(turn) <= 0.7 * sqrt(2 * 30)
