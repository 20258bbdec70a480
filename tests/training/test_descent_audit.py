"""An end-to-end audit of Algorithm 8: can somebody who sees every step tell whether one person was there?

Tiny neighbouring data sets, 200,000 runs of the real descent, a canary whose budget is fully used. From how well
a threshold on the noisy sums tells them apart follows, with 95 % confidence, a lower bound on epsilon. It must not
exceed what we claim; it must come close to it, else the audit is blind; and planted errors must be caught.
"""

import numpy as np
import pytest
from scipy import sparse

from almoner import filters, individual
from almoner.curves import gaussian
from almoner.mechanisms import Gaussian
from almoner.training import Descent, descend
from almoner.training._linear.descent import LogisticGradients
from audits import DELTA, epsilon_bound

MU = 1.5
CLIPPED_STEPS = 2  # the budget: two steps at the whole clip
RUNS, TOGETHER = 200_000, 2_000
RATE, DIVISOR = 1e-3, 4.0
STEP = Gaussian(sigma=np.sqrt(CLIPPED_STEPS) / MU, sensitivity=1.0)
PAID = 8  # the canary's gradient has norm 1/2, so its budget lasts for eight steps

# the canary alone moves the first coordinate; the others' gradients exceed the clip
CANARY = np.array([1.0, 0.0])
OTHERS = np.array([[0.0, 4.0], [0.0, 5.0], [0.0, 6.0]])


class Careless:
    """A planted error: people go on contributing after they were refused."""

    def __init__(self, accounts):
        self.accounts = accounts

    def allowance(self, step):
        return np.full(len(self.accounts.spent()), step.sensitivity)

    def charge(self, step, norms):
        self.accounts.charge(step, norms)
        return np.ones(len(norms), dtype=bool)


class Shrinking:
    """A planted error: a run's noise is scaled by the share of its people who are active."""

    def __init__(self, generator, accounts):
        self.generator, self.accounts = generator, accounts

    def normal(self, mean, sigma, size):
        active = np.mean(self.accounts.left().reshape(TOGETHER, -1) > 1e-6, axis=1)
        return self.generator.normal(mean, sigma, size) * np.repeat(active, 2)[:, None]


def sums(present, steps, seed, *, accounts_as=lambda accounts: accounts, noise_as=lambda noise, accounts: noise):
    """(runs, steps): the first coordinate of each noisy sum, towards the canary, in many runs of Algorithm 8.

    Runs are made together, in one descent: each has coordinates and people of its own. Others' gradients are 0 there,
    accounts are each person's own, and noise is drawn for each coordinate, so they know nothing of one another.
    """
    people = np.vstack([CANARY, OTHERS]) if present else OTHERS
    x = sparse.block_diag([people] * TOGETHER, format="csr")
    noise, seen = np.random.default_rng(seed), np.zeros((RUNS, steps + 1))
    for first in range(0, RUNS, TOGETHER):
        gradients = LogisticGradients(x, np.ones(x.shape[0], dtype=int), 2, intercept=False)
        accounts = individual.Filter(x.shape[0], filters.Gaussian(mu=MU))

        def observe(number, parameters, first=first):
            seen[first : first + TOGETHER, number] = parameters[::2, 0]

        descend(
            gradients,
            gradients.start,
            accounts_as(accounts),
            STEP,
            steps=steps,
            learning_rate=RATE,
            divisor=DIVISOR,
            noise=noise_as(noise, accounts),
            descent=Descent(average=0.0, momentum=0.0, pace=0.0),
            observe=observe,
        )
        if present and accounts_as(accounts) is accounts and steps >= PAID:
            assert (accounts.left()[:: len(people)] < 0.02 * MU**2).all()  # each canary's budget is used up
    return np.diff(seen, axis=1) * DIVISOR / RATE


@pytest.fixture(scope="module")
def claimed():
    """The epsilon that the budget promises at DELTA."""
    return float(gaussian.epsilon(MU, delta=DELTA))


def test_the_audit_finds_nearly_what_is_claimed_and_no_more(claimed):
    """The empirical lower bound on epsilon is at most the claimed one and at least 85 % of it."""
    there, absent = sums(True, PAID, 1), sums(False, PAID, 2)
    found = epsilon_bound(there.sum(axis=1), absent.sum(axis=1))
    assert 0.85 * claimed <= found <= claimed


def test_nothing_more_can_be_learnt_after_the_budget_is_used(claimed):
    """With twice as many steps the bound over all of them stays below the claim, and the later ones tell nothing."""
    there, absent = sums(True, 2 * PAID, 3), sums(False, 2 * PAID, 4)
    assert epsilon_bound(there.sum(axis=1), absent.sum(axis=1)) <= claimed
    assert epsilon_bound(there[:, PAID + 1 :].sum(axis=1), absent[:, PAID + 1 :].sum(axis=1)) < 0.2


def test_contributing_after_a_refusal_is_caught(claimed):
    """The same audit exceeds the claim when people who were refused contribute all the same."""
    there = sums(True, 2 * PAID, 5, accounts_as=Careless)
    absent = sums(False, 2 * PAID, 6, accounts_as=Careless)
    assert epsilon_bound(there.sum(axis=1), absent.sum(axis=1)) > 1.1 * claimed


def test_noise_that_shrinks_with_the_active_people_is_caught(claimed):
    """The same audit exceeds the claim when noise is scaled by how many people are active."""
    there = sums(True, PAID, 7, noise_as=Shrinking)
    absent = sums(False, PAID, 8, noise_as=Shrinking)
    later = slice(CLIPPED_STEPS, PAID)
    assert epsilon_bound(there[:, later].sum(axis=1), absent[:, later].sum(axis=1)) > 1.1 * claimed
