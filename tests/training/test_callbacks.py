"""Callbacks: what they show is public, and they are told when a run is over."""

import contextlib

import numpy as np
import pytest
import torch

from almoner import errors, filters, odometers, training
from almoner.training.callbacks import AdamBC, DecreasingNoise, Evaluation, MovingAverage, Progress, Schedule
from training_runs import BY_RECORD, N, network, trainer


def test_callbacks_look_on(data, capsys):
    """Accuracy on public records is kept; the progress bar shows steps only."""
    x, y = data
    job = trainer(filters.Gaussian(mu=0.6), noise_multiplier=4.0)
    run = job.fit(x, y, callbacks=[Evaluation(x, y, every=10), Progress()])
    assert [step for step, _ in run.history["accuracy"]] == [0, 10, 20]
    assert "spent" not in capsys.readouterr().out


def test_callbacks_are_closed_however_a_run_ends(data):
    """Spent budgets, errors and the end of the plan all take the bar away."""

    def broken(run):
        if run.step == 2:
            raise ZeroDivisionError

    for options, others in (
        ({}, []),
        ({}, [broken]),
        ({"individual": False, "steps": None, "noise_multiplier": 9.0}, []),
    ):
        progress = Progress()
        with contextlib.suppress(ZeroDivisionError):
            trainer(filters.Zcdp(rho=0.05), **options).fit(*data, callbacks=[progress, *others])
        assert not progress._bar.live.is_started


def test_a_schedule_takes_a_step_after_each_step_also_in_a_resumed_run(data, tmp_path):
    """The rates of steps are those of PyTorch's schedule."""
    seen = []

    def run_on(stop, *, resume):
        module = network()
        optimizer = torch.optim.SGD(module.parameters(), lr=1.0)
        made = training.Trainer(
            module, BY_RECORD, optimizer, filters.Gaussian(mu=1.0), max_grad_norm=1.0, divisor=N, steps=6
        )
        rates = Schedule(torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.5))

        def note(run):
            seen.append((run.step, optimizer.param_groups[0]["lr"]))
            if run.step == stop and stop < 6:
                raise KeyboardInterrupt

        made.fit(*data, callbacks=[rates, note], folder=training.RunFolder(tmp_path, every=1, resume=resume))

    with pytest.raises(KeyboardInterrupt):
        run_on(3, resume=False)
    run_on(6, resume=True)
    assert all(rate == 0.5**step for step, rate in seen)
    assert {step for step, _ in seen} == set(range(7))
    with pytest.raises(errors.ArgumentError, match="needs no loss"):
        Schedule(torch.optim.lr_scheduler.ReduceLROnPlateau(torch.optim.SGD([torch.ones(1)], lr=1.0)))


def test_a_moving_average_is_that_of_the_iterates(data):
    """With weights that begin small, and kept in the history."""
    average, iterates = MovingAverage(0.5), []

    def note(run):
        iterates.append(torch.cat([each.detach().reshape(-1) for each in run.module.parameters()]))

    run = trainer(filters.Gaussian(mu=1.0), steps=5).fit(*data, callbacks=[average, note])
    expected = iterates[0]
    for step, iterate in enumerate(iterates[1:], start=1):
        decay = min(0.5, (1 + step) / (10 + step))
        expected = decay * expected + (1 - decay) * iterate
    found = torch.cat([each.detach().reshape(-1) for each in average.module.parameters()])
    assert torch.allclose(found, expected, atol=1e-6)
    assert set(run.history["moving average"]) == {name for name, _ in run.module.named_parameters()}
    with pytest.raises(errors.ArgumentError, match="no average yet"):
        MovingAverage().module  # noqa: B018
    with pytest.raises(errors.ArgumentError, match="decay=1"):
        MovingAverage(1)


def test_adam_without_its_noise_is_the_formula():
    """Six steps of two coordinates, by hand: moments, their corrections, the noise's part and the floor."""
    gradients = np.random.default_rng(0).normal([0.0, 3.0], 1, (6, 2))
    noise = [0.5, 0.5, 0.4, 0.4, 2.0, 0.1]  # it may change from step to step
    parameter = torch.nn.Parameter(torch.zeros(2, dtype=torch.float64))
    adam = AdamBC([parameter], lr=0.1, betas=(0.8, 0.9), floor=0.05, weight_decay=0.01)
    place, mean, square, part = np.zeros(2), np.zeros(2), np.zeros(2), 0.0
    floored = 0
    for number, (gradient, sigma) in enumerate(zip(gradients, noise, strict=True), start=1):
        parameter.grad, adam._noise = torch.from_numpy(gradient), sigma
        adam.step()
        mean, square = 0.8 * mean + 0.2 * gradient, 0.9 * square + 0.1 * gradient**2
        part = 0.9 * part + 0.1 * sigma**2
        debiased, least = (square - part) / (1 - 0.9**number), 0.05 * part / (1 - 0.9**number)
        floored += int((debiased < least).sum())
        place = place * (1 - 0.1 * 0.01) - 0.1 * mean / (1 - 0.8**number) / np.sqrt(np.maximum(debiased, least))
        np.testing.assert_allclose(parameter.detach().numpy(), place, rtol=1e-12)
    assert 0 < floored < 12


def test_adam_knows_the_noise_of_each_step(data, tmp_path):
    """The trainer tells it z C over the divisor; without one, or with FixedBatches, there is no step."""
    module, seen = network(), []

    def job(optimizer, **options):
        given = {"max_grad_norm": 0.5, "divisor": N, "steps": 20, "noise_multiplier": 4.0} | options
        return training.Trainer(module, BY_RECORD, optimizer, training.Target(epsilon=8.0, delta=1e-5), **given)

    adam = AdamBC(module.parameters(), lr=0.01)
    job(adam).fit(*data, callbacks=[lambda _: seen.append(adam._noise)], folder=tmp_path)
    assert set(seen) == {4.0 * 0.5 / N}
    told, used = [], []

    class Watched(AdamBC):
        def step(self, closure=None):
            told.append(self._noise)
            super().step(closure)

    run = job(Watched(module.parameters(), lr=0.01), individual=False, sampling=training.Poisson(0.5))
    lowered = DecreasingNoise(factor=0.9, every=3, least=1.0)
    run.fit(*data, callbacks=[lowered, lambda view: used.append(view.noise_multiplier * 0.5 / view.divisor)])
    assert len({*told}) > 5
    assert told == used[: len(told)]
    again = AdamBC(module.parameters(), lr=0.01)
    module(data[0]).sum().backward()
    with pytest.raises(errors.ArgumentError, match=r"use it in training\.Trainer"):
        again.step()
    with pytest.raises(errors.ArgumentError, match="FixedBatches is correlated"):
        job(again, noise_multiplier=None, sampling=training.FixedBatches(20)).fit(*data)


def test_the_second_moment_without_noise_is_that_of_the_signal():
    """Of constant gradients under noise ten times as large, what is divided by is the gradient, not the noise."""
    signal, sigma = torch.full((4000,), 0.1), 1.0
    parameter = torch.nn.Parameter(torch.zeros(4000))
    adam, steps = AdamBC([parameter], lr=1e-12, floor=1e-6, betas=(0.9, 0.9999)), 1000
    generator = torch.Generator().manual_seed(0)
    for _ in range(steps):
        parameter.grad, adam._noise = signal + sigma * torch.randn(4000, generator=generator), sigma
        adam.step()
    state = adam.state[parameter]
    square = float(state["square"].mean()) / (1 - 0.9999**steps)
    assert abs(square - 1.01) < 0.002
    assert abs(square - state["noise"] / (1 - 0.9999**steps) - 0.01) < 0.002


def test_a_progress_bar_shows_what_was_spent_so_far(data, monkeypatch):
    """The bound of an odometer for the worst case of all releases, questions too; it grows, and never is too small."""
    shown, sum_ = [], odometers.Renyi(delta=1e-5)
    progress = Progress(sum_)
    update = progress._bar.update
    monkeypatch.setattr(progress._bar, "update", lambda task, **what: shown.append(what) or update(task, **what))

    def asks(run):
        if run.step == 2:
            run.noisy_sum(lambda output, _: (output[:, 0] > 0).double(), sigma=300.0)

    run = trainer(filters.Gaussian(epsilon=1.0, delta=1e-5), steps=3).fit(*data, callbacks=[asks, progress])
    told = [float(each["description"].split()[4]) for each in shown if "description" in each]
    assert told == sorted(told)
    assert len(set(told)) == 4
    for mechanism, times in run.released.items():
        for _ in range(times):
            sum_.charge(mechanism)
    assert sum_.epsilon() <= told[-1] <= sum_.epsilon() * 1.02
