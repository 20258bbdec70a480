"""A residue account for every person: never more than the filter of one account, and never more than its budget."""

from functools import lru_cache

import numpy as np
import pytest
import torch
from scipy import stats

from almoner import errors, filters, individual
from almoner import mechanisms as m
from almoner.accounting import calibrate
from almoner.curves import _residue

STEP = m.SampledGaussian(2.0, 1.0, 0.01)
BUDGET = {"epsilon": 1.0, "delta": 1e-5}


@pytest.fixture(autouse=True, scope="module")
def tables_built_once():
    """One table for each mechanism, for all tests of this module."""
    built = pytest.MonkeyPatch()
    built.setattr(_residue, "table", lru_cache(_residue.table))
    yield
    built.undo()


def people(count, **more):
    return individual.Filter(count, filters.Residue(**BUDGET), **more)


def steps_of(norms, step=STEP):
    """How many steps each person gets, by bisection over repeated ones."""
    low, high = np.zeros(len(norms), np.int64), np.full(len(norms), 2**24)
    while (high - low > 1).any():
        middle = (low + high) // 2
        fits = [
            people(1).admits(m.Repeated(step, int(k)), np.array([s]))[0] for k, s in zip(middle, norms, strict=True)
        ]
        low, high = np.where(fits, middle, low), np.where(fits, high, middle)
    return low


@pytest.mark.slow
def test_never_more_steps_than_one_account_and_few_less():
    """At norms on and off the grid, a person gets at most the steps of filters.Residue, and at most 10 % fewer; at the
    promise itself at most 2 %."""
    norms = np.array([1.0, 0.81, 0.3])
    for norm, steps in zip(norms, steps_of(norms), strict=True):
        alone = calibrate.steps(filters.Residue(**BUDGET), m.SampledGaussian(2.0, float(norm), 0.01))
        assert (0.98 if norm == 1.0 else 0.9) * alone <= steps <= alone


def test_repeated_rounds_cost_what_single_ones_do():
    """A Repeated leaves everybody where its rounds would, one by one, if all of them fit; and else untouched."""
    norms = np.array([1.0, 0.7, 0.33, 0.04, 0.0, np.nan])
    single, together = people(6), people(6)
    for times in (30, 900, 70):
        rows = [single.charge(STEP, norms) for _ in range(times)]
        active = together.charge(m.Repeated(STEP, times), norms)
        assert np.array_equal(active, np.all(rows, axis=0))
        assert np.array_equal(single.state()["spent"], together.state()["spent"])
    before = together.state()["spent"]
    assert together.charge(m.Repeated(STEP, 10**7), norms).tolist() == [False] * 3 + [False, True, False]
    assert np.array_equal(together.state()["spent"], before)


def test_nothing_contributed_is_free_and_unknown_norms_are_out():
    """Zero costs zero; NaN, negative and above the promise: out, and not charged; small norms cost the least row's."""
    accounts = people(7)
    active = accounts.charge(STEP, np.array([0.0, np.nan, -0.1, 1.0 + 1e-9, np.inf, 1e-300, 1.0]))
    assert active.tolist() == [True, False, False, False, False, True, True]
    spent = accounts.state()["spent"][:, 0]
    assert not spent[:5].any()
    assert 0 < spent[5] < spent[6]


def test_gaussian_rounds_and_pure_ones_share_the_account():
    """Gaussian noise takes mu squared, up to a unit; pure rounds take what one account takes, near their variance;
    Composed and rounds that may fail are refused."""
    accounts = people(3)
    assert accounts.charge(m.Gaussian(sigma=25.0), np.array([1.0, 0.5, 0.0])).all()
    assert accounts.charge(m.SampledGaussian(25.0, 1.0, 1.0), np.array([1.0, 0.5, 0.0])).all()
    gauss = accounts.state()["spent"][:, 0]
    assert np.all((gauss >= [32 * 10**11, 8 * 10**11, 0]) & (gauss <= [32 * 10**11 + 2, 8 * 10**11 + 2, 0]))
    assert accounts.charge(m.Pure(0.01), np.array([True, True, False])).all()
    taken = accounts.state()["spent"][:, 0] - gauss
    assert (taken[:2] >= 10**11).all()
    assert (taken[:2] < 1.01 * 10**11).all()
    assert taken[2] == 0
    assert accounts.charge(m.Pure(0.0), np.array([True, True, True])).all()
    assert not accounts.charge(m.Pure(3.0), np.array([True, True, True])).any()
    for bad in (m.Zcdp(0.1), m.Approximate(0.1, 1e-9), m.Composed((STEP,))):
        with pytest.raises(errors.Unsupported):
            accounts.charge(bad, np.array([True] * 3))
    with pytest.raises(errors.ArgumentError, match="bool"):
        accounts.charge(m.Pure(0.01), np.ones(3))
    with pytest.raises(errors.Unsupported):
        accounts.allowance(m.Pure(0.01))


def test_the_allowance_is_admitted_and_the_next_norm_is_not():
    """After different spends: whoever contributes the allowance is in; one norm of the table further is out."""
    accounts, table = people(60), filters.Residue(**BUDGET).notion.person_table(STEP)
    most_of_it = m.Gaussian(sigma=(filters.Residue(**BUDGET).left - 1e-4) ** -0.5)
    assert accounts.charge(most_of_it, np.sqrt(np.linspace(0.97, 1, 60))).all()
    most = accounts.allowance(STEP)
    assert accounts.admits(STEP, most).all()
    assert len(np.unique(most)) > 2
    above = np.minimum(np.searchsorted(table.norms, most) + 1, len(table.norms) - 1)
    beyond = table.norms[above]
    assert not accounts.admits(STEP, beyond)[most < 1].any()


def test_numpy_torch_and_splits_agree_and_states_are_exact():
    """PyTorch accounts, accounts charged in two parts, and restored ones: the same to the last unit."""
    rng = np.random.default_rng(0)
    first, second, parts = people(50), people(50, xp=torch), people(50)
    for _ in range(60):
        norms = rng.exponential(0.4, 50)
        active = first.charge(STEP, norms)
        assert np.array_equal(np.asarray(second.charge(STEP, torch.from_numpy(norms))), active)
        both = [parts.charge(STEP, norms[rows], rows) for rows in (np.arange(20), np.arange(20, 50))]
        assert np.array_equal(np.concatenate(both), active)
        parts = individual.Filter.from_state(parts.state())
    for accounts in (second, parts):
        assert np.array_equal(accounts.state()["spent"], first.state()["spent"])
    assert accounts.spent().max() > 0
    assert np.allclose(accounts.spent() + accounts.left(), accounts.spent()[0] + accounts.left()[0])


def test_slacks_never_exceed_their_part_of_delta():
    """Whatever a person is charged with, until nothing fits: the slacks of the rows add up to at most delta / 100."""
    table, rng = filters.Residue(**BUDGET).notion.person_table(STEP), np.random.default_rng(1)
    accounts, slack = people(40), [0] * 40
    for _ in range(4000):
        rows = rng.integers(1, len(table.norms), 40)
        rows[:10] = len(table.norms) - 1
        for person in np.flatnonzero(accounts.charge(STEP, table.norms[rows])):
            slack[person] += table.slacks[rows[person]]
    assert not accounts.admits(STEP, np.ones(40))[:10].any()
    assert 0.5e23 < max(slack) <= 10**23


@pytest.mark.slow
def test_an_adversary_who_chooses_each_norm_stays_below_delta():
    """A person whose norm is chosen by the realised loss, at epsilon 1 and delta 0.01, 200,000 games: the share of
    failures is below delta (error 1e-4), and it is not negligible."""
    games, epsilon, delta = 200_000, 1.0, 0.01
    rng, step = np.random.default_rng(2), m.SampledGaussian(2.0, 1.0, 0.5)
    accounts = individual.Filter(games, filters.Residue(epsilon=epsilon, delta=delta))
    loss = np.zeros(games)
    for _ in range(60):
        norms = np.where(loss > 0.5 * epsilon, 1.0, 0.5)
        norms = np.where(loss > epsilon, 0.0, norms)
        active = accounts.charge(step, norms) & (norms > 0)
        if not active.any():
            break
        mean = norms * (rng.random(games) < step.sample_rate)
        x = mean + step.sigma * rng.standard_normal(games)
        ratio = np.exp((norms * x - norms**2 / 2) / step.sigma**2)
        loss += np.where(active, np.log1p(step.sample_rate * (ratio - 1)), 0.0)
    heads = int(np.sum(rng.random(games) < np.where(loss > epsilon, -np.expm1(np.minimum(epsilon - loss, 0)), 0.0)))
    low = stats.beta.ppf(1e-4, heads, games - heads + 1)
    assert low <= delta
    assert heads / games > 0.1 * delta


def test_steps_of_unknown_contributions_are_written_off_in_full():
    """After a crash everybody pays the full price of the step, bools or norms; whoever cannot has nothing left."""
    accounts, full = people(3), people(1)
    most_of_it = m.Gaussian(sigma=(filters.Residue(**BUDGET).left - 1e-5) ** -0.5)
    accounts.charge(most_of_it, np.array([1.0, 0.5, 0.0]))
    before = accounts.spent()
    accounts.write_off(STEP)
    full.charge(STEP, np.ones(1))
    assert accounts.left()[0] == 0
    assert accounts.spent()[1] - before[1] >= full.spent()[0]
    assert accounts.spent()[2] == full.spent()[0]
    accounts.write_off(m.Pure(0.01))
    assert (accounts.spent()[1:] > before[1:] + full.spent()[0]).all()


@pytest.mark.parametrize("budget", [filters.Residue(**BUDGET), filters.Renyi(**BUDGET), filters.Zcdp(**BUDGET)])
def test_a_round_that_may_fail_is_never_free(budget):
    """Accounts per person keep no part of delta for failures, so they refuse rounds that may fail, at epsilon 0 too."""
    people = individual.Filter(2, budget)
    with pytest.raises(errors.Unsupported, match="may fail"):
        people.charge(m.Approximate(0.0, 0.1), np.array([True, True]))
