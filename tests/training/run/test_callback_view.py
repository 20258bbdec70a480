"""What callbacks get: questions that are paid for, and nothing private."""

import dataclasses
from collections.abc import Mapping

import numpy as np
import pytest
import torch
from torch import nn

from almoner import errors, filters, individual, mechanisms
from almoner.training import _records, stopping
from almoner.training._records import Records, correct
from almoner.training._run.books import MemoryBook
from almoner.training.gradients._recorder import Choices
from training_runs import N, trainer


def test_noisy_sums_are_charged_and_right(data):
    """The count of right answers is right but for its noise, and those who are counted pay for it."""
    x, y = data
    job = trainer(filters.Gaussian(mu=3.0), steps=20, lr=5.0, noise_multiplier=7.0)
    answers = []

    def ask(run):
        if run.step in (0, 20):
            with torch.no_grad():
                truth = int((run.module(x).argmax(1) == y).sum())
            before = None if run.step == 0 else job.accounts.spent().copy()
            answers.append((run.noisy_sum(correct, sigma=5.0), truth))
            if before is not None:
                paid = job.accounts.spent() - before
                assert np.allclose(paid.sum(), truth / 25.0)

    run = job.fit(x, y, callbacks=[ask])
    assert all(abs(answer - truth) < 30 for answer, truth in answers)
    assert run.released[mechanisms.Gaussian(5.0, 1.0)] == 2


def test_questions_leave_the_mode_of_each_layer_alone(data):
    """A layer that is kept in evaluation mode stays there after a noisy sum."""
    x, y = data
    module = nn.Sequential(nn.Linear(5, 6), nn.Dropout(0.5), nn.Linear(6, 2))
    module[1].eval()
    job = trainer(filters.Gaussian(mu=3.0), module, steps=2, noise_multiplier=10.0)
    job.fit(x, y, callbacks=[lambda run: run.noisy_sum(correct, sigma=50.0)])
    assert module.training
    assert not module[1].training


@pytest.mark.parametrize("individual_accounts", [True, False])
@pytest.mark.parametrize(
    "values", [lambda o, t: torch.ones(len(o), 50), lambda o, t: torch.ones(2 * len(o)), lambda *_: 1]
)
def test_a_question_gives_one_number_for_each_record(data, individual_accounts, values):
    """More numbers than records would be a sum of another sensitivity; nobody is charged for it."""
    x, y = data
    job = trainer(filters.Zcdp(rho=1.0), individual=individual_accounts)
    with pytest.raises(errors.ArgumentError, match="one number for each"):
        job.fit(x, y, callbacks=[lambda run: run.noisy_sum(values, sigma=1.0)])
    assert not job._run.current.value.released


def test_another_budget_that_is_exceeded_does_not_end_the_run_in_silence(data):
    """A callback's own filter refuses: that is the callback's error, not the end of this run's budget."""
    own = filters.Zcdp(rho=0.01)
    with pytest.raises(errors.BudgetExceeded):
        trainer(filters.Zcdp(rho=1.0)).fit(*data, callbacks=[lambda run: own.charge(mechanisms.Zcdp(0.1))])


def public_parts(value):
    """All that is reached through public attributes and entries."""
    yield value
    if isinstance(value, Mapping):
        parts = [*value.keys(), *value.values()]
    elif isinstance(value, tuple | list):
        parts = value
    elif type(value).__module__.startswith("almoner"):
        parts = [getattr(value, name) for name in dir(value) if not name.startswith("_")]
    else:
        parts = ()
    for part in parts:
        yield from public_parts(part)


def test_callbacks_find_nothing_private_in_a_run(data):
    """No public attribute of a run, however deep, is an account, a record, or has an entry for each person."""
    private = (individual.Filter, stopping.Dropouts, Records, MemoryBook, np.ndarray)

    def look(run):
        run.history.setdefault("steps", []).append(run.step)
        parts = list(public_parts(run))
        assert run.state in parts
        assert run.counting in parts
        assert not any(isinstance(part, private) for part in parts)
        assert not any(len(part) == N for part in parts if isinstance(part, tuple | list | torch.Tensor))

    tree = stopping.Tree(steps=20, sigma=20.0)
    job = trainer(filters.Gaussian(mu=2.0))
    job.fit(*data, callbacks=[look], watch=lambda people: stopping.Dropouts(people, tree))


def test_the_state_of_a_run_is_one_frozen_value(data):
    """A state that was kept does not change while the run goes on, and it cannot be changed."""
    states = []
    trainer(filters.Zcdp(rho=1.0), steps=3).fit(*data, callbacks=[lambda run: states.append(run.state)])
    assert [state.step for state in states] == [0, 1, 2, 3]
    assert [sum(state.released.values()) for state in states] == [0, 1, 2, 3]
    with pytest.raises(dataclasses.FrozenInstanceError):
        states[0].step = 5
    with pytest.raises(TypeError):
        states[0].released[mechanisms.Gaussian(1.0)] = 1


@pytest.mark.parametrize(("width", "at_once"), [(2, 128), (256, 8), (5000, 1)])
def test_so_many_records_are_evaluated_at_once_as_fit(width, at_once, monkeypatch):
    """By the largest tensor that one record makes inside the module: 2^13 bytes hold eight of 256 numbers; or one."""
    monkeypatch.setattr(_records, "OUTPUTS_AT_ONCE", 2**7)
    monkeypatch.setattr(_records, "OUTPUTS", 2**13)
    module = nn.Sequential(nn.Linear(2, width), nn.ReLU(), nn.Linear(width, 2))
    x, y, sizes = torch.randn(200, 2), torch.arange(200) % 2, []
    truth = correct(module(x), y).tolist()
    module.register_forward_pre_hook(lambda _, given: sizes.append(len(given[0])))
    assert _records.values_by_record(module, x, y, correct).tolist() == truth
    assert max(sizes) == at_once
    assert sum(sizes) == 201  # the first one also alone


def test_what_a_recurrent_layer_gives_counts_for_how_many_are_evaluated():
    """It gives several tensors at once, the largest of them for all times."""
    layer, x = nn.LSTM(2, 64, batch_first=True), torch.ones(1, 20, 2)
    with torch.no_grad(), Choices() as choices:
        layer(x)
    assert choices.largest == 20 * 64 * 4


class Padded(nn.Module):
    """The mean over all places, also those that are masked, of what PyTorch's own transformer gives."""

    def __init__(self):
        super().__init__()
        layer = nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0, batch_first=True)
        self.encoder, self.out = nn.TransformerEncoder(layer, 2), nn.Linear(8, 2)

    def forward(self, x, mask):
        return self.out(self.encoder(x, src_key_padding_mask=mask).mean(1))


def test_a_mask_of_one_record_changes_no_other_value():
    """Where the masks of a batch all are at the end, PyTorch's transformer would put zeros there, and else not."""
    torch.manual_seed(0)
    module, x = Padded(), torch.randn(12, 5, 8)
    mask = torch.arange(5) >= torch.randint(1, 6, (12, 1))
    other = mask.clone()
    other[0] = torch.arange(5) == 0
    both = (
        _records.values_by_record(module, [x, each], torch.zeros(12), lambda output, _: output.softmax(1)[:, 1])
        for each in (mask, other)
    )
    one, another = both
    assert one[0] != another[0]
    assert one[1:].tolist() == another[1:].tolist()
