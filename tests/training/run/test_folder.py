"""Checkpoints: a run that is killed at any moment goes on, and nobody's account is below what was released."""

import collections
import datetime
import functools
import json
import os
import subprocess
import sys
import uuid
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

from almoner import errors, filters, individual, mechanisms, training
from almoner.training._run import folder as run_folder
from almoner.training._run.folder import Folder
from almoner.training.stopping import StillActive
from training_runs import N, dies, trainer
from training_runs import records as people_and_labels

SCRIPT = Path(__file__).parents[3] / "benchmarks" / "crashes" / "training.py"
BY_RECORD = nn.CrossEntropyLoss(reduction="none")


@pytest.mark.slow
def test_killed_and_resumed_nobody_is_undercharged():
    """Runs killed 50 times in all at random moments: all that was released is charged to everybody, and no budget is
    exceeded."""
    command = [sys.executable, "-W", "ignore", SCRIPT, "--kills", "50", "--doors", "full", "--seed", "5"]
    run = subprocess.run(command, stdout=subprocess.PIPE, timeout=300, check=False)
    found = json.loads(run.stdout)
    assert (run.returncode, found["problems"], found["used again"]) == (0, {}, 0)
    assert (found["kills"], found["runs"] >= 10) == (50, True)
    assert found["steps taken again"] > 0  # steps were lost and taken again, so the test had something to find


def job(budget=None, **options):
    torch.manual_seed(0)
    module = nn.Linear(3, 2)
    optimizer = torch.optim.SGD(module.parameters(), lr=0.5, momentum=0.9)
    budget = filters.Gaussian(mu=2.0) if budget is None else budget
    budget = budget.fresh() if isinstance(budget, filters.Filter) else budget  # each training has a budget of its own
    options = {"max_grad_norm": 1.0, "noise_multiplier": 4.0, "divisor": 30, "steps": 10} | options
    return training.Trainer(module, BY_RECORD, optimizer, budget, **options)


@pytest.fixture(name="data")
def fixture_data():
    torch.manual_seed(0)
    x = torch.randn(30, 3)
    return x, (x[:, 0] > 0).long()


class Crash(Exception):
    pass


def test_a_process_that_goes_back_a_step_has_that_step_at_every_moment(tmp_path, monkeypatch):
    """The step that all processes have kept is there until it is written again, also where that is interrupted."""

    def stops(*_):
        raise Crash

    folder = Folder(tmp_path / "run", "Trainer", resume=False)
    folder.twice = True
    folder.save({"step": "nine"}, 9)
    folder.save({"step": "ten"}, 10)
    monkeypatch.setattr(run_folder, "_write", stops)
    with pytest.raises(Crash):
        folder.save({"step": "nine"}, 9)
    assert folder.numbers() == [10, 9]
    assert folder.parts_of(9) == {"step": "nine"}
    folder.close()


class OneWeight(nn.Module):
    """A layer with a weight of a name that folders use for something else."""

    def __init__(self):
        super().__init__()
        self.shard = nn.Parameter(torch.zeros(3, 2))

    def forward(self, x):
        return x @ self.shard


def test_a_weight_may_have_any_name(data, tmp_path):
    """A module whose only weight is called "shard" goes on from its folder."""
    for resume in (False, True):
        module = OneWeight()
        optimizer = torch.optim.SGD(module.parameters(), lr=0.5)
        one = {"max_grad_norm": 1.0, "divisor": 30, "steps": 2}
        begun = training.Trainer(module, BY_RECORD, optimizer, filters.Gaussian(mu=2.0), **one)
        run = begun.fit(*data, folder=training.RunFolder(tmp_path / "run", resume=resume))
        assert run.step == 2
        assert module.shard.abs().min() > 0


def crash_at(step):
    def callback(run):
        if run.step == step:
            raise Crash

    return callback


@pytest.mark.slow
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"individual": False},
        {"budget": filters.RenyiOrder(alpha=8.0, rho=1.0), "sampling": training.Poisson(0.3)},
        {"budget": filters.Renyi(epsilon=3.0, delta=1e-5), "sampling": training.Poisson(0.3)},
    ],
)
def test_what_the_checkpoint_has_not_seen_is_charged_in_full(data, tmp_path, options):
    """Steps after the last checkpoint are paid at their worst case on resuming, then the run is finished."""
    first = job(**options)
    with dies(Crash):
        first.fit(*data, callbacks=[crash_at(5)], folder=training.RunFolder(tmp_path / "run", every=3))
    second = job(**options)
    run = second.fit(*data, callbacks=[], folder=training.RunFolder(tmp_path / "run", every=3, resume=True))
    assert run.step == 10 or run.reason == "the budget is spent"
    step = next(iter(run.released))
    assert run.released[step] == run.step + 2  # steps 4 and 5 were lost and taken again
    if options.get("individual", True):
        assert (np.asarray(second.accounts.spent()) >= 0).all()


def test_momentum_and_public_state_are_restored(data, tmp_path):
    """Parameters, the optimizer's state, answers and history go on where the checkpoint was."""
    first = job()
    module = first._module

    def note(run):
        run.history.setdefault("steps", []).append(run.step)
        if run.step == 6:
            raise Crash

    with dies(Crash):
        first.fit(*data, callbacks=[note], folder=training.RunFolder(tmp_path / "run", every=6))
    second = job()
    state, unseen = Folder(tmp_path / "run", "Trainer", resume=True).load()
    assert [type(each.mechanism) for each in unseen] == [
        mechanisms.Gaussian
    ] * 6  # the crash came before step 6 was saved
    assert state["run"]["step"] == 0
    run = second.fit(*data, folder=training.RunFolder(tmp_path / "other", every=1))
    with pytest.raises(errors.ArgumentError, match="holds a run already"):
        job().fit(*data, folder=tmp_path / "other")
    third = job()
    again = third.fit(*data, folder=training.RunFolder(tmp_path / "other", resume=True))
    assert again.step == run.step == 10
    assert all(
        torch.equal(a, b)
        for a, b in zip(second._module.state_dict().values(), third._module.state_dict().values(), strict=True)
    )
    assert (third.accounts.spent() == second.accounts.spent()).all()
    assert module is not third._module


def test_broken_checkpoints_are_refused_and_left_alone(data, tmp_path):
    """A damaged file, a journal that is too short, a second process: a clear error, nothing changed."""
    folder = tmp_path / "run"
    job().fit(*data, folder=training.RunFolder(folder, every=2))
    held = Folder(folder, "Trainer", resume=True)
    with pytest.raises(errors.ArgumentError, match="in use by another"):
        job().fit(*data, folder=training.RunFolder(folder, resume=True))
    held.close()
    lines, state = folder / "journal.jsonl", folder / "state.npz"
    whole = lines.read_bytes(), state.read_bytes()
    lines.write_bytes(whole[0][: len(whole[0]) // 2])
    with pytest.raises(errors.DataError, match="journal is shorter"):
        job().fit(*data, folder=training.RunFolder(folder, resume=True))
    lines.write_bytes(whole[0] + b'{"kind": "Gau')  # a line that was being written: nothing of it was released
    job().fit(*data, folder=training.RunFolder(folder, resume=True))
    run_folder._write(state, run_folder._read(state) | {"format": 0}, 0)
    with pytest.raises(errors.DataError, match="has format 0, of another version"):
        job().fit(*data, folder=training.RunFolder(folder, resume=True))
    state.write_bytes(whole[1][:100])
    with pytest.raises(errors.DataError, match="can't be read"):
        job().fit(*data, folder=training.RunFolder(folder, resume=True))
    assert (folder.stat().st_mode & 0o777, lines.stat().st_mode & 0o777) == (0o700, 0o600)


@pytest.mark.parametrize(
    ("budget", "options"),
    [
        (filters.Gaussian(mu=1.0), {}),
        (filters.Gaussian(mu=4.0), {}),
        (filters.Zcdp(rho=2.0), {}),
        (None, {"individual": False}),
    ],
)
def test_a_run_goes_on_with_the_budget_it_began_with(data, tmp_path, budget, options):
    """Another budget is refused on resuming: the card would promise what the checkpoint's accounts do not keep."""
    with dies(Crash):
        job().fit(*data, callbacks=[crash_at(5)], folder=training.RunFolder(tmp_path / "run", every=3))
    before = (tmp_path / "run" / "state.npz").read_bytes()
    with pytest.raises(errors.ArgumentError, match="folder"):
        job(budget, **options).fit(*data, folder=training.RunFolder(tmp_path / "run", resume=True))
    assert (tmp_path / "run" / "state.npz").read_bytes() == before
    again = job(filters.Gaussian(mu=2))  # the same, written differently
    again.fit(*data, folder=training.RunFolder(tmp_path / "run", resume=True))
    assert again.card(delta=1e-5).total == 4.0


def test_a_run_goes_on_with_as_many_people(data, tmp_path):
    """Fewer or more people than the checkpoint has accounts: refused before anybody is charged."""
    job().fit(*data, folder=tmp_path / "run")
    for people in (torch.arange(30) // 2, torch.arange(30) * 2):
        with pytest.raises(errors.ArgumentError, match="same people in the same order"):
            job().fit(*data, people, folder=training.RunFolder(tmp_path / "run", resume=True))


def interrupted(data, folder, **options):
    """A run that was killed after five steps of ten."""
    with dies(Crash):
        job(**options).fit(*data, callbacks=[crash_at(5)], folder=training.RunFolder(folder, every=3))


def test_a_card_never_promises_less_than_the_resumed_accounts_hold(data, tmp_path):
    """A checkpoint whose accounts hold another budget is refused: the card would say the new one's epsilon."""
    interrupted(data, tmp_path / "run")
    with pytest.raises(errors.ArgumentError, match="do not hold the budget"):
        job(filters.Gaussian(mu=0.1)).fit(*data, folder=training.RunFolder(tmp_path / "run", resume=True))
    with pytest.raises(errors.ArgumentError, match="do not hold the budget"):
        job(individual=False).fit(*data, folder=training.RunFolder(tmp_path / "run", resume=True))
    again = job()
    assert again.fit(*data, folder=training.RunFolder(tmp_path / "run", resume=True)).step == 10
    assert again.card(delta=1e-5).total == pytest.approx(again.accounts.budget.mu**2)


def test_accounts_are_resumed_with_the_same_records_in_the_same_order_only(data, tmp_path):
    """An account stands for a row: in other records, or another order, the wrong people would pay."""
    x, y = data
    interrupted(data, tmp_path / "run")
    order = torch.randperm(30, generator=torch.Generator().manual_seed(1))
    for records in ((x[order], y[order]), (x[:20], y[:20]), (x, 1 - y), (x, y, torch.arange(30))):
        with pytest.raises(errors.ArgumentError, match="same people in the same order"):
            job().fit(*records, folder=training.RunFolder(tmp_path / "run", resume=True))
    assert job().fit(x.clone(), y.clone(), folder=training.RunFolder(tmp_path / "run", resume=True)).step == 10


def test_a_seed_of_any_part_of_a_run_is_on_the_card(data, tmp_path):
    """Noise that was drawn from a seed stays reproducible, whatever the rest of the run was drawn from."""
    interrupted(data, tmp_path / "run", seed=1)
    again = job()
    again.fit(*data, folder=training.RunFolder(tmp_path / "run", resume=True))
    assert again.card(delta=1e-5).reproducible


def test_what_was_released_is_not_forgotten_with_the_checkpoint(data, tmp_path):
    """A journal without its checkpoint is refused: fresh accounts would be charged for nothing that it tells of."""
    interrupted(data, tmp_path / "run")
    (tmp_path / "run" / "state.npz").unlink()
    for resume in (True, False):
        with pytest.raises(errors.DataError, match="is missing"):
            job().fit(*data, folder=training.RunFolder(tmp_path / "run", resume=resume))


def test_numpys_numbers_in_the_history_do_not_make_a_checkpoint_unreadable(data, tmp_path):
    """What callbacks keep is read back as plain numbers."""

    def keep(run):
        run.history.setdefault("means", []).append(np.float64(0.5))

    with dies(Crash):
        job().fit(*data, callbacks=[keep, crash_at(5)], folder=training.RunFolder(tmp_path / "run", every=3))
    assert job().fit(*data, folder=training.RunFolder(tmp_path / "run", resume=True)).history == {"means": [0.5] * 4}


def fresh_losses():
    return individual.Losses(30, least=4.0, most=4000.0)


@pytest.mark.slow
@pytest.mark.parametrize(
    "options",
    [{}, {"individual": False}, {"budget": filters.RenyiOrder(alpha=8.0, rho=2.0), "sampling": training.Poisson(0.5)}],
)
def test_losses_are_filled_and_survive_a_crash(data, tmp_path, options):
    """Everybody's epsilon is at most the budget's; after a crash the steps that were lost count in full, never less."""
    whole, lost = fresh_losses(), fresh_losses()
    job(seed=1, **options).fit(*data, watch=whole)
    options = options | {"seed": 1}
    with dies(Crash):
        job(**options).fit(
            *data, callbacks=[crash_at(5)], folder=training.RunFolder(tmp_path / "run", every=3), watch=lost
        )
    again = fresh_losses()
    second = job(**options)
    second.fit(*data, folder=training.RunFolder(tmp_path / "run", resume=True), watch=again)
    steps = [sum(kept.counts(rate).sum(axis=1) for rate in kept.rates) for kept in (whole, lost, again)]
    assert (steps[0] <= 10).all()
    assert (steps[0] > 0).all()
    assert (steps[1] <= 5).all()
    assert (steps[2] >= 2).all()  # two steps were lost
    # three steps of the checkpoint, two at the full norm, and those that each could still pay for
    assert (again.counts(again.rates[0])[:, 0] >= 2).all()
    bound = second.card(delta=1e-5).epsilon
    assert (whole.epsilon(delta=1e-5) <= bound * (1 + 1e-6)).all()
    assert (whole.epsilon(delta=1e-5) > 0).all()


def test_losses_that_cannot_be_filled_are_refused_before_anybody_is_charged(data, tmp_path):
    """Of other people, used already, without the bucket of the largest contribution, or unknown to the checkpoint."""
    used = fresh_losses()
    used.record(mechanisms.Gaussian(4.0), np.ones(30))
    with pytest.raises(errors.ArgumentError, match="watch=3"):
        job().fit(*data, watch=3)
    for losses in (individual.Losses(29, least=4.0, most=40.0), used, individual.Losses(30, least=4.1, most=40.0)):
        with pytest.raises(errors.ArgumentError, match="losses"):
            job().fit(*data, watch=losses)
    job().fit(*data, folder=tmp_path / "run")
    with pytest.raises(errors.ArgumentError, match="as the folder's run did"):
        job().fit(*data, folder=training.RunFolder(tmp_path / "run", resume=True), watch=fresh_losses())


@pytest.mark.parametrize("change", [{"noise_multiplier": 5.0}, {"max_grad_norm": 0.5}])
def test_a_run_goes_on_with_its_own_noise_and_clip(data, tmp_path, change):
    """Others are refused on resuming: the card would not be about the steps that were done."""
    interrupted(data, tmp_path / "run")
    with pytest.raises(errors.ArgumentError, match=f"{next(iter(change))}=.*folder"):
        job(**change).fit(*data, folder=training.RunFolder(tmp_path / "run", resume=True))


def test_losses_refuse_a_price_that_is_not_gaussian(data):
    """A question about who is still active is paid by a pure mechanism: named, before anything is released."""
    ask = functools.partial(StillActive, at_least=10, epsilon=0.1)
    with pytest.raises(errors.Unsupported, match="losses: Pure"):
        job(filters.Zcdp(rho=2.0)).fit(*data, watch=[ask, fresh_losses()])


@pytest.mark.parametrize("kept", [np.array([None]), datetime.date(2026, 1, 1), lambda: 0])
def test_a_checkpoint_that_could_not_be_read_is_refused_and_the_last_one_kept(data, tmp_path, kept):
    """What a callback keeps must be plain: told when it is saved, and the run can be resumed."""

    def note(run):
        if run.step == 2:
            run.history["kept"] = [kept]

    with pytest.raises(errors.DataError, match=r"run\.history"):
        job().fit(*data, callbacks=[note], folder=training.RunFolder(tmp_path / "run", every=1))
    assert job().fit(*data, folder=training.RunFolder(tmp_path / "run", resume=True)).step == 10


def test_named_tuples_are_kept_as_tuples(data, tmp_path):
    """They hold nothing but what tuples hold."""
    pair = collections.namedtuple("pair", "a b")
    with dies(Crash):
        job().fit(
            *data,
            callbacks=[lambda run: run.history.update(kept=[pair(1, 2)]), crash_at(4)],
            folder=training.RunFolder(tmp_path / "run", every=2),
        )
    assert job().fit(*data, folder=training.RunFolder(tmp_path / "run", resume=True)).history["kept"] == [(1, 2)]


def test_accounts_with_ids_can_be_resumed_or_are_refused_at_once(data, tmp_path):
    """NumPy's numbers are numbers; what a file cannot hold is named before anything is released."""
    with dies(Crash):
        job(individual.Filter(np.arange(30) + 100, filters.Gaussian(mu=2.0))).fit(
            *data, callbacks=[crash_at(5)], folder=training.RunFolder(tmp_path / "numbers", every=2)
        )
    again = job()
    assert again.fit(*data, folder=training.RunFolder(tmp_path / "numbers", resume=True)).step == 10
    assert again.accounts.spent([100])[0] > 0
    accounts = individual.Filter([uuid.uuid4() for _ in range(30)], filters.Gaussian(mu=2.0))
    with pytest.raises(errors.DataError, match="people's ids"):
        job(accounts).fit(*data, folder=tmp_path / "uuids")
    assert not accounts.spent().any()


def test_a_run_goes_on_as_it_began(data, tmp_path):
    """Another divisor, another way of spending the remainder, another optimizer, losses that are left out: refused
    before anything is charged."""
    with dies(Crash):
        job().fit(*data, folder=tmp_path / "run", watch=fresh_losses(), callbacks=[crash_at(5)])
    before = (tmp_path / "run" / "state.npz").read_bytes()
    for change in ({"divisor": 60}, {"sampling": training.FullBatch(spend_remainder=False)}):
        with pytest.raises(errors.ArgumentError, match=f"{next(iter(change))}=.*folder"):
            job(**change).fit(*data, folder=training.RunFolder(tmp_path / "run", resume=True), watch=fresh_losses())
    with pytest.raises(errors.ArgumentError, match="losses"):
        job().fit(*data, folder=training.RunFolder(tmp_path / "run", resume=True))
    module = nn.Linear(3, 2)
    other = training.Trainer(
        module,
        BY_RECORD,
        torch.optim.Adam(module.parameters()),
        filters.Gaussian(mu=2.0),
        max_grad_norm=1.0,
        noise_multiplier=4.0,
        divisor=30,
        steps=10,
    )
    with pytest.raises(errors.ArgumentError, match="optimizer='Adam' must be"):
        other.fit(*data, folder=training.RunFolder(tmp_path / "run", resume=True), watch=fresh_losses())
    assert (tmp_path / "run" / "state.npz").read_bytes() == before
    job().fit(*data, folder=training.RunFolder(tmp_path / "run", resume=True), watch=fresh_losses())


def sampled(**options):
    return job(filters.RenyiOrder(alpha=8.0, rho=2.0), sampling=training.Poisson(0.2), noise_multiplier=4.0, **options)


def test_own_samples_and_answers_about_who_is_active_do_not_mix_over_a_crash(data, tmp_path):
    """Refused where bounds followed own samples before; a run that asked from the start goes on."""
    ask = functools.partial(StillActive, at_least=10, epsilon=0.05)
    for name, counting in (("plain", None), ("asked", ask)):
        with dies(Crash):
            sampled().fit(*data, folder=tmp_path / name, watch=counting, callbacks=[crash_at(5)])
    with pytest.raises(errors.ArgumentError, match="followed own samples"):
        sampled().fit(*data, folder=training.RunFolder(tmp_path / "plain", resume=True), watch=ask)
    assert sampled().fit(*data, folder=training.RunFolder(tmp_path / "plain", resume=True)).step == 10
    assert sampled().fit(*data, folder=training.RunFolder(tmp_path / "asked", resume=True), watch=ask).step == 10


def test_a_disk_that_is_full_is_called_so(data, tmp_path, monkeypatch):
    """Not a fault of what callbacks keep; no half-written file is left."""

    def full(*_, **__):
        raise OSError("No space left on device")

    with dies(Crash):
        job().fit(*data, callbacks=[crash_at(5)], folder=training.RunFolder(tmp_path / "run", every=2))
    with monkeypatch.context() as patched:
        patched.setattr(np, "savez", full)
        with pytest.raises(errors.DataError, match="can't be written"):
            job().fit(*data, folder=training.RunFolder(tmp_path / "run", resume=True))
    assert not (tmp_path / "run" / "state.npz.new").exists()
    job().fit(*data, folder=training.RunFolder(tmp_path / "run", resume=True))


def test_a_journal_that_cannot_be_read_is_named(data, tmp_path):
    """Nothing is guessed from it."""
    with dies(Crash):
        job().fit(*data, callbacks=[crash_at(5)], folder=training.RunFolder(tmp_path / "run", every=3))
    lines = tmp_path / "run" / "journal.jsonl"
    lines.write_text(lines.read_text() + "[3]\n")
    with pytest.raises(errors.DataError, match=r"journal\.jsonl.*can't be read"):
        job().fit(*data, folder=training.RunFolder(tmp_path / "run", resume=True))


@pytest.mark.parametrize("moment", ["write", "fsync"])
def test_a_line_that_a_signal_interrupts_is_seen_and_charged_to_nobody(data, tmp_path, monkeypatch, moment):
    """Ctrl-C while a step is announced: nothing of it was released, and the resumed run counts each step once."""
    real, calls = getattr(os, moment), []

    def interrupted(file, *rest):
        done = real(file, *rest)
        if Path(f"/proc/self/fd/{file}").readlink().name == "journal.jsonl":
            calls.append(done)
            if len(calls) == 4:
                raise KeyboardInterrupt
        return done

    with monkeypatch.context() as patched:
        patched.setattr(os, moment, interrupted)
        with pytest.raises(KeyboardInterrupt):
            job(max_grad_norm=1e-4).fit(*data, folder=training.RunFolder(tmp_path / "run", every=50))
    first, whole = job(max_grad_norm=1e-4), job(max_grad_norm=1e-4)  # all gradients are longer: all pay alike
    resumed = first.fit(*data, folder=training.RunFolder(tmp_path / "run", resume=True))
    assert dict(resumed.released) == dict(whole.fit(*data).released)
    assert np.array_equal(first.accounts.spent(), whole.accounts.spent())


def test_a_line_that_a_state_has_seen_is_on_the_disk(tmp_path, monkeypatch):
    """Also one whose writing was interrupted before it was forced there: the state would outlive it."""
    folder, forced = Folder(tmp_path / "run", "Trainer", resume=False), []
    real_write, real_sync = os.write, os.fsync

    def written_and_interrupted(*given):
        real_write(*given)
        raise KeyboardInterrupt

    monkeypatch.setattr(os, "write", written_and_interrupted)
    with pytest.raises(KeyboardInterrupt):
        folder.announce(mechanisms.Gaussian(1.0))
    monkeypatch.setattr(os, "write", real_write)
    monkeypatch.setattr(os, "fsync", lambda file: (forced.append(os.fstat(file).st_ino), real_sync(file)))
    folder.save({}, 0)
    folder.close()
    assert forced[0] == (tmp_path / "run" / "journal.jsonl").stat().st_ino
    assert Folder(tmp_path / "run", "Trainer", resume=True).load() == ({}, [])


def test_a_forked_process_does_not_write_its_parents_journal(data, tmp_path):
    """It has no part in the lock, and announces no step; the parent goes on."""
    checkpoint = Folder(tmp_path / "run", "Trainer", resume=False)
    child = os.fork()
    if child == 0:
        try:
            checkpoint.announce(mechanisms.Gaussian(1.0))
        except errors.DataError:
            os._exit(0)
        os._exit(1)
    assert os.waitpid(child, 0)[1] == 0
    checkpoint.announce(mechanisms.Gaussian(1.0))
    with pytest.raises(errors.ArgumentError, match="in use by another"):
        Folder(tmp_path / "run", "Trainer", resume=True)
    checkpoint.close()


def test_a_run_needs_a_file_system_with_locks(tmp_path, monkeypatch):
    """Where two processes could train from one checkpoint unnoticed, none may."""

    def refuse(*_):
        raise OSError(95, "Operation not supported")

    monkeypatch.setattr("fcntl.flock", refuse)
    with pytest.raises(errors.ArgumentError, match="cannot be locked"):
        Folder(tmp_path / "run", "Trainer", resume=False)


def test_own_shares_survive_a_crash(tmp_path):
    """The resumed run keeps each person to their own part of the budget, with no need to say it again."""
    x, y = people_and_labels()
    shares = np.where(np.arange(N) % 2, 1.0, 0.25)

    def stop(run):
        if run.step == 7:
            raise KeyboardInterrupt

    settings = {"noise_multiplier": 4.0, "sampling": training.FullBatch(pace=0.0)}
    with pytest.raises(KeyboardInterrupt):
        trainer(filters.Gaussian(mu=1.0), **settings).fit(
            x, y, shares=shares, folder=training.RunFolder(tmp_path / "run", every=3), callbacks=[stop]
        )
    again = trainer(filters.Gaussian(mu=1.0), **settings)
    again.fit(x, y, folder=training.RunFolder(tmp_path / "run", every=3, resume=True))
    spent = again.accounts.spent()
    assert np.all(spent <= shares)
    assert np.max(spent[shares == 0.25]) > 0.24
    assert np.array_equal(again.accounts.state()["shares"], shares)
