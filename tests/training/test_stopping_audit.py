"""Audits of what stopping rules release: sums, counts and answers together keep below the claim."""

from itertools import product

import numpy as np
import pytest
from scipy import stats

from almoner import filters, individual, mechanisms
from almoner.curves import gaussian
from almoner.training.stopping import Dropouts, SquareRoot, StillActive
from drop_counts import STEP, both, budget, decoder_and_encoder


def stop_times(activity, scale, threshold_scale, at_least=0.0):
    """P(first "no" at 1, ..., k; never) for the numbers active, by quadrature over the threshold's noise."""
    z, dz = np.linspace(-60, 60, 48_001, retstep=True)
    density = stats.laplace.pdf(z, scale=threshold_scale) * dz
    stay = [stats.laplace.sf(at_least + z - count, scale=scale) for count in activity]
    chances, alive = [], np.ones_like(z)
    for each in stay:
        chances.append(np.sum(density * alive * (1 - each)))
        alive = alive * each
    return np.array([*chances, np.sum(density * alive)])


def test_the_scales_make_the_answers_epsilon_dp():
    """For every pattern of one person's presence in five steps, no answer is more than e^epsilon likelier; and with
    a threshold that has hardly any noise some are."""
    epsilon = 1.2
    scale = StillActive(individual.Filter(1, filters.Zcdp(rho=2.0)), at_least=1, epsilon=epsilon)._scale
    worst = {scale: 0.0, 0.1: 0.0}
    for others, present in product(([3, 3, 3, 3, 3], [2, 0, -1, -4, 5]), range(6)):
        without = np.array(others, dtype=float)
        there = without + (np.arange(5) < present)  # present until the drop
        for threshold_scale in worst:
            a, b = stop_times(there, scale, threshold_scale), stop_times(without, scale, threshold_scale)
            worst[threshold_scale] = max(worst[threshold_scale], float(np.max(np.abs(np.log(a / b)))))
    assert 0.5 * epsilon < worst[scale] <= epsilon + 1e-6
    assert worst[0.1] > 1.2 * epsilon


MU, DELTA, T, RUNS = 1.0, 0.02, 16, 2500

SHARE = 2 / 3  # of the budget for the counts

AFFORDED = 4  # steps that the canary can pay for besides


class Unpaid(Dropouts):
    """A planted error: drops are counted, but nobody has paid."""

    def __init__(self, people, counter, **more):
        super().__init__(people, counter, **more)
        people.refund(self.price, np.ones(len(people.spent()), bool))


def transcript(kind, present, seed, *, accounts_as=Dropouts):
    """(runs, steps) noisy sums and noisy counts, and what the canary moved in them, in many runs."""
    noise = np.random.default_rng(seed)
    counter = kind(T, kind(T, 1.0).mechanism.sensitivity / (MU * np.sqrt(SHARE)) * (1 + 1e-9))
    step = mechanisms.Gaussian(sigma=np.sqrt(AFFORDED / (1 - SHARE)) / MU * (1 + 1e-6))
    others = np.array([0.05, 0.04, 0.0])
    norms = np.array([1.0, *others]) if present else others
    sums, counts = np.zeros((2, RUNS, T))
    moved = np.zeros(T)
    for run in range(RUNS):
        accounts = accounts_as(individual.Filter(len(norms), budget(MU)), counter, noise=noise)
        for t in range(T):
            active = accounts.charge(step, norms)
            sums[run, t] = norms @ active - others.sum()
            counts[run, t] = accounts.count
            moved[t] = active[0] and present
    return sums + noise.normal(0, step.sigma, sums.shape), counts, moved, step.sigma, counter.sigma


def found(kind, seed, **more):
    """A lower bound on epsilon with 95 % confidence, from the best statistic for Gaussian noise."""
    sums, counts, moved, sigma, counter_sigma = transcript(kind, True, seed, **more)
    sums_without, counts_without, *_ = transcript(kind, False, seed + 1, **more)
    left, right = decoder_and_encoder(kind, T)
    decoded = np.linalg.inv(left).T @ right[:, int(moved.sum())] / counter_sigma**2
    there = sums @ moved / sigma**2 + counts @ decoded
    absent = sums_without @ moved / sigma**2 + counts_without @ decoded
    square = moved @ moved / sigma**2 + decoded @ left @ left.T @ decoded * counter_sigma**2
    grid = np.linspace(-1, square + 4, 500)  # the best threshold for Gaussian noise, fixed before the runs are judged
    score = stats.norm.sf(grid, square, np.sqrt(square)) - DELTA, stats.norm.sf(grid, 0, np.sqrt(square)) + 4 / RUNS
    threshold = grid[np.argmax(score[0] / score[1])]
    hits, alarms = int(np.sum(there > threshold)), int(np.sum(absent > threshold))
    low = stats.binomtest(hits, RUNS).proportion_ci(0.95, method="exact").low
    high = stats.binomtest(alarms, RUNS).proportion_ci(0.95, method="exact").high
    return float(np.log((low - DELTA) / high)), int(moved.sum())


@pytest.mark.slow
@both
def test_an_audit_of_sums_and_counts_keeps_below_the_claim(kind):
    """A canary that takes part, drops and is counted: the bound found is at most the claim and at least 60 % of it."""
    claimed = float(gaussian.epsilon(MU, delta=DELTA))
    bound, took_part = found(kind, 20)
    assert took_part == AFFORDED
    assert 0.6 * claimed <= bound <= claimed


@pytest.mark.slow
def test_counting_drops_without_paying_is_caught():
    """The same audit exceeds the claim when nothing was booked for the counts."""
    bound, took_part = found(SquareRoot, 30, accounts_as=Unpaid)
    assert took_part == round(AFFORDED / (1 - SHARE))
    assert bound > 1.05 * float(gaussian.epsilon(MU, delta=DELTA))


@pytest.mark.slow
def test_an_audit_of_still_active_keeps_below_the_claim():
    """How soon the answer is "no", with and without a canary: no answer is more than e^epsilon likelier."""
    epsilon, runs, times = 1.0, 2000, np.zeros((2, 2000))
    noise = np.random.default_rng(40)
    for canary in (0, 1):
        for run in range(runs):
            people = individual.Filter(4 + canary, filters.Zcdp(rho=3.0))
            accounts = StillActive(people, at_least=4.5, epsilon=epsilon, noise=noise)
            for t in range(5):
                if not accounts.still:
                    break
                accounts.charge(STEP, np.zeros(4 + canary))
                times[canary, run] = t + 1 if accounts.still else times[canary, run]
    bounds = []
    for stayed in range(6):
        a, b = (int(np.sum(times[canary] >= stayed)) for canary in (1, 0))
        low = stats.binomtest(a, runs).proportion_ci(0.95, method="exact").low
        high = stats.binomtest(b, runs).proportion_ci(0.95, method="exact").high
        bounds.append(np.log(low / high))
    assert 0.2 * epsilon < max(bounds) <= epsilon
