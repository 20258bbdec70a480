"""Convolutions with standardised weights."""

import torch
from torch import nn

from almoner.training.gradients import Gradients
from almoner.training.images.features import StandardisedWeight, standardised
from gradient_modules import BY_RECORD, FLAT, by_record


def test_filters_have_mean_zero_and_unit_norm():
    """Up to the epsilon, for each filter by itself; also for one that is constant."""
    weight = torch.randn(4, 3, 5, 5) * 7 + 2
    weight[3] = 1.0
    found = StandardisedWeight()(weight)
    assert found.shape == weight.shape
    assert found.mean((1, 2, 3)).abs().max() < 1e-6
    assert torch.allclose(found.flatten(1).norm(dim=1), torch.tensor([1.0, 1.0, 1.0, 0.0]), atol=1e-4)


def test_their_gradients_per_person_are_those_of_a_naive_loop():
    """Of the weight that is trained, below the standardisation."""
    torch.manual_seed(0)
    module = standardised(nn.Sequential(nn.Conv2d(3, 4, 3), nn.GroupNorm(2, 4), nn.ReLU(), *FLAT, nn.Linear(4, 3)))
    x, y = torch.randn(6, 3, 7, 7), torch.randint(3, (6,))
    rows = by_record(module, x, y)
    sums, norms = Gradients(module, BY_RECORD).sums(x, y, 0.3)
    assert torch.allclose(norms, rows.norm(dim=1), rtol=1e-4)
    expected = (rows * (0.3 / rows.norm(dim=1).clamp(min=0.3))[:, None]).sum(0)
    assert (torch.cat([part.reshape(-1) for part in sums]) - expected).norm() <= 1e-5 * 6
