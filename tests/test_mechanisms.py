"""Descriptions are frozen, public and validated."""

import contextlib
from dataclasses import FrozenInstanceError
from math import inf, nan

import numpy as np
import pytest

from almoner import filters, individual, odometers
from almoner import mechanisms as m
from almoner.curves import zcdp
from almoner.errors import ArgumentError, BudgetExceeded, Unsupported


@pytest.mark.parametrize(
    "make",
    [
        lambda bad: m.Gaussian(sigma=bad),
        lambda bad: m.Gaussian(sigma=1.0, sensitivity=bad),
        lambda bad: m.SampledGaussian(sigma=bad, sample_rate=0.1),
        lambda bad: m.SampledGaussian(sigma=1.0, sample_rate=bad),
        lambda bad: m.DiscreteGaussian(sigma=bad),
        lambda bad: m.Laplace(scale=bad),
        lambda bad: m.RandomizedResponse(bad),
    ],
)
@pytest.mark.parametrize("bad", [0.0, -1.0, nan, inf, "1", None, True])
def test_noise_must_be_positive_and_finite(make, bad):
    """The noise multiplier NaN that a peer prices at epsilon 0 is refused here, and so is every other non-noise."""
    with pytest.raises(ArgumentError):
        make(bad)


@pytest.mark.parametrize(
    "make",
    [
        lambda: m.Pure(-0.1),
        lambda: m.Pure(nan),
        lambda: m.Approximate(0.1, 1.5),
        lambda: m.Approximate(0.1, nan),
        lambda: m.Zcdp(-1.0),
        lambda: m.Exponential(nan),
        lambda: m.SampledGaussian(1.0, 1.0, 1.5),
        lambda: m.Renyi((), ()),
        lambda: m.Renyi((2.0, 3.0), (1.0,)),
        lambda: m.Renyi((1.0,), (1.0,)),
        lambda: m.Renyi((3.0, 2.0), (1.0, 1.0)),
        lambda: m.Renyi((2.0,), (nan,)),
        lambda: m.Repeated(m.Pure(0.1), -1),
        lambda: m.Repeated(m.Pure(0.1), 1.5),
        lambda: m.Repeated("gauss", 1),
        lambda: m.Composed((1,)),
    ],
)
def test_impossible_parameters_are_refused(make):
    """No description of an impossible mechanism can be made."""
    with pytest.raises(ArgumentError):
        make()


FAR = [
    lambda: m.Gaussian(1e-60, 1e60),
    lambda: m.DiscreteGaussian(1e-60),
    lambda: m.SampledGaussian(1e-60, 1.0, 0.5),
    lambda: m.Laplace(1e-60),
    lambda: m.Pure(1e60),
    lambda: m.Exponential(1e60),
    lambda: m.Approximate(1e60, 0.0),
    lambda: m.RandomizedResponse(1e60),
    lambda: m.Zcdp(1e60),
    lambda: m.Renyi((2.0, 1e6), (1e60, 1e60)),
    lambda: m.Repeated(m.Gaussian(1.0), 10**30),
]


@pytest.mark.parametrize("make", FAR)
def test_the_largest_costs_are_refused_without_overflow(make):
    """At the ends of what may be described, filters refuse and keep their state; no odometer shows a small number."""
    for kind in (filters.Gaussian, filters.Zcdp, filters.Renyi, filters.Approximate, filters.Basic, filters.Residue):
        account = kind(epsilon=1.0, delta=1e-5)
        before = account.state()
        with pytest.raises((BudgetExceeded, Unsupported)):
            account.charge(make())
        assert account.state() == before
    for running in (odometers.Renyi(delta=1e-5), odometers.Gaussian(delta=1e-5)):
        with contextlib.suppress(Unsupported):
            running.charge(make())
            assert running.epsilon() > 1e9


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: m.Gaussian(1e-61), "sigma=1e-61"),
        (lambda: m.Gaussian(1.0, 1e61), "sensitivity=1e[+]61"),
        (lambda: m.Laplace(1e-200), "scale=1e-200"),
        (lambda: m.Pure(1e300), "epsilon=1e[+]300"),
        (lambda: m.Zcdp(1e61), "rho=1e[+]61"),
        (lambda: m.Renyi((2.0,), (1e300,)), "value=1e[+]300"),
        (lambda: m.Repeated(m.Pure(0.1), 10**31), "count=1"),
    ],
)
def test_parameters_beyond_are_named(make, message):
    """What would overflow is refused where it is described, with its name and value."""
    with pytest.raises(ArgumentError, match=message):
        make()


@pytest.mark.parametrize("kind", [np.float16, np.float32, np.longdouble])
@pytest.mark.parametrize(
    "make",
    [
        lambda number: m.Pure(number),
        lambda number: m.Renyi((2.0,), (number,)),
        lambda number: filters.Gaussian(epsilon=number, delta=1e-4),
        lambda number: filters.RenyiOrder(alpha=8.0, rho=number),
        lambda number: odometers.Gaussian(delta=1e-4, plan=number),
        lambda number: odometers.Renyi(delta=1e-4).epsilon(delta=number),
        lambda number: zcdp.rho(epsilon=number, delta=1e-4),
    ],
)
def test_numbers_of_other_precision_are_refused(make, kind):
    """Bounds would be computed in that precision: (0.3, 1e-4) in single precision gave a mu 4e-9 above that of 0.3."""
    make(np.float64(0.3))
    with pytest.raises(ArgumentError, match="must be an int or a float"):
        make(kind(0.3))


def test_whole_numbers_of_numpy_do_not_come_round_again():
    """20,000 rounds cost rho = 10,000, also where their number is NumPy's: in its arithmetic they cost -8447."""
    many = m.Repeated(m.Gaussian(1.0), np.int64(20_000))
    assert not filters.Zcdp(rho=1.0).admits(many)
    assert not individual.Filter(1, filters.Zcdp(rho=1.0)).admits(many, np.ones(1)).any()
    plain, bound = odometers.Renyi(delta=1e-6), odometers.Renyi(delta=1e-6)
    plain.charge(m.Repeated(m.Gaussian(1.0), 20_000))
    bound.charge(many)
    assert bound.epsilon() == plain.epsilon() > 10_000
    for kind in (np.int8, np.uint16, np.int64):
        assert "np." not in repr(m.Repeated(m.Gaussian(kind(100), kind(7)), kind(9)))
        assert "np." not in repr(m.Renyi((kind(2), kind(3)), (kind(1), kind(1))))
    for account in (filters.Renyi(epsilon=9.0, delta=1e-6), odometers.Renyi(delta=1e-6)):
        state = account.state()
        name = "spent" if "spent" in state else "totals"
        saved = state | {name: np.array(state[name]), "count": np.int64(0)}
        assert type(account).from_state(saved).state() == state
        assert "np." not in repr(type(account).from_state(saved).state())


def test_descriptions_are_frozen_values():
    """Equal descriptions are equal and hash alike, and nobody can change one after it was priced."""
    assert m.Gaussian(1.0) == m.Gaussian(1.0)
    assert hash(m.Renyi([2.0], [0.1])) == hash(m.Renyi((2.0,), (0.1,)))
    with pytest.raises(FrozenInstanceError):
        m.Gaussian(1.0).sigma = 2.0


def test_a_gaussian_step_is_sampled_below_rate_one():
    """The full batch is a plain Gaussian, which more filters have a price for."""
    assert m.gaussian_step(3.0, 2.0) == m.Gaussian(3.0, 2.0)
    assert m.gaussian_step(3.0, 2.0, 0.5) == m.SampledGaussian(3.0, 2.0, 0.5)
    for rate in (0.0, 1.5, nan):
        with pytest.raises(ArgumentError, match="sample_rate="):
            m.gaussian_step(3.0, 2.0, rate)


# ---- dominating pairs ----------------------------------------------------------------------------------------------

HALF = (0.5, 0.5)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: m.DominatingPair((0.5, 0.4), HALF), "p must add up to 1 .*not to 0.9"),
        (lambda: m.DominatingPair(HALF, (0.5, 0.5 + 2e-9)), "q must add up to 1 .*not to 1.000000002"),
        (lambda: m.DominatingPair((1.5, -0.5), HALF), r"p=1.5 must be in \[0, 1\]"),
        (lambda: m.DominatingPair((nan, 1.0), HALF), "p=nan must be a number, not NaN"),
        (lambda: m.DominatingPair((inf, 0.0), HALF), r"p=inf must be in \[0, 1\]"),
        (lambda: m.DominatingPair((True, 0.0), HALF), "p=True must be a number"),
        (lambda: m.DominatingPair((1.0,), HALF), "p and q must be equally long, not 1 and 2"),
        (lambda: m.DominatingPair((), ()), "p must have 1 to 100000 numbers, not 0"),
        (lambda: m.DominatingPair("10", HALF), "p must be a list of numbers"),
        (lambda: m.DominatingPair(0.5, HALF), "p must be a list of numbers"),
        (lambda: m.DominatingPair(np.ones((2, 1)) / 2, HALF), "p=.* must be a number"),
        (lambda: m.DominatingPair(HALF, HALF, p_add=HALF), "p_add and q_add must be given together"),
        (lambda: m.DominatingPair(HALF, HALF, p_add=HALF, q_add=(0.5, 0.4)), "q_add must add up to 1"),
        (lambda: m.DominatingPair.from_losses([0.1], [0.9]), "masses and infinity must add up to 1 .*not to 0.9"),
        (lambda: m.DominatingPair.from_losses([inf], [1.0]), "losses=inf must be in"),
        (lambda: m.DominatingPair.from_losses([nan], [1.0]), "losses=nan must be a number"),
        (
            lambda: m.DominatingPair.from_losses([0.1, 0.2], [1.0]),
            "losses and masses must be equally long, not 2 and 1",
        ),
        (lambda: m.DominatingPair.from_losses([0.1], [0.5], infinity=nan), "infinity=nan"),
        (lambda: m.DominatingPair.from_losses([0.1], [1.0], infinity_add=0.1), "must be given together"),
        (lambda: m.DominatingPair.from_losses([0.5, -1.0], [0.7, 0.3]), "belong to no pair of laws.*1.24.*add 0.215"),
        (lambda: m.DominatingPair.from_losses([0.0, -1e9], [0.5, 0.5]), "belong to no pair of laws.*inf, above one"),
        (
            lambda: m.DominatingPair.from_losses([0.0], [1.0], losses_add=[-0.1], masses_add=[1.0]),
            "losses_add and masses_add belong to no pair of laws",
        ),
    ],
)
def test_what_is_no_dominating_pair_is_refused(make, message):
    """Lists that are no probabilities, and losses that dominate nothing in the other order: name, value and rule."""
    with pytest.raises(ArgumentError, match=message):
        make()


def test_losses_become_the_pair_that_they_belong_to():
    """P is the masses and the infinite mass; Q what the losses leave, and an outcome that P does not have."""
    pair = m.DominatingPair.from_losses(np.array([1.0, -0.5]), [0.25, 0.5], infinity=0.25)
    assert pair.p == (0.25, 0.5, 0.25, 0.0)
    assert pair.q == pytest.approx((0.25 * np.exp(-1), 0.5 * np.exp(0.5), 0.0, 1 - sum(pair.q[:3])))
    both = m.DominatingPair.from_losses([1.0], [1.0], losses_add=[0.0], masses_add=[1.0])
    assert (both.p_add, both.q_add) == ((1.0,), (1.0,))


def test_a_dominating_pair_is_frozen_hashable_and_short_to_read():
    """Equal lists make equal values, NumPy's too; ten thousand outcomes are not all written out."""
    pair = m.DominatingPair(np.array(HALF), list(HALF))
    assert pair == m.DominatingPair(HALF, HALF)
    assert hash(pair) == hash(m.DominatingPair(HALF, HALF))
    with pytest.raises(FrozenInstanceError):
        pair.p = HALF
    many = m.DominatingPair(np.full(10_000, 1e-4), np.full(10_000, 1e-4))
    assert len(repr(many)) < 200
    assert "10000 outcomes" in repr(many)


def test_replaced_records_cost_as_much_as_both_changes():
    """Each part becomes its pair for replaced records; what has none is refused by name."""
    run = m.Composed((m.Gaussian(2.0), m.Repeated(m.SampledGaussian(1.0, 1.0, 0.1), 3), m.Laplace(5.0), m.Pure(0.25)))
    assert m.replaced(run) == m.Composed(
        (
            m.Gaussian(2.0, 2.0),
            m.Repeated(m.ReplacedGaussian(1.0, 1.0, 0.1), 3),
            m.Laplace(5.0, 2.0),
            m.Pure(0.5),
        )
    )
    assert m.replaced(m.Zcdp(0.5)) == m.Zcdp(2.0)
    assert m.replaced(m.SampledGaussian(1.0)) == m.Gaussian(1.0, 2.0)
    for mechanism in (m.TruncatedGaussian(1.0, 1.0, 0.1, 5, 50), m.Approximate(1.0, 1e-6)):
        with pytest.raises(Unsupported, match=type(mechanism).__name__):
            m.replaced(mechanism)
