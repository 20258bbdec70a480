"""Equal shares of a budget use it up: sums are exact, so that no share is lost and nothing is sold twice."""

from fractions import Fraction
from math import nextafter, sqrt

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from almoner import filters, individual
from almoner import mechanisms as m
from almoner.accounting import calibrate
from almoner.errors import ArgumentError, BudgetExceeded
from written import written

PARTS = (*range(1, 2001), 9_999, 10**6, 3**15)
KINDS = {
    "Basic": (lambda b: filters.Basic(epsilon=b), m.Pure),
    "Zcdp": (lambda b: filters.Zcdp(rho=b), m.Zcdp),
    "RenyiOrder": (lambda b: filters.RenyiOrder(alpha=4.0, rho=4 * b), m.Zcdp),
    "RenyiCurve": (lambda b: filters.RenyiCurve(orders=(2.0, 4.0), values=(2 * b, 4 * b)), m.Zcdp),
    "Renyi": (lambda b: filters.Renyi(epsilon=b, delta=1e-300, orders=(2.0,), weights=(1.0,), sum_delta=0.0), m.Pure),
    "Residue": (lambda b: filters.Residue(epsilon=b, delta=1e-300, sum_delta=0.0), m.Pure),
}


@pytest.mark.quick(3)
@pytest.mark.parametrize("kind", ["Basic", "Zcdp", "RenyiOrder", "RenyiCurve"])
@pytest.mark.parametrize("budget", [1.0, 0.3, 2.0, 7.25])
def test_k_shares_fit_k_times_wherever_their_sum_does(kind, budget):
    """budget / k fits k times if and only if the sum of k such numbers, as they are written, is at most the budget."""
    make, step = KINDS[kind]
    fits = 0
    for k in PARTS:
        share = budget / k
        exactly = k * written(share) <= written(budget)
        assert make(budget).admits(m.Repeated(step(share), k)) == exactly, k
        assert make(budget).admits(m.Repeated(step(nextafter(share, 0)), k)), k
        fits += exactly
    assert fits > len(PARTS) / 3  # of the others the sum is above the budget, by a part in 10^16


@pytest.mark.parametrize("kind", KINDS)
def test_three_thirds_are_one(kind):
    """Charged one after the other; then nothing more fits."""
    make, step = KINDS[kind]
    account = make(1.0)
    for _ in range(3):
        account.charge(step(1 / 3))
    assert not account.admits(step(1e-12))


@pytest.mark.parametrize("k", [3, 7, 11, 49, 1000])
def test_what_is_left_can_always_be_spent(k):
    """Each time the part of what is left that falls to this round: all k fit, and at last all that is left."""
    for make, step, left in (
        (lambda: filters.Basic(epsilon=1.0), m.Pure, lambda f: f.left[0]),
        (lambda: filters.Zcdp(epsilon=1.0, delta=1e-6), m.Zcdp, lambda f: f.left),
    ):
        account = make()
        for rest in range(k, 0, -1):
            account.charge(step(left(account) / rest))
        assert account.count == k


@pytest.mark.parametrize("epsilon", [0.1, 1.0, 3.0])
def test_a_budget_that_follows_from_epsilon_is_what_it_shows(epsilon):
    """rho and mu of (epsilon, delta) can be spent at once, as they are shown."""
    zcdp, gaussian = (kind(epsilon=epsilon, delta=1e-6) for kind in (filters.Zcdp, filters.Gaussian))
    zcdp.charge(m.Zcdp(zcdp.rho))
    assert gaussian.admits(m.Gaussian(1.0, nextafter(gaussian.mu, 0)))
    assert zcdp.epsilon() == gaussian.epsilon() == epsilon


@given(costs=st.lists(st.floats(1e-9, 0.4), max_size=40), budget=st.floats(0.1, 3))
@settings(max_examples=100, deadline=None)
def test_nothing_sold_exceeds_what_was_promised(costs, budget):
    """Whatever is asked: the exact sum of the decimals charged is at most the budget's, for filters and for people."""
    accounts = (filters.Basic(epsilon=budget), filters.Zcdp(rho=budget))
    people, sold = individual.Filter(2, filters.Zcdp(rho=budget)), [Fraction(0)] * 3
    for cost in costs:
        for place, (account, step) in enumerate(zip(accounts, (m.Pure(cost), m.Zcdp(cost)), strict=True)):
            fits = sold[place] + written(cost) <= written(budget)
            assert account.admits(step) == fits
            if fits:
                account.charge(step)
                sold[place] += written(cost)
        sold[2] += written(cost) * bool(people.charge(m.Zcdp(cost), np.array([True, False]))[0])
        assert sold[2] <= written(budget)


@pytest.mark.parametrize("k", [3, 7, 30, 99, 365, 997])
def test_a_person_can_afford_what_a_filter_admits(k):
    """In accounts of people, who hold larger units, k shares fit k times as in a filter; half of them as half."""
    for budget, step in ((1.0, m.Zcdp(1 / k)), (2.0, m.Zcdp(2 / k))):
        one = filters.Zcdp(rho=budget)
        people = individual.Filter(["all", "half"], one)
        paid = sum(int(people.charge(step, np.array([True, place % 2 == 0]))[0]) for place in range(k))
        assert paid == min(k, calibrate.steps(one, step))
        assert people.spent()[1] == pytest.approx((k + 1) // 2 / k * budget, rel=1e-12)
    gaussian, step = filters.Gaussian(mu=1.0), m.Gaussian(sigma=sqrt(k))
    people = individual.Filter(1, gaussian)
    paid = sum(int(people.charge(step, np.ones(1))[0]) for _ in range(k + 1))
    assert paid == calibrate.steps(gaussian, step)


def test_a_refund_and_a_saved_state_keep_what_was_paid_too_much():
    """Undone, saved and restored, an account of thirds still has room for exactly three."""
    step, everybody = m.Zcdp(1 / 3), np.ones(1, bool)
    people = individual.Filter(1, filters.Zcdp(rho=1.0))
    for _ in range(5):
        assert people.charge(step, everybody)[0]
        people.refund(step, everybody)
    assert people.charge(step, everybody)[0]
    people = individual.Filter.from_state(people.state())
    assert [bool(people.charge(step, everybody)[0]) for _ in range(3)] == [True, True, False]
    people.write_off(m.Zcdp(0.5))
    assert not people.charge(m.Zcdp(1e-15), everybody)[0]
    people.join(1)
    assert people.admits(m.Repeated(step, 3), np.ones(2, bool)).tolist() == [False, True]


def test_calibrated_noise_fits_accounts_of_people_as_often():
    """The noise for k steps is enough where each step is rounded up to the units of people's accounts."""
    for k in (3, 7, 100, 104):
        budget = filters.Gaussian(epsilon=1.0, delta=1e-5)
        step = m.Gaussian(calibrate.sigma(budget, k))
        people = individual.Filter(1, budget)
        assert sum(int(people.charge(step, np.ones(1))[0]) for _ in range(k)) == k


def test_a_state_in_other_units_is_refused():
    """A state of a version that counted in 10^-15 would be read as next to nothing spent."""
    account = filters.Basic(epsilon=1.0)
    account.charge(m.Pure(0.5))
    state = account.state()
    assert filters.Basic.from_state(state).left == (0.5, 0.0)
    for wrong in ({**state, "units_in_one": 10**15}, {name: state[name] for name in state if name != "units_in_one"}):
        with pytest.raises(ArgumentError, match="units_in_one"):
            filters.Basic.from_state(wrong)


def test_a_share_that_is_too_much_is_refused_with_what_is_left():
    """Eleven floats of 1/11 are more than one; the error says what is left, and that can be charged."""
    account = filters.Basic(epsilon=1.0)
    for _ in range(10):
        account.charge(m.Pure(1 / 11))
    with pytest.raises(BudgetExceeded) as refused:
        account.charge(m.Pure(1 / 11))
    account.charge(m.Pure(refused.value.left[0]))
