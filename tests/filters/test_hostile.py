"""Hostile charges against an exact computation: no filter admits, and no odometer says, less than what is true.

The worst case of each mechanism is composed in fifty digits: Gaussian rounds are one Gaussian, pure rounds are
randomised response, whose losses are counted, and a round that may fail tells everything where it does.
"""

import itertools
import math
from contextlib import suppress

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from mpmath import binomial, exp, mp, mpf, ncdf, npdf

from almoner import filters, odometers
from almoner import mechanisms as m
from almoner.accounting import certificates
from almoner.errors import ArgumentError, BudgetExceeded, Unsupported
from corruptions import checker

CHECK = checker()
DELTA = 1e-5
REFUSED = (ArgumentError, BudgetExceeded, Unsupported)
HOSTILE = [math.nan, math.inf, -math.inf, -1.0, -0.0, 0.0, 5e-324, 1e-300, 1e-60, 1e60, 1e300, 1.7e308, True, "1", None]


def mostly(usual, hostile):
    """One in ten is hostile."""
    return st.tuples(st.sampled_from([False] * 9 + [True]), usual, hostile).map(lambda drawn: drawn[1 + drawn[0]])


def numbers(low, high):
    """Mostly numbers of this size, evenly on a logarithmic scale; some that are hostile."""
    usual = st.floats(math.log(low), math.log(high)).map(math.exp)
    return mostly(usual, st.sampled_from(HOSTILE))


def events(number):
    """Kind, parameters and count of one charge."""
    count = mostly(st.integers(1, 12), st.sampled_from([0, -1, 10**6, 10**30, 1.5]))
    kinds = [
        st.tuples(st.just(m.Gaussian), st.tuples(numbers(3, 300), numbers(0.3, 3)), count),
        st.tuples(st.just(m.Pure), st.tuples(numbers(1e-3, 0.5)), count),
        st.tuples(st.just(m.RandomizedResponse), st.tuples(numbers(1e-3, 0.5)), count),
        st.tuples(st.just(m.Approximate), st.tuples(numbers(1e-3, 0.5), numbers(1e-12, 1e-5)), count),
    ]
    return st.lists(st.one_of(kinds), min_size=1, max_size=number)


def made(event):
    """The mechanism, or None where it is refused as an argument."""
    kind, parameters, count = event
    with suppress(ArgumentError):
        return m.Repeated(kind(*parameters), count)
    return None


def charged(account, asked):
    """All that the account took, as {mechanism: count}; whatever it refuses, it refuses in words."""
    taken = {}
    for mechanism in filter(None, map(made, asked)):
        with suppress(*REFUSED):
            account.charge(mechanism)
            for leaf, count in m.leaves(mechanism).items():
                taken[leaf] = taken.get(leaf, 0) + count
    return taken


def exact_delta(taken, epsilon):
    """The delta at epsilon of the worst case of all rounds together, or a little less."""
    square, kept, losses = mpf(0), mpf(1), [(mpf(0), mpf(1))]
    for leaf, count in taken.items():
        if isinstance(leaf, m.Gaussian):
            square += count * (mpf(leaf.sensitivity) / mpf(leaf.sigma)) ** 2
            continue
        size, right = mpf(leaf.epsilon), 1 / (1 + exp(-mpf(leaf.epsilon)))
        kept *= (1 - mpf(getattr(leaf, "delta", 0))) ** count
        if size == 0 or not count:
            continue
        own = [
            (size * (2 * k - count), binomial(count, k) * right**k * (1 - right) ** (count - k))
            for k in range(count + 1)
        ]
        losses = [(a + b, p * q) for (a, p), (b, q) in itertools.product(losses, own)]
    mu = mp.sqrt(square)
    return 1 - kept * (1 - sum(mass * over(mpf(epsilon) - loss, mu) for loss, mass in losses))


def over(epsilon, mu):
    """The hockey-stick divergence of a Gaussian at an epsilon of either sign."""
    if mu == 0:
        return max(mpf(0), 1 - exp(epsilon))
    x, y = mu / 2 - epsilon / mu, mu / 2 + epsilon / mu
    if x < -100:
        return mpf(0)
    if x > 100:  # the first term is above 1 - 1e-2000
        return max(mpf(0), 1 - mpf(10) ** -40 - exp(epsilon) * ncdf(-y))
    if y > 1e9:  # the second term is at most the density at x, over y
        return ncdf(x) - npdf(x) / y
    return ncdf(x) - exp(epsilon) * ncdf(-y)


def small(taken):
    """Whether it can be enumerated: a thousand losses."""
    return math.prod(count + 1 for leaf, count in taken.items() if not isinstance(leaf, m.Gaussian)) <= 1000


FILTERS = {
    "Gaussian": lambda epsilon: filters.Gaussian(epsilon=epsilon, delta=DELTA),
    "Zcdp": lambda epsilon: filters.Zcdp(epsilon=epsilon, delta=DELTA),
    "RenyiOrder": lambda epsilon: filters.RenyiOrder(alpha=128, epsilon=epsilon, delta=DELTA),
    "Renyi": lambda epsilon: filters.Renyi(epsilon=epsilon, delta=DELTA),
    "Residue": lambda epsilon: filters.Residue(epsilon=epsilon, delta=DELTA),
    "Approximate": lambda epsilon: filters.Approximate(epsilon=epsilon, delta=DELTA),
    "Planned": lambda epsilon: filters.Planned(m.Gaussian(40.0), epsilon=epsilon, delta=DELTA),
}
HARD = settings(
    max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large]
)


@pytest.mark.slow
@pytest.mark.parametrize("kind", FILTERS)
@given(asked=events(6), epsilon=st.sampled_from([0.3, 1.0, 6.0]))
@example(asked=[(m.Gaussian, (1e-300, 5e-324), 10**30), (m.Pure, (5e-324,), 10**30)], epsilon=1.0)
@example(asked=[(m.Approximate, (0.0, 1e-5), 1), (m.Gaussian, (4.0, 1.0), 1)], epsilon=1.0)
@example(asked=[(m.Gaussian, (20.0, 1.0), 4), (m.Pure, (0.1,), 3), (m.Approximate, (0.01, 1e-7), 1)], epsilon=1.0)
@example(asked=[(m.Gaussian, (20.0, 1.0), 12)] * 30 + [(m.Pure, (0.02,), 12)] * 30, epsilon=1.0)
@HARD
def test_no_filter_admits_more_than_it_promises(kind, asked, epsilon):
    """Whatever hostile sequence is asked, the exact delta of what was admitted is at most the filter's."""
    taken = charged(FILTERS[kind](epsilon), asked)
    if small(taken):
        with mp.workdps(50):
            assert exact_delta(taken, epsilon) <= mpf(DELTA)


@given(asked=events(8), epsilon=st.sampled_from([0.3, 1.0, 6.0]))
@HARD
def test_basic_composition_never_overspends(asked, epsilon):
    """The exact sum of the epsilons that were admitted is at most the budget, and what was spent is no less."""
    account = filters.Basic(epsilon=epsilon)
    taken = charged(account, asked)
    with mp.workdps(50):
        total = sum((count * mpf(leaf.epsilon) for leaf, count in taken.items()), mpf(0))
        assert total <= mpf(epsilon) * (1 + mpf(2) ** -52)  # 0.3 stands for the decimal, which is above its double


ODOMETERS = {
    "Renyi": lambda: odometers.Renyi(delta=DELTA),
    "Gaussian": lambda: odometers.Gaussian(delta=DELTA),
    "Mixture": lambda: odometers.Mixture(delta=DELTA),
    "Stitched": lambda: odometers.Stitched(delta=DELTA),
}


@pytest.mark.slow
@pytest.mark.parametrize("kind", ODOMETERS)
@given(asked=events(5))
@example(asked=[(m.Gaussian, (1e60, 1e-60), 10**30), (m.Gaussian, (1.0, 1.0), 1)])
@HARD
def test_no_odometer_says_less_than_what_is_true(kind, asked):
    """After every hostile sequence the exact delta at the odometer's epsilon is at most its delta."""
    account = ODOMETERS[kind]()
    taken = charged(account, asked)
    said = account.epsilon()
    assert said >= 0
    if said < math.inf and small(taken):
        with mp.workdps(50):
            assert exact_delta(taken, said) <= mpf(DELTA)


@pytest.mark.slow
@given(asked=events(3), delta=st.one_of(st.floats(1e-10, 1e-2), st.sampled_from(HOSTILE[:12])))
@example(asked=[(m.Pure, (-0.0,), 1)], delta=1e-5)
@example(asked=[(m.Pure, (0.36787944117144233,), 8), (m.Gaussian, (148.4131591025766, 1.0), 1)], delta=2**-7)
@settings(HARD, max_examples=30)
def test_no_certificate_claims_less_than_what_is_true(asked, delta):
    """A hostile run has no certificate, or one whose epsilon holds exactly and which the checker proves."""
    parts = tuple(filter(None, map(made, asked)))
    with suppress(*REFUSED):
        run = m.Composed(parts)
        certificate = certificates.of_run(run, delta=delta)
        CHECK.check(certificate)
        if small(m.leaves(run)):
            with mp.workdps(50):
                assert exact_delta(m.leaves(run), float(certificate["epsilon"])) <= mpf(delta)


def test_the_exact_computation_finds_a_bound_that_is_too_small():
    """One round of randomised response and one Gaussian: known values, and a promise that is a little too small."""
    with mp.workdps(50):
        assert exact_delta({m.Pure(1.0): 1}, 1.0) == 0
        assert abs(exact_delta({m.Pure(1.0): 1}, 0.0) - (1 / (1 + exp(-1)) - 1 / (1 + exp(1)))) < mpf(10) ** -40
        mu = filters.Gaussian(epsilon=1.0, delta=DELTA).mu
        assert exact_delta({m.Gaussian(1 / (mu * (1 + 1e-6))): 1}, 1.0) > DELTA
        assert exact_delta({m.Approximate(0.5, 2e-5): 1}, 1.0) > DELTA
        assert exact_delta({}, 0.0) == 0
        assert abs(over(mpf(-1), mpf("0.005")) - (1 - exp(mpf(-1)))) < mpf(10) ** -30  # noise that hides nothing


def test_a_filter_that_is_too_generous_is_found():
    """A budget of a larger epsilon, spent to the end: what it admits is found to break the promise of a smaller one."""
    step, answer = (m.Gaussian, (40.0, 1.0), 1), (m.Pure, (0.02,), 1)
    with mp.workdps(50):
        assert exact_delta(charged(FILTERS["Gaussian"](1.01), [step] * 200), 1.0) > DELTA
        assert exact_delta(charged(FILTERS["Residue"](1.05), [step] * 60 + [answer] * 400), 1.0) > DELTA
        assert exact_delta(charged(FILTERS["Renyi"](1.3), [step] * 60 + [answer] * 400), 1.0) > DELTA
