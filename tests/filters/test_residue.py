"""The residue filter: its charges against independent high precision, its adversaries, its figures."""

import json
import math
import time
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import laplace, norm

from almoner import errors, filters
from almoner import mechanisms as m
from almoner._units import MEASURE, up
from almoner.accounting import calibrate
from almoner.curves import _residue, gaussian
from enumeration import delta as true_delta
from enumeration import leak, response

GOLDEN = json.loads((Path(__file__).parents[1] / "golden" / "residue_steps.json").read_text(encoding="utf-8"))


# ---- the filter ----------------------------------------------------------------------------------------------------


def test_pure_rounds():
    """0.01-DP rounds at (1, 1e-6): at least 550 fit; 562 is the optimum when their number is fixed in advance."""
    assert 550 <= calibrate.steps(filters.Residue(epsilon=1.0, delta=1e-6), m.Pure(0.01)) <= 562
    assert calibrate.steps(filters.Approximate(epsilon=1.0, delta=1e-6), m.Pure(0.01)) == 349


@pytest.mark.slow
@pytest.mark.parametrize(("row", "share"), list(zip(GOLDEN["rows"], (0.93, 0.97, 0.98), strict=True)))
def test_sampled_gaussian_steps(row, share):
    """q = 0.01, sigma = 2, delta = 1e-5: at least this share of the steps that fit when fixed in advance (PLD)."""
    step = m.SampledGaussian(GOLDEN["sigma"], 1.0, GOLDEN["sample_rate"])
    exact = row["steps"]["2e-05"]
    steps = calibrate.steps(filters.Residue(epsilon=row["epsilon"], delta=GOLDEN["delta"]), step)
    assert share * exact <= steps <= exact


@pytest.mark.slow
def test_a_table_is_built_in_seconds_and_used_in_microseconds():
    """A whole run over all states with a mechanism that is new: below 10 s; the same again: 20,000 charges a second."""
    step = m.SampledGaussian(1.7, 1.0, 0.013)
    start = time.process_time()
    steps = calibrate.steps(filters.Residue(epsilon=4.0, delta=1e-5), step)
    assert time.process_time() - start < 10
    account = filters.Residue(epsilon=4.0, delta=1e-5)
    start = time.perf_counter()
    for _ in range(1000):
        account.charge(step)
    assert time.perf_counter() - start < 0.5
    assert steps > 1000


def test_gaussian_rounds_cost_mu_squared_exactly():
    """A Gaussian mechanism takes mu squared, to the unit, and no slack."""
    account = filters.Residue(epsilon=1.0, delta=1e-6)
    account.charge(m.Repeated(m.Gaussian(sigma=25.0), 3))
    account.charge(m.SampledGaussian(sigma=50.0, sample_rate=1.0))
    assert account.state()["spent"][0] == 3 * MEASURE // 625 + MEASURE // 2500
    assert account.state()["spent"][2] == 0


MIXED = [m.Pure(0.02), m.Laplace(40.0), m.SampledGaussian(2.0, 1.0, 0.05), m.Gaussian(30.0), m.Exponential(0.04)]


@pytest.mark.slow
@settings(max_examples=25)
@given(st.lists(st.tuples(st.sampled_from(MIXED), st.integers(0, 60)), min_size=1, max_size=5))
def test_repeated_rounds_cost_what_single_ones_do(plan):
    """Repeated and composed rounds leave the same state, to the last unit, as one after the other; or are refused."""
    together, single = (filters.Residue(epsilon=1.0, delta=1e-5, sum_delta=0.0) for _ in range(2))
    fits = True
    try:
        for mechanism, count in plan:
            for _ in range(count):
                single.charge(mechanism)
    except errors.BudgetExceeded:
        fits = False
    whole = m.Composed(tuple(m.Repeated(mechanism, count) for mechanism, count in plan))
    assert together.admits(whole) == fits
    if fits:
        together.charge(whole)
        assert together.state() == single.state()


@pytest.mark.slow
def test_repeated_blocks_cost_what_single_ones_do():
    """A block of several mechanisms, many times: the same as one after the other, and a million times in one go."""
    block = m.Composed((m.Pure(0.03), m.Repeated(m.Laplace(60.0), 3)))
    singly, at_once = (filters.Residue(epsilon=1.0, delta=1e-5) for _ in range(2))
    while singly.admits(block):
        singly.charge(block)
    blocks = singly.count // 4
    assert calibrate.steps(filters.Residue(epsilon=1.0, delta=1e-5), block) == blocks > 10
    at_once.charge(m.Repeated(block, blocks))
    assert at_once.state() == singly.state()
    tiny = m.Composed((m.Pure(1e-5), m.Laplace(1e5)))
    assert filters.Residue(epsilon=1.0, delta=1e-5).admits(m.Repeated(tiny, 10**6))
    assert not filters.Residue(epsilon=1.0, delta=1e-5).admits(m.Repeated(m.Repeated(tiny, 10**9), 10**20))
    assert filters.Residue(epsilon=1.0, delta=1e-5).admits(m.Repeated(m.Composed((m.Pure(0.0), m.Pure(0.0))), 10**30))


@pytest.mark.parametrize("mechanism", [m.Pure(1e-60), m.Laplace(1e20), m.SampledGaussian(1.0, 1.0, 1e-300)], ids=str)
def test_a_round_that_tells_next_to_nothing_is_nearly_free(mechanism):
    """Not what rounding needs where there is no slack: less than a hundred-millionth of the budget, and finite."""
    account = filters.Residue(epsilon=1.0, delta=1e-5)
    account.charge(mechanism)
    assert 0 < account.spent <= 1e-12
    assert account.admits(m.Repeated(mechanism, 10**9))


def test_more_noise_than_counts_is_priced_as_the_most_that_does():
    """A noise of 1e60 costs what one of a million costs, in both of a round's directions."""
    account = filters.Residue(epsilon=1.0, delta=1e-5)
    account.charge(m.SampledGaussian(1e60, 1.0, 0.5))
    assert 0 < account.spent <= 1e-11


def test_a_run_saved_and_restored_goes_on_the_same():
    """state() and from_state() at every tenth round change nothing; a refusal changes nothing either."""
    straight, saved = (filters.Residue(epsilon=1.0, delta=1e-5) for _ in range(2))
    for round_ in range(80):
        mechanism = MIXED[round_ % len(MIXED)]
        straight.charge(mechanism)
        saved.charge(mechanism)
        if round_ % 10 == 0:
            before = saved.state()
            with pytest.raises(errors.BudgetExceeded):
                saved.charge(m.Pure(0.999))
            assert saved.state() == before
            saved = filters.Residue.from_state(json.loads(json.dumps(before)))
    assert straight.state() == saved.state()


def test_failures_come_out_of_their_own_share():
    """An (epsilon, delta) round costs what the pure one costs, and its delta; more than the share is refused."""
    account = filters.Residue(epsilon=1.0, delta=1e-5, sum_delta=5e-6)
    pure = filters.Residue(epsilon=1.0, delta=1e-5, sum_delta=5e-6)
    account.charge(m.Repeated(m.Approximate(0.02, 1e-6), 5))
    pure.charge(m.Repeated(m.Pure(0.02), 5))
    assert account.spent == pure.spent
    assert not account.admits(m.Approximate(0.02, 1e-12))
    assert account.admits(m.Pure(0.02))


@settings(max_examples=30)
@given(st.lists(st.sampled_from([0.001, 0.01, 0.1, 0.3]), max_size=40))
def test_never_less_than_basic_composition(epsilons):
    """What fits by adding up epsilons fits here, in any order."""
    basic, account = filters.Basic(epsilon=1.0), filters.Residue(epsilon=1.0, delta=1e-6)
    for epsilon in epsilons:
        if basic.admits(m.Pure(epsilon)):
            basic.charge(m.Pure(epsilon))
            account.charge(m.Pure(epsilon))


@pytest.mark.parametrize("mechanism", [m.Zcdp(0.01), m.Renyi((2.0,), (0.1,)), m.DiscreteGaussian(10.0, 2.0)])
def test_without_a_dominating_pair_there_is_no_charge(mechanism):
    """Costs that are known as numbers only are refused as unsupported, and nothing is spent."""
    account = filters.Residue(epsilon=1.0, delta=1e-6)
    with pytest.raises(errors.Unsupported):
        account.charge(mechanism)
    assert account.state()["count"] == 0


@pytest.mark.parametrize(
    "mechanism", [m.Pure(math.inf), m.Pure(200.0), m.SampledGaussian(1e-3, 1.0, 0.1), m.Laplace(1e-3)]
)
def test_what_reveals_too_much_is_refused(mechanism):
    """Infinite and huge epsilons are refused without a number going wrong."""
    with pytest.raises(errors.BudgetExceeded):
        filters.Residue(epsilon=5.0, delta=1e-3).charge(mechanism)


@pytest.mark.parametrize("epsilon", [1e-3, 60.0, 1e6])
def test_budgets_far_from_one_work(epsilon):
    """Tiny and enormous budgets, and steps that cost next to nothing: no warning and no refusal."""
    account = filters.Residue(epsilon=epsilon, delta=1e-9)
    b = min(math.sqrt(account.left), 60.0)
    for mechanism in (m.Pure(b / 10), m.Laplace(10 / b), m.Exponential(b / 10), m.SampledGaussian(1e8, 1.0, 0.1)):
        account.charge(mechanism)


# ---- adversaries ---------------------------------------------------------------------------------------------------


def cells(cdf, ends):
    return np.diff(np.concatenate(([0.0], cdf(ends), [1.0])))


def menu(b):
    """Rounds of all kinds and sizes beside b, post-processed to a few outcomes: (mechanism, P, Q), both ways round."""
    rounds = []
    for x in (0.1, 0.3, 0.5, 0.65, 0.75, 0.8):
        p = 1 / (1 + math.exp(-b * x))
        rounds.append((m.RandomizedResponse(b * x), np.array([p, 1 - p]), np.array([1 - p, p])))
    for rare, x in ((0.02, 0.5), (0.02, 0.8), (0.3, 0.7), (0.6, 0.6)):
        q = rare * math.exp(-b * x)
        epsilon = max(b * x, math.log((1 - q) / (1 - rare)))
        rounds.append((m.Pure(epsilon * (1 + 1e-9)), np.array([rare, 1 - rare]), np.array([q, 1 - q])))
    for x in (0.5, 0.9, 0.999):
        ends = np.linspace(-3, 3 + b * x, 14)
        rounds.append((m.Gaussian(1 / (b * x)), cells(norm(b * x).cdf, ends), cells(norm.cdf, ends)))
    ends = np.linspace(0, 0.8 * b, 8)
    rounds.append((m.Laplace(1 / (0.8 * b)), cells(laplace(0.8 * b).cdf, ends), cells(laplace.cdf, ends)))
    for q in (0.05, 0.3):
        z, ends = 1.5 / b * q, np.linspace(-3 * 1.5 / b * q, 1 + 3 * 1.5 / b * q, 14)
        base = cells(norm(0, z).cdf, ends)
        rounds.append((m.SampledGaussian(z, 1.0, q), (1 - q) * base + q * cells(norm(1, z).cdf, ends), base))
    return rounds + [(mechanism, back, there) for mechanism, there, back in rounds]


def best_adversary(account, rounds, depth, epsilon, basic=True):
    """The largest delta that any choice of rounds reaches, each chosen from the outcomes so far (dynamic programme).

    Without ``basic``, rounds that are admitted by basic composition are left out.
    """
    known = {}

    def next_states(state):
        if state not in known:
            known[state] = []
            for mechanism, there, back in rounds:
                world = filters.Residue.from_state(json.loads(state))
                if world.admits(mechanism):
                    world.charge(mechanism)
                    if basic or world.spent < math.inf:
                        known[state].append((there, back, json.dumps(world.state())))
        return known[state]

    def value(state, p, q, rest):
        best = np.maximum(0.0, p - math.exp(epsilon) * q)
        if rest:
            for there, back, after in next_states(state):
                deeper = value(after, np.outer(p, there).ravel(), np.outer(q, back).ravel(), rest - 1)
                best = np.maximum(best, deeper.reshape(len(p), -1).sum(axis=1))
        return best

    return float(value(json.dumps(account.state()), np.ones(1), np.ones(1), depth)[0])


@pytest.mark.slow
@pytest.mark.parametrize(("epsilon", "delta"), [(0.3, 0.05), (1.0, 0.01), (3.0, 0.05), (1.0, 1e-4)])
def test_the_best_two_round_adversary_stays_below_delta(epsilon, delta):
    """An optimal adversary over 32 kinds of rounds reaches over 80 % of delta and never more than delta."""
    account = filters.Residue(epsilon=epsilon, delta=delta)
    b = math.sqrt(account.left)
    assert 0.8 * delta < best_adversary(account, menu(b), 2, epsilon) <= delta
    for e in (epsilon / 2, 2 * epsilon):  # and the promise at other epsilons
        bound = float(gaussian.delta(b, epsilon=e)) + delta / 100
        assert best_adversary(account, menu(b), 2, e, basic=False) <= bound


@pytest.mark.slow
@pytest.mark.parametrize(("epsilon", "delta"), [(0.3, 0.05), (1.0, 0.1)])
def test_the_best_five_round_adversary_stays_below_delta(epsilon, delta):
    """The same with five rounds of randomised response of three sizes, large beside b."""
    account = filters.Residue(epsilon=epsilon, delta=delta)
    rounds = [round_ for round_ in menu(math.sqrt(account.left))[1:5] if isinstance(round_[0], m.RandomizedResponse)]
    assert 0.5 * delta < best_adversary(account, rounds, 5, epsilon) <= delta


@pytest.mark.slow
@pytest.mark.parametrize(("epsilon", "delta"), [(0.3, 0.05), (1.0, 0.01)])
def test_the_adversary_catches_charges_that_are_too_small(epsilon, delta, monkeypatch):
    """The adversary can win: against a filter that charges the variance of the loss, in any state, it exceeds delta."""

    def variance(mechanism, *, square, slack):
        cost = up(_residue.size(mechanism))
        return cost if cost <= square else math.inf

    monkeypatch.setattr(_residue, "cost", variance)
    account = filters.Residue(epsilon=epsilon, delta=delta)
    assert best_adversary(account, menu(math.sqrt(account.left)), 2, epsilon) > delta


@pytest.mark.slow
def test_leaks_and_responses_enumerated():
    """Randomised responses and leaks, as many as are admitted, each chosen by the last outcome: at most delta."""
    for swap in (False, True):
        tree = _random_tree(filters.Residue(epsilon=0.5, delta=0.05, sum_delta=0.02), np.random.default_rng(9), 6, swap)
        assert 0 < true_delta(tree, 0.5) <= 0.05


def _random_tree(account, rng, depth, swap):
    """A random interaction that the filter admits, grown as far as it lets it."""
    choices = [(m.RandomizedResponse(0.15), response(0.15)), (m.Approximate(0.0, 0.004), leak(0.004))]
    mechanism, round_ = choices[int(rng.random() < 0.3) ^ swap]
    if not depth or not account.admits(mechanism):
        return None
    account.charge(mechanism)
    state = account.state()
    return round_.then(*(_random_tree(filters.Residue.from_state(state), rng, depth - 1, swap) for _ in round_.there))
