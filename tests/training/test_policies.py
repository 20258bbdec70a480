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


def test_noise_falls_when_training_stalls_and_never_rises_above_the_baseline():
    """Additive steps, thresholds of three standard deviations, a floor, and none lower near the end."""
    policy = policies.AdaptiveNoise(by=1.0, every=2, epoch=10, least=1.5, sigma=100.0, epochs_left=5)
    run = Fake([1000, 1100, 2000, 3000, 3100, 3150, 3160, 3170], last=190)
    seen = []
    for run.step in range(161):
        policy(run)
        if run.step and run.step % 20 == 0:
            seen.append(run.noise_multiplier)
    # first look; stalls: 3; better twice: 4, 4; stalls: 3, 2; no five epochs of ten steps left within 190
    assert seen == [4.0, 3.0, 4.0, 4.0, 3.0, 2.0, 2.0 if 140 + 50 > 190 else 1.5, 1.5 if 160 + 50 <= 190 else seen[-1]]
    assert seen[:6] == [4.0, 3.0, 4.0, 4.0, 3.0, 2.0]


def test_batches_shrink_while_training_gets_better_and_grow_back():
    """Never above where they began; not below the floor."""
    policy = policies.AdaptiveBatch(by=0.1, every=1, epoch=1, least=0.15, sigma=1.0, epochs_left=0)
    run = Fake([0, 100, 200, 300, 300, 300, 300], sample_rate=0.3)
    seen = []
    for run.step in range(8):
        policy(run)
        seen.append(round(run.sample_rate, 3))
    assert seen == [0.3, 0.3, 0.2, 0.15, 0.15, 0.25, 0.3, 0.3]


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
