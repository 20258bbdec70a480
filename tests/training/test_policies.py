"""Policies: thresholds, floors and baselines by script; odometers that miss nothing."""

from pathlib import Path

import numpy as np
import pytest

import his_policies
from almoner import errors, filters, mechanisms, odometers, training
from almoner.training import callbacks
from almoner.training._records import correct
from training_runs import BY_RECORD, N, dies, network, trainer


class Fake:
    """A run as policies see it, with a script of answers."""

    def __init__(self, answers, *, noise_multiplier=4.0, sample_rate=None, last=10_000):
        self.script, self.noise_multiplier, self.sample_rate = list(answers), noise_multiplier, sample_rate
        self.history, self.released, self.reason, self.step, self.last = {}, {}, None, 0, last
        self.max_grad_norm, self.divisor = 1.0, 1000.0

    def count_clipped(self, *, sigma):
        self.sigma = sigma
        return self.script.pop(0)

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
    """The noise of his own program for these counts: it rises while they grow, and falls to where it began."""
    counts = [10000, 15000, 19000, 22000, 24000, 25000, 25500, 25600, 25650, 25700, 25700, 25700, 25700, 25700, 25700]
    policy = his_policies.AdaptiveNoise(epoch=98)
    run = Fake(counts, noise_multiplier=1.0, last=10**6)
    expected = [1.1, 1.2, 1.3, 1.4, 1.5, 1.6, 1.7, 1.6, 1.5, 1.4, 1.3, 1.2, 1.1, 1.0, 1.0]  # the start is the least
    assert noises(policy, run, looks=len(counts), steps=980) == expected
    page = (Path(__file__).parents[2] / "docs" / "experiments" / "policies.md").read_text(encoding="utf-8")
    assert f"| noise | {' | '.join(map(str, expected[:13]))} |" in page
    assert f"| count | {' | '.join(f'{count:,}' for count in counts[:13])} |" in page


def test_the_threshold_is_three_standard_deviations_of_the_count():
    """An increase of 300 counts at sigma 100, one of 299 does not, and what it is compared with stays."""
    policy = his_policies.AdaptiveNoise(by=0.5, every=1, epoch=2, sigma=100.0, epochs_left=0)
    run = Fake([299, 300, 599, 600], noise_multiplier=2.0)
    assert noises(policy, run, looks=4, steps=2) == [2.0, 2.5, 2.0, 2.5]


def test_a_dip_of_the_count_is_no_growth_afterwards():
    """The count is compared with the largest significant one: a dip is no growth later, and slow growth adds up."""
    policy = his_policies.AdaptiveNoise(by=0.5, every=1, epoch=2, sigma=100.0, epochs_left=0)
    run = Fake([26753, 26133, 26835, 26900, 26990, 27053], noise_multiplier=3.0)
    assert noises(policy, run, looks=6, steps=2) == [3.5, 3.0, 3.0, 3.0, 3.0, 3.5]


def test_the_budget_is_saved_only_while_enough_epochs_are_possible():
    """The noise rises only if more than so many epochs of steps as they are now fit."""
    policy = his_policies.AdaptiveNoise(by=0.5, every=1, epoch=10, sigma=1.0, epochs_left=3)
    run = Fake([100, 200, 300, 400], noise_multiplier=2.0, last=61)
    # after looks at steps 10, 20 and 30 at least 31 more steps fit, at step 40 not
    assert noises(policy, run, looks=4, steps=10) == [2.5, 3.0, 3.5, 3.5]


def test_noise_falls_on_a_plateau_alone():
    """Minus 0.1 after each look without a significant increase, and never below the least."""
    policy = his_policies.ReduceNoiseOnPlateau(least=1.75, epoch=98)
    run = Fake([1000, 2000, 2100, 2299, 2300, 9000, 9000, 9000], noise_multiplier=2.0)
    assert noises(policy, run, looks=8, steps=98) == [2.0, 2.0, 1.9, 1.8, 1.8, 1.8, 1.75, 1.75]


def test_batches_shrink_while_training_gets_better_and_grow_back():
    """Never above where they began; not below the least; an epoch of smaller batches has more steps."""
    policy = his_policies.AdaptiveBatch(by=0.01, every=1, epoch=25, least=0.015, sigma=1.0, epochs_left=0)
    run = Fake([100, 200, 300, 300, 300, 300], sample_rate=0.04)
    seen, asked = {}, 6
    for run.step in range(250):
        policy(run)
        if len(run.script) < asked:
            seen[run.step], asked = round(run.sample_rate, 3), len(run.script)
    # epochs of 25, 33, 50, 67, 40 and 29 steps
    assert seen == {25: 0.03, 58: 0.02, 108: 0.015, 175: 0.025, 215: 0.035, 244: 0.04}


def test_a_resumed_run_does_not_look_again_at_the_same_step():
    """A run that goes on from a checkpoint calls its policies at the step that it stands at: they have asked there."""
    run = Fake([1000, 2000, 3000], noise_multiplier=1.0)
    run.released = {}
    noise = his_policies.AdaptiveNoise(every=1, epoch=5, epochs_left=0)
    stopping = callbacks.EarlyStopping(patience=1, every=5, odometer=odometers.Gaussian(delta=1e-5))
    for run.step in (0, 5):
        noise(run)
    noise(run)
    assert (len(run.script), run.noise_multiplier) == (2, 1.1)
    for run.step in (0, 5):
        stopping(run)
    again = callbacks.EarlyStopping(patience=1, every=5, odometer=odometers.Gaussian(delta=1e-5))
    again(run)
    assert (len(run.script), run.reason) == (1, None)


def test_early_stopping_when_nothing_gets_better():
    """Slow growth adds up to a significant increase; a plateau of so many looks ends the run."""
    policy = callbacks.EarlyStopping(patience=2, every=1, odometer=odometers.Gaussian(delta=1e-5), sigma=100.0)
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
        callbacks.EarlyStopping(every=1, odometer=odometers.Gaussian(delta=1e-5))


def test_policies_change_what_is_released(data):
    """The decreasing noise is what the accounts are charged for."""
    x, y = data
    policy = callbacks.DecreasingNoise(factor=0.5, every=5, least=3.0)
    run = trainer(filters.Gaussian(mu=3.0), noise_multiplier=8.0, steps=15).fit(x, y, callbacks=[policy])
    assert run.released == {mechanisms.Gaussian(sigma): 5 for sigma in (8.0, 4.0, 3.0)}


def test_early_stopping_stops_and_its_odometer_knows_what_was_spent(data):
    """The run ends once enough are right; the odometer has everything that was released."""
    x, y = data
    odometer = odometers.Gaussian(delta=1e-5)
    policy = callbacks.EarlyStopping(target=0.7 * N, every=4, odometer=odometer, sigma=10.0)
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
    policy = callbacks.EarlyStopping(target=N, every=3, odometer=odometers.Gaussian(delta=1e-5), sigma=2.0)

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
    policy = callbacks.EarlyStopping(target=N, every=50, odometer=odometers.Renyi(delta=1e-5))
    trainer(filters.Zcdp(rho=1.0), steps=2).fit(*data, callbacks=[policy])
    again = trainer(filters.Zcdp(rho=1.0), steps=2)
    with pytest.raises(errors.ArgumentError, match="another run"):
        again.fit(*data, callbacks=[policy])
    assert not again._view.released
    with pytest.raises(errors.ArgumentError, match="must be a fresh odometer"):
        callbacks.EarlyStopping(target=N, every=50, odometer=policy.odometer)


def test_the_clip_follows_the_counts():
    """Andrew et al.'s rule by hand: exp(-rate (share below - quantile)); noisy counts outside [0, n] are clamped."""
    run = Fake([500, 900, -50, 1200])
    policy = callbacks.AdaptiveClip(quantile=0.5, rate=0.2)
    clips = []
    for run.step in range(5):
        policy(run)
        policy(run)  # a resumed run calls it again at the same step: it asks once
        clips.append(run.max_grad_norm)
    by_hand = np.exp(-0.2 * np.cumsum([0, 0, 0.1 - 0.5, 1 - 0.5, 0 - 0.5]))
    assert clips == pytest.approx(by_hand, rel=1e-12)
    assert run.sigma == 50  # a twentieth of the people


def test_the_clip_stays_in_a_range():
    """A million times smaller or larger than the first one, whatever the counts say."""
    for count, expected in ((0, 1e-6), (1000, 1e6)):
        run, policy = Fake([count] * 100), callbacks.AdaptiveClip(quantile=0.5, rate=3.0)
        for run.step in range(100):
            policy(run)
        assert run.max_grad_norm == pytest.approx(expected)


@pytest.mark.parametrize("start", [0.001, 100.0])
def test_the_clip_reaches_the_quantile_of_the_norms(data, start):
    """From a clip that is far too small or too large, without a step that moves the parameters."""
    x, y = data
    module = network()
    job = trainer(filters.Gaussian(mu=90.0), module, lr=0.0, max_grad_norm=start, noise_multiplier=5.0, steps=60)
    run = job.fit(x, y, callbacks=[callbacks.AdaptiveClip(quantile=0.7, rate=0.5, sigma=0.5)])
    norms = training.Gradients(module, BY_RECORD).norms(x, y).numpy()
    assert np.mean(norms <= run.max_grad_norm) == pytest.approx(0.7, abs=0.03)


def test_each_clip_is_what_people_pay_for(data):
    """In exact squares: a person pays for the clipped gradient of each step, and one for a count if it was longer."""
    x, y = data
    module, clips, norms = network(), [], []
    probe = training.Gradients(module, BY_RECORD)

    def watch(run):  # called before the clip of the next step is set
        clips.append(run.max_grad_norm)
        norms.append(probe.norms(x, y).numpy())

    job = trainer(filters.Gaussian(mu=50.0), module, noise_multiplier=2.0, steps=6)
    run = job.fit(x, y, callbacks=[callbacks.AdaptiveClip(rate=1.0, sigma=3.0), watch])
    spent = np.zeros(N)
    for clip, norm in zip(clips[:-1], norms[:-1], strict=True):  # the last look is after the last step
        spent += np.minimum(norm / clip, 1) ** 2 / 2.0**2 + (norm > clip) / 3.0**2
    spent -= (norms[-2] > clips[-2]) / 3.0**2  # after the last step nothing is asked
    assert len(set(clips)) == 6
    assert np.asarray(job.accounts.spent()) == pytest.approx(spent, rel=1e-6)
    assert sum(run.released.values()) == 11
    assert "6 times Gaussian" in job.card(delta=1e-5).to_markdown()


def test_the_clip_of_a_sampled_run_may_be_set_but_is_not_counted(data):
    """Bounds of people follow a clip that was lowered; a count of clipped people needs all of them."""
    x, y = data

    def schedule(run):
        run.max_grad_norm = 1.0 / (1 + run.step)

    budget = filters.RenyiOrder(alpha=8.0, rho=5.0)
    job = trainer(budget, sampling=training.Poisson(0.2, refresh_every=10), noise_multiplier=2.0, steps=5)
    run = job.fit(x, y, callbacks=[schedule])
    assert [step.sensitivity for step in run.released] == [1 / (1 + number) for number in range(5)]
    assert np.all(job.accounts.left() > 0)
    again = trainer(
        filters.RenyiOrder(alpha=8.0, rho=5.0), sampling=training.Poisson(0.2), noise_multiplier=2.0, steps=5
    )
    with pytest.raises(errors.ArgumentError, match="without sample_rate"):
        again.fit(x, y, callbacks=[callbacks.AdaptiveClip()])
    assert not again._view.released


def test_a_clip_that_cannot_be_is_refused(data):
    """What is no positive number; and counts before there is a step."""
    x, y = data
    for clip in (0.0, -1.0, float("nan"), float("inf")):
        job = trainer(filters.Gaussian(mu=1.0), steps=2)
        with pytest.raises(errors.ArgumentError, match="max_grad_norm"):
            job.fit(x, y, callbacks=[lambda run, clip=clip: setattr(run, "max_grad_norm", clip)])
        assert not job._view.released
    with pytest.raises(errors.ArgumentError, match="no step yet"):
        trainer(filters.Gaussian(mu=1.0), steps=2).fit(x, y, callbacks=[lambda run: run.count_clipped(sigma=1.0)])
    for wrong in ({"quantile": 0}, {"rate": -1}, {"every": 0}, {"sigma": 0}):
        with pytest.raises(errors.ArgumentError, match=next(iter(wrong))):
            callbacks.AdaptiveClip(**wrong)


def test_a_resumed_run_keeps_its_clip(data, tmp_path):
    """The clip and the policy's memory are in the checkpoint."""
    x, y = data

    class Killed(Exception):
        pass

    def kill(run):
        if run.step == 4:
            raise Killed

    def job():
        return trainer(filters.Gaussian(mu=5.0), noise_multiplier=4.0, steps=8)

    first = job()
    with dies(Killed):
        first.fit(
            x, y, callbacks=[callbacks.AdaptiveClip(rate=1.0), kill], folder=training.RunFolder(tmp_path, every=1)
        )
    clip = first._view.max_grad_norm  # the clip at the kill; the last checkpoint is of the step before
    second, seen = job(), []
    second.fit(
        x,
        y,
        callbacks=[lambda run: seen.append(run.max_grad_norm), callbacks.AdaptiveClip(rate=1.0)],
        folder=training.RunFolder(tmp_path, resume=True),
    )
    assert seen[0] not in (1.0, clip)
    assert len(second._view.answers) == 3 + 4


def test_a_run_that_is_stopped_before_its_clip_is_moved_goes_on(data, tmp_path):
    """Nobody has the gradients of that step any more: the question is left out, and the next step's is asked."""

    def stop(run):
        if run.step == 3:
            raise KeyboardInterrupt

    def job(*before, folder):
        made = trainer(filters.Gaussian(mu=5.0), noise_multiplier=4.0, steps=8)
        return made.fit(*data, callbacks=[*before, callbacks.AdaptiveClip()], folder=folder)

    with pytest.raises(KeyboardInterrupt):
        job(stop, folder=tmp_path)
    run = job(lambda _: None, folder=training.RunFolder(tmp_path, resume=True))
    assert [step for step, _, _ in run.answers] == [1, 2, 4, 5, 6, 7]


def test_a_run_resumed_at_a_look_goes_on_with_what_it_remembers(data, tmp_path):
    """The memory of both kinds of looks is in the checkpoint, and the step at which it was saved is not asked again."""
    x, y = data

    def noise_and_stopping():
        odometer = odometers.Gaussian(delta=1e-5)
        looks = {"every": 2, "sigma": 1.0}
        return his_policies.AdaptiveNoise(epoch=1, epochs_left=0, **looks), callbacks.EarlyStopping(
            patience=99, odometer=odometer, **looks
        )

    def job():
        return trainer(filters.Gaussian(mu=90.0), noise_multiplier=4.0, steps=8)

    first = job()
    first.fit(x, y, callbacks=[*noise_and_stopping(), lambda run: run.step == 4 and run.stop()], folder=tmp_path)
    remembered, asked = first._view.history, len(first._view.answers)
    assert asked == 4
    second = job()
    second.fit(x, y, callbacks=noise_and_stopping(), folder=training.RunFolder(tmp_path, resume=True))
    assert (second._view.history, len(second._view.answers)) == (remembered, asked)


def test_a_run_stopped_while_it_counts_asks_when_it_goes_on(data, tmp_path, monkeypatch):
    """Ctrl-C during a count of right answers, which takes long for many records: the look is made after the resume."""
    calls = []

    def counting(output, targets):
        calls.append(len(output))
        if len(calls) == 2:
            raise KeyboardInterrupt
        return correct(output, targets)

    def fit(folder):
        stopping = callbacks.EarlyStopping(patience=99, every=2, odometer=odometers.Gaussian(delta=1e-5), sigma=1.0)
        job = trainer(filters.Gaussian(mu=90.0), noise_multiplier=4.0, steps=8)
        return job.fit(*data, callbacks=[stopping], folder=folder)

    monkeypatch.setattr(callbacks, "correct", counting)
    with pytest.raises(KeyboardInterrupt):
        fit(tmp_path)
    run = fit(training.RunFolder(tmp_path, resume=True))
    assert [step for step, _, _ in run.answers] == [2, 4, 6, 8]
