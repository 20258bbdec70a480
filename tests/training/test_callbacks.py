"""Callbacks: what they show is public, and they are told when a run is over."""

import contextlib

import pytest
import torch

from almoner import errors, filters, training
from almoner.training.callbacks import Evaluation, MovingAverage, Progress, Schedule
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
