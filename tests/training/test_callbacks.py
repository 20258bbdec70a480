"""Callbacks: what they show is public, and they are told when a run is over."""

import contextlib

import numpy as np
import pytest

from bursar import filters
from bursar.training.callbacks import Evaluation, Progress, module_measure
from bursar.training.groups import Audience, GroupWatch
from training_runs import BY_RECORD, N, trainer


def test_callbacks_look_on(data, capsys):
    """Accuracy on public records and losses by group; the progress bar shows steps only."""
    x, y = data
    job = trainer(filters.Gaussian(mu=0.6), noise_multiplier=4.0)
    side = np.where(x[:, 0] > 0, "right", "left")
    watch = GroupWatch(Audience({"side": side}, module_measure(x, y, BY_RECORD)), job.shares, steps=20)
    run = job.fit(
        x, y, callbacks=[Evaluation(x, y, every=10), Progress(), lambda run: watch.look(run.step, run.module)]
    )
    assert [step for step, _ in run.history["accuracy"]] == [0, 10, 20]
    rows = watch.report().rows
    assert {row["group"] for row in rows} == {"left", "right"}
    assert run.history["accuracy"][-1][1] == pytest.approx(
        sum(row["accuracy"] * row["people"] for row in rows if row["moment"] == "end") / N
    )
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
