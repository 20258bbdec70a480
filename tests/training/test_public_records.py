"""Public records beside private ones: the step they make, the accounts they leave alone, and what is refused."""

import re
from contextlib import suppress

import numpy as np
import pytest
import torch
from torch import nn

from almoner import errors, filters, individual, mechanisms, training
from almoner.training import FixedBatches, Poisson, PublicRecords
from almoner.training._records import PublicBatches
from training_runs import BY_RECORD, N, dies, network, trainer

BUDGET = filters.Gaussian(epsilon=2.0, delta=1e-5)


def public(count=30, seed=3, **options):
    """Some public records of the problem, and what is made of them."""
    x = torch.randn(count, 5, generator=torch.Generator().manual_seed(seed))
    return PublicRecords(x, (x[:, 0] > 0).long(), **options)


def spent(data, sampling=None, individual=True, steps=1, **options):
    """The units that everybody has spent after some steps, and the module's parameters."""
    budget = filters.RenyiOrder(alpha=8, epsilon=2.0, delta=1e-5) if isinstance(sampling, Poisson) else BUDGET.fresh()
    made = trainer(budget, steps=steps, seed=5, sampling=sampling, individual=individual)
    made.fit(*data, **options)
    state = made.accounts.state()
    return {name: np.asarray(value).tolist() for name, value in state.items() if name != "released"}, made


@pytest.mark.parametrize("sampling", [None, Poisson(0.2), FixedBatches(100)])
@pytest.mark.parametrize("individual", [True, False])
def test_accounts_of_one_step_are_those_without_public_records(data, sampling, individual):
    """At the same parameters everybody is charged the same, to the unit, whatever the public records and weight are."""
    alone, plain = spent(data, sampling, individual)
    beside, mixed = spent(data, sampling, individual, public=public(weight=1e6))
    assert alone == beside
    assert plain.noise_multiplier == mixed.noise_multiplier
    moved = [
        float((a - b).detach().abs().max())
        for a, b in zip(plain.module.parameters(), mixed.module.parameters(), strict=True)
    ]
    assert min(moved) > 1.0


def test_public_records_move_a_charge_through_the_public_model_alone(data):
    """Each step's charge is that of the private gradients' norms at the parameters of that moment alone."""
    norms, module = [], network()
    gradients = training.Gradients(module, BY_RECORD)

    def look(run):
        if run.step < 3:
            norms.append(np.minimum(gradients.norms(*data).numpy(), 1.0))

    made = trainer(BUDGET.fresh(), module, steps=3, sampling=training.FullBatch(pace=0.0))
    made.fit(*data, callbacks=[look], public=public(weight=5.0, batch_size=7))
    by_hand = individual.Filter(N, BUDGET.fresh())
    for each in norms:
        by_hand.charge(mechanisms.Gaussian(made.noise_multiplier, 1.0), each)
    assert np.array_equal(made.accounts.spent(), by_hand.spent())


def test_a_step_adds_the_weighted_mean_gradient(data):
    """Beside the step with the same noise and no public records, there is rate times weight times plain gradient."""
    given = public(count=12, weight=0.5)
    module = network()
    x, y = given._given
    expected = torch.autograd.grad(BY_RECORD(module(x), y).mean(), list(module.parameters()))
    plain, mixed = spent(data)[1].module, spent(data, public=given)[1].module
    for one, other, part in zip(plain.parameters(), mixed.parameters(), expected, strict=True):
        assert torch.allclose(one - other, 0.5 * part, atol=1e-6)


def test_batches_come_in_turns():
    """In one round each record comes once; the next round is the same, and nothing is drawn anew."""
    like = training._trainer.Records(
        *training._trainer.as_records(torch.zeros(2, 5), torch.zeros(2, dtype=int), torch.float32), None
    )
    batches = public(count=6, batch_size=4).beside(like, torch.float32)
    whole = batches._records.inputs[0]
    rows = torch.cat([batches.of_turn(turn).inputs[0] for turn in range(3)])
    assert sorted(rows[:6].tolist()) == sorted(whole.tolist()) != rows[:6].tolist()
    assert torch.equal(rows[:6], rows[6:])


def test_a_resumed_run_goes_on_with_its_turn_and_no_other_records(data, tmp_path, monkeypatch):
    """After a crash the next batch is the one after the last that was saved; other records, or none, are refused."""
    turns, of_turn = [], PublicBatches.of_turn
    monkeypatch.setattr(PublicBatches, "of_turn", lambda self, turn: turns.append(turn) or of_turn(self, turn))

    def crash(run):
        if run.step == 3:
            raise KeyError

    def go(resume, **options):
        folder = training.RunFolder(tmp_path / "run", every=1, resume=resume)
        trainer(BUDGET.fresh(), steps=5).fit(*data, folder=folder, **options)

    with dies(KeyError):
        go(resume=False, public=public(batch_size=4), callbacks=[crash])
    for other in (None, public(seed=4, batch_size=4), public(batch_size=5), public(batch_size=4, weight=2.0)):
        with pytest.raises(errors.ArgumentError, match=r"public=.* must be that of the folder"):
            go(resume=True, public=other)
    assert turns == [0, 1, 2]
    go(resume=True, public=public(batch_size=4))
    assert turns == [0, 1, 2, 2, 3, 4]
    trainer(BUDGET.fresh(), steps=5).fit(*data, folder=tmp_path / "alone")
    folder = training.RunFolder(tmp_path / "alone", resume=True)
    with pytest.raises(errors.ArgumentError, match=r"public=.* must be that of the folder: None"):
        trainer(BUDGET.fresh(), steps=5).fit(*data, folder=folder, public=public())


def test_shares_hold_beside_public_records(data):
    """A person with a thousandth of the budget spends at most that, and the others as ever."""
    shares = np.where(np.arange(N) < 50, 1e-3, 1.0)
    made = trainer(BUDGET.fresh(), steps=10)
    made.fit(*data, shares=shares, public=public(weight=3.0))
    used = np.asarray(made.accounts.spent()) / made.accounts.budget.mu**2
    assert used[:50].max() <= 1e-3 < used[50:].max() <= 1


def test_public_records_teach_what_private_ones_do_not(data):
    """With noise that drowns the private gradients, the public ones alone make a model, and the card says so."""
    x, y = data
    right = []
    for given in (None, public(count=200, weight=20.0)):
        made = trainer(filters.Gaussian(epsilon=0.05, delta=1e-5), steps=60, lr=0.1, seed=0)
        made.fit(x, y, public=given)
        with torch.no_grad():
            right.append(float((made.module(x).argmax(1) == y).double().mean()))
    assert right[0] < 0.6 < 0.8 < right[1]
    card = made.card()
    assert card.public == "200 of 200 in each step, weight 20.0: nobody paid for them"
    assert card.public in card.to_markdown()
    assert "chosen without looking at the data" in card.to_html()
    assert training.Card.from_dict(card.to_dict()) == card


def test_data_sets_give_public_records(data):
    """Records that are loaded as they are needed, private and public, make the same accounts."""
    x, y = data
    beside = public(count=9)
    loaded = torch.utils.data.Subset(torch.utils.data.TensorDataset(*beside._given), range(9))
    state = spent(data, public=beside)[0]
    assert state == spent(data, public=PublicRecords(loaded))[0]
    assert state == spent((torch.utils.data.Subset(torch.utils.data.TensorDataset(x, y), range(N)),), public=beside)[0]


X, Y = torch.ones(4, 5), torch.zeros(4, dtype=torch.long)


@pytest.mark.parametrize(
    ("given", "text"),
    [
        ((torch.ones(4, 6), Y), "0 records|4 records of .*(6,)"),
        ((X.double(), Y), "the private ones' form"),
        ((X, Y.float()), "the private ones' form"),
        (({"x": X}, Y), "the private ones' form"),
        (([X, X], Y), "the private ones' form"),
        ((X[:0], Y[:0]), "0 records"),
        ((X * torch.nan, Y), "must be finite"),
        ((X * torch.inf, Y), "must be finite"),
        ((X, Y[:3]), "as many records"),
        ((X, None), "targets must be given"),
    ],
)
def test_public_records_of_another_form_are_refused(data, given, text):
    """Nobody is charged, and the budget can still be used."""
    budget = BUDGET.fresh()
    with pytest.raises(errors.ArgumentError, match=text):
        trainer(budget).fit(*data, public=PublicRecords(*given))
    assert budget.count == 0
    trainer(budget, steps=1).fit(*data)


@pytest.mark.parametrize("options", [{"weight": value} for value in (0, -1.0, float("nan"), float("inf"), "1", None)])
def test_weights_are_positive_and_finite(options):
    """Else the error comes at once."""
    with pytest.raises(errors.ArgumentError, match="weight"):
        PublicRecords(X, Y, **options)


@pytest.mark.parametrize("size", [0, -1, 2.5, float("nan"), True])
def test_batch_sizes_are_whole_numbers(size):
    """Else the error comes at once; more than there are records, before anybody is charged."""
    with suppress(TypeError), pytest.raises(errors.ArgumentError, match="batch_size"):
        PublicRecords(X, Y, batch_size=size)
    with pytest.raises(errors.ArgumentError, match="batch_size=5 must be at most 4"):
        trainer(BUDGET.fresh()).fit(
            torch.ones(6, 5), torch.zeros(6, dtype=torch.long), public=PublicRecords(X, Y, batch_size=5)
        )


def test_slices_of_the_private_records_are_not_public(data):
    """A slice that reaches into them is refused; one beside them, of the same tensor, is not."""
    x, y = data
    for rows in (slice(0, 50), slice(99, 120)):
        with pytest.raises(errors.ArgumentError, match="other records than the private ones"):
            trainer(BUDGET.fresh()).fit(x[:100], y[:100], public=PublicRecords(x[rows], y[rows]))
    with pytest.raises(errors.ArgumentError, match="other records than the private ones"):
        trainer(BUDGET.fresh()).fit(x.numpy(), y.numpy(), public=PublicRecords(x.numpy()[:50], y.numpy()[:50]))
    trainer(BUDGET.fresh(), steps=1).fit(x[:100], y[:100], public=PublicRecords(x[100:], y[100:]))
    wide = torch.cat([x, x], dim=1)
    with pytest.raises(errors.ArgumentError, match="other records than the private ones"):
        trainer(BUDGET.fresh()).fit(wide[:, :5], y, public=PublicRecords(wide[:50, :5], y[:50].clone()))
    trainer(BUDGET.fresh(), steps=1).fit(wide[:100, :5], y[:100], public=PublicRecords(wide[100:, :5], y[100:]))


def test_other_things_are_no_public_records(data):
    """A pair of tensors is refused, with the line to write; so is a record that reaches a message."""
    with pytest.raises(errors.ArgumentError, match=re.escape("training.PublicRecords(inputs, targets)")):
        trainer(BUDGET.fresh()).fit(*data, public=(X, Y))
    assert repr(PublicRecords(X, Y)) == "PublicRecords(weight=1.0, batch_size=None)"


def test_dropout_and_frozen_layers_go_with_public_records(data):
    """A module in training mode, part of it frozen, is trained by both kinds of records; nothing else moves."""
    module = nn.Sequential(nn.Linear(5, 6), nn.Dropout(0.5), nn.Linear(6, 2))
    module[0].requires_grad_(False)
    before = module[0].weight.clone()
    made = training.Trainer(
        module,
        BY_RECORD,
        torch.optim.AdamW(module[2].parameters()),
        BUDGET.fresh(),
        max_grad_norm=1.0,
        divisor=N,
        steps=2,
    )
    made.fit(*data, public=public())
    assert torch.equal(before, module[0].weight)
    assert module.training
