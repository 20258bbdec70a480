"""Gradients per person in PyTorch: every kind of layer against a naive loop, and people with several records."""

from types import SimpleNamespace

import numpy as np
import pandas
import pytest
import torch
from torch import nn
from torch.nn.utils.parametrize import register_parametrization

from almoner import errors
from almoner.training.gradients import Gradients, _engine, _layers, _self_check, check
from almoner.training.gradients._engine import clipping
from gradient_modules import BY_RECORD, FLAT, MODULES, by_record, setting


@pytest.mark.quick(16)
@pytest.mark.parametrize("name", MODULES)
def test_every_layer_agrees_with_a_naive_loop(name):
    """Norms and clipped sums are those of one backward pass per record, to 1e-5, whatever the chunks."""
    module, x, y = setting(name)
    rows = by_record(module, x, y)
    norms = rows.norm(dim=1)
    clip = float(norms.median())
    engine = Gradients(module, BY_RECORD)
    for at_once in (None, 4):
        engine._records_at_once = at_once
        sums, found = engine.sums(x, y, clip)
        assert torch.allclose(found, norms, rtol=1e-4, atol=1e-12)
        assert (found >= norms * (1 - 1e-6)).all()
        flat = torch.cat([part.reshape(-1) for part in sums]).double()
        expected = (rows * (clip / norms.clamp(min=clip))[:, None]).sum(0)
        assert (flat - expected).norm() <= 1e-5 * clip * len(x)


@pytest.mark.quick(12)
@pytest.mark.parametrize("name", MODULES)
def test_several_records_of_a_person_are_one_gradient(name):
    """A person's records are summed before the norm is taken; chunks hold whole people, or parts of one."""
    module, x, y = setting(name, n=9)
    people = torch.tensor([3, 0, 3, 1, 3, 0, 3, 3, 5])
    rows = by_record(module, x, y)
    summed = torch.zeros(6, rows.shape[1], dtype=torch.float64).index_add_(0, people, rows)
    norms = summed.norm(dim=1)
    engine = Gradients(module, BY_RECORD)
    for at_once in (None, 2, 4):
        engine._records_at_once = at_once
        weights = torch.tensor([0.5, 1.0, 7.0, 0.25, 3.0, 0.0], dtype=torch.float64)
        sums, found = engine.sums(x, y, lambda rows, norms: weights[rows], people=people)  # noqa: B023
        assert torch.allclose(found, norms, rtol=1e-4, atol=1e-12)
        assert found[2] == found[4] == 0.0  # they have no records
        flat = torch.cat([part.reshape(-1) for part in sums]).double()
        assert (flat - weights @ summed).norm() <= 1e-5 * norms.sum()


@pytest.mark.quick(12)
@pytest.mark.parametrize("name", [name for name in MODULES if "convolution" in name or "norm" in name])
def test_parts_that_fit_a_cache_give_the_same_gradients(name, monkeypatch):
    """Patches and normalised records are made a few records at a time; with one at a time all norms and sums stay."""
    module, x, y = setting(name)
    before, norms = Gradients(module, BY_RECORD).sums(x, y, 1.0)
    monkeypatch.setattr(_layers, "CACHE", 1)
    after, found = Gradients(module, BY_RECORD).sums(x, y, 1.0)
    assert torch.allclose(found, norms, rtol=1e-5, atol=1e-12)
    assert all(torch.allclose(a, b, rtol=1e-4, atol=1e-6) for a, b in zip(after, before, strict=True))


@pytest.mark.quick(9)
@pytest.mark.parametrize(
    "name",
    [
        "lstm",
        "lstm, last states",
        "gru",
        "gru, both ways",
        "rnn",
        "rnn of rectifiers",
        "packed lstm",
        "packed gru",
        "cells",
        "attention",
        "transformer",
    ],
)
def test_layers_spelled_out_compute_what_they_did(name):
    """Recurrent and attention layers give the same output while they are recorded as before and after."""
    module, x, y = setting(name)
    module.eval()
    before = module(x)
    seen = []
    Gradients(module, BY_RECORD).sums(x, y, 1.0, observe=lambda records, output, losses: seen.append(output))
    assert torch.allclose(seen[-1], before, rtol=1e-5, atol=1e-6)
    assert torch.equal(module(x), before)


class Told(nn.Module):
    """Is called by name and gives a dict."""

    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Linear(4, 3), nn.Linear(5, 3)

    def forward(self, *, left, right=None):
        return {"logits": self.first(left) + self.second(right), "hidden": None}


def test_inputs_by_name_and_a_dict_that_comes_out():
    """A dict of tensors is what the module is called with by name; arrays of NumPy and tables of pandas are tensors."""
    torch.manual_seed(0)
    module, y = Told(), torch.randint(3, (6,))
    left, right = torch.randn(6, 4), torch.randn(6, 5)
    engine = Gradients(module, lambda output, goals: BY_RECORD(output["logits"], goals))
    seen = []
    expected, _ = engine.sums(
        {"left": left, "right": right}, y, 0.5, observe=lambda rows, out, losses: seen.append(out)
    )
    logits = (module.first(left) + module.second(right)).detach()
    rows = torch.autograd.functional.jacobian(lambda out: BY_RECORD(out, y), logits)
    assert torch.allclose(seen[0]["logits"], logits)
    assert rows.shape == (6, 6, 3)
    assert check(Told(), {"left": left, "right": right}).shape == (6,)
    others = {"left": pandas.DataFrame(left.double().numpy()), "right": right.numpy()}
    found, _ = engine.sums(others, y, 0.5)
    assert all(torch.equal(a, b) for a, b in zip(found, expected, strict=True))
    with pytest.raises(errors.ArgumentError, match="numbers only, not dtype"):
        engine.sums({"left": np.array(["a"] * 6), "right": right}, y, 0.5)
    with pytest.raises(errors.ArgumentError, match="a dict of them by name, not DataLoader"):
        engine.sums(torch.utils.data.DataLoader([1]), y, 0.5)


def test_one_record_first_is_compared_again_with_more():
    """One record alone shows no mixture: with the second the module is compared again, also in another mode."""

    class Mixed(nn.Linear):
        def forward(self, x):
            return super().forward(x - x.mean(0).detach())

    engine = Gradients(nn.Sequential(Mixed(4, 3)), BY_RECORD)
    x, y = torch.randn(5, 4), torch.zeros(5, dtype=torch.long)
    engine.norms(x[:1], y[:1])
    with pytest.raises(errors.Unsupported):
        engine.norms(x, y)


def test_batch_norm_that_is_set_to_training_again_is_refused():
    """Its statistics would be those of the batch."""
    module, x, y = setting("frozen batch norm")
    engine = Gradients(module, BY_RECORD)
    engine.norms(x, y)
    module.train()
    with pytest.raises(errors.Unsupported, match=r"layer '1' .BatchNorm2d. .*call eval.. on this layer"):
        engine.norms(x, y)


def test_parameters_that_are_given_once_for_each_record_are_put_back():
    """Also where the module ends in an error."""
    module, x, y = setting("parameters with a leading axis of 1")
    before = dict(module.named_parameters())
    engine = Gradients(module, BY_RECORD)
    engine.norms(x, y)
    with pytest.raises(RuntimeError):
        engine.norms(x[:, :2], y)
    assert list(dict(module.named_parameters())) == list(before)
    assert all(now is before[name] for name, now in module.named_parameters())


@pytest.mark.parametrize("records", [4, 8, 9, 12])
def test_numbers_of_records_that_equal_other_sizes_confuse_nothing(records):
    """As many records as places, as features, as positions: what has no records is known from other passes."""
    for name in ("positions, leading axis of 1", "positions, no leading axis", "parameters with a leading axis of 1"):
        module, x, y = setting(name, n=records)
        module.eval()
        rows = by_record(module, x, y)
        engine = Gradients(module, BY_RECORD)
        engine.prepare(x, y)
        engine._records_at_once = records
        sums, norms = engine.sums(x, y, 1e9)
        assert torch.allclose(norms, rows.norm(dim=1), rtol=1e-4)
        assert (torch.cat([part.reshape(-1) for part in sums]) - rows.sum(0)).norm() <= 1e-5 * norms.sum()


@pytest.mark.parametrize(("name", "place"), [("convolution 2d", 0), ("convolution 2d, depthwise", 1)])
def test_a_person_whose_gradient_is_not_finite_is_left_out(name, place):
    """Their norm is NaN, their weight is zero, and the others' sum is what it would be without them."""
    module, x, y = setting(name)
    alone = Gradients(module, BY_RECORD).sums(x[1:], y[1:], 1.0)[0]
    x[0, 0, place, place] = torch.inf
    sums, norms = Gradients(module, BY_RECORD).sums(x, y, 1.0)
    assert torch.isnan(norms[0])
    assert all(torch.allclose(a, b, rtol=1e-5, atol=1e-7) for a, b in zip(sums, alone, strict=True))


@pytest.mark.parametrize(
    ("length", "memory", "at_once"), [(10, None, 543), (1000, None, 16), (1000, 2**16, 8), (4000, None, 8)]
)
def test_a_pass_takes_more_memory_where_it_would_hold_few_records(length, memory, at_once, monkeypatch):
    """By itself a pass takes 2^16 bytes here; for records of 2^13 what sixteen need; of 2^15 the 2^18 that it may."""
    monkeypatch.setattr(_engine, "MEMORY", 2**16)
    monkeypatch.setattr(_engine, "MUCH", 2**18)
    module = nn.Sequential(nn.Conv1d(1, 1, 1), nn.Tanh(), nn.AdaptiveAvgPool1d(1), nn.Flatten(), nn.Linear(1, 3))
    engine = Gradients(module, BY_RECORD, memory=memory)
    engine.norms(torch.ones(2, 1, length), torch.zeros(2, dtype=torch.long))
    assert engine._records_at_once == at_once


def test_a_pass_on_a_gpu_takes_an_eighth_of_its_memory(monkeypatch):
    """Whatever a record needs; asked of the GPU on which the parameters are."""
    asked = {torch.device("cuda:1"): SimpleNamespace(total_memory=80 * 2**30)}
    monkeypatch.setattr(torch.cuda, "get_device_properties", asked.__getitem__)
    assert {_engine._usual(torch.device("cuda:1"), each) for each in (1.0, 2.0**30)} == {10 * 2**30}
    assert _engine._usual(torch.device("cpu"), 1.0) == 2**26


@pytest.mark.parametrize("layer", [nn.Conv2d, nn.ConvTranspose2d])
@pytest.mark.parametrize("bad", [torch.inf, torch.nan, 3e38, 1e-42])
def test_groups_of_one_record_touch_no_other(layer, bad):
    """Whatever numbers one record has, gradients of a grouped convolution of all others keep every bit."""
    torch.manual_seed(0)
    module = layer(16, 32, 3, stride=2, padding=1, groups=8)
    x = torch.randn(9, 16, 7, 7)
    b = torch.randn_like(module(x))
    rule = _layers.transposed if layer is nn.ConvTranspose2d else _layers.convolution
    before = rule(module, x, b)["weight"].gradients()
    x[4], b[4] = bad, bad
    after = rule(module, x, b)["weight"].gradients()
    assert torch.equal(after[:4], before[:4])
    assert torch.equal(after[5:], before[5:])
    assert not torch.equal(after[4], before[4])


def test_dropout_trains_and_the_comparison_leaves_the_mode_alone():
    """With dropout in training mode the comparison switches it off for itself, and puts everything back."""
    module = nn.Sequential(nn.Linear(6, 50), nn.Dropout(0.5), nn.Linear(50, 3))
    engine = Gradients(module, BY_RECORD)
    engine.norms(torch.randn(4, 6), torch.zeros(4, dtype=torch.long))
    assert module.training
    assert module[1].training


def test_clipping_weights():
    """min(1, C / norm), and zero where the norm is unknown."""
    weights = clipping(torch.tensor([0.0, 0.5, 2.0, torch.nan, torch.inf], dtype=torch.float64), 1.0)
    assert weights.tolist() == [1.0, 1.0, 0.5, 0.0, 0.0]


def test_a_few_records_are_found_among_very_many():
    """More records than single precision can number."""
    few, _ = _self_check.spread([torch.zeros(1, 1).expand(2**24 + 4, 1)], None)
    assert few[0].shape == (4, 1)


class Standardised(nn.Module):
    """A convolution's weight with mean 0 and variance 1 / (numbers in a filter), for each of its filters."""

    def forward(self, weight):
        variance, mean = torch.var_mean(weight, dim=(1, 2, 3), correction=0, keepdim=True)
        return (weight - mean) / torch.sqrt(weight[0].numel() * variance + 1e-4)


def test_gradients_below_a_parametrization_are_those_of_a_naive_loop():
    """Of the weight that is trained, which another is made of before it is used."""
    torch.manual_seed(0)
    module = nn.Sequential(nn.Conv2d(3, 4, 3), nn.GroupNorm(2, 4), nn.ReLU(), *FLAT, nn.Linear(4, 3))
    register_parametrization(module[0], "weight", Standardised())
    x, y = torch.randn(6, 3, 7, 7), torch.randint(3, (6,))
    rows = by_record(module, x, y)
    sums, norms = Gradients(module, BY_RECORD).sums(x, y, 0.3)
    assert torch.allclose(norms, rows.norm(dim=1), rtol=1e-4)
    expected = (rows * (0.3 / rows.norm(dim=1).clamp(min=0.3))[:, None]).sum(0)
    assert (torch.cat([part.reshape(-1) for part in sums]) - expected).norm() <= 1e-5 * 6
