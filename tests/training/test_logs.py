"""What a run shows: rows in CSV and JSON, TensorBoard; and the end of a run that explodes."""

import csv
import json

import pytest
import torch

from almoner import errors, filters, training
from almoner.training._records import correct
from almoner.training.callbacks import Log, TensorBoard
from almoner.training.stopping import Dropouts, Tree
from training_runs import N, dies, records, trainer

BUDGET = filters.Gaussian(epsilon=1.0, delta=1e-5)


def counted(people):
    """Accounts with noisy counts of who drops out, whose price is booked before the first step."""
    return Dropouts(people, Tree(5, 30.0))


def asking(run):
    """A noisy count of right answers, which is paid for."""
    if run.step == 4:
        run.noisy_sum(correct, sigma=200.0, name="right")


@pytest.mark.parametrize("suffix", [".csv", ".jsonl"])
def test_rows_hold_what_is_public_at_each_step(tmp_path, suffix):
    """Every second step and the last; an answer at the step at which it was asked."""
    path = tmp_path / f"run{suffix}"
    run = trainer(BUDGET.fresh(), steps=5).fit(*records(), callbacks=[asking, Log(path, names=("right",), every=2)])
    with path.open(newline="") as file:
        rows = list(csv.DictReader(file)) if suffix == ".csv" else [json.loads(line) for line in file]
    assert [int(row["step"]) for row in rows] == [2, 4, 5]
    assert float(rows[1]["right"]) == run.answers[0][2]
    assert not rows[0].get("right")
    assert all(float(row["learning_rate"]) == 1.0 and int(row["last"]) == 5 for row in rows)
    with pytest.raises(errors.ArgumentError, match="exists already"):
        trainer(BUDGET.fresh(), steps=5).fit(*records(), callbacks=[Log(path)])


@pytest.mark.parametrize("suffix", [".csv", ".jsonl"])
def test_a_log_is_gone_on_with_by_a_run_that_was_killed_before_it_was_saved_again(tmp_path, suffix):
    """The folder stands at step 0, and the file has rows of that run; the file of another run is refused as before."""
    path = tmp_path / f"run{suffix}"

    def job(stop, **options):
        def kill(run):
            if run.step == stop:
                raise ZeroDivisionError

        kept = training.RunFolder(tmp_path / "run", every=4, **options)
        return trainer(BUDGET.fresh(), steps=5).fit(*records(), callbacks=[Log(path), kill], folder=kept)

    with dies(ZeroDivisionError):
        job(2)
    job(5.5, resume=True)
    with path.open(newline="") as file:
        rows = list(csv.DictReader(file)) if suffix == ".csv" else [json.loads(line) for line in file]
    assert [int(row["step"]) for row in rows] == [1, 2, 1, 2, 3, 4, 5]
    log = Log(path)
    for before, watch in ((lambda run: run.step or run.noisy_sum(correct, sigma=200.0), None), (print, counted)):
        for callback in (log, lambda run: Log(path)(run)):
            with pytest.raises(errors.ArgumentError, match="exists already"):
                trainer(BUDGET.fresh(), steps=5).fit(*records(), callbacks=[before, callback], watch=watch)
    assert path.read_text().count("\n") == 7 + (suffix == ".csv")


def test_wrong_logs_are_refused(tmp_path):
    """By name, before training."""
    with pytest.raises(errors.ArgumentError, match=r"csv or \.jsonl"):
        Log(tmp_path / "run.txt")
    with pytest.raises(errors.ArgumentError, match="every=0"):
        Log(tmp_path / "run.csv", every=0)
    with pytest.raises(errors.ArgumentError, match="add_scalar"):
        TensorBoard(3)


def test_tensorboard_gets_the_same_numbers():
    """By name and step."""

    class Writer:
        def __init__(self):
            self.scalars = {}

        def add_scalar(self, name, value, step):
            self.scalars[name, step] = value

    writer = Writer()
    trainer(BUDGET.fresh(), steps=5).fit(*records(), callbacks=[asking, TensorBoard(writer)])
    assert ("right", 4) in writer.scalars
    assert writer.scalars["learning_rate", 5] == 1.0


@pytest.mark.parametrize("rate", [1e30, float("inf")])
def test_a_run_that_explodes_ends_and_keeps_what_was_not_spent(rate):
    """After one step of twenty: each person has paid for one at most."""
    made = trainer(BUDGET.fresh(), lr=rate)
    run = made.fit(*records())
    assert run.step == 1
    assert "exploded" in run.reason
    assert made.shares().max() <= 1 / 20 + 1e-6
    assert len(made.shares()) == N


def test_no_gradient_that_is_a_number_costs_nothing():
    """Records that are not numbers: nobody contributes, and nobody pays."""
    x, y = records()
    made = trainer(BUDGET.fresh())
    made.fit(torch.full_like(x, torch.nan), y)
    assert not made.shares().any()
