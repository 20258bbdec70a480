"""Pure budgets for each person: Laplace noise takes a person's own L1 norm over its scale."""

from fractions import Fraction
from math import exp

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from almoner import filters, individual
from almoner import mechanisms as m
from almoner.errors import ArgumentError, Unsupported

STEP = m.Laplace(scale=3.7, sensitivity=2.0)
ANY = st.one_of(st.floats(0, 2.0), st.sampled_from([np.nan, np.inf, -1.0, -0.0, 2.0, 2.0000001, 1e-300, 5e-324]))


@settings(max_examples=50)
@given(st.lists(hnp.arrays(np.float64, 4, elements=ANY), max_size=12), st.sampled_from([1, 3]))
def test_nobody_overspends_judged_in_fractions(steps, count):
    """For every person the exact epsilons of the rounds they took part in add up to at most the budget."""
    people = individual.Filter(4, filters.Basic(epsilon=1.0))
    general = individual.Filter(4, filters.Basic(epsilon=1.0), xp=torch)
    exact = [Fraction(0)] * 4
    step = m.Repeated(STEP, count) if count > 1 else STEP
    for norms in steps:
        active = people.charge(step, norms)
        assert np.array_equal(np.asarray(general.charge(step, torch.from_numpy(norms))), active)
        for person in np.flatnonzero(active):
            exact[person] += count * Fraction(float(norms[person])) / Fraction("3.7")
            assert 0 <= norms[person] <= 2.0
        spent = people.state()["spent"][:, 0]
        assert all(total <= 1 for total in exact)
        assert all(Fraction(int(s), 10**15) >= total for s, total in zip(spent, exact, strict=True))
        assert np.array_equal(general.state()["spent"][:, 0], spent)


def test_a_norm_costs_its_part_of_the_scale():
    """The whole norm costs its part of the scale, half the norm half of that; an allowance is what is left."""
    people = individual.Filter(["ann", "bob"], filters.Basic(epsilon=1.0))
    step = m.Laplace(scale=10.0, sensitivity=4.0)
    assert people.charge(step, np.array([1.0, 0.5])).all()
    assert people.spent().tolist() == pytest.approx([0.1, 0.05])
    for _ in range(5):
        people.charge(step, np.array([1.0, 0.5]))
    assert people.left().tolist() == pytest.approx([0.4, 0.7])
    assert people.allowance(step).tolist() == pytest.approx([4.0, 4.0])
    assert people.charge(step, people.allowance(step) * [0.5, 1.0]).all()
    assert people.allowance(step).tolist() == pytest.approx([2.0, 3.0])
    assert people.charge(step, people.allowance(step)).all()
    assert people.left().tolist() == pytest.approx([0.0, 0.0], abs=1e-12)
    assert people.admits(step, np.array([1e-9, 0.0])).tolist() == [False, True]


def test_the_statement_is_of_pure_privacy():
    """A pure budget promises epsilon at delta 0, and a guess is right with e^epsilon / (1 + e^epsilon) at most."""
    people = individual.Filter(2, filters.Basic(epsilon=1.0), shares=[0.5, 1.0])
    assert people.epsilon().tolist() == pytest.approx([0.5, 1.0])
    assert people.guess().tolist() == pytest.approx([exp(0.5) / (1 + exp(0.5)), exp(1) / (1 + exp(1))], rel=1e-12)
    statement = people.statement(0)
    assert (statement.epsilon, statement.delta) == (pytest.approx(0.5), 0.0)
    assert individual.shares([0.5, 1.0], filters.Basic(epsilon=1.0)).tolist() == pytest.approx([0.5, 1.0], rel=1e-3)


def test_who_asks_to_be_forgotten_contributes_nothing_more():
    """What they had left counts as spent, also after a restart; the others keep theirs."""
    for budget in (filters.Basic(epsilon=1.0), filters.Zcdp(rho=1.0), filters.Renyi(epsilon=6.0, delta=1e-5)):
        people = individual.Filter(["ann", "bob"], budget)
        people.forget(["ann"])
        for each in (people, individual.Filter.from_state(people.state())):
            assert each.admits(STEP, np.array([1e-3, 1e-3])).tolist() == [False, True]
            assert each.allowance(STEP).tolist()[0] == 0.0
        people.forget()
        assert not people.admits(STEP, np.array([1e-3, 1e-3])).any()


def test_what_is_not_pure_is_refused():
    """A budget with a delta, Gaussian noise and mechanisms that may fail have no place in it."""
    with pytest.raises(Unsupported, match=r"write filters.Basic\(epsilon=1.0\), with delta=0"):
        individual.Filter(2, filters.Basic(epsilon=1.0, delta=1e-6))
    people = individual.Filter(2, filters.Basic(epsilon=1.0))
    for step, norms in ((m.Gaussian(sigma=1.0), np.zeros(2)), (m.Approximate(0.1, 1e-6), np.ones(2, bool))):
        with pytest.raises(Unsupported):
            people.charge(step, norms)
    with pytest.raises(ArgumentError):
        people.epsilon(delta=1.0)
    assert not people.spent().any()


@pytest.mark.parametrize("wrong", [0.5, 1.0])
def test_an_adversary_would_break_a_charge_by_half_the_norm(wrong):
    """Two outputs of Laplace noise tell a person's data apart exactly as much as the charge says, and not less.

    Charging ``wrong`` times the norm would promise less than the likelihood ratio that the adversary sees.
    """
    norms = np.array([0.8, 0.3])
    people = individual.Filter(1, filters.Basic(epsilon=1.0))
    for norm in norms:
        assert people.charge(m.Laplace(scale=2.0, sensitivity=1.0), np.array([norm]))[0]
    ratio = np.exp(norms / 2.0).prod()  # outputs beyond the person's contribution, the largest ratio there is
    spent = float(people.spent()[0])
    assert ratio == pytest.approx(exp(spent), rel=1e-12)
    assert (exp(wrong * spent) < ratio * (1 - 1e-9)) == (wrong < 1)
