"""What right guesses refute: exact enumeration, simulated audits with a stated rate of false alarms, planted errors."""

import re
from itertools import product
from math import comb, exp, inf, sqrt

import numpy as np
import pytest
from scipy.stats import binom, norm

from almoner import audit
from almoner.audit import _canaries
from almoner.audit._canaries import LARGEST_MU
from almoner.curves import gaussian
from almoner.errors import ArgumentError


@pytest.mark.parametrize("epsilon", [0.0, 0.3, 1.0, 2.5])
def test_randomised_response_reaches_the_pure_bound(epsilon):
    """Every canary by randomised response: the p-value is the exact chance, by summing over all outcomes."""
    right = 1 / (1 + exp(-epsilon))
    for canaries in (1, 5, 9):
        outcomes = list(product([0, 1], repeat=canaries))
        for correct in range(canaries + 1):
            exact = sum(right ** sum(o) * (1 - right) ** (canaries - sum(o)) for o in outcomes if sum(o) >= correct)
            bound = _canaries.p_value(correct, guesses=canaries, canaries=canaries, epsilon=epsilon)
            assert bound == pytest.approx(exact, rel=1e-12)


def test_the_failure_term_is_that_of_the_paper():
    """With delta: the sum written out term by term, as in Appendix D of the paper."""
    m, r, v, epsilon, delta = 40, 20, 16, 0.7, 1e-3
    q = 1 / (1 + exp(-epsilon))
    mass = [comb(r, k) * q**k * (1 - q) ** (r - k) for k in range(r + 1)]
    alpha = max(sum(mass[v - i : v]) / i for i in range(1, v + 1))
    expected = sum(mass[v:]) + 2 * m * delta * alpha
    found = _canaries.p_value(v, guesses=r, canaries=m, epsilon=epsilon, delta=delta)
    assert found == pytest.approx(expected, rel=1e-10)


@pytest.mark.parametrize("delta", [0.02, 0.2])
def test_a_mechanism_that_fails_openly_stays_below_the_bound(delta):
    """With probability delta each canary is told outright, else randomised response: exact chances are within."""
    epsilon, m = 0.8, 8
    right = delta + (1 - delta) / (1 + exp(-epsilon))
    for correct in range(m + 1):
        exact = binom.sf(correct - 1, m, right)
        assert exact <= _canaries.p_value(correct, guesses=m, canaries=m, epsilon=epsilon, delta=delta) + 1e-12


@pytest.mark.parametrize("mu", [0.2, 1.0, 2.5])
@pytest.mark.parametrize(("canaries", "guesses"), [(6, 6), (12, 4), (30, 6)])
def test_gaussian_guesses_stay_below_the_bound(canaries, guesses, mu):
    """Independent Gaussian outputs, all guessed or the clearest alone: simulated chances are within four errors."""
    rng, runs = np.random.default_rng(3), 20_000
    included = rng.random((runs, canaries)) < 0.5
    scores = mu * included + rng.normal(size=(runs, canaries))
    order, half, rows = np.argsort(scores, axis=1), guesses // 2, np.arange(runs)[:, None]
    correct = included[rows, order[:, -half:]].sum(axis=1) + (~included[rows, order[:, :half]]).sum(axis=1)
    for at_least in range(1, guesses + 1):
        seen = np.mean(correct >= at_least)
        bound = _canaries.gaussian_p_value(at_least, guesses=guesses, canaries=canaries, mu=mu)
        assert seen <= bound + 4 * sqrt(seen * (1 - seen) / runs) + 1e-9


def test_one_canary_is_the_best_test():
    """One canary, one guess: no more likely right than the best test at even odds, Phi(mu / 2), and at least that."""
    for mu in (0.0, 0.5, 2.0):
        chance = _canaries.gaussian_p_value(1, guesses=1, canaries=1, mu=mu)
        assert chance == pytest.approx(norm.cdf(mu / 2), abs=1e-6)


def train(mu, rng, noise=1.0):
    """A worst-case training: every canary along an axis of its own; outputs are the scores."""
    return lambda included: included * mu + noise * rng.normal(size=len(included))


@pytest.mark.slow
def test_one_run_reaches_the_claim_and_is_never_above_it():
    """A Gaussian worst case at epsilon 4.4 and 10: at least 60 % of the claimed epsilon, with 95 % confidence."""
    for mu in (1.0, 2.0):
        claim = gaussian.epsilon(mu, delta=1e-5)
        for seed in range(2):
            rng = np.random.default_rng(100 + seed)
            result = audit.one_run(train(mu, rng), canaries=100_000, guesses=4_000, seed=seed)
            assert 0.6 * claim < gaussian.epsilon(result.mu(), delta=1e-5) < claim
            assert result.mu() < mu
            assert 0 < result.epsilon(delta=1e-5) < claim
            assert not result.refutes(mu=mu)
            assert not result.refutes(epsilon=claim, delta=1e-5)
            assert "not refuted" in result.beside(mu=mu, delta=1e-5)


def test_planted_errors_of_a_training_are_above_the_claim():
    """A third of the noise, a sum over four steps that is charged as one: refuted."""
    rng = np.random.default_rng(5)
    for broken in (train(1.0, rng, noise=1 / 3), train(2.0, rng)):
        result = audit.one_run(broken, canaries=20_000, guesses=400, seed=1)
        assert result.mu() > 1.0
        assert result.refutes(mu=1.0)
        assert "REFUTED" in result.beside(mu=1.0, delta=1e-5)
        assert result.epsilon(delta=1e-5) > 2


@pytest.mark.parametrize("confidence", [0.95, 0.999, 0.9999])
@pytest.mark.parametrize("correct", [650, 812, 999])
def test_the_sentence_says_no_more_than_the_bounds(correct, confidence):
    """Lower bounds are rounded down, claims up, and a confidence of 99.9 % is not called 100 %."""
    result = audit.OneRun(correct, 1_000, 100_000, confidence)
    said = [
        float(each) for each in re.findall(r"(?:>=|=|with) ([0-9.e-]+[0-9])", result.beside(mu=1.23456, delta=1e-5))
    ]
    told, low, reached, delta, mu, epsilon = said
    assert (told, delta) == (100 * confidence, 1e-5)
    assert low <= result.mu() < low * 1.001
    assert reached <= gaussian.epsilon(result.mu(), delta=1e-5)
    assert mu >= 1.23456
    assert epsilon >= gaussian.epsilon(1.23456, delta=1e-5)


@pytest.mark.slow
def test_false_alarms_are_at_most_one_in_twenty():
    """Of 2,000 audits of a training that keeps its claim, by each of the three bounds, at most 5 % are above it."""
    rng, mu, runs = np.random.default_rng(11), 0.8, 2_000
    low, low_epsilon, many = 0, 0, 0
    refuted = {
        correct: (
            audit.OneRun(correct, 60, 200).refutes(mu=mu),
            audit.OneRun(correct, 60, 200).refutes(epsilon=gaussian.epsilon(mu, delta=1e-2), delta=1e-2),
        )
        for correct in range(61)
    }
    for _ in range(runs):
        included = rng.random(200) < 0.5
        scores = mu * included + rng.normal(size=200)
        order = np.argsort(scores)
        correct = int(included[order[-30:]].sum() + (~included[order[:30]]).sum())
        low, low_epsilon = low + refuted[correct][0], low_epsilon + refuted[correct][1]
        hits, alarms = rng.binomial(40, norm.sf(0.4 - mu)), rng.binomial(40, norm.sf(0.4))
        many += audit.ManyRuns(int(hits), 40, int(alarms), 40).mu() > mu
    assert max(low, low_epsilon, many) <= 0.05 * runs


def test_many_runs_bound_the_truth():
    """A threshold on 4,000 runs each: below the truth, and near it; with a third of the noise the claim falls."""
    rng = np.random.default_rng(0)
    result = audit.many_runs(1.5 + rng.normal(size=4_000), rng.normal(size=4_000))
    assert 0.75 < result.mu() < 1.5
    assert 0.4 * gaussian.epsilon(1.5, delta=0.02) < result.epsilon(delta=0.02) < gaussian.epsilon(1.5, delta=0.02)
    worse = audit.many_runs(4.5 + rng.normal(size=4_000), rng.normal(size=4_000))
    assert worse.mu() > 1.5


@pytest.mark.parametrize(("delta", "peer"), [(0.1, 6.30), (1e-5, 7.07)])
def test_epsilon_of_many_runs_uses_the_tails(delta, peer):
    """N(3, 1) against N(0, 1), 100,000 scores each, nine seeds: the median is at least that of all thresholds of the
    convex hull with Bonferroni's correction at the same confidence; the best threshold for mu gave 2.8 and 3.1."""
    bounds = []
    for seed in range(9):
        rng = np.random.default_rng(seed)
        result = audit.many_runs(3 + rng.normal(size=100_000), rng.normal(size=100_000))
        bounds.append(result.epsilon(delta=delta))
    assert peer <= np.median(bounds)
    assert max(bounds) <= gaussian.epsilon(3.0, delta=delta)


def test_a_small_epsilon_is_not_taken_for_zero():
    """N(1, 1) against N(0, 1) at delta 0.1, true epsilon 1.16: above 1 for each of nine seeds."""
    for seed in range(9):
        rng = np.random.default_rng(seed)
        result = audit.many_runs(1 + rng.normal(size=100_000), rng.normal(size=100_000))
        assert 1.0 < result.epsilon(delta=0.1) < gaussian.epsilon(1.0, delta=0.1)


@pytest.mark.slow
@pytest.mark.parametrize("runs", [12, 100])
@pytest.mark.parametrize("rounded", [False, True])
def test_many_runs_are_above_the_truth_once_in_twenty_at_most(runs, rounded):
    """Of 500 audits that may choose the delta afterwards, at most 5 % are above the truth anywhere; scores that are
    rounded, so that many are the same, too."""
    rng, mu, above = np.random.default_rng(4), 1.0, 0
    deltas = (0.0, 1e-3, 0.05, 0.2)
    true = [inf if not delta else gaussian.epsilon(mu, delta=delta) for delta in deltas]
    for _ in range(500):
        there, absent = mu + rng.normal(size=runs), rng.normal(size=runs)
        if rounded:
            there, absent = np.round(there), np.round(absent)
        result = audit.many_runs(there, absent)
        told = [result.epsilon(delta=delta) for delta in deltas]
        above += result.mu() > mu or any(one > most for one, most in zip(told, true, strict=True))
    assert above <= 25


def test_places_of_thresholds_are_fixed_by_the_number_of_runs():
    """Whatever the scores, so that each bound holds for its place; ties count as alarms and misses."""
    rng = np.random.default_rng(0)
    one, other = (audit.many_runs(rng.normal(size=50), rng.normal(size=40)) for _ in range(2))
    half = len(one.alarms) // 2
    assert one.alarms[: half - 1] == other.alarms[: half - 1] == (0, 1, 3, 7, 15, 31)[: half - 1]
    same = audit.many_runs([0.0] * 8, [0.0] * 8)
    assert same.mu() == same.epsilon(delta=0.0) == 0


def test_rates_by_hand():
    """No hits, no alarms, all hits: Clopper-Pearson at the ends."""
    assert audit.ManyRuns(0, 10, 0, 10).mu() == 0
    all_right = audit.ManyRuns(10, 10, 0, 10)
    least = 0.025 ** (1 / 10)
    assert all_right.mu() == pytest.approx(norm.ppf(least) - norm.ppf(1 - least), rel=1e-9)
    assert all_right.epsilon(delta=0.0) == pytest.approx(np.log(least / (1 - least)), rel=1e-9)


def test_bounds_grow_with_right_guesses():
    """More right guesses refute more; no more than chance refutes nothing; all right is finite."""
    bounds = [audit.OneRun(correct, 50, 100).mu() for correct in range(0, 51, 5)]
    assert bounds == sorted(bounds)
    assert bounds[5] == 0 < bounds[-1] < LARGEST_MU
    assert audit.OneRun(25, 50, 100).epsilon(delta=0.0) == 0
    with_delta = audit.OneRun(50, 50, 100).epsilon(delta=1e-5)
    assert 0 < with_delta < audit.OneRun(50, 50, 100).epsilon(delta=0.0)


@pytest.mark.parametrize(
    "wrong",
    [
        lambda: _canaries.p_value(3, guesses=2, canaries=5, epsilon=1.0),
        lambda: _canaries.p_value(1, guesses=2, canaries=5, epsilon=float("nan")),
        lambda: _canaries.p_value(1, guesses=2, canaries=5, epsilon=1.0, delta=2.0),
        lambda: _canaries.gaussian_p_value(1, guesses=2, canaries=1, mu=1.0),
        lambda: audit.OneRun(1, 2, 2, confidence=1.0).mu(),
        lambda: audit.one_run(lambda included: included, canaries=10, guesses=3),
        lambda: audit.one_run(lambda included: included, canaries=10, guesses=12),
        lambda: audit.one_run(lambda included: [1.0], canaries=10, guesses=4),
        lambda: audit.one_run(lambda included: included * np.nan, canaries=10, guesses=4),
        lambda: audit.many_runs([1.0] * 3, [0.0] * 9),
        lambda: audit.ManyRuns(11, 10, 0, 10).mu(),
        lambda: audit.ManyRuns((1, 2), 10, (0,), 10).mu(),
        lambda: audit.OneRun(1, 2, 3).refutes(),
    ],
)
def test_wrong_use_is_refused(wrong):
    """By name, before anything is trained."""
    with pytest.raises(ArgumentError):
        wrong()
