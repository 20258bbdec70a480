"""Gradients per person in PyTorch: every kind of layer against a naive loop, and people with several records."""

import pytest
import torch
from torch import nn

from bursar.training.gradients import Gradients, _self_check, clipping
from gradient_modules import BY_RECORD, MODULES, by_record, setting


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


@pytest.mark.parametrize("name", ["lstm", "gru", "rnn", "cells", "attention", "transformer"])
def test_layers_spelled_out_compute_what_they_did(name):
    """Recurrent and attention layers give the same output while they are recorded as before and after."""
    module, x, y = setting(name)
    module.eval()
    before = module(x)
    seen = []
    Gradients(module, BY_RECORD).sums(x, y, 1.0, observe=lambda records, output, losses: seen.append(output))
    assert torch.allclose(seen[-1], before, rtol=1e-5, atol=1e-6)
    assert torch.equal(module(x), before)


def test_a_person_whose_gradient_is_not_finite_is_left_out():
    """Their norm is NaN, their weight is zero, and the others' sum is what it would be without them."""
    module, x, y = setting("convolution 2d")
    alone = Gradients(module, BY_RECORD).sums(x[1:], y[1:], 1.0)[0]
    x[0, 0, 0, 0] = torch.inf
    sums, norms = Gradients(module, BY_RECORD).sums(x, y, 1.0)
    assert torch.isnan(norms[0])
    assert all(torch.allclose(a, b, rtol=1e-5, atol=1e-7) for a, b in zip(sums, alone, strict=True))


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
    few, _ = _self_check.spread([torch.empty(2**24 + 4).view(-1, 1)], None)
    assert few[0].shape == (4, 1)
