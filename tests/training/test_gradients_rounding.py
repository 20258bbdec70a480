"""Gradients per person in PyTorch: rounding never makes a norm too small or a contribution too large."""

import pytest
import torch
from torch import nn

from almoner.training.gradients import Gradients, check
from almoner.training.gradients._engine import clipping
from almoner.training.gradients._factors import Dense, SparseRows
from gradient_modules import BY_RECORD, Sequence, by_record, setting


def test_cancelling_places_do_not_make_a_norm_too_small():
    """Where the outer products of many places cancel, the norm is still not below the norm of their sum."""
    torch.manual_seed(0)
    module = Sequence(nn.Linear(80, 70), 70)
    x = torch.randn(4, 2, 80) * 100
    x[:, 1] = -x[:, 0] + 1e-3 * torch.randn(4, 80)  # the two places nearly cancel
    norms = Gradients(module, BY_RECORD).norms(x, torch.zeros(4, dtype=torch.long))
    exact = by_record(module.double(), x.double(), torch.zeros(4, dtype=torch.long)).norm(dim=1)
    assert (norms >= exact * (1 - 1e-6)).all()


@pytest.mark.slow
def test_gradients_that_are_nothing_but_rounding_are_not_refused():
    """Constant images before a normalisation have no gradient but rounding errors, which differ from way to way."""
    for seed in range(60):
        torch.manual_seed(seed)
        module = nn.Sequential(nn.Conv2d(1, 4, 3), nn.GroupNorm(2, 4), nn.Flatten())
        assert check(module, torch.ones(3, 1, 6, 6)).shape == (3,)


def test_the_norm_of_many_numbers_is_not_rounded_against_the_person():
    """A gradient of a million equal numbers: single precision loses a thousandth of its norm on the way."""
    factor = Dense(torch.full((2, 1000, 1000), 0.7))
    assert (factor.squared_norms() >= 0.7**2 * 1e6 * (1 - 4e-6)).all()


def test_a_word_that_occurs_often_is_summed_exactly():
    """Ten thousand uses of one row of an embedding add up in double precision."""
    b = torch.full((1, 10_000, 3), 0.7)
    factor = SparseRows(torch.zeros(1, 10_000, dtype=torch.long), b, torch.Size((5, 3)))
    assert float(factor.squared_norms()[0]) >= 3 * (1e4 * float(b[0, 0, 0])) ** 2 * (1 - 4e-6)


class Halved(nn.Module):
    """Computes in half precision inside."""

    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(64, 64), nn.Tanh(), nn.Linear(64, 64), nn.Flatten(), nn.Linear(256, 2))

    def forward(self, x):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            return self.net(x)


@pytest.mark.parametrize("make", [Halved, lambda: Halved().net])
def test_nobody_contributes_more_than_is_charged_when_a_module_computes_with_few_digits(make):
    """With half precision inside, or matrices multiplied with fewer digits, contributions keep to the clip."""
    torch.manual_seed(0)
    module, x, y = make(), torch.randn(8, 4, 64), torch.zeros(8, dtype=torch.long)
    gradients, clip = Gradients(module, BY_RECORD), 1e-2
    torch.set_float32_matmul_precision("medium")
    try:
        for person in range(8):
            sums, _ = gradients.sums(
                x, y, lambda rows, norms, me=person: torch.where(rows == me, clipping(norms, clip), 0.0)
            )
            assert float(torch.cat([part.double().reshape(-1) for part in sums]).norm()) <= clip
        assert torch.get_float32_matmul_precision() == "medium"  # and what the caller chose is left alone
    finally:
        torch.set_float32_matmul_precision("highest")


def test_uses_of_a_word_that_cancel_do_not_round_the_others_away():
    """A person whose two huge uses of one row cancel is not added at full weight: between them the others must stay."""
    b = torch.full((12, 2, 1), 0.5)
    b[11, 0], b[11, 1] = 1e9, -1e9
    factor = SparseRows(torch.zeros(12, 2, dtype=torch.long), b, torch.Size((3, 1)))
    weights = clipping(factor.squared_norms().sqrt(), 1.0)
    both = [torch.zeros(factor.shape) for _ in range(2)]
    factor.add_weighted_sum(both[0], weights.float())
    SparseRows(factor.entries[:11], b[:11], factor.shape).add_weighted_sum(both[1], weights[:11].float())
    apart = both[0] - both[1]
    assert float(apart.norm()) <= 1.0


@pytest.mark.slow
def test_sums_over_many_people_are_not_rounded_on_the_way():
    """A thousand equal people, one at a time, contribute a thousand times what one does, to the last digit but few."""
    module, x, y = setting("linear")
    engine = Gradients(module, BY_RECORD)
    engine.prepare(x, y)
    one = engine.sums(x[:1], y[:1], 0.7)[0]
    engine._records_at_once = 1
    many = engine.sums(x[:1].expand(1000, *x.shape[1:]), y[:1].expand(1000), 0.7)[0]
    assert all(torch.allclose(all_, 1000 * part, rtol=1e-12, atol=0.0) for all_, part in zip(many, one, strict=True))


def test_squares_that_vanish_in_single_precision_are_charged():
    """Inputs of 2.6e-23, whose squares are below the smallest float32, times a residual of 1e19: norms are not below
    what is contributed."""
    module = nn.Linear(10_000, 1, bias=False)
    with torch.no_grad():
        module.weight.zero_()
    x = torch.full((3, 10_000), 2.6e-23)
    x[:, 0], x[2] = 3.8e-23, 0.0
    y = torch.tensor([[9e18], [0.0], [9e18]])
    engine = Gradients(module, lambda output, goals: ((output - goals) ** 2).sum(1))
    sums, norms = engine.sums(x, y, lambda rows, found: torch.ones(len(rows), dtype=torch.float64))
    assert norms[0] >= sums[0].norm() > 0.04
    assert norms[1] == 0.0
    assert norms[2] == 0.0  # nothing contributed costs nothing


@pytest.mark.parametrize("clip", [1e-2, 1e-4, 1e-6, 3e-7])
def test_weights_too_small_for_single_precision_are_rounded_down(clip):
    """A gradient of 1e38, clipped: its weight is no normal float32, and the contribution is never above the clip."""
    module = nn.Linear(1, 1, bias=False)
    with torch.no_grad():
        module.weight.zero_()
    engine = Gradients(module, lambda output, goals: ((output - goals) ** 2).sum(1))
    for goal in (9e18, 8e18, 7e18, 6e18, 5e18, 4e18):
        sums, _ = engine.sums(torch.tensor([[9e18]]), torch.tensor([[goal]]), clip)
        assert sums[0].norm() <= clip
