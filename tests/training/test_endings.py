"""How a training ends: Ctrl-C, SIGTERM and errors leave a folder from which it goes on as if nothing had happened."""

import json
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
import torch

from almoner import errors, filters, ledger, mechanisms, odometers, training
from almoner.queries import Session
from almoner.training import FixedBatches, callbacks
from almoner.training._records import correct
from almoner.training._run import run as run_module
from almoner.training._run.folder import Folder, _read
from almoner.training._run.run import Interruptions, Killed, Saves
from almoner.training.correlated import Banded
from data_folders import DATA, needs
from training_runs import BY_RECORD, N, network, records, trainer

SCRIPT = Path(__file__).parents[2] / "benchmarks" / "crashes" / "training.py"
TINY = 1e-4  # every gradient is longer, so that everybody pays the same in every step


class Once:
    """Raises at a step, the first time that it sees it."""

    def __init__(self, step, error=KeyboardInterrupt):
        self.step, self.error, self.steps = step, error, []

    def __call__(self, run):
        if run.step == self.step and self.error is not None:
            error, self.error = self.error, None
            raise error
        self.steps.append(run.step)


KINDS = {
    "full batch": {"budget": filters.Gaussian(mu=2.0), "noise_multiplier": 40.0},
    "worst case": {"budget": filters.Gaussian(mu=2.0), "noise_multiplier": 40.0, "individual": False},
    "poisson": {
        "budget": filters.Residue(epsilon=1.0, delta=1e-5),
        "noise_multiplier": 20.0,
        "sampling": training.Poisson(0.05),
    },
    "poisson, one order": {
        "budget": filters.RenyiOrder(alpha=8.0, rho=1.0),
        "noise_multiplier": 20.0,
        "sampling": training.Poisson(0.05),
    },
    "batches": {
        "budget": filters.Gaussian(mu=2.0),
        "noise_multiplier": 40.0,
        "sampling": FixedBatches(100, noise=Banded(4)),
    },
    "odometer": {"budget": odometers.Renyi(delta=1e-5), "noise_multiplier": 40.0},
}


@pytest.fixture(autouse=True)
def default_handlers():
    """The handlers that Python begins with: engines of other tests in this process set their own."""
    before = {each: signal.getsignal(each) for each in (signal.SIGINT, signal.SIGTERM)}
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    yield
    for each, handler in before.items():
        if handler is not None:
            signal.signal(each, handler)


def made(kind, **options):
    settings = dict(KINDS[kind]) | {"max_grad_norm": TINY, "steps": 60} | options
    return trainer(settings.pop("budget").fresh(), **settings)


def saved_in(folder):
    """The parts of the run that its folder holds."""
    return _read(folder / "state.npz")["parts"]


def spent(job, kind):
    """What everybody has paid."""
    if kind == "odometer":
        return job.odometer.state()["totals"]
    if kind == "worst case":
        return np.asarray(job.accounts.state()["spent"])
    return job.accounts.state()["spent"]


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("error", [KeyboardInterrupt, MemoryError])
def test_an_interrupted_run_pays_for_no_step_twice(kind, error, tmp_path):
    """Stopped at step 45 of 60 and resumed, it takes 15 steps more, and accounts are those of a run that was let be."""
    x, y = records()
    whole = made(kind)
    whole.fit(x, y)
    first, end = made(kind), Once(45, error)
    with pytest.raises(error):
        first.fit(x, y, folder=training.RunFolder(tmp_path, every=50), callbacks=[end])
    second = made(kind)
    run = second.fit(x, y, folder=training.RunFolder(tmp_path, resume=True), callbacks=[end])
    assert run.step == 60
    assert sum(run.released.values()) == 60
    assert end.steps == [*range(61)]  # each step was seen once
    assert np.array_equal(spent(second, kind), spent(whole, kind))


@pytest.mark.quick(2)
@pytest.mark.parametrize("kind", KINDS)
def test_an_error_in_the_middle_of_a_step_costs_that_step_at_most(kind, tmp_path, monkeypatch):
    """The optimizer breaks once noise was drawn: the step counts as spent, with all that came before, and no more."""
    x, y = records()
    first = made(kind)

    def broken(*_, **__):
        if len(steps) == 30:
            raise RuntimeError("broken")
        steps.append(1)
        return real(*_, **__)

    steps, real = [], first._optimizer.step
    monkeypatch.setattr(first._optimizer, "step", broken)
    with pytest.raises(RuntimeError, match="broken"):
        first.fit(x, y, folder=training.RunFolder(tmp_path, every=50))
    before = spent(first, kind)
    second = made(kind, steps=60)
    run = second.fit(x, y, folder=training.RunFolder(tmp_path, resume=True))
    assert run.step == 60
    assert sum(run.released.values()) == 61
    assert (spent(second, kind) >= before).all()
    whole = made(kind, steps=61) if kind != "batches" else second
    if kind != "batches":
        whole.fit(x, y)
    assert np.array_equal(spent(second, kind), spent(whole, kind))


def test_noise_of_batches_is_not_used_again_after_an_error_in_a_step(tmp_path, monkeypatch):
    """The row that was drawn may have been seen: the steps that follow are of rows that hold nothing of it."""
    x, y = records()
    first = made("batches")
    real, steps = first._optimizer.step, []

    def broken(*_, **__):
        steps.append(1)
        if len(steps) == 30:
            raise RuntimeError("broken")
        return real()

    monkeypatch.setattr(first._optimizer, "step", broken)
    with pytest.raises(RuntimeError, match="broken"):
        first.fit(x, y, folder=tmp_path)
    saved = saved_in(tmp_path)
    assert (saved["sampling"]["afresh"], saved["sampling"]["step"], saved["run"]["step"]) == (True, 29, 29)
    made("batches").fit(x, y, folder=training.RunFolder(tmp_path, resume=True))
    keys = saved_in(tmp_path)["sampling"]["keys"]
    assert keys[0] == [0, None]
    assert [start for start, _ in keys] == [0, 29]


def test_an_error_in_the_model_costs_nothing(tmp_path, monkeypatch):
    """Before anybody is charged: the step is taken again and paid once."""
    x, y = records()
    whole, first = made("full batch"), made("full batch")
    whole.fit(x, y)
    real, calls = first._gradients.sums, []

    def broken(*arguments, **options):
        calls.append(1)
        if len(calls) == 46:
            raise RuntimeError("out of memory")
        return real(*arguments, **options)

    monkeypatch.setattr(first._gradients, "sums", broken)
    with pytest.raises(RuntimeError, match="out of memory"):
        first.fit(x, y, folder=tmp_path)
    second = made("full batch")
    assert second.fit(x, y, folder=training.RunFolder(tmp_path, resume=True)).step == 60
    assert np.array_equal(spent(second, "full batch"), spent(whole, "full batch"))


def test_callbacks_see_each_step_once_and_ask_once(tmp_path):
    """Questions, noise that falls, schedules and averages go on as in a run that was let be, wherever it stopped."""

    def run(folder, *errors_at):
        once = [Once(step) for step in errors_at]
        for attempt in range(len(errors_at) + 1):
            module = network()
            optimizer = torch.optim.SGD(module.parameters(), lr=1.0)
            budget = filters.Gaussian(mu=2.0)
            job = training.Trainer(
                module, BY_RECORD, optimizer, budget, max_grad_norm=TINY, divisor=N, steps=20, noise_multiplier=40.0
            )
            average = callbacks.MovingAverage(0.5)
            schedule = torch.optim.lr_scheduler.StepLR(optimizer, 5)
            seen = [
                callbacks.DecreasingNoise(factor=0.9, every=5, least=1.0),
                *once[:1],
                callbacks.Schedule(schedule),
                *once[1:],
                average,
                lambda run: run.noisy_sum(correct, sigma=200.0) if run.step % 5 == 0 else None,
            ]
            try:
                found = job.fit(*records(), callbacks=seen, folder=training.RunFolder(folder, resume=attempt > 0))
            except KeyboardInterrupt:
                continue
            return found, optimizer.param_groups[0]["lr"], average
        return None

    whole, rate, _ = run(tmp_path / "whole")
    stopped, same_rate, average = run(tmp_path / "stopped", 10, 15)
    assert [each[:2] for each in stopped.answers] == [each[:2] for each in whole.answers]
    assert dict(stopped.released) == dict(whole.released)
    assert (stopped.noise_multiplier, same_rate) == (whole.noise_multiplier, rate)
    assert average.module is not None


def test_a_step_is_finished_before_ctrl_c_ends_the_run(tmp_path, monkeypatch):
    """A signal that comes once people are charged waits for the step; a second one does not."""
    x, y = records()
    first = made("full batch")
    real, steps = first._optimizer.step, []

    def pressed(*_, **__):
        steps.append(1)
        if len(steps) == 7:
            signal.raise_signal(signal.SIGINT)
            steps.append("went on")
        return real()

    monkeypatch.setattr(first._optimizer, "step", pressed)
    with pytest.raises(KeyboardInterrupt):
        first.fit(x, y, folder=tmp_path)
    assert "went on" in steps
    state = saved_in(tmp_path)["run"]
    assert (state["step"], [times for _, times in state["released"]]) == (7, [7])
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL


def test_a_second_ctrl_c_does_not_wait():
    """Two in the same step: the second one raises at once, and the first when the training is over."""

    def pressed_twice():
        with Interruptions() as interruptions:
            interruptions.wait()
            signal.raise_signal(signal.SIGINT)
            with pytest.raises(KeyboardInterrupt):
                signal.raise_signal(signal.SIGINT)

    with pytest.raises(KeyboardInterrupt):
        pressed_twice()


def test_handlers_that_were_set_are_called_and_restored(monkeypatch):
    """The caller's handler of SIGTERM decides what it means; signals that were ignored stay ignored."""
    heard = []

    def handler(number, _):
        heard.append(number)

    before = signal.signal(signal.SIGTERM, handler)
    ignored = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        with Interruptions() as interruptions:
            assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN
            interruptions.wait()
            signal.raise_signal(signal.SIGTERM)
            assert heard == []
            interruptions.go_on()
            assert heard == [signal.SIGTERM]
        assert signal.getsignal(signal.SIGTERM) is handler
    finally:
        signal.signal(signal.SIGTERM, before)
        signal.signal(signal.SIGINT, ignored)


def test_signals_are_left_alone_where_nothing_is_kept_and_in_other_threads():
    """A training without a folder and a ledger, or outside the main thread, sets no handler."""
    with Interruptions(None):
        assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL
    found = []

    def elsewhere():
        with Interruptions():
            found.append(signal.getsignal(signal.SIGTERM))

    thread = threading.Thread(target=elsewhere)
    thread.start()
    thread.join()
    assert found == [signal.SIG_DFL]


def test_a_forked_process_saves_nothing_and_dies_by_sigterm(tmp_path):
    """What a callback forks is ended by SIGTERM as ever, and an error there leaves the folder alone."""
    x, y = records()
    ends, parent = [], os.getpid()

    def forks(run):
        if run.step != 3:
            return
        sleeper = os.fork()
        if not sleeper:
            time.sleep(20)
            os._exit(0)
        time.sleep(0.5)  # a signal in the middle of the fork would be lost
        os.kill(sleeper, signal.SIGTERM)
        ends.append(os.waitstatus_to_exitcode(os.waitpid(sleeper, 0)[1]))
        child = os.fork()
        if not child:
            raise SystemExit(7)
        ends.append(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))

    try:
        run = made("full batch").fit(x, y, folder=training.RunFolder(tmp_path, every=100), callbacks=[forks])
    except SystemExit as error:
        assert os.getpid() != parent
        seen = saved_in(tmp_path)["run"]["step"]
        os._exit(0 if seen == 0 and "forked" in error.__notes__[0] else 1)
    assert run.step == 60
    assert ends == [-signal.SIGTERM, 0]


@pytest.mark.slow
def test_sigterm_ends_the_process_and_the_run_goes_on_from_its_folder():
    """Told to end at random moments, a process dies by SIGTERM; in the end everybody has paid once for each step."""
    signals = ["--signals", "SIGTERM", "--kills", "20", "--doors", "full;full, watched", "--seed", "3"]
    command = [sys.executable, "-W", "ignore", SCRIPT, *signals]
    found = json.loads(subprocess.run(command, check=True, timeout=300, stdout=subprocess.PIPE).stdout)
    assert found["by signal"] == {"SIGTERM": 20}
    assert (found["steps taken again"], found["problems"]) == (0, {})


@pytest.mark.slow
@needs("adult")
def test_interruptions_cost_at_most_a_step_each():
    """DP-SGD on Adult: nothing by Ctrl-C and SIGTERM, by kill -9 the step that was not kept; all steps are taken."""
    script = SCRIPT.with_name("interruptions.py")
    command = [sys.executable, "-W", "ignore", script, "--quick", "--every", "1", "--data", DATA / "adult"]
    found = json.loads(subprocess.run(command, check=True, timeout=600, stdout=subprocess.PIPE).stdout)
    lost = {kind: each["charged, not taken, for each"] for kind, each in found.items()}
    assert {each["steps"] for each in found.values()} == {60}
    assert lost.pop("kill -9") <= 1
    assert set(lost.values()) == {0}
    assert found["undisturbed"]["accuracy"] > 80


def test_a_full_disk_does_not_hide_the_error(tmp_path, monkeypatch):
    """The error that ended the run is raised, with a note that nothing could be kept."""
    x, y = records()
    job = made("full batch")
    real = np.savez

    def full(*arguments, **options):
        if job._run is not None and job._run.current.value.step:
            raise OSError("No space left on device")
        return real(*arguments, **options)

    monkeypatch.setattr(np, "savez", full)
    with pytest.raises(ZeroDivisionError) as ended:
        job.fit(x, y, folder=training.RunFolder(tmp_path, every=100), callbacks=[Once(5, ZeroDivisionError)])
    assert "could not be kept" in ended.value.__notes__[0]
    assert saved_in(tmp_path)["run"]["step"] == 0


class Clock:
    def __init__(self):
        self.now = 0.0

    def __call__(self):
        return self.now


def saved_at(monkeypatch, *, every, cost, step, steps=200, planned=None):
    """Steps after which it is saved, where a save and a step take so long."""
    clock, found = Clock(), []
    monkeypatch.setattr(run_module, "monotonic", clock)

    def save():
        clock.now += cost

    saves = Saves(save, every=every, planned=planned, interruptions=Interruptions(None))
    saves.save()
    for number in range(1, steps + 1):
        clock.now += step
        before = clock.now
        saves.after(number)
        if clock.now > before:
            found.append(number)
    return found, len(found) * cost / clock.now


def test_saving_takes_less_than_a_twentieth_of_the_time(monkeypatch):
    """Cheap: after every step. Dear: as often as a twentieth of the time allows. By choice: so often."""
    assert saved_at(monkeypatch, every=None, cost=0.001, step=0.1)[0] == [*range(1, 201)]
    steps, share = saved_at(monkeypatch, every=None, cost=0.1, step=0.1)
    assert steps[0] == 20
    assert share < 1 / 20
    (once,), _ = saved_at(monkeypatch, every=None, cost=1.0, step=0.1, steps=250)
    assert 200 <= once <= 201
    assert saved_at(monkeypatch, every=70, cost=10.0, step=0.1)[0] == [70, 140]


def test_a_planned_run_is_saved_a_hundred_times_at_least(monkeypatch):
    """A kill loses at most a hundredth of the steps, and the one under way, however dear a save is."""
    assert saved_at(monkeypatch, every=None, planned=60, cost=10.0, step=0.1, steps=60)[0] == [*range(1, 61)]
    found, _ = saved_at(monkeypatch, every=None, planned=1000, cost=1e4, step=0.1, steps=1000)
    assert found == [*range(10, 1001, 10)]
    for planned in (99, 150, 199, 250):
        found, _ = saved_at(monkeypatch, every=None, planned=planned, cost=1e4, step=0.1, steps=planned)
        assert len(found) >= min(planned, 100)
        assert max(np.diff([0, *found])) <= max(1, planned / 100)
    assert saved_at(monkeypatch, every=70, planned=100, cost=10.0, step=0.1)[0] == [70, 140]


def test_killed_is_no_error_that_programs_catch():
    """A callback that catches every Exception does not keep a process from ending."""
    assert not issubclass(Killed, Exception)


def updated(folder, *, resume=False):
    module = network()
    return training.Stream(
        module,
        BY_RECORD,
        torch.optim.SGD(module.parameters(), lr=1.0),
        filters.Gaussian(mu=2.0),
        max_grad_norm=TINY,
        noise_multiplier=4.0,
        folder=training.RunFolder(folder, resume=resume),
    )


@pytest.mark.parametrize("error", [KeyboardInterrupt, RuntimeError])
def test_an_update_that_the_model_breaks_costs_nobody_anything(tmp_path, monkeypatch, error):
    """Announced and not charged: after a restart the update is made again and paid once."""
    x, y = records()
    ids = [f"p{number}" for number in range(50)]

    def broken(*_, **__):
        raise error

    with updated(tmp_path) as first:
        first.update(x[:50], y[:50], ids, divisor=50)
        with monkeypatch.context() as patch:
            patch.setattr(first._gradients, "sums", broken)
            with pytest.raises(error):
                first.update(x[:50], y[:50], ids, divisor=50)
    with updated(tmp_path, resume=True) as second:
        assert second.update(x[:50], y[:50], ids, divisor=50) == 2
        assert second.card(delta=1e-6).released == ((mechanisms.Gaussian(4 * TINY, TINY), 2),)
        assert second.accounts.spent() == pytest.approx(2 / 16)


def test_ctrl_c_waits_for_an_update_until_it_is_on_the_disk(tmp_path, monkeypatch):
    """The model shows the update, and so does its folder; of ``partial_fit`` too."""
    x, y = records()
    ids = [f"p{number}" for number in range(N)]
    with updated(tmp_path / "stream") as stream:
        real = stream._optimizer.step

        def pressed(*_, **__):
            signal.raise_signal(signal.SIGINT)
            return real()

        monkeypatch.setattr(stream._optimizer, "step", pressed)
        with pytest.raises(KeyboardInterrupt):
            stream.update(x[:50], y[:50], ids[:50], divisor=50)
        assert stream.number == 1
    with updated(tmp_path / "stream", resume=True) as again:
        assert again.number == 1
        assert again.accounts.spent() == pytest.approx(1 / 16)
    model = training.LogisticRegression(epsilon=1.0, steps=5, n_people=N, classes=[0, 1])
    saving = Folder.save

    def pressed_too(self, parts, number):
        saving(self, parts, number)
        if number == 1:
            signal.raise_signal(signal.SIGINT)

    monkeypatch.setattr(Folder, "save", pressed_too)
    with pytest.raises(KeyboardInterrupt):
        model.partial_fit(x.numpy(), y.numpy(), ids, folder=tmp_path / "model")
    assert model.n_iter_ == 1
    assert model.partial_fit(x.numpy(), y.numpy(), ids).n_iter_ == 2


def test_refused_ids_leave_no_account_behind(tmp_path):
    """Ids that a folder cannot keep are refused before they get accounts, so that later updates can be kept."""
    x, y = records()
    with updated(tmp_path) as stream:
        with pytest.raises(errors.ArgumentError, match="whole numbers or texts"):
            stream.update(x[:2], y[:2], [("a", 1), ("b", 2)], divisor=50)
        assert stream.update(x[:2], y[:2], ["a", "b"], divisor=50) == 1
        assert stream.accounts.missing([("a", 1)]) == [("a", 1)]


@pytest.mark.slow
def test_a_training_on_a_ledger_that_is_told_to_end_is_settled(tmp_path):
    """SIGTERM during ``LogisticRegression.fit``: people stay charged for the steps so far, and have the rest back."""
    path, who = tmp_path / "people.ledger", [f"p{number}" for number in range(N)]
    Session.open(
        pa.table({"who": who}), person="who", budget=filters.Gaussian(mu=1.0), ledger=path, create=True
    ).close()
    code = f"""
import os, signal, numpy as np
from almoner import training
x, who = np.ones(({N}, 1)), np.array([f"p{{number}}" for number in range({N})])
def look(number, _):
    if number == 10:
        os.kill(os.getpid(), signal.SIGTERM)
model = training.LogisticRegression(epsilon=None, noise_multiplier=200.0, steps=100, n_people={N}, classes=[0, 1])
model.fit(x, np.arange({N}) % 2, who, observe=look, ledger=training.OnLedger({str(path)!r}, "one"))
"""
    assert subprocess.run([sys.executable, "-c", code], timeout=120, check=False).returncode == -signal.SIGTERM
    with ledger.Ledger.open(path, create=False) as book:
        (listed,) = book.consumers.values()
        assert listed.state == "settled"
        paid = book.spent(who[0]) / book.budget_units
        assert 0 < paid <= 10 / 200**2 * (1 + 1e-6)  # ten steps of a hundred
