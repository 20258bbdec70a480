"""Lécuyer's policies do what he does: on any counts, by his rule written out, and on the runs that he recorded.

His recorded runs are facts from the public repository of the paper: counts, noise and batch after each epoch.
"""

import csv
from functools import cache
from itertools import groupby

import numpy as np
import pytest

import his_policies
from almoner import mechanisms
from almoner.curves import renyi
from data_folders import DATA, needs

SIGMA, IMAGES, BATCH, DELTA = 100.0, 50_000, 512, 1e-6
ORDERS = np.array([1 + j / 10 for j in range(1, 100)] + list(range(12, 64)), float)  # of his filter
PLANNED = 100 * 98  # steps at noise multiplier 1, whose cost is his budget


class Replayed:
    """A run as policies see it, which answers with a list of counts and keeps his Rényi filter."""

    def __init__(self, counts, *, noise, rate=None, admits=None):
        self.script, self.noise_multiplier, self.sample_rate = list(counts), noise, rate
        self.history, self.reason, self.step, self.spent = {}, None, 0, 0.0
        self.admits = admits or (lambda cost: bool(np.min(mironov(cost)) <= BUDGET))

    def noisy_sum(self, values, *, sigma, name):
        self.spent = self.spent + cost(sigma, None)
        return self.script.pop(0)

    def next_step(self):
        return cost(self.noise_multiplier, self.sample_rate)

    def can_take(self, step, times):
        return self.admits(self.spent + times * step)

    def after_each_look(self, policy, read):
        """What a policy sets, after each of the looks that it takes."""
        seen, asked = [], len(self.script)
        policy(self)
        while self.script:
            self.step, self.spent = self.step + 1, self.spent + self.next_step()
            policy(self)
            if len(self.script) < asked:
                seen.append(read(self))
                asked = len(self.script)
        return seen


@cache
def cost(noise, rate):
    """The Rényi divergences of a step, or of a question, at his orders."""
    step = mechanisms.Gaussian(noise, 1.0) if rate is None else mechanisms.SampledGaussian(noise, 1.0, rate)
    return renyi.values(step, ORDERS)


def mironov(divergences):
    return divergences + np.log(1 / DELTA) / (ORDERS - 1)


BUDGET = float(np.min(mironov(PLANNED * cost(1.0, BATCH / IMAGES))))


def by_his_rule(counts, value, move, *, saves=True):
    """His rule: the memory is the largest significant count, 0 at first; save after growth, spend after none."""
    largest, values = 0.0, []
    for count in counts:
        grown = count >= largest + 3 * SIGMA
        largest = count if grown else largest
        if saves or not grown:
            value = move(value, grown)
        values.append(value)
    return values


def random_counts(seed):
    """Counts that climb, stall and dip, on the scale of the noise."""
    draw = np.random.default_rng(seed)
    return np.cumsum(np.r_[draw.uniform(0, 2000), draw.normal(60, 300, size=60)]).tolist()


@pytest.mark.parametrize("seed", range(20))
def test_adaptive_noise_is_his_rule_on_any_counts(seed):
    """The noise rises by 0.1 after growth, and falls after none, never below where it began."""
    counts = random_counts(seed)
    run = Replayed(counts, noise=1.0, admits=lambda cost: True)
    seen = run.after_each_look(his_policies.AdaptiveNoise(epoch=2), lambda now: now.noise_multiplier)
    expected = by_his_rule(counts, 1.0, lambda noise, grown: noise + 0.1 if grown else max(1.0, noise - 0.1))
    assert seen == pytest.approx(expected, abs=1e-9)


@pytest.mark.parametrize("seed", range(20))
def test_adaptive_batches_are_his_rule_on_any_counts(seed):
    """The batch shrinks by 128 after growth, and grows after none, between 256 and 512."""
    counts = random_counts(seed)
    run = Replayed(counts, noise=1.0, rate=512 / IMAGES, admits=lambda cost: True)
    policy = his_policies.AdaptiveBatch(by=128 / IMAGES, least=256 / IMAGES, every=1, epoch=2)
    seen = run.after_each_look(policy, lambda now: now.sample_rate * IMAGES)
    expected = by_his_rule(counts, 512, lambda batch, grown: max(256, batch - 128) if grown else min(512, batch + 128))
    assert seen == pytest.approx(expected, abs=1e-6)


@pytest.mark.parametrize("seed", range(20))
def test_noise_on_a_plateau_is_his_rule_on_any_counts(seed):
    """The noise falls by 0.1 after each look without growth, never below the least, and never rises."""
    counts = random_counts(seed)
    run = Replayed(counts, noise=2.0)
    policy = his_policies.ReduceNoiseOnPlateau(least=1.0, epoch=2)
    seen = run.after_each_look(policy, lambda now: now.noise_multiplier)
    expected = by_his_rule(counts, 2.0, lambda noise, grown: max(1.0, noise - 0.1), saves=False)
    assert seen == pytest.approx(expected, abs=1e-9)


def recorded(file, kind):
    """The runs of a kind: for each, its rows, one an epoch."""
    with (DATA / "lecuyer_runs" / file).open(encoding="utf-8", newline="") as stream:
        rows = [row for row in csv.DictReader(stream) if row["run"].startswith(kind)]
    runs = [list(rows) for _, rows in groupby(rows, key=lambda row: row["run"])]
    assert runs
    return runs


def looks(rows, column, every):
    """The column after each look, which is after every so many epochs."""
    return [float(row[column]) for row in rows[every - 1 :: every]]


@needs("lecuyer_runs")
def test_his_budget_is_the_cost_of_a_hundred_epochs():
    """Epsilon is 8.218 by his orders, and his longest runs are several times as long as what it was made for."""
    assert pytest.approx(8.218, abs=5e-4) == BUDGET
    assert max(map(len, recorded("adaptive.csv", "adapt_noise"))) > 2 * 100


@needs("lecuyer_runs")
def test_adaptive_noise_repeats_his_runs():
    """Let run on his counts and his budget, the noise after each look is his: in all looks of all runs."""
    for rows in recorded("adaptive.csv", "adapt_noise"):
        run = Replayed(looks(rows, "noisy_correct", 10), noise=1.0, rate=BATCH / IMAGES)
        seen = run.after_each_look(his_policies.AdaptiveNoise(epoch=98), lambda now: now.noise_multiplier)
        assert seen == pytest.approx(looks(rows, "sigma", 10), abs=1e-9)


@needs("lecuyer_runs")
def test_adaptive_batches_repeat_his_runs():
    """Let run on his counts and his budget, the batch after each look is his: in all looks of all runs."""
    for rows in recorded("adaptive.csv", "adapt_batch"):
        run = Replayed(looks(rows, "noisy_correct", 10), noise=1.0, rate=BATCH / IMAGES)
        policy = his_policies.AdaptiveBatch(by=128 / IMAGES, least=256 / IMAGES, epoch=98)
        seen = run.after_each_look(policy, lambda now: now.sample_rate * IMAGES)
        assert seen == pytest.approx(looks(rows, "batch_size", 10), abs=1e-6)
        assert run.step == 980 + sum(10 * round(IMAGES / batch) for batch in looks(rows, "batch_size", 10)[:-1])


@needs("lecuyer_runs")
def test_noise_on_a_plateau_repeats_his_runs():
    """Let run on his counts, the noise after each epoch of fine-tuning is his: in all epochs of all ten runs."""
    runs = recorded("fine_tune_falling_noise.csv", "fine_tune")
    assert len(runs) == 10
    for rows in runs:
        run = Replayed(looks(rows, "noisy_correct", 1), noise=2.0, rate=BATCH / IMAGES)
        policy = his_policies.ReduceNoiseOnPlateau(least=1.0, epoch=98)
        seen = run.after_each_look(policy, lambda now: now.noise_multiplier)
        assert seen == pytest.approx(looks(rows, "sigma", 1), abs=1e-9)
