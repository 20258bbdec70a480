"""Policies: thresholds, floors and baselines by script; odometers that miss nothing."""

import pytest

from bursar import errors, filters, mechanisms, odometers
from bursar.training import policies
from bursar.training._evaluation import correct
from training_runs import N, trainer


class Fake:
    """A run as policies see it, with a script of answers."""

    def __init__(self, answers, *, noise_multiplier=4.0, sample_rate=None, last=10_000):
        self.script, self.noise_multiplier, self.sample_rate = list(answers), noise_multiplier, sample_rate
        self.history, self.released, self.reason, self.step, self.last = {}, {}, None, 0, last

    def noisy_sum(self, values, *, sigma, name):
        return self.script.pop(0)

    def next_step(self, **changes):
        return changes

    def can_take(self, step, times):
        return self.step + times <= self.last

    def stop(self, reason):
        self.reason = reason


def noises(policy, run, *, looks, steps):
    """The noise multiplier after each look."""
    seen = []
    for run.step in range(looks * steps + 1):
        policy(run)
        if run.step and run.step % steps == 0:
            seen.append(round(run.noise_multiplier, 10))
    return seen


def test_the_noise_of_lecuyers_policy():
    """His own program gives this noise for these counts: it rises while they grow, and falls to where it began."""
    counts = [10000, 15000, 19000, 22000, 24000, 25000, 25500, 25600, 25650, 25700, 25700, 25700, 25700]
    policy = policies.AdaptiveNoise(epoch=98)
    run = Fake(counts, noise_multiplier=1.0, last=10**6)
    expected = [1.0, 1.1, 1.2, 1.3, 1.4, 1.5, 1.6, 1.5, 1.4, 1.3, 1.2, 1.1, 1.0]
    assert noises(policy, run, looks=len(counts), steps=980) == expected
    run.script = [25700, 25700]
    assert noises(policy, run, looks=2, steps=980) == [1.0, 1.0]  # the noise at the start is the least


def test_the_threshold_is_three_standard_deviations_of_the_count():
    """An increase of 300 counts at sigma 100, one of 299 does not."""
    policy = policies.AdaptiveNoise(by=0.5, every=1, epoch=2, sigma=100.0, epochs_left=0)
    run = Fake([1000, 1300, 1599, 1899], noise_multiplier=2.0)
    assert noises(policy, run, looks=4, steps=2) == [2.0, 2.5, 2.0, 2.5]


def test_the_budget_is_saved_only_while_enough_epochs_are_possible():
    """The noise rises only if more than so many epochs of steps as they are now fit."""
    policy = policies.AdaptiveNoise(by=0.5, every=1, epoch=10, sigma=1.0, epochs_left=3)
    run = Fake([0, 100, 200, 300], noise_multiplier=2.0, last=61)
    # after looks at steps 20 and 30 at least 31 more steps fit, at step 40 not
    assert noises(policy, run, looks=4, steps=10) == [2.0, 2.5, 3.0, 3.0]


def test_noise_falls_on_a_plateau_alone():
    """Minus 0.1 after each look without a significant increase, and never below the least."""
    policy = policies.ReduceNoiseOnPlateau(least=1.75, epoch=98)
    run = Fake([1000, 2000, 2100, 2200, 9000, 9000, 9000], noise_multiplier=2.0)
    assert noises(policy, run, looks=7, steps=98) == [2.0, 2.0, 1.9, 1.8, 1.8, 1.75, 1.75]


def test_batches_shrink_while_training_gets_better_and_grow_back():
    """Never above where they began; not below the least."""
    policy = policies.AdaptiveBatch(by=0.1, every=1, epoch=1, least=0.15, sigma=1.0, epochs_left=0)
    run = Fake([0, 100, 200, 300, 300, 300, 300], sample_rate=0.3)
    seen = []
    for run.step in range(8):
        policy(run)
        seen.append(round(run.sample_rate, 3))
    assert seen == [0.3, 0.3, 0.2, 0.15, 0.15, 0.25, 0.3, 0.3]


def test_early_stopping_when_nothing_gets_better():
    """Slow growth adds up to a significant increase; a plateau of so many looks ends the run."""
    policy = policies.EarlyStopping(patience=2, every=1, odometer=odometers.Gaussian(delta=1e-5), sigma=100.0)
    run = Fake([1000, 1200, 1400, 1500, 1550, 9999])
    stopped = []
    for run.step in range(6):
        policy(run)
        stopped.append(run.reason)
        if run.reason:
            break
    # 1400 is a significant increase over 1000; 1500 and 1550 are none over 1400
    assert stopped == [None] * 5 + ["no significant increase in 2 looks"]
    assert run.step == 5
    with pytest.raises(errors.ArgumentError, match="target=, patience= or both"):
        policies.EarlyStopping(every=1, odometer=odometers.Gaussian(delta=1e-5))


def test_policies_change_what_is_released(data):
    """The decreasing noise is what the accounts are charged for."""
    x, y = data
    policy = policies.DecreasingNoise(factor=0.5, every=5, least=3.0)
    run = trainer(filters.Gaussian(mu=3.0), noise_multiplier=8.0, steps=15).fit(x, y, callbacks=[policy])
    assert run.released == {mechanisms.Gaussian(sigma): 5 for sigma in (8.0, 4.0, 3.0)}


def test_early_stopping_stops_and_its_odometer_knows_what_was_spent(data):
    """The run ends once enough are right; the odometer has everything that was released."""
    x, y = data
    odometer = odometers.Gaussian(delta=1e-5)
    policy = policies.EarlyStopping(target=0.7 * N, every=4, odometer=odometer, sigma=10.0)
    job = trainer(filters.Gaussian(mu=10.0), individual=False, lr=10.0, noise_multiplier=5.0, steps=200)
    run = job.fit(x, y, callbacks=[policy])
    assert run.step < 200
    assert run.reason == "280 are right"
    again = odometers.Gaussian(delta=1e-5)
    for step, times in run.released.items():
        again.charge(mechanisms.Repeated(step, times))
    assert odometer.epsilon() == again.epsilon()


def test_a_question_that_does_not_fit_ends_the_run_and_the_odometer_misses_nothing(data):
    """A callback may ask for more than is left: the run ends, and the odometer has the last step and all answers."""
    x, y = data
    policy = policies.EarlyStopping(target=N, every=3, odometer=odometers.Gaussian(delta=1e-5), sigma=2.0)

    def greedy(run):
        run.noisy_sum(correct, sigma=20.0)

    job = trainer(filters.Gaussian(mu=0.8), individual=False, noise_multiplier=10.0, steps=None)
    run = job.fit(x, y, callbacks=[policy, greedy])
    assert (run.step, run.reason) == (9, "the budget is spent")
    again = odometers.Gaussian(delta=1e-5)
    for step, times in run.released.items():
        again.charge(mechanisms.Repeated(step, times))
    assert policy.odometer.epsilon() == again.epsilon()


def test_an_odometer_belongs_to_one_run(data):
    """A second run with the same policy is refused before anything is released, and so is an odometer in use."""
    policy = policies.EarlyStopping(target=N, every=50, odometer=odometers.Renyi(delta=1e-5))
    trainer(filters.Zcdp(rho=1.0), steps=2).fit(*data, callbacks=[policy])
    again = trainer(filters.Zcdp(rho=1.0), steps=2)
    with pytest.raises(errors.ArgumentError, match="another run"):
        again.fit(*data, callbacks=[policy])
    assert not again._loop.run.released
    with pytest.raises(errors.ArgumentError, match="must be a fresh odometer"):
        policies.EarlyStopping(target=N, every=50, odometer=policy.odometer)
