"""Folders of trained modules: the same numbers and card come back, and nothing else is taken."""

import json
import pickle

import numpy as np
import pytest
import torch
from torch import nn

from almoner import filters, individual, odometers, training
from almoner.errors import ArgumentError, DataError, Unsupported
from almoner.training import saved_model, saved_module
from almoner.training._linear import model_folder
from training_runs import BY_RECORD, N, network, records, trainer


def trained(**options):
    """A trainer of the network that has trained for some steps."""
    job = trainer(filters.Gaussian(epsilon=1.0, delta=1e-5), steps=5, seed=1, **options)
    job.fit(*records())
    return job


def streamed(updates=2, **options):
    module = network()
    optimizer = torch.optim.Adam(module.parameters(), lr=0.1)
    settings = {"max_grad_norm": 1.0, "noise_multiplier": 4.0, "seed": 3} | options
    stream = training.Stream(module, BY_RECORD, optimizer, filters.Gaussian(epsilon=1.0, delta=1e-5), **settings)
    x, y = records()
    for update in range(updates):
        stream.update(x[update : update + 4], y[update : update + 4], ["ann", "bob", "cat", "ann"], divisor=4.0)
    return stream


@pytest.mark.parametrize("make", [trained, streamed])
def test_what_is_saved_comes_back(tmp_path, make):
    """To the last bit: parameters, card and optimizer; the card is JSON, words and a page."""
    job = make()
    folder = saved_module.save(job, tmp_path / "m")
    again = nn.Sequential(nn.Linear(5, 6), nn.Tanh(), nn.Linear(6, 2))
    saved = saved_module.load(folder, again)
    for name, value in job.module.state_dict().items():
        assert torch.equal(again.state_dict()[name], value)
    assert saved.card == job.card()
    assert json.loads((folder / "card.json").read_text())["epsilon"] == 1.0
    assert "What this model promises" in (folder / "card.md").read_text()
    assert saved.settings["optimizer"]["lr"] == job._optimizer.param_groups[0]["lr"]
    assert saved.settings["trained_by"] == type(job).__name__
    assert sorted(each.name for each in folder.iterdir()) == [
        "card.html",
        "card.json",
        "card.md",
        "model.json",
        "weights.npz",
    ]
    assert list(tmp_path.iterdir()) == [folder]  # no accounts unless they are asked for


def test_accounts_are_kept_beside_the_folder_and_private(tmp_path):
    """In a file that its owner alone can read; what a person is told is what the trainer tells."""
    job = streamed()
    folder = saved_module.save(job, tmp_path / "m", keep_accounts=True)
    beside = saved_model.accounts_file(folder)
    assert beside.stat().st_mode & 0o777 == 0o600
    assert "bob" not in "".join(each.read_text(errors="ignore") for each in folder.iterdir())
    told, own = saved_model.statement(folder, "bob"), job.statement("bob")
    assert (told.used, told.epsilon, told.delta) == (own.used, own.epsilon, own.delta)
    rows = saved_module.save(trained(), tmp_path / "rows", keep_accounts=True)
    assert 0 < saved_model.statement(rows, str(N - 1)).used <= 1
    x, y = records()
    named = trainer(filters.Gaussian(epsilon=1.0, delta=1e-5), steps=5, seed=1)
    named.fit(x, y, [f"person {number // 2}" for number in range(N)])
    kept = saved_module.save(named, tmp_path / "named", keep_accounts=True)
    assert saved_model.statement(kept, "person 7").used == named.statement("person 7").used
    with pytest.raises(ArgumentError, match="accounts of another model"):
        saved_module.save(trained(), tmp_path / "rows", force=True)
    mixed = streamed(updates=0)
    x, y = records()
    mixed.update(x[:2], y[:2], [1, "1"], divisor=4.0)
    with pytest.raises(Unsupported, match="same as text"):
        saved_module.save(mixed, tmp_path / "mixed", keep_accounts=True)
    with pytest.raises(Unsupported, match="accounts per person"):
        saved_module.save(trained(individual=False), tmp_path / "all", keep_accounts=True)
    assert not (tmp_path / "all").exists()


@pytest.mark.parametrize(
    ("other", "differences"),
    [
        (nn.Sequential(nn.Linear(5, 7), nn.Tanh(), nn.Linear(7, 2)), ["'0.weight' is float32 (7, 5)", "(6, 5)"]),
        (nn.Sequential(nn.Linear(5, 6), nn.Tanh()), ["it lacks '2.weight', '2.bias'"]),
        (nn.Sequential(nn.Linear(5, 6), nn.PReLU(), nn.Linear(6, 2)), ["the folder lacks '1.weight'"]),
        (network().double(), ["'0.weight' is float64", "float32"]),
        (nn.Sequential(*[nn.Linear(2, 2) for _ in range(9)]), ["the folder lacks", "and 8 more"]),
    ],
    ids=["sizes", "fewer", "more", "type", "many"],
)
def test_another_module_is_refused_and_left_as_it_was(tmp_path, other, differences):
    """With the names, shapes and types of what differs."""
    folder, before = saved_module.save(trained(), tmp_path / "m"), [each.clone() for each in other.parameters()]
    with pytest.raises(ArgumentError) as told:
        saved_module.load(folder, other)
    for difference in differences:
        assert difference in str(told.value)
    assert all(torch.equal(each, was) for each, was in zip(other.parameters(), before, strict=True))


class Trap:
    """What a pickle would run."""

    def __reduce__(self):
        return (pytest.fail, ("code in the folder was run",))


def test_damaged_folders_are_refused_and_nothing_in_them_runs(tmp_path):
    """Weights that are another file, a pickle with code, a card that is none, a folder of something else."""
    job = trained()
    for number, damage in enumerate(["weights", "pickle", "described", "card", "format", "kind"]):
        folder = saved_module.save(job, tmp_path / str(number))
        described = json.loads((folder / "model.json").read_text())
        if damage == "weights":
            np.savez(folder / "weights.npz", **{name: each.numpy() for name, each in network().state_dict().items()})
        elif damage == "pickle":
            (folder / "weights.npz").write_bytes(pickle.dumps({"0.weight": Trap()}))
            described["weights"] = model_folder._digest(folder / "weights.npz")
        elif damage == "described":
            described["arrays"].pop("0.weight")
        elif damage == "card":
            card = json.loads((folder / "card.json").read_text())
            (folder / "card.json").write_text(json.dumps(card | {"epsilon": -1.0}))
        elif damage == "format":
            described["format"] = 99
        else:
            described["kind"] = "logistic regression"
        (folder / "model.json").write_text(json.dumps(described))
        with pytest.raises(DataError):
            saved_module.load(folder, network())
    with pytest.raises(DataError):
        saved_module.load(tmp_path / "nowhere", network())
    with pytest.raises(DataError, match=r"training\.saved_module\.load"):
        saved_model.load(saved_module.save(job, tmp_path / "good"))


def test_what_cannot_be_saved_is_refused(tmp_path, monkeypatch):
    """A trainer that has not trained, a module with a state that is no tensor, a folder that is there."""
    with pytest.raises(ArgumentError, match="nothing was trained"):
        saved_module.save(trainer(filters.Gaussian(epsilon=1.0, delta=1e-5)), tmp_path / "m")
    with pytest.raises(ArgumentError, match="Trainer or a"):
        saved_module.save(network(), tmp_path / "m")
    job = trained()
    saved_module.save(job, tmp_path / "m")
    with pytest.raises(ArgumentError, match="exists already"):
        saved_module.save(job, tmp_path / "m")
    saved_module.save(job, tmp_path / "m", force=True)
    monkeypatch.setattr(nn.Tanh, "get_extra_state", lambda self: {"a": 1}, raising=False)
    with pytest.raises(Unsupported, match="no tensor"):
        saved_module.save(job, tmp_path / "extra")
    monkeypatch.undo()
    bounded = training.Stream(
        linear := nn.Linear(5, 2),
        BY_RECORD,
        torch.optim.SGD(linear.parameters(), lr=1.0),
        odometers.Gaussian(delta=1e-5, plan=1.0),
        noise_multiplier=4.0,
        max_grad_norm=1.0,
    )
    with pytest.raises(Unsupported, match="no budget"):
        saved_module.save(bounded, tmp_path / "bounded", keep_accounts=True)
    assert saved_module.save(bounded, tmp_path / "bounded").is_dir()


def test_budgets_without_a_delta_are_saved_with_the_one_that_is_given(tmp_path):
    """And shared accounts, in which other models' spends are."""
    accounts = individual.Filter(N, filters.Gaussian(mu=0.5))
    job = trainer(accounts, steps=3, seed=1)
    job.fit(*records())
    with pytest.raises(ArgumentError, match="delta"):
        saved_module.save(job, tmp_path / "m")
    saved = saved_module.load(saved_module.save(job, tmp_path / "m", delta=1e-6), network())
    assert saved.card.delta == 1e-6
